// compare.cpp: setp, set, selp, slct.
#include "float.h"
#include "lanes.h"
#include "tables.h"

namespace cusim {

namespace {

enum Comparison : u8 { kEq, kNe, kLt, kLe, kGt, kGe, kEqu, kNeu, kLtu, kLeu, kGtu, kGeu, kNum, kNan };

// Ordered comparisons are false for NaN, the "u" forms true.
template <int kOp, class T>
[[gnu::always_inline]] inline bool compare(T x, T y) {
    switch (kOp) {
        case kEq:
            return x == y;
        case kNe:
            return x < y || x > y;
        case kLt:
            return x < y;
        case kLe:
            return x <= y;
        case kGt:
            return x > y;
        case kGe:
            return x >= y;
        case kEqu:
            return !(x < y || x > y);
        case kNeu:
            return !(x == y);
        case kLtu:
            return !(x >= y);
        case kLeu:
            return !(x > y);
        case kGtu:
            return !(x <= y);
        case kGeu:
            return !(x < y);
        case kNum:
            return x == x && y == y;
        default:
            return x != x || y != y;
    }
}

// How a lane's value is read: as it is, or widened to f32.
struct Plain {
    template <class T>
    static T load(T x) {
        return x;
    }
};
struct Flushed {
    static f32 load(f32 x) { return flush(x); }
};
struct AsF16 {
    static f32 load(u16 x) { return from_f16(x); }
};
struct AsBF16 {
    static f32 load(u16 x) { return from_bf16(x); }
};

using Bits = u32 (*)(const void* a, const void* b);
template <class T, class Load, int kOp>
u32 compare_bits(const void* pa, const void* pb) {
    const T *a = static_cast<const T*>(pa), *b = static_cast<const T*>(pb);
    return lane_bits([=](int l) { return compare<kOp>(Load::load(a[l]), Load::load(b[l])); });
}

template <class T, class Load, size_t... kOp>
Bits choose(int op, std::index_sequence<kOp...>) {
    static const Bits table[] = {compare_bits<T, Load, int(kOp)>...};
    return table[op];
}
template <class T, class Load = Plain>
Bits bits_of(int op) {
    constexpr size_t n = std::is_integral<T>::value && std::is_same<Load, Plain>::value ? 6 : 14;
    return size_t(op) < n ? choose<T, Load>(op, std::make_index_sequence<n>()) : nullptr;
}

// The upper half of an x2 register.
template <class Load, int kOp>
u32 compare_high(const void* pa, const void* pb) {
    const u32 *a = static_cast<const u32*>(pa), *b = static_cast<const u32*>(pb);
    return lane_bits(
        [=](int l) { return compare<kOp>(Load::load(u16(a[l] >> 16)), Load::load(u16(b[l] >> 16))); });
}
template <class Load, int kOp>
u32 compare_low(const void* pa, const void* pb) {
    const u32 *a = static_cast<const u32*>(pa), *b = static_cast<const u32*>(pb);
    return lane_bits([=](int l) { return compare<kOp>(Load::load(u16(a[l])), Load::load(u16(b[l]))); });
}
template <class Load, bool kHigh, size_t... kOp>
Bits choose_half(int op, std::index_sequence<kOp...>) {
    static const Bits low[] = {compare_low<Load, int(kOp)>...}, high[] = {compare_high<Load, int(kOp)>...};
    return kHigh ? high[op] : low[op];
}

Bits comparison_of(Type type, int op, bool ftz) {
    switch (type) {
        case Type::B16:
        case Type::U16:
            return bits_of<u16>(op);
        case Type::S16:
            return bits_of<s16>(op);
        case Type::B32:
        case Type::U32:
            return bits_of<u32>(op);
        case Type::S32:
            return bits_of<s32>(op);
        case Type::B64:
        case Type::U64:
            return bits_of<u64>(op);
        case Type::S64:
            return bits_of<s64>(op);
        case Type::F32:
            return ftz ? bits_of<f32, Flushed>(op) : bits_of<f32>(op);
        case Type::F64:
            return bits_of<f64>(op);
        case Type::F16:
            return bits_of<u16, AsF16>(op);
        case Type::BF16:
            return bits_of<u16, AsBF16>(op);
        default:
            return nullptr;
    }
}
Bits half_comparison(Type type, int op, bool high) {
    constexpr auto all = std::make_index_sequence<14>();
    if (type == Type::F16x2)
        return high ? choose_half<AsF16, true>(op, all) : choose_half<AsF16, false>(op, all);
    return high ? choose_half<AsBF16, true>(op, all) : choose_half<AsBF16, false>(op, all);
}

int take_comparison(Decoder& d, Form& f) {
    int op = f.take_any(
        {"eq", "ne", "lt", "le", "gt", "ge", "equ", "neu", "ltu", "leu", "gtu", "geu", "num", "nan"});
    if (op < 0) {
        int alias = f.take_any({"lo", "ls", "hi", "hs"});
        if (alias < 0) d.unknown("comparison", "exec/compare.cpp");
        op = kLt + alias;
    }
    return op;
}

// The comparison function is kept in `immediate`. mode bits 0-1: combine with predicate c by and, or, xor;
// bit 2: !c. more[0]: second destination. For x2 types more[1] holds nothing; the second half's function is
// in second().
struct Functions {
    Bits first = nullptr, second = nullptr;
};
constexpr u8 kCombineNot = 4;

u32 combined(const Warp& w, const Inst& i, u32 bits) {
    if (!(i.mode & 3)) return bits;
    u32 c = w.predicate(i.c);
    if (i.mode & kCombineNot) c = ~c;
    return (i.mode & 3) == 1 ? bits & c : (i.mode & 3) == 2 ? bits | c : bits ^ c;
}

void set_predicate(Warp& w, const Inst& i) {
    u32 bits = reinterpret_cast<Bits>(i.immediate)(w.column<char>(i.a), w.column<char>(i.b));
    u32 first = combined(w, i, bits), second = combined(w, i, ~bits);
    write_predicate(w, i.d, first);
    if (!i.more.empty()) write_predicate(w, i.more[0], second);
}
// x2: the first predicate is the low half's, the second the high half's.
template <bool kBfloat>
void set_predicate_x2(Warp& w, const Inst& i) {
    Type type = kBfloat ? Type::BF16x2 : Type::F16x2;
    for (int high = 0; high < 2; high++) {
        u32 bits = half_comparison(type, int(i.immediate), high)(w.column<char>(i.a), w.column<char>(i.b));
        write_predicate(w, high ? i.more[0] : i.d, combined(w, i, bits));
    }
}

void take_combination(Decoder& d, Inst& i, int combine, size_t at) {
    if (combine < 0) return;
    Operand c = d.operand(at);
    i.mode = u8(combine + 1) | (c.negated ? kCombineNot : 0);
    c.negated = false;
    i.c = d.read(c, Type::Pred);
}

void build_setp(Decoder& d, Form& f) {
    Inst i;
    int op = take_comparison(d, f), combine = f.take_any({"and", "or", "xor"});
    bool ftz = f.take("ftz");
    Type type = f.take_type();
    i.kind = Class::Compare;
    const Operand& out = d.operand(0);
    if (out.kind == Operand::Pair) {
        i.d = d.write(out.parts[0], Type::Pred);
        i.more.push_back(d.write(out.parts[1], Type::Pred));
    } else {
        i.d = d.write(out, Type::Pred);
    }
    i.a = d.read(1, type);
    i.b = d.read(2, type);
    take_combination(d, i, combine, 3);
    if (type == Type::F16x2 || type == Type::BF16x2) {
        if (i.more.empty()) d.error("needs two destinations");
        i.run = type == Type::BF16x2 ? set_predicate_x2<true> : set_predicate_x2<false>;
        i.immediate = op;
    } else {
        Bits bits = comparison_of(type, op, ftz);
        if (!bits) d.unknown("comparison", "exec/compare.cpp");
        i.run = set_predicate;
        i.immediate = reinterpret_cast<s64>(bits);
    }
    d.emit(std::move(i));
}

// set: all ones or zero (1.0 or 0 for float results).
template <class T>
void set_value(Warp& w, const Inst& i) {
    u32 bits = combined(w, i, reinterpret_cast<Bits>(i.immediate)(w.column<char>(i.a), w.column<char>(i.b)));
    T yes = i.flag ? (sizeof(T) == 4 ? T(0x3f800000) : T(i.source_bytes == 1 ? 0x3c00 : 0x3f80)) : T(~T(0));
    write_lanes(w, w.column<T>(i.d), [=](int l) { return (bits >> l & 1) ? yes : T(0); });
}
// x2: register_bytes 1: result f16x2 / bf16x2 ones, else all ones per half.
template <bool kBfloat>
void set_value_x2(Warp& w, const Inst& i) {
    u32 bits[2];
    Type type = kBfloat ? Type::BF16x2 : Type::F16x2;
    for (int high = 0; high < 2; high++)
        bits[high] = combined(
            w, i, half_comparison(type, int(i.immediate), high)(w.column<char>(i.a), w.column<char>(i.b)));
    u32 yes = !i.flag ? 0xffff : kBfloat ? 0x3f80 : 0x3c00;
    write_lanes(w, w.column<u32>(i.d),
                [=](int l) { return (bits[0] >> l & 1) * yes | (bits[1] >> l & 1) * yes << 16; });
}

void build_set(Decoder& d, Form& f) {
    Inst i;
    int op = take_comparison(d, f), combine = f.take_any({"and", "or", "xor"});
    bool ftz = f.take("ftz");
    Type result = f.take_type(), type = f.take_type();
    bool two = type == Type::F16x2 || type == Type::BF16x2;
    i.kind = Class::Compare;
    i.flag = type_is_float(result);
    i.source_bytes = result == Type::F16;
    i.d = d.write(0, result);
    i.a = d.read(1, type);
    i.b = d.read(2, type);
    take_combination(d, i, combine, 3);
    if (two) {
        i.run = type == Type::BF16x2 ? set_value_x2<true> : set_value_x2<false>;
        i.immediate = op;
        if (type_bytes(result) != 4) d.unknown("result type", "exec/compare.cpp");
    } else {
        Bits bits = comparison_of(type, op, ftz);
        if (!bits || type_bytes(result) > 4) d.unknown("comparison", "exec/compare.cpp");
        i.run = type_bytes(result) == 4 ? set_value<u32> : set_value<u16>;
        i.immediate = reinterpret_cast<s64>(bits);
    }
    d.emit(std::move(i));
}

// selp d, a, b, p. flag: !p.
template <class T>
void select(Warp& w, const Inst& i) {
    const T *a = w.column<T>(i.a), *b = w.column<T>(i.b);
    u32 p = w.predicate(i.c);
    if (i.flag) p = ~p;
    write_lanes(w, w.column<T>(i.d), [=](u32 l) { return (p >> l & 1) ? a[l] : b[l]; });
}

void build_selp(Decoder& d, Form& f) {
    Type type = f.take_type();
    Inst i;
    switch (type_bytes(type)) {
        case 2:
            i.run = select<u16>;
            break;
        case 4:
            i.run = select<u32>;
            break;
        case 8:
            i.run = select<u64>;
            break;
        default:
            d.unknown("type", "exec/compare.cpp");
    }
    i.kind = Class::Compare;
    i.d = d.write(0, type);
    i.a = d.read(1, type);
    i.b = d.read(2, type);
    Operand p = d.operand(3);
    i.flag = p.negated;
    p.negated = false;
    i.c = d.read(p, Type::Pred);
    d.emit(std::move(i));
}

// slct d, a, b, c: a if c >= 0 (a NaN is not), else b. Flushed, a negative subnormal counts as zero.
template <class T, class C, class Load = Plain>
void select_sign(Warp& w, const Inst& i) {
    const T *a = w.column<T>(i.a), *b = w.column<T>(i.b);
    const C* c = w.column<C>(i.c);
    write_lanes(w, w.column<T>(i.d), [=](int l) { return Load::load(c[l]) >= 0 ? a[l] : b[l]; });
}
template <class T>
Handler select_sign_of(bool real, bool ftz) {
    return ftz ? select_sign<T, f32, Flushed> : real ? select_sign<T, f32> : select_sign<T, s32>;
}

void build_slct(Decoder& d, Form& f) {
    bool ftz = f.take("ftz");
    Type type = f.take_type(), selector = f.take_type();
    Inst i;
    bool real = selector == Type::F32;
    int bytes = type_bytes(type);
    i.run = bytes == 2   ? select_sign_of<u16>(real, ftz)
            : bytes == 4 ? select_sign_of<u32>(real, ftz)
            : bytes == 8 ? select_sign_of<u64>(real, ftz)
                         : nullptr;
    if (!i.run || (ftz && !real)) d.unknown("type", "exec/compare.cpp");
    i.kind = Class::Compare;
    i.d = d.write(0, type);
    i.a = d.read(1, type);
    i.b = d.read(2, type);
    i.c = d.read(3, selector);
    d.emit(std::move(i));
}

}  // namespace

void add_compare(BuilderTable& t) {
    t["setp"] = build_setp;
    t["set"] = build_set;
    t["selp"] = build_selp;
    t["slct"] = build_slct;
}

}  // namespace cusim
