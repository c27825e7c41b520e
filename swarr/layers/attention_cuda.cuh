// attention_cuda.cuh: the kernels of attention.cuh: FlashAttention-2 (Dao 2023) on tensor cores.
//
// Forward: a block of warps holds a tile of queries of one head and walks the tiles of keys that window.h
// gives, from the diagonal back. Backward, without atomics, so that every run gives the same bits:
//   delta          delta(q) = dout . out
//   key_gradient   a block holds a tile of keys of one key/value head, dkey and dvalue in registers, and walks
//                  the query heads of its group and the tiles of queries that may see the keys
//   query_gradient a block holds a tile of queries as in the forward pass
// Both compute scores again: seven products a pair instead of five, for no workspace and no order to keep.
//
// Scores are masked before the exponential, wherever a tile is not all_visible. Rows past a document's end
// are loaded as zeros: their scores are 0, their probabilities finite, and dout = 0, delta = 0 make what they
// add 0. Exponents have base 2, with the scale folded in; lse is a natural logarithm.
#pragma once
#include "../mma.cuh"

namespace flash {

constexpr float log2e = 1.44269504f;

// Which rows a block works on. Tile t of a grid of N / size + count belongs to the document d with
//   start[d] / size + d <= t < start[d + 1] / size + d + 1,
// which is at least as many as it needs; the block of a tile past its end has nothing to do.
struct Place {
    int start;          // of the document
    int length, first;  // of the document; the tile's first position
};
__host__ __device__ inline int tiles_of(Documents documents, int size) {
    return documents.tokens / size + documents.count;
}
__device__ inline bool find_tile(Place& place, Documents documents, int t, int size) {
    int d = 0, end = documents.count;
    while (end - d > 1) {
        const int middle = (d + end) / 2;
        (documents.start[middle] / size + middle <= t ? d : end) = middle;
    }
    const int start = documents.start[d];
    place = {start, documents.start[d + 1] - start, (t - start / size - d) * size};
    return place.first < place.length;
}

// The rows of one token: queries of head h, keys and values of head g.
struct Heads {
    int H, G, E;
    __device__ int row() const { return (H + 2 * G) * E; }
    __device__ int key(int g) const { return (H + g) * E; }
    __device__ int value(int g) const { return (H + G + g) * E; }
    __device__ float scale() const { return rsqrtf(float(E)); }
};

// The key tile visited after t, negative at the end: first those inside the window from the diagonal back.
__device__ inline int next_tile(const KeyTiles& tiles, int t) {
    return t > tiles.begin ? t - 1 : min(t, tiles.sink_end) - 1;
}
__device__ inline bool contains(const KeyTiles& tiles, int t) {
    return t < tiles.sink_end || (t >= tiles.begin && t < tiles.end);
}

// Scores of pairs that are not visible become -inf: visible() of window.h, as bounds that a lane finds once for
// each of its two rows. Here rows of `s` are queries from q, columns keys from k.
template <int N>
__device__ inline void mask_keys(float (&s)[N][4], const Window& window, int q, int k) {
#pragma unroll
    for (int r = 0; r < 2; r++) {
        const int query = q + 8 * r + lane_id() / 4, column = k + lane_id() % 4 * 2;
        const int low = first_key(window, query) - column, high = query - column,
                  sinks = window.sinks - column;
#pragma unroll
        for (int c = 0; c < 8 * N; c += c % 2 ? 7 : 1)
            if (c > high || (c < low && c >= sinks)) s[c / 8][2 * r + c % 2] = -INFINITY;
    }
}
// Here rows are keys from k, columns queries from q. What queries past the document's end get is of no account.
template <int N>
__device__ inline void mask_queries(float (&s)[N][4], const Window& window, int q, int k, int length) {
#pragma unroll
    for (int r = 0; r < 2; r++) {
        const int key = k + 8 * r + lane_id() / 4, column = q + lane_id() % 4 * 2;
        const QueryRange range = query_range(window, key, key, length);
        const int low = range.first - column, end = range.end - column;
#pragma unroll
        for (int c = 0; c < 8 * N; c += c % 2 ? 7 : 1)
            if (c < low || c >= end) s[c / 8][2 * r + c % 2] = -INFINITY;
    }
}

template <class T>
__device__ inline T* shared_memory() {
    extern __shared__ __align__(128) unsigned char bytes[];
    return reinterpret_cast<T*>(bytes);
}

// ---- forward --------------------------------------------------------------------------------------------

// Tile sizes. A warp with 32 rows reads every key and value from shared memory half as often.
template <class T, int E_>
struct Forward {
    static constexpr bool half = std::is_same_v<T, bf16>;
    static constexpr int E = E_, M = half ? 2 : 1, warps = 4, threads = 32 * warps;
    static constexpr int queries = 16 * M * warps, keys = half ? 64 : 32;
    static constexpr size_t shared_bytes = sizeof(T) * E * (queries + 2 * keys);
};

// Values are fetched while the scores are computed, the next keys during the rest.
template <class Block, class T>
__global__ void __launch_bounds__(Block::threads)
    forward(T* out, float* lse, const T* qkv, Documents documents, Window window, Heads heads) {
    constexpr int E = Block::E, M = Block::M, rows = 16 * M, N = Block::keys / 8;
    Place doc;
    const int h = blockIdx.x % heads.H, g = h / (heads.H / heads.G);
    if (!find_tile(doc, documents, (gridDim.x - 1 - blockIdx.x) / heads.H, Block::queries)) return;
    const int row = heads.row();
    const T* from = qkv + size_t(doc.start) * row;
    T *queries = shared_memory<T>(), *keys = queries + Block::queries * E, *values = keys + Block::keys * E;
    auto copy = [&](T* to, int column, int first) {
        copy_tile<Block::keys, E, Block::threads>(to, from + size_t(first) * row + column, row,
                                                  doc.length - first, heads.E);
    };

    const KeyTiles tiles =
        key_tiles(window, doc.first, min(doc.first + Block::queries, doc.length) - 1, Block::keys);
    const int warp = warp_id();
    const int first = doc.first + warp * rows, last = min(first + rows, doc.length) - 1;
    const KeyTiles mine = first <= last ? key_tiles(window, first, last, Block::keys) : KeyTiles{0, 0, 0};
    const LeftReader<T, E> left(queries + warp * rows * E);
    const RightReader<T, E> right(keys);
    const AcrossReader<T, E> across(values);
    const float scale2 = heads.scale() * log2e;

    float o[M][E / 8][4] = {}, most[M][2], sum[M][2] = {};
    for (int m = 0; m < M; m++) most[m][0] = most[m][1] = -INFINITY;
    copy_tile<Block::queries, E, Block::threads>(queries, from + size_t(doc.first) * row + h * heads.E, row,
                                                 doc.length - doc.first, heads.E);
    copy(keys, heads.key(g), (tiles.end - 1) * Block::keys);
    commit_copies();
    for (int t = tiles.end - 1; t >= 0; t = next_tile(tiles, t)) {
        const int k = t * Block::keys;
        const bool active = contains(mine, t);
        wait_copies<0>();
        __syncthreads();
        copy(values, heads.value(g), k);
        commit_copies();
        float s[M][N][4] = {};
        if (active) multiply_rows(s, left, right);
        wait_copies<0>();
        __syncthreads();
        const int next = next_tile(tiles, t);
        if (next >= 0) copy(keys, heads.key(g), next * Block::keys);
        commit_copies();
        if (!active) continue;
#pragma unroll
        for (int m = 0; m < M; m++) {
            const int q = first + 16 * m;
            if (!all_visible(window, q, q + 15, k, k + Block::keys - 1)) mask_keys(s[m], window, q, k);
#pragma unroll
            for (int r = 0; r < 2; r++) {
                float highest = most[m][r];
#pragma unroll
                for (int j = 0; j < N; j++)
                    highest = fmaxf(highest, fmaxf(s[m][j][2 * r], s[m][j][2 * r + 1]));
                highest = quad_max(highest);
                // A row that has seen nothing yet: exp2(-inf - 0) = 0, not exp2(-inf + inf).
                const float base = highest == -INFINITY ? 0.0f : highest * scale2;
                const float shrink = exp2_fast(fmaf(most[m][r], scale2, -base));
                most[m][r] = highest;
                float part = 0;
#pragma unroll
                for (int j = 0; j < N; j++)
#pragma unroll
                    for (int e = 2 * r; e < 2 * r + 2; e++)
                        part += s[m][j][e] = exp2_fast(fmaf(s[m][j][e], scale2, -base));
                sum[m][r] = fmaf(sum[m][r], shrink, part);
                if (__any_sync(0xffffffffu, shrink != 1.0f))
#pragma unroll
                    for (int j = 0; j < E / 8; j++) o[m][j][2 * r] *= shrink, o[m][j][2 * r + 1] *= shrink;
            }
        }
        multiply_across<E>(o, s, across);
    }
#pragma unroll
    for (int m = 0; m < M; m++) {
        const int q = first + 16 * m;
        float inverse[2];
#pragma unroll
        for (int r = 0; r < 2; r++) {
            const float total = quad_sum(sum[m][r]);
            const int i = q + 8 * r + lane_id() / 4;
            inverse[r] = total == 0 ? 0.0f : 1 / total;
            if (lane_id() % 4 == 0 && i < doc.length)
                lse[size_t(doc.start + i) * heads.H + h] =
                    total == 0 ? INFINITY : most[m][r] * heads.scale() + logf(total);
        }
        store_rows<E>(out + (size_t(doc.start + q) * heads.H + h) * heads.E, heads.H * heads.E,
                      doc.length - q, heads.E, queries + (warp * rows + 16 * m) * E, o[m], inverse[0],
                      inverse[1]);
    }
}

// ---- backward -------------------------------------------------------------------------------------------

// delta (N,H) = the sums of dout * out over E; eight lanes for each.
constexpr int delta_block = 256;
template <class T>
__global__ void delta(float* delta, const T* dout, const T* out, size_t rows, int E) {
    const size_t r = (size_t(blockIdx.x) * delta_block + threadIdx.x) / 8;
    float sum = 0;
    if (r < rows)
        for (int e = threadIdx.x % 8 * Pack<T>::size; e < E; e += 8 * Pack<T>::size) {
            const Pack<T> a = load_pack(dout + r * E + e), b = load_pack(out + r * E + e);
            for (int i = 0; i < Pack<T>::size; i++) sum = fmaf(to_float(a.x[i]), to_float(b.x[i]), sum);
        }
    for (int d = 4; d; d /= 2) sum += __shfl_xor_sync(0xffffffffu, sum, d);
    if (r < rows && threadIdx.x % 8 == 0) delta[r] = sum;
}

template <class T, int E_>
struct KeyGradient {
    static constexpr bool half = std::is_same_v<T, bf16>;
    static constexpr int E = E_, M = half && E <= 64 ? 2 : 1, warps = half ? 8 / M : 4, threads = 32 * warps;
    static constexpr int keys = 16 * M * warps, queries = half ? 32 : 16;
    static constexpr size_t shared_bytes =
        sizeof(T) * E * (2 * keys + 4 * queries) + 4 * queries * sizeof(float);
};

// A warp holds 16 M keys. Queries, dout, lse and delta of the next tile are fetched during the products.
template <class Block, class T>
__global__ void __launch_bounds__(Block::threads)
    key_gradient(T* dqkv, const T* dout, const float* lse, const float* delta, const T* qkv,
                 Documents documents, Window window, Heads heads) {
    constexpr int E = Block::E, M = Block::M, rows = 16 * M, N = Block::queries / 8;
    Place doc;
    const int g = blockIdx.x % heads.G, group = heads.H / heads.G;
    if (!find_tile(doc, documents, blockIdx.x / heads.G, Block::keys)) return;
    const int row = heads.row(), out_row = heads.H * heads.E;
    T *keys = shared_memory<T>(), *values = keys + Block::keys * E, *stages = values + Block::keys * E;
    float* statistics = reinterpret_cast<float*>(stages + 4 * Block::queries * E);

    const int last_key = min(doc.first + Block::keys, doc.length) - 1;
    const QueryRange range = query_range(window, doc.first, last_key, doc.length);
    const int begin = range.first / Block::queries * Block::queries;
    auto fetch = [&](int h, int q, int stage) {
        const int left = doc.length - q;
        T* to = stages + stage * 2 * Block::queries * E;
        const size_t token = doc.start + q;
        copy_tile<Block::queries, E, Block::threads>(to, qkv + token * row + h * heads.E, row, left, heads.E);
        copy_tile<Block::queries, E, Block::threads>(
            to + Block::queries * E, dout + token * out_row + h * heads.E, out_row, left, heads.E);
        const int c = threadIdx.x % Block::queries;
        if (threadIdx.x < 2 * Block::queries) {
            const float* from = (threadIdx.x < Block::queries ? lse : delta) + token * heads.H + h;
            copy_async_one(statistics + stage * 2 * Block::queries + threadIdx.x,
                           c < left ? from + size_t(c) * heads.H : from, c < left);
        }
        commit_copies();
    };

    const int warp = warp_id(), k = doc.first + rows * warp, k_last = min(k + rows, doc.length) - 1;
    const QueryRange mine = k < doc.length ? query_range(window, k, k_last, doc.length) : QueryRange{0, 0};
    const LeftReader<T, E> key_rows(keys + rows * warp * E), value_rows(values + rows * warp * E);
    const float scale2 = heads.scale() * log2e;
    float dkey[M][E / 8][4] = {}, dvalue[M][E / 8][4] = {};
    const T* from = qkv + size_t(doc.start + doc.first) * row;
    copy_tile<Block::keys, E, Block::threads>(keys, from + heads.key(g), row, doc.length - doc.first,
                                              heads.E);
    copy_tile<Block::keys, E, Block::threads>(values, from + heads.value(g), row, doc.length - doc.first,
                                              heads.E);
    int h = g * group, next_q = begin;
    fetch(h, begin, 0);
    for (int q = begin, stage = 0; h < (g + 1) * group; q = next_q, stage ^= 1) {
        next_q += Block::queries;
        if (next_q >= range.end) next_q = begin, h++;
        wait_copies<0>();
        __syncthreads();
        if (h < (g + 1) * group) fetch(h, next_q, stage ^ 1);
        if (q >= mine.end || q + Block::queries <= mine.first) continue;
        const T *queries = stages + stage * 2 * Block::queries * E, *douts = queries + Block::queries * E;
        const float* row_lse = statistics + stage * 2 * Block::queries + lane_id() % 4 * 2;
        const float* row_delta = row_lse + Block::queries;

        float p[M][N][4] = {}, ds[M][N][4];
        multiply_rows(p, key_rows, RightReader<T, E>(queries));
#pragma unroll
        for (int m = 0; m < M; m++) {
            const int first = k + 16 * m;
            if (!all_visible(window, q, q + Block::queries - 1, first, first + 15))
                mask_queries(p[m], window, q, first, doc.length);
#pragma unroll
            for (int j = 0; j < N; j++) {
                const float2 l = *reinterpret_cast<const float2*>(row_lse + 8 * j);
#pragma unroll
                for (int e = 0; e < 4; e++)
                    p[m][j][e] = exp2_fast(fmaf(p[m][j][e], scale2, -(e % 2 ? l.y : l.x) * log2e));
            }
        }
        multiply_across<E>(dvalue, p, AcrossReader<T, E>(douts));
        // The sums of dout . value start at -delta.
#pragma unroll
        for (int j = 0; j < N; j++) {
            const float2 d = *reinterpret_cast<const float2*>(row_delta + 8 * j);
#pragma unroll
            for (int m = 0; m < M; m++)
#pragma unroll
                for (int e = 0; e < 4; e++) ds[m][j][e] = e % 2 ? -d.y : -d.x;
        }
        multiply_rows(ds, value_rows, RightReader<T, E>(douts));
#pragma unroll
        for (int m = 0; m < M; m++)
#pragma unroll
            for (int j = 0; j < N; j++)
#pragma unroll
                for (int e = 0; e < 4; e++) ds[m][j][e] *= p[m][j][e];
        multiply_across<E>(dkey, ds, AcrossReader<T, E>(queries));
    }
    const float scale = heads.scale();
#pragma unroll
    for (int m = 0; m < M; m++) {
        const int first = k + 16 * m;
        T *to = dqkv + size_t(doc.start + first) * row, *own = keys + (rows * warp + 16 * m) * E;
        store_rows<E>(to + heads.key(g), row, doc.length - first, heads.E, own, dkey[m], scale, scale);
        store_rows<E>(to + heads.value(g), row, doc.length - first, heads.E, own, dvalue[m], 1.0f, 1.0f);
    }
}

template <class T, int E_>
struct QueryGradient {
    static constexpr bool half = std::is_same_v<T, bf16>;
    static constexpr int E = E_, M = half ? 2 : 1, warps = 4, threads = 32 * warps;
    static constexpr int queries = 16 * M * warps, keys = half ? 32 : 16;
    static constexpr size_t shared_bytes = sizeof(T) * E * (2 * queries + 4 * keys);
};

// Keys and values of the next tile are fetched during the products.
template <class Block, class T>
__global__ void __launch_bounds__(Block::threads)
    query_gradient(T* dqkv, const T* dout, const float* lse, const float* delta, const T* qkv,
                   Documents documents, Window window, Heads heads) {
    constexpr int E = Block::E, M = Block::M, rows = 16 * M, N = Block::keys / 8;
    Place doc;
    const int h = blockIdx.x % heads.H, g = h / (heads.H / heads.G);
    if (!find_tile(doc, documents, (gridDim.x - 1 - blockIdx.x) / heads.H, Block::queries)) return;
    const int row = heads.row(), out_row = heads.H * heads.E;
    const T* from = qkv + size_t(doc.start) * row;
    T *queries = shared_memory<T>(), *douts = queries + Block::queries * E;
    T* stages = douts + Block::queries * E;

    const KeyTiles tiles =
        key_tiles(window, doc.first, min(doc.first + Block::queries, doc.length) - 1, Block::keys);
    const int warp = warp_id();
    const int first = doc.first + warp * rows, last = min(first + rows, doc.length) - 1;
    const KeyTiles mine = first <= last ? key_tiles(window, first, last, Block::keys) : KeyTiles{0, 0, 0};
    auto fetch = [&](int t, int stage) {
        const int k = t * Block::keys, left = doc.length - k;
        const T* rows = from + size_t(k) * row;
        T* to = stages + stage * 2 * Block::keys * E;
        copy_tile<Block::keys, E, Block::threads>(to, rows + heads.key(g), row, left, heads.E);
        copy_tile<Block::keys, E, Block::threads>(to + Block::keys * E, rows + heads.value(g), row, left,
                                                  heads.E);
        commit_copies();
    };

    const LeftReader<T, E> query_rows(queries + warp * rows * E), dout_rows(douts + warp * rows * E);
    const float scale2 = heads.scale() * log2e;
    float lse2[M][2], row_delta[M][2], dquery[M][E / 8][4] = {};
    for (int m = 0; m < M; m++)
        for (int r = 0; r < 2; r++) {
            const int q = first + 16 * m + 8 * r + lane_id() / 4;
            const size_t at = size_t(doc.start + q) * heads.H + h;
            lse2[m][r] = q < doc.length ? lse[at] * log2e : 0.0f;
            row_delta[m][r] = q < doc.length ? delta[at] : 0.0f;
        }
    copy_tile<Block::queries, E, Block::threads>(queries, from + size_t(doc.first) * row + h * heads.E, row,
                                                 doc.length - doc.first, heads.E);
    copy_tile<Block::queries, E, Block::threads>(douts,
                                                 dout + size_t(doc.start + doc.first) * out_row + h * heads.E,
                                                 out_row, doc.length - doc.first, heads.E);
    fetch(tiles.end - 1, 0);
    for (int t = tiles.end - 1, next, stage = 0; t >= 0; t = next, stage ^= 1) {
        next = next_tile(tiles, t);
        wait_copies<0>();
        __syncthreads();
        if (next >= 0) fetch(next, stage ^ 1);
        if (!contains(mine, t)) continue;
        const int k = t * Block::keys;
        const T *keys = stages + stage * 2 * Block::keys * E, *values = keys + Block::keys * E;
        float p[M][N][4] = {}, ds[M][N][4];
        multiply_rows(p, query_rows, RightReader<T, E>(keys));
#pragma unroll
        for (int m = 0; m < M; m++)
#pragma unroll
            for (int j = 0; j < N; j++)
#pragma unroll
                for (int e = 0; e < 4; e++) ds[m][j][e] = -row_delta[m][e / 2];
        multiply_rows(ds, dout_rows, RightReader<T, E>(values));
#pragma unroll
        for (int m = 0; m < M; m++) {
            const int q = first + 16 * m;
            if (!all_visible(window, q, q + 15, k, k + Block::keys - 1)) mask_keys(p[m], window, q, k);
#pragma unroll
            for (int j = 0; j < N; j++)
#pragma unroll
                for (int e = 0; e < 4; e++)
                    ds[m][j][e] *= exp2_fast(fmaf(p[m][j][e], scale2, -lse2[m][e / 2]));
        }
        multiply_across<E>(dquery, ds, AcrossReader<T, E>(keys));
    }
#pragma unroll
    for (int m = 0; m < M; m++) {
        const int q = first + 16 * m;
        store_rows<E>(dqkv + size_t(doc.start + q) * row + h * heads.E, row, doc.length - q, heads.E,
                      queries + (warp * rows + 16 * m) * E, dquery[m], heads.scale(), heads.scale());
    }
}

// Calls f with E rounded up to a size that kernels are compiled for; float, for tests, makes do with fewer.
template <class T, class F>
void with_head_size(int E, F f) {
    constexpr bool half = std::is_same_v<T, bf16>;
    using std::integral_constant;
    if (E <= 0 || E % 8 != 0 || E > 128)
        fail(format("attention on the CUDA device has no kernel for heads of %d numbers", E),
             "multiples of 8 up to 128 are compiled; or use --device cpu");
    if (E <= 32)
        f(integral_constant<int, 32>());
    else if (E <= 64)
        f(integral_constant<int, 64>());
    else if (half && E <= 80)
        f(integral_constant < int, half ? 80 : 128 > ());
    else if (half && E <= 96)
        f(integral_constant < int, half ? 96 : 128 > ());
    else
        f(integral_constant<int, 128>());
}

}  // namespace flash

