// tile.h: the register tile under every dense product: C = init + A B for a few rows of A and a few panels of
// B, one panel being `panel_width` columns stored next to each other for every k.
//
// Every element of C is one chain of fused multiply-adds over k = 0..K-1 that starts from its initial value;
// lanes are columns, never parts of a sum. A product cut into blocks over K passes C as its own initial value
// and so continues the chain. Results therefore depend neither on blocking, nor on the number of rows or
// panels, nor on the machine's registers.
#pragma once
#include <cstddef>
#include <utility>

#include "simd.h"

// 14 x 2 accumulators of 32 registers with AVX-512; 6 x 1 (of two registers each) of 16 elsewhere.
#ifdef __AVX512F__
constexpr int tile_rows = 14, panel_vectors = 2;
#else
constexpr int tile_rows = 6, panel_vectors = 1;
#endif
template <class T>
constexpr int panel_width = panel_vectors* lanes<T>;

// f(0), ..., f(N-1) with constant arguments: accumulators stay in registers on every compiler.
template <class F, int... I>
__attribute__((always_inline)) inline void unroll(F&& f, std::integer_sequence<int, I...>) {
    (f(std::integral_constant<int, I>{}), ...);
}
template <int N, class F>
__attribute__((always_inline)) inline void unroll(F&& f) {
    unroll(f, std::make_integer_sequence<int, N>{});
}

// The operands of one tile: A(i, k) = a[i * a_row + k * a_k]; column j of panel p of B at k is
// b[p * b_panel + k * b_k + j]; C(i, p * panel_width + j) = c[i * c_row + p * panel_width + j]. `init` is C's
// initial value: c itself with init_row = c_row to accumulate, a bias with init_row = 0, null for zero.
template <class T>
struct Tile {
    T* c;
    size_t c_row;
    const T* init;
    size_t init_row;
    const T* a;
    size_t a_row, a_k;
    const T* b;
    size_t b_k, b_panel;
    int k;
    const T*
        ahead;  // later work's data: a panel's row at ahead + k * ahead_k is fetched for every k, if not null
    size_t ahead_k;
};

// Rows x (Panels * panel_width) columns. Rows * Panels <= tile_rows keeps the accumulators in registers.
template <class T, int Rows, int Panels = 1>
__attribute__((noinline)) void tile_multiply(const Tile<T>& t) {
    constexpr int L = register_lanes<T>, V = panel_vectors * registers<T>, N = Panels * V;
    Reg<T> acc[Rows * N];
    if (t.init)
        unroll<Rows * N>([&](auto r) { acc[r] = load_register(t.init + r / N * t.init_row + r % N * L); });
    else
        unroll<Rows * N>([&](auto r) { acc[r] = Reg<T>{}; });
    const T* a = t.a;
    const T* b = t.b;
    const T* ahead = t.ahead ? t.ahead : t.b;
    const size_t ahead_k = t.ahead ? t.ahead_k : 0, a_row = t.a_row, a_k = t.a_k, b_k = t.b_k,
                 b_panel = t.b_panel;
    for (int k = 0; k < t.k; k++, a += a_k, b += b_k, ahead += ahead_k) {
        for (int v = 0; v < panel_vectors; v++)
            __builtin_prefetch(ahead + v * lanes<T>, 0, 2);  // in a lambda, GCC would drop it
        Reg<T> column[N];
        unroll<N>([&](auto v) { column[v] = load_register(b + v / V * b_panel + v % V * L); });
        unroll<Rows>([&](auto i) {
            Reg<T> x = splat_register(a[i * a_row]);
            unroll<N>([&](auto v) { acc[i * N + v] = fma(x, column[v], acc[i * N + v]); });
        });
    }
    unroll<Rows * N>([&](auto r) { store_register(t.c + r / N * t.c_row + r % N * L, acc[r]); });
}

// The kernel for 1 <= rows <= tile_rows known at run time, one panel.
template <class T>
using TileKernel = void (*)(const Tile<T>&);
template <class T, int... I>
inline TileKernel<T> tile_kernel(int rows, std::integer_sequence<int, I...>) {
    static constexpr TileKernel<T> kernels[] = {tile_multiply<T, I + 1, 1>...};
    return kernels[rows - 1];
}
template <class T>
inline TileKernel<T> tile_kernel(int rows) {
    return tile_kernel<T>(rows, std::make_integer_sequence<int, tile_rows>{});
}
template <class T>
inline void tile_multiply(int rows, const Tile<T>& t) {
    tile_kernel<T>(rows)(t);
}
