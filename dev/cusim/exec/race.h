// race.h: finds shared-memory races, independent of the order in which cusim happens to run the warps.
//
// Two accesses of one 2-byte cell race if one writes, they come from different threads, are not both atomic,
// and nothing orders them: block barriers order warps (each warp keeps a vector clock of what it knows of the
// others), and within a warp only __syncwarp does; shuffles and votes do not, as CUDA specifies.
#pragma once
#include <array>
#include <vector>

#include "warp.h"

namespace cusim {

enum class Access : u8;

class RaceChecker {
  public:
    explicit RaceChecker(const Block& block);
    void reset();
    // An access of `bytes` at shared offset by a lane. Faults on a race.
    void access(const Warp& w, const Inst& i, int lane, u32 offset, u32 bytes, Access kind);
    void arrive(int barrier, int warp);  // at a block barrier
    void release(int barrier);           // it is complete: its warps go on

  private:
    struct Touch {
        u32 time = 0;  // of its warp; 0: never
        int pc = 0;
        u16 sync = 0;  // __syncwarp count of its warp
        u16 thread = 0;
    };
    // The latest access of a kind, and the ones before it by another thread of the same warp and by another
    // warp.
    struct Recent {
        Touch latest, peer, other;
        void add(const Touch& t);
    };
    struct Cell {
        Touch write;
        Recent reads, atomics;
    };
    bool ordered(const Touch& before, const Warp& now, u16 thread) const;
    void check(const Recent& before, const char* kind, const Warp& w, const Inst& i, int lane, u32 offset,
               u16 thread) const;
    [[noreturn]] void report(const Warp& w, const Inst& i, int lane, const char* kind, u32 offset,
                             const Touch& other) const;

    const Block& block_;
    size_t warps_;
    std::vector<Cell> cells_;
    std::vector<u32> clock_;  // [warp][of warp]: up to which time the row's warp knows the column's
    u32 base_ = 0;            // times up to this one belong to earlier blocks
    std::array<u64, 16> arrived_{};
    std::array<std::vector<u32>, 16> joined_;
};

}  // namespace cusim
