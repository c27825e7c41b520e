// kv_cache.cuh: keys and values of the sequences being written, in rings, and attention over them.
//
// A slot holds one sequence. In a layer with a window a slot keeps the tiles of keys that a query can still
// see, in a ring, and the tiles with sinks apart; in a layer without one it keeps all tiles up to the limit.
// The tiles are those of layers/attention.cuh, aligned to positions, and are walked with its kernels in its
// order: a decoded row equals the row of a training pass bit for bit. Keys are stored rotated.
//
// A tile is stale beyond the newest position of its slot and holds anything there (the sequence before, or
// never written memory); no stale number is multiplied, not even by 0.
#pragma once
#include <vector>

#include "layers/attention.cuh"

template <class T>
class KvCache {
  public:
    // One window per layer; positions 0 .. limit-1 in each of `slots` slots.
    KvCache(CpuDevice<T>& device, const std::vector<Window>& windows, int slots, int limit, int G, int E)
        : slots_(slots), limit_(limit), G_(G), E_(E) {
        size_t offset = 0;
        for (const Window& w : windows) {
            layers_.push_back(make_layer(w, limit, offset));
            offset += size_t(slots) * layers_.back().tiles() * G * tile_size();
        }
        data_ = Buffer<T, CpuDevice<T>>(device, offset, Memory::cache);
    }

    // Bytes of one slot, for memory plans: flat in the limit once that is beyond the window.
    static size_t bytes_per_slot(const std::vector<Window>& windows, int limit, int G, int E) {
        size_t tiles = 0;
        for (const Window& w : windows) tiles += make_layer(w, limit, 0).tiles();
        return tiles * G * tile_size(E) * sizeof(T);
    }

    int slots() const { return slots_; }
    int limit() const { return limit_; }
    int layers() const { return int(layers_.size()); }
    int G() const { return G_; }
    int E() const { return E_; }
    const Window& window(int layer) const { return layers_[layer].window; }
    T* data() { return data_.data(); }
    size_t size() const { return data_.size(); }

