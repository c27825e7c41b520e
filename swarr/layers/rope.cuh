// rope.cuh: rotary positions (Su et al. 2021) in Hugging Face's layout: number i of a head turns with i +
// E/2.
//
//   (x_i, x_j) -> (x_i cos a - x_j sin a, x_j cos a + x_i sin a),  j = i + E/2,  a = position * theta^(-2i/E)
//
// The angle is rounded to float where transformers rounds it (the frequency, then the product), since at
// position 30000 these roundings turn a head by more than the rest of a layer's error. Positions count from
// the start of a document. In place; the gradient is the opposite turn of dqkv. Scaled variants (YaRN, Llama
// 3's) are left out: none of the models trained here needs them.
#pragma once
#include <cmath>
#include <vector>

#include "../device.h"

// Cosines and sines for positions 0 .. positions-1, made once on the host: (positions, 2, E/2).
template <class Device>
class RopeTable {
  public:
    using S = typename Device::stat;

    // Fails if E is odd: halves are turned against each other.
    RopeTable(Device& device, int positions, int E, double theta)
        : positions_(positions), half_(E / 2), table_(device, size_t(positions) * E, Memory::weights) {
        if (E % 2)
            fail("rotary positions need an even head size, not " + std::to_string(E),
                 "check head_dim in config.json");
        std::vector<S> host(table_.size());
#pragma omp parallel for if (host.size() > 100000)
        for (int p = 0; p < positions; p++) {
            S* row = host.data() + size_t(p) * E;
            for (int i = 0; i < half_; i++) {
                float exponent = float(2 * i) / float(E), power = float(std::pow(theta, double(exponent)));
                float frequency = 1.0f / power, angle = float(p) * frequency;
                row[i] = S(std::cos(double(angle)));
                row[half_ + i] = S(std::sin(double(angle)));
            }
        }
        device.upload(table_.data(), host.data(), host.size() * sizeof(S));
    }
    int positions() const {
        return positions_;
    }
    const S* row(int position) const {
        return table_.data() + size_t(position) * half_ * 2;
    }

  private:
    int positions_, half_;
    Buffer<S, Device> table_;
};

// ----------------------------------------------------------------------------------------------------------
// CPU

// Turns the H query heads and G key heads of every row of qkv (N, Q) by position (N), or back if sign is -1.
template <class T>
void rope_turn(T* qkv, const int* position, const RopeTable<CpuDevice<T>>& table, int N, int H, int G, int E,
               T sign) {
    for (int t = 0; t < N; t++)
        if (position[t] < 0 || position[t] >= table.positions())
            fail("position " + std::to_string(position[t]) + " is outside the " +
                     std::to_string(table.positions()) + " positions of the rotary table",
                 "raise --max-length");
    const int half = E / 2;
    const size_t Q = size_t(H + 2 * G) * E;
#pragma omp parallel for if (size_t(N) * (H + G) * E > 100000)
    for (int t = 0; t < N; t++) {
        const T *cosine = table.row(position[t]), *sine = cosine + half;
        for (T* x = qkv + t * Q; x < qkv + t * Q + size_t(H + G) * E; x += E)
#pragma omp simd
            for (int i = 0; i < half; i++) {
                T a = x[i], b = x[i + half], s = sine[i] * sign;
                x[i] = a * cosine[i] - b * s;
                x[i + half] = b * cosine[i] + a * s;
            }
    }
}
template <class T>
void rope_forward(CpuDevice<T>&, T* qkv, const int* position, const RopeTable<CpuDevice<T>>& table, int N,
                  int H, int G, int E) {
    rope_turn(qkv, position, table, N, H, G, E, T(1));
}
template <class T>
void rope_backward(CpuDevice<T>&, T* dqkv, const int* position, const RopeTable<CpuDevice<T>>& table, int N,
                   int H, int G, int E) {
    rope_turn(dqkv, position, table, N, H, G, E, T(-1));
}

