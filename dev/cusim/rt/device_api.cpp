// device_api.cpp: the device cusim pretends to be: the shape of a data-centre card of the configured
// capability.
#include <cstring>

#include "stream.h"

using namespace cusim;

namespace {

bool valid(int device) {
    return device >= 0 && device < options().devices;
}

}  // namespace

CUSIM_API cudaError_t cudaGetDeviceCount(int* count) {
    *count = options().devices;
    return *count ? done() : done(cudaErrorNoDevice);
}
CUSIM_API cudaError_t cudaSetDevice(int device) {
    Locked locked;
    if (!valid(device)) return done(cudaErrorInvalidDevice);
    Runtime::get().device = device;
    return done();
}
CUSIM_API cudaError_t cudaGetDevice(int* device) {
    *device = Runtime::get().device;
    return done();
}

CUSIM_API cudaError_t cudaGetDeviceProperties(cudaDeviceProp* p, int device) {
    if (!valid(device)) return done(cudaErrorInvalidDevice);
    *p = {};
    std::strcpy(p->name, "cusim");
    p->totalGlobalMem = options().memory_bytes;
    p->sharedMemPerBlock = 48 * 1024;
    p->sharedMemPerBlockOptin = 227 * 1024;
    p->sharedMemPerMultiprocessor = 228 * 1024;
    p->reservedSharedMemPerBlock = 1024;
    p->regsPerBlock = p->regsPerMultiprocessor = 65536;
    p->warpSize = 32;
    p->maxThreadsPerBlock = 1024;
    p->maxThreadsDim[0] = p->maxThreadsDim[1] = 1024;
    p->maxThreadsDim[2] = 64;
    p->maxGridSize[0] = 0x7fffffff;
    p->maxGridSize[1] = p->maxGridSize[2] = 65535;
    p->maxThreadsPerMultiProcessor = 2048;
    p->maxBlocksPerMultiProcessor = 32;
    p->multiProcessorCount = 4;
    p->totalConstMem = 65536;
    p->major = options().capability / 10;
    p->minor = options().capability % 10;
    p->l2CacheSize = 32 << 20;
    p->memoryBusWidth = 4096;
    p->memPitch = 0x7fffffff;
    p->textureAlignment = 512;
    p->concurrentKernels = p->unifiedAddressing = p->canMapHostMemory = p->managedMemory = 1;
    p->cooperativeLaunch = p->streamPrioritiesSupported = p->asyncEngineCount = p->hostRegisterSupported = 1;
    p->memoryPoolsSupported = 1;
    p->pciBusID = device + 1;
    return done();
}

CUSIM_API cudaError_t cudaDeviceGetAttribute(int* value, cudaDeviceAttr attribute, int device) {
    cudaDeviceProp p;
    if (cudaError_t e = cudaGetDeviceProperties(&p, device)) return e;
    switch (attribute) {
        case cudaDevAttrMaxThreadsPerBlock:
            *value = p.maxThreadsPerBlock;
            break;
        case cudaDevAttrMaxBlockDimX:
            *value = p.maxThreadsDim[0];
            break;
        case cudaDevAttrMaxBlockDimY:
            *value = p.maxThreadsDim[1];
            break;
        case cudaDevAttrMaxBlockDimZ:
            *value = p.maxThreadsDim[2];
            break;
        case cudaDevAttrMaxGridDimX:
            *value = p.maxGridSize[0];
            break;
        case cudaDevAttrMaxGridDimY:
            *value = p.maxGridSize[1];
            break;
        case cudaDevAttrMaxGridDimZ:
            *value = p.maxGridSize[2];
            break;
        case cudaDevAttrMaxSharedMemoryPerBlock:
            *value = int(p.sharedMemPerBlock);
            break;
        case cudaDevAttrMaxSharedMemoryPerBlockOptin:
            *value = int(p.sharedMemPerBlockOptin);
            break;
        case cudaDevAttrMaxSharedMemoryPerMultiprocessor:
            *value = int(p.sharedMemPerMultiprocessor);
            break;
        case cudaDevAttrReservedSharedMemoryPerBlock:
            *value = int(p.reservedSharedMemPerBlock);
            break;
        case cudaDevAttrTotalConstantMemory:
            *value = int(p.totalConstMem);
            break;
        case cudaDevAttrWarpSize:
            *value = p.warpSize;
            break;
        case cudaDevAttrMaxRegistersPerBlock:
            *value = p.regsPerBlock;
            break;
        case cudaDevAttrMaxRegistersPerMultiprocessor:
            *value = p.regsPerMultiprocessor;
            break;
        case cudaDevAttrMultiProcessorCount:
            *value = p.multiProcessorCount;
            break;
        case cudaDevAttrMaxThreadsPerMultiProcessor:
            *value = p.maxThreadsPerMultiProcessor;
            break;
        case cudaDevAttrMaxBlocksPerMultiprocessor:
            *value = p.maxBlocksPerMultiProcessor;
            break;
        case cudaDevAttrComputeCapabilityMajor:
            *value = p.major;
            break;
        case cudaDevAttrComputeCapabilityMinor:
            *value = p.minor;
            break;
        case cudaDevAttrL2CacheSize:
            *value = p.l2CacheSize;
            break;
        case cudaDevAttrClockRate:
            *value = 1000000;
            break;
        case cudaDevAttrMemoryClockRate:
            *value = 1000000;
            break;
        case cudaDevAttrGlobalMemoryBusWidth:
            *value = p.memoryBusWidth;
            break;
        case cudaDevAttrConcurrentKernels:
        case cudaDevAttrUnifiedAddressing:
        case cudaDevAttrManagedMemory:
        case cudaDevAttrCooperativeLaunch:
        case cudaDevAttrStreamPrioritiesSupported:
        case cudaDevAttrAsyncEngineCount:
        case cudaDevAttrCanMapHostMemory:
        case cudaDevAttrMemoryPoolsSupported:
            *value = 1;
            break;
        case cudaDevAttrIntegrated:
        case cudaDevAttrPageableMemoryAccess:
        case cudaDevAttrConcurrentManagedAccess:
        case cudaDevAttrHostNativeAtomicSupported:
        case cudaDevAttrClusterLaunch:
            *value = 0;
            break;
        default:
            stop(
                text("device attribute %d is not known; extend dev/cusim/rt/device_api.cpp", int(attribute)));
    }
    return done();
}

