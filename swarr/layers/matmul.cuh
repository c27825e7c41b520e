// matmul.cuh: the linear layer, y = x W^T + bias.
//
//   forward    y(n, o)   = bias(o) + sum_i x(n, i) W(o, i)
//   backward   dx(n, i)  = sum_o dy(n, o) W(o, i)             overwritten, or added to dx where asked
//              dW(o, i) += sum_n dy(n, o) x(n, i)             parameters' gradients accumulate
//              dbias(o) += sum_n dy(n, o)
//
// Order of summation: every output is one chain of fused multiply-adds in the order of its index of
// summation, from its initial value (tile.h). So a row's result does not depend on the other rows or on the
// number of threads, and a gradient gathered over micro-batches equals that of one batch, bit for bit. Work
// is therefore divided over outputs only.
//
// The weight as stored, (O, I) row-major, is what the backward pass reads; the forward pass reads panels of
// outputs (packed). Whoever owns a weight keeps the packed copy and renews it when the weight changes;
// without one, panels are packed on the way.
#pragma once
#include <omp.h>

#include <algorithm>

#include "../device.h"
#include "../tile.h"

template <class T>
struct Weight {
    const T* raw;     // (O, I)
    const T* packed;  // of pack_weight, or null
};

// ---------------------------------------------------------------------------------------------------- CPU