// ----------------------------------------------------------------------------------------------------------
// CUDA

#ifdef SWARR_CUDA
// E must be a multiple of 16. Positions must lie in the table: they are not looked at on the host.
template <class T>
void rope_forward(CudaDevice<T>&, T* qkv /*(N,Q)*/, const int* position /*(N)*/,
                  const RopeTable<CudaDevice<T>>& table, int N, int H, int G, int E);
template <class T>
void rope_backward(CudaDevice<T>&, T* dqkv /*(N,Q)*/, const int* position /*(N)*/,
                   const RopeTable<CudaDevice<T>>& table, int N, int H, int G, int E);
#endif

#ifdef __CUDACC__
#include "../cuda_kernel.cuh"

namespace rope {

constexpr int block = 256;

// Two packs of a head a thread: the same place in both halves.
template <class T>
__global__ void __launch_bounds__(block)
    turn(T* qkv, const int* position, const float* table, int N, int heads, int E, size_t row, float sign) {
    constexpr int size = Pack<T>::size;
    const int half = E / 2, packs = half / size;
    const size_t at = size_t(blockIdx.x) * block + threadIdx.x;
    if (at >= size_t(N) * heads * packs) return;
    const size_t n = at / packs / heads;
    const int head = int(at / packs % heads), i = int(at % packs) * size;
    T *x = qkv + n * row + head * E + i, *y = x + half;
    const float *cosine = table + size_t(position[n]) * E + i, *sine = cosine + half;
    Pack<T> first = load_pack(x), second = load_pack(y);
#pragma unroll
    for (int j = 0; j < size; j += Pack<float>::size) {
        const Pack<float> c = load_pack(cosine + j), s = load_pack(sine + j);
        for (int k = 0; k < Pack<float>::size; k++) {
            const float a = to_float(first.x[j + k]), b = to_float(second.x[j + k]), sk = s.x[k] * sign;
            first.x[j + k] = from_float<T>(a * c.x[k] - b * sk);
            second.x[j + k] = from_float<T>(b * c.x[k] + a * sk);
        }
    }
    store_pack(x, first);
    store_pack(y, second);
}

template <class T>
void launch_turn(CudaDevice<T>& device, T* qkv, const int* position, const RopeTable<CudaDevice<T>>& table,
                 int N, int H, int G, int E, float sign) {
    if (E % 16)
        fail(format("the CUDA device turns heads of a multiple of 16 elements, not %d", E),
             "use --device cpu");
    launch(device, turn<T>, blocks_for(size_t(N) * (H + G) * (E / 2 / Pack<T>::size), block), block, 0, qkv,
           position, table.row(0), N, H + G, E, size_t(H + 2 * G) * E, sign);
}

}  // namespace rope

template <class T>
void rope_forward(CudaDevice<T>& device, T* qkv, const int* position, const RopeTable<CudaDevice<T>>& table,
                  int N, int H, int G, int E) {
    rope::launch_turn(device, qkv, position, table, N, H, G, E, 1);
}
template <class T>
void rope_backward(CudaDevice<T>& device, T* dqkv, const int* position, const RopeTable<CudaDevice<T>>& table,
                   int N, int H, int G, int E) {
    rope::launch_turn(device, dqkv, position, table, N, H, G, E, -1);
}
template void rope_forward(CudaDevice<bf16>&, bf16*, const int*, const RopeTable<CudaDevice<bf16>>&, int, int,
                           int, int);
template void rope_forward(CudaDevice<float>&, float*, const int*, const RopeTable<CudaDevice<float>>&, int,
                           int, int, int);
template void rope_backward(CudaDevice<bf16>&, bf16*, const int*, const RopeTable<CudaDevice<bf16>>&, int,
                            int, int, int);
template void rope_backward(CudaDevice<float>&, float*, const int*, const RopeTable<CudaDevice<float>>&, int,
                            int, int, int);
#endif
