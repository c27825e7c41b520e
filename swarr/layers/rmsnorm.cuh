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
// D and rows' strides are multiples of 8, D is at most 16384. Row statistics and dw are float. Every input is
// read once.
template <class T>
void rmsnorm_forward(CudaDevice<T>&, T* y /*rows*/, float* r /*(tokens,heads)*/, const T* x /*rows*/,
                     const T* w /*(D)*/, Rows rows, int D, float eps);
template <class T>
void add_forward(CudaDevice<T>&, T* sum /*(n)*/, const T* a /*(n)*/, const T* b /*(n)*/, size_t n);
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
