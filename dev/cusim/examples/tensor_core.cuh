// tensor_core.cuh: the three instructions of tensor-core kernels, and a shared-memory layout without bank
// conflicts.
#pragma once
#include <cuda_bf16.h>

#include <cstdint>

using bf16 = __nv_bfloat16;

// c (16 x 8) += a (16 x 16) b (16 x 8), bf16 products, f32 sums.
__device__ __forceinline__ void mma(float (&c)[4], const uint32_t (&a)[4], uint32_t b0, uint32_t b1) {
    asm volatile(
        "mma.sync.aligned.m16n8k16.row.col.f32.bf16.bf16.f32 {%0,%1,%2,%3}, {%4,%5,%6,%7}, {%8,%9}, "
        "{%0,%1,%2,%3};"
        : "+f"(c[0]), "+f"(c[1]), "+f"(c[2]), "+f"(c[3])
        : "r"(a[0]), "r"(a[1]), "r"(a[2]), "r"(a[3]), "r"(b0), "r"(b1));
}

// Four 8 x 8 matrices; lane 8m + r gives the address of row r of matrix m.
__device__ __forceinline__ void load_matrices(uint32_t (&r)[4], const bf16* row) {
    asm volatile("ldmatrix.sync.aligned.m8n8.x4.shared.b16 {%0,%1,%2,%3}, [%4];"
                 : "=r"(r[0]), "=r"(r[1]), "=r"(r[2]), "=r"(r[3])
                 : "r"(uint32_t(__cvta_generic_to_shared(row)))
                 : "memory");
}
__device__ __forceinline__ void load_matrices_transposed(uint32_t (&r)[4], const bf16* row) {
    asm volatile("ldmatrix.sync.aligned.m8n8.x4.trans.shared.b16 {%0,%1,%2,%3}, [%4];"
                 : "=r"(r[0]), "=r"(r[1]), "=r"(r[2]), "=r"(r[3])
                 : "r"(uint32_t(__cvta_generic_to_shared(row)))
                 : "memory");
}

// 16 bytes from global to shared memory in the background; zeros if not `valid`.
__device__ __forceinline__ void copy_async(bf16* to, const bf16* from, bool valid) {
    asm volatile(
        "cp.async.cg.shared.global [%0], [%1], 16, %2;" ::"r"(uint32_t(__cvta_generic_to_shared(to))),
        "l"(from), "r"(valid ? 16 : 0)
        : "memory");
}
__device__ __forceinline__ void commit_copies() {
    asm volatile("cp.async.commit_group;" ::: "memory");
}
template <int kUnderWay>
__device__ __forceinline__ void wait_copies() {
    asm volatile("cp.async.wait_group %0;" ::"n"(kUnderWay) : "memory");
}

// Element (row, column) of a tile with 64 columns: the eight 16-byte chunks of a row are permuted by the row,
// so that the eight rows of a matrix lie in different banks.
__device__ __forceinline__ int swizzled(int row, int column) {
    return row * 64 + (((column >> 3) ^ (row & 7)) << 3) + (column & 7);
}

__device__ __forceinline__ uint32_t pack(float low, float high) {
    __nv_bfloat162 p = __floats2bfloat162_rn(low, high);
    return *reinterpret_cast<uint32_t*>(&p);
}
