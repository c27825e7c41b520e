// rmsnorm.cuh: y = w * x / sqrt(mean(x^2) + eps)   (Zhang & Sennrich 2019, arXiv 1910.07467)
//
// Gradient, with r = 1 / sqrt(mean(x^2) + eps) saved per row:
//   dx += r * (dy * w) - x * r^3 / D * sum(dy * w * x)        dw += sum over rows of dy * x * r
// dw accumulates (parameters do); dx accumulates too where the input is the residual stream, else overwrites.
//
// Rows may lie inside wider rows: Qwen3 norms every head of q and k within the fused (N, Q) rows.
#pragma once
#include "../device.h"
#include "../simd.h"

// `tokens` x `heads` rows of D elements; row (t, h) starts at t * stride + h * D.
struct Rows {
    int tokens, heads;
    size_t stride;
};
inline Rows plain_rows(int N, int D) {
    return {N, 1, size_t(D)};
}

// ---- CPU ------------------------------------------------------------------------------------------------

template <class T>
void rmsnorm_forward(CpuDevice<T>&, T* y /*rows*/, T* r /*(tokens,heads)*/, const T* x /*rows*/,
                     const T* w /*(D)*/, Rows rows, int D, T eps) {
#pragma omp parallel for if (size_t(rows.tokens) * rows.heads * D > 1 << 15)
    for (int t = 0; t < rows.tokens; t++)
        for (int h = 0; h < rows.heads; h++) {
            size_t at = size_t(t) * rows.stride + size_t(h) * D;
            T scale = T(1) / std::sqrt(dot(x + at, x + at, D) / T(D) + eps);
            r[size_t(t) * rows.heads + h] = scale;
            for (int d = 0; d < D; d++) y[at + d] = w[d] * (x[at + d] * scale);
        }
}

template <class T>
void add_forward(CpuDevice<T>&, T* sum /*(n)*/, const T* a /*(n)*/, const T* b /*(n)*/, size_t n) {
#pragma omp parallel for simd if (n > 1 << 15)
    for (size_t i = 0; i < n; i++) sum[i] = a[i] + b[i];
}

// The input of a residual layer: x += delta first, then y = rmsnorm(x).
template <class T>
void add_rmsnorm_forward(CpuDevice<T>& dev, T* sum /*(N,D)*/, T* y /*(N,D)*/, T* r /*(N)*/,
                         const T* x /*(N,D)*/, const T* delta /*(N,D)*/, const T* w /*(D)*/, int N, int D,
                         T eps) {
    add_forward(dev, sum, x, delta, size_t(N) * D);
    rmsnorm_forward(dev, y, r, sum, w, plain_rows(N, D), D, eps);
}

// What the norm leaves alone: the v rows beside q and k.
template <class T>
void copy_rows(CpuDevice<T>&, T* y /*rows*/, const T* x /*rows*/, Rows rows, int D) {
    for (int t = 0; t < rows.tokens; t++)
        std::memcpy(y + size_t(t) * rows.stride, x + size_t(t) * rows.stride,
                    size_t(rows.heads) * D * sizeof(T));
}

template <class T>
void rmsnorm_backward(CpuDevice<T>&, T* dx /*rows*/, T* dw /*(D) +=*/, const T* dy /*rows*/,
                      const T* x /*rows*/, const T* r /*(tokens,heads)*/, const T* w /*(D)*/, Rows rows,
                      int D, bool accumulate_dx) {
    constexpr int columns = 64;
#pragma omp parallel if (size_t(rows.tokens) * rows.heads * D > 1 << 15)
    {
        // dw first: dx may overwrite dy in place
#pragma omp for
        for (int d0 = 0; d0 < D; d0 += columns) {
            int d1 = d0 + columns < D ? d0 + columns : D;
            for (int t = 0; t < rows.tokens; t++)
                for (int h = 0; h < rows.heads; h++) {
                    size_t at = size_t(t) * rows.stride + size_t(h) * D;
                    T scale = r[size_t(t) * rows.heads + h];
                    for (int d = d0; d < d1; d++) dw[d] += dy[at + d] * (x[at + d] * scale);
                }
        }
#pragma omp for
        for (int t = 0; t < rows.tokens; t++)
            for (int h = 0; h < rows.heads; h++) {
                size_t at = size_t(t) * rows.stride + size_t(h) * D;
                Vec<T> sum{};
                for (int d = 0; d < D; d += lanes<T>)
                    sum = fma(load_part(dy + at + d, D - d) * load_part(w + d, D - d),
                              load_part(x + at + d, D - d), sum);
                T scale = r[size_t(t) * rows.heads + h];
                T along_x = scale * scale * scale / T(D) * sum_lanes(sum);
                for (int d = 0; d < D; d++) {
                    T g = scale * (dy[at + d] * w[d]) - x[at + d] * along_x;
                    dx[at + d] = accumulate_dx ? dx[at + d] + g : g;
                }
            }
    }
}

