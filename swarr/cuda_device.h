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

#include <algorithm>
#include <memory>
#include <string>
#include <vector>

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
    static constexpr bool on_host = false;
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
    // What can be had, less a share for what the runtime takes by itself later: code of kernels, graphs, NCCL's
    // buffers, and what is lost between blocks.
    double free_memory() const {
        size_t free = 0, total = 0;
        CUDA_CHECK(cudaMemGetInfo(&free, &total));
        return double(free) - std::min(double(free) / 64, double(512 << 20));
    }
    void zero(void* p, size_t bytes) { CUDA_CHECK(cudaMemsetAsync(p, 0, bytes, stream)); }
    // `from` may be used again on return.
    void upload(void* to, const void* from, size_t bytes) {
        if (bytes) CUDA_CHECK(cudaMemcpyAsync(to, from, bytes, cudaMemcpyHostToDevice, stream));
        // Other cards' drivers have taken their copy by now; one that reads the host's own pages (Grace) may not.
        if (properties.pageableMemoryAccessUsesHostPageTables) synchronize();
    }
    void download(void* to, const void* from, size_t bytes) {
        if (bytes) CUDA_CHECK(cudaMemcpyAsync(to, from, bytes, cudaMemcpyDeviceToHost, stream));
        synchronize();
    }
    void copy(void* to, const void* from, size_t bytes) {
        if (bytes) CUDA_CHECK(cudaMemcpyAsync(to, from, bytes, cudaMemcpyDeviceToDevice, stream));
    }
    // Numbers of a tensor (U: bf16 or float) from the host, and for the host to read; `space` holds them.
    template <class U>
    void put(U* to, const float* host, size_t n) {
        if constexpr (std::is_same_v<U, float>) {
            upload(to, host, n * sizeof(float));
        } else {
            std::vector<U> converted(n);
#pragma omp parallel for if (n > 1 << 16)
            for (size_t i = 0; i < n; i++) converted[i] = __float2bfloat16_rn(host[i]);
            upload(to, converted.data(), n * sizeof(U));
        }
    }
    template <class U>
    const float* view(const U* from, size_t n, std::vector<float>& space) {
        space.resize(n);
        if constexpr (std::is_same_v<U, float>) {
            download(space.data(), from, n * sizeof(float));
        } else {
            std::vector<U> raw(n);
            download(raw.data(), from, n * sizeof(U));
#pragma omp parallel for if (n > 1 << 16)
            for (size_t i = 0; i < n; i++) space[i] = __bfloat162float(raw[i]);
        }
        return space.data();
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
    // Work whose launches have the same arguments every time: the first time it runs as it is (and whatever it
    // needs is allocated), the second time it is recorded, and from then on it is one launch. `body` must not
    // wait or allocate. Buffers that it uses must stay where they are.
    class Graph {
      public:
        Graph() = default;
        Graph(const Graph&) = delete;
        Graph& operator=(const Graph&) = delete;
        ~Graph() {
            if (exec) cudaGraphExecDestroy(exec);
        }

      private:
        friend CudaDevice;
        bool ran = false;
        cudaGraphExec_t exec = nullptr;
    };
    template <class Body>
    void replay(Graph& g, Body body) {
        if (!g.ran) {
            body();
            g.ran = true;
            return;
        }
        if (!g.exec) {
            cudaGraph_t graph = nullptr;
            CUDA_CHECK(cudaStreamBeginCapture(stream, cudaStreamCaptureModeThreadLocal));
            try {
                body();
            } catch (...) {
                cudaStreamEndCapture(stream, &graph);
                if (graph) cudaGraphDestroy(graph);
                throw;
            }
            CUDA_CHECK(cudaStreamEndCapture(stream, &graph));
            cudaError_t status = cudaGraphInstantiate(&g.exec, graph, 0);
            cudaGraphDestroy(graph);
            CUDA_CHECK(status);
        }
        CUDA_CHECK(cudaGraphLaunch(g.exec, stream));
    }
    void synchronize() {
        CUDA_CHECK(cudaStreamSynchronize(stream));
    }
    int multiprocessors() const {
        return properties.multiProcessorCount;
    }

  private:
    void* scratch_ = nullptr;
    size_t scratch_bytes_ = 0;
};
