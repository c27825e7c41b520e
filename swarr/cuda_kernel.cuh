// cuda_kernel.cuh: what the kernels share: numbers as float, 16-byte packs, sums over warps and blocks, and
// the launch with its check. For kernels.cu only.
#pragma once
#include "device.h"

__host__ __device__ inline float to_float(float x) {
    return x;
}
__host__ __device__ inline float to_float(bf16 x) {
    return __bfloat162float(x);
}
// Rounds to nearest even.
template <class T>
__host__ __device__ inline T from_float(float x) {
    if constexpr (std::is_same_v<T, bf16>)
        return __float2bfloat16_rn(x);
    else
        return x;
}

// 16 bytes, the largest access of a thread: 8 bf16 or 4 float. Addresses must be multiples of 16.
template <class T>
struct alignas(16) Pack {
    static constexpr int size = 16 / int(sizeof(T));
    T x[size];
};
template <class T>
__device__ inline Pack<T> load_pack(const T* p) {
    Pack<T> out;
    *reinterpret_cast<uint4*>(&out) = *reinterpret_cast<const uint4*>(p);
    return out;
}
// To global memory. (nvcc 13 makes four stores of a plain assignment where p is the sum of several terms.)
template <class T>
__device__ inline void store_pack(T* p, const Pack<T>& v) {
    __stwb(reinterpret_cast<uint4*>(p), *reinterpret_cast<const uint4*>(&v));
}

// The sum of all 32 lanes, in every lane; one fixed order.
__device__ inline float warp_sum(float x) {
    for (int d = 16; d; d /= 2) x += __shfl_xor_sync(0xffffffffu, x, d);
    return x;
}
__device__ inline float warp_max(float x) {
    for (int d = 16; d; d /= 2) x = fmaxf(x, __shfl_xor_sync(0xffffffffu, x, d));
    return x;
}

// The sum (or maximum) over a block of whole warps, in every thread. `shared` (32 floats) may be used again
// right after the call.
__device__ inline float block_sum(float x, float* shared) {
    const int lane = threadIdx.x % 32, warp = threadIdx.x / 32, warps = (blockDim.x + 31) / 32;
    x = warp_sum(x);
    if (lane == 0) shared[warp] = x;
    __syncthreads();
    x = warp_sum(lane < warps ? shared[lane] : 0.0f);
    __syncthreads();
    return x;
}
__device__ inline float block_max(float x, float* shared) {
    const int lane = threadIdx.x % 32, warp = threadIdx.x / 32, warps = (blockDim.x + 31) / 32;
    x = warp_max(x);
    if (lane == 0) shared[warp] = x;
    __syncthreads();
    x = warp_max(lane < warps ? shared[lane] : -INFINITY);
    __syncthreads();
    return x;
}

inline unsigned blocks_for(size_t n, size_t per_block) {
    return unsigned((n + per_block - 1) / per_block);
}

// kernel<<<grid, block, shared_bytes, device.stream>>>(args...); nothing is launched for an empty grid.
// Errors: the launch was refused.
template <class Device, class... Params, class... Args>
void launch(Device& device, void (*kernel)(Params...), dim3 grid, dim3 block, size_t shared_bytes,
            Args... args) {
    if (grid.x == 0 || grid.y == 0 || grid.z == 0) return;
    if (shared_bytes > (48 << 10))
        CUDA_CHECK(
            cudaFuncSetAttribute(kernel, cudaFuncAttributeMaxDynamicSharedMemorySize, int(shared_bytes)));
    kernel<<<grid, block, shared_bytes, device.stream>>>(static_cast<Params>(args)...);
    cudaError_t status = cudaGetLastError();
    if (status == cudaSuccess) return;
    const char* name = "a kernel";
    cudaFuncGetName(&name, reinterpret_cast<const void*>(kernel));
    cuda_check(status, name, __FILE__, __LINE__);
}
