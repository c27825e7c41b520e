// kv_cache.cuh: keys and values of the sequences being written, in rings, and attention over them.
//
// A slot holds one sequence. In a layer with a window a slot keeps the keys that a query can still see, in a
// ring, and the sinks apart; in a layer without one it keeps all keys up to the limit. Keys are stored
// rotated. What lies beyond the newest position of a slot is stale: anything (the sequence before, or never
// written memory); no stale number is multiplied, not even by 0.
//
// On the CPU rings consist of the tiles of layers/attention.cuh, aligned to positions, and are walked with
// its kernels in its order: a decoded row equals the row of a training pass bit for bit. On a GPU a ring has
// a row for each key of the window and is walked as it lies, in splits of a fixed size: equal to rounding.
#pragma once
#include <vector>

#include "layers/attention.cuh"

template <class Device>
class KvCache;

// What the caches of all devices have.
class CacheSizes {
  public:
    CacheSizes(int slots, int limit, int G, int E) : slots_(slots), limit_(limit), G_(G), E_(E) {}
    int slots() const { return slots_; }
    int limit() const { return limit_; }
    int G() const { return G_; }
    int E() const { return E_; }
    // Fails if the slot or the position is outside the cache.
    void check(int slot, int position) const {
        if (slot < 0 || slot >= slots_ || position < 0 || position >= limit_)
            fail(format("slot %d, position %d: the cache has %d slots of %d positions", slot, position,
                        slots_, limit_),
                 "raise --max-new-tokens or --slots");
    }

  protected:
    int slots_, limit_, G_, E_;
};

// ---- CPU ------------------------------------------------------------------------------------------------

namespace attention {

// A value is kept in panels of the register block's width, each (32 keys, width), so that a pass over a tile
// reads memory in order. The panel that holds column e:
struct Panel {
    int first, width;
};
template <class T>
Panel value_panel(int E, int e) {
    constexpr int width = block_vectors * lanes<T>;
    const int first = e / width * width;
    return {first, std::min(width, padded<T>(E) - first)};
}

}  // namespace attention

template <class T>
class KvCache<CpuDevice<T>> : public CacheSizes {
  public:
    // One window per layer; positions 0 .. limit-1 in each of `slots` slots. H is for GPUs' workspace.
    KvCache(CpuDevice<T>& device, const std::vector<Window>& windows, int slots, int limit, int /*H*/, int G,
            int E)
        : CacheSizes(slots, limit, G, E) {
        size_t offset = 0;
        for (const Window& w : windows) {
            layers_.push_back(make_layer(w, limit, offset));
            offset += size_t(slots) * layers_.back().tiles() * G * tile_size();
        }
        data_ = Buffer<T, CpuDevice<T>>(device, offset, Memory::cache);
    }

    // Bytes of one slot, for memory plans: flat in the limit once that is beyond the window.
    static size_t bytes_per_slot(const std::vector<Window>& windows, int limit, int /*H*/, int G, int E) {
        size_t tiles = 0;
        for (const Window& w : windows) tiles += make_layer(w, limit, 0).tiles();
        return tiles * G * tile_size(E) * sizeof(T);
    }

    int layers() const { return int(layers_.size()); }
    const Window& window(int layer) const { return layers_[layer].window; }
    T* data() { return data_.data(); }
    size_t size() const { return data_.size(); }

    // Tile `index` (keys index*32 ..) of head g: keys as (E, 32), then values as (32, padded
    // E).
    T* keys(int layer, int slot, int g, int index) { return data_.data() + offset(layer, slot, g, index); }
    const T* keys(int layer, int slot, int g, int index) const {
        return data_.data() + offset(layer, slot, g, index);
    }
    T* values(int layer, int slot, int g, int index) {
        return keys(layer, slot, g, index) + attention::tile * E_;
    }
    const T* values(int layer, int slot, int g, int index) const {
        return keys(layer, slot, g, index) + attention::tile * E_;
    }

    // Writes the key and value of one token. `key` and `value` are (G, E).
    void put(int layer, int slot, int position, const T* key, const T* value) {
        const int index = position / attention::tile, at = position % attention::tile;
        for (int g = 0; g < G_; g++) {
            T *k = keys(layer, slot, g, index) + at, *v = values(layer, slot, g, index);
            for (int e = 0; e < E_; e++) k[e * attention::tile] = key[g * E_ + e];
            for (int e = 0; e < E_; e++) {
                attention::Panel panel = attention::value_panel<T>(E_, e);
                v[panel.first * attention::tile + at * panel.width + e - panel.first] = value[g * E_ + e];
            }
        }
    }

