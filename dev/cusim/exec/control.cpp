// control.cpp: branches, calls, barriers, fences; printf and assert.
#include <algorithm>
#include <cstdio>

#include "lanes.h"
#include "memory.h"
#include "tables.h"

namespace cusim {

void emit_warp_sync(Decoder& d, size_t mask_operand);  // collective.cpp

namespace {

void no_operation(Warp&, const Inst&) {}

void emit_plain(Decoder& d, Handler run) {
    Inst i;
    i.run = run;
    d.emit(std::move(i));
}

void build_bra(Decoder& d, Form& f) {
    f.take("uni");
    d.emit_branch(d.operand(0).name);
}

void build_brx(Decoder& d, Form& f) {
    f.take("idx");
    f.take("uni");
    d.emit_index_branch(d.operand(0), d.operand(1).name);
}

// bar.sync a[, b]   bar.arrive a, b   bar.red.op d, a[, b], p   bar.warp.sync mask; `barrier` is the same,
// and only with .aligned demands that whole warps arrive together.
void build_barrier(Decoder& d, Form& f, bool aligned) {
    if (f.take("warp")) {
        f.take("sync");
        return emit_warp_sync(d, 0);
    }
    if (f.take("cluster")) {  // a cluster of one block
        f.take_any({"arrive", "wait"});
        f.take_any({"release", "acquire", "relaxed"});
        f.take("aligned");
        return emit_plain(d, no_operation);
    }
    f.take("cta");
    int what = f.take_any({"sync", "arrive", "red"});
    if (what < 0) d.unknown("barrier", "exec/control.cpp");
    aligned |= f.take("aligned");
    Inst i;
    i.flow = Flow::Barrier;
    i.kind = Class::Barrier;
    i.flag = aligned;
    i.immediate = what == 1;
    size_t at = 0, left = d.operand_count();
    if (what == 2) {
        int op = f.take_any({"popc", "and", "or"});
        if (op < 0) d.unknown("barrier reduction", "exec/control.cpp");
        Type type = f.take_type();
        i.mode = u8(op);
        i.d = d.write(0, type);
        Operand p = d.operand(left - 1);
        if (p.negated) i.mode |= 4;
        p.negated = false;
        i.c = d.read(p, Type::Pred);
        at = 1;
        left--;
    }
    i.a = d.read(at, Type::U32);
    if (at + 1 < left) i.b = d.read(at + 1, Type::U32);
    if (what == 1 && i.b == kNoColumn) d.error("bar.arrive needs a thread count");
    d.emit(std::move(i));
}

// Orderings change nothing when blocks run one after another; consume whatever qualifiers there are.
void build_fence(Decoder& d, Form& f) {
    for (std::string_view m : {"proxy", "mbarrier_init", "async", "tensormap"})
        for (std::string_view have : f.rest())
            if (have == m && m != "proxy" && m != "async") d.unknown("fence", "exec/control.cpp");
    while (!f.rest().empty()) f.take(std::string_view(f.rest()[0]));
    emit_plain(d, no_operation);
}

[[noreturn]] void trap(Warp& w, const Inst& i) {
    fault(w, i, __builtin_ctz(w.mask), kLaunchFailure, "trap instruction executed");
}

// ---- printf
// ------------------------------------------------------------------------------------------------------------

std::string read_string(Warp& w, const Inst& i, int lane, u64 address) {
    std::string s;
    for (; s.size() < 65536; address++) {
        char c = *locate_one(w, i, lane, Space::Generic, address, 1, Access::Read);
        if (!c) break;
        s += c;
    }
    return s;
}

template <class T>
T read_local(Warp& w, const Inst& i, int lane, u64 offset) {
    T value;
    std::memcpy(&value, locate_one(w, i, lane, Space::Local, offset, int(sizeof(T)), Access::Read),
                sizeof(T));
    return value;
}
template <class T>
T read_generic(Warp& w, const Inst& i, int lane, u64 address) {
    T value;
    std::memcpy(&value, locate_one(w, i, lane, Space::Generic, address, int(sizeof(T)), Access::Read),
                sizeof(T));
    return value;
}

// snprintf by a pattern the kernel chose; the result may have any length.
template <class T>
std::string formatted(const std::string& pattern, T value) {
    std::string out(size_t(std::max(std::snprintf(nullptr, 0, pattern.c_str(), value), 0)) + 1, '\0');
    std::snprintf(&out[0], out.size(), pattern.c_str(), value);
    out.pop_back();
    return out;
}

// The arguments lie in one buffer, each aligned to its size: 4-byte integers, 8-byte integers, pointers and
// doubles.
std::string format_arguments(Warp& w, const Inst& i, int lane, const std::string& pattern, u64 args) {
    std::string out;
    for (size_t at = 0; at < pattern.size();) {
        if (pattern[at] != '%') {
            out += pattern[at++];
            continue;
        }
        size_t end = at + 1;
        while (end < pattern.size() && std::strchr("-+ #0123456789.*", pattern[end])) end++;
        bool wide = false;
        std::string spec = pattern.substr(at, end - at);
        while (end < pattern.size() && std::strchr("hlzjt", pattern[end])) wide |= pattern[end++] != 'h';
        char kind = end < pattern.size() ? pattern[end++] : '%';
        at = end;
        auto next = [&](u64 size) {
            args = (args + size - 1) / size * size;
            u64 here = args;
            args += size;
            return here;
        };
        for (size_t star; (star = spec.find('*')) != std::string::npos;)
            spec.replace(star, 1, std::to_string(read_generic<s32>(w, i, lane, next(4))));
        if (kind == '%')
            out += '%';
        else if (std::strchr("diuxXoc", kind) && wide)
            out += formatted(spec + "ll" + kind, read_generic<s64>(w, i, lane, next(8)));
        else if (std::strchr("diuxXoc", kind))
            out += formatted(spec + kind, read_generic<s32>(w, i, lane, next(4)));
        else if (std::strchr("fFeEgGaA", kind))
            out += formatted(spec + kind, read_generic<f64>(w, i, lane, next(8)));
        else if (kind == 'p')
            out += text("0x%llx", (unsigned long long)read_generic<u64>(w, i, lane, next(8)));
        else if (kind == 's')
            out += formatted(spec + 's',
                             read_string(w, i, lane, read_generic<u64>(w, i, lane, next(8))).c_str());
        else
            out += text("%%%c", kind);
    }
    return out;
}

u64 argument_offset(const Warp& w, const Inst& i, size_t k) {
    return *w.column<u32>(i.more[k]);
}

// more: offsets of format and buffer pointers, and of the result.
void print(Warp& w, const Inst& i) {
    for (u32 rest = w.mask; rest; rest &= rest - 1) {
        int l = __builtin_ctz(rest);
        std::string pattern = read_string(w, i, l, read_local<u64>(w, i, l, argument_offset(w, i, 0)));
        u64 args = read_local<u64>(w, i, l, argument_offset(w, i, 1));
        std::string out = format_arguments(w, i, l, pattern, args);
        std::fwrite(out.data(), 1, out.size(), stdout);
        s32 count = s32(out.size());
        std::memcpy(locate_one(w, i, l, Space::Local, argument_offset(w, i, 2), 4, Access::Write), &count, 4);
    }
}

[[noreturn]] void assert_failed(Warp& w, const Inst& i) {
    int l = __builtin_ctz(w.mask);
    auto string = [&](size_t k) {
        return read_string(w, i, l, read_local<u64>(w, i, l, argument_offset(w, i, k)));
    };
    fault(w, i, l, kAssert,
          text("%s:%u: %s: assertion `%s' failed", string(1).c_str(),
               read_local<u32>(w, i, l, argument_offset(w, i, 2)), string(3).c_str(), string(0).c_str()));
}

}  // namespace

void emit_system_call(Decoder& d, const std::string& name, const std::vector<u32>& args,
                      const std::vector<u32>& results) {
    Inst i;
    if (name == "vprintf" && args.size() == 2 && results.size() == 1)
        i.run = print;
    else if (name == "__assertfail" && args.size() == 5)
        i.run = assert_failed;
    else
        d.unknown("device function '" + name + "'", "exec/control.cpp (emit_system_call)");
    for (const auto* list : {&args, &results})
        for (u32 offset : *list) i.more.push_back(d.constant(offset, 4));
    d.emit(std::move(i));
}

void add_control(BuilderTable& t) {
    t["bra"] = build_bra;
    t["brx"] = build_brx;
    t["ret"] = [](Decoder& d, Form& f) {
        f.take("uni");
        d.emit_return(false);
    };
    t["exit"] = [](Decoder& d, Form&) { d.emit_return(true); };
    t["call"] = [](Decoder& d, Form& f) {
        f.take("uni");
        d.call();
    };
    t["bar"] = [](Decoder& d, Form& f) { build_barrier(d, f, true); };
    t["barrier"] = [](Decoder& d, Form& f) { build_barrier(d, f, false); };
    t["membar"] = t["fence"] = build_fence;
    t["griddepcontrol"] = [](Decoder& d, Form& f) {
        f.take_any({"launch_dependents", "wait"});
        emit_plain(d, no_operation);
    };
    t["nanosleep"] = [](Decoder& d, Form& f) {
        f.take_type();
        emit_plain(d, no_operation);
    };
    t["pmevent"] = [](Decoder& d, Form& f) {
        f.take("mask");
        emit_plain(d, no_operation);
    };
    t["brkpt"] = [](Decoder& d, Form&) { emit_plain(d, no_operation); };
    t["trap"] = [](Decoder& d, Form&) { emit_plain(d, trap); };
}

}  // namespace cusim