CUSIM_API cudaError_t cudaDriverGetVersion(int* version) {
    *version = CUDART_VERSION;
    return done();
}
CUSIM_API cudaError_t cudaRuntimeGetVersion(int* version) {
    *version = CUDART_VERSION;
    return done();
}
CUSIM_API cudaError_t cudaDeviceReset() {
    return cudaDeviceSynchronize();
}
CUSIM_API cudaError_t cudaDeviceGetStreamPriorityRange(int* least, int* greatest) {
    if (least) *least = 0;
    if (greatest) *greatest = -5;
    return done();
}
CUSIM_API cudaError_t cudaDeviceCanAccessPeer(int* can, int, int) {
    *can = 0;
    return done();
}
CUSIM_API cudaError_t cudaDeviceEnablePeerAccess(int, unsigned) {
    return done(cudaErrorPeerAccessUnsupported);
}
CUSIM_API cudaError_t cudaDeviceSetCacheConfig(cudaFuncCache) {
    return done();
}
CUSIM_API cudaError_t cudaDeviceGetPCIBusId(char* out, int bytes, int device) {
    if (!valid(device) || bytes < 13) return done(cudaErrorInvalidValue);
    std::snprintf(out, size_t(bytes), "0000:%02x:00.0", device + 1);
    return done();
}
CUSIM_API cudaError_t cudaSetDeviceFlags(unsigned) {
    return done();
}
CUSIM_API cudaError_t cudaInitDevice(int device, unsigned, unsigned) {
    return done(valid(device) ? cudaSuccess : cudaErrorInvalidDevice);
}

CUSIM_API cudaError_t cudaDeviceSetLimit(cudaLimit, size_t) {
    return done();
}
CUSIM_API cudaError_t cudaDeviceGetLimit(size_t* value, cudaLimit limit) {
    *value = limit == cudaLimitStackSize ? 1024 : limit == cudaLimitPrintfFifoSize ? 1 << 20 : 0;
    return done();
}

// One pool without settings: cudaMallocAsync takes from the same memory as cudaMalloc.
CUSIM_API cudaError_t cudaDeviceGetDefaultMemPool(cudaMemPool_t* pool, int) {
    static char the_pool;
    *pool = reinterpret_cast<cudaMemPool_t>(&the_pool);
    return done();
}
CUSIM_API cudaError_t cudaMemPoolSetAttribute(cudaMemPool_t, cudaMemPoolAttr, void*) {
    return done();
}
CUSIM_API cudaError_t cudaMemPoolTrimTo(cudaMemPool_t, size_t) {
    return done();
}

CUSIM_API cudaError_t cudaProfilerStart() {
    return done();
}
CUSIM_API cudaError_t cudaProfilerStop() {
    return done();
}
