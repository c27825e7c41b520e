// race.cpp: see race.h.
#include "race.h"

#include <algorithm>

#include "memory.h"

namespace cusim {

RaceChecker::RaceChecker(const Block& block)
    : block_(block),
      warps_((block.threads + kWarp - 1) / kWarp),
      cells_(block.shared_bytes / 2 + 1),
      clock_(warps_ * warps_, 0) {}

void RaceChecker::reset() {
    // Cells keep their old times; every warp of the new block knows them all.
    base_ = *std::max_element(clock_.begin(), clock_.end());
    std::fill(clock_.begin(), clock_.end(), base_);
    for (size_t v = 0; v < warps_; v++) clock_[v * warps_ + v] = base_ + 1;
    arrived_.fill(0);
}

void RaceChecker::arrive(int barrier, int warp) {
    u64& arrived = arrived_[barrier];
    std::vector<u32>& joined = joined_[barrier];
    if (!arrived) joined.assign(warps_, 0);
    arrived |= u64(1) << warp;
    u32* mine = &clock_[size_t(warp) * warps_];
    for (size_t v = 0; v < warps_; v++) joined[v] = std::max(joined[v], mine[v]);
    mine[warp]++;  // what it does from now on is not covered by this barrier
}

void RaceChecker::release(int barrier) {
    for (size_t v = 0; v < warps_; v++) {
        if (!(arrived_[barrier] >> v & 1)) continue;
        u32* mine = &clock_[v * warps_];
        for (size_t u = 0; u < warps_; u++) mine[u] = std::max(mine[u], joined_[barrier][u]);
    }
    arrived_[barrier] = 0;
}

bool RaceChecker::ordered(const Touch& before, const Warp& now, u16 thread) const {
    if (!before.time || before.thread == thread) return true;
    size_t warp = before.thread / kWarp, mine = size_t(now.id);
    if (warp != mine) return clock_[mine * warps_ + warp] >= before.time;
    return before.time < clock_[mine * warps_ + mine] || before.sync != u16(now.sync_count);
}

void RaceChecker::report(const Warp& w, const Inst& i, int lane, const char* kind, u32 offset,
                         const Touch& o) const {
    fault(w, i, lane, kLaunchFailure,
          text("%s race on shared memory offset %u (0x%x): the other access is by %s at %s, nothing orders "
               "the two; "
               "this one is",
               kind, offset, offset, describe_thread(block_, o.thread).c_str(),
               block_.kernel->file_of(block_.kernel->code[o.pc]).c_str()));
}

void RaceChecker::Recent::add(const Touch& t) {
    if (latest.thread / kWarp != t.thread / kWarp)
        other = latest;
    else if (latest.thread != t.thread)
        peer = latest;
    latest = t;
}

void RaceChecker::check(const Recent& before, const char* kind, const Warp& w, const Inst& i, int lane,
                        u32 offset, u16 thread) const {
    for (const Touch* t : {&before.latest, &before.peer, &before.other})
        if (!ordered(*t, w, thread)) report(w, i, lane, kind, offset, *t);
}

void RaceChecker::access(const Warp& w, const Inst& i, int lane, u32 offset, u32 bytes, Access kind) {
    Touch now;
    now.time = clock_[size_t(w.id) * warps_ + size_t(w.id)];
    now.sync = u16(w.sync_count);
    now.thread = u16(w.id * kWarp + lane);
    now.pc = w.pc;
    bool writes = kind != Access::Read;
    for (u32 c = offset / 2; c <= (offset + bytes - 1) / 2; c++) {
        Cell& cell = cells_[c];
        if (!ordered(cell.write, w, now.thread))
            report(w, i, lane, writes ? "write-write" : "write-read", c * 2, cell.write);
        if (writes) check(cell.reads, "read-write", w, i, lane, c * 2, now.thread);
        if (kind != Access::Atomic)
            check(cell.atomics, writes ? "write-write" : "write-read", w, i, lane, c * 2, now.thread);
        if (kind == Access::Write)
            cell.write = now;
        else
            (kind == Access::Read ? cell.reads : cell.atomics).add(now);
    }
}

}  // namespace cusim
