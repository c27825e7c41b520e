// launch.cpp: prepares a launch (register files, shared and local memory, special registers) and runs its
// blocks.
#include <cxxabi.h>
#include <algorithm>

#include "counters.h"
#include "memory.h"
#include "options.h"
#include "race.h"
#include "warp.h"

namespace cusim {

namespace {

// After so many instructions without a barrier the next warp (or, in a cooperative launch, block) has its
// turn, so that a warp may wait for another one's store.
constexpr u64 kSlice = 1 << 16;

// The constant file of a launch: the kernel's constants with the launch's special registers filled in.
std::vector<char> constant_file(const Launch& launch) {
    const Kernel& k = *launch.kernel;
    std::vector<char> file = k.constants;
    auto fill = [&](Special s, u32 value) {
        Column c = k.special[size_t(s)];
        if (c != kNoColumn) std::fill_n(reinterpret_cast<u32*>(file.data() + (c & ~1)), kWarp, value);
    };
    u32 warps = u32((launch.block.count() + kWarp - 1) / kWarp);
    fill(Special::NtidX, launch.block.x);
    fill(Special::NtidY, launch.block.y);
    fill(Special::NtidZ, launch.block.z);
    fill(Special::NctaidX, launch.grid.x);
    fill(Special::NctaidY, launch.grid.y);
    fill(Special::NctaidZ, launch.grid.z);
    fill(Special::NSmId, 1);
    fill(Special::NWarpId, warps);
    fill(Special::DynamicSharedSize, launch.dynamic_shared);
    fill(Special::TotalSharedSize, k.dynamic_shared_offset + launch.dynamic_shared);
    fill(Special::EnvReg1, u32(launch.grid_workspace >> 32));
    fill(Special::EnvReg2, u32(launch.grid_workspace));
    fill(Special::One, 1);
    return file;
}

void fill_thread_columns(Warp& w, const Kernel& k, Dim3 dim) {
    auto fill = [&](Special s, auto value) {
        Column c = k.special[size_t(s)];
        if (c == kNoColumn) return;
        for (int l = 0; l < kWarp; l++) w.column<u32>(c)[l] = value(u32(l), u32(w.id * kWarp + l));
    };
    fill(Special::TidX, [&](u32, u32 t) { return t % dim.x; });
    fill(Special::TidY, [&](u32, u32 t) { return t / dim.x % dim.y; });
    fill(Special::TidZ, [&](u32, u32 t) { return t / dim.x / dim.y; });
    fill(Special::LaneId, [](u32 l, u32) { return l; });
    fill(Special::WarpId, [&](u32, u32) { return u32(w.id); });
    fill(Special::LaneMaskEq, [](u32 l, u32) { return 1u << l; });
    fill(Special::LaneMaskLt, [](u32 l, u32) { return (1u << l) - 1; });
    fill(Special::LaneMaskLe, [](u32 l, u32) { return (2u << l) - 1; });
    fill(Special::LaneMaskGe, [](u32 l, u32) { return ~((1u << l) - 1); });
    fill(Special::LaneMaskGt, [](u32 l, u32) { return ~((2u << l) - 1); });
}

std::unique_ptr<Block> make_block(Launch& launch, std::vector<char>& constants) {
    const Kernel& k = *launch.kernel;
    auto b = std::make_unique<Block>();
    b->launch = &launch;
    b->kernel = &k;
    b->threads = u32(launch.block.count());
    u32 warps = (b->threads + kWarp - 1) / kWarp;
    b->shared_bytes =
        launch.dynamic_shared ? k.dynamic_shared_offset + launch.dynamic_shared : k.static_shared;
    size_t shared = (b->shared_bytes + 255) / 256 * 256,
           local = (size_t(k.local_bytes) * b->threads + 63) / 64 * 64;
    b->storage.assign(size_t(warps) * k.register_bytes + shared + local + 256, 0);
    char* at = b->storage.data() + (256 - reinterpret_cast<uintptr_t>(b->storage.data()) % 256);
    b->shared = at;
    at += shared;
    b->local = at;
    at += local;
    b->warps.resize(warps);
    for (u32 id = 0; id < warps; id++) {
        Warp& w = b->warps[id];
        w.file[0] = at;
        w.file[1] = constants.data();
        w.id = int(id);
        w.block = b.get();
        at += k.register_bytes;
        fill_thread_columns(w, k, launch.block);
    }
    const Options& o = options();
    if (o.check_race && b->shared_bytes) b->race = std::make_unique<RaceChecker>(*b);
    if (o.check_init) b->shared_written.assign(b->shared_bytes, 0);
    b->watched = b->race || o.check_init || launch.counters;
    return b;
}

Dim3 block_at(const Launch& launch, u64 n) {
    return {u32(n % launch.grid.x), u32(n / launch.grid.x % launch.grid.y),
            u32(n / launch.grid.x / launch.grid.y)};
}

std::string demangled(const std::string& name) {
    int status;
    char* s = abi::__cxa_demangle(name.c_str(), nullptr, nullptr, &status);
    if (!s) return name;
    std::string out = s;
    free(s);
    return out;
}

}  // namespace

std::string Kernel::file_of(const Inst& inst) const {
    if (!inst.source) return "the end of the kernel";
    auto place = [&](int file, int line) -> std::string {
        auto it = line ? module->files.find(file) : module->files.end();
        if (it == module->files.end()) return "";
        size_t slash = it->second.rfind('/');
        return text("%s:%d", it->second.substr(slash == std::string::npos ? 0 : slash + 1).c_str(), line);
    };
    const Location& at = inst.source->source;
    std::string here = place(at.file, at.line), caller = place(at.caller_file, at.caller_line);
    if (here.empty()) return text("PTX line %d", inst.source->ptx_line);
    return caller.empty() ? here : here + " (called from " + caller + ")";
}

std::string describe_thread(const Block& block, int thread) {
    Dim3 d = block.launch->block;
    u32 t = u32(thread);
    return text("thread (%u,%u,%u)", t % d.x, t / d.x % d.y, t / d.x / d.y);
}

void fault(const Warp& w, const Inst& i, int lane, int cuda_error, const std::string& what) {
    const Block& b = *w.block;
    std::string who = describe_thread(b, w.id * kWarp + std::max(lane, 0));
    if (lane < 0) who = text("warp %d (from %s)", w.id, who.c_str());
    std::string instruction = i.source ? std::string(i.source->opcode) : "exit";
    throw KernelFault(text("%s at %s\n  kernel %s, block (%u,%u,%u), %s, instruction %s", what.c_str(),
                           b.kernel->file_of(i).c_str(), demangled(b.kernel->name).c_str(), b.index.x,
                           b.index.y, b.index.z, who.c_str(), instruction.c_str()),
                      cuda_error);
}

void run_launch(Launch& launch) {
    u64 blocks = launch.grid.count();
    std::vector<char> constants = constant_file(launch);
    if (launch.counters) launch.counters->launches++, launch.counters->blocks += blocks;
    u64 resident = launch.cooperative ? blocks : 1;
    std::vector<std::unique_ptr<Block>> running;
    std::vector<std::vector<char>> files;
    files.reserve(resident);
    for (u64 n = 0; n < resident; n++) {
        files.push_back(constants);
        running.push_back(make_block(launch, files.back()));
    }
    if (!launch.cooperative) {
        for (u64 n = 0; n < blocks; n++) {
            running[0]->start(block_at(launch, n));
            running[0]->run(kSlice);
        }
        return;
    }
    for (u64 n = 0; n < blocks; n++) running[n]->start(block_at(launch, n));
    std::vector<bool> done(blocks, false);
    for (u64 left = blocks; left;)
        for (u64 n = 0; n < blocks; n++)
            if (!done[n] && running[n]->run(kSlice)) done[n] = true, left--;
}

}  // namespace cusim
