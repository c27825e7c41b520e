// faults.cu: programs with one fault each: ./faults NAME. The line with the fault says what cusim must
// report:
//   // FAULT name [SWITCHES]: text
// and the report must also name this file and that line. Without an argument all names are listed.
// A fault and its text stay on one line:
// clang-format off
#include <cuda_runtime.h>
#include <cuda_bf16.h>

#include <cassert>
#include <cstdint>
#include <cstdio>
#include <cstring>

__global__ void write_past_end(float* p, int n) {
    if (threadIdx.x <= n) p[threadIdx.x] = 1;  // FAULT write_past_end: 0 bytes past the end of an allocation of 400 bytes
}
__global__ void read_before(const float* p, float* q) {
    q[threadIdx.x] = p[int(threadIdx.x) - 1];  // FAULT read_before: 4 bytes before the allocation
}
__global__ void use_pointer(float* p) {
    p[threadIdx.x] = 2;  // FAULT use_after_free: that was freed
}
__global__ void host_pointer(float* p) {
    *p = 2;  // FAULT host_pointer: a host pointer
}
__global__ void null_pointer(float* p) {
    *p = 2;  // FAULT null_pointer: a null pointer
}
__device__ int table[10];
__global__ void symbol_past_end(int k) {
    table[k] = 1;  // FAULT symbol_past_end: 0 bytes past the end of 'table' of 40 bytes
}
__global__ void vector_past_end(float4* p) {
    p[threadIdx.x] = make_float4(0, 0, 0, 0);  // FAULT vector_past_end: reaches past the end of an allocation of 100 bytes
}
__global__ void atomic_past_end(int* p) {
    atomicAdd(p + threadIdx.x, 1);  // FAULT atomic_past_end: invalid global atomic of 4 bytes
}
__global__ void use_pinned(float* p) {
    p[threadIdx.x] = 2;  // FAULT pinned_after_free: that was freed
}
__global__ void misaligned_matrix(uint32_t* out) {
    __shared__ __align__(16) uint32_t buffer[256];
    buffer[threadIdx.x] = threadIdx.x;
    uint32_t x;
    asm volatile("ldmatrix.sync.aligned.m8n8.x1.shared.b16 {%0}, [%1];" : "=r"(x) : "r"(uint32_t(__cvta_generic_to_shared(buffer)) + 8));  // FAULT misaligned_matrix: misaligned shared read of 16 bytes
    out[threadIdx.x] = x;
}
__global__ void barrier_in_loop(float* out) {
    for (int i = 0; i <= int(threadIdx.x) / 32; i++) __syncthreads();  // FAULT barrier_in_loop: 32 of 64 threads arrived
    out[threadIdx.x] = 1;
}
__global__ void misaligned(float4* out, const float* in, int offset) {
    out[threadIdx.x] = *reinterpret_cast<const float4*>(in + offset);  // FAULT misaligned: misaligned global read of 16 bytes
}
__global__ void shared_past_end(float* out, int shift) {
    extern __shared__ float buffer[];
    buffer[threadIdx.x] = 1;
    __syncthreads();
    out[threadIdx.x] = buffer[threadIdx.x + shift];  // FAULT shared_past_end: invalid shared read of 4 bytes at 0x80
}
__global__ void local_past_end(int* out, int index) {
    int table[8];
    for (int i = 0; i < 8; i++) table[i] = i * index;
    out[0] = table[index];  // FAULT local_past_end: invalid local read
}
__global__ void race_between_warps(float* out) {
    __shared__ float buffer[64];
    buffer[threadIdx.x] = threadIdx.x;
    out[threadIdx.x] = buffer[63 - threadIdx.x];  // FAULT race_between_warps [CUSIM_CHECK=race]: race on shared memory
}
__global__ void race_within_warp(float* out) {
    __shared__ float buffer[32];
    buffer[threadIdx.x] = threadIdx.x;
    out[threadIdx.x] = buffer[threadIdx.x ^ 1];  // FAULT race_within_warp [CUSIM_CHECK=race]: race on shared memory
}
__global__ void race_on_reuse(float* out) {
    __shared__ float buffer[64];
    float sum = 0;
    for (int step = 0; step < 2; step++) {
        buffer[threadIdx.x] = step;  // FAULT race_on_reuse [CUSIM_CHECK=race]: race on shared memory
        __syncthreads();
        sum += buffer[63 - threadIdx.x];
    }
    out[threadIdx.x] = sum;
}
__global__ void plain_and_atomic(int* out) {
    __shared__ int count;
    if (threadIdx.x == 0) count = 0;
    atomicAdd(&count, 1);  // FAULT plain_and_atomic [CUSIM_CHECK=race]: race on shared memory
    __syncthreads();
    out[threadIdx.x] = count;
}
__global__ void uninitialised_shared(float* out) {
    __shared__ float buffer[64];
    if (threadIdx.x > 5) buffer[threadIdx.x] = 2;
    __syncthreads();
    out[threadIdx.x] = buffer[threadIdx.x];  // FAULT uninitialised_shared [CUSIM_CHECK=init]: uninitialised shared memory at offset 0
}
__global__ void uninitialised_global(float* out, const float* in) {
    out[threadIdx.x] = in[threadIdx.x];  // FAULT uninitialised_global [CUSIM_CHECK=init]: uninitialised global memory
}
__global__ void barrier_in_branch(float* out) {
    if (threadIdx.x < 32) __syncthreads();  // FAULT barrier_in_branch: warp 1 has exited
    out[threadIdx.x] = 1;
}
__global__ void barrier_in_half_warp(float* out, int n) {
    if (threadIdx.x < n) __syncthreads();  // FAULT barrier_in_half_warp: exited while lanes 0x0000ffff wait
    out[threadIdx.x] = 1;
    if (n > 1000) __syncthreads();
}
__global__ void different_barriers(float* out) {
    if (threadIdx.x < 32) {
        out[threadIdx.x] = 1;
        __syncthreads();
    } else {
        out[threadIdx.x] = 2;
        __syncthreads();  // FAULT different_barriers: divergent barrier: warp 0 waits at faults.cu
    }
}
__global__ void named_barrier_short(float* out) {
    if (threadIdx.x < 32) asm volatile("bar.sync 1, 64;");  // FAULT named_barrier_short: 32 of 64 threads arrived
    out[threadIdx.x] = 1;
}
__global__ void shuffle_in_branch(float* out, int n) {
    float x = threadIdx.x;
    if (threadIdx.x < n) x += __shfl_xor_sync(0xffffffff, x, 1);  // FAULT shuffle_in_branch: lanes 0xffff0000 exited
    out[threadIdx.x] = x;
}
__global__ void not_in_own_mask(float* out) {
    float x = threadIdx.x;
    x += __shfl_xor_sync(0x0000ffff, x, 1);  // FAULT not_in_own_mask: not in the member mask 0x0000ffff
    out[threadIdx.x] = x;
}
__device__ void copy_async(void* to, const void* from) {
    asm volatile("cp.async.cg.shared.global [%0], [%1], 16;" ::"r"(uint32_t(__cvta_generic_to_shared(to))), "l"(from));
}
__global__ void copy_never_waited(float4* out, const float4* in) {
    __shared__ float4 buffer[32];
    copy_async(buffer + threadIdx.x, in + threadIdx.x);  // FAULT copy_never_waited: cp.async that was never waited for
    asm volatile("cp.async.commit_group;");
    out[threadIdx.x] = make_float4(1, 2, 3, 4);
}
__global__ void copy_read_early(float4* out, const float4* in) {
    __shared__ float4 buffer[32];
    copy_async(buffer + threadIdx.x, in + threadIdx.x);
    asm volatile("cp.async.commit_group;");
    out[threadIdx.x] = buffer[threadIdx.x];  // FAULT copy_read_early [CUSIM_CHECK=init]: uninitialised shared memory
    asm volatile("cp.async.wait_group 0;" ::: "memory");
}
__global__ void copy_without_barrier(float4* out, const float4* in) {
    __shared__ float4 buffer[64];
    copy_async(buffer + threadIdx.x, in + threadIdx.x);
    asm volatile("cp.async.commit_group;\ncp.async.wait_group 0;" ::: "memory");
    out[threadIdx.x] = buffer[63 - threadIdx.x];  // FAULT copy_without_barrier [CUSIM_CHECK=race]: race on shared memory
}
__global__ void wait_for_later_block(volatile int* flag) {
    if (blockIdx.x == 1) *flag = 1;
    while (blockIdx.x == 0 && *flag == 0) {  // FAULT wait_for_later_block [CUSIM_BUDGET=100000]: instruction budget of 100000 used up
    }
}
__global__ void failed_assertion(int n) {
    assert(n > 3);  // FAULT failed_assertion: assertion `n > 3' failed
}
__global__ void trap_reached(int n) {
    if (n == 1) __trap();  // FAULT trap_reached: trap instruction
}
__global__ void mma_by_few(float* out) {
    float c[4] = {};
    asm volatile("mma.sync.aligned.m16n8k16.row.col.f32.bf16.bf16.f32 {%0,%1,%2,%3}, {%4,%4,%4,%4}, {%4,%4}, {%0,%1,%2,%3};"
                 : "+f"(c[0]), "+f"(c[1]), "+f"(c[2]), "+f"(c[3]) : "r"(0));  // FAULT mma_by_few: without all 32 lanes
    out[threadIdx.x] = c[0];
}
__global__ void unknown_instruction(int* out) {
    int x;
    asm volatile("frobnicate.b32 %0, 1;" : "=r"(x));  // FAULT unknown_instruction: unknown instruction
    *out = x;
}

