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