    // Tile `index` (keys index*32 ..) of head g: keys as (32 / lanes, E, lanes), then values as (32, padded
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
        const int index = position / attention::tile, at = position % attention::tile, L = lanes<T>;
        for (int g = 0; g < G_; g++) {
            T* k = keys(layer, slot, g, index) + size_t(at / L) * E_ * L + at % L;
            T* v = values(layer, slot, g, index) + size_t(at) * attention::padded<T>(E_);
            for (int e = 0; e < E_; e++) k[e * L] = key[g * E_ + e];
            for (int e = 0; e < E_; e++) v[e] = value[g * E_ + e];
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

    // Fails if the slot or the position is outside the cache.
    void check(int slot, int position) const {
        if (slot < 0 || slot >= slots_ || position < 0 || position >= limit_)
            fail(format("slot %d, position %d: the cache has %d slots of %d positions", slot, position,
                        slots_, limit_),
                 "raise --max-new-tokens or --slots");
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

    int slots_, limit_, G_, E_;
    std::vector<Layer> layers_;
    Buffer<T, CpuDevice<T>> data_;
};

// Writes the newest token of B sequences, rows of qkv (B, Q), queries and keys rotated, to their slots (B) at
// their positions (B).
template <class T>
void cache_append(CpuDevice<T>&, KvCache<T>& cache, int layer, const T* qkv, const int* slots,
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
void cache_prompt(CpuDevice<T>&, KvCache<T>& cache, int layer, int slot, const T* qkv, int length, int H) {
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
// query.
template <int R, class T>
void decode_rows(T* out, const T* query, const KvCache<T>& cache, int layer, int slot, int g, int position,
                 Pieces<T> scratch) {
    constexpr int L = lanes<T>, V = tile / L;
    const int E = cache.E(), ld = padded<T>(E);
    const Window window = cache.window(layer);
    T *rows = scratch.take(R * ld), *o = scratch.take(R * ld), *p = scratch.take(R * tile);
    copy_rows(rows, query, E, R, R, E, T(1 / std::sqrt(T(E))));
    std::fill(o, o + R * ld, T(0));
    T maximum[R], sum[R] = {}, alpha[R];
    std::fill(maximum, maximum + R, T(no_score));
    for_tiles(window, position, position, 0, position / tile + 1, [&](int index) {
        const int first = index * tile;
        const KeyRange k = visible_keys(window, position, position, first);
        if (k.begin >= k.end) return;
        const T *keys = cache.keys(layer, slot, g, index), *values = cache.values(layer, slot, g, index);
        add_block<R, V, Start::zero, T>(p, tile, {rows, size_t(ld), 1, keys, L, size_t(E) * L, E});
        const bool all = all_visible(window, position, position, first, first + tile - 1);
        for (int r = 0; r < R; r++) {
            T* s = p + r * tile;
            T m = maximum[r];
            for (int i = 0; i < tile; i++) {
                if (!all && !visible(window, position, first + i)) s[i] = -std::numeric_limits<T>::infinity();
                m = s[i] > m ? s[i] : m;
            }
            for (int v = 0; v < V; v++) store(s + v * L, exp(load(s + v * L) - m));
            T part[granule] = {};
            for (int j = 0; j < tile; j += granule)
                for (int i = 0; i < granule; i++) part[i] += s[j + i];
            for (int n = granule / 2; n > 0; n /= 2)
                for (int i = 0; i < n; i++) part[i] += part[i + n];
            alpha[r] = exp(splat(maximum[r] - m))[0];
            maximum[r] = m;
            sum[r] = fma(splat(sum[r]), splat(alpha[r]), splat(part[0]))[0];
        }
        // Exactly the visible keys: what lies beyond may be stale.
        int begin = k.begin, end = std::min(k.end, position + 1 - first);
        add_rows<R, T>(o, R, ld, {p + begin, tile, 1, values + begin * ld, size_t(ld), L, end - begin},
                       alpha);
    });
    for (int r = 0; r < R; r++)
        copy_rows_out(out + size_t(r) * E, E, o + r * ld, 1, E, sum[r] == 0 ? T(0) : 1 / sum[r]);
}

}  // namespace attention

// out (B, H*E) of the newest tokens of B sequences, whose rows of qkv (B, Q) were appended to their slots (B)
// at positions (B). One pass over a tile serves all query heads of its group.
template <class T>
void attention_decode(CpuDevice<T>& device, T* out, const T* qkv, const KvCache<T>& cache, int layer,
                      const int* slots, const int* positions, int B, int H) {
    using namespace attention;
    const int G = cache.G(), E = cache.E(), group = H / G;
    const size_t Q = size_t(H + 2 * G) * E, scratch_size = 8 * (2 * padded<T>(E) + tile);
    double work = 0;
    for (int b = 0; b < B; b++) {
        cache.check(slots[b], positions[b]);
        work += pairs(Window{}, cache.window(layer).width ? std::min(positions[b], cache.window(layer).width)
                                                          : positions[b]);
    }
    int threads = work * H * E < 1e5 ? 1 : std::min(omp_get_max_threads(), B * G);
    Buffer<T, CpuDevice<T>> scratch(device, threads * scratch_size, Memory::workspace);
#pragma omp parallel for schedule(dynamic) num_threads(threads) if (threads > 1)
    for (int i = 0; i < B * G; i++) {
        const int b = i / G, g = i % G;
        Pieces<T> piece{scratch.data() + omp_get_thread_num() * scratch_size};
        auto rows = [&](auto R, int h) {
            size_t at = size_t(g * group + h) * E;
            decode_rows<R>(out + b * size_t(H) * E + at, qkv + b * Q + at, cache, layer, slots[b], g,
                           positions[b], piece);
        };
        for (int h = 0; h < group; h += 8) {
            switch (std::min(8, group - h)) {
                case 1:
                    rows(std::integral_constant<int, 1>(), h);
                    break;
                case 2:
                    rows(std::integral_constant<int, 2>(), h);
                    break;
                case 3:
                    rows(std::integral_constant<int, 3>(), h);
                    break;
                case 4:
                    rows(std::integral_constant<int, 4>(), h);
                    break;
                case 5:
                    rows(std::integral_constant<int, 5>(), h);
                    break;
                case 6:
                    rows(std::integral_constant<int, 6>(), h);
                    break;
                case 7:
                    rows(std::integral_constant<int, 7>(), h);
                    break;
                case 8:
                    rows(std::integral_constant<int, 8>(), h);
                    break;
            }
        }
    }
}
