// access.cpp: finds and checks the bytes a warp's load, store or atomic touches.
#include "counters.h"
#include "lanes.h"
#include "memory.h"
#include "race.h"

namespace cusim {

namespace {

constexpr u64 kWindow = 1 << 24;

bool in_shared_window(u64 a) {
    return a - Memory::kSharedWindow < kWindow;
}
bool in_local_window(u64 a) {
    return a - Memory::kLocalWindow < kWindow;
}

const char* verb(Access access) {
    return access == Access::Read ? "read" : access == Access::Write ? "write" : "atomic";
}

[[noreturn]] void misaligned(Warp& w, const Inst& i, int lane, const char* space, u64 address, int bytes,
                             Access access) {
    fault(w, i, lane, kMisaligned,
          text("misaligned %s %s of %d bytes at 0x%llx", space, verb(access), bytes,
               (unsigned long long)address));
}

[[noreturn]] void outside(Warp& w, const Inst& i, int lane, const char* space, u64 address, int bytes,
                          Access access, u64 size) {
    fault(w, i, lane, kIllegalAddress,
          text("invalid %s %s of %d bytes at 0x%llx (%s memory has %llu bytes)", space, verb(access), bytes,
               (unsigned long long)address, space, (unsigned long long)size));
}

char* global_lane(Warp& w, const Inst& i, int lane, u64 address, int bytes, Access access) {
    const Allocation* a = i.hint;
    if (!a || !a->contains(address, u64(bytes))) {
        a = w.block->launch->memory->find(address);
        if (!a || !a->contains(address, u64(bytes)))
            fault(w, i, lane, kIllegalAddress,
                  text("invalid global %s of %d bytes at 0x%llx: %s", verb(access), bytes,
                       (unsigned long long)address, w.block->launch->memory->explain(address).c_str()));
        i.hint = a;
    }
    if (address & u64(bytes - 1)) misaligned(w, i, lane, "global", address, bytes, access);
    return a->data + (address - a->start);
}

void watch_global(Warp& w, const Inst& i, const u64* address, int bytes, Access access) {
    if (w.block->launch->counters)
        count_global(*w.block->launch->counters, i, address, w.mask, bytes, access);
    for (u32 rest = w.mask; rest; rest &= rest - 1) {
        int l = __builtin_ctz(rest);
        Allocation* a = w.block->launch->memory->find(address[l]);
        if (a->written.empty()) return;
        u8* written = &a->written[address[l] - a->start];
        for (int b = 0; b < bytes; b++) {
            if (access != Access::Write && !written[b])
                fault(w, i, l, kLaunchFailure,
                      text("read of uninitialised global memory at 0x%llx, byte %llu of an allocation of "
                           "%llu bytes,",
                           (unsigned long long)address[l] + b,
                           (unsigned long long)(address[l] + b - a->start), (unsigned long long)a->size));
            if (access != Access::Read) written[b] = 1;
        }
    }
}

void watch_shared(Warp& w, const Inst& i, const u32* offset, int bytes, Access access) {
    Block& b = *w.block;
    if (b.launch->counters) count_shared(*b.launch->counters, i, offset, w.mask, bytes, access);
    for (u32 rest = w.mask; rest; rest &= rest - 1) {
        int l = __builtin_ctz(rest);
        if (!b.shared_written.empty())
            for (u32 at = offset[l]; at < offset[l] + u32(bytes); at++) {
                if (access != Access::Write && !b.shared_written[at])
                    fault(w, i, l, kLaunchFailure,
                          text("read of uninitialised shared memory at offset %u (0x%x)", at, at));
                if (access != Access::Read) b.shared_written[at] = 1;
            }
        if (b.race) b.race->access(w, i, l, offset[l], u32(bytes), access);
    }
}

// Any addresses: one check if all lie in one allocation, else lane by lane.
void locate_scattered(Warp& w, const Inst& i, const u64* address, int bytes, Access access, Lanes& out) {
    u64 some = address[__builtin_ctz(w.mask)], low = some, high = some, bits = 0;
    const u32 mask = w.mask;
    for (u32 l = 0; l < kWarp; l++) {
        u64 a = (mask >> l & 1) ? address[l] : some;
        low = a < low ? a : low;
        high = a > high ? a : high;
        bits |= a;
    }
    const Allocation* a = i.hint;
    if (!a || !a->contains(low, 0)) a = w.block->launch->memory->find(low);
    if (a && a->contains(low, high - low + u64(bytes)) && !(bits & u64(bytes - 1))) {
        i.hint = a;
        char* base = a->data - a->start;
        for (int l = 0; l < kWarp; l++) out.at[l] = base + address[l];  // of idle lanes: not used
        return;
    }
    for (u32 rest = mask; rest; rest &= rest - 1) {
        int l = __builtin_ctz(rest);
        out.at[l] = global_lane(w, i, l, address[l], bytes, access);
    }
}

void locate_global(Warp& w, const Inst& i, const u64* address, int bytes, Access access, Lanes& out) {
    out.together = out.uniform = false;
    if (w.mask == kFullMask) {
        u64 first = address[0], apart = 0, differ = 0;
        for (int l = 0; l < kWarp; l++) {
            apart |= (address[l] - first) ^ u64(l * bytes);
            differ |= address[l] - first;
        }
        if (apart == 0) {
            const Allocation* a = i.hint;
            if (!a || !a->contains(first, u64(bytes) * kWarp)) a = w.block->launch->memory->find(first);
            if (a && a->contains(first, u64(bytes) * kWarp) && !(first & u64(bytes - 1))) {
                i.hint = a;
                out.together = true;
                out.base = a->data + (first - a->start);
            }
        } else if (differ == 0) {
            out.uniform = true;
            out.base = global_lane(w, i, 0, first, bytes, access);
        }
    }
    if (!out.together && !out.uniform) locate_scattered(w, i, address, bytes, access, out);
    if (w.block->watched) watch_global(w, i, address, bytes, access);
}

void locate_shared(Warp& w, const Inst& i, u32* offset, int bytes, Access access, Lanes& out) {
    Block& b = *w.block;
    const u32 mask = w.mask, align = u32(bytes - 1);
    const u32 last = b.shared_bytes - u32(bytes);
    u32 bad = b.shared_bytes < u32(bytes);
    u32 apart = mask != kFullMask;
    for (u32 l = 0; l < kWarp; l++) {
        offset[l] = (mask >> l & 1) ? offset[l] : 0;
        bad |= u32(offset[l] > last) | (offset[l] & align);
        apart |= (offset[l] - offset[0]) ^ (l * u32(bytes));
    }
    if (bad)
        for (u32 rest = mask; rest; rest &= rest - 1) {
            int l = __builtin_ctz(rest);
            if (offset[l] > last || b.shared_bytes < u32(bytes))
                outside(w, i, l, "shared", offset[l], bytes, access, b.shared_bytes);
            if (offset[l] & align) misaligned(w, i, l, "shared", offset[l], bytes, access);
        }
    out.uniform = false;
    out.together = apart == 0;
    out.base = b.shared + offset[0];
    if (!out.together)
        for (int l = 0; l < kWarp; l++) out.at[l] = b.shared + offset[l];
    if (b.watched) watch_shared(w, i, offset, bytes, access);
}

char* local_lane(Warp& w, const Inst& i, int lane, u64 offset, int bytes, Access access) {
    u64 size = w.block->kernel->local_bytes;
    if (offset >= size || u64(bytes) > size - offset)
        outside(w, i, lane, "local", offset, bytes, access, size);
    if (offset & u64(bytes - 1)) misaligned(w, i, lane, "local", offset, bytes, access);
    return w.block->local + size * u64(w.id * kWarp + lane) + offset;
}

void locate_local(Warp& w, const Inst& i, const u64* offset, int bytes, Access access, Lanes& out) {
    out.together = out.uniform = false;
    for (u32 rest = w.mask; rest; rest &= rest - 1) {
        int l = __builtin_ctz(rest);
        out.at[l] = local_lane(w, i, l, offset[l], bytes, access);
    }
    if (w.block->launch->counters) count_local(*w.block->launch->counters, w.mask, bytes, access);
}

void locate_generic(Warp& w, const Inst& i, u64* address, int bytes, Access access, Lanes& out) {
    bool all_shared = true, all_global = true;
    for (u32 rest = w.mask; rest; rest &= rest - 1) {
        u64 a = address[__builtin_ctz(rest)];
        bool shared = in_shared_window(a), local = in_local_window(a);
        all_shared &= shared;
        all_global &= !shared && !local;
    }
    if (all_global) return locate_global(w, i, address, bytes, access, out);
    if (all_shared) {
        u32 offset[kWarp];
        for (int l = 0; l < kWarp; l++) offset[l] = u32(address[l] - Memory::kSharedWindow);
        return locate_shared(w, i, offset, bytes, access, out);
    }
    out.together = out.uniform = false;
    for (u32 rest = w.mask; rest; rest &= rest - 1) {
        int l = __builtin_ctz(rest);
        out.at[l] = locate_one(w, i, l, Space::Generic, address[l], bytes, access);
    }
}

void locate_param(Warp& w, const Inst& i, const u64* address, int bytes, Access access, Lanes& out) {
    std::vector<char>& params = w.block->launch->params;
    out.together = out.uniform = false;
    for (u32 rest = w.mask; rest; rest &= rest - 1) {
        int l = __builtin_ctz(rest);
        if (address[l] >= params.size() || u64(bytes) > params.size() - address[l])
            outside(w, i, l, "parameter", address[l], bytes, access, params.size());
        out.at[l] = params.data() + address[l];
    }
}

}  // namespace

void lane_addresses(const Warp& w, const Inst& i, u64* address) {
    if (i.address_bytes == 8) {
        const u64* a = w.column<u64>(i.a);
        for (int l = 0; l < kWarp; l++) address[l] = a[l] + u64(i.immediate);
    } else {
        const u32* a = w.column<u32>(i.a);
        for (int l = 0; l < kWarp; l++) address[l] = u64(a[l]) + u64(i.immediate);
    }
}

char* locate_one(Warp& w, const Inst& i, int lane, Space space, u64 address, int bytes, Access access) {
    if (space == Space::Generic) {
        if (in_shared_window(address))
            space = Space::Shared, address -= Memory::kSharedWindow;
        else if (in_local_window(address))
            space = Space::Local, address -= Memory::kLocalWindow;
    }
    u32 mask = w.mask;
    w.mask = 1u << lane;
    char* found;
    if (space == Space::Shared) {
        u32 offset[kWarp] = {};
        offset[lane] = address < kWindow ? u32(address) : ~0u;
        Lanes lanes;
        locate_shared(w, i, offset, bytes, access, lanes);
        found = lanes.at[lane];
    } else if (space == Space::Local) {
        found = local_lane(w, i, lane, address, bytes, access);
    } else {
        found = global_lane(w, i, lane, address, bytes, access);
        u64 all[kWarp];
        all[lane] = address;
        if (w.block->watched) watch_global(w, i, all, bytes, access);
    }
    w.mask = mask;
    return found;
}

template <Space kSpace>
void locate(Warp& w, const Inst& i, int bytes, Access access, Lanes& out) {
    if (kSpace == Space::Shared) {
        u32 offset[kWarp];
        if (i.address_bytes == 4) {
            const u32* a = w.column<u32>(i.a);
            for (int l = 0; l < kWarp; l++) offset[l] = a[l] + u32(i.immediate);
        } else {
            u64 address[kWarp];
            lane_addresses(w, i, address);
            // An address beyond 32 bits is no shared offset: make sure that it fails.
            for (int l = 0; l < kWarp; l++) offset[l] = address[l] < kWindow ? u32(address[l]) : ~0u;
        }
        return locate_shared(w, i, offset, bytes, access, out);
    }
    u64 address[kWarp];
    lane_addresses(w, i, address);
    if (kSpace == Space::Global) return locate_global(w, i, address, bytes, access, out);
    if (kSpace == Space::Local) return locate_local(w, i, address, bytes, access, out);
    if (kSpace == Space::Param) return locate_param(w, i, address, bytes, access, out);
    return locate_generic(w, i, address, bytes, access, out);
}

template void locate<Space::Shared>(Warp&, const Inst&, int, Access, Lanes&);
template void locate<Space::Global>(Warp&, const Inst&, int, Access, Lanes&);
template void locate<Space::Local>(Warp&, const Inst&, int, Access, Lanes&);
template void locate<Space::Param>(Warp&, const Inst&, int, Access, Lanes&);
template void locate<Space::Generic>(Warp&, const Inst&, int, Access, Lanes&);

void locate_space(Space space, Warp& w, const Inst& i, int bytes, Access access, Lanes& out) {
    switch (space) {
        case Space::Shared:
            return locate<Space::Shared>(w, i, bytes, access, out);
        case Space::Global:
        case Space::Const:
            return locate<Space::Global>(w, i, bytes, access, out);
        case Space::Local:
            return locate<Space::Local>(w, i, bytes, access, out);
        case Space::Param:
            return locate<Space::Param>(w, i, bytes, access, out);
        default:
            return locate<Space::Generic>(w, i, bytes, access, out);
    }
}

}  // namespace cusim
