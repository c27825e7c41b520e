// block.cpp: the loop that runs a warp, and the scheduling of warps, barriers and blocks.
#include <algorithm>

#include "counters.h"
#include "lanes.h"
#include "memory.h"
#include "options.h"
#include "race.h"
#include "warp.h"

namespace cusim {

namespace {

u32 guarded_mask(const Warp& w, const Inst& i, u32 mask) {
    if (i.guard == kNoColumn) return mask;
    u32 p = w.predicate(i.guard);
    return (i.guard_negated ? ~p : p) & mask;
}

// One turn of a warp: from where it stands until every group is blocked or done, or `steps` are used up.
class WarpRun {
  public:
    WarpRun(Warp& w, u64 steps) : w_(w), code_(w.block->kernel->code.data()), steps_(steps) {}

    // Returns the number of instructions executed.
    u64 run() {
        while (executed_ < steps_ && pick()) {
            if (w_.block->launch->counters)
                execute<true>();
            else
                execute<false>();
        }
        return executed_;
    }

  private:
    // Takes the runnable group with the lowest pc out of the list, merged with all others at that pc.
    bool pick() {
        auto& groups = w_.groups;
        int lowest = -1;
        for (const Group& g : groups)
            if (g.state == Group::Ready && (lowest < 0 || g.pc < lowest)) lowest = g.pc;
        if (lowest < 0) {
            report_stuck();
            return false;
        }
        mask_ = 0;
        next_pc_ = INT32_MAX;
        for (size_t k = 0; k < groups.size();) {
            Group& g = groups[k];
            if (g.pc == lowest && g.state != Group::AtBarrier) {
                mask_ |= g.mask;
                g = groups.back();
                groups.pop_back();
            } else {
                if (g.pc > lowest && g.state != Group::AtBarrier) next_pc_ = std::min(next_pc_, g.pc);
                k++;
            }
        }
        pc_ = lowest;
        return true;
    }

    void leave(Group::State state = Group::Ready) { w_.groups.push_back({mask_, pc_, state, 0}); }

    // Runs the picked group until it splits, blocks, ends, or meets another group.
    template <bool kCount>
    void execute() {
        // Locals, since handlers could otherwise alias the members for all the compiler knows.
        int pc = pc_;
        u32 mask = mask_;
        const int meeting = next_pc_;
        u64 left = steps_ - executed_;
        auto save = [&] {
            pc_ = pc;
            mask_ = mask;
            executed_ = steps_ - left;
        };
        w_.mask = mask;
        for (;;) {
            const Inst& i = code_[pc];
            if (left == 0) return save(), leave();
            left--;
            if (kCount) count_instruction(*w_.block->launch->counters, i, pc, guarded_mask(w_, i, mask));
            w_.pc = pc;
            if (i.flow == Flow::Plain) {
                if (i.guard == kNoColumn) {
                    i.run(w_, i);
                } else if (u32 p = guarded_mask(w_, i, mask)) {
                    w_.mask = p;
                    i.run(w_, i);
                    w_.mask = mask;
                }
                pc++;
            } else if (i.flow == Flow::Branch) {
                u32 p = guarded_mask(w_, i, mask);
                int target = int(i.immediate);
                if (p == mask) {
                    // Going back may pass by groups that wait for this one.
                    bool back = target <= pc && !w_.groups.empty();
                    pc = target;
                    if (back) return save(), leave();
                } else if (!p) {
                    pc++;
                } else {
                    if (kCount) w_.block->launch->counters->divergent_branches++;
                    w_.groups.push_back({p, target, Group::Ready, 0});
                    mask &= ~p;
                    pc++;
                    return save(), leave();
                }
            } else {
                save();
                if (!special_flow(i)) return;
                pc = pc_;
                mask = w_.mask = mask_;
            }
            if (pc >= meeting) return save(), leave();
        }
    }

    // False if the group cannot go on now; then it has been put away.
    bool special_flow(const Inst& i) {
        switch (i.flow) {
            case Flow::IndexBranch:
                index_branch(i);
                return false;
            case Flow::Exit:
                exit_lanes(guarded_mask(w_, i, mask_));
                mask_ &= w_.alive;
                pc_++;
                return mask_ != 0;
            case Flow::Collective:
                if (!collective(i)) return leave(Group::Collecting), false;
                pc_++;
                return true;
            case Flow::Barrier:
                if (!barrier(i)) return false;
                pc_++;
                return true;
            default:
                return true;
        }
    }

    void index_branch(const Inst& i) {
        u32 taken = guarded_mask(w_, i, mask_);
        const u32* index = w_.column<u32>(i.a);
        for (u32 rest = taken; rest;) {
            int lane = __builtin_ctz(rest);
            u32 same = 0;
            for (u32 r = rest; r; r &= r - 1)
                if (index[__builtin_ctz(r)] == index[lane]) same |= 1u << __builtin_ctz(r);
            if (index[lane] >= i.more.size()) fault(w_, i, lane, kLaunchFailure, "branch index out of range");
            w_.groups.push_back({same, i.more[index[lane]], Group::Ready, 0});
            rest &= ~same;
        }
        mask_ &= ~taken;
        pc_++;
        if (mask_) leave();
    }