// ---- CUDA -----------------------------------------------------------------------------------------------

#ifdef SWARR_CUDA
// D and rows' strides are multiples of 8; D is at most 16384 (float: 8192). Row statistics and dw are float.
// Every input is read once.
template <class T>
void rmsnorm_forward(CudaDevice<T>&, T* y /*rows*/, float* r /*(tokens,heads)*/, const T* x /*rows*/,
                     const T* w /*(D)*/, Rows rows, int D, float eps);
// The norm is that of the sum as stored, so that making it again from `sum` gives the same bits.
template <class T>
void add_rmsnorm_forward(CudaDevice<T>&, T* sum /*(N,D)*/, T* y /*(N,D)*/, float* r /*(N)*/,
                         const T* x /*(N,D)*/, const T* delta /*(N,D)*/, const T* w /*(D)*/, int N, int D,
                         float eps);
template <class T>
void copy_rows(CudaDevice<T>&, T* y /*rows*/, const T* x /*rows*/, Rows rows, int D);
template <class T>
void rmsnorm_backward(CudaDevice<T>&, T* dx /*rows, may be dy*/, float* dw /*(D) +=*/, const T* dy /*rows*/,
                      const T* x /*rows*/, const float* r /*(tokens,heads)*/, const T* w /*(D)*/, Rows rows,
                      int D, bool accumulate_dx);
#endif

#ifdef __CUDACC__
#include "column_sum.cuh"

