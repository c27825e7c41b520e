// warp.h: the state of a running launch: warps, blocks, barriers; and the faults a kernel can have.
//
// Lanes of a warp that are at the same instruction form a group. Groups run lowest program counter first and
// merge when they meet, which is how diverged lanes reconverge. Warps of a block run in turn from barrier to
// barrier, blocks one after another (all blocks of a cooperative launch in turn): everything is
// deterministic.
#pragma once
#include <array>
#include <memory>
#include <vector>

#include "kernel.h"

namespace cusim {

class Memory;
class RaceChecker;
struct Counters;
struct Block;

struct Dim3 {
    u32 x = 1, y = 1, z = 1;
    u64 count() const { return u64(x) * y * z; }
};

// One cp.async of a warp: bytes were read at issue and land in shared memory when their group is waited for.
struct AsyncCopy {
    AsyncCopy() {}  // its 800 bytes are filled by the copy
    u32 mask;
    u32 bytes;
    const Inst* inst;
    int pc;
    u32 target[kWarp];
    u32 group[kWarp];
    u8 data[kWarp][16];
};

struct Group {
    enum State : u8 { Ready, Collecting, AtBarrier };
    u32 mask = 0;
    int pc = 0;
    State state = Ready;
    u8 barrier = 0;
};

struct Warp {
    char* file[2] = {nullptr, nullptr};  // registers, constants
    u32 mask = 0;                        // lanes executing the current instruction
    u32 alive = 0;
    int id = 0;
    int pc = 0;  // of the current instruction
    Block* block = nullptr;
    std::vector<Group> groups;
    std::vector<AsyncCopy> copies;
    std::array<u32, kWarp> committed{};  // cp.async groups closed, per lane
    u32 carry = 0;                       // the condition code of add.cc and its kin, a bit per lane
    u32 sync_count = 0;                  // __syncwarp()s so far, orders accesses for the race check

    template <class T>
    T* column(Column c) const {
        return reinterpret_cast<T*>(file[c & 1] + (c & ~1));
    }
    u32& predicate(Column c) const { return *column<u32>(c); }
    bool active(int lane) const { return mask >> lane & 1; }
};

struct Barrier {
    u32 arrived = 0;  // threads
    u32 expected = 0;
    u64 warps = 0;  // that arrived
    int first_pc = -1;
    int first_warp = -1;
    u32 ones = 0;  // threads whose bar.red predicate was true
    u32 voters = 0;
};

struct Launch {
    const Kernel* kernel = nullptr;
    Dim3 grid, block;
    u32 dynamic_shared = 0;
    std::vector<char> params;
    bool cooperative = false;
    u64 grid_workspace = 0;  // device address of the grid barrier of cooperative groups
    // Filled by run_launch.
    Memory* memory = nullptr;
    Counters* counters = nullptr;  // null: not counting
    u64 instructions = 0;          // warp instructions executed
    u64 clock = 0;                 // what %clock reads
    u64 budget = 0;                // 0: none
};

struct Block {
    Launch* launch = nullptr;
    const Kernel* kernel = nullptr;
    Dim3 index;
    u32 threads = 0;
    std::vector<Warp> warps;
    std::array<Barrier, 16> barriers{};
    char* shared = nullptr;
    u32 shared_bytes = 0;
    char* local = nullptr;              // kernel->local_bytes per thread
    std::vector<u8> shared_written;     // per byte, empty unless the init check is on
    std::unique_ptr<RaceChecker> race;  // null unless the race check is on
    bool watched = false;               // any of race, init, counters: loads and stores take the slow path
    std::vector<char> storage;

    void start(Dim3 block_index);
    // Runs warps until all are done (true) or all wait for another block or used up their slice (false).
    bool run(u64 slice);
};

// A kernel did something a GPU would fault on or a sanitizer would report. `report` is complete.
struct KernelFault : std::runtime_error {
    int cuda_error;
    KernelFault(const std::string& report, int cuda_error)
        : std::runtime_error(report), cuda_error(cuda_error) {}
};

// Values of cudaError used in faults.
constexpr int kIllegalAddress = 700, kMisaligned = 716, kAssert = 710, kLaunchFailure = 719,
              kLaunchTimeout = 702;

// Throws KernelFault naming kernel, block, thread (if lane >= 0) and source line.
[[noreturn]] void fault(const Warp& w, const Inst& i, int lane, int cuda_error, const std::string& what);
std::string describe_thread(const Block& block, int thread);

// Runs all blocks. Throws KernelFault.
void run_launch(Launch& launch);

}  // namespace cusim
