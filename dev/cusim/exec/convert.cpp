// convert.cpp: cvt. Frequent pairs have vector handlers; everything else goes lane by lane through
// convert_bits(), which follows the PTX rules for rounding, saturation, NaN and subnormals. Compiled with
// -frounding-math.
#include <cfenv>

#include "float.h"
#include "lanes.h"
#include "tables.h"

namespace cusim {

namespace {

// Rounds a finite or infinite f32 to a format of `mantissa` stored bits in the upper part of its f32 pattern,
// directed; used for bf16 and, after rescaling, not for f16.
u32 truncate_directed(u32 bits, int dropped, Rounding r) {
    u32 rest = bits & ((1u << dropped) - 1), kept = bits >> dropped;
    bool negative = bits >> 31;
    bool away = rest && ((r == kUp && !negative) || (r == kDown && negative));
    return kept + away;
}

}  // namespace

u16 to_bf16(f32 x, Rounding r) {
    if (r == kNearest || r == kNoRounding || x != x) return to_bf16(x);
    u32 bits = bit_cast<u32>(x);
    if ((bits & 0x7fffffff) == 0x7f800000) return u16(bits >> 16);
    if (r == kAway) return u16((bits + 0x8000) >> 16);
    return u16(truncate_directed(bits, 16, r));
}

u16 to_f16(f32 x, Rounding r) {
    if (x != x) return 0x7fff;
    switch (r) {
        case kZero:
            return u16(_cvtss_sh(x, _MM_FROUND_TO_ZERO));
        case kDown:
            return u16(_cvtss_sh(x, _MM_FROUND_TO_NEG_INF));
        case kUp:
            return u16(_cvtss_sh(x, _MM_FROUND_TO_POS_INF));
        default:
            return to_f16(x);
    }
}

namespace {

enum ConvertFlags : u8 { kFtz = 1, kSat = 2, kRelu = 4, kIntegerRounding = 8 };

// What a cvt does, packed into Inst: immediate bits 0-7 result type, 8-15 source type, 16-23 rounding, 24-31
// flags.
struct Rule {
    Type to, from;
    Rounding rounding;
    u8 flags;
    s64 packed() const { return s64(to) | s64(from) << 8 | s64(rounding) << 16 | s64(flags) << 24; }
    static Rule of(const Inst& i) {
        return {Type(i.immediate & 255), Type(i.immediate >> 8 & 255), Rounding(i.immediate >> 16 & 255),
                u8(i.immediate >> 24)};
    }
};

f64 load_float(u64 bits, Type type) {
    switch (type) {
        case Type::F16:
            return from_f16(u16(bits));
        case Type::BF16:
            return from_bf16(u16(bits));
        case Type::F32:
            return bit_cast<f32>(u32(bits));
        default:
            return bit_cast<f64>(bits);
    }
}

f64 round_to_integer(f64 x, Rounding r) {
    switch (r) {
        case kZero:
            return std::trunc(x);
        case kDown:
            return std::floor(x);
        case kUp:
            return std::ceil(x);
        default:
            return std::nearbyint(x);  // the host rounds to nearest even here
    }
}

f32 to_f32(f64 x, Rounding r) {
    if (r == kNearest || r == kNoRounding) return f32(x);
    int before = std::fegetround();
    std::fesetround(host_rounding(r));
    volatile f64 in = x;
    volatile f32 out = f32(in);
    std::fesetround(before);
    return out;
}

// A float value, exact or rounded to odd with bits to spare, in the result's format.
u64 store_float(f64 x, const Rule& rule) {
    Rounding r = (rule.flags & kIntegerRounding) ? kNearest : rule.rounding;
    bool sat = rule.flags & kSat, relu = rule.flags & kRelu;
    if (relu && x < 0) x = 0;
    switch (rule.to) {
        case Type::F64:
            return bit_cast<u64>(sat ? saturate(x) : x);
        case Type::F32: {
            f32 y = canonical(to_f32(x, r));
            if (rule.flags & kFtz) y = flush(y);
            return bit_cast<u32>(sat ? saturate(y) : y);
        }
        case Type::F16: {
            u16 h = to_f16(to_odd(x), r);
            return sat ? to_f16(saturate(from_f16(h))) : h;
        }
        default: {
            u16 h = to_bf16(to_odd(x), r);
            return sat ? to_bf16(saturate(from_bf16(h))) : h;
        }
    }
}

// An integer as f64, to odd where it does not fit: enough for f32, f16 and bf16, and exact for 32 bits.
f64 integer_to_odd(bool negative, u64 magnitude) {
    u64 top = magnitude;
    int shift = 0;
    while (top >> 53) {
        bool sticky = top & 1;
        top = top >> 1 | sticky;
        shift++;
    }
    f64 x = std::ldexp(f64(top), shift);
    return negative ? -x : x;
}

u64 integer_to_float(u64 bits, const Rule& rule) {
    bool negative = type_is_signed(rule.from) && s64(bits) < 0;
    u64 magnitude = negative ? 0 - bits : bits;
    if (rule.to == Type::F64) {
        int before = std::fegetround();
        std::fesetround(host_rounding(rule.rounding));
        volatile u64 in = bits;
        volatile f64 x = type_is_signed(rule.from) ? f64(s64(in)) : f64(in);
        std::fesetround(before);
        return bit_cast<u64>(f64(x));
    }
    return store_float(integer_to_odd(negative, magnitude), rule);
}

u64 float_to_integer(f64 x, const Rule& rule) {
    int bits = 8 * type_bytes(rule.to);
    bool is_signed = type_is_signed(rule.to);
    if (x != x) return rule.from != Type::F64 && bits < 64 ? 0 : u64(1) << (bits - 1);
    x = round_to_integer(x, rule.rounding);
    f64 limit = std::ldexp(1.0, is_signed ? bits - 1 : bits), low = is_signed ? -limit : 0;
    u64 largest = is_signed ? (u64(1) << (bits - 1)) - 1 : bits == 64 ? ~u64(0) : (u64(1) << bits) - 1;
    if (x >= limit) return largest;
    if (x < low) return is_signed ? u64(-1) << (bits - 1) : 0;
    return x < 0 ? u64(s64(x)) : u64(x);
}

u64 integer_to_integer(u64 bits, const Rule& rule) {
    if (!(rule.flags & kSat)) return bits;
    __int128 x = type_is_signed(rule.from) ? __int128(s64(bits)) : __int128(bits);
    int n = 8 * type_bytes(rule.to);
    __int128 high = type_is_signed(rule.to) ? ((__int128)1 << (n - 1)) - 1 : ((__int128)1 << n) - 1;
    __int128 low = type_is_signed(rule.to) ? -((__int128)1 << (n - 1)) : 0;
    return u64(x < low ? low : x > high ? high : x);
}

// `bits`: the source value, sign- or zero-extended by its type.
u64 convert_bits(u64 bits, const Rule& rule) {
    if (!type_is_float(rule.from))
        return type_is_float(rule.to) ? integer_to_float(bits, rule) : integer_to_integer(bits, rule);
    f64 x = load_float(bits, rule.from);
    if ((rule.flags & kFtz) && rule.from == Type::F32) x = flush(f32(x));
    if (!type_is_float(rule.to)) return float_to_integer(x, rule);
    if (rule.flags & kIntegerRounding) x = round_to_integer(x, rule.rounding);
    return store_float(x, rule);
}

u64 load_lane(const Warp& w, Column c, int register_bytes, int lane, Type type) {
    const char* at = w.column<char>(c) + lane * register_bytes;
    u64 bits = 0;
    std::memcpy(&bits, at, size_t(type_bytes(type)));
    int unused = 64 - 8 * type_bytes(type);
    return type_is_signed(type) ? u64(s64(bits << unused) >> unused) : bits;
}

void store_lane(const Warp& w, Column c, int register_bytes, int lane, u64 bits, Type type) {
    int unused = 64 - 8 * type_bytes(type);
    // A wider register receives the value extended by its type.
    bits = type_is_signed(type) ? u64(s64(bits << unused) >> unused) : bits << unused >> unused;
    std::memcpy(w.column<char>(c) + lane * register_bytes, &bits, size_t(register_bytes));
}

void convert_general(Warp& w, const Inst& i) {
    Rule rule = Rule::of(i);
    for (u32 rest = w.mask; rest; rest &= rest - 1) {
        int l = __builtin_ctz(rest);
        u64 bits = convert_bits(load_lane(w, i.a, i.source_bytes, l, rule.from), rule);
        store_lane(w, i.d, i.register_bytes, l, bits, rule.to);
    }
}

// cvt.*.f16x2.f32 d, a, b: a becomes the upper half.
void convert_pair(Warp& w, const Inst& i) {
    Rule rule = Rule::of(i);
    const f32 *a = w.column<f32>(i.a), *b = w.column<f32>(i.b);
    if (rule.to == Type::BF16 && rule.rounding == kNearest && !rule.flags)
        return write_lanes(w, w.column<u32>(i.d),
                           [=](int l) { return u32(to_bf16(a[l])) << 16 | to_bf16(b[l]); });
    write_active_lanes(w, w.column<u32>(i.d), [&](int l) {
        return u32(store_float(f64(a[l]), rule)) << 16 | u32(store_float(f64(b[l]), rule));
    });
}

// cvt.rna.tf32.f32 (and rn, rz): a 10-bit mantissa in the upper bits; what is below reads as zero.
void convert_tf32(Warp& w, const Inst& i) {
    Rounding r = Rule::of(i).rounding;
    const f32* a = w.column<f32>(i.a);
    write_lanes(w, w.column<u32>(i.d), [=](int l) {
        u32 bits = bit_cast<u32>(a[l]);
        u32 half = r == kAway ? 0x1000 : r == kNearest ? 0xfff + (bits >> 13 & 1) : 0;
        bool special = (bits & 0x7f800000) == 0x7f800000;
        u32 rounded = (bits + half) & ~0x1fffu;
        return special ? (a[l] != a[l] ? 0x7fffffffu : bits) : rounded;
    });
}

// ---- frequent pairs
// ----------------------------------------------------------------------------------------------------

template <class D, class S>
void widen(Warp& w, const Inst& i) {
    const S* a = w.column<S>(i.a);
    write_lanes(w, w.column<D>(i.d), [=](int l) { return D(a[l]); });
}
void f16_to_f32(Warp& w, const Inst& i) {
    const u16* a = w.column<u16>(i.a);
    write_active_lanes(w, w.column<f32>(i.d), [=](int l) { return canonical(from_f16(a[l])); });
}
void bf16_to_f32(Warp& w, const Inst& i) {
    const u16* a = w.column<u16>(i.a);
    write_lanes(w, w.column<f32>(i.d), [=](int l) { return canonical(from_bf16(a[l])); });
}
void f32_to_f16(Warp& w, const Inst& i) {
    const f32* a = w.column<f32>(i.a);
    write_active_lanes(w, w.column<u16>(i.d), [=](int l) { return to_f16(a[l]); });
}
void f32_to_bf16(Warp& w, const Inst& i) {
    const f32* a = w.column<f32>(i.a);
    write_lanes(w, w.column<u16>(i.d), [=](int l) { return to_bf16(a[l]); });
}

Handler frequent(const Rule& r, int source_bytes, int result_bytes) {
    if (source_bytes != type_bytes(r.from) || result_bytes != type_bytes(r.to) || r.flags) return nullptr;
    Type t = r.to, s = r.from;
    bool nearest = r.rounding == kNearest;
    if (t == Type::F32 && s == Type::F16) return f16_to_f32;
    if (t == Type::F32 && s == Type::BF16) return bf16_to_f32;
    if (t == Type::F16 && s == Type::F32 && nearest) return f32_to_f16;
    if (t == Type::BF16 && s == Type::F32 && nearest) return f32_to_bf16;
    if (t == Type::F32 && s == Type::S32 && nearest) return widen<f32, s32>;
    if (t == Type::F32 && s == Type::U32 && nearest) return widen<f32, u32>;
    if (t == Type::F64 && s == Type::S32 && nearest) return widen<f64, s32>;
    if (t == Type::F64 && s == Type::U32 && nearest) return widen<f64, u32>;
    if (type_is_float(t) || type_is_float(s)) return nullptr;
    switch (type_bytes(t) * 16 + type_bytes(s)) {
        case 0x84:
            return type_is_signed(s) ? widen<u64, s32> : widen<u64, u32>;
        case 0x82:
            return type_is_signed(s) ? widen<u64, s16> : widen<u64, u16>;
        case 0x42:
            return type_is_signed(s) ? widen<u32, s16> : widen<u32, u16>;
        case 0x48:
            return widen<u32, u64>;
        case 0x28:
            return widen<u16, u64>;
        case 0x24:
            return widen<u16, u32>;
        case 0x44:
            return widen<u32, u32>;
        case 0x88:
            return widen<u64, u64>;
        default:
            return nullptr;
    }
}

void build_cvt(Decoder& d, Form& f) {
    Rule rule{Type::None, Type::None, kNoRounding, 0};
    rule.rounding = take_rounding(f);
    int integer = f.take_any({"rni", "rzi", "rmi", "rpi"});
    if (integer >= 0) {
        const Rounding of[] = {kNearest, kZero, kDown, kUp};
        rule.rounding = of[integer];
        rule.flags |= kIntegerRounding;
    }
    if (f.take("ftz")) rule.flags |= kFtz;
    if (f.take("sat")) rule.flags |= kSat;
    if (f.take("relu")) rule.flags |= kRelu;
    rule.to = f.take_type();
    rule.from = f.take_type();
    Inst i;
    i.kind = Class::Convert;
    if (rule.to == Type::F16x2 || rule.to == Type::BF16x2) {
        if (rule.from != Type::F32) d.unknown("source type", "exec/convert.cpp");
        rule.to = rule.to == Type::F16x2 ? Type::F16 : Type::BF16;
        i.run = convert_pair;
        i.d = d.write(0, Type::B32);
        i.a = d.read(1, Type::F32);
        i.b = d.read(2, Type::F32);
    } else if (rule.to == Type::TF32) {
        i.run = convert_tf32;
        i.d = d.write(0, Type::B32);
        i.a = d.read(1, Type::F32);
    } else {
        if (rule.to == Type::None || rule.from == Type::None) d.unknown("type", "exec/convert.cpp");
        if (!type_is_float(rule.from) && !type_is_float(rule.to)) rule.flags &= u8(~kIntegerRounding);
        i.d = d.write_any_width(d.operand(0), i.register_bytes);
        i.a = d.read_any_width(d.operand(1), rule.from, i.source_bytes);
        if (i.source_bytes < type_bytes(rule.from) || i.register_bytes < type_bytes(rule.to))
            d.error("register narrower than the type");
        if (type_is_float(rule.to) == type_is_float(rule.from) && rule.rounding == kNoRounding)
            rule.rounding = kNearest;
        i.run = frequent(rule, i.source_bytes, i.register_bytes);
        if (!i.run) i.run = convert_general;
    }
    i.immediate = rule.packed();
    d.emit(std::move(i));
}

// cvt.pack.sat.<to>.s32[.b32] d, a, b[, c]: a and b saturated and packed; c fills the upper part.
void convert_pack(Warp& w, const Inst& i) {
    const s32 *a = w.column<s32>(i.a), *b = w.column<s32>(i.b);
    const u32* c = i.c != kNoColumn ? w.column<u32>(i.c) : nullptr;
    Rule rule = Rule::of(i);
    u32 bits = u32(8 * type_bytes(rule.to)), mask = (1u << bits) - 1;
    write_active_lanes(w, w.column<u32>(i.d), [=](int l) {
        u32 high = u32(integer_to_integer(u64(s64(a[l])), rule)) & mask,
            low = u32(integer_to_integer(u64(s64(b[l])), rule)) & mask;
        u32 packed = high << bits | low;
        return c ? c[l] << (2 * bits) | packed : packed;
    });
}

void build_cvt_or_pack(Decoder& d, Form& f) {
    if (!f.take("pack")) return build_cvt(d, f);
    f.take("sat");
    Rule rule{f.take_type(), f.take_type(), kNoRounding, kSat};
    f.take("b32");
    if (rule.from != Type::S32 || type_bytes(rule.to) > 2) d.unknown("packing", "exec/convert.cpp");
    Inst i;
    i.run = convert_pack;
    i.kind = Class::Convert;
    i.immediate = rule.packed();
    i.d = d.write(0, Type::B32);
    i.a = d.read(1, Type::S32);
    i.b = d.read(2, Type::S32);
    if (d.operand_count() > 3)
        i.c = d.read(3, Type::B32);
    else if (type_bytes(rule.to) == 1)
        d.error("8-bit packing needs a third source");
    d.emit(std::move(i));
}

}  // namespace

void add_convert(BuilderTable& t) {
    t["cvt"] = build_cvt_or_pack;
}

}  // namespace cusim
