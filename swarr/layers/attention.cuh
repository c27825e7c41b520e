// attention.cuh: grouped-query attention with a sliding window on packed documents.
//
//   s(q,k) = query . key / sqrt(E)    p(q,k) = exp(s - lse(q)), 0 where not visible    out(q) = sum_k p
//   value(k)
//
// Forward: softmax computed online over tiles of keys (FlashAttention-2, Dao 2023, algorithm 1). Backward,
// with delta(q) = dout . out (its appendix B):
//   dvalue(k) = sum_q p dout    ds = p (dout . value - delta)    dquery = sum_k ds key / sqrt(E)
//   dkey(k) = sum_q ds query / sqrt(E)                           Gradients of activations are overwritten.
//
// The order of every sum depends on positions in the document alone, so that training, packing, prefill and
// decoding agree bit for bit on any batch, with any number of threads:
//   a score is one chain of fused multiply-adds over E; tiles of 32 keys, aligned to positions, are walked in
//   ascending order, those with sinks first; within a tile the keys ascend. dquery adds over keys ascending;
//   dkey and dvalue over blocks of one vector of queries ascending, in a block over heads, in a head over
//   queries. What is invisible contributes p = 0, and adding 0 changes nothing: leaving out invisible tiles
//   or parts of tiles is free to depend on anything.
// Memory beyond the tensors is a few tiles per thread; work is proportional to the visible keys.
#pragma once
#include <omp.h>

#include <algorithm>
#include <cmath>
#include <limits>
#include <type_traits>
#include <utility>
#include <vector>

#include "../device.h"
#include "../tile.h"
#include "../window.h"

// ----------------------------------------------------------------------------------------------------------
// CPU. The unit of work is a vector of queries of one head (16 floats) against a tile of keys: scores lie as
// (key, query), so that maximum, exponential and sum need no shuffles. Two vectors go through the registers
// together. Keys, values and queries are first copied into scratch, rows padded to whole vectors.