    // Copies a sequence of `length` tokens from one slot to another, in all layers.
    void copy(int from, int to, int length) {
        for (int l = 0; l < layers(); l++)
            for_live_tiles(l, length, [&](int index) {
                for (int g = 0; g < G_; g++)
                    std::copy_n(keys(l, from, g, index), tile_size(), keys(l, to, g, index));
            });
    }

    // Calls f(index) for the tiles of a layer that a query at position `length` or later can see, of a
    // sequence of `length` tokens.
    template <class F>
    void for_live_tiles(int layer, int length, F f) const {
        if (length > 0)
            attention::for_tiles(window(layer), length, length, 0, (length - 1) / attention::tile + 1, f);
    }

  private:
    struct Layer {
        Window window;
        int sink_tiles, ring_tiles;
        size_t offset;
        int tiles() const { return sink_tiles + ring_tiles; }
    };
    static Layer make_layer(const Window& w, int limit, size_t offset) {
        const int size = attention::tile, all = (limit + size - 1) / size;
        if (w.width == 0 || w.width >= limit) return {w, 0, all, offset};
        int sinks = (w.sinks + size - 1) / size, ring = (w.width + size - 2) / size + 1;
        if (sinks + ring >= all) return {w, 0, all, offset};
        return {w, sinks, ring, offset};
    }
    static size_t tile_size(int E) { return size_t(attention::tile) * (E + attention::padded<T>(E)); }
    size_t tile_size() const { return tile_size(E_); }
    size_t offset(int layer, int slot, int g, int index) const {
        const Layer& l = layers_[layer];
        int at = index < l.sink_tiles ? index : l.sink_tiles + (index - l.sink_tiles) % l.ring_tiles;
        return l.offset + ((size_t(slot) * G_ + g) * l.tiles() + at) * tile_size();
    }

    std::vector<Layer> layers_;
    Buffer<T, CpuDevice<T>> data_;
};

// Writes the newest token of B sequences, rows of qkv (B, Q), queries and keys rotated, to their slots (B) at
// their positions (B).
template <class T>
void cache_append(CpuDevice<T>&, KvCache<CpuDevice<T>>& cache, int layer, const T* qkv, const int* slots,
                  const int* positions, int B, int H) {
    const size_t Q = size_t(H + 2 * cache.G()) * cache.E(), key = size_t(H) * cache.E(),
                 value = key + size_t(cache.G()) * cache.E();
    for (int b = 0; b < B; b++) {
        cache.check(slots[b], positions[b]);
        cache.put(layer, slots[b], positions[b], qkv + b * Q + key, qkv + b * Q + value);
    }
}

// Writes a prompt of `length` tokens, rows of a prefill pass's qkv (length, Q), to a slot: the tiles that
// later tokens can see.
template <class T>
void cache_prompt(CpuDevice<T>&, KvCache<CpuDevice<T>>& cache, int layer, int slot, const T* qkv, int length,
                  int H) {
    const size_t Q = size_t(H + 2 * cache.G()) * cache.E(), key = size_t(H) * cache.E(),
                 value = key + size_t(cache.G()) * cache.E();
    if (length > 0) cache.check(slot, length - 1);
    cache.for_live_tiles(layer, length, [&](int index) {
        for (int t = index * attention::tile; t < std::min(length, (index + 1) * attention::tile); t++)
            cache.put(layer, slot, t, qkv + t * Q + key, qkv + t * Q + value);
    });
}

