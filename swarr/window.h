// window.h: the one rule of who sees whom.
//
//   visible(q, k) = k <= q  and  (k > q - W  or  k < S)
//
// W keys, the query itself included (Hugging Face's rule for Qwen2; FlashAttention's inclusive left bound is
// W - 1). W = 0 stands for no window: full causal attention. S sink tokens at the start of the document stay
// visible. q and k are positions in one document; attention never crosses documents.
//
// Which tiles may be skipped is derived here too, apart from the mask: kernels walk the tiles of key_tiles()
// or query_tiles() and mask every element of a tile that is not all_visible(). A wrong range can then only
// cost time, or be caught by the tests that compare with the mask alone. Key tiles are aligned to absolute
// positions (tile t holds keys t*size .. t*size + size-1), so that training, prefill and decoding add in one
// order.
#pragma once

#ifdef __CUDACC__
#define SWARR_WINDOW __host__ __device__
#else
#define SWARR_WINDOW
#endif

struct Window {
    int width = 0;  // W; 0 = full attention
    int sinks = 0;  // S
};

SWARR_WINDOW inline bool visible(const Window& w, int q, int k) {
    return k <= q && (w.width == 0 || k > q - w.width || k < w.sinks);
}
// The same for vectors of positions, lanes of the result all ones or zero (on the host: device code has no
// such vectors).
template <class Ints>
inline Ints visible(const Window& w, Ints q, Ints k) {
    return (k <= q) & ((Ints{} == w.width) | (k > q - w.width) | (k < w.sinks));
}

// The first key inside the window of q, sinks aside.
SWARR_WINDOW inline int first_key(const Window& w, int q) {
    return w.width == 0 || q < w.width ? 0 : q - w.width + 1;
}

// Key tiles that queries q_first..q_last (inclusive) may need: [0, sink_end) and [begin, end), sink_end <=
// begin.
struct KeyTiles {
    int sink_end, begin, end;
};
SWARR_WINDOW inline KeyTiles key_tiles(const Window& w, int q_first, int q_last, int size) {
    KeyTiles t;
    t.begin = first_key(w, q_first) / size;
    t.end = q_last / size + 1;
    int sinks = w.width == 0 ? 0 : (w.sinks + size - 1) / size;  // tiles that hold a sink
    t.sink_end = sinks < t.begin ? sinks : t.begin;
    return t;
}

// Queries [first, end) of a document of `length` tokens that may see a key of k_first..k_last (inclusive).
struct QueryRange {
    int first, end;
};
SWARR_WINDOW inline QueryRange query_range(const Window& w, int k_first, int k_last, int length) {
    QueryRange r{k_first, length};
    if (w.width != 0 && k_first >= w.sinks && k_last < length - w.width) r.end = k_last + w.width;
    return r;
}

// True if every query of q_first..q_last sees every key of k_first..k_last: no mask needed.
SWARR_WINDOW inline bool all_visible(const Window& w, int q_first, int q_last, int k_first, int k_last) {
    return k_last <= q_first && (w.width == 0 || k_first > q_last - w.width || k_last < w.sinks);
}