namespace attention {

constexpr int tile = 32;    // keys; part of the order of sums
constexpr int granule = 8;  // keys; part of the order of sums, and the least that is skipped
constexpr float no_score =
    std::numeric_limits<float>::lowest();  // maximum of no scores: exp(s - it) is no NaN

// Register block: rows x vectors of sums; a vector is two registers without AVX-512.
#ifdef __AVX512F__
constexpr int block_rows = 8, block_vectors = 2;
#else
constexpr int block_rows = 4, block_vectors = 1;
#endif

template <class T>
constexpr int padded(int E) {
    return (E + lanes<T> - 1) / lanes<T> * lanes<T>;
}

// c (R rows, V vectors) = start + sum_j a(r, j) * b(j, v), one chain over j for each element; start is 0, c,
// or c * scale[r]. a(r, j) = a[r * a_row + j * a_step]; b(j, v) is the vector at b + j * b_step + v *
// b_vector.
// Stream: b comes from memory in order; ask for it early, as the multiply-adds between loads keep the
// hardware from doing so (4 KB or 16 KB ahead are slower).
enum class Start { zero, sum, scaled };
constexpr int stream_bytes = 8192;
template <class T>
struct Operands {
    const T* a;
    size_t a_row, a_step;
    const T* b;
    size_t b_step, b_vector;
    int steps;
};
template <int R, int V, Start start, class T, bool Stream = false>
inline void add_block(T* c, size_t c_row, Operands<T> o, const T* scale = nullptr) {
    constexpr int L = register_lanes<T>, N = V * registers<T>;
    auto column = [](auto v) { return v % registers<T> * L; };  // of register v in its vector
    Reg<T> sum[R * N];
    unroll<R * N>([&](auto i) {
        sum[i] = start == Start::zero ? Reg<T>{} : load_register(c + i / N * c_row + i % N * L);
        if (start == Start::scaled) sum[i] *= splat_register(scale[i / N]);
    });
    auto step = [&]() __attribute__((always_inline)) {
        unroll<N>([&](auto v) {
            const T* from = o.b + v / registers<T> * o.b_vector + column(v);
            const Reg<T> x = load_register(from);
            if (Stream && column(v) == 0) __builtin_prefetch(from + stream_bytes / sizeof(T));
            unroll<R>(
                [&](auto r) { sum[r * N + v] = fma(splat_register(o.a[r * o.a_row]), x, sum[r * N + v]); });
        });
        o.a += o.a_step;
        o.b += o.b_step;
    };
    for (int j = 0; j + 2 <= o.steps; j += 2) step(), step();
    if (o.steps % 2) step();
    unroll<R * N>([&](auto i) { store_register(c + i / N * c_row + i % N * L, sum[i]); });
}

// The same for `rows` rows (a multiple of R) of `ld` numbers; scale per row, or null.
template <int R, class T>
inline void add_rows(T* c, int rows, int ld, Operands<T> o, const T* scale = nullptr) {
    constexpr int V = block_vectors, L = lanes<T>;
    const T *a = o.a, *b = o.b;
    for (int r = 0; r < rows; r += R)
        for (int e = 0; e < ld;) {
            o.a = a + r * o.a_row;
            o.b = b + e;
            T* to = c + r * ld + e;
            const bool wide = e + V * L <= ld;
            if (wide)
                scale ? add_block<R, V, Start::scaled>(to, ld, o, scale + r)
                      : add_block<R, V, Start::sum>(to, ld, o);
            else
                scale ? add_block<R, 1, Start::scaled>(to, ld, o, scale + r)
                      : add_block<R, 1, Start::sum>(to, ld, o);
            e += wide ? V * L : L;
        }
}

// Copies `count` rows of E numbers into (count, padded E); rows up to `rows` and the padding are zero. Rows
// lie too far apart for the hardware to fetch them ahead.
template <class T>
inline void copy_rows(T* to, const T* from, size_t stride, int count, int rows, int E, T scale = 1) {
    const int ld = padded<T>(E);
    for (int r = 0; r < count; r++, to += ld, from += stride)
        for (int e = 0; e < E; e += lanes<T>) {
            __builtin_prefetch(from + 8 * stride + e);
            store(to + e, load_part(from + e, E - e) * scale);
        }
    std::fill_n(to, size_t(rows - count) * ld, T(0));
}

// Writes `count` padded rows, scaled, to rows of E numbers `stride` apart.
template <class T>
inline void copy_rows_out(T* to, size_t stride, const T* from, int count, int E, T scale) {
    for (int r = 0; r < count; r++, to += stride, from += padded<T>(E))
        for (int e = 0; e < E; e += lanes<T>) store_part(to + e, load(from + e) * scale, E - e);
}

// rows (one vector of them, padded E) -> (padded E, one vector)
template <class T>
inline void transpose_rows(T* to, const T* rows, int E) {
    const int ld = padded<T>(E);
    for (int e = 0; e < ld; e++)
        for (int i = 0; i < lanes<T>; i++) to[e * lanes<T> + i] = rows[i * ld + e];
}
#ifdef __AVX512F__
// By halving: rows i and i + n exchange the columns whose number has bit n against those that lack it.
inline void transpose_rows(float* to, const float* rows, int E) {
    constexpr int L = lanes<float>;
    typedef int32_t Int __attribute__((vector_size(64)));
    const int ld = padded<float>(E);
    for (int e = 0; e < E; e += L) {
        Vec<float> x[L];
        unroll<L>([&](auto i) { x[i] = load(rows + i * ld + e); });
        unroll<4>([&](auto step) {
            constexpr int n = 8 >> step;
            Int low, high;
            for (int j = 0; j < L; j++) {
                low[j] = j & n ? L + j - n : j;
                high[j] = j & n ? L + j : j + n;
            }
            unroll<L>([&](auto i) {
                if constexpr (!(i & n)) {
                    const __m512 a = __m512(x[i]), b = __m512(x[i + n]);
                    x[i] = Vec<float>(_mm512_permutex2var_ps(a, __m512i(low), b));
                    x[i + n] = Vec<float>(_mm512_permutex2var_ps(a, __m512i(high), b));
                }
            });
        });
        unroll<L>([&](auto i) { store(to + (e + i) * L, x[i]); });
    }
}
#endif

// Keys of the tile that starts at `first` and are visible to some query of q_first..q_last, as [begin, end)
// from the start of the tile, rounded out to granules; empty if begin >= end.
struct KeyRange {
    int begin, end;
};
inline KeyRange visible_keys(const Window& w, int q_first, int q_last, int first) {
    int begin = first < w.sinks ? 0 : std::max(0, first_key(w, q_first) - first);
    int end = std::min(tile, q_last + 1 - first);
    return {begin / granule * granule, (end + granule - 1) / granule * granule};
}

// Positions in a vector as long as one of T: first, first + 1, ...
template <class T>
struct PositionsOf {
    typedef std::conditional_t<sizeof(T) == 4, int32_t, int64_t> type __attribute__((vector_size(64)));
};
template <class T>
using Positions = typename PositionsOf<T>::type;
template <class T>
inline Positions<T> ascending(int first) {
    Positions<T> lane{};
    for (int i = 0; i < lanes<T>; i++) lane[i] = i;
    return lane + first;
}

// Scores of queries q and keys k, -inf where not visible.
template <class T>
inline Vec<T> mask(Vec<T> s, const Window& w, Positions<T> q, Positions<T> k) {
    return visible(w, q, k) ? s : Vec<T>{} - std::numeric_limits<T>::infinity();
}

// What the passes share: sizes, and where the rows of a document lie.
struct Shape {
    Window window;
    int H, G, E;
    int group() const { return H / G; }
    size_t row() const { return size_t(H + 2 * G) * E; }
    size_t key(int g) const { return size_t(H + g) * E; }
    size_t value(int g) const { return size_t(H + G + g) * E; }
    template <class T>
    T scale() const {
        return 1 / std::sqrt(T(E));
    }
    // Vectors of queries per block, for one head: enough to pay for the copy of a tile of keys.
    int span() const { return std::max(1, 6 / group()); }
};

// A share of the work on one key/value head of one document: queries [q_begin, q_end) (q_begin a multiple of
// the vector) against tiles [tile_begin, tile_end).
struct Task {
    int doc, g, q_begin, q_end, tile_begin, tile_end;
    bool queries, keys;  // backward: write dquery, write dkey and dvalue
    double work;
};

// Visible pairs of a document, about.
inline double pairs(const Window& w, int length) {
    double width = w.width ? std::min(w.width, length) : length;
    return width * (length - width / 2) + double(std::min(w.sinks, length)) * (length - width);
}

// Runs f(task, scratch) for all tasks, largest first; alone if the work (multiply-adds) is not worth waking
// threads.
template <class T, class F>
void run_tasks(CpuDevice<T>& device, std::vector<Task>& tasks, double multiply_adds, size_t scratch_size,
               F f) {
    int threads = multiply_adds < 1e6 ? 1 : std::min<int>(omp_get_max_threads(), tasks.size());
    if (threads > 1)
        std::stable_sort(tasks.begin(), tasks.end(),
                         [](const Task& a, const Task& b) { return a.work > b.work; });
    Buffer<T, CpuDevice<T>> scratch(device, scratch_size * std::max(threads, 1), Memory::workspace);
#pragma omp parallel for schedule(dynamic) num_threads(threads) if (threads > 1)
    for (size_t i = 0; i < tasks.size(); i++)
        f(tasks[i], scratch.data() + omp_get_thread_num() * scratch_size);
}

// One block of queries: `vectors` vectors, head within the group varying fastest.
struct QueryBlock {
    int first, count, vectors;
    int position(int x, int group, int lanes) const { return first + x / group * lanes; }
};
template <class T>
QueryBlock query_block(const Shape& s, int first, int end) {
    int count = std::min(s.span() * lanes<T>, end - first);
    return {first, count, (count + lanes<T> - 1) / lanes<T> * s.group()};
}

// Calls f(tile) for the key tiles that queries first..last may see, within [begin, end), ascending.
template <class F>
void for_tiles(const Window& w, int first, int last, int begin, int end, F f) {
    KeyTiles t = key_tiles(w, first, last, tile);
    for (int i = begin; i < std::min(t.sink_end, end); i++) f(i);
    for (int i = std::max(t.begin, begin); i < std::min(t.end, end); i++) f(i);
}

// Scores of V vectors of queries (starting at position q[v]) for keys [k.begin, k.end) of a tile.
template <int V, class T>
inline void score_tile(T* s, const T* keys, const T* queries, int E, KeyRange k) {
    constexpr int L = lanes<T>;
    const int ld = padded<T>(E);
    for (int r = k.begin; r < k.end; r += block_rows)
        add_block<block_rows, V, Start::zero, T>(
            s + r * V * L, V * L, {keys + r * ld, size_t(ld), 1, queries, L, size_t(ld) * L, E});
}

// One step of the online softmax: scores become p = exp(score - new maximum), and the rows of `out` are
// scaled by exp(old maximum - new maximum) before p . values is added.
template <int V, class T>
void forward_tile(const Shape& shape, T* out, T* maximum, T* sum, T* s, const T* queries, const T* keys,
                  const T* values, int first, const int* q, KeyRange k) {
    constexpr int L = lanes<T>;
    score_tile<V>(s, keys, queries, shape.E, k);
    T scale[V * L];
    for (int v = 0; v < V; v++) {
        Vec<T> old = load(maximum + v * L), m = old;
        bool all = all_visible(shape.window, q[v], q[v] + L - 1, first + k.begin, first + k.end - 1);
        for (int r = k.begin; r < k.end; r++) {
            Vec<T> x = load(s + (r * V + v) * L);
            if (!all)
                store(s + (r * V + v) * L,
                      x = mask<T>(x, shape.window, ascending<T>(q[v]), Positions<T>{} + (first + r)));
            m = x > m ? x : m;
        }
        Vec<T> part[granule] = {};
        for (int r = k.begin; r < k.end; r += granule)
            for (int i = 0; i < granule; i++) {
                T* x = s + ((r + i) * V + v) * L;
                Vec<T> p = exp(load(x) - m);
                part[i] += p;
                store(x, p);
            }
        for (int n = granule / 2; n > 0; n /= 2)
            for (int i = 0; i < n; i++) part[i] += part[i + n];
        Vec<T> alpha = exp(old - m);
        store(maximum + v * L, m);
        store(sum + v * L, fma(load(sum + v * L), alpha, part[0]));
        store(scale + v * L, alpha);
    }
    const int ld = padded<T>(shape.E), n = k.end - k.begin;
    add_rows<block_rows, T>(out, V * L, ld,
                            {s + k.begin * V * L, 1, V * L, values + k.begin * ld, size_t(ld), L, n}, scale);
}

// p and ds of V vectors of queries, then their share of dquery (if not null), dkey and dvalue (if not null).
template <int V, class T>
void backward_tile(const Shape& shape, T* dquery, T* dkey, T* dvalue, T* p, T* ds, const T* queries,
                   const T* rows, const T* douts, const T* drows, const T* lse, const T* delta, const T* keys,
                   const T* values, int first, const int* q, KeyRange k) {
    constexpr int L = lanes<T>;
    score_tile<V>(p, keys, queries, shape.E, k);
    score_tile<V>(ds, values, douts, shape.E, k);
    for (int v = 0; v < V; v++) {
        Vec<T> l = load(lse + v * L), d = load(delta + v * L);
        bool all = all_visible(shape.window, q[v], q[v] + L - 1, first + k.begin, first + k.end - 1);
        for (int r = k.begin; r < k.end; r++) {
            T *x = p + (r * V + v) * L, *y = ds + (r * V + v) * L;
            Vec<T> score = load(x);
            if (!all) score = mask<T>(score, shape.window, ascending<T>(q[v]), Positions<T>{} + (first + r));
            score = exp(score - l);
            store(x, score);
            store(y, score * (load(y) - d));
        }
    }
    const int ld = padded<T>(shape.E), n = k.end - k.begin;
    const size_t row = ld, at = k.begin * row;
    p += k.begin * V * L;
    ds += k.begin * V * L;
    if (dquery) add_rows<block_rows, T>(dquery, V * L, ld, {ds, 1, V * L, keys + at, row, L, n});
    if (!dkey) return;
    add_rows<block_rows, T>(dvalue + at, n, ld, {p, V * L, 1, drows, row, L, V * L});
    add_rows<block_rows, T>(dkey + at, n, ld, {ds, V * L, 1, rows, row, L, V * L});
}

// Calls f(V as a type, x, q, range) for pairs (or singles) of the vectors of a block that see a key of the
// tile.
template <class T, class F>
void for_vectors(const Shape& s, const QueryBlock& b, int first, F f) {
    for (int x = 0; x < b.vectors; x += block_vectors) {
        int n = std::min(block_vectors, b.vectors - x), q[block_vectors];
        for (int v = 0; v < n; v++) q[v] = b.position(x + v, s.group(), lanes<T>);
        KeyRange k =
            visible_keys(s.window, q[0], std::min(q[n - 1] + lanes<T>, b.first + b.count) - 1, first);
        if (k.begin >= k.end) continue;
        if (n == block_vectors)
            f(std::integral_constant<int, block_vectors>(), x, q, k);
        else
            f(std::integral_constant<int, 1>(), x, q, k);
    }
}

// One document of the pass: its first row, its length.
struct Document {
    size_t start;
    int length;
};

// Copies the keys and values of a tile of a document; rows past the end are zero.
template <class T>
void copy_tile(T* keys, T* values, const Shape& s, const T* qkv, Document doc, int g, int first) {
    const T* from = qkv + (doc.start + first) * s.row();
    int count = std::min(tile, doc.length - first);
    copy_rows(keys, from + s.key(g), s.row(), count, tile, s.E);
    copy_rows(values, from + s.value(g), s.row(), count, tile, s.E);
}

// Consecutive pieces of a thread's scratch.
template <class T>
struct Pieces {
    T* next;
    T* take(size_t size) { return std::exchange(next, next + size); }
};

template <class T>
size_t forward_scratch(const Shape& s) {
    size_t ld = padded<T>(s.E), queries = size_t(s.span()) * s.group() * lanes<T>;
    return lanes<T> * ld + queries * (2 * ld + 2) + tile * (2 * ld + block_vectors * lanes<T>);
}
template <class T>
void forward_block(const Shape& s, T* out, T* lse, const T* qkv, Document doc, const Task& task,
                   Pieces<T> scratch) {
    constexpr int L = lanes<T>;
    const int E = s.E, ld = padded<T>(E), group = s.group();
    const QueryBlock b = query_block<T>(s, task.q_begin, task.q_end);
    const size_t n = size_t(b.vectors) * L;
    T *rows = scratch.take(L * ld), *queries = scratch.take(n * ld), *o = scratch.take(n * ld);
    T *maximum = scratch.take(n), *sum = scratch.take(n), *scores = scratch.take(tile * block_vectors * L);
    T *keys = scratch.take(tile * ld), *values = scratch.take(tile * ld);
    for (int x = 0; x < b.vectors; x++) {
        int q = b.position(x, group, L), h = task.g * group + x % group;
        copy_rows(rows, qkv + (doc.start + q) * s.row() + size_t(h) * E, s.row(), std::min(L, doc.length - q),
                  L, E, s.scale<T>());
        transpose_rows(queries + size_t(x) * L * ld, rows, E);
    }
    std::fill(o, o + n * ld, T(0));
    std::fill(maximum, maximum + n, T(no_score));
    std::fill(sum, sum + n, T(0));
    for_tiles(s.window, b.first, b.first + b.count - 1, task.tile_begin, task.tile_end, [&](int t) {
        copy_tile(keys, values, s, qkv, doc, task.g, t * tile);
        for_vectors<T>(s, b, t * tile, [&](auto V, int x, const int* q, KeyRange k) {
            forward_tile<V>(s, o + size_t(x) * L * ld, maximum + x * L, sum + x * L, scores,
                            queries + size_t(x) * L * ld, keys, values, t * tile, q, k);
        });
    });
    for (int x = 0; x < b.vectors; x++) {
        int q = b.position(x, group, L), h = task.g * group + x % group;
        for (int i = 0; i < L && q + i < doc.length; i++) {
            T l = sum[x * L + i], inverse = l == 0 ? 0 : 1 / l;
            const T* from = o + (size_t(x) * L + i) * ld;
            size_t to = (doc.start + q + i) * s.H + h;
            for (int e = 0; e < E; e++) out[to * E + e] = from[e] * inverse;
            lse[to] = l == 0 ? std::numeric_limits<T>::infinity() : maximum[x * L + i] + std::log(l);
        }
    }
}

template <class T>
size_t backward_scratch(const Shape& s) {
    size_t ld = padded<T>(s.E), queries = size_t(s.span()) * s.group() * lanes<T>;
    return queries * (5 * ld + 2) + tile * (4 * ld + 2 * block_vectors * lanes<T>);
}
// One block of queries against the tiles of the task. Rows of the block that lie past the document's end have
// lse +inf, which makes their p and ds 0.
template <class T>
void backward_block(const Shape& s, T* dqkv, const T* dout, const T* out, const T* lse, const T* qkv,
                    Document doc, const Task& task, int first_query, Pieces<T> scratch) {
    constexpr int L = lanes<T>;
    const int E = s.E, ld = padded<T>(E), group = s.group();
    const QueryBlock b = query_block<T>(s, first_query, task.q_end);
    const size_t n = size_t(b.vectors) * L, row = s.row();
    T *rows = scratch.take(n * ld), *drows = scratch.take(n * ld), *dquery = scratch.take(n * ld);
    T *queries = scratch.take(n * ld), *douts = scratch.take(n * ld), *l = scratch.take(n),
      *delta = scratch.take(n);
    T *keys = scratch.take(tile * ld), *values = scratch.take(tile * ld);
    T *dkey = scratch.take(2 * tile * ld), *dvalue = dkey + tile * ld;
    T *p = scratch.take(tile * block_vectors * L), *ds = scratch.take(tile * block_vectors * L);
    for (int x = 0; x < b.vectors; x++) {
        int q = b.position(x, group, L), h = task.g * group + x % group, count = std::min(L, doc.length - q);
        size_t at = size_t(x) * L, from = (doc.start + q) * s.H + h;
        copy_rows(rows + at * ld, qkv + (doc.start + q) * row + size_t(h) * E, row, count, L, E,
                  s.scale<T>());
        copy_rows(drows + at * ld, dout + from * E, size_t(s.H) * E, count, L, E);
        transpose_rows(queries + at * ld, rows + at * ld, E);
        transpose_rows(douts + at * ld, drows + at * ld, E);
        for (int i = 0; i < L; i++) {
            const size_t t = from + size_t(i) * s.H;
            l[at + i] = i < count ? lse[t] : std::numeric_limits<T>::infinity();
            delta[at + i] = i < count ? dot(dout + t * E, out + t * E, E) : 0;
        }
    }
    std::fill(dquery, dquery + n * ld, T(0));
    for_tiles(s.window, b.first, b.first + b.count - 1, task.tile_begin, task.tile_end, [&](int t) {
        const int first = t * tile, count = std::min(tile, doc.length - first);
        T* to = dqkv + (doc.start + first) * row;
        copy_tile(keys, values, s, qkv, doc, task.g, first);
        // Keys are first seen by the query at their own position: a tile that starts in this block is new.
        if (task.keys && first < b.first) copy_tile(dkey, dvalue, s, dqkv, doc, task.g, first);
        if (task.keys && first >= b.first) std::fill_n(dkey, 2 * tile * ld, T(0));
        for_vectors<T>(s, b, first, [&](auto V, int x, const int* q, KeyRange k) {
            size_t at = size_t(x) * L;
            backward_tile<V>(s, task.queries ? dquery + at * ld : nullptr, task.keys ? dkey : nullptr, dvalue,
                             p, ds, queries + at * ld, rows + at * ld, douts + at * ld, drows + at * ld,
                             l + at, delta + at, keys, values, first, q, k);
        });
        for (int i = 0; task.keys && i < count; i++) {
            std::copy_n(dkey + i * ld, E, to + i * row + s.key(task.g));
            std::copy_n(dvalue + i * ld, E, to + i * row + s.value(task.g));
        }
    });
    for (int x = 0; task.queries && x < b.vectors; x++) {
        int q = b.position(x, group, L), h = task.g * group + x % group;
        copy_rows_out(dqkv + (doc.start + q) * row + size_t(h) * E, row, dquery + size_t(x) * L * ld,
                      std::min(L, doc.length - q), E, s.scale<T>());
    }
}

// All tasks of a backward pass. A document's head in one task needs five products per pair, but keeps one
// thread busy; where that leaves threads idle for longer, dquery and dkey, dvalue are separate tasks (seven
// products).
template <class T>
std::vector<Task> backward_tasks(const Shape& s, const int* cu_seqlens, int docs) {
    double largest = 0, total = 0;
    for (int d = 0; d < docs; d++) {
        double work = pairs(s.window, cu_seqlens[d + 1] - cu_seqlens[d]);
        largest = std::max(largest, work);
        total += work * s.G;
    }
    const double even = total / omp_get_max_threads();
    const bool split = std::max(largest, even) > 1.4 * even;
    const int queries = s.span() * lanes<T>, keys = std::max(4 * tile, 256);
    std::vector<Task> tasks;
    for (int d = 0; d < docs; d++)
        for (int g = 0, n = cu_seqlens[d + 1] - cu_seqlens[d], tiles = (n + tile - 1) / tile; g < s.G; g++) {
            if (!split) {
                tasks.push_back({d, g, 0, n, 0, tiles, true, true, pairs(s.window, n)});
                continue;
            }
            for (int q = 0; q < n; q += queries) {
                int last = std::min(q + queries, n) - 1;
                tasks.push_back(
                    {d, g, q, last + 1, 0, tiles, true, false, double(last - first_key(s.window, q))});
            }
            for (int k = 0; k < n; k += keys) {
                QueryRange r = query_range(s.window, k, std::min(k + keys, n) - 1, n);
                tasks.push_back({d, g, r.first, r.end, k / tile, std::min((k + keys) / tile, tiles), false,
                                 true, double(r.end - r.first) * keys / queries});
            }
        }
    return tasks;
}

}  // namespace attention

