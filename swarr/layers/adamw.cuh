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

#ifdef __CUDACC__
#include "../cuda_kernel.cuh"

namespace adamw {

constexpr int block = 256;
constexpr size_t norm_part = size_t(1) << 16;  // numbers that a block sums

struct Step {
    float lr, b1, b2, eps, decay, scale, correct1, correct2;
};

__device__ inline void step_one(float& p, float& m, float& v, float g, const Step& s) {
    g *= s.scale;
    m = s.b1 * m + (1 - s.b1) * g;
    v = s.b2 * v + (1 - s.b2) * (g * g);
    p -= s.lr * (m * s.correct1 / (sqrtf(v * s.correct2) + s.eps) + s.decay * p);
}

// Four numbers a thread.
__global__ void __launch_bounds__(block)
    update(float* p, float* m, float* v, const float* g, size_t n, Step s) {
    const size_t i = (size_t(blockIdx.x) * block + threadIdx.x) * 4;
    if (i + 4 <= n) {
        Pack<float> pi = load_pack(p + i), mi = load_pack(m + i), vi = load_pack(v + i);
        const Pack<float> gi = load_pack(g + i);
        for (int j = 0; j < 4; j++) step_one(pi.x[j], mi.x[j], vi.x[j], gi.x[j], s);
        store_pack(p + i, pi);
        store_pack(m + i, mi);
        store_pack(v + i, vi);
    } else {
        for (size_t j = i; j < n; j++) step_one(p[j], m[j], v[j], g[j], s);
    }
}

// The sum of all threads' x, in every thread; one fixed order.
__device__ inline double block_sum(double x) {
    __shared__ double sums[32];
    const int lane = threadIdx.x % 32, warp = threadIdx.x / 32, warps = blockDim.x / 32;
    for (int d = 16; d; d /= 2) x += __shfl_xor_sync(0xffffffffu, x, d);
    if (lane == 0) sums[warp] = x;
    __syncthreads();
    x = lane < warps ? sums[lane] : 0.0;
    for (int d = 16; d; d /= 2) x += __shfl_xor_sync(0xffffffffu, x, d);
    return x;
}

// parts(block) = sum of squares of the block's numbers.
__global__ void __launch_bounds__(block) squares(double* parts, const float* g, size_t n) {
    const size_t begin = blockIdx.x * norm_part, end = min(begin + norm_part, n);
    double sum = 0;
#pragma unroll 4
    for (size_t i = begin + threadIdx.x * 4; i < end; i += block * 4) {
        if (i + 4 <= end) {
            const Pack<float> in = load_pack(g + i);
            for (int j = 0; j < 4; j++) sum += double(in.x[j]) * double(in.x[j]);
        } else {
            for (size_t j = i; j < end; j++) sum += double(g[j]) * double(g[j]);
        }
    }
    sum = block_sum(sum);
    if (threadIdx.x == 0) parts[blockIdx.x] = sum;
}

__global__ void __launch_bounds__(1024) add_parts(double* total, const double* parts, int n) {
    double sum = 0;
    for (int i = threadIdx.x; i < n; i += 1024) sum += parts[i];
    sum = block_sum(sum);
    if (threadIdx.x == 0) *total = sum;
}

template <class T>
__global__ void __launch_bounds__(block) cast(T* to, const float* from, size_t n) {
    constexpr int size = Pack<T>::size;
    const size_t i = (size_t(blockIdx.x) * block + threadIdx.x) * size;
    if (i + size <= n) {
        Pack<T> out;
        for (int j = 0; j < size; j += 4) {
            const Pack<float> in = load_pack(from + i + j);
            for (int k = 0; k < 4; k++) out.x[j + k] = from_float<T>(in.x[k]);
        }
        store_pack(to + i, out);
    } else {
        for (size_t j = i; j < n; j++) to[j] = from_float<T>(from[j]);
    }
}

}  // namespace adamw

template <class T>
void adamw_update(CudaDevice<T>& device, float* p, float* m, float* v, const float* g, size_t n,
                  const AdamW& o, float decay, float scale, int64_t t) {
    const float correct1 = float(1 / (1 - std::pow(double(o.beta1), double(t))));
    const float correct2 = float(1 / (1 - std::pow(double(o.beta2), double(t))));
    launch(device, adamw::update, blocks_for(n, adamw::block * 4), adamw::block, 0, p, m, v, g, n,
           adamw::Step{o.lr, o.beta1, o.beta2, o.eps, decay, scale, correct1, correct2});
}
template <class T>
double global_norm(CudaDevice<T>& device, const float* g, size_t n) {
    const unsigned parts = blocks_for(n, adamw::norm_part);
    double* sums = static_cast<double*>(device.scratch((parts + 1) * sizeof(double)));  // the total is first
    launch(device, adamw::squares, parts, adamw::block, 0, sums + 1, g, n);
    launch(device, adamw::add_parts, 1, 1024, 0, sums, sums + 1, int(parts));
    double total;
    device.download(&total, sums, sizeof total);
    return std::sqrt(total);
}
template <class T>
void cast_weights(CudaDevice<T>& device, T* to, const float* from, size_t n) {
    if constexpr (std::is_same_v<T, float>) {
        if (to != from) device.copy(to, from, n * sizeof(T));
    } else {
        launch(device, adamw::cast<T>, blocks_for(n, adamw::block * Pack<T>::size), adamw::block, 0, to, from,
               n);
    }
}
template void adamw_update(CudaDevice<bf16>&, float*, float*, float*, const float*, size_t, const AdamW&,
                           float, float, int64_t);
template void adamw_update(CudaDevice<float>&, float*, float*, float*, const float*, size_t, const AdamW&,
                           float, float, int64_t);
template double global_norm(CudaDevice<bf16>&, const float*, size_t);
template double global_norm(CudaDevice<float>&, const float*, size_t);
template void cast_weights(CudaDevice<bf16>&, bf16*, const float*, size_t);
template void cast_weights(CudaDevice<float>&, float*, const float*, size_t);
#endif