template <class T>
void attention_forward(CudaDevice<T>& device, T* out, float* lse, const T* qkv, Documents documents,
                       Window window, int H, int G, int E) {
    flash::with_head_size<T>(E, [&](auto padded) {
        using Block = flash::Forward<T, padded>;
        launch(device, flash::forward<Block, T>, unsigned(flash::tiles_of(documents, Block::queries)) * H,
               Block::threads, Block::shared_bytes, out, lse, qkv, documents, window, flash::Heads{H, G, E});
    });
}
template <class T>
void attention_backward(CudaDevice<T>& device, T* dqkv, const T* dout, const T* out, const float* lse,
                        const T* qkv, Documents documents, Window window, int H, int G, int E) {
    const size_t rows = size_t(documents.tokens) * H;
    const flash::Heads heads{H, G, E};
    float* delta = static_cast<float*>(device.scratch(rows * sizeof(float)));
    launch(device, flash::delta<T>, blocks_for(rows * 8, flash::delta_block), flash::delta_block, 0, delta,
           dout, out, rows, E);
    flash::with_head_size<T>(E, [&](auto padded) {
        using Keys = flash::KeyGradient<T, padded>;
        launch(device, flash::key_gradient<Keys, T>, unsigned(flash::tiles_of(documents, Keys::keys)) * G,
               Keys::threads, Keys::shared_bytes, dqkv, dout, lse, delta, qkv, documents, window, heads);
        using Queries = flash::QueryGradient<T, padded>;
        launch(device, flash::query_gradient<Queries, T>,
               unsigned(flash::tiles_of(documents, Queries::queries)) * H, Queries::threads,
               Queries::shared_bytes, dqkv, dout, lse, delta, qkv, documents, window, heads);
    });
}
template void attention_forward(CudaDevice<bf16>&, bf16*, float*, const bf16*, Documents, Window, int, int,
                                int);
template void attention_forward(CudaDevice<float>&, float*, float*, const float*, Documents, Window, int, int,
                                int);
template void attention_backward(CudaDevice<bf16>&, bf16*, const bf16*, const bf16*, const float*,
                                 const bf16*, Documents, Window, int, int, int);
template void attention_backward(CudaDevice<float>&, float*, const float*, const float*, const float*,
                                 const float*, Documents, Window, int, int, int);
