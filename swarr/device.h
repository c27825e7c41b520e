// device.h: where the numbers live. A device is a tag type that layers are overloaded on.
//
//   CpuDevice<float>  = Cpu: the reference and the device without a GPU
//   CpuDevice<double> : the same loops in double, for finite differences in tests
//   CudaDevice<bf16>, CudaDevice<float>: a GPU (cuda_device.h), in builds with nvcc
//
// Every device has the same members: real (weights, activations), stat (what is summed or kept exact: row
// statistics, losses, parameters' gradients, the optimizer's state), allocate, release, zero, and upload,
// download, copy between host and device, which on the CPU are memcpy; put and view convert between the
// device's numbers and those of the host, which are `stat`.
//
// Letters used in every shape note of the project:
//   N tokens of a pass (packed documents)   D hidden size       V vocabulary    L layers
//   H query heads, G key/value heads        E size of a head    F feed-forward  W window
//   Q = (H + 2G) * E, the width of the fused query/key/value rows
// All tensors are row-major; the last letter varies fastest. Products of three or more sizes are size_t.
//
// Every allocation belongs to a category, so that a program can print where its memory goes.
#pragma once
#include <sys/mman.h>
#include <unistd.h>

#include <cstdlib>
#include <cstring>
#include <utility>
#include <vector>

#include "base.h"

enum class Memory { weights, gradients, optimizer, activations, cache, workspace };
constexpr int memory_categories = 6;
inline const char* memory_name(Memory m) {
    const char* names[] = {"weights", "gradients", "optimizer", "activations", "KV cache", "workspace"};
    return names[int(m)];
}

// Bytes now and at most, by category.
struct MemoryUse {
    size_t now[memory_categories] = {}, peak[memory_categories] = {};
    void add(Memory m, size_t bytes) {
        now[int(m)] += bytes;
        if (now[int(m)] > peak[int(m)]) peak[int(m)] = now[int(m)];
    }
    void remove(Memory m, size_t bytes) { now[int(m)] -= bytes; }
};

template <class Real>
struct CpuDevice {
    using real = Real;
    using stat = Real;
    static constexpr bool on_host = true;
    MemoryUse memory;

    // 64-byte aligned and zeroed. Large blocks ask for huge pages, worth 5-8% of bandwidth.
    void* allocate(size_t bytes, Memory category) {
        if (bytes == 0) return nullptr;
        size_t align = bytes >= (size_t(4) << 20) ? size_t(2) << 20 : 64;
        size_t size = (bytes + align - 1) / align * align;
        void* p = std::aligned_alloc(align, size);
        if (!p)
            fail("cannot allocate " + bytes_text(double(bytes)) + " for " + memory_name(category),
                 "lower --max-tokens-per-pass or --slots");
        if (align > 64) madvise(p, size, MADV_HUGEPAGE);
        std::memset(p, 0, size);
        memory.add(category, bytes);
        return p;
    }
    // Bytes that can be had, by what the system says; what it keeps as a cache of files it gives up on demand.
    double free_memory() const {
        double free = double(sysconf(_SC_AVPHYS_PAGES)) * double(sysconf(_SC_PAGESIZE));
        if (FILE* info = std::fopen("/proc/meminfo", "r")) {
            char line[128];
            long long kib;
            while (std::fgets(line, sizeof line, info))
                if (std::sscanf(line, "MemAvailable: %lld kB", &kib) == 1) free = double(kib) * 1024;
            std::fclose(info);
        }
        return free;
    }
    void zero(void* p, size_t bytes) { std::memset(p, 0, bytes); }
    void upload(void* to, const void* from, size_t bytes) { copy(to, from, bytes); }
    void download(void* to, const void* from, size_t bytes) { copy(to, from, bytes); }
    void copy(void* to, const void* from, size_t bytes) {
        if (bytes) std::memcpy(to, from, bytes);
    }
    void put(Real* to, const Real* host, size_t n) { copy(to, host, n * sizeof(Real)); }
    // n numbers at `from` for the host to read; `space` may be used to hold them.
    const Real* view(const Real* from, size_t, std::vector<Real>& /*space*/) { return from; }
    void synchronize() {}
    // Work that is done again and again with the same arguments; on a GPU it becomes one launch.
    struct Graph {};
    template <class Body>
    void replay(Graph&, Body body) {
        body();
    }
    void release(void* p, size_t bytes, Memory category) {
        if (!p) return;
        std::free(p);
        memory.remove(category, bytes);
    }
};
using Cpu = CpuDevice<float>;

// An owned array on a device.
template <class T, class Device>
class Buffer {
  public:
    Buffer() = default;
    Buffer(Device& device, size_t size, Memory category)
        : device_(&device),
          size_(size),
          category_(category),
          data_(static_cast<T*>(device.allocate(size * sizeof(T), category))) {}
    Buffer(Buffer&& o) noexcept { swap(o); }
    Buffer& operator=(Buffer&& o) noexcept {
        swap(o);
        return *this;
    }
    Buffer(const Buffer&) = delete;
    Buffer& operator=(const Buffer&) = delete;
    ~Buffer() {
        if (device_) device_->release(data_, size_ * sizeof(T), category_);
    }
    T* data() { return data_; }
    const T* data() const { return data_; }
    size_t size() const { return size_; }
    T& operator[](size_t i) { return data_[i]; }
    const T& operator[](size_t i) const { return data_[i]; }

  private:
    void swap(Buffer& o) {
        std::swap(device_, o.device_);
        std::swap(size_, o.size_);
        std::swap(category_, o.category_);
        std::swap(data_, o.data_);
    }
    Device* device_ = nullptr;
    size_t size_ = 0;
    Memory category_ = Memory::workspace;
    T* data_ = nullptr;
};

#ifdef SWARR_CUDA
#include "cuda_device.h"
#endif
