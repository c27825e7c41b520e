// adamw.cuh: AdamW (Loshchilov & Hutter 2019, arXiv 1711.05101) over one flat buffer, and the gradient's
// norm.
//
//   m = b1 m + (1 - b1) g      v = b2 v + (1 - b2) g^2
//   p = p - lr * ( (m / (1 - b1^t)) / (sqrt(v / (1 - b2^t)) + eps) + decay * p )
// g is the gradient times `scale` (clipping). Decay is decoupled; the caller passes 0 for norms and biases.
#pragma once
#include <cmath>
#include <vector>

#include "../device.h"

struct AdamW {
    float lr = 1e-4f, beta1 = 0.9f, beta2 = 0.95f, eps = 1e-8f;
};

// ---- CPU ------------------------------------------------------------------------------------------------

// `t` counts updates from 1.
template <class T>
void adamw_update(CpuDevice<T>&, T* p /*(n)*/, T* m /*(n)*/, T* v /*(n)*/, const T* g /*(n)*/, size_t n,
                  const AdamW& o, float decay, T scale, int64_t t) {
    const T b1 = o.beta1, b2 = o.beta2, lr = o.lr, eps = o.eps;
    const T correct1 = T(1 / (1 - std::pow(double(o.beta1), double(t))));
    const T correct2 = T(1 / (1 - std::pow(double(o.beta2), double(t))));
#pragma omp parallel for simd if (n > 1 << 14)
    for (size_t i = 0; i < n; i++) {
        T grad = g[i] * scale;
        m[i] = b1 * m[i] + (1 - b1) * grad;
        v[i] = b2 * v[i] + (1 - b2) * (grad * grad);
        p[i] -= lr * (m[i] * correct1 / (std::sqrt(v[i] * correct2) + eps) + decay * p[i]);
    }
}

// L2 norm, in double. Blocks of fixed size are summed apart and then in order: the same bits for any number
// of threads. Inf and NaN come through.
template <class T>
double global_norm(CpuDevice<T>&, const T* g /*(n)*/, size_t n) {
    constexpr size_t block = 1 << 14;
    const size_t blocks = (n + block - 1) / block;
    std::vector<double> sums(blocks);
#pragma omp parallel for if (blocks > 2)
    for (size_t b = 0; b < blocks; b++) {
        double sum[8] = {};
        size_t end = (b + 1) * block < n ? (b + 1) * block : n;
        for (size_t i = b * block; i < end; i++) sum[i % 8] += double(g[i]) * double(g[i]);
        sums[b] = ((sum[0] + sum[1]) + (sum[2] + sum[3])) + ((sum[4] + sum[5]) + (sum[6] + sum[7]));
    }
    double total = 0;
    for (double s : sums) total += s;
    return std::sqrt(total);
}

// From the weights that are updated to those that the model computes with.
template <class T>
void cast_weights(CpuDevice<T>& device, T* to /*(n)*/, const T* from /*(n)*/, size_t n) {
    if (to != from) device.copy(to, from, n * sizeof(T));
}

// ---- CUDA -----------------------------------------------------------------------------------------------

#ifdef SWARR_CUDA
// Arrays start at multiples of 16 bytes.
template <class T>
void adamw_update(CudaDevice<T>&, float* p /*(n) master*/, float* m /*(n)*/, float* v /*(n)*/,
                  const float* g /*(n)*/, size_t n, const AdamW&, float decay, float scale, int64_t t);
// Waits for its result.
template <class T>
double global_norm(CudaDevice<T>&, const float* g /*(n)*/, size_t n);
// Rounds to nearest even.
template <class T>
void cast_weights(CudaDevice<T>&, T* to /*(n)*/, const float* from /*(n)*/, size_t n);
#endif