namespace matmul {

constexpr int block_k = 512;  // a tile of A fits the first-level cache,
constexpr int group = 8;      // and a block of this many panels half of the second

// One thread's copies of a block of B and of a tile of A, made on the thread's first product.
template <class T>
struct Scratch {
    T* panels;  // (group, block_k, panel_width)
    T* rows;    // (block_k, tile_rows)
    Scratch() {
        size_t b = size_t(group) * block_k * panel_width<T>, a = size_t(block_k) * tile_rows;
        panels = static_cast<T*>(std::aligned_alloc(64, (b + a) * sizeof(T)));
        if (!panels)
            fail("cannot allocate " + bytes_text(double((b + a) * sizeof(T))) + " for a matrix product",
                 "free some memory");
        rows = panels + b;
    }
    ~Scratch() { std::free(panels); }
    Scratch(const Scratch&) = delete;
    Scratch& operator=(const Scratch&) = delete;
};
template <class T>
Scratch<T>& scratch() {
    thread_local Scratch<T> s;
    return s;
}

// panel (k, panel_width) of B(k, n) = b[k * b_k + n * b_n]; columns past `columns` are zero.
template <class T>
void pack_panel(T* panel, const T* b, size_t b_k, size_t b_n, int k, int columns) {
    constexpr int W = panel_width<T>, L = lanes<T>;
    if (b_n == 1 && columns == W) {
        for (int i = 0; i < k; i++)
            unroll<panel_vectors>([&](auto v) { store(panel + i * W + v * L, load(b + i * b_k + v * L)); });
        return;
    }
    for (int first = 0; first < k; first += L)  // L x W at a time stays in the first-level cache
        for (int j = 0; j < W; j++)
            for (int i = first; i < std::min(first + L, k); i++)
                panel[size_t(i) * W + j] = j < columns ? b[i * b_k + j * b_n] : T(0);
}

// C(m, n) = init + sum_k A(m, k) B(k, n), A(m, k) = a[m * a_row + k * a_k], C(m, n) = c[m * c_row + n];
// `init` as in Tile. B is packed panels of all K, or B(k, n) = b[k * b_k + n * b_n].
template <class T>
struct Product {
    int m, n, k;
    const T* a;
    size_t a_row, a_k;
    const T* packed;
    const T* b;
    size_t b_k, b_n;
    T* c;
    size_t c_row;
    const T* init;
    size_t init_row;
};

// A tile whose last panel may be cut: `columns` of Panels * panel_width exist.
template <class T>
void cut_tile(TileKernel<T> kernel, Tile<T> t, int rows, int columns, int width) {
    alignas(64) T whole[tile_rows * panel_width<T> * group];
    T* c = t.c;
    size_t c_row = t.c_row;
    for (int i = 0; i < rows; i++)
        for (int j = 0; j < width; j++)
            whole[i * width + j] = t.init && j < columns ? t.init[i * t.init_row + j] : T(0);
    t.c = whole;
    t.c_row = t.init_row = size_t(width);
    t.init = whole;
    kernel(t);
    for (int i = 0; i < rows; i++) std::copy(whole + i * width, whole + i * width + columns, c + i * c_row);
}

// Panels [first, last) of rows [row, row_end).
template <class T>
void block(const Product<T>& p, int row, int row_end, int first, int last) {
    constexpr int W = panel_width<T>;
    Scratch<T>& s = scratch<T>();
    const int blocks = std::max(1, (p.k + block_k - 1) / block_k);
    const int tiles = (row_end - row + tile_rows - 1) / tile_rows;
    for (int b = 0; b < blocks; b++) {
        const int k = int(int64_t(p.k) * b / blocks), k_end = int(int64_t(p.k) * (b + 1) / blocks);
        const size_t panel_stride = size_t(p.packed ? p.k : k_end - k) * W;
        const T* panels = p.packed ? p.packed + first * panel_stride + size_t(k) * W : s.panels;
        if (!p.packed)
            for (int i = first; i < last; i++)
                pack_panel(s.panels + (i - first) * panel_stride, p.b + k * p.b_k + i * size_t(W) * p.b_n,
                           p.b_k, p.b_n, k_end - k, std::min(W, p.n - i * W));
        for (int t = 0; t < tiles; t++) {
            const int m = row + int(int64_t(row_end - row) * t / tiles);
            const int rows = row + int(int64_t(row_end - row) * (t + 1) / tiles) - m;
            Tile<T> tile{};
            tile.a = p.a + m * p.a_row + k * p.a_k;
            tile.a_row = p.a_row;
            tile.a_k = p.a_k;
            if (p.a_k !=
                1) {  // a column-major A is gathered: one page per k would miss the TLB for every panel
                for (int i = 0; i < k_end - k; i++)
                    for (int j = 0; j < rows; j++)
                        s.rows[i * tile_rows + j] = tile.a[i * p.a_k + j * p.a_row];
                tile.a = s.rows;
                tile.a_row = 1;
                tile.a_k = tile_rows;
            }
            tile.c_row = p.c_row;
            tile.init_row = b == 0 ? p.init_row : p.c_row;
            tile.b_k = W;
            tile.k = k_end - k;
            for (int i = first; i < last; i++) {
                const int column = i * W;
                tile.c = p.c + m * p.c_row + column;
                tile.init = b > 0 ? tile.c : p.init ? p.init + m * p.init_row + column : nullptr;
                tile.b = panels + (i - first) * panel_stride;
                if (column + W <= p.n)
                    tile_multiply(rows, tile);
                else
                    cut_tile(tile_kernel<T>(rows), tile, rows, p.n - column, W);
            }
        }
    }
}

// Rows x all of a packed B, Panels panels at a time: for decoding, where reading B is all the work.
template <class T, int Rows>
void few_rows(const Product<T>& p) {
    constexpr int W = panel_width<T>, Panels = Rows <= 2 ? 4 / Rows : 1;
    const int panels = (p.n + W - 1) / W, groups = (panels + Panels - 1) / Panels;
#pragma omp parallel for schedule(static) if (size_t(p.n) * p.k * (Rows + 8) > (1 << 20))
    for (int g = 0; g < groups; g++) {
        Tile<T> tile{};
        tile.a = p.a;
        tile.a_row = p.a_row;
        tile.a_k = p.a_k;
        tile.c_row = p.c_row;
        tile.init_row = p.init_row;
        tile.b_k = W;
        tile.b_panel = size_t(p.k) * W;
        tile.k = p.k;
        auto run = [&](int panel, auto width) {
            constexpr int Count = decltype(width)::value;
            const int column = panel * W;
            tile.c = p.c + column;
            tile.init = p.init ? p.init + column : nullptr;
            tile.b = p.packed + panel * tile.b_panel;
            if (column + Count * W <= p.n)
                tile_multiply<T, Rows, Count>(tile);
            else
                cut_tile<T>(tile_multiply<T, Rows, Count>, tile, Rows, p.n - column, Count * W);
        };
        if ((g + 1) * Panels <= panels)
            run(g * Panels, std::integral_constant<int, Panels>{});
        else
            for (int i = g * Panels; i < panels; i++) run(i, std::integral_constant<int, 1>{});
    }
}
template <class T, int... I>
void few_rows(const Product<T>& p, std::integer_sequence<int, I...>) {
    using Kernel = void (*)(const Product<T>&);
    static constexpr Kernel kernels[] = {few_rows<T, I + 1>...};
    kernels[p.m - 1](p);
}

template <class T>
void multiply(const Product<T>& p) {
    if (p.m <= 0 || p.n <= 0) return;
    if (p.packed && p.m <= tile_rows) return few_rows(p, std::make_integer_sequence<int, tile_rows>{});
    // A few blocks per thread, so that threads finish together; rows are split only as far as packing B again
    // for every block of rows stays cheap.
    const int threads = omp_in_parallel() ? 1 : omp_get_max_threads();
    const int panels = (p.n + panel_width<T> - 1) / panel_width<T>;
    const int groups = (panels + group - 1) / group;
    const int wanted = threads == 1 ? 1 : (4 * threads + groups - 1) / groups;
    const int row_blocks = std::max(1, std::min(wanted, p.m / (8 * tile_rows)));
    const bool parallel = threads > 1 && size_t(p.m) * p.n * p.k > (1 << 21);
#pragma omp parallel for schedule(dynamic) collapse(2) if (parallel)
    for (int g = 0; g < groups; g++)
        for (int r = 0; r < row_blocks; r++)
            block(p, int(int64_t(p.m) * r / row_blocks), int(int64_t(p.m) * (r + 1) / row_blocks),
                  int(int64_t(panels) * g / groups), int(int64_t(panels) * (g + 1) / groups));
}

}  // namespace matmul

