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

// A group of panels is multiplied by one tile of A after another, a block of K at a time: with these sizes
// the tile stays in the first-level cache and the group in the second, beside the next group, which is
// fetched meanwhile. A batch of a few tiles (decoding) takes each panel of the weight once, in one stream.
constexpr int group = 8, block_k = 256, small_group = 1, small_block_k = 512, small_batch = 64;
constexpr int stream_ahead = 8192;  // bytes; less starves, more is thrown out before it is used
constexpr int block_rows =
    16 * tile_rows;  // rows of C that stay in the second-level cache between blocks of K

// Row-major operands with rows of at most this many elements are read in place; copies of a wider one would
// otherwise share few sets of the cache and touch a page for each k.
constexpr size_t narrow = 128;

// Rows of a tile, rounded up to whole vectors.
template <class T>
constexpr int packed_rows = (tile_rows + lanes<T> - 1) / lanes<T>* lanes<T>;

// One thread's copies of a block of B and of a tile of A, made on the thread's first product.
template <class T>
struct Scratch {
    T* panels;  // (group, block_k, panel_width)
    T* rows;    // (block_k, packed_rows)
    Scratch() {
        size_t b = size_t(group) * block_k * panel_width<T>, a = size_t(block_k) * packed_rows<T>;
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

// rows (k, packed_rows) of A(m, k) = a[m * a_row + k * a_k]; `available` rows may be read.
template <class T>
void pack_rows(T* rows, const T* a, size_t a_row, size_t a_k, int k, int count, int available) {
    constexpr int R = packed_rows<T>, L = lanes<T>;
    if (a_row == 1 && available >= R)
        for (int i = 0; i < k; i++)
            unroll<R / L>([&](auto v) { store(rows + i * R + v * L, load(a + i * a_k + v * L)); });
    else
        for (int i = 0; i < k; i++)
            for (int j = 0; j < count; j++) rows[i * R + j] = a[i * a_k + j * a_row];
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

// A tile whose last panel is cut: of `width` columns, `columns` exist.
template <class T>
void cut_tile(TileKernel<T> kernel, Tile<T> t, int rows, int columns, int width) {
    alignas(64) T whole[2 * tile_rows * panel_width<T>];
    T* c = t.c;
    const size_t c_row = t.c_row;
    if (t.init) {
        std::fill_n(whole, rows * width, T(0));
        for (int i = 0; i < rows; i++) std::copy_n(t.init + i * t.init_row, columns, whole + i * width);
        t.init = whole;
    }
    t.c = whole;
    t.c_row = t.init_row = size_t(width);
    kernel(t);
    for (int i = 0; i < rows; i++) std::copy_n(whole + i * width, columns, c + i * c_row);
}

// Part `index` of `parts` of 0..size: [begin, end).
struct Part {
    int begin, end;
    Part(int size, int index, int parts)
        : begin(int(int64_t(size) * index / parts)), end(int(int64_t(size) * (index + 1) / parts)) {}
    int size() const { return end - begin; }
};

// The panels of B from `first` on for a block of K: b[p * panel + k * row + j].
template <class T>
struct Panels {
    const T* b;
    size_t panel, row;
};
template <class T>
Panels<T> panels_of(const Product<T>& p, int first, int count, Part k) {
    constexpr size_t W = panel_width<T>;
    if (p.packed) return {p.packed + (size_t(first) * p.k + k.begin) * W, p.k * W, W};
    const T* b = p.b + k.begin * p.b_k + first * W * p.b_n;
    if (p.b_n == 1 && p.b_k <= narrow && p.n % W == 0) return {b, W, p.b_k};
    T* packed = scratch<T>().panels;
    for (int i = 0; i < count; i++)
        pack_panel(packed + i * k.size() * W, b + i * W * p.b_n, p.b_k, p.b_n, k.size(),
                   std::min(int(W), p.n - (first + i) * int(W)));
    return {packed, k.size() * W, W};
}

// What to fetch during tile i of row of tiles t: the block after this one, `k` of `count` panels from `first`
// on.
template <class T>
void set_ahead(Tile<T>& tile, const Product<T>& p, Part rows, int first, int count, Part k, int t, int tiles,
               int i) {
    constexpr int W = panel_width<T>;
    tile.ahead = nullptr;
    if (p.packed && i < count) {  // each tile its share of the next panel
        tile.ahead_k = size_t(W + tiles - 1) / tiles;
        tile.ahead = p.packed + (size_t(first + i) * p.k + k.begin) * W + t * tile.ahead_k * k.size();
    } else if (!p.packed && p.b_n == 1) {
        int part = t * count + i;  // parts: the panels of B, then strips of A
        tile.ahead_k = p.b_k;
        if (part < count)
            tile.ahead = p.b + k.begin * p.b_k + (first + part) * W;
        else if (p.a_row == 1 && (part -= count) * W < rows.size())
            tile.ahead = p.a + k.begin * p.a_k + rows.begin + part * W, tile.ahead_k = p.a_k;
    }
}

// Rows x panels of C.
template <class T>
void block(const Product<T>& p, Part rows, Part panels) {
    constexpr int W = panel_width<T>;
    const bool small = p.packed && p.m <= small_batch;
    auto count = [](int size, int most) { return (size + most - 1) / most; };
    const int groups = count(panels.size(), small ? small_group : group);
    const int blocks = std::max(1, count(p.k, small ? small_block_k : block_k));
    const int tiles = count(rows.size(), tile_rows);
    for (int step = 0, next = 1; step < groups * blocks; step = next++) {
        const Part g(panels.size(), step / blocks, groups), k(p.k, step % blocks, blocks);
        const Part g_next(panels.size(), next / blocks, groups), k_next(p.k, next % blocks, blocks);
        const int first = panels.begin + g.begin;
        const Panels<T> b = panels_of(p, first, g.size(), k);
        for (int t = 0; t < tiles; t++) {
            const Part r(rows.size(), t, tiles);
            const int m = rows.begin + r.begin;
            Tile<T> tile{};
            tile.a = p.a + m * p.a_row + k.begin * p.a_k;
            tile.a_row = p.a_row, tile.a_k = p.a_k;
            if (p.a_k > narrow) {  // gathered once: a page per k would miss the TLB for every panel
                T* packed = scratch<T>().rows;
                pack_rows(packed, tile.a, p.a_row, p.a_k, k.size(), r.size(), p.m - m);
                tile.a = packed;
                tile.a_row = 1, tile.a_k = packed_rows<T>;
            }
            tile.c_row = p.c_row;
            tile.init_row = k.begin == 0 ? p.init_row : p.c_row;
            tile.b_k = b.row;
            tile.k = k.size();
            for (int i = 0; i < g.size(); i++) {
                const int column = (first + i) * W;
                tile.c = p.c + m * p.c_row + column;
                tile.init = k.begin > 0 ? tile.c : p.init ? p.init + m * p.init_row + column : nullptr;
                tile.b = b.b + i * b.panel;
                if (next < groups * blocks)
                    set_ahead(tile, p, rows, panels.begin + g_next.begin, g_next.size(), k_next, t, tiles, i);
                if (i + 1 < g.size())  // the next tile of C, into the first-level cache
                    for (int j = 0; j < r.size(); j++)
                        for (int v = 0; v < panel_vectors; v++)
                            __builtin_prefetch(tile.c + j * p.c_row + W + v * lanes<T>, 1, 3);
                if (column + W <= p.n)
                    tile_multiply(r.size(), tile);
                else
                    cut_tile(tile_kernel<T>(r.size()), tile, r.size(), p.n - column, W);
            }
        }
    }
}

// Rows x all of a packed B, in one stream or two: for decoding, where reading B is all the work. (With four
// streams or without fetching ahead, 55-90% of the read ceiling.)
template <class T, int Rows>
void few_rows(const Product<T>& p) {
    constexpr int W = panel_width<T>, Panels = Rows <= 2 ? 2 : 1;
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
            tile.ahead = tile.b + stream_ahead / sizeof(T);
            tile.ahead_k = W;
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
    // Enough blocks that threads finish together, few enough that packing B again for each block of rows is
    // cheap.
    const int threads = omp_in_parallel() ? 1 : omp_get_max_threads();
    const int panels = (p.n + panel_width<T> - 1) / panel_width<T>;
    int columns = std::min((panels + group - 1) / group, 4 * threads);
    int rows = std::max(1, p.m / block_rows);
    if (columns % threads != 0 && rows % threads != 0 && p.m >= 8 * tile_rows)
        rows = (rows + threads - 1) / threads * threads;
    if (columns * rows < threads) columns = std::min(panels, threads);
    if (columns * rows < threads) rows = std::min(threads, (p.m + tile_rows - 1) / tile_rows);
    const bool parallel = threads > 1 && size_t(p.m) * p.n * p.k > (1 << 21);
#pragma omp parallel for schedule(dynamic) collapse(2) if (parallel)
    for (int i = 0; i < columns; i++)
        for (int j = 0; j < rows; j++) block(p, Part(p.m, j, rows), Part(panels, i, columns));
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

// y_row: distance between rows of y if longer than O; what lies between is overwritten with anything.
template <class T>
void matmul_forward(CpuDevice<T>&, T* y /*(N, O)*/, const T* x /*(N, I)*/, Weight<T> w /*(O, I)*/,
                    const T* bias /*(O) or null*/, int N, int O, int I, int y_row = 0) {
    const int whole_panels = (O + panel_width<T> - 1) / panel_width<T> * panel_width<T>;
    matmul::Product<T> p{};
    p.m = N, p.n = w.packed && !bias && y_row >= whole_panels ? whole_panels : O, p.k = I;
    p.a = x, p.a_row = size_t(I), p.a_k = 1;
    p.packed = w.packed, p.b = w.raw, p.b_k = 1, p.b_n = size_t(I);
    p.c = y, p.c_row = size_t(y_row ? y_row : O), p.init = bias, p.init_row = 0;
    matmul::multiply(p);
}

// dy_row: distance between rows of dy if longer than O.
template <class T>
void matmul_backward(CpuDevice<T>&, T* dx /*(N, I) or null*/, T* dw /*(O, I) or null*/,
                     T* dbias /*(O) or null*/, const T* dy /*(N, O)*/, const T* x /*(N, I)*/,
                     Weight<T> w /*(O, I)*/, int N, int O, int I, bool accumulate_dx = false,
                     int dy_row = 0) {
    const size_t row = size_t(dy_row ? dy_row : O);
    if (dx) {
        matmul::Product<T> p{};
        p.m = N, p.n = I, p.k = O;
        p.a = dy, p.a_row = row, p.a_k = 1;
        p.b = w.raw, p.b_k = size_t(I), p.b_n = 1;
        p.c = dx, p.c_row = p.init_row = size_t(I), p.init = accumulate_dx ? dx : nullptr;
        matmul::multiply(p);
    }
    if (dw) {
        matmul::Product<T> p{};
        p.m = O, p.n = I, p.k = N;
        p.a = dy, p.a_row = 1, p.a_k = row;
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
                const T* strip_row = dy + n * row + o;
                for (int j = 0; j < width; j++) sum[j] += strip_row[j];
            }
            std::copy(sum, sum + width, dbias + o);
        }
    }
}

// ---------------------------------------------------------------------------------------------------- CUDA

#ifdef SWARR_CUDA
// Through cuBLASLt, with sums in float. I is a multiple of 8. Errors: no algorithm for this shape; a product
// that cannot be started.
//
// Out is T, or float (logits), then without a bias. y_row as above, but what lies between is left alone.
template <class T, class Out>
void matmul_forward(CudaDevice<T>&, Out* y /*(N, O)*/, const T* x /*(N, I)*/, Weight<T> w /*(O, I)*/,
                    const T* bias /*(O) or null*/, int N, int O, int I, int y_row = 0);
// With dbias, O and dy_row must be multiples of 8.
template <class T>
void matmul_backward(CudaDevice<T>&, T* dx /*(N, I) or null*/, float* dw /*(O, I) or null*/,
                     float* dbias /*(O) or null*/, const T* dy /*(N, O)*/, const T* x /*(N, I)*/,
                     Weight<T> w /*(O, I)*/, int N, int O, int I, bool accumulate_dx = false, int dy_row = 0);
#endif

#ifdef __CUDACC__
#include <array>
#include <map>

#include "column_sum.cuh"

namespace matmul {

inline void blas_check(cublasStatus_t status, const char* call, const char* shape) {
    if (status == CUBLAS_STATUS_SUCCESS) return;
    fail(format("cuBLASLt: %s failed for %s: %s", call, shape, cublasLtGetStatusName(status)),
         "CUBLASLT_LOG_LEVEL=2 says more; do the driver and the CUDA toolkit belong together?");
}

// C (rows, columns) = A B, or C += A B; A (rows, depth) and B (depth, columns), or in memory their transposes.
// Row-major, rows a_row, b_row, c_row apart in memory.
struct Blas {
    const char* name;
    int rows, columns, depth;
    bool a_transposed, b_transposed, bias;
    size_t a_row, b_row, c_row;
    std::array<size_t, 8> key() const {
        return {size_t(rows),
                size_t(columns),
                size_t(depth),
                a_row,
                b_row,
                c_row,
                size_t(a_transposed + 2 * b_transposed + 4 * bias)};
    }
};

}  // namespace matmul

// What cuBLASLt needs to know about a product, found once per shape. cuBLASLt's matrices are column-major: it
// is told to compute C^T = B^T A^T.
struct MatmulPlan {
    cublasLtMatmulDescOpaque_t product;
    cublasLtMatrixLayoutOpaque_t a, b, c;
    cublasLtMatmulAlgo_t algorithm;
    std::string shape;
};
struct MatmulPlans {
    std::map<std::array<size_t, 8>, MatmulPlan> map;
};

namespace matmul {

template <class T>
constexpr cudaDataType_t blas_type = std::is_same_v<T, bf16> ? CUDA_R_16BF : CUDA_R_32F;

inline MatmulPlan make_plan(cublasLtHandle_t blas, size_t workspace, const Blas& p, cudaDataType_t in,
                            cudaDataType_t out) {
    MatmulPlan plan;
    plan.shape = format("%s, (%d, %d) x (%d, %d)", p.name, p.rows, p.depth, p.depth, p.columns);
    const char* shape = plan.shape.c_str();
#define BLAS_CHECK(call, ...) blas_check(call(__VA_ARGS__), #call, shape)
    BLAS_CHECK(cublasLtMatmulDescInit, &plan.product, CUBLAS_COMPUTE_32F, CUDA_R_32F);  // not TF32
    auto set = [&](cublasLtMatmulDescAttributes_t attribute, auto value) {
        BLAS_CHECK(cublasLtMatmulDescSetAttribute, &plan.product, attribute, &value, sizeof value);
    };
    set(CUBLASLT_MATMUL_DESC_TRANSA, int32_t(p.b_transposed ? CUBLAS_OP_T : CUBLAS_OP_N));
    set(CUBLASLT_MATMUL_DESC_TRANSB, int32_t(p.a_transposed ? CUBLAS_OP_T : CUBLAS_OP_N));
    if (p.bias) set(CUBLASLT_MATMUL_DESC_EPILOGUE, int32_t(CUBLASLT_EPILOGUE_BIAS));
    auto layout = [&](cublasLtMatrixLayoutOpaque_t& l, cudaDataType_t type, int rows, int columns, bool flip,
                      size_t row) {
        BLAS_CHECK(cublasLtMatrixLayoutInit, &l, type, uint64_t(flip ? rows : columns),
                   uint64_t(flip ? columns : rows), int64_t(row));
    };
    layout(plan.a, in, p.rows, p.depth, p.a_transposed, p.a_row);
    layout(plan.b, in, p.depth, p.columns, p.b_transposed, p.b_row);
    layout(plan.c, out, p.rows, p.columns, false, p.c_row);

    cublasLtMatmulPreferenceOpaque_t preference;
    BLAS_CHECK(cublasLtMatmulPreferenceInit, &preference);
    auto prefer = [&](cublasLtMatmulPreferenceAttributes_t attribute, auto value) {
        BLAS_CHECK(cublasLtMatmulPreferenceSetAttribute, &preference, attribute, &value, sizeof value);
    };
    prefer(CUBLASLT_MATMUL_PREF_MAX_WORKSPACE_BYTES, uint64_t(workspace));
    // Parts of a split sum meet in float, never in the output's bfloat16.
    prefer(CUBLASLT_MATMUL_PREF_REDUCTION_SCHEME_MASK, uint32_t(CUBLASLT_REDUCTION_SCHEME_COMPUTE_TYPE));
    // All that our tensors promise; the default is 256.
    for (auto operand :
         {CUBLASLT_MATMUL_PREF_MIN_ALIGNMENT_A_BYTES, CUBLASLT_MATMUL_PREF_MIN_ALIGNMENT_B_BYTES,
          CUBLASLT_MATMUL_PREF_MIN_ALIGNMENT_C_BYTES, CUBLASLT_MATMUL_PREF_MIN_ALIGNMENT_D_BYTES})
        prefer(operand, uint32_t(16));

    cublasLtMatmulHeuristicResult_t result;
    int found = 0;
    BLAS_CHECK(cublasLtMatmulAlgoGetHeuristic, blas, &plan.product, &plan.b, &plan.a, &plan.c, &plan.c,
               &preference, 1, &result, &found);
    blas_check(found ? result.state : CUBLAS_STATUS_NOT_SUPPORTED, "cublasLtMatmulAlgoGetHeuristic", shape);
#undef BLAS_CHECK
    plan.algorithm = result.algo;
    return plan;
}

template <class T, class Out>
void multiply(CudaDevice<T>& device, const Blas& p, const T* a, const T* b, Out* c, const T* bias,
              float beta) {
    if (p.rows == 0 || p.columns == 0) return;
    if (!device.matmul_plans) device.matmul_plans = std::make_shared<MatmulPlans>();
    auto& plans = device.matmul_plans->map;
    auto key = p.key();
    key.back() = sizeof(Out);
    auto plan = plans.find(key);
    if (plan == plans.end()) {
        if (plans.size() >= 4096) plans.clear();  // the number of tokens differs from pass to pass
        plan = plans.emplace(key, make_plan(device.blas, device.blas_bytes, p, blas_type<T>, blas_type<Out>))
                   .first;
    }
    MatmulPlan& m = plan->second;
    if (bias)
        blas_check(
            cublasLtMatmulDescSetAttribute(&m.product, CUBLASLT_MATMUL_DESC_BIAS_POINTER, &bias, sizeof bias),
            "setting the bias", m.shape.c_str());
    const float alpha = 1;
    blas_check(cublasLtMatmul(device.blas, &m.product, &alpha, b, &m.b, a, &m.a, &beta, c, &m.c, c, &m.c,
                              &m.algorithm, device.blas_workspace, device.blas_bytes, device.stream),
               "cublasLtMatmul", m.shape.c_str());
}

}  // namespace matmul

template <class T, class Out>
void matmul_forward(CudaDevice<T>& device, Out* y, const T* x, Weight<T> w, const T* bias, int N, int O,
                    int I, int y_row) {
    static_assert(std::is_same_v<Out, T> || std::is_same_v<Out, float>);
    const size_t in = size_t(I), out = size_t(y_row ? y_row : O);
    matmul::multiply(device, {"y = x W^T", N, O, I, false, true, bias != nullptr, in, in, out}, x, w.raw, y,
                     bias, 0);
}
template <class T>
void matmul_backward(CudaDevice<T>& device, T* dx, float* dw, float* dbias, const T* dy, const T* x,
                     Weight<T> w, int N, int O, int I, bool accumulate_dx, int dy_row) {
    const size_t in = size_t(I), out = size_t(dy_row ? dy_row : O);
    const T* const none = nullptr;
    if (N == 0) return;
    if (dx)
        matmul::multiply(device, {"dx = dy W", N, I, O, false, false, false, out, in, in}, dy, w.raw, dx,
                         none, accumulate_dx ? 1 : 0);
    if (dw)
        matmul::multiply(device, {"dW += dy^T x", O, I, N, true, false, false, out, in, in}, dy, x, dw, none,
                         1);
    if (dbias) add_tall_column_sums(device, dbias, dy, N, O, out);
}
template void matmul_forward(CudaDevice<bf16>&, bf16*, const bf16*, Weight<bf16>, const bf16*, int, int, int,
                             int);
template void matmul_forward(CudaDevice<bf16>&, float*, const bf16*, Weight<bf16>, const bf16*, int, int, int,
                             int);
template void matmul_forward(CudaDevice<float>&, float*, const float*, Weight<float>, const float*, int, int,
                             int, int);
template void matmul_backward(CudaDevice<bf16>&, bf16*, float*, float*, const bf16*, const bf16*,
                              Weight<bf16>, int, int, int, bool, int);
template void matmul_backward(CudaDevice<float>&, float*, float*, float*, const float*, const float*,
                              Weight<float>, int, int, int, bool, int);
#endif
