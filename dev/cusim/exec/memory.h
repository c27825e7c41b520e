// memory.h: the device's address space. Every access is checked to the byte against the allocations.
//
// Device addresses lie in a reserved range without access rights; the bytes are elsewhere. A host program
// that follows a device pointer therefore faults (and is told so), a kernel that follows a host pointer is
// reported. Pinned and managed memory has the same address on both sides. Shared and local memory have
// windows in the reserved range, so that generic addresses tell their space. Freed addresses are not handed
// out again until the range is used up.
#pragma once
#include <map>
#include <memory>
#include <vector>

#include "warp.h"

namespace cusim {

struct Allocation {
    enum Kind { Device, Pinned, Managed, Symbol };
    u64 start = 0, size = 0;  // size becomes 0 when freed, so that a stale hint never matches
    char* data = nullptr;
    Kind kind = Device;
    bool constant = false;  // a __constant__ symbol
    bool freed = false;
    u64 original_size = 0;
    std::string name;         // of a symbol
    std::vector<u8> written;  // per byte, if the init check is on
    bool contains(u64 address, u64 bytes) const {
        return address - start < size && bytes <= size - (address - start);
    }
};

class Memory {
  public:
    static constexpr u64 kBase = u64(0x21) << 40;  // of the reserved range, below what mmap chooses
    static constexpr u64 kReserved = u64(1) << 40;
    static constexpr u64 kSharedWindow = kBase;  // 16 MiB each
    static constexpr u64 kLocalWindow = kBase + (1 << 24);
    static constexpr u64 kFirst = kBase + (u64(1) << 32);

    Memory();
    // Null if the configured device memory does not suffice.
    Allocation* allocate(u64 bytes, Allocation::Kind kind, const std::string& name = "");
    // Host memory the device may use at its host address.
    Allocation* add_host(void* data, u64 bytes, Allocation::Kind kind);
    // False if `address` is no live allocation of this kind.
    bool release(u64 address, Allocation::Kind kind);
    // The live allocation that contains the address, or null.
    Allocation* find(u64 address) const;
    // What is known about an address that no live allocation contains.
    std::string explain(u64 address) const;
    u64 used() const { return used_; }
    bool is_reserved(u64 address) const { return address - kBase < kReserved; }
    // Host view of device bytes, or null.
    char* translate(u64 address, u64 bytes) const;
    void mark_written(u64 address, u64 bytes);

  private:
    Allocation* insert(std::unique_ptr<Allocation> a);
    void poison(char* data, u64 bytes);

    std::map<u64, std::unique_ptr<Allocation>> by_start_;
    // Freed host ranges whose addresses came back: instructions may still hold them as hints.
    std::vector<std::unique_ptr<Allocation>> retired_;
    int poison_file_ = -1;
    u64 next_ = kFirst, used_ = 0;
};

// ---- accesses of a warp
// ----------------------------------------------------------------------------------------

enum class Access : u8 { Read, Write, Atomic };

// Where the lanes' bytes are. If `together`, lane l's bytes are at base + l * bytes.
struct Lanes {
    bool together = false;
    bool uniform = false;  // one address for all lanes, at base
    char* base = nullptr;
    char* at[kWarp];
    char* lane(int l, int bytes) const { return uniform ? base : together ? base + l * bytes : at[l]; }
};

// Checks the access of `bytes` per active lane at column a + immediate, records it for the enabled checks and
// counters, and finds the bytes. Faults if any lane is out of bounds or misaligned.
template <Space kSpace>
void locate(Warp& w, const Inst& i, int bytes, Access access, Lanes& out);
void locate_space(Space space, Warp& w, const Inst& i, int bytes, Access access, Lanes& out);

// The same for one lane and any address.
char* locate_one(Warp& w, const Inst& i, int lane, Space space, u64 address, int bytes, Access access);
// The lanes' addresses (generic ones keep their window).
void lane_addresses(const Warp& w, const Inst& i, u64* address);

}  // namespace cusim