// Elements of the packed form of an (O, I) weight.
template <class T>
size_t packed_size(int O, int I) {
    return size_t((O + panel_width<T> - 1) / panel_width<T>) * panel_width<T> * I;
}
template <class T>
void pack_weight(CpuDevice<T>&, T* packed /*(O / panel_width, I, panel_width)*/, const T* raw /*(O, I)*/,
                 int O, int I) {
    constexpr int W = panel_width<T>;
#pragma omp parallel for schedule(static) if (size_t(O) * I > (1 << 17))
    for (int o = 0; o < O; o += W)
        matmul::pack_panel(packed + size_t(o) * I, raw + size_t(o) * I, 1, size_t(I), I, std::min(W, O - o));
}

template <class T>
void matmul_forward(CpuDevice<T>&, T* y /*(N, O)*/, const T* x /*(N, I)*/, Weight<T> w /*(O, I)*/,
                    const T* bias /*(O) or null*/, int N, int O, int I) {
    matmul::Product<T> p{};
    p.m = N, p.n = O, p.k = I;
    p.a = x, p.a_row = size_t(I), p.a_k = 1;
    p.packed = w.packed, p.b = w.raw, p.b_k = 1, p.b_n = size_t(I);
    p.c = y, p.c_row = size_t(O), p.init = bias, p.init_row = 0;
    matmul::multiply(p);
}

template <class T>
void matmul_backward(CpuDevice<T>&, T* dx /*(N, I) or null*/, T* dw /*(O, I) or null*/,
                     T* dbias /*(O) or null*/, const T* dy /*(N, O)*/, const T* x /*(N, I)*/,
                     Weight<T> w /*(O, I)*/, int N, int O, int I, bool accumulate_dx = false) {
    if (dx) {
        matmul::Product<T> p{};
        p.m = N, p.n = I, p.k = O;
        p.a = dy, p.a_row = size_t(O), p.a_k = 1;
        p.b = w.raw, p.b_k = size_t(I), p.b_n = 1;
        p.c = dx, p.c_row = p.init_row = size_t(I), p.init = accumulate_dx ? dx : nullptr;
        matmul::multiply(p);
    }
    if (dw) {
        matmul::Product<T> p{};
        p.m = O, p.n = I, p.k = N;
        p.a = dy, p.a_row = 1, p.a_k = size_t(O);
        p.b = x, p.b_k = size_t(I), p.b_n = 1;
        p.c = dw, p.c_row = p.init_row = size_t(I), p.init = dw;
        matmul::multiply(p);
    }
    if (dbias) {
        constexpr int strip = 64;  // columns whose sums stay in registers
#pragma omp parallel for schedule(static) if (size_t(N) * O > (1 << 19))
        for (int o = 0; o < O; o += strip) {
            const int width = std::min(strip, O - o);
            T sum[strip];
            std::copy(dbias + o, dbias + o + width, sum);
            for (int n = 0; n < N; n++) {
                const T* row = dy + size_t(n) * O + o;
                for (int j = 0; j < width; j++) sum[j] += row[j];
            }
            std::copy(sum, sum + width, dbias + o);
        }
    }
}
