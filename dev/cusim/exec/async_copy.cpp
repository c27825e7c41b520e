// async_copy.cpp: cp.async and its groups. The source is read when the copy is issued; until the copy is
// waited for, its target holds NaN and counts as never written, so that a missing wait shows. A missing
// barrier shows in the race check, both against the issue and against the arrival.
#include <algorithm>

#include "lanes.h"
#include "memory.h"
#include "race.h"
#include "tables.h"

namespace cusim {

namespace {

constexpr u32 kPoison[4] = {~0u, ~0u, ~0u, ~0u};

// The common size has a copy of its own, without a call.
void copy_bytes(void* to, const void* from, u32 bytes) {
    if (bytes == 16)
        std::memcpy(to, from, 16);
    else
        std::memcpy(to, from, bytes);
}

void set_shared_written(Block& b, u32 offset, u32 bytes, u8 value) {
    if (!b.shared_written.empty()) std::fill_n(b.shared_written.begin() + offset, bytes, value);
}

// a + immediate: target; b + source_offset: source; mode: bytes; c: source size, or (flag) a predicate that
// asks for zeros, or none.
void copy_async(Warp& w, const Inst& i) {
    const u32 bytes = i.mode;
    w.copies.emplace_back();
    AsyncCopy& copy = w.copies.back();
    copy.mask = w.mask;
    copy.bytes = bytes;
    copy.inst = &i;
    copy.pc = w.pc;
    std::memcpy(copy.group, w.committed.data(), sizeof copy.group);

    // Lanes that read the full size; the others read less, the rest being zeros.
    u32 full = w.mask, issued = w.mask;
    const u64* source = w.column<u64>(i.b);
    if (i.c != kNoColumn) {
        if (i.flag) {
            full &= ~w.predicate(i.c);
            for (u32 rest = issued & ~full; rest; rest &= rest - 1)
                std::memset(copy.data[__builtin_ctz(rest)], 0, bytes);
        } else {
            const u32* size = w.column<u32>(i.c);
            for (u32 rest = issued; rest; rest &= rest - 1) {
                int l = __builtin_ctz(rest);
                if (size[l] > bytes)
                    fault(w, i, l, kIllegalAddress,
                          text("cp.async source size %u is larger than %u", size[l], bytes));
                if (size[l] == bytes) continue;
                full &= ~(1u << l);
                std::memset(copy.data[l], 0, bytes);
                for (u32 k = 0; k < size[l]; k++)
                    copy.data[l][k] = u8(*locate_one(w, i, l, Space::Global,
                                                     source[l] + u64(i.source_offset) + k, 1, Access::Read));
            }
        }
    }
    if (full) {
        Inst from = i;  // the source as an address operand of its own
        from.a = i.b;
        from.address_bytes = 8;
        from.immediate = i.source_offset;
        Lanes lanes;
        w.mask = full;
        locate<Space::Global>(w, from, int(bytes), Access::Read, lanes);
        i.hint = from.hint;
        for (u32 rest = full; rest; rest &= rest - 1) {
            int l = __builtin_ctz(rest);
            copy_bytes(copy.data[l], lanes.lane(l, int(bytes)), bytes);
        }
        w.mask = issued;
    }
    Lanes lanes;
    locate_space(Space(i.space), w, i, int(bytes), Access::Write, lanes);
    for (u32 rest = issued; rest; rest &= rest - 1) {
        int l = __builtin_ctz(rest);
        char* to = lanes.lane(l, int(bytes));
        copy.target[l] = u32(to - w.block->shared);
        copy_bytes(to, kPoison, bytes);
        set_shared_written(*w.block, copy.target[l], bytes, 0);
    }
}

void commit_group(Warp& w, const Inst&) {
    for (u32 rest = w.mask; rest; rest &= rest - 1) w.committed[__builtin_ctz(rest)]++;
}

void arrive(Warp& w, AsyncCopy& copy, u32 lanes) {
    int pc = w.pc;
    for (u32 rest = lanes; rest; rest &= rest - 1) {
        int l = __builtin_ctz(rest);
        copy_bytes(w.block->shared + copy.target[l], copy.data[l], copy.bytes);
        set_shared_written(*w.block, copy.target[l], copy.bytes, 1);
        if (w.block->race) {
            w.pc = copy.pc;
            w.block->race->access(w, *copy.inst, l, copy.target[l], copy.bytes, Access::Write);
            w.pc = pc;
        }
    }
    copy.mask &= ~lanes;
}

// immediate: groups that may stay under way; flag: wait for everything, committed or not.
void wait_group(Warp& w, const Inst& i) {
    for (AsyncCopy& copy : w.copies) {
        u32 done = 0;
        for (u32 rest = copy.mask & w.mask; rest; rest &= rest - 1) {
            int l = __builtin_ctz(rest);
            if (i.flag || s64(copy.group[l]) + i.immediate < s64(w.committed[l])) done |= 1u << l;
        }
        if (done) arrive(w, copy, done);
    }
    auto empty = [](const AsyncCopy& c) { return c.mask == 0; };
    w.copies.erase(std::remove_if(w.copies.begin(), w.copies.end(), empty), w.copies.end());
}

void build_cp(Decoder& d, Form& f) {
    if (!f.take("async")) d.unknown("copy", "exec/async_copy.cpp");
    Inst i;
    i.kind = Class::AsyncCopy;
    if (f.take("commit_group")) {
        i.run = commit_group;
        return d.emit(std::move(i));
    }
    bool all = f.take("wait_all");
    if (all || f.take("wait_group")) {
        i.run = wait_group;
        i.flag = all;
        if (!all) i.immediate = d.immediate(0);
        return d.emit(std::move(i));
    }
    if (f.take_any({"ca", "cg"}) < 0) d.unknown("copy", "exec/async_copy.cpp");
    bool shared = f.take("shared") || f.take("shared::cta");
    bool hint = f.take("L2::cache_hint");
    f.take_any({"L2::64B", "L2::128B", "L2::256B"});
    if (!shared || !f.take("global")) d.unknown("copy", "exec/async_copy.cpp");
    s64 bytes = d.immediate(2);
    if (bytes != 4 && bytes != 8 && bytes != 16) d.error("copies 4, 8 or 16 bytes");
    i.mode = u8(bytes);
    i.run = copy_async;
    Space space = Space::Shared, from = Space::Global;
    Inst source;
    d.read_address(d.operand(1), source, from);
    if (source.address_bytes != 8) d.error("the source address needs 64 bits");
    d.read_address(d.operand(0), i, space);
    i.space = u8(space);
    i.b = source.a;
    i.source_offset = s32(source.immediate);
    size_t optional = d.operand_count() - 3 - (hint ? 1 : 0);
    if (optional > 0) {
        const Operand& o = d.operand(3);
        i.flag = d.is_predicate(o);
        i.c = d.read(o, i.flag ? Type::Pred : Type::U32);
    }
    d.emit(std::move(i));
}

}  // namespace

void add_async_copy(BuilderTable& t) {
    t["cp"] = build_cp;
}

}  // namespace cusim
