// memory_api.cpp: allocation, copies, fills, symbols, pointer queries.
//
// Copies follow the documented rules: pageable host memory is read when the call is made (the real driver
// stages it), pinned memory when the copy runs; a copy into pageable memory returns when it has arrived.
#include <sys/mman.h>

#include <cstring>

#include "stream.h"

namespace cusim {

namespace {

Memory& memory() {
    return Runtime::get().memory;
}
u64 address_of(const void* p) {
    return reinterpret_cast<u64>(p);
}

// One side of a copy.
struct Side {
    bool device = false, pinned = false;
    char* bytes = nullptr;
};

// `p` as the program means it by `kind`. A device address outside every allocation, or one that runs out of
// its allocation, ends the program with the call's name.
Side side(const void* p, size_t bytes, bool is_device, const char* call) {
    Side s;
    u64 a = address_of(p);
    Allocation* found = memory().find(a);
    s.device = is_device || memory().is_reserved(a) || (found && found->kind != Allocation::Pinned);
    s.pinned = found && found->kind == Allocation::Pinned;
    if (found && found->contains(a, bytes)) {
        s.bytes = found->data + (a - found->start);
    } else if (s.device || found) {
        report_fault(text("%s: invalid device range of %zu bytes at %p: %s", call, bytes, p,
                          memory().explain(a).c_str()),
                     cudaErrorInvalidValue);
    } else {
        s.bytes = static_cast<char*>(const_cast<void*>(p));
    }
    return s;
}

void copy_marks(u64 to, u64 from, size_t bytes) {
    if (!options().check_init) return;
    Allocation *t = memory().find(to), *f = memory().find(from);
    if (!t || t->written.empty()) return;
    u8* mark = &t->written[to - t->start];
    if (f && !f->written.empty())
        std::memcpy(mark, &f->written[from - f->start], bytes);
    else
        std::memset(mark, 1, bytes);
}

struct Copy {
    void* to;
    const void* from;
    size_t width, height, to_pitch, from_pitch;  // rows; one row for plain copies
    size_t to_bytes() const { return height ? (height - 1) * to_pitch + width : 0; }
    size_t from_bytes() const { return height ? (height - 1) * from_pitch + width : 0; }
};

cudaError_t copy(const char* call, Copy c, cudaMemcpyKind kind, cudaStream_t handle, bool async) {
    Locked locked;
    CUstream_st* stream = stream_of(handle);
    if (!stream) return done(cudaErrorInvalidResourceHandle);
    if (c.width == 0 || c.height == 0) return done();
    if (!c.to || !c.from) return done(cudaErrorInvalidValue);
    if (kind < cudaMemcpyHostToHost || kind > cudaMemcpyDefault) return done(cudaErrorInvalidMemcpyDirection);
    if (!async && forbidden_by_capture()) return done(cudaErrorStreamCaptureUnsupported);
    Side to =
        side(c.to, c.to_bytes(), kind == cudaMemcpyHostToDevice || kind == cudaMemcpyDeviceToDevice, call);
    Side from = side(c.from, c.from_bytes(),
                     kind == cudaMemcpyDeviceToHost || kind == cudaMemcpyDeviceToDevice, call);
    if (!to.bytes || !from.bytes) return done();
    bool claims_host_to = kind == cudaMemcpyDeviceToHost || kind == cudaMemcpyHostToHost;
    bool claims_host_from = kind == cudaMemcpyHostToDevice || kind == cudaMemcpyHostToHost;
    if ((claims_host_to && to.device && memory().is_reserved(address_of(c.to))) ||
        (claims_host_from && from.device && memory().is_reserved(address_of(c.from)))) {
        std::fprintf(stderr, "cusim: error: %s: the direction contradicts the pointers\n", call);
        return done(cudaErrorInvalidValue);
    }
    std::shared_ptr<std::vector<char>> staged;
    if (!from.device && !from.pinned && async && options().lazy_streams && !stream->capture)
        staged = std::make_shared<std::vector<char>>(from.bytes, from.bytes + c.from_bytes());
    bool check_live = to.device || from.device;
    enqueue(stream, call, [=] {
        // The memory may have been freed in the meantime: look again.
        char* t = check_live && to.device ? side(c.to, c.to_bytes(), true, call).bytes : to.bytes;
        const char* f = staged        ? staged->data()
                        : from.device ? side(c.from, c.from_bytes(), true, call).bytes
                                      : from.bytes;
        if (!t || !f) return;
        for (size_t row = 0; row < c.height; row++) {
            std::memmove(t + row * c.to_pitch, f + row * c.from_pitch, c.width);
            copy_marks(address_of(c.to) + row * c.to_pitch, address_of(c.from) + row * c.from_pitch, c.width);
        }
    });
    bool arrives_at_pageable = !to.device && !to.pinned;
    if (!stream->capture && (!async || arrives_at_pageable)) run_stream(stream);
    return done();
}

cudaError_t fill(const char* call, void* p, size_t pitch, int value, size_t width, size_t height,
                 cudaStream_t handle, bool async) {
    Locked locked;
    CUstream_st* stream = stream_of(handle);
    if (!stream) return done(cudaErrorInvalidResourceHandle);
    if (width == 0 || height == 0) return done();
    size_t bytes = (height - 1) * pitch + width;
    if (!side(p, bytes, true, call).bytes) return done();
    enqueue(stream, call, [=] {
        Side to = side(p, bytes, true, call);
        if (!to.bytes) return;
        for (size_t row = 0; row < height; row++) {
            std::memset(to.bytes + row * pitch, value, width);
            memory().mark_written(address_of(p) + row * pitch, width);
        }
    });
    if (!async && !stream->capture) run_stream(stream);
    return done();
}

cudaError_t allocate(void** p, size_t bytes, Allocation::Kind kind, bool async = false) {
    Locked locked;
    if (!p) return done(cudaErrorInvalidValue);
    *p = nullptr;
    if (!async && forbidden_by_capture()) return done(cudaErrorStreamCaptureUnsupported);
    if (bytes == 0) return done();
    Allocation* a = memory().allocate(bytes, kind);
    if (!a) return done(cudaErrorMemoryAllocation);
    *p = reinterpret_cast<void*>(a->start);
    return done();
}

}  // namespace

}  // namespace cusim