// Documents packed into N = `tokens` rows: document d has rows start[d] .. start[d + 1] - 1 (cu_seqlens).
struct Documents {
    const int* start;  // (count + 1), on the device
    int count, tokens;
};

// out (N, H*E), lse (N, H) from qkv (N, Q), queries and keys rotated. lse is the
// logarithm of the sum of exp(s). A row that sees nothing gets out 0 and lse +inf.
template <class T>
void attention_forward(CpuDevice<T>& device, T* out, T* lse, const T* qkv, Documents documents, Window window,
                       int H, int G, int E) {
    using namespace attention;
    const Shape s{window, H, G, E};
    const int *cu_seqlens = documents.start, docs = documents.count;
    const int queries = s.span() * lanes<T>;
    std::vector<Task> tasks;
    double work = 0;
    for (int d = 0; d < docs; d++) {
        int n = cu_seqlens[d + 1] - cu_seqlens[d];
        work += 2 * pairs(window, n) * H * E;
        for (int g = 0; g < G; g++)
            for (int q = 0; q < n; q += queries) {
                int last = std::min(q + queries, n) - 1;
                tasks.push_back(
                    {d, g, q, last + 1, 0, n / tile + 1, true, false, double(last - first_key(window, q))});
            }
    }
    run_tasks(device, tasks, work, forward_scratch<T>(s), [&](const Task& t, T* scratch) {
        Document doc{size_t(cu_seqlens[t.doc]), cu_seqlens[t.doc + 1] - cu_seqlens[t.doc]};
        forward_block(s, out, lse, qkv, doc, t, Pieces<T>{scratch});
    });
}

