// counters.h: exact, repeatable counts per kernel, written as JSON at the end of the program
// (CUSIM_STATS=file.json).
#pragma once
#include <map>
#include <string>
#include <vector>

#include "warp.h"

namespace cusim {

enum class Access : u8;

struct Traffic {
    u64 requests = 0;  // warp instructions
    u64 bytes = 0;     // asked for by lanes
    u64 units = 0;     // shared: wavefronts; global: 32-byte sectors
    u64 ideal = 0;     // the fewest units that carry the distinct bytes of each request
};

struct Counters {
    u64 launches = 0, blocks = 0;
    u64 instructions = 0, thread_instructions = 0;  // warp instructions, and times active lanes
    u64 by_class[int(Class::Count)] = {};
    u64 branches = 0, divergent_branches = 0, barriers = 0;
    u64 tensor_multiply_adds = 0;
    Traffic shared[3], global[3], local[3];  // by Access
    std::map<std::string, u64> by_line;      // warp instructions per source line
    // Executions by pc, folded into by_line when the launch ends.
    std::vector<u64> by_pc;
};

void count_instruction(Counters& c, const Inst& i, int pc, u32 mask);
void count_shared(Counters& c, const Inst& i, const u32* offset, u32 mask, int bytes, Access access);
void count_global(Counters& c, const Inst& i, const u64* address, u32 mask, int bytes, Access access);
void count_local(Counters& c, u32 mask, int bytes, Access access);

// The counters of a kernel; null if the program does not count.
Counters* counters_of(const Kernel& kernel);
void finish_counting(Counters& c, const Kernel& kernel);
// Writes the file if one was asked for.
void write_counters();

}  // namespace cusim