int main(int argc, char** argv) {
    const char* name = argc > 1 ? argv[1] : "";
    auto is = [&](const char* n) {
        if (argc == 1) std::printf("%s\n", n);
        return std::strcmp(name, n) == 0;
    };
    float *p, *q;
    cudaMalloc(&p, 400);
    cudaMalloc(&q, 400);
    if (is("write_past_end")) write_past_end<<<1, 128>>>(p, 100);
    if (is("read_before")) cudaMemset(p, 0, 400), read_before<<<1, 32>>>(p, q);
    if (is("use_after_free")) cudaFree(q), use_pointer<<<1, 32>>>(q);
    if (is("host_pointer")) host_pointer<<<1, 1>>>(new float);
    if (is("null_pointer")) null_pointer<<<1, 1>>>(nullptr);
    if (is("symbol_past_end")) symbol_past_end<<<1, 1>>>(10);
    float4* short_one;
    cudaMalloc(&short_one, 100);
    if (is("vector_past_end")) vector_past_end<<<1, 7>>>(short_one);
    if (is("atomic_past_end")) atomic_past_end<<<1, 128>>>(reinterpret_cast<int*>(p));
    if (is("pinned_after_free")) {
        float* pinned;
        cudaMallocHost(&pinned, 400);
        cudaFreeHost(pinned);
        use_pinned<<<1, 32>>>(pinned);
    }
    if (is("misaligned_matrix")) misaligned_matrix<<<1, 32>>>(reinterpret_cast<uint32_t*>(p));
    if (is("barrier_in_loop")) barrier_in_loop<<<1, 64>>>(p);
    if (is("misaligned")) misaligned<<<1, 4>>>(reinterpret_cast<float4*>(q), p, 1);
    if (is("shared_past_end")) shared_past_end<<<1, 32, 128>>>(p, 1);
    if (is("local_past_end")) local_past_end<<<1, 1>>>(reinterpret_cast<int*>(p), 9);
    if (is("race_between_warps")) race_between_warps<<<1, 64>>>(p);
    if (is("race_within_warp")) race_within_warp<<<1, 32>>>(p);
    if (is("race_on_reuse")) race_on_reuse<<<1, 64>>>(p);
    if (is("plain_and_atomic")) plain_and_atomic<<<1, 64>>>(reinterpret_cast<int*>(p));
    if (is("uninitialised_shared")) uninitialised_shared<<<1, 64>>>(p);
    if (is("uninitialised_global")) uninitialised_global<<<1, 64>>>(p, q);
    if (is("barrier_in_branch")) barrier_in_branch<<<1, 64>>>(p);
    if (is("barrier_in_half_warp")) barrier_in_half_warp<<<1, 32>>>(p, 16);
    if (is("different_barriers")) different_barriers<<<1, 64>>>(p);
    if (is("named_barrier_short")) named_barrier_short<<<1, 64>>>(p);
    if (is("shuffle_in_branch")) shuffle_in_branch<<<1, 32>>>(p, 16);
    if (is("not_in_own_mask")) not_in_own_mask<<<1, 32>>>(p);
    float4 *from, *to;
    cudaMalloc(&from, 1024);
    cudaMalloc(&to, 1024);
    cudaMemset(from, 0, 1024);
    if (is("copy_never_waited")) copy_never_waited<<<1, 32>>>(to, from);
    if (is("copy_read_early")) copy_read_early<<<1, 32>>>(to, from);
    if (is("copy_without_barrier")) copy_without_barrier<<<1, 64>>>(to, from);
    if (is("wait_for_later_block")) cudaMemset(p, 0, 4), wait_for_later_block<<<2, 1>>>(reinterpret_cast<int*>(p));
    if (is("failed_assertion")) failed_assertion<<<1, 1>>>(2);
    if (is("trap_reached")) trap_reached<<<1, 1>>>(1);
    if (is("mma_by_few")) mma_by_few<<<1, 16>>>(p);

    if (is("unknown_instruction")) unknown_instruction<<<1, 1>>>(reinterpret_cast<int*>(p));

    // Faults outside kernels have no line to name; the test knows their texts.
    if (is("host_reads_device")) return int(p[3]);
    if (is("copy_past_end")) cudaMemcpy(p, argv[0], 401, cudaMemcpyHostToDevice);
    if (is("unknown_function")) cudaDeviceFlushGPUDirectRDMAWrites(cudaFlushGPUDirectRDMAWritesTargetCurrentDevice, cudaFlushGPUDirectRDMAWritesToOwner);
    if (is("free_twice")) cudaFree(q), std::printf("%s\n", cudaGetErrorName(cudaFree(q)));
    cudaError_t e = cudaDeviceSynchronize();
    if (argc > 1) std::printf("ended with %s\n", cudaGetErrorName(e));
    return e == cudaSuccess ? 0 : 3;
}