namespace attention {

// R query heads of one group at `position`, rows of `query`, against the tiles of their sequence; out as
// query. Flattened, as GCC else leaves steps of the register block as calls, with its sums in memory.
template <int R, class T>
__attribute__((flatten)) void decode_rows(T* out, const T* query, const KvCache<CpuDevice<T>>& cache,
                                          int layer, int slot, int g, int position, Pieces<T> scratch) {
    constexpr int L = lanes<T>, V = tile / L;
    const int E = cache.E(), ld = padded<T>(E);
    const Window window = cache.window(layer);
    T *rows = scratch.take(R * ld), *o = scratch.take(R * ld), *p = scratch.take(R * tile);
    copy_rows(rows, query, E, R, R, E, T(1 / std::sqrt(T(E))));
    std::fill(o, o + R * ld, T(0));
    typedef T Granule __attribute__((vector_size(granule * sizeof(T))));
    static_assert(R <= L, "one vector holds a number of every row");
    T maximum[L], sum[L] = {}, next[L] = {}, part[L] = {}, alpha[L];
    std::fill(maximum, maximum + L, T(no_score));
    for_tiles(window, position, position, 0, position / tile + 1, [&](int index) {
        const int first = index * tile;
        const KeyRange k = visible_keys(window, position, position, first);
        if (k.begin >= k.end) return;
        const T *keys = cache.keys(layer, slot, g, index), *values = cache.values(layer, slot, g, index);
        add_block<R, V, Start::zero, T, true>(p, tile, {rows, size_t(ld), 1, keys, tile, L, E});
        const bool all = all_visible(window, position, position, first, first + tile - 1);
        for (int r = 0; r < R; r++) {
            Vec<T> m = splat(maximum[r]);
            for (T* s = p + r * tile; s < p + (r + 1) * tile; s += L) {
                Vec<T> x = load(s);
                if (!all)
                    store(s, x = mask<T>(x, window, Positions<T>{} + position,
                                         ascending<T>(first + int(s - p) - r * tile)));
                m = x > m ? x : m;
            }
            next[r] = max_lane(m);
        }
        for (int r = 0; r < R; r++) {
            Granule total = {};
            for (T* s = p + r * tile; s < p + (r + 1) * tile; s += L) store(s, exp(load(s) - splat(next[r])));
            for (int j = 0; j < tile; j += granule) {
                Granule x;
                std::memcpy(&x, p + r * tile + j, sizeof x);
                total += x;
            }
            part[r] = sum_lanes(total);
        }
        store(alpha, exp(load(maximum) - load(next)));
        store(sum, fma(load(sum), load(alpha), load(part)));
        store(maximum, load(next));
        // Visible keys alone: what lies beyond may be stale.
        const int end = std::min(k.end, position + 1 - first);
        for (int e = 0; e < ld;) {
            const size_t width = value_panel<T>(E, e).width;
            const Operands<T> pv{p + k.begin, tile,         1, values + e * tile + k.begin * width, width,
                                 L,           end - k.begin};
            if (width == L)
                add_block<R, 1, Start::scaled, T, true>(o + e, ld, pv, alpha);
            else
                add_block<R, block_vectors, Start::scaled, T, true>(o + e, ld, pv, alpha);
            e += width;
        }
    });
    for (int r = 0; r < R; r++)
        copy_rows_out(out + size_t(r) * E, E, o + r * ld, 1, E, sum[r] == 0 ? T(0) : 1 / sum[r]);
}

// The same for 1 <= rows <= 8 known at run time.
template <class T, int... I>
void decode_rows(int rows, T* out, const T* query, const KvCache<CpuDevice<T>>& cache, int layer, int slot,
                 int g, int position, Pieces<T> scratch, std::integer_sequence<int, I...>) {
    using Kernel = void (*)(T*, const T*, const KvCache<CpuDevice<T>>&, int, int, int, int, Pieces<T>);
    static constexpr Kernel kernels[] = {decode_rows<I + 1, T>...};
    kernels[rows - 1](out, query, cache, layer, slot, g, position, scratch);
}

}  // namespace attention

// out (B, H*E) of the newest tokens of B sequences, whose rows of qkv (B, Q) were appended to their slots (B)
// at positions (B). One pass over a tile serves all query heads of its group.
template <class T>
void attention_decode(CpuDevice<T>& device, T* out, const T* qkv, const KvCache<CpuDevice<T>>& cache,
                      int layer, const int* slots, const int* positions, int B, int H) {
    using namespace attention;
    const int G = cache.G(), E = cache.E(), group = H / G;
    const size_t Q = size_t(H + 2 * G) * E, scratch_size = 8 * (2 * padded<T>(E) + tile);
    double keys = 0;
    for (int b = 0; b < B; b++) {
        cache.check(slots[b], positions[b]);
        keys += positions[b] + 1 - first_key(cache.window(layer), positions[b]);
    }
    const int threads = keys * H * E < 2e5 ? 1 : std::min(omp_get_max_threads(), B * G);
    Buffer<T, CpuDevice<T>> scratch(device, threads * scratch_size, Memory::workspace);
#pragma omp parallel for schedule(dynamic) num_threads(threads) if (threads > 1)
    for (int i = 0; i < B * G; i++) {
        const int b = i / G, g = i % G;
        const Pieces<T> pieces{scratch.data() + omp_get_thread_num() * scratch_size};
        for (int h = 0; h < group; h += 8) {
            const size_t at = size_t(g * group + h) * E;
            decode_rows(std::min(8, group - h), out + b * size_t(H) * E + at, qkv + b * Q + at, cache, layer,
                        slots[b], g, positions[b], pieces, std::make_integer_sequence<int, 8>());
        }
    }
}

