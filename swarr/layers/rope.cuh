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
