// embedding.cuh: out[n] = table[token[n]].
//
// Backward: dtable[token[n]] += dout[n], added in the order of n, so that a gradient summed over
// micro-batches has the bits of one large batch. Parameters' gradients accumulate.
#pragma once
#include "../device.h"

// ---- CPU ------------------------------------------------------------------------------------------------

template <class T>
void embedding_forward(CpuDevice<T>&, T* out /*(N,D)*/, const int* token /*(N)*/, const T* table /*(V,D)*/,
                       int N, int D) {
#pragma omp parallel for if (size_t(N) * D > 1 << 16)
    for (int n = 0; n < N; n++)
        std::memcpy(out + size_t(n) * D, table + size_t(token[n]) * D, size_t(D) * sizeof(T));
}

template <class T>
void embedding_backward(CpuDevice<T>&, T* dtable /*(V,D) +=*/, const int* token /*(N)*/,
                        const T* dout /*(N,D)*/, int N, int D) {
    // Threads share the columns, not the tokens: every element has one writer and one order.
    constexpr int columns = 64;
#pragma omp parallel for if (size_t(N) * D > 1 << 16)
    for (int d0 = 0; d0 < D; d0 += columns) {
        int d1 = d0 + columns < D ? d0 + columns : D;
        for (int n = 0; n < N; n++) {
            T* row = dtable + size_t(token[n]) * D;
            const T* from = dout + size_t(n) * D;
            for (int d = d0; d < d1; d++) row[d] += from[d];
        }
    }
}

// ---- CUDA -----------------------------------------------------------------------------------------------

#ifdef SWARR_CUDA
// D must be a multiple of 8. Tokens must lie in the table.
template <class T>
void embedding_forward(CudaDevice<T>&, T* out /*(N,D)*/, const int* token /*(N)*/, const T* table /*(V,D)*/,
                       int N, int D);
template <class T>
void embedding_backward(CudaDevice<T>&, float* dtable /*(V,D) +=*/, const int* token /*(N)*/,
                        const T* dout /*(N,D)*/, int N, int D);
#endif

#ifdef __CUDACC__
#include "../cuda_kernel.cuh"

namespace embedding {

constexpr int block = 256, chunk = 1024;  // tokens that a block looks through at a time

template <class T>
__global__ void __launch_bounds__(block) forward(T* out, const int* token, const T* table, int N, int D) {
    const int packs = D / Pack<T>::size;
    const size_t at = size_t(blockIdx.x) * block + threadIdx.x;
    if (at >= size_t(N) * packs) return;
    const size_t n = at / packs, i = at % packs * Pack<T>::size;
    store_pack(out + n * D + i, load_pack(table + size_t(token[n]) * D + i));
}

// Which of the tokens from `begin` on are `wanted`: bit l of word j of the warp w is token
// begin + (j * block / 32 + w) * 32 + l.
__device__ inline void find(uint32_t (&mask)[chunk / block], const int* token, int begin, int N, int wanted) {
#pragma unroll
    for (int j = 0; j < chunk / block; j++) {
        const int n = begin + j * block + int(threadIdx.x);
        mask[j] = __ballot_sync(0xffffffffu, n < N && token[n] == wanted);
    }
}

// Block (n, c) leaves unless token n is the first of its kind; then it adds the rows of all of that kind, in
// order, to columns c of the table's row.
template <class T>
__global__ void __launch_bounds__(block)
    backward(float* dtable, const int* token, const T* dout, int N, int D) {
    constexpr int size = Pack<T>::size, ahead = 4;
    __shared__ uint32_t masks[chunk / 32];
    __shared__ int found[chunk], count;
    const int first = blockIdx.x, wanted = token[first];
    uint32_t mask[chunk / block];
    for (int begin = 0; begin < first; begin += chunk) {
        find(mask, token, begin, first, wanted);
        bool any = false;
        for (uint32_t m : mask) any |= m != 0;
        if (__syncthreads_or(any)) return;
    }
    const int column = (blockIdx.y * block + threadIdx.x) * size;
    float* row = dtable + size_t(wanted) * D + column;
    Pack<float> sum[size / 4];
    if (column < D)
        for (int j = 0; j < size / 4; j++) sum[j] = load_pack(row + j * 4);
    for (int begin = first; begin < N; begin += chunk) {
        find(mask, token, begin, N, wanted);
        bool any = false;
        for (uint32_t m : mask) any |= m != 0;
        if (!__syncthreads_or(any)) continue;
        if (threadIdx.x % 32 == 0)
            for (int j = 0; j < chunk / block; j++) masks[j * block / 32 + threadIdx.x / 32] = mask[j];
        __syncthreads();
        if (threadIdx.x < 32) {  // lane l lists the tokens of word l after those of the words before
            uint32_t bits = masks[threadIdx.x];
            int end = __popc(bits);
            for (int d = 1; d < 32; d *= 2) {
                const int before = __shfl_up_sync(0xffffffffu, end, d);
                if (int(threadIdx.x) >= d) end += before;
            }
            if (threadIdx.x == 31) count = end;
            for (int at = end - __popc(bits); bits; bits &= bits - 1)
                found[at++] = begin + int(threadIdx.x) * 32 + __ffs(int(bits)) - 1;
        }
        __syncthreads();
        if (column < D)
            for (int i = 0; i < count; i += ahead) {
                Pack<T> in[ahead];
#pragma unroll
                for (int k = 0; k < ahead; k++)
                    if (i + k < count) in[k] = load_pack(dout + size_t(found[i + k]) * D + column);
#pragma unroll
                for (int k = 0; k < ahead; k++)
                    for (int j = 0; j < size; j++)
                        if (i + k < count) sum[j / 4].x[j % 4] += to_float(in[k].x[j]);
            }
        __syncthreads();
    }
    if (column < D)
        for (int j = 0; j < size / 4; j++) store_pack(row + j * 4, sum[j]);
}

}  // namespace embedding

template <class T>
void embedding_forward(CudaDevice<T>& device, T* out, const int* token, const T* table, int N, int D) {
    launch(device, embedding::forward<T>, blocks_for(size_t(N) * D / Pack<T>::size, embedding::block),
           embedding::block, 0, out, token, table, N, D);
}
template <class T>
void embedding_backward(CudaDevice<T>& device, float* dtable, const int* token, const T* dout, int N, int D) {
    launch(device, embedding::backward<T>, dim3(N, blocks_for(D, embedding::block * Pack<T>::size)),
           embedding::block, 0, dtable, token, dout, N, D);
}
template void embedding_forward(CudaDevice<bf16>&, bf16*, const int*, const bf16*, int, int);
template void embedding_forward(CudaDevice<float>&, float*, const int*, const float*, int, int);
template void embedding_backward(CudaDevice<bf16>&, float*, const int*, const bf16*, int, int);
template void embedding_backward(CudaDevice<float>&, float*, const int*, const float*, int, int);
#endif