using namespace cusim;

CUSIM_API cudaError_t cudaMalloc(void** p, size_t bytes) {
    return allocate(p, bytes, Allocation::Device);
}
CUSIM_API cudaError_t cudaMallocAsync(void** p, size_t bytes, cudaStream_t) {
    return allocate(p, bytes, Allocation::Device, true);
}
CUSIM_API cudaError_t cudaMallocManaged(void** p, size_t bytes, unsigned) {
    return allocate(p, bytes, Allocation::Managed);
}
CUSIM_API cudaError_t cudaMallocPitch(void** p, size_t* pitch, size_t width, size_t height) {
    *pitch = (width + 511) / 512 * 512;
    return allocate(p, *pitch * height, Allocation::Device);
}

CUSIM_API cudaError_t cudaFree(void* p) {
    Locked locked;
    if (!p) return done();
    if (forbidden_by_capture()) return done(cudaErrorStreamCaptureUnsupported);
    run_all();
    u64 a = reinterpret_cast<u64>(p);
    if (memory().release(a, Allocation::Device) || memory().release(a, Allocation::Managed)) return done();
    std::fprintf(stderr, "cusim: error: cudaFree(%p): %s\n", p, memory().explain(a).c_str());
    return done(cudaErrorInvalidValue);
}
CUSIM_API cudaError_t cudaFreeAsync(void* p, cudaStream_t handle) {
    Locked locked;
    CUstream_st* s = stream_of(handle);
    if (!s) return done(cudaErrorInvalidResourceHandle);
    if (!p) return done();
    if (!memory().find(reinterpret_cast<u64>(p))) return done(cudaErrorInvalidValue);
    enqueue(s, "cudaFreeAsync", [p] { memory().release(reinterpret_cast<u64>(p), Allocation::Device); });
    return done();
}

