// column_sum.cuh: out(c) += sum of a(r, c) over r, on the CUDA device: gradients of biases, and what blocks
// of other kernels leave as parts of a sum.
//
// The order of addition depends on the sizes alone: the same bits at every run and on every card. For
// kernels.cu only.
#pragma once
#include "../cuda_kernel.cuh"

// P floats at a multiple of 16 bytes, of shared or global memory.
template <int P>
__device__ inline void store_floats(float* to, const float (&from)[P]) {
    static_assert(P % 4 == 0);
#pragma unroll
    for (int j = 0; j < P; j += 4)
        *reinterpret_cast<float4*>(to + j) = make_float4(from[j], from[j + 1], from[j + 2], from[j + 3]);
}

namespace column_sum {

constexpr int packs = 8, lines = 32;  // of a block: 128 bytes of 32 rows at a time

// Block (x, y) sums its columns over rows [y * part, (y + 1) * part) into row y of out (columns), or adds
// them to it.
template <class U>
__global__ void __launch_bounds__(packs* lines)
    sum(float* out, const U* a, int rows, int columns, size_t stride, int part, bool add) {
    constexpr int P = Pack<U>::size, width = packs * P;
    __shared__ alignas(16) float shared[lines][width];
    const int tx = threadIdx.x % packs, ty = threadIdx.x / packs;
    const int column = (blockIdx.x * packs + tx) * P;
    const int begin = blockIdx.y * part, end = min(begin + part, rows);
    float total[P] = {};
    if (column < columns)
#pragma unroll 4
        for (int r = begin + ty; r < end; r += lines) {
            const Pack<U> in = load_pack(a + r * stride + column);
            for (int j = 0; j < P; j++) total[j] += to_float(in.x[j]);
        }
    store_floats(&shared[ty][tx * P], total);
    __syncthreads();
    const int c = blockIdx.x * width + threadIdx.x;
    if (threadIdx.x >= width || c >= columns) return;
    float all = 0;
    for (int l = 0; l < lines; l++) all += shared[l][threadIdx.x];
    float* to = out + size_t(blockIdx.y) * columns + c;
    *to = add ? *to + all : all;
}

template <class U, class T>
void launch_sum(CudaDevice<T>& device, float* out, const U* a, int rows, int columns, size_t stride, int part,
                bool add) {
    launch(device, sum<U>, dim3(blocks_for(columns, packs * Pack<U>::size), blocks_for(rows, part)),
           packs * lines, 0, out, a, rows, columns, stride, part, add);
}

}  // namespace column_sum

// Few rows: blocks share the columns only.
template <class T>
void add_column_sums(CudaDevice<T>& device, float* out /*(columns) +=*/, const float* a /*(rows, columns)*/,
                     int rows, int columns) {
    if (rows) column_sum::launch_sum(device, out, a, rows, columns, size_t(columns), rows, true);
}
// Many rows, `stride` apart. Uses the device's scratch memory.
template <class T>
void add_tall_column_sums(CudaDevice<T>& device, float* out /*(columns) +=*/, const T* a /*(rows, columns)*/,
                          int rows, int columns, size_t stride) {
    constexpr int part = 256;
    const int parts = int(blocks_for(rows, part));
    float* sums = static_cast<float*>(device.scratch(size_t(parts) * columns * sizeof(float)));
    column_sum::launch_sum(device, sums, a, rows, columns, stride, part, false);
    add_column_sums(device, out, sums, parts, columns);
}