    void exit_lanes(u32 lanes) {
        for (const AsyncCopy& c : w_.copies)
            if (c.mask & lanes)
                fault(w_, *c.inst, __builtin_ctz(c.mask & lanes), kLaunchFailure,
                      "thread exited with a cp.async that was never waited for, issued");
        w_.alive &= ~lanes;
        // CUDA lets a collective ignore lanes that have exited, but lanes it names must not leave by another
        // path.
        for (const Group& g : w_.groups) {
            if (g.state != Group::Collecting) continue;
            w_.mask = g.mask;
            fault(w_, code_[g.pc], __builtin_ctz(g.mask), kLaunchFailure,
                  text("lanes 0x%08x exited while lanes 0x%08x wait for them", lanes, g.mask));
        }
    }

    // The lanes a collective needs: its member mask (a column, may differ by lane) or the whole warp.
    bool collective(const Inst& i) {
        u32 here = guarded_mask(w_, i, mask_);
        u32 parts[kWarp];
        int count = 0;
        for (u32 rest = here; rest;) {
            int lane = __builtin_ctz(rest);
            u32 need = kFullMask, part = rest;
            if (i.c != kNoColumn) {
                const u32* member = w_.column<u32>(i.c);
                need = member[lane];
                part &= lane_bits([=](int l) { return member[l] == need; });
                if (part & ~need)
                    fault(w_, i, __builtin_ctz(part & ~need), kLaunchFailure,
                          text("thread is not in the member mask 0x%08x of its own", need));
            }
            if (need & w_.alive & ~part) return false;
            parts[count++] = part;
            rest &= ~part;
        }
        for (int k = 0; k < count; k++) {
            w_.mask = parts[k];
            i.run(w_, i);
        }
        return true;
    }

    // Arrival at a block barrier. True if the group may go on at once.
    bool barrier(const Inst& i) {
        Block& block = *w_.block;
        u32 here = guarded_mask(w_, i, mask_);
        if (!here) return true;
        bool aligned = i.flag;
        if (aligned && here != w_.alive) {
            leave(Group::Collecting);
            return false;
        }
        u32 id = *(w_.column<u32>(i.a) + __builtin_ctz(here));
        if (id >= block.barriers.size())
            fault(w_, i, -1, kLaunchFailure, text("barrier number %u out of range", id));
        Barrier& bar = block.barriers[id];
        bool counted = i.b != kNoColumn;
        u32 expected = counted ? *(w_.column<u32>(i.b) + __builtin_ctz(here)) : block.threads;
        if (counted && (expected % kWarp || expected == 0))
            fault(w_, i, -1, kLaunchFailure, text("barrier thread count %u is no multiple of 32", expected));
        u32 mine = u32(__builtin_popcount(here));
        if (counted) mine = (mine + kWarp - 1) / kWarp * kWarp;
        if (bar.arrived == 0) {
            bar.expected = expected;
            bar.first_pc = pc_;
            bar.first_warp = w_.id;
        }
        if (expected != bar.expected)
            fault(w_, i, -1, kLaunchFailure,
                  text("barrier %u expects %u threads here, %u at %s", id, expected, bar.expected,
                       block.kernel->file_of(code_[bar.first_pc]).c_str()));
        if (!counted && aligned && bar.first_pc != pc_)
            fault(w_, i, -1, kLaunchFailure,
                  text("divergent barrier: warp %d waits at %s, warp %d here", bar.first_warp,
                       block.kernel->file_of(code_[bar.first_pc]).c_str(), w_.id));
        bar.arrived += mine;
        bar.warps |= u64(1) << w_.id;
        if (i.c != kNoColumn) {  // bar.red
            u32 p = w_.predicate(i.c);
            bar.ones += u32(__builtin_popcount((i.mode & 4 ? ~p : p) & here));
            bar.voters += u32(__builtin_popcount(here));
        }
        if (block.race) block.race->arrive(int(id), w_.id);
        bool waits = i.immediate == 0;  // bar.arrive goes on
        if (waits) w_.groups.push_back({here, pc_, Group::AtBarrier, u8(id)});
        if (here != mask_ && waits) {  // lanes whose guard was false
            w_.groups.push_back({mask_ & ~here, pc_ + 1, Group::Ready, 0});
        }
        if (bar.arrived >= bar.expected) release(id);
        return !waits;
    }

    void release(u32 id) {
        Block& block = *w_.block;
        Barrier bar = block.barriers[id];
        block.barriers[id] = Barrier();
        if (block.race) block.race->release(int(id));
        if (block.launch->counters) block.launch->counters->barriers++;
        for (Warp& w : block.warps)
            for (Group& g : w.groups) {
                if (g.state != Group::AtBarrier || g.barrier != id) continue;
                const Inst& i = code_[g.pc];
                if (i.d != kNoColumn) {
                    bool all = bar.ones == bar.voters, any = bar.ones > 0;
                    if ((i.mode & 3) == 0) {
                        for (u32 r = g.mask; r; r &= r - 1) w.column<u32>(i.d)[__builtin_ctz(r)] = bar.ones;
                    } else {
                        u32& p = w.predicate(i.d);
                        bool value = (i.mode & 3) == 1 ? all : any;
                        p = value ? p | g.mask : p & ~g.mask;
                    }
                }
                g.state = Group::Ready;
                g.pc++;
            }
    }

