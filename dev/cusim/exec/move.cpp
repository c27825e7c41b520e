// move.cpp: mov with packing and unpacking, clocks, address conversion (cvta, isspacep).
#include <ctime>

#include "lanes.h"
#include "memory.h"
#include "tables.h"

namespace cusim {

namespace {

template <class T>
void move(Warp& w, const Inst& i) {
    const T* a = w.column<T>(i.a);
    write_lanes(w, w.column<T>(i.d), [=](int l) { return a[l]; });
}
void move_predicate(Warp& w, const Inst& i) {
    write_predicate(w, i.d, w.predicate(i.a));
}

Handler move_of(int bytes) {
    return bytes == 2 ? move<u16> : bytes == 4 ? move<u32> : bytes == 8 ? move<u64> : nullptr;
}

// {a, b, ...} -> d: element k is the k-th part from the low end. Part is the element, Whole the register.
template <class Whole, class Part>
void pack(Warp& w, const Inst& i) {
    write_lanes(w, w.column<Whole>(i.d), [&](int l) {
        Whole value = 0;
        for (size_t k = 0; k < sizeof(Whole) / sizeof(Part); k++)
            value |= Whole(Whole(w.column<Part>(i.more[k])[l]) << (8 * sizeof(Part) * k));
        return value;
    });
}
template <class Whole, class Part>
void unpack(Warp& w, const Inst& i) {
    const Whole* a = w.column<Whole>(i.a);
    for (size_t k = 0; k < i.more.size(); k++)
        write_lanes(w, w.column<Part>(i.more[k]),
                    [=](int l) { return Part(a[l] >> (8 * sizeof(Part) * k)); });
}

void build_pack(Decoder& d, Type type) {
    const Operand& parts = d.operand(1);
    int count = int(parts.parts.size()), bytes = type_bytes(type);
    Inst i;
    i.kind = Class::Move;
    Type part = bytes / std::max(count, 1) == 2 ? Type::B16 : Type::B32;
    if (bytes == 4 && count == 2)
        i.run = pack<u32, u16>;
    else if (bytes == 8 && count == 2)
        i.run = pack<u64, u32>;
    else if (bytes == 8 && count == 4)
        i.run = pack<u64, u16>;
    else
        d.unknown("packing", "exec/move.cpp");
    i.d = d.write(0, type);
    for (const Operand& p : parts.parts) i.more.push_back(d.read(p, part));
    d.emit(std::move(i));
}

void build_unpack(Decoder& d, Type type) {
    const Operand& parts = d.operand(0);
    int count = int(parts.parts.size()), bytes = type_bytes(type);
    Inst i;
    i.kind = Class::Move;
    Type part = bytes / std::max(count, 1) == 2 ? Type::B16 : Type::B32;
    if (bytes == 4 && count == 2)
        i.run = unpack<u32, u16>;
    else if (bytes == 8 && count == 2)
        i.run = unpack<u64, u32>;
    else if (bytes == 8 && count == 4)
        i.run = unpack<u64, u16>;
    else
        d.unknown("unpacking", "exec/move.cpp");
    i.a = d.read(1, type);
    for (const Operand& p : parts.parts) i.more.push_back(d.write(p, part));
    d.emit(std::move(i));
}

// A clock that advances with every look and is the same in every run.
u64 tick(Warp& w) {
    return w.block->launch->clock += 32;
}
template <class T>
void read_clock(Warp& w, const Inst& i) {
    u64 now = tick(w) >> i.immediate;
    write_lanes(w, w.column<T>(i.d), [=](int) { return T(now); });
}
template <class T>
void read_timer(Warp& w, const Inst& i) {
    timespec t;
    clock_gettime(CLOCK_MONOTONIC, &t);
    u64 now = (u64(t.tv_sec) * 1000000000 + u64(t.tv_nsec)) >> i.immediate;
    write_lanes(w, w.column<T>(i.d), [=](int) { return T(now); });
}

bool build_clock(Decoder& d, Type type) {
    const Operand& o = d.operand(1);
    if (o.kind != Operand::Name || o.name[0] != '%') return false;
    bool wide = type_bytes(type) == 8, clock = o.name.substr(0, 6) == "%clock",
         timer = o.name.substr(0, 12) == "%globaltimer";
    if (!clock && !timer) return false;
    Inst i;
    i.run = clock ? (wide ? read_clock<u64> : read_clock<u32>) : (wide ? read_timer<u64> : read_timer<u32>);
    i.immediate = o.name == "%clock_hi" || o.name == "%globaltimer_hi" ? 32 : 0;
    i.kind = Class::Move;
    i.d = d.write(0, type);
    d.emit(std::move(i));
    return true;
}

void build_mov(Decoder& d, Form& f) {
    Type type = f.take_type();
    if (d.operand(0).kind == Operand::Vector) return build_unpack(d, type);
    if (d.operand(1).kind == Operand::Vector) return build_pack(d, type);
    if (build_clock(d, type)) return;
    emit_same_type(d, type == Type::Pred ? move_predicate : move_of(type_bytes(type)), type, Class::Move, 1);
}

// cvta: mode 0: space to generic, 1: generic to space; immediate: the window's base.
void convert_address(Warp& w, const Inst& i) {
    const u64* a = w.column<u64>(i.a);
    u64 offset = i.mode ? 0 - u64(i.immediate) : u64(i.immediate);
    write_lanes(w, w.column<u64>(i.d), [=](int l) { return a[l] + offset; });
}

void build_cvta(Decoder& d, Form& f) {
    Inst i;
    i.mode = f.take("to");
    int space = f.take_any({"global", "shared", "local", "const", "param"});
    if (space == 1) f.take("cta");
    Type type = f.take_type();
    if (space < 0 || space == 4 || type_bytes(type) != 8) d.unknown("address space", "exec/move.cpp");
    i.immediate = space == 1 ? s64(Memory::kSharedWindow) : space == 2 ? s64(Memory::kLocalWindow) : 0;
    i.run = convert_address;
    i.kind = Class::Integer;
    i.d = d.write(0, type);
    i.a = d.read(1, type);
    d.emit(std::move(i));
}

void is_space(Warp& w, const Inst& i) {
    const u64* a = w.column<u64>(i.a);
    constexpr u64 window = 1 << 24;
    write_predicate(w, i.d, lane_bits([&](int l) {
                        bool shared = a[l] - Memory::kSharedWindow < window,
                             local = a[l] - Memory::kLocalWindow < window;
                        switch (i.mode) {
                            case 0:
                                return !shared && !local;
                            case 1:
                                return shared;
                            case 2:
                                return local;
                            default: {
                                const Allocation* x = w.block->launch->memory->find(a[l]);
                                return x && x->constant;
                            }
                        }
                    }));
}

void build_isspacep(Decoder& d, Form& f) {
    Inst i;
    int space = f.take_any({"global", "shared", "local", "const"});
    if (space == 1) f.take("cta");
    if (space < 0) d.unknown("address space", "exec/move.cpp");
    i.mode = u8(space);
    i.run = is_space;
    i.kind = Class::Compare;
    i.d = d.write(0, Type::Pred);
    i.a = d.read(1, Type::U64);
    d.emit(std::move(i));
}

}  // namespace

void add_move(BuilderTable& t) {
    t["mov"] = build_mov;
    t["cvta"] = build_cvta;
    t["isspacep"] = build_isspacep;
}

}  // namespace cusim