namespace rmsnorm {

// A row is shared by blockDim.x threads: 1 to 32 of a warp (a power of two), with blockDim.y rows in a block;
// or, where a row is long, all threads of the block. Each holds up to P packs of the row in registers.
constexpr int block = 128, many = 4, most_packs = 2048;
template <int P>
constexpr int block_limit = P == many ? most_packs / many : block;

__device__ inline float row_sum(float x) {
    __shared__ float shared[32];
    if (blockDim.x > 32) return block_sum(x, shared);
    for (int d = blockDim.x / 2; d; d /= 2) x += __shfl_xor_sync(0xffffffffu, x, d);
    return x;
}

__device__ inline size_t row_start(const Rows& rows, int row, int D) {
    return size_t(row / rows.heads) * rows.stride + size_t(row % rows.heads) * D;
}

// Of x, or of x + delta, which is then stored in sum.
template <class T, int P>
__global__ void __launch_bounds__(block_limit<P>)
    forward(T* sum, T* y, float* r, const T* x, const T* delta, const T* w, Rows rows, int D, float eps) {
    constexpr int size = Pack<T>::size;
    const int row = blockIdx.x * blockDim.y + threadIdx.y;
    const bool exists = row < rows.tokens * rows.heads;
    const size_t at = exists ? row_start(rows, row, D) : 0;
    Pack<T> in[P];
    float squares = 0;
#pragma unroll
    for (int p = 0; p < P; p++) {
        const int i = (p * blockDim.x + threadIdx.x) * size;
        if (!exists || i >= D) continue;
        in[p] = load_pack(x + at + i);
        if (delta) {
            const Pack<T> add = load_pack(delta + at + i);
            for (int j = 0; j < size; j++)
                in[p].x[j] = from_float<T>(to_float(in[p].x[j]) + to_float(add.x[j]));
            store_pack(sum + at + i, in[p]);
        }
        for (int j = 0; j < size; j++) squares += to_float(in[p].x[j]) * to_float(in[p].x[j]);
    }
    const float scale = 1.0f / sqrtf(row_sum(squares) / D + eps);
    if (!exists) return;
    if (threadIdx.x == 0) r[row] = scale;
#pragma unroll
    for (int p = 0; p < P; p++) {
        const int i = (p * blockDim.x + threadIdx.x) * size;
        if (i >= D) continue;
        const Pack<T> weight = load_pack(w + i);
        Pack<T> out;
        for (int j = 0; j < size; j++)
            out.x[j] = from_float<T>(to_float(weight.x[j]) * (to_float(in[p].x[j]) * scale));
        store_pack(y + at + i, out);
    }
}

// Block b takes rows [b * part, (b + 1) * part) and leaves its share of dw in row b of dw_parts (blocks, D).
template <class T, int P>
__global__ void __launch_bounds__(block_limit<P>)
    backward(T* dx, float* dw_parts, const T* dy, const T* x, const float* r, const T* w, Rows rows, int D,
             bool accumulate_dx, int part) {
    constexpr int size = Pack<T>::size;
    extern __shared__ __align__(16) float dw_rows[];  // (blockDim.y, D) if blockDim.y > 1
    float dw[P][size] = {};
    const int begin = blockIdx.x * part, end = min(begin + part, rows.tokens * rows.heads);
    for (int first = begin; first < end; first += blockDim.y) {
        const int row = first + threadIdx.y;
        const bool exists = row < end;
        const size_t at = exists ? row_start(rows, row, D) : 0;
        const float scale = exists ? r[row] : 0.0f;
        Pack<T> in[P], grad[P];
        float along = 0;
#pragma unroll
        for (int p = 0; p < P; p++) {
            const int i = (p * blockDim.x + threadIdx.x) * size;
            if (!exists || i >= D) continue;
            in[p] = load_pack(x + at + i);
            grad[p] = load_pack(dy + at + i);
            const Pack<T> weight = load_pack(w + i);
            for (int j = 0; j < size; j++) {
                const float d = to_float(grad[p].x[j]), v = to_float(in[p].x[j]);
                along += d * to_float(weight.x[j]) * v;
                dw[p][j] += d * (v * scale);
            }
        }
        along = scale * scale * scale / D * row_sum(along);
#pragma unroll
        for (int p = 0; p < P; p++) {
            const int i = (p * blockDim.x + threadIdx.x) * size;
            if (!exists || i >= D) continue;
            const Pack<T> weight = load_pack(w + i);
            Pack<T> out{};
            if (accumulate_dx) out = load_pack(dx + at + i);
            for (int j = 0; j < size; j++)
                out.x[j] = from_float<T>(to_float(out.x[j]) +
                                         (scale * (to_float(grad[p].x[j]) * to_float(weight.x[j])) -
                                          to_float(in[p].x[j]) * along));
            store_pack(dx + at + i, out);
        }
    }
    float* to = blockDim.y > 1 ? dw_rows + threadIdx.y * D : dw_parts + size_t(blockIdx.x) * D;
#pragma unroll
    for (int p = 0; p < P; p++) {
        const int i = (p * blockDim.x + threadIdx.x) * size;
        if (i < D) store_floats(to + i, dw[p]);
    }
    if (blockDim.y == 1) return;
    __syncthreads();
    for (int i = threadIdx.y * blockDim.x + threadIdx.x; i < D; i += blockDim.x * blockDim.y) {
        float sum = 0;
        for (int y = 0; y < blockDim.y; y++) sum += dw_rows[y * D + i];
        dw_parts[size_t(blockIdx.x) * D + i] = sum;
    }
}

// `width`: packs that are copied of a row of `stride` elements.
template <class T>
__global__ void copy(T* y, const T* x, int tokens, int width, size_t stride) {
    const size_t i = size_t(blockIdx.x) * blockDim.x + threadIdx.x;
    if (i >= size_t(tokens) * width) return;
    const size_t at = i / width * stride + i % width * Pack<T>::size;
    store_pack(y + at, load_pack(x + at));
}

// Calls run(packs a thread, block) with packs as a constant. Errors: D is too large or not a multiple of 8.
template <class T, class Run>
void for_width(int D, Run run) {
    const int packs = D / Pack<T>::size;
    if (D <= 0 || D % 8 || packs > most_packs)
        fail(format("the CUDA norms take rows of a multiple of 8 up to %d elements, not %d",
                    most_packs * Pack<T>::size, D),
             "use --device cpu");
    if (packs <= 32) {
        unsigned threads = 32;
        while (threads / 2 >= unsigned(packs)) threads /= 2;
        run(std::integral_constant<int, 1>{}, dim3(threads, block / threads));
    } else {
        const unsigned threads = blocks_for(packs, many * 32) * 32;
        run(std::integral_constant<int, many>{}, dim3(threads, threads == 32 ? block / 32 : 1));
    }
}

template <class T>
void launch_forward(CudaDevice<T>& device, T* sum, T* y, float* r, const T* x, const T* delta, const T* w,
                    Rows rows, int D, float eps) {
    for_width<T>(D, [&](auto packs, dim3 threads) {
        launch(device, forward<T, packs.value>, blocks_for(size_t(rows.tokens) * rows.heads, threads.y),
               threads, 0, sum, y, r, x, delta, w, rows, D, eps);
    });
}

}  // namespace rmsnorm

