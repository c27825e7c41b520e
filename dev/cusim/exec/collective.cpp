// collective.cpp: shuffles, votes, match, redux, __syncwarp. The warp's loop calls a handler once per member
// mask, when all its lanes are there (block.cpp); w.mask is then that group.
#include "lanes.h"
#include "tables.h"

namespace cusim {

namespace {

// Reading a lane that takes no part is undefined; this value (a NaN) makes it show.
constexpr u32 kUndefined = 0xffffffff;

enum ShuffleMode : u8 { kUp, kDown, kButterfly, kIndex };

// more[0]: the clamp and segment operand; d: result, more[1] (if present): in-range predicate.
void shuffle(Warp& w, const Inst& i) {
    const u32 *a = w.column<u32>(i.a), *b = w.column<u32>(i.b), *c = w.column<u32>(i.more[0]);
    u32 result[kWarp], in_range = 0;
    for (u32 l = 0; l < kWarp; l++) {
        u32 delta = b[l] & 31, clamp = c[l] & 31, segment = c[l] >> 8 & 31;
        u32 highest = (l & segment) | (clamp & ~segment);
        s32 j;
        bool ok;
        switch (i.mode) {
            case kUp:
                j = s32(l) - s32(delta);
                ok = j >= s32(highest);
                break;
            case kDown:
                j = s32(l + delta);
                ok = j <= s32(highest);
                break;
            case kButterfly:
                j = s32(l ^ delta);
                ok = j <= s32(highest);
                break;
            default:
                j = s32((l & segment) | (delta & ~segment));
                ok = j <= s32(highest);
                break;
        }
        if (!ok) j = s32(l);
        in_range |= u32(ok) << l;
        result[l] = (w.mask >> (j & 31) & 1) ? a[j & 31] : kUndefined;
    }
    write_lanes(w, w.column<u32>(i.d), [&](int l) { return result[l]; });
    if (i.more.size() > 1) write_predicate(w, i.more[1], in_range);
}

void build_shfl(Decoder& d, Form& f) {
    if (!f.take("sync")) d.unknown("shuffle without .sync", "exec/collective.cpp");
    int mode = f.take_any({"up", "down", "bfly", "idx"});
    Type type = f.take_type();
    if (mode < 0 || type_bytes(type) != 4) d.unknown("shuffle", "exec/collective.cpp");
    Inst i;
    i.flow = Flow::Collective;
    i.kind = Class::Collective;
    i.run = shuffle;
    i.mode = u8(mode);
    const Operand& out = d.operand(0);
    i.d = d.write(out.kind == Operand::Pair ? out.parts[0] : out, type);
    i.a = d.read(1, type);
    i.b = d.read(2, Type::B32);
    i.more.push_back(d.read(3, Type::B32));
    i.c = d.read(4, Type::B32);
    if (out.kind == Operand::Pair) i.more.push_back(d.write(out.parts[1], Type::Pred));
    d.emit(std::move(i));
}

// flag: the predicate is negated; mode: all, any, uni, ballot.
void vote(Warp& w, const Inst& i) {
    u32 p = w.predicate(i.a);
    u32 yes = (i.flag ? ~p : p) & w.mask;
    bool all = yes == w.mask, none = yes == 0;
    if (i.mode == 3) return write_lanes(w, w.column<u32>(i.d), [=](int) { return yes; });
    bool result = i.mode == 0 ? all : i.mode == 1 ? !none : all || none;
    write_predicate(w, i.d, result ? kFullMask : 0);
}

void build_vote(Decoder& d, Form& f) {
    if (!f.take("sync")) d.unknown("vote without .sync", "exec/collective.cpp");
    Inst i;
    i.mode = u8(f.take_any({"all", "any", "uni", "ballot"}));
    Type type = f.take_type();
    if (i.mode > 3) d.unknown("vote", "exec/collective.cpp");
    i.flow = Flow::Collective;
    i.kind = Class::Collective;
    i.run = vote;
    i.d = d.write(0, type);
    Operand p = d.operand(1);
    i.flag = p.negated;
    p.negated = false;
    i.a = d.read(p, Type::Pred);
    i.c = d.read(2, Type::B32);
    d.emit(std::move(i));
}

// match.any: the lanes with my value; match.all: all lanes if they agree, else 0, and a predicate.
template <class T>
void match(Warp& w, const Inst& i) {
    const T* a = w.column<T>(i.a);
    u32 same[kWarp] = {};
    bool agree = true;
    for (u32 r = w.mask; r; r &= r - 1) {
        int l = __builtin_ctz(r);
        for (u32 s = w.mask; s; s &= s - 1) {
            int m = __builtin_ctz(s);
            if (a[l] == a[m]) same[l] |= 1u << m;
        }
        agree &= same[l] == w.mask;
    }
    bool all = i.mode == 1;
    u32 everyone = agree ? w.mask : 0;
    write_lanes(w, w.column<u32>(i.d), [&](int l) { return all ? everyone : same[l]; });
    if (!i.more.empty()) write_predicate(w, i.more[0], agree ? kFullMask : 0);
}

void build_match(Decoder& d, Form& f) {
    Inst i;
    i.mode = u8(f.take_any({"any", "all"}));
    f.take("sync");
    Type type = f.take_type();
    i.flow = Flow::Collective;
    i.kind = Class::Collective;
    i.run = type_bytes(type) == 8 ? match<u64> : match<u32>;
    const Operand& out = d.operand(0);
    i.d = d.write(out.kind == Operand::Pair ? out.parts[0] : out, Type::B32);
    i.a = d.read(1, type);
    i.c = d.read(2, Type::B32);
    if (out.kind == Operand::Pair) i.more.push_back(d.write(out.parts[1], Type::Pred));
    d.emit(std::move(i));
}

enum ReduceOp : u8 { kAdd, kMin, kMax, kAnd, kOr, kXor };

template <class T>
void reduce(Warp& w, const Inst& i) {
    const T* a = w.column<T>(i.a);
    T total = a[__builtin_ctz(w.mask)];
    for (u32 r = w.mask & (w.mask - 1); r; r &= r - 1) {
        T x = a[__builtin_ctz(r)];
        switch (i.mode) {
            case kAdd:
                total = T(u32(total) + u32(x));
                break;
            case kMin:
                total = x < total ? x : total;
                break;
            case kMax:
                total = x > total ? x : total;
                break;
            case kAnd:
                total &= x;
                break;
            case kOr:
                total |= x;
                break;
            default:
                total ^= x;
                break;
        }
    }
    write_lanes(w, w.column<T>(i.d), [=](int) { return total; });
}

void build_redux(Decoder& d, Form& f) {
    Inst i;
    f.take("sync");
    i.mode = u8(f.take_any({"add", "min", "max", "and", "or", "xor"}));
    Type type = f.take_type();
    if (i.mode > kXor || type_bytes(type) != 4 || type_is_float(type))
        d.unknown("reduction", "exec/collective.cpp");
    i.flow = Flow::Collective;
    i.kind = Class::Collective;
    i.run = type == Type::S32 ? reduce<s32> : reduce<u32>;
    i.d = d.write(0, type);
    i.a = d.read(1, type);
    i.c = d.read(2, Type::B32);
    d.emit(std::move(i));
}

void active_mask(Warp& w, const Inst& i) {
    u32 mask = w.mask;
    write_lanes(w, w.column<u32>(i.d), [=](int) { return mask; });
}

// elect.sync d|p, mask: the lowest lane.
void elect(Warp& w, const Inst& i) {
    u32 leader = u32(__builtin_ctz(w.mask));
    write_lanes(w, w.column<u32>(i.d), [=](int) { return leader; });
    write_predicate(w, i.more[0], 1u << leader);
}

void build_elect(Decoder& d, Form& f) {
    f.take("sync");
    const Operand& out = d.operand(0);
    if (out.kind != Operand::Pair) d.error("needs two destinations");
    Inst i;
    i.flow = Flow::Collective;
    i.kind = Class::Collective;
    i.run = elect;
    i.d = d.write(out.parts[0], Type::B32);
    i.more.push_back(d.write(out.parts[1], Type::Pred));
    i.c = d.read(1, Type::B32);
    d.emit(std::move(i));
}

}  // namespace

void emit_warp_sync(Decoder& d, size_t mask_operand) {
    Inst i;
    i.flow = Flow::Collective;
    i.kind = Class::Collective;
    i.run = [](Warp& w, const Inst&) { w.sync_count++; };
    i.c = d.read(mask_operand, Type::B32);
    d.emit(std::move(i));
}

void add_collective(BuilderTable& t) {
    t["shfl"] = build_shfl;
    t["vote"] = build_vote;
    t["match"] = build_match;
    t["redux"] = build_redux;
    t["elect"] = build_elect;
    t["activemask"] = [](Decoder& d, Form& f) {
        Type type = f.take_type();
        Inst i;
        i.run = active_mask;
        i.kind = Class::Collective;
        i.d = d.write(0, type);
        d.emit(std::move(i));
    };
}

}  // namespace cusim
