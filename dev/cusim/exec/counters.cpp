// counters.cpp: see counters.h.
#include "counters.h"

#include <cxxabi.h>
#include <unistd.h>
#include <algorithm>
#include <cstdio>

#include "memory.h"
#include "options.h"

namespace cusim {

namespace {

// Not destroyed at exit: the program's last calls come from exit handlers.
std::map<std::string, Counters>& all_counters() {
    static auto* all = new std::map<std::string, Counters>;
    return *all;
}

const char* kClassNames[] = {"integer", "float",  "half",       "double", "convert",    "move",    "compare",
                             "memory",  "atomic", "collective", "tensor", "async_copy", "control", "barrier"};

}  // namespace

const char* class_name(Class c) {
    return kClassNames[int(c)];
}

void count_instruction(Counters& c, const Inst& i, int pc, u32 mask) {
    if (!mask) return;  // predicated off for all
    c.instructions++;
    c.thread_instructions += u64(__builtin_popcount(mask));
    c.by_class[int(i.kind)]++;
    if (i.flow == Flow::Branch && i.guard != kNoColumn) c.branches++;
    if (size_t(pc) >= c.by_pc.size()) c.by_pc.resize(size_t(pc) + 1);
    c.by_pc[size_t(pc)]++;
}

// Shared memory has 32 banks of 4 bytes. A request of 4-byte lanes is served 32 lanes at a time, of 8-byte
// lanes 16, of 16-byte lanes 8; each such part takes as many wavefronts as the most distinct words one bank
// must deliver.
void count_shared(Counters& c, const Inst&, const u32* offset, u32 mask, int bytes, Access access) {
    Traffic& t = c.shared[int(access)];
    t.requests++;
    t.bytes += u64(__builtin_popcount(mask)) * u64(bytes);
    int lanes_per_part = bytes >= 16 ? 8 : bytes == 8 ? 16 : 32;
    for (int part = 0; part < kWarp; part += lanes_per_part) {
        u32 words[kWarp * 4];
        int n = 0;
        for (int l = part; l < part + lanes_per_part; l++) {
            if (!(mask >> l & 1)) continue;
            for (int b = 0; b < std::max(bytes, 4); b += 4) words[n++] = (offset[l] + u32(b)) / 4;
        }
        if (!n) continue;
        std::sort(words, words + n);
        n = int(std::unique(words, words + n) - words);
        int per_bank[32] = {}, most = 0;
        for (int k = 0; k < n; k++) most = std::max(most, ++per_bank[words[k] % 32]);
        t.units += u64(most);
        t.ideal += u64((n + 31) / 32);
    }
}

void count_global(Counters& c, const Inst&, const u64* address, u32 mask, int bytes, Access access) {
    Traffic& t = c.global[int(access)];
    t.requests++;
    t.bytes += u64(__builtin_popcount(mask)) * u64(bytes);
    u64 at[kWarp], sectors[kWarp * 2];
    int n = 0, s = 0;
    for (int l = 0; l < kWarp; l++) {
        if (!(mask >> l & 1)) continue;
        at[n++] = address[l];
        for (u64 sector = address[l] / 32; sector <= (address[l] + u64(bytes) - 1) / 32; sector++)
            sectors[s++] = sector;
    }
    std::sort(at, at + n);
    std::sort(sectors, sectors + s);
    u64 distinct = u64(std::unique(at, at + n) - at) * u64(bytes);
    t.units += u64(std::unique(sectors, sectors + s) - sectors);
    t.ideal += (distinct + 31) / 32;
}

void count_local(Counters& c, u32 mask, int bytes, Access access) {
    Traffic& t = c.local[int(access)];
    t.requests++;
    t.bytes += u64(__builtin_popcount(mask)) * u64(bytes);
}

Counters* counters_of(const Kernel& kernel) {
    if (options().stats_path.empty()) return nullptr;
    return &all_counters()[kernel.name];
}

void finish_counting(Counters& c, const Kernel& kernel) {
    for (size_t pc = 0; pc < c.by_pc.size(); pc++)
        if (c.by_pc[pc]) c.by_line[kernel.file_of(kernel.code[pc])] += c.by_pc[pc];
    c.by_pc.clear();
}

void write_counters() {
    std::string path = options().stats_path;
    if (path.empty()) return;
    if (size_t at = path.find("%p"); at != std::string::npos)
        path.replace(at, 2, std::to_string(getpid()));  // ranks
    std::FILE* f = std::fopen(path.c_str(), "w");
    if (!f) stop("cannot write CUSIM_STATS=" + path);
    auto number = [&](const char* key, u64 value) {
        std::fprintf(f, "      \"%s\": %llu,\n", key, (unsigned long long)value);
    };
    std::fprintf(f, "{\n  \"kernels\": {");
    const char* separator = "\n";
    for (auto& [name, c] : all_counters()) {
        int status;
        char* plain = abi::__cxa_demangle(name.c_str(), nullptr, nullptr, &status);
        std::fprintf(f, "%s    \"%s\": {\n      \"signature\": \"%s\",\n", separator, name.c_str(),
                     plain ? plain : name.c_str());
        free(plain);
        separator = ",\n";
        number("launches", c.launches);
        number("blocks", c.blocks);
        number("instructions", c.instructions);
        number("thread_instructions", c.thread_instructions);
        number("branches", c.branches);
        number("divergent_branches", c.divergent_branches);
        number("barriers", c.barriers);
        number("tensor_multiply_adds", c.tensor_multiply_adds);
        std::fprintf(f, "      \"classes\": {");
        for (int k = 0; k < int(Class::Count); k++)
            std::fprintf(f, "%s\"%s\": %llu", k ? ", " : "", kClassNames[k],
                         (unsigned long long)c.by_class[k]);
        std::fprintf(f, "},\n");
        const char* access_names[] = {"read", "write", "atomic"};
        struct Part {
            const char *name, *unit;
            const Traffic* traffic;
        };
        for (const Part& p : {Part{"shared", "wavefronts", c.shared}, Part{"global", "sectors", c.global},
                              Part{"local", "units", c.local}}) {
            std::fprintf(f, "      \"%s\": {", p.name);
            for (int a = 0; a < 3; a++) {
                const Traffic& t = p.traffic[a];
                std::fprintf(f,
                             "%s\n        \"%s\": {\"requests\": %llu, \"bytes\": %llu, \"%s\": %llu, "
                             "\"ideal\": %llu}",
                             a ? "," : "", access_names[a], (unsigned long long)t.requests,
                             (unsigned long long)t.bytes, p.unit, (unsigned long long)t.units,
                             (unsigned long long)t.ideal);
            }
            std::fprintf(f, "},\n");
        }
        std::fprintf(f, "      \"lines\": {");
        const char* comma = "";
        for (auto& [line, count] : c.by_line) {
            std::fprintf(f, "%s\n        \"%s\": %llu", comma, line.c_str(), (unsigned long long)count);
            comma = ",";
        }
        std::fprintf(f, "}\n    }");
    }
    std::fprintf(f, "\n  }\n}\n");
    std::fclose(f);
}

}  // namespace cusim