template <class T>
void rmsnorm_forward(CudaDevice<T>& device, T* y, float* r, const T* x, const T* w, Rows rows, int D,
                     float eps) {
    rmsnorm::launch_forward(device, static_cast<T*>(nullptr), y, r, x, static_cast<const T*>(nullptr), w,
                            rows, D, eps);
}
template <class T>
void add_rmsnorm_forward(CudaDevice<T>& device, T* sum, T* y, float* r, const T* x, const T* delta,
                         const T* w, int N, int D, float eps) {
    rmsnorm::launch_forward(device, sum, y, r, x, delta, w, plain_rows(N, D), D, eps);
}
template <class T>
void copy_rows(CudaDevice<T>& device, T* y, const T* x, Rows rows, int D) {
    const int width = rows.heads * D / Pack<T>::size;
    launch(device, rmsnorm::copy<T>, blocks_for(size_t(rows.tokens) * width, 256), 256, 0, y, x, rows.tokens,
           width, rows.stride);
}
template <class T>
void rmsnorm_backward(CudaDevice<T>& device, T* dx, float* dw, const T* dy, const T* x, const float* r,
                      const T* w, Rows rows, int D, bool accumulate_dx) {
    // Divided by the number of rows alone, so that dw has the same bits on every card.
    constexpr int most_parts = 1024, least_rows = 16;
    const int count = rows.tokens * rows.heads,
              part = std::max(least_rows, int(blocks_for(count, most_parts)));
    const int parts = int(blocks_for(count, part));
    float* dw_parts = static_cast<float*>(device.scratch(size_t(parts) * D * sizeof(float)));
    rmsnorm::for_width<T>(D, [&](auto packs, dim3 threads) {
        const size_t shared = threads.y > 1 ? size_t(threads.y) * D * sizeof(float) : 0;
        launch(device, rmsnorm::backward<T, packs.value>, parts, threads, shared, dx, dw_parts, dy, x, r, w,
               rows, D, accumulate_dx, part);
    });
    add_column_sums(device, dw, dw_parts, parts, D);
}
#define SWARR_INSTANTIATE(T)                                                                               \
    template void rmsnorm_forward(CudaDevice<T>&, T*, float*, const T*, const T*, Rows, int, float);       \
    template void add_rmsnorm_forward(CudaDevice<T>&, T*, T*, float*, const T*, const T*, const T*, int,   \
                                      int, float);                                                         \
    template void copy_rows(CudaDevice<T>&, T*, const T*, Rows, int);                                      \
    template void rmsnorm_backward(CudaDevice<T>&, T*, float*, const T*, const T*, const float*, const T*, \
                                   Rows, int, bool);
SWARR_INSTANTIATE(bf16)
SWARR_INSTANTIATE(float)
#undef SWARR_INSTANTIATE
#endif