CUSIM_API cudaError_t cudaHostAlloc(void** p, size_t bytes, unsigned) {
    Locked locked;
    *p = nullptr;
    if (forbidden_by_capture()) return done(cudaErrorStreamCaptureUnsupported);
    if (bytes == 0) return done();
    size_t size = (bytes + 4095) / 4096 * 4096;
    void* at = mmap(nullptr, size, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    if (at == MAP_FAILED) return done(cudaErrorMemoryAllocation);
    memory().add_host(at, bytes, Allocation::Pinned);
    *p = at;
    return done();
}
CUSIM_API cudaError_t cudaMallocHost(void** p, size_t bytes) {
    return cudaHostAlloc(p, bytes, 0);
}
CUSIM_API cudaError_t cudaFreeHost(void* p) {
    Locked locked;
    if (!p) return done();
    if (forbidden_by_capture()) return done(cudaErrorStreamCaptureUnsupported);
    run_all();
    Allocation* a = memory().find(reinterpret_cast<u64>(p));
    if (!a || a->start != reinterpret_cast<u64>(p) || a->kind != Allocation::Pinned)
        return done(cudaErrorInvalidValue);
    size_t size = (a->size + 4095) / 4096 * 4096;
    memory().release(a->start, Allocation::Pinned);
    munmap(p, size);
    return done();
}
CUSIM_API cudaError_t cudaHostRegister(void* p, size_t bytes, unsigned) {
    Locked locked;
    if (!p || !bytes) return done(cudaErrorInvalidValue);
    if (memory().find(reinterpret_cast<u64>(p))) return done(cudaErrorHostMemoryAlreadyRegistered);
    memory().add_host(p, bytes, Allocation::Pinned);
    return done();
}
CUSIM_API cudaError_t cudaHostUnregister(void* p) {
    Locked locked;
    run_all();
    return done(memory().release(reinterpret_cast<u64>(p), Allocation::Pinned)
                    ? cudaSuccess
                    : cudaErrorHostMemoryNotRegistered);
}
CUSIM_API cudaError_t cudaHostGetDevicePointer(void** device, void* host, unsigned) {
    Locked locked;
    if (!memory().find(reinterpret_cast<u64>(host))) return done(cudaErrorInvalidValue);
    *device = host;
    return done();
}

CUSIM_API cudaError_t cudaMemcpy(void* to, const void* from, size_t n, cudaMemcpyKind kind) {
    return copy("cudaMemcpy", {to, from, n, 1, 0, 0}, kind, nullptr, false);
}
CUSIM_API cudaError_t cudaMemcpyAsync(void* to, const void* from, size_t n, cudaMemcpyKind kind,
                                      cudaStream_t s) {
    return copy("cudaMemcpyAsync", {to, from, n, 1, 0, 0}, kind, s, true);
}
CUSIM_API cudaError_t cudaMemcpyPeer(void* to, int, const void* from, int, size_t n) {
    return copy("cudaMemcpyPeer", {to, from, n, 1, 0, 0}, cudaMemcpyDeviceToDevice, nullptr, false);
}
CUSIM_API cudaError_t cudaMemcpyPeerAsync(void* to, int, const void* from, int, size_t n, cudaStream_t s) {
    return copy("cudaMemcpyPeerAsync", {to, from, n, 1, 0, 0}, cudaMemcpyDeviceToDevice, s, true);
}
CUSIM_API cudaError_t cudaMemcpy2D(void* to, size_t to_pitch, const void* from, size_t from_pitch,
                                   size_t width, size_t height, cudaMemcpyKind kind) {
    return copy("cudaMemcpy2D", {to, from, width, height, to_pitch, from_pitch}, kind, nullptr, false);
}
CUSIM_API cudaError_t cudaMemcpy2DAsync(void* to, size_t to_pitch, const void* from, size_t from_pitch,
                                        size_t width, size_t height, cudaMemcpyKind kind, cudaStream_t s) {
    return copy("cudaMemcpy2DAsync", {to, from, width, height, to_pitch, from_pitch}, kind, s, true);
}
CUSIM_API cudaError_t cudaMemset(void* p, int value, size_t n) {
    return fill("cudaMemset", p, n, value, n, 1, nullptr, true);
}
CUSIM_API cudaError_t cudaMemsetAsync(void* p, int value, size_t n, cudaStream_t s) {
    return fill("cudaMemsetAsync", p, n, value, n, 1, s, true);
}
CUSIM_API cudaError_t cudaMemset2D(void* p, size_t pitch, int value, size_t width, size_t height) {
    return fill("cudaMemset2D", p, pitch, value, width, height, nullptr, true);
}
CUSIM_API cudaError_t cudaMemset2DAsync(void* p, size_t pitch, int value, size_t width, size_t height,
                                        cudaStream_t s) {
    return fill("cudaMemset2DAsync", p, pitch, value, width, height, s, true);
}

// ---- symbols
// -----------------------------------------------------------------------------------------------------------

CUSIM_API cudaError_t cudaGetSymbolAddress(void** p, const void* symbol) {
    Locked locked;
    auto it = Runtime::get().symbols.find(symbol);
    if (it == Runtime::get().symbols.end()) return done(cudaErrorInvalidSymbol);
    *p = reinterpret_cast<void*>(Runtime::get().symbol_address(it->second));
    return done();
}
CUSIM_API cudaError_t cudaGetSymbolSize(size_t* bytes, const void* symbol) {
    Locked locked;
    auto it = Runtime::get().symbols.find(symbol);
    if (it == Runtime::get().symbols.end()) return done(cudaErrorInvalidSymbol);
    *bytes = it->second.bytes;
    return done();
}

namespace {
cudaError_t copy_symbol(const char* call, const void* symbol, void* other, size_t n, size_t offset,
                        cudaMemcpyKind kind, cudaStream_t s, bool async, bool to_symbol) {
    Locked locked;
    void* p;
    if (cudaError_t e = cudaGetSymbolAddress(&p, symbol)) return e;
    size_t size = Runtime::get().symbols.find(symbol)->second.bytes;
    if (offset > size || n > size - offset) return done(cudaErrorInvalidValue);
    char* at = static_cast<char*>(p) + offset;
    return to_symbol ? copy(call, {at, other, n, 1, 0, 0}, kind, s, async)
                     : copy(call, {other, at, n, 1, 0, 0}, kind, s, async);
}
}  // namespace

CUSIM_API cudaError_t cudaMemcpyToSymbol(const void* symbol, const void* from, size_t n, size_t offset,
                                         cudaMemcpyKind kind) {
    return copy_symbol("cudaMemcpyToSymbol", symbol, const_cast<void*>(from), n, offset, kind, nullptr, false,
                       true);
}
CUSIM_API cudaError_t cudaMemcpyToSymbolAsync(const void* symbol, const void* from, size_t n, size_t offset,
                                              cudaMemcpyKind kind, cudaStream_t s) {
    return copy_symbol("cudaMemcpyToSymbolAsync", symbol, const_cast<void*>(from), n, offset, kind, s, true,
                       true);
}
CUSIM_API cudaError_t cudaMemcpyFromSymbol(void* to, const void* symbol, size_t n, size_t offset,
                                           cudaMemcpyKind kind) {
    return copy_symbol("cudaMemcpyFromSymbol", symbol, to, n, offset, kind, nullptr, false, false);
}
CUSIM_API cudaError_t cudaMemcpyFromSymbolAsync(void* to, const void* symbol, size_t n, size_t offset,
                                                cudaMemcpyKind kind, cudaStream_t s) {
    return copy_symbol("cudaMemcpyFromSymbolAsync", symbol, to, n, offset, kind, s, true, false);
}

CUSIM_API cudaError_t cudaPointerGetAttributes(cudaPointerAttributes* out, const void* p) {
    Locked locked;
    *out = {};
    Allocation* a = memory().find(reinterpret_cast<u64>(p));
    out->device = Runtime::get().device;
    if (!a) {
        out->type = cudaMemoryTypeUnregistered;
        out->device = cudaInvalidDeviceId;
        return done();
    }
    out->type = a->kind == Allocation::Pinned    ? cudaMemoryTypeHost
                : a->kind == Allocation::Managed ? cudaMemoryTypeManaged
                                                 : cudaMemoryTypeDevice;
    out->devicePointer = const_cast<void*>(p);
    out->hostPointer = out->type == cudaMemoryTypeDevice ? nullptr : const_cast<void*>(p);
    return done();
}

CUSIM_API cudaError_t cudaMemGetInfo(size_t* free_bytes, size_t* total) {
    Locked locked;
    *total = options().memory_bytes;
    *free_bytes = options().memory_bytes - std::min<u64>(memory().used(), options().memory_bytes);
    return done();
}
CUSIM_API cudaError_t cudaMemPrefetchAsync(const void*, size_t, cudaMemLocation, unsigned, cudaStream_t) {
    return done();
}
CUSIM_API cudaError_t cudaMemAdvise(const void*, size_t, cudaMemoryAdvise, cudaMemLocation) {
    return done();
}