// ---- CUDA -----------------------------------------------------------------------------------------------

#ifdef SWARR_CUDA
// Position p lies in row p while there are rows, then in turn in the rows behind the sinks: sinks + (p -
// sinks) % W. So the first min(p + 1, rows) rows are just what a query at p sees.
template <class T>
struct CacheLayer {
    T* data;             // of slot 0: (2: keys and values, G, rows, E)
    size_t slot_stride;  // numbers from one slot to the next
    int rows, sinks;
    SWARR_WINDOW int row(int position) const {
        return position < rows ? position : sinks + (position - sinks) % (rows - sinks);
    }
};

// One slot's layers lie in sequence. Errors: an E other than 16, 32, 64, 80, 96, 128.
template <class T>
class KvCache<CudaDevice<T>> : public CacheSizes {
  public:
    // Keys that one block of attention_decode takes: fixed, so that a result depends on the sequence alone.
    static constexpr int split = 256;

    // One window per layer; positions 0 .. limit-1 in each of `slots` slots; H query heads.
    KvCache(CudaDevice<T>& device, const std::vector<Window>& windows, int slots, int limit, int H, int G,
            int E)
        : CacheSizes(slots, limit, G, E), device_(device), windows_(windows), H_(H) {
        check_head(E);
        size_t size = 0;
        for (const Window& w : windows) size += layer_size(w, limit, G, E);
        data_ = Buffer<T, CudaDevice<T>>(device, size_t(slots) * size, Memory::cache);
        for (const Window& w : windows) {
            T* at = layers_.empty()
                        ? data_.data()
                        : layers_.back().data + layer_size(windows[layers_.size() - 1], limit, G, E);
            layers_.push_back({at, size, rows(w, limit), w.width == 0 ? 0 : w.sinks});
        }
        workspace_ = Buffer<float, CudaDevice<T>>(
            device, size_t(slots) * workspace_size(windows, limit, H, E), Memory::cache);
    }

    // Bytes of one slot, for memory plans, with its share of attention_decode's workspace. Errors: as above.
    static size_t bytes_per_slot(const std::vector<Window>& windows, int limit, int H, int G, int E) {
        check_head(E);
        size_t size = 0;
        for (const Window& w : windows) size += layer_size(w, limit, G, E);
        return size * sizeof(T) + workspace_size(windows, limit, H, E) * sizeof(float);
    }

    int layers() const { return int(layers_.size()); }
    int H() const { return H_; }
    const Window& window(int layer) const { return windows_[size_t(layer)]; }
    const CacheLayer<T>& layer(int l) const { return layers_[size_t(l)]; }
    int splits(int l) const { return (layer(l).rows + split - 1) / split; }
    T* data() { return data_.data(); }
    size_t size() const { return data_.size(); }
    // (slots, H, splits, E) sums and then (slots, H, splits) pairs of their maximum and weight, for the layer
    // with the most splits.
    float* workspace() const { return workspace_.data(); }

    // Copies a sequence of `length` tokens from one slot to another, in all layers.
    void copy(int from, int to, int length) {
        for (int l = 0, end; l < layers(); l = end) {
            const CacheLayer<T>& first = layer(l);
            for (end = l + 1; end < layers() && layer(end).rows == first.rows;) end++;
            const size_t pitch = size_t(first.rows) * E_ * sizeof(T),
                         width = size_t(std::min(length, first.rows)) * E_ * sizeof(T);
            CUDA_CHECK(cudaMemcpy2DAsync(first.data + to * first.slot_stride, pitch,
                                         first.data + from * first.slot_stride, pitch, width,
                                         size_t(end - l) * 2 * G_, cudaMemcpyDeviceToDevice, device_.stream));
        }
    }