// dqkv (N, Q), overwritten, from dout (N, H*E), what the forward pass wrote, and what it read.
template <class T>
void attention_backward(CpuDevice<T>& device, T* dqkv, const T* dout, const T* out, const T* lse,
                        const T* qkv, Documents documents, Window window, int H, int G, int E) {
    using namespace attention;
    const Shape s{window, H, G, E};
    const int *cu_seqlens = documents.start, docs = documents.count;
    std::vector<Task> tasks = backward_tasks<T>(s, cu_seqlens, docs);
    double work = 0;
    for (int d = 0; d < docs; d++) work += 5 * pairs(window, cu_seqlens[d + 1] - cu_seqlens[d]) * H * E;
    run_tasks(device, tasks, work, backward_scratch<T>(s), [&](const Task& t, T* scratch) {
        Document doc{size_t(cu_seqlens[t.doc]), cu_seqlens[t.doc + 1] - cu_seqlens[t.doc]};
        for (int q = t.q_begin; q < t.q_end; q += s.span() * lanes<T>)
            backward_block(s, dqkv, dout, out, lse, qkv, doc, t, q, Pieces<T>{scratch});
    });
}

// ----------------------------------------------------------------------------------------------------------
// CUDA

#ifdef SWARR_CUDA
// The same from `documents.start` on the device, N, count on the host. E: multiples of 8 up to 128; other
// sizes are an error. Deterministic, but the order of sums is that of the device's tiles.
template <class T>
void attention_forward(CudaDevice<T>&, T* out, float* lse, const T* qkv, Documents documents, Window window,
                       int H, int G, int E);
// Uses the device's scratch for N x H floats.
template <class T>
void attention_backward(CudaDevice<T>&, T* dqkv, const T* dout, const T* out, const float* lse, const T* qkv,
                        Documents documents, Window window, int H, int G, int E);
#endif

#ifdef __CUDACC__
#include "attention_cuda.cuh"
#endif
