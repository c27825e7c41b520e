// kernel.h: a decoded kernel: instructions with handlers and register columns, ready to run.
//
// A register of a warp is a column: 32 values side by side, one per lane (a predicate is one 32-bit mask).
// Columns live in two files: the warp's own registers, and constants shared by the whole launch. A column
// reference is the byte offset in its file, plus 1 if it is the constant file's.
#pragma once
#include <string>
#include <vector>

#include "../ptx/module.h"

namespace cusim {

struct Warp;
struct Inst;
struct Allocation;
using Handler = void (*)(Warp&, const Inst&);
using Column = s32;
constexpr Column kNoColumn = -1;

// How the warp's loop treats an instruction.
enum class Flow : u8 {
    Plain,        // run for the lanes whose guard holds, go on
    Branch,       // to `target`
    IndexBranch,  // to targets[a]
    Exit,
    Collective,  // needs all lanes of its member mask at once (mask column c, or the whole warp)
    Barrier,     // block barrier
};

// What the counters call it.
enum class Class : u8 {
    Integer,
    Float,
    Half,
    Double,
    Convert,
    Move,
    Compare,
    Memory,
    Atomic,
    Collective,
    Tensor,
    AsyncCopy,
    Control,
    Barrier,
    Count
};
const char* class_name(Class c);

struct Inst {
    Handler run = nullptr;
    Column d = kNoColumn, a = kNoColumn, b = kNoColumn, c = kNoColumn;
    Column guard = kNoColumn;
    bool guard_negated = false;
    bool flag = false;  // meaning depends on the handler
    Flow flow = Flow::Plain;
    Class kind = Class::Control;
    u8 space = 0;  // Space of a memory access
    u8 address_bytes = 8;
    u8 register_bytes = 0;     // width of the registers of a load or store, or of a conversion's result
    u8 source_bytes = 0;       // width of a conversion's source register
    u8 mode = 0;               // meaning depends on the handler
    s32 source_offset = 0;     // displacement of a copy's source
    s64 immediate = 0;         // address displacement, branch target, ...
    std::vector<Column> more;  // further operands
    const Instruction* source = nullptr;
    mutable const Allocation* hint = nullptr;  // the allocation its last access hit
};

// Values a kernel reads from the hardware; the runtime fills their columns.
enum class Special : u8 {
    TidX,
    TidY,
    TidZ,
    LaneId,
    WarpId,
    LaneMaskEq,
    LaneMaskLe,
    LaneMaskLt,
    LaneMaskGe,
    LaneMaskGt,  // per warp
    CtaidX,
    CtaidY,
    CtaidZ,  // per block
    NtidX,
    NtidY,
    NtidZ,
    NctaidX,
    NctaidY,
    NctaidZ,
    SmId,
    NSmId,
    NWarpId,
    GridId,  // per launch
    DynamicSharedSize,
    TotalSharedSize,
    EnvReg1,
    EnvReg2,
    Zero,
    One,
    Count
};

struct Parameter {
    u32 offset, bytes;
};

struct Kernel {
    std::string name;
    const Module* module = nullptr;
    std::vector<Inst> code;
    std::vector<Parameter> params;
    u32 param_bytes = 0;
    u32 register_bytes = 0;         // of one warp
    std::vector<char> constants;    // the constant file; special columns are filled at launch
    std::vector<Column> special;    // by Special, kNoColumn if unused
    u32 static_shared = 0;          // bytes
    u32 dynamic_shared_offset = 0;  // where extern __shared__ begins
    u32 local_bytes = 0;            // per thread
    u32 max_threads = 1024;         // per block
    int virtual_registers = 0;

    std::string file_of(const Inst& inst) const;  // "softmax.cu:21", or "PTX line 345"
};

}  // namespace cusim
