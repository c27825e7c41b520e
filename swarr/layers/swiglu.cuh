// swiglu.cuh: h = silu(g) * u, silu(g) = g * s, s = 1 / (1 + exp(-g))   (Shazeer 2020, arXiv 2002.05202)
//
// Gradient: du = dh * silu(g),  dg = dh * u * s * (1 + g * (1 - s)). Both overwrite.
#pragma once
#include "../device.h"
#include "../simd.h"

// ---- CPU ------------------------------------------------------------------------------------------------

template <class T>
void swiglu_forward(CpuDevice<T>&, T* h /*(N,F)*/, const T* gu /*(N,2F): gate, up*/, int N, int F) {
#pragma omp parallel for if (size_t(N) * F > 1 << 13)
    for (int n = 0; n < N; n++) {
        const T *g = gu + size_t(n) * 2 * F, *u = g + F;
        for (int i = 0; i < F; i += lanes<T>) {
            Vec<T> gate = load_part(g + i, F - i);
            Vec<T> silu = gate / (T(1) + exp(-gate));
            store_part(h + size_t(n) * F + i, silu * load_part(u + i, F - i), F - i);
        }
    }
}

// dgu may be gu itself.
template <class T>
void swiglu_backward(CpuDevice<T>&, T* dgu /*(N,2F)*/, const T* dh /*(N,F)*/, const T* gu /*(N,2F)*/, int N,
                     int F) {
#pragma omp parallel for if (size_t(N) * F > 1 << 13)
    for (int n = 0; n < N; n++) {
        const T *g = gu + size_t(n) * 2 * F, *u = g + F;
        T *dg = dgu + size_t(n) * 2 * F, *du = dg + F;
        for (int i = 0; i < F; i += lanes<T>) {
            Vec<T> gate = load_part(g + i, F - i), up = load_part(u + i, F - i);
            Vec<T> grad = load_part(dh + size_t(n) * F + i, F - i);
            Vec<T> s = T(1) / (T(1) + exp(-gate));
            store_part(du + i, grad * (gate * s), F - i);
            store_part(dg + i, grad * up * (s * (T(1) + gate * (T(1) - s))), F - i);
        }
    }
}

// ---- CUDA -----------------------------------------------------------------------------------------------

#ifdef SWARR_CUDA
// F must be a multiple of 8, rows start at multiples of 16 bytes.
template <class T>
void swiglu_forward(CudaDevice<T>&, T* h /*(N,F)*/, const T* gu /*(N,2F)*/, int N, int F);
template <class T>
void swiglu_backward(CudaDevice<T>&, T* dgu /*(N,2F)*/, const T* dh /*(N,F)*/, const T* gu /*(N,2F)*/, int N,
                     int F);
#endif

#ifdef __CUDACC__
#include "../cuda_kernel.cuh"

namespace swiglu {

constexpr int block = 256;

// One pack of a row a thread.
template <class T>
__global__ void forward(T* h, const T* gu, int N, int F) {
    const int packs = F / Pack<T>::size;
    const size_t at = size_t(blockIdx.x) * block + threadIdx.x;
    if (at >= size_t(N) * packs) return;
    const size_t n = at / packs, i = at % packs * Pack<T>::size;
    const Pack<T> gate = load_pack(gu + n * 2 * F + i), up = load_pack(gu + n * 2 * F + F + i);
    Pack<T> out;
    for (int j = 0; j < Pack<T>::size; j++) {
        const float g = to_float(gate.x[j]);
        out.x[j] = from_float<T>(g / (1.0f + expf(-g)) * to_float(up.x[j]));
    }
    store_pack(h + n * F + i, out);
}

template <class T>
__global__ void backward(T* dgu, const T* dh, const T* gu, int N, int F) {
    const int packs = F / Pack<T>::size;
    const size_t at = size_t(blockIdx.x) * block + threadIdx.x;
    if (at >= size_t(N) * packs) return;
    const size_t n = at / packs, i = at % packs * Pack<T>::size;
    const Pack<T> gate = load_pack(gu + n * 2 * F + i), up = load_pack(gu + n * 2 * F + F + i),
                  grad = load_pack(dh + n * F + i);
    Pack<T> dgate, dup;
    for (int j = 0; j < Pack<T>::size; j++) {
        const float g = to_float(gate.x[j]), d = to_float(grad.x[j]), s = 1.0f / (1.0f + expf(-g));
        dup.x[j] = from_float<T>(d * (g * s));
        dgate.x[j] = from_float<T>(d * to_float(up.x[j]) * (s * (1.0f + g * (1.0f - s))));
    }
    store_pack(dgu + n * 2 * F + i, dgate);
    store_pack(dgu + n * 2 * F + F + i, dup);
}

}  // namespace swiglu

template <class T>
void swiglu_forward(CudaDevice<T>& device, T* h, const T* gu, int N, int F) {
    launch(device, swiglu::forward<T>, blocks_for(size_t(N) * F / Pack<T>::size, swiglu::block),
           swiglu::block, 0, h, gu, N, F);
}
template <class T>
void swiglu_backward(CudaDevice<T>& device, T* dgu, const T* dh, const T* gu, int N, int F) {
    launch(device, swiglu::backward<T>, blocks_for(size_t(N) * F / Pack<T>::size, swiglu::block),
           swiglu::block, 0, dgu, dh, gu, N, F);
}
template void swiglu_forward(CudaDevice<bf16>&, bf16*, const bf16*, int, int);
template void swiglu_forward(CudaDevice<float>&, float*, const float*, int, int);
template void swiglu_backward(CudaDevice<bf16>&, bf16*, const bf16*, const bf16*, int, int);
template void swiglu_backward(CudaDevice<float>&, float*, const float*, const float*, int, int);
#endif