    // No group can run. Lanes that wait at a collective for lanes that are blocked elsewhere never go on.
    void report_stuck() {
        for (const Group& g : w_.groups) {
            if (g.state != Group::Collecting) continue;
            const Inst& i = code_[g.pc];
            w_.mask = g.mask;
            if (i.flow == Flow::Barrier)
                fault(w_, i, __builtin_ctz(g.mask), kLaunchFailure,
                      text("barrier reached by a diverged warp: only lanes 0x%08x of 0x%08x arrived", g.mask,
                           w_.alive));
            fault(
                w_, i, __builtin_ctz(g.mask), kLaunchFailure,
                text(
                    "warp-collective waits for lanes that never arrive: only lanes 0x%08x of 0x%08x are here",
                    g.mask, w_.alive));
        }
    }

    Warp& w_;
    const Inst* code_;
    u64 steps_, executed_ = 0;
    u32 mask_ = 0;
    int pc_ = 0, next_pc_ = 0;
};

bool has_runnable(const Warp& w) {
    return std::any_of(w.groups.begin(), w.groups.end(),
                       [](const Group& g) { return g.state != Group::AtBarrier; });
}

// Warps wait at a barrier that the others, having exited, will not reach.
[[noreturn]] void report_missing_arrivals(Block& block) {
    int gone = 0;
    for (const Warp& w : block.warps) gone += w.alive == 0;
    for (Warp& w : block.warps)
        for (const Group& g : w.groups) {
            const Barrier& bar = block.barriers[g.barrier];
            w.mask = g.mask;
            std::string why;
            for (const Warp& other : block.warps) {
                if (bar.warps >> other.id & 1) continue;
                if (!other.alive) {
                    why = text("warp %d has exited", other.id);
                } else if (!other.groups.empty() && other.groups[0].barrier != g.barrier) {
                    why = text("warp %d waits at barrier %d, %s", other.id, other.groups[0].barrier,
                               block.kernel->file_of(block.kernel->code[other.groups[0].pc]).c_str());
                }
                if (!why.empty()) break;
            }
            if (why.empty()) why = "threads of its warps have exited";
            fault(w, block.kernel->code[g.pc], -1, kLaunchFailure,
                  text("barrier %d is never completed: %u of %u threads arrived; %s (%d of %zu warps have "
                       "exited)",
                       g.barrier, bar.arrived, bar.expected, why.c_str(), gone, block.warps.size()));
        }
    throw KernelFault("no warp can run", kLaunchFailure);
}

}  // namespace

void Block::start(Dim3 block_index) {
    index = block_index;
    barriers.fill(Barrier());
    if (shared_bytes) std::fill_n(shared, shared_bytes, char(0xff));  // NaN in f32, f16 and bf16
    std::fill(shared_written.begin(), shared_written.end(), 0);
    if (race) race->reset();
    if (kernel->local_bytes) std::fill_n(local, size_t(kernel->local_bytes) * threads, char(0xff));
    for (Warp& w : warps) {
        u32 left = threads - u32(w.id) * kWarp;
        w.alive = left >= u32(kWarp) ? kFullMask : (1u << left) - 1;
        w.groups.assign(1, {w.alive, 0, Group::Ready, 0});
        w.copies.clear();
        w.committed.fill(0);
        w.sync_count = 0;
        w.mask = 0;
    }
    auto fill = [&](Special s, u32 value) {
        Column c = kernel->special[size_t(s)];
        if (c != kNoColumn) std::fill_n(warps[0].column<u32>(c), kWarp, value);
    };
    fill(Special::CtaidX, index.x);
    fill(Special::CtaidY, index.y);
    fill(Special::CtaidZ, index.z);
}

bool Block::run(u64 slice) {
    for (;;) {
        bool moved = false, done = true, more = false;
        for (Warp& w : warps) {
            if (!w.alive) continue;
            if (!w.groups.empty() && has_runnable(w)) {
                u64 steps = WarpRun(w, slice).run();
                launch->instructions += steps;
                if (launch->budget && launch->instructions > launch->budget) {
                    int pc = w.groups.empty() ? w.pc : w.groups[0].pc;
                    fault(w, kernel->code[pc], -1, kLaunchTimeout,
                          text("instruction budget of %llu used up (CUSIM_BUDGET): an endless loop, or a "
                               "wait for "
                               "another block; last seen",
                               (unsigned long long)launch->budget));
                }
                moved = true;
                more |= steps >= slice;
            }
            done &= w.alive == 0;
        }
        if (done) return true;
        if (more && launch->cooperative) return false;
        if (!moved) report_missing_arrivals(*this);
    }
}

}  // namespace cusim
