// memory.cpp: allocations of the device's address space.
#include "memory.h"

#include <sys/mman.h>
#include <unistd.h>

#include <algorithm>
#include <cstring>

#include "options.h"

namespace cusim {

namespace {
constexpr u64 kPage = 4096;
u64 pages(u64 bytes) {
    return (bytes + kPage - 1) / kPage * kPage;
}
}  // namespace

Memory::Memory() {
    void* at = mmap(reinterpret_cast<void*>(kBase), kReserved, PROT_NONE,
                    MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE | MAP_FIXED_NOREPLACE, -1, 0);
    if (at != reinterpret_cast<void*>(kBase)) stop("cannot reserve the device's address range");
}

Allocation* Memory::allocate(u64 bytes, Allocation::Kind kind, const std::string& name) {
    u64 size = pages(std::max<u64>(bytes, 1));
    if (bytes > options().memory_bytes || used_ + size > options().memory_bytes) return nullptr;
    void* data =
        mmap(nullptr, size, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
    if (data == MAP_FAILED) return nullptr;
    auto a = std::make_unique<Allocation>();
    a->data = static_cast<char*>(data);
    a->kind = kind;
    a->size = a->original_size = bytes;
    a->name = name;
    if (kind == Allocation::Managed) {
        a->start = reinterpret_cast<u64>(data);
    } else {
        a->start = next_;
        next_ += size + kPage;  // a page without access between allocations
        if (next_ > kBase + kReserved) stop("the device's address range is used up");
    }
    if (kind != Allocation::Symbol) poison(a->data, bytes);  // symbols start as zeros, as CUDA defines
    if (options().check_init) a->written.assign(bytes, kind != Allocation::Device);
    used_ += size;
    return insert(std::move(a));
}

Allocation* Memory::add_host(void* data, u64 bytes, Allocation::Kind kind) {
    auto a = std::make_unique<Allocation>();
    a->data = static_cast<char*>(data);
    a->start = reinterpret_cast<u64>(data);
    a->size = a->original_size = bytes;
    a->kind = kind;
    if (options().check_init) a->written.assign(bytes, 1);
    return insert(std::move(a));
}

Allocation* Memory::insert(std::unique_ptr<Allocation> a) {
    // The system hands freed host addresses out again; then what was there before is forgotten.
    for (auto it = by_start_.lower_bound(a->start);
         it != by_start_.end() && it->first < a->start + std::max<u64>(a->size, 1);) {
        retired_.push_back(std::move(it->second));
        it = by_start_.erase(it);
    }
    return (by_start_[a->start] = std::move(a)).get();
}

// Fills with 0xff: NaN in f32, f16 and bf16. Large areas map one block of it over and over, copied when
// written, so that a program may reserve most of the device without using the host's memory.
void Memory::poison(char* data, u64 bytes) {
    constexpr u64 kBlock = 4 << 20;
    if (bytes < 4 * kBlock) {
        std::memset(data, 0xff, bytes);
        return;
    }
    if (poison_file_ < 0) {
        poison_file_ = memfd_create("cusim-poison", MFD_CLOEXEC);
        std::vector<char> block(kBlock, char(0xff));
        if (poison_file_ < 0 || write(poison_file_, block.data(), kBlock) != ssize_t(kBlock))
            stop("cannot make the block of poison");
    }
    for (u64 at = 0; at < bytes; at += kBlock) {
        u64 part = pages(std::min(kBlock, bytes - at));
        if (mmap(data + at, part, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_FIXED | MAP_NORESERVE,
                 poison_file_, 0) == MAP_FAILED)
            stop("cannot map device memory");
    }
}

bool Memory::release(u64 address, Allocation::Kind kind) {
    auto it = by_start_.find(address);
    if (it == by_start_.end() || it->second->freed || it->second->kind != kind) return false;
    Allocation& a = *it->second;
    if (kind != Allocation::Pinned) {
        munmap(a.data, pages(std::max<u64>(a.original_size, 1)));
        used_ -= pages(std::max<u64>(a.original_size, 1));
    }
    a.freed = true;
    a.size = 0;
    a.data = nullptr;
    a.written = {};
    return true;
}

Allocation* Memory::find(u64 address) const {
    auto it = by_start_.upper_bound(address);
    if (it == by_start_.begin()) return nullptr;
    Allocation* a = std::prev(it)->second.get();
    return a->contains(address, 0) ? a : nullptr;
}

char* Memory::translate(u64 address, u64 bytes) const {
    Allocation* a = find(address);
    return a && a->contains(address, bytes) ? a->data + (address - a->start) : nullptr;
}

void Memory::mark_written(u64 address, u64 bytes) {
    Allocation* a = find(address);
    if (a && !a->written.empty() && a->contains(address, bytes))
        std::fill_n(a->written.begin() + s64(address - a->start), bytes, 1);
}

std::string Memory::explain(u64 address) const {
    if (!is_reserved(address)) {
        if (address < kPage) return "a null pointer";
        // Pinned and managed allocations may lie just below.
    }
    auto it = by_start_.upper_bound(address);
    if (it != by_start_.begin()) {
        const Allocation& a = *std::prev(it)->second;
        u64 offset = address - a.start;
        std::string what = a.name.empty() ? "an allocation" : "'" + a.name + "'";
        if (a.freed && offset < a.original_size)
            return text("freed: %llu bytes into %s of %llu bytes that was freed", (unsigned long long)offset,
                        what.c_str(), (unsigned long long)a.original_size);
        if (!a.freed && offset >= a.size && offset - a.size < (u64(1) << 30) &&
            (is_reserved(address) || offset - a.size < kPage))
            return text("%llu bytes past the end of %s of %llu bytes at 0x%llx",
                        (unsigned long long)(offset - a.size), what.c_str(), (unsigned long long)a.size,
                        (unsigned long long)a.start);
        if (!a.freed && offset < a.size)
            return text("reaches past the end of %s of %llu bytes", what.c_str(), (unsigned long long)a.size);
    }
    if (!is_reserved(address)) return "a host pointer, or no pointer at all";
    if (it != by_start_.end() && it->second->start - address < kPage)
        return text("%llu bytes before the allocation at 0x%llx",
                    (unsigned long long)(it->second->start - address), (unsigned long long)it->second->start);
    return "in no allocation";
}

}  // namespace cusim
