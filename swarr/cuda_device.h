// cuda_device.h: the CUDA device: memory, one stream, cuBLASLt's handle, and errors with names.
//
//   CudaDevice<bf16>  : weights and activations in bfloat16; everything that is summed in float
//   CudaDevice<float> : the same kernels in float, for tests and for cards without bfloat16
//
// Only the host side stands here, so that any compiler can read it. Kernels stand in the last part of each
// layers/*.cuh, between #ifdef __CUDACC__ and #endif, and are compiled once, in kernels.cu; a program sees
// the launchers' declarations (#ifdef SWARR_CUDA) and is linked with kernels.o.
//
// Everything runs in order on `stream`. upload() and download() are the only ways between host and device;
// download() waits for what was launched before it. Launchers never wait.
#pragma once
#include <cublasLt.h>
#include <cuda_bf16.h>
#include <cuda_runtime.h>

#include <memory>
#include <string>

#include "base.h"

using bf16 = __nv_bfloat16;

// Throws if a CUDA call failed. `what`: the call, or the kernel's name.
inline void cuda_check(cudaError_t status, const char* what, const char* file, int line) {
    if (status == cudaSuccess) return;
    fail(format("CUDA: %s (%s:%d): %s", what, file, line, cudaGetErrorString(status)),
         status == cudaErrorMemoryAllocation ? "lower --max-tokens-per-pass or --slots, or raise --recompute"
                                             : "run again with CUDA_LAUNCH_BLOCKING=1, or --device cpu");
}
#define CUDA_CHECK(call) cuda_check((call), #call, __FILE__, __LINE__)

struct MatmulPlans;  // layers/matmul.cuh

template <class Real>
struct CudaDevice {
    using real = Real;   // weights, activations and their gradients
    using stat = float;  // statistics of rows, logits, losses, parameters' gradients, the optimizer's state
    static constexpr bool packs_weights = false;
    static constexpr size_t blas_bytes = size_t(32) << 20;

    MemoryUse memory;
    int ordinal;
    cudaDeviceProp properties;
    cudaStream_t stream = nullptr;
    cublasLtHandle_t blas = nullptr;
    void* blas_workspace = nullptr;
    std::shared_ptr<MatmulPlans> matmul_plans;  // made by the first product

    // Errors: no such device; a card older than Ampere (compute capability 8.0).
    explicit CudaDevice(int ordinal = 0) : ordinal(ordinal) {
        CUDA_CHECK(cudaSetDevice(ordinal));
        CUDA_CHECK(cudaGetDeviceProperties(&properties, ordinal));
        if (properties.major < 8)
            fail(format("device %d, %s, has compute capability %d.%d", ordinal, properties.name,
                        properties.major, properties.minor),
                 "8.0 or newer is needed (Ampere: A100, RTX 30); or use --device cpu");
        CUDA_CHECK(cudaStreamCreateWithFlags(&stream, cudaStreamNonBlocking));
        if (cublasLtCreate(&blas) != CUBLAS_STATUS_SUCCESS)
            fail("cuBLASLt cannot be started", "do the driver and the CUDA toolkit belong together?");
        blas_workspace = allocate(blas_bytes, Memory::workspace);
    }
    ~CudaDevice() {
        release(scratch_, scratch_bytes_, Memory::workspace);
        release(blas_workspace, blas_bytes, Memory::workspace);
        if (blas) cublasLtDestroy(blas);
        if (stream) cudaStreamDestroy(stream);
    }
    CudaDevice(const CudaDevice&) = delete;
    CudaDevice& operator=(const CudaDevice&) = delete;

    // 256-byte aligned and zeroed.
    void* allocate(size_t bytes, Memory category) {
        if (bytes == 0) return nullptr;
        void* p = nullptr;
        cudaError_t status = cudaMalloc(&p, bytes);
        if (status != cudaSuccess) {
            cudaGetLastError();
            size_t free = 0, total = 0;
            cudaMemGetInfo(&free, &total);
            fail(format("cannot allocate %s for %s on device %d (%s): %s of %s are free",
                        bytes_text(double(bytes)).c_str(), memory_name(category), ordinal, properties.name,
                        bytes_text(double(free)).c_str(), bytes_text(double(total)).c_str()),
                 "lower --max-tokens-per-pass or --slots, or raise --recompute");
        }
        memory.add(category, bytes);
        zero(p, bytes);
        return p;
    }
    void release(void* p, size_t bytes, Memory category) {
        if (!p) return;
        cudaFree(p);  // waits for the kernels that use it
        memory.remove(category, bytes);
    }
    void zero(void* p, size_t bytes) { CUDA_CHECK(cudaMemsetAsync(p, 0, bytes, stream)); }
    // `from` may be used again on return.
    void upload(void* to, const void* from, size_t bytes) {
        if (bytes) CUDA_CHECK(cudaMemcpyAsync(to, from, bytes, cudaMemcpyHostToDevice, stream));
    }
    void download(void* to, const void* from, size_t bytes) {
        if (bytes) CUDA_CHECK(cudaMemcpyAsync(to, from, bytes, cudaMemcpyDeviceToHost, stream));
        synchronize();
    }
    void copy(void* to, const void* from, size_t bytes) {
        if (bytes) CUDA_CHECK(cudaMemcpyAsync(to, from, bytes, cudaMemcpyDeviceToDevice, stream));
    }
    // Workspace for one launcher, not zeroed; the next call may give the same memory. It grows when it must,
    // which is an error while a graph is captured: run once before.
    void* scratch(size_t bytes) {
        if (bytes > scratch_bytes_) {
            release(scratch_, scratch_bytes_, Memory::workspace);
            scratch_ = nullptr, scratch_bytes_ = 0;
            scratch_ = allocate(bytes, Memory::workspace);
            scratch_bytes_ = bytes;
        }
        return scratch_;
    }
    void synchronize() { CUDA_CHECK(cudaStreamSynchronize(stream)); }
    int multiprocessors() const { return properties.multiProcessorCount; }

  private:
    void* scratch_ = nullptr;
    size_t scratch_bytes_ = 0;
};
