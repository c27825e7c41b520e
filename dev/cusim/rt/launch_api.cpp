// launch_api.cpp: kernel launches, function attributes, occupancy.
#include <algorithm>
#include <cstring>

#include "../exec/counters.h"
#include "stream.h"

namespace cusim {

namespace {

constexpr int kMaxThreads = 1024, kSharedPerBlock = 48 * 1024, kSharedOptIn = 227 * 1024,
              kSharedPerSm = 228 * 1024;

struct CallConfiguration {
    dim3 grid, block;
    size_t shared;
    cudaStream_t stream;
};
std::vector<CallConfiguration>& configurations() {
    thread_local std::vector<CallConfiguration> stack;
    return stack;
}

KernelEntry* entry_of(const void* function) {
    auto it = Runtime::get().kernels.find(function);
    return it == Runtime::get().kernels.end() ? nullptr : &it->second;
}

void execute(Launch& launch) {
    Runtime& r = Runtime::get();
    if (r.sticky) return;
    launch.memory = &r.memory;
    launch.counters = counters_of(*launch.kernel);
    launch.budget = options().budget;
    launch.instructions = 0;
    if (launch.cooperative) {  // where the blocks count themselves at grid barriers
        Allocation* a = r.memory.allocate(4096, Allocation::Symbol, "grid barrier");
        if (!a) stop("no memory for a cooperative launch");
        launch.grid_workspace = a->start;
    }
    try {
        run_launch(launch);
    } catch (const KernelFault& f) {
        report_fault(f.what(), cudaError_t(f.cuda_error));
    }
    if (launch.cooperative) r.memory.release(launch.grid_workspace, Allocation::Symbol);
    if (launch.counters) finish_counting(*launch.counters, *launch.kernel);
}

cudaError_t launch_kernel(const void* function, dim3 grid, dim3 block, void** args, size_t shared,
                          cudaStream_t handle, bool cooperative) {
    Locked locked;
    Runtime& r = Runtime::get();
    KernelEntry* entry = entry_of(function);
    if (!entry) return done(cudaErrorInvalidDeviceFunction);
    CUstream_st* stream = stream_of(handle);
    if (!stream) return done(cudaErrorInvalidResourceHandle);
    if (r.sticky) return done();
    u64 threads = u64(block.x) * block.y * block.z;
    if (!threads || threads > u64(kMaxThreads) || block.z > 64) return done(cudaErrorInvalidConfiguration);
    if (!grid.x || !grid.y || !grid.z || grid.x > 0x7fffffff || grid.y > 65535 || grid.z > 65535)
        return done(cudaErrorInvalidConfiguration);
    Kernel& kernel = r.kernel(*entry);
    if (threads > kernel.max_threads) {
        std::fprintf(
            stderr,
            "cusim: error: %s: %llu threads per block, but __launch_bounds__ or the hardware allows %u\n",
            kernel.name.c_str(), (unsigned long long)threads, kernel.max_threads);
        return done(cudaErrorInvalidValue);
    }
    if (shared > size_t(entry->max_dynamic_shared) ||
        kernel.dynamic_shared_offset + shared > size_t(kSharedOptIn))
        return done(cudaErrorInvalidValue);
    auto launch = std::make_shared<Launch>();
    launch->kernel = &kernel;
    launch->grid = {grid.x, grid.y, grid.z};
    launch->block = {block.x, block.y, block.z};
    launch->dynamic_shared = u32(shared);
    launch->cooperative = cooperative;
    launch->params.resize(kernel.param_bytes + 16);
    for (size_t k = 0; k < kernel.params.size(); k++)
        std::memcpy(&launch->params[kernel.params[k].offset], args[k], kernel.params[k].bytes);
    enqueue(stream, kernel.name.c_str(), [launch] { execute(*launch); });
    return done();
}

}  // namespace

}  // namespace cusim

using namespace cusim;

CUSIM_API unsigned __cudaPushCallConfiguration(dim3 grid, dim3 block, size_t shared, cudaStream_t stream) {
    configurations().push_back({grid, block, shared, stream});
    return 0;
}
CUSIM_API cudaError_t __cudaPopCallConfiguration(dim3* grid, dim3* block, size_t* shared, void* stream) {
    if (configurations().empty()) return done(cudaErrorMissingConfiguration);
    CallConfiguration c = configurations().back();
    configurations().pop_back();
    *grid = c.grid;
    *block = c.block;
    *shared = c.shared;
    *static_cast<cudaStream_t*>(stream) = c.stream;
    return cudaSuccess;
}

// A kernel handle is the host function's address.
CUSIM_API cudaError_t __cudaGetKernel(cudaKernel_t* kernel, const void* function) {
    *kernel = reinterpret_cast<cudaKernel_t>(const_cast<void*>(function));
    return cudaSuccess;
}
CUSIM_API cudaError_t cudaGetKernel(cudaKernel_t* kernel, const void* function) {
    return __cudaGetKernel(kernel, function);
}
CUSIM_API cudaError_t cudaGetFuncBySymbol(cudaFunction_t* f, const void* function) {
    *f = reinterpret_cast<cudaFunction_t>(const_cast<void*>(function));
    return done();
}