  private:
    static void check_head(int E) {
        if (E != 16 && E != 32 && E != 64 && E != 80 && E != 96 && E != 128)
            fail(format("the CUDA device cannot decode with heads of %d numbers", E),
                 "it takes 16, 32, 64, 80, 96 or 128; or use --device cpu");
    }
    static int rows(const Window& w, int limit) {
        return w.width == 0 || w.width >= limit - w.sinks ? limit : w.sinks + w.width;
    }
    static size_t layer_size(const Window& w, int limit, int G, int E) {
        return size_t(rows(w, limit)) * 2 * G * E;
    }
    static size_t workspace_size(const std::vector<Window>& windows, int limit, int H, int E) {
        int most = 0;
        for (const Window& w : windows) most = std::max(most, (rows(w, limit) + split - 1) / split);
        return size_t(most) * H * (E + 2);
    }

    CudaDevice<T>& device_;
    std::vector<Window> windows_;
    int H_;
    std::vector<CacheLayer<T>> layers_;
    Buffer<T, CudaDevice<T>> data_;
    mutable Buffer<float, CudaDevice<T>> workspace_;
};

// As on the CPU, but slots and positions (B) lie on the device and are not checked. A slot of -1 is padding:
// nothing is written for it, and attention_decode gives it zeros. B is at most the cache's slots.
template <class T>
void cache_append(CudaDevice<T>&, KvCache<CudaDevice<T>>& cache, int layer, const T* qkv, const int* slots,
                  const int* positions, int B, int H);
template <class T>
void attention_decode(CudaDevice<T>&, T* out, const T* qkv, const KvCache<CudaDevice<T>>& cache, int layer,
                      const int* slots, const int* positions, int B, int H);
// `slot` and `length` are the host's, and checked.
template <class T>
void cache_prompt(CudaDevice<T>&, KvCache<CudaDevice<T>>& cache, int layer, int slot, const T* qkv,
                  int length, int H);
#endif

#ifdef __CUDACC__
#include "mma.cuh"

namespace cache {

constexpr int block = 256;

// Which token a row that is to be written holds: the newest of B sequences, or those of a prompt that later
// tokens can see: the sinks, and from `begin` on.
struct Token {
    int row, slot, position;  // row: of qkv
};
struct Newest {
    const int *slots, *positions;
    __device__ Token operator()(int i) const { return {i, slots[i], positions[i]}; }
};
struct Prompt {
    int slot, sinks, begin;
    __device__ Token operator()(int i) const {
        const int position = i < sinks ? i : begin + i - sinks;
        return {position, slot, position};
    }
};

// Copies the key and value rows of tokens 0 .. count-1 to their places, a pack a thread.
template <class T, class Tokens>
__global__ void write(CacheLayer<T> layer, const T* qkv, Tokens tokens, int count, int H, int G, int E) {
    const int packs = 2 * G * E / Pack<T>::size;
    const size_t at = size_t(blockIdx.x) * block + threadIdx.x;
    if (at >= size_t(count) * packs) return;
    const Token t = tokens(int(at / packs));
    if (t.slot < 0) return;
    const int i = int(at % packs) * Pack<T>::size, head = i / E;
    store_pack(layer.data + t.slot * layer.slot_stride +
                   (size_t(head) * layer.rows + layer.row(t.position)) * E + i % E,
               load_pack(qkv + (size_t(t.row) * (H + 2 * G) + H) * E + i));
}
template <class T, class Tokens>
void launch_write(CudaDevice<T>& device, KvCache<CudaDevice<T>>& cache, int layer, const T* qkv,
                  Tokens tokens, int count, int H) {
    const int G = cache.G(), E = cache.E();
    launch(device, write<T, Tokens>, blocks_for(size_t(count) * 2 * G * E / Pack<T>::size, block), block, 0,
           cache.layer(layer), qkv, tokens, count, H, G, E);
}

}  // namespace cache

template <class T>
void cache_append(CudaDevice<T>& device, KvCache<CudaDevice<T>>& cache, int layer, const T* qkv,
                  const int* slots, const int* positions, int B, int H) {
    cache::launch_write(device, cache, layer, qkv, cache::Newest{slots, positions}, B, H);
}

