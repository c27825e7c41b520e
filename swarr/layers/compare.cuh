// compare.cuh: what two rows of logits say about the same token: from the whole context, and from a part.
//
//   logp(i) = log softmax(logits(i))(target(i))
//   kl(i)   = sum_v p(v) (log p(v) - log q(v)),  p = softmax(full(i)), q = softmax(logits(i))
#pragma once
#include "token_loss.cuh"

// ---- CPU ------------------------------------------------------------------------------------------------

// kl and full null: logp alone.
template <class T>
void compare_logits(CpuDevice<T>&, T* logp /*(n)*/, double* kl /*(n)*/, const T* logits /*(n,V)*/,
                    const T* full /*(n,V)*/, const int* target /*(n)*/, int n, int V) {
#pragma omp parallel for if (size_t(n) * V > 1 << 14)
    for (int i = 0; i < n; i++) {
        const T* cut = logits + size_t(i) * V;
        const SoftmaxRow<T> q = softmax_row(cut, V, 1.0);
        logp[i] = q.logp(cut[target[i]]);
        if (!kl) continue;
        const T* whole = full + size_t(i) * V;
        const SoftmaxRow<T> p = softmax_row(whole, V, 1.0);
        double sum = 0;
        for (int v = 0; v < V; v++) {
            const double p_log = double(p.logp(whole[v])), q_log = double(q.logp(cut[v]));
            sum += std::exp(p_log) * (p_log - q_log);
        }
        kl[i] = sum;
    }
}

// ---- CUDA -----------------------------------------------------------------------------------------------

#ifdef SWARR_CUDA
template <class T>
void compare_logits(CudaDevice<T>&, float* logp /*(n)*/, double* kl /*(n)*/, const float* logits /*(n,V)*/,
                    const float* full /*(n,V)*/, const int* target /*(n)*/, int n, int V);
#endif

#ifdef __CUDACC__
#include "../cuda_kernel.cuh"

namespace compare {

constexpr int block = 512;

// The maximum and the logarithm of the sum of a row, in every thread.
struct Normalizer {
    float max, log_sum;
    __device__ float logp(float z) const { return z - max - log_sum; }
};
__device__ inline Normalizer normalizer(const float* z, int V, float* shared) {
    float max = -INFINITY, sum = 0;
    for (int v = threadIdx.x; v < V; v += block) max = fmaxf(max, z[v]);
    max = block_max(max, shared);
    for (int v = threadIdx.x; v < V; v += block) sum += expf(z[v] - max);
    return {max, logf(block_sum(sum, shared))};
}

// A block a row.
static __global__ void rows(float* logp, double* kl, const float* logits, const float* full,
                            const int* target, int V) {
    __shared__ float shared[32];
    __shared__ double sums[block / 32];
    const int i = blockIdx.x;
    const float* cut = logits + size_t(i) * V;
    const Normalizer q = normalizer(cut, V, shared);
    if (threadIdx.x == 0) logp[i] = q.logp(cut[target[i]]);
    if (!kl) return;
    const float* whole = full + size_t(i) * V;
    const Normalizer p = normalizer(whole, V, shared);
    double sum = 0;
    for (int v = threadIdx.x; v < V; v += block) {
        const float p_log = p.logp(whole[v]);
        sum += double(expf(p_log)) * double(p_log - q.logp(cut[v]));
    }
    for (int d = 16; d; d /= 2) sum += __shfl_xor_sync(0xffffffffu, sum, d);
    if (threadIdx.x % 32 == 0) sums[threadIdx.x / 32] = sum;
    __syncthreads();
    if (threadIdx.x == 0) {
        double total = 0;
        for (double s : sums) total += s;
        kl[i] = total;
    }
}

}  // namespace compare

template <class T>
void compare_logits(CudaDevice<T>& device, float* logp, double* kl, const float* logits, const float* full,
                    const int* target, int n, int V) {
    launch(device, compare::rows, unsigned(n), compare::block, 0, logp, kl, logits, full, target, V);
}
template void compare_logits(CudaDevice<bf16>&, float*, double*, const float*, const float*, const int*, int,
                             int);
template void compare_logits(CudaDevice<float>&, float*, double*, const float*, const float*, const int*, int,
                             int);
#endif