CUSIM_API cudaError_t __cudaLaunchKernel(cudaKernel_t kernel, dim3 grid, dim3 block, void** args,
                                         size_t shared, cudaStream_t s) {
    return launch_kernel(reinterpret_cast<const void*>(kernel), grid, block, args, shared, s, false);
}
CUSIM_API cudaError_t cudaLaunchKernel(const void* f, dim3 grid, dim3 block, void** args, size_t shared,
                                       cudaStream_t s) {
    return launch_kernel(f, grid, block, args, shared, s, false);
}
CUSIM_API cudaError_t cudaLaunchCooperativeKernel(const void* f, dim3 grid, dim3 block, void** args,
                                                  size_t shared, cudaStream_t s) {
    return launch_kernel(f, grid, block, args, shared, s, true);
}

CUSIM_API cudaError_t cudaLaunchKernelExC(const cudaLaunchConfig_t* config, const void* f, void** args) {
    bool cooperative = false;
    for (unsigned k = 0; k < config->numAttrs; k++) {
        const cudaLaunchAttribute& a = config->attrs[k];
        switch (a.id) {
            case cudaLaunchAttributeCooperative:
                cooperative = a.val.cooperative != 0;
                break;
            case cudaLaunchAttributeClusterDimension:
                if (a.val.clusterDim.x * a.val.clusterDim.y * a.val.clusterDim.z == 1) break;
                stop("thread block clusters are not supported; extend dev/cusim/rt/launch_api.cpp");
            // Neither changes results when operations of a stream run one after another.
            case cudaLaunchAttributeProgrammaticStreamSerialization:
            case cudaLaunchAttributePriority:
            case cudaLaunchAttributeAccessPolicyWindow:
            case cudaLaunchAttributeIgnore:
            case cudaLaunchAttributePreferredSharedMemoryCarveout:
                break;
            default:
                stop(text("launch attribute %d is not known; extend dev/cusim/rt/launch_api.cpp", int(a.id)));
        }
    }
    return launch_kernel(f, config->gridDim, config->blockDim, args, config->dynamicSmemBytes, config->stream,
                         cooperative);
}

CUSIM_API cudaError_t cudaFuncSetAttribute(const void* f, cudaFuncAttribute attribute, int value) {
    Locked locked;
    KernelEntry* entry = entry_of(f);
    if (!entry) return done(cudaErrorInvalidDeviceFunction);
    switch (attribute) {
        case cudaFuncAttributeMaxDynamicSharedMemorySize:
            if (value < 0 || value > kSharedOptIn - int(Runtime::get().kernel(*entry).static_shared))
                return done(cudaErrorInvalidValue);
            entry->max_dynamic_shared = value;
            return done();
        case cudaFuncAttributePreferredSharedMemoryCarveout:
            return done();
        default:
            stop(text("function attribute %d is not known; extend dev/cusim/rt/launch_api.cpp",
                      int(attribute)));
    }
}
CUSIM_API cudaError_t cudaFuncSetCacheConfig(const void*, cudaFuncCache) {
    return done();
}

// The name as it stands in the PTX, mangled.
CUSIM_API cudaError_t cudaFuncGetName(const char** name, const void* f) {
    Locked locked;
    KernelEntry* entry = entry_of(f);
    if (!name) return done(cudaErrorInvalidValue);
    if (!entry) return done(cudaErrorInvalidDeviceFunction);
    *name = entry->name.c_str();
    return done();
}

CUSIM_API cudaError_t cudaFuncGetAttributes(cudaFuncAttributes* out, const void* f) {
    Locked locked;
    KernelEntry* entry = entry_of(f);
    if (!entry) return done(cudaErrorInvalidDeviceFunction);
    Kernel& k = Runtime::get().kernel(*entry);
    *out = {};
    out->sharedSizeBytes = k.static_shared;
    out->localSizeBytes = k.local_bytes;
    out->maxThreadsPerBlock = int(k.max_threads);
    // What a warp's packed columns amount to; ptxas decides the true number.
    out->numRegs = int(std::min<u32>(k.register_bytes / 128, 255));
    out->ptxVersion = out->binaryVersion = options().capability;
    out->maxDynamicSharedSizeBytes = entry->max_dynamic_shared;
    return done();
}

// By threads and shared memory alone: registers are ptxas's matter.
CUSIM_API cudaError_t cudaOccupancyMaxActiveBlocksPerMultiprocessorWithFlags(int* blocks, const void* f,
                                                                             int threads, size_t shared,
                                                                             unsigned) {
    Locked locked;
    KernelEntry* entry = entry_of(f);
    if (!entry) return done(cudaErrorInvalidDeviceFunction);
    if (threads <= 0 || threads > kMaxThreads) return done(cudaErrorInvalidValue);
    size_t bytes = Runtime::get().kernel(*entry).dynamic_shared_offset + shared + 1024;
    *blocks =
        int(std::min<size_t>({size_t(2048 / ((threads + 31) / 32 * 32)), size_t(kSharedPerSm) / bytes, 32}));
    return done();
}
CUSIM_API cudaError_t cudaOccupancyMaxActiveBlocksPerMultiprocessor(int* blocks, const void* f, int threads,
                                                                    size_t shared) {
    return cudaOccupancyMaxActiveBlocksPerMultiprocessorWithFlags(blocks, f, threads, shared, 0);
}
CUSIM_API cudaError_t cudaOccupancyAvailableDynamicSMemPerBlock(size_t* bytes, const void* f, int blocks,
                                                                int) {
    Locked locked;
    KernelEntry* entry = entry_of(f);
    if (!entry || blocks <= 0) return done(cudaErrorInvalidValue);
    size_t used = Runtime::get().kernel(*entry).dynamic_shared_offset + 1024,
           each = size_t(kSharedPerSm / blocks);
    *bytes = each > used ? std::min<size_t>(each - used, size_t(kSharedOptIn)) : 0;
    return done();
}
