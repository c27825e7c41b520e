// registration.cpp: what nvcc's generated code calls before main: fat binaries, kernels, device variables.
#include <cstring>

#include "../exec/counters.h"
#include "../ptx/decode.h"
#include "runtime.h"

namespace cusim {

namespace {

// Fat binary: header, then entries of machine code (kind 2) or PTX (kind 1).
struct FatHeader {
    u32 magic;
    u16 version, header_bytes;
    u64 bytes;
};
struct FatEntry {
    u16 kind, version;
    u32 header_bytes;
    u64 bytes;
    u32 compressed_bytes, options_offset;
    u16 minor, major;
    u32 arch, name_offset, name_bytes;
    u64 flags, zero, uncompressed_bytes;
};
constexpr u32 kFatMagic = 0xba55ed50;
constexpr u64 kCompressed = 0x2000 | 0x8000;

struct FatWrapper {
    u32 magic, version;
    const char* data;
    void* other;
};

void read_fat_binary(const char* data, LoadedModule& m) {
    FatHeader header;
    std::memcpy(&header, data, sizeof header);
    if (header.magic != kFatMagic)
        stop("the executable's fat binary has an unknown format (built by another CUDA version?)");
    const char* at = data + header.header_bytes;
    const char* end = at + header.bytes;
    while (at + sizeof(FatEntry) <= end) {
        FatEntry e;
        std::memcpy(&e, at, sizeof e);
        if (e.header_bytes < sizeof e || e.bytes > u64(end - at))
            stop("the executable's fat binary is damaged");
        if (e.kind == 2) m.has_machine_code = true;
        if (e.kind == 1 && (e.flags & kCompressed)) m.compressed = true;
        if (e.kind == 1 && !(e.flags & kCompressed))
            m.images.emplace_back(
                int(e.arch), std::string_view(at + e.header_bytes, strnlen(at + e.header_bytes, e.bytes)));
        at += e.header_bytes + e.bytes;
    }
}

void announce() {
    const Options& o = options();
    if (o.quiet) return;
    std::string checks = o.check_race ? " race" : "";
    if (o.check_init) checks += " init";
    std::fprintf(
        stderr, "cusim: CUDA executes on the CPU (checks: bounds, barriers%s; streams: %s)\n", checks.c_str(),
        o.lazy_streams ? text("lazy, seed %llu", (unsigned long long)o.stream_seed).c_str() : "eager");
}

}  // namespace

Runtime::Runtime() {
    announce();
}

Runtime& Runtime::get() {
    static Runtime* r = new Runtime;  // never destroyed: programs call in from static destructors
    return *r;
}

Module& Runtime::parse(LoadedModule& m) {
    if (m.module) return *m.module;
    const std::pair<int, std::string_view>* best = nullptr;
    for (const auto& image : m.images)
        if (image.first <= options().capability && (!best || image.first > best->first)) best = &image;
    if (!best) {
        if (m.compressed) stop("the executable's PTX is compressed; build it with nvcc --no-compress");
        if (!m.images.empty())
            stop(text("the executable has PTX for sm_%d, the device is sm_%d (CUSIM_CC)", m.images[0].first,
                      options().capability));
        stop(
            "the executable contains no PTX; build it with -gencode arch=compute_80,code=compute_80 "
            "--no-compress");
    }
    try {
        m.module = parse_module(std::string(best->second));
    } catch (const PtxError& e) {
        stop(text("PTX line %d: %s", e.line, e.what()));
    }
    initialise_symbols(m);
    return *m.module;
}

u64 Runtime::place_symbol(LoadedModule& m, const Variable& v) {
    auto it = m.symbols.find(v.name);
    if (it != m.symbols.end()) return it->second;
    if (v.external)
        stop("device variable '" + v.name +
             "' is defined elsewhere; cusim needs whole-program compilation (no -rdc)");
    Allocation* a = memory.allocate(v.bytes(), Allocation::Symbol, v.name);
    if (!a) stop("no memory for device variable '" + v.name + "'");
    a->constant = v.space == Space::Const;
    return m.symbols[v.name] = a->start;
}

void Runtime::initialise_symbols(LoadedModule& m) {
    for (const std::string& name : m.module->variable_order) {
        const Variable& v = m.module->variables.find(name)->second;
        if (v.space != Space::Shared && !v.external) place_symbol(m, v);
    }
    for (const std::string& name : m.module->variable_order) {
        const Variable& v = m.module->variables.find(name)->second;
        if (v.space == Space::Shared || v.external) continue;
        char* to = memory.translate(m.symbols[name], v.bytes());
        const char* end = to + v.bytes();
        for (const Initialiser& x : v.init) {
            u64 value = u64(x.value);
            int bytes = x.bytes ? x.bytes : type_bytes(v.type);
            if (!x.symbol.empty()) {
                auto it = m.symbols.find(x.symbol);
                if (it == m.symbols.end())
                    stop("initial value of '" + name + "' names '" + x.symbol + "', which is unknown");
                value = (it->second + value) >> x.shift;
            }
            if (to + bytes > end) stop("too many initial values for '" + name + "'");
            std::memcpy(to, &value, size_t(bytes));
            to += bytes;
        }
    }
}

Kernel& Runtime::kernel(KernelEntry& entry) {
    if (entry.kernel) return *entry.kernel;
    LoadedModule& m = *entry.module;
    Module& module = parse(m);
    auto it = module.functions.find(entry.name);
    if (it == module.functions.end()) stop("the PTX has no kernel '" + entry.name + "'");
    try {
        Decoder decoder(module, [&](const Variable& v) { return place_symbol(m, v); });
        entry.kernel = &(m.kernels[entry.name] = decoder.decode(it->second));
    } catch (const PtxError& e) {
        stop(text("kernel %s, PTX line %d: %s", entry.name.c_str(), e.line, e.what()));
    }
    return *entry.kernel;
}

u64 Runtime::symbol_address(const SymbolEntry& entry) {
    parse(*entry.module);
    auto it = entry.module->symbols.find(entry.name);
    if (it == entry.module->symbols.end()) stop("the PTX has no variable '" + entry.name + "'");
    return it->second;
}

}  // namespace cusim

