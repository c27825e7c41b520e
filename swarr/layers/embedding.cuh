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