template <class T>
void cache_prompt(CudaDevice<T>& device, KvCache<CudaDevice<T>>& cache, int layer, int slot, const T* qkv,
                  int length, int H) {
    if (length <= 0) return;
    cache.check(slot, length - 1);
    const Window w = cache.window(layer);
    const int sinks = std::min(cache.layer(layer).sinks, length);
    const int begin = std::max(sinks, first_key(w, length));
    cache::launch_write(device, cache, layer, qkv, cache::Prompt{slot, sinks, begin}, sinks + length - begin,
                        H);
}

// Decoding (Flash-Decoding, Dao et al. 2023): a block takes one split of the keys of a sequence for up to 16
// query heads of a group, which share every key and value read; they are the 16 rows of the tensor cores'
// products. Its warps work alone on 16 keys at a time, each with its own stages of shared memory, and join
// their sums at the end. A second kernel joins the splits. The order of all sums depends on the sequence's
// position alone.
namespace decode {

constexpr int heads = 16, keys = 16;

template <class T, int E>
struct Shape {
    static constexpr int warps = sizeof(T) == 2 ? 4 : 2, threads = 32 * warps;
    static constexpr int stages = E > 64 ? 2 : 4;
    static constexpr int tile = keys * E;  // numbers of a tile of keys, or of values
    static constexpr int warp_bytes = stages * 2 * tile * int(sizeof(T));
    static constexpr int shared_bytes = warps * warp_bytes + heads * E * int(sizeof(T));
    static constexpr int ld = E + 8;  // of a warp's sums: no two rows in the same banks
    static_assert(heads * ld * int(sizeof(float)) <= warp_bytes, "sums take the place of the stages");
};

// Where the sums of a split lie, and how much they weigh: sums * 2^maximum, weight * 2^maximum.
struct Partial {
    float* sums;      // (B, H, splits, E)
    float2* weights;  // (B, H, splits): maximum, weight
    int splits;
};

// Number of rows that the newest token of sequence b sees; 0 for padding.
template <class T>
__device__ inline int visible_rows(const CacheLayer<T>& layer, const int* slots, const int* positions,
                                   int b) {
    return slots[b] < 0 ? 0 : min(positions[b] + 1, layer.rows);
}

// Grid (splits, G * chunks of 16 heads of a group, B), block (32, warps).
template <class T, int E>
__global__ void __launch_bounds__(Shape<T, E>::threads)
    attend(Partial partial, const T* qkv, CacheLayer<T> layer, const int* slots, const int* positions, int H,
           int G, float scale) {
    using S = Shape<T, E>;
    const int split = KvCache<CudaDevice<T>>::split, b = blockIdx.z, group = H / G,
              chunks = (group + heads - 1) / heads, g = blockIdx.y / chunks, chunk = blockIdx.y % chunks;
    const int begin = blockIdx.x * split, end = min(begin + split, visible_rows(layer, slots, positions, b));
    if (begin >= end) return;
    const int head = g * group + chunk * heads, count = min(heads, group - chunk * heads);
    const int warp = threadIdx.y, lane = threadIdx.x;

    extern __shared__ __align__(128) unsigned char memory[];
    __shared__ float2 weights[S::warps][heads];
    T *stages = reinterpret_cast<T*>(memory + warp * S::warp_bytes),
      *queries = reinterpret_cast<T*>(memory + S::warps * S::warp_bytes);
    const T* key_rows = layer.data + slots[b] * layer.slot_stride + size_t(g) * layer.rows * E;
    const T* value_rows = key_rows + size_t(G) * layer.rows * E;
    // Rows from `end` on are stale: they become zeros.
    auto fetch = [&](int i) {
        const int first = begin + (i * S::warps + warp) * keys;
        T* to = stages + i % S::stages * 2 * S::tile;
        if (first < end) {
            copy_tile<keys, E, 32>(to, key_rows + size_t(first) * E, E, end - first, E);
            copy_tile<keys, E, 32>(to + S::tile, value_rows + size_t(first) * E, E, end - first, E);
        }
        commit_copies();
    };
    if (warp == 0) copy_tile<heads, E, 32>(queries, qkv + (size_t(b) * (H + 2 * G) + head) * E, E, count, E);
    commit_copies();
    for (int i = 0; i < S::stages; i++) fetch(i);
    wait_copies<S::stages>();
    __syncthreads();

    // Tensor cores take the queries from registers; for the float stand-in they are too many.
    constexpr int depth = mma_depth<T>, held = sizeof(T) == 2 ? E / depth : 1;
    const LeftReader<T, E> read_query(queries);
    Left<T> query[held];
#pragma unroll
    for (int k = 0; k < held; k++) query[k] = read_query(0, k * depth);

    float o[E / 8][4] = {}, maximum[2] = {-INFINITY, -INFINITY}, weight[2] = {};
    for (int i = 0, first = begin + warp * keys; first < end; i++, first += S::warps * keys) {
        wait_copies<S::stages - 1>();
        __syncwarp();
        T* stage = stages + i % S::stages * 2 * S::tile;
        const RightReader<T, E> read_keys(stage);
        float s[keys / 8][4] = {};
        if constexpr (sizeof(T) == 2)
#pragma unroll
            for (int k = 0; k < held; k++) multiply_add(s[0], s[1], query[k], read_keys(0, k * depth));
        else
#pragma unroll 1
            for (int k = 0; k < E; k += depth) multiply_add(s[0], s[1], read_query(0, k), read_keys(0, k));
        float alpha[2];
        for (int r = 0; r < 2; r++) {
            float next = maximum[r], sum = 0;
            for (int j = 0; j < 4; j++) {
                float& x = s[j / 2][2 * r + j % 2];
                x = first + j / 2 * 8 + lane % 4 * 2 + j % 2 < end ? x * scale : -INFINITY;
                next = fmaxf(next, x);
            }
            next = quad_max(next);
            for (int j = 0; j < 4; j++) {
                float& x = s[j / 2][2 * r + j % 2];
                sum += x = exp2_fast(x - next);
            }
            alpha[r] = exp2_fast(maximum[r] - next);
            maximum[r] = next;
            weight[r] = weight[r] * alpha[r] + sum;
        }
#pragma unroll
        for (int j = 0; j < E / 8; j++)
            for (int c = 0; c < 4; c++) o[j][c] *= alpha[c / 2];
        const AcrossReader<T, E> read_values(stage + S::tile);
#pragma unroll 1
        for (int k = 0; k < keys; k += depth) {
            const Left<T> p = left_of<T>(s, k);
#pragma unroll
            for (int j = 0; j < E / 16; j++) multiply_add(o[2 * j], o[2 * j + 1], p, read_values(k, 16 * j));
        }
        __syncwarp();
        fetch(i + S::stages);
    }

    // The warps' sums, each in the place of its stages.
    wait_copies<0>();
    __syncwarp();
    for (int r = 0; r < 2; r++) {
        const int row = lane / 4 + 8 * r;
        const float sum = quad_sum(weight[r]);
        if (lane % 4 == 0) weights[warp][row] = make_float2(maximum[r], sum);
        float* to = reinterpret_cast<float*>(stages) + row * S::ld + lane % 4 * 2;
#pragma unroll
        for (int j = 0; j < E / 8; j++)
            *reinterpret_cast<float2*>(to + j * 8) = make_float2(o[j][2 * r], o[j][2 * r + 1]);
    }
    __syncthreads();
    for (int i = warp * 32 + lane; i < count * E / 4; i += S::threads) {
        const int row = i / (E / 4), e = i % (E / 4) * 4;
        float most = -INFINITY, sum = 0;
        for (int w = 0; w < S::warps; w++) most = fmaxf(most, weights[w][row].x);
        float4 total = {};
        for (int w = 0; w < S::warps; w++) {
            const float factor = exp2_fast(weights[w][row].x - most);
            const float4 x = *reinterpret_cast<const float4*>(memory + w * S::warp_bytes +
                                                              (row * S::ld + e) * int(sizeof(float)));
            total.x += factor * x.x, total.y += factor * x.y, total.z += factor * x.z,
                total.w += factor * x.w;
            sum += factor * weights[w][row].y;
        }
        const size_t at = (size_t(b) * H + head + row) * partial.splits + blockIdx.x;
        *reinterpret_cast<float4*>(partial.sums + at * E + e) = total;
        if (e == 0) partial.weights[at] = make_float2(most, sum);
    }
}

constexpr int merge_block = 128;

// out (B, H*E). Grid (H, B); shared: a float for each split.
template <class T>
__global__ void __launch_bounds__(merge_block)
    merge(T* out, Partial partial, CacheLayer<T> layer, const int* slots, const int* positions, int E) {
    extern __shared__ float factor[];
    __shared__ float4 parts[merge_block];
    __shared__ float shared[32];
    const int b = blockIdx.y, split = KvCache<CudaDevice<T>>::split, thread = threadIdx.x;
    const int n = (visible_rows(layer, slots, positions, b) + split - 1) / split;
    const size_t row = size_t(b) * gridDim.x + blockIdx.x;
    const float2* weights = partial.weights + row * partial.splits;
    float most = -INFINITY, weight = 0;
    for (int s = thread; s < n; s += merge_block) most = fmaxf(most, weights[s].x);
    most = block_max(most, shared);
    for (int s = thread; s < n; s += merge_block) {
        factor[s] = exp2_fast(weights[s].x - most);
        weight += factor[s] * weights[s].y;
    }
    weight = block_sum(weight, shared);
    const int packs = E / 4, ways = merge_block / packs, way = thread / packs, e = thread % packs * 4;
    float4 total = {};
    auto add = [&](float f, const float4& x) {
        total.x += f * x.x, total.y += f * x.y, total.z += f * x.z, total.w += f * x.w;
    };
    for (int s = way; s < n && way < ways; s += ways)
        add(factor[s], *reinterpret_cast<const float4*>(partial.sums + (row * partial.splits + s) * E + e));
    parts[thread] = total;
    __syncthreads();
    if (way > 0) return;
    for (int w = 1; w < ways; w++) add(1, parts[w * packs + thread]);
    const float inverse = n == 0 ? 0 : 1 / weight;
    struct alignas(4 * sizeof(T)) Four {
        T x[4];
    } four{from_float<T>(total.x * inverse), from_float<T>(total.y * inverse),
           from_float<T>(total.z * inverse), from_float<T>(total.w * inverse)};
    *reinterpret_cast<Four*>(out + row * E + e) = four;
}

}  // namespace decode