using namespace cusim;

CUSIM_API void** __cudaRegisterFatBinary(void* fat) {
    Runtime& r = Runtime::get();
    Locked locked;
    FatWrapper wrapper;
    std::memcpy(&wrapper, fat, sizeof wrapper);
    r.modules.push_back(std::make_unique<LoadedModule>());
    read_fat_binary(wrapper.data, *r.modules.back());
    return reinterpret_cast<void**>(r.modules.back().get());
}
CUSIM_API void __cudaRegisterFatBinaryEnd(void**) {}

CUSIM_API void __cudaUnregisterFatBinary(void**) {
    static bool written = false;
    if (!written) write_counters();
    written = true;
}

CUSIM_API void __cudaRegisterFunction(void** handle, const char* host, char*, const char* name, int, uint3*,
                                      uint3*, dim3*, dim3*, int*) {
    Locked locked;
    Runtime::get().kernels[host] = {reinterpret_cast<LoadedModule*>(handle), name};
}
CUSIM_API void __cudaRegisterVar(void** handle, char* host, char*, const char* name, int, size_t bytes, int,
                                 int) {
    Locked locked;
    Runtime::get().symbols[host] = {reinterpret_cast<LoadedModule*>(handle), name, bytes};
}
CUSIM_API void __cudaRegisterManagedVar(void**, void**, char*, const char* name, int, size_t, int, int) {
    stop(std::string("__managed__ variable '") + name +
         "' is not supported; extend dev/cusim/rt/registration.cpp");
}
CUSIM_API char __cudaInitModule(void**) {
    return 0;
}