template <class T>
void attention_decode(CudaDevice<T>& device, T* out, const T* qkv, const KvCache<CudaDevice<T>>& cache,
                      int layer, const int* slots, const int* positions, int B, int H) {
    const int E = cache.E(), splits = cache.splits(layer);
    if (B > cache.slots() || H != cache.H())
        fail(format("%d sequences, %d heads: the cache was made for %d, %d", B, H, cache.slots(), cache.H()),
             "raise --slots");
    float* sums = cache.workspace();
    const decode::Partial partial{
        sums, reinterpret_cast<float2*>(sums + size_t(cache.slots()) * H * splits * E), splits};
    const int G = cache.G(), chunks = (H / G + decode::heads - 1) / decode::heads;
    const float scale = float(1.4426950408889634 / std::sqrt(double(E)));  // log2(e): powers of 2 are fast
    auto attend = [&](auto size) {
        using S = decode::Shape<T, size>;
        launch(device, decode::attend<T, size>, dim3(splits, G * chunks, B), dim3(32, S::warps),
               S::shared_bytes, partial, qkv, cache.layer(layer), slots, positions, H, G, scale);
    };
    switch (E) {
        case 16:
            attend(std::integral_constant<int, 16>());
            break;
        case 32:
            attend(std::integral_constant<int, 32>());
            break;
        case 64:
            attend(std::integral_constant<int, 64>());
            break;
        case 80:
            attend(std::integral_constant<int, 80>());
            break;
        case 96:
            attend(std::integral_constant<int, 96>());
            break;
        case 128:
            attend(std::integral_constant<int, 128>());
            break;
    }
    launch(device, decode::merge<T>, dim3(H, B), decode::merge_block, splits * sizeof(float), out, partial,
           cache.layer(layer), slots, positions, E);
}

#define SWARR_KV_CACHE(T)                                                                              \
    template void cache_append(CudaDevice<T>&, KvCache<CudaDevice<T>>&, int, const T*, const int*,     \
                               const int*, int, int);                                                  \
    template void cache_prompt(CudaDevice<T>&, KvCache<CudaDevice<T>>&, int, int, const T*, int, int); \
    template void attention_decode(CudaDevice<T>&, T*, const T*, const KvCache<CudaDevice<T>>&, int,   \
                                   const int*, const int*, int, int);
SWARR_KV_CACHE(bf16)
SWARR_KV_CACHE(float)
#undef SWARR_KV_CACHE
#endif
