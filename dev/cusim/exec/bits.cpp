// bits.cpp: logic, shifts, bit fields and permutations.
#include "lanes.h"
#include "tables.h"

namespace cusim {

namespace {

struct And {
    template <class T>
    static T apply(T x, T y) {
        return x & y;
    }
};
struct Or {
    template <class T>
    static T apply(T x, T y) {
        return x | y;
    }
};
struct Xor {
    template <class T>
    static T apply(T x, T y) {
        return x ^ y;
    }
};
struct Not {
    template <class T>
    static T apply(T x) {
        return T(~x);
    }
};
struct CNot {
    template <class T>
    static T apply(T x) {
        return x == 0;
    }
};

template <class Op>
Handler bits_of(Type type) {
    switch (type) {
#define CASE(E, T) \
    case Type::E:  \
        return binary<Op, T>;
        CUSIM_BIT_TYPES(CASE)
#undef CASE
        default:
            return nullptr;
    }
}
template <class Op>
Handler unary_bits_of(Type type) {
    switch (type) {
#define CASE(E, T) \
    case Type::E:  \
        return unary<Op, T>;
        CUSIM_BIT_TYPES(CASE)
#undef CASE
        default:
            return nullptr;
    }
}

// Predicates are whole masks: one operation serves all lanes.
template <class Op>
void predicate_logic(Warp& w, const Inst& i) {
    u32 a = w.predicate(i.a), b = w.predicate(i.b);
    write_predicate(w, i.d, Op::apply(i.mode & 1 ? ~a : a, i.mode & 2 ? ~b : b));
}
void predicate_not(Warp& w, const Inst& i) {
    write_predicate(w, i.d, ~w.predicate(i.a));
}

template <class Op>
void build_logic(Decoder& d, Form& f) {
    Type type = f.take_type();
    if (type != Type::Pred) return emit_same_type(d, bits_of<Op>(type), type, Class::Integer, 2);
    Inst i;
    i.run = predicate_logic<Op>;
    i.kind = Class::Integer;
    Operand a = d.operand(1), b = d.operand(2);
    i.mode = u8(a.negated | b.negated << 1);
    a.negated = b.negated = false;
    i.d = d.write(0, type);
    i.a = d.read(a, type);
    i.b = d.read(b, type);
    d.emit(std::move(i));
}

void build_not(Decoder& d, Form& f) {
    Type type = f.take_type();
    emit_same_type(d, type == Type::Pred ? predicate_not : unary_bits_of<Not>(type), type, Class::Integer, 1);
}

// Shift amounts are u32 and clamp: larger than the width shifts everything out.
template <class T>
void shift_left(Warp& w, const Inst& i) {
    const T* a = w.column<T>(i.a);
    const u32* b = w.column<u32>(i.b);
    write_lanes(w, w.column<T>(i.d),
                [=](int l) { return T(b[l] >= 8 * sizeof(T) ? T(0) : T(a[l] << b[l])); });
}
template <class T>
void shift_right(Warp& w, const Inst& i) {
    const T* a = w.column<T>(i.a);
    const u32* b = w.column<u32>(i.b);
    constexpr u32 kBits = 8 * sizeof(T);
    write_lanes(w, w.column<T>(i.d), [=](int l) {
        if (std::is_signed<T>::value) return T(a[l] >> (b[l] < kBits ? b[l] : kBits - 1));
        return T(b[l] >= kBits ? T(0) : T(a[l] >> b[l]));
    });
}

void emit_shift(Decoder& d, Handler run, Type type) {
    if (!run) d.unknown("type", "exec/bits.cpp");
    Inst i;
    i.run = run;
    i.kind = Class::Integer;
    i.d = d.write(0, type);
    i.a = d.read(1, type);
    i.b = d.read(2, Type::U32);
    d.emit(std::move(i));
}

void build_shl(Decoder& d, Form& f) {
    Type type = f.take_type();
    emit_shift(d,
               type == Type::B16   ? shift_left<u16>
               : type == Type::B32 ? shift_left<u32>
               : type == Type::B64 ? shift_left<u64>
                                   : nullptr,
               type);
}

void build_shr(Decoder& d, Form& f) {
    Type type = f.take_type();
    Handler run = nullptr;
    switch (type) {
#define CASE(E, T)            \
    case Type::E:             \
        run = shift_right<T>; \
        break;
        CUSIM_BIT_TYPES(CASE)
        CUSIM_INTEGER_TYPES(CASE)
#undef CASE
        default:
            break;
    }
    emit_shift(d, run, type);
}

// shf.l / shf.r: the upper or lower word of the 64-bit value b:a shifted. mode bit 0: right, bit 1: wrap.
void funnel_shift(Warp& w, const Inst& i) {
    const u32 *a = w.column<u32>(i.a), *b = w.column<u32>(i.b), *c = w.column<u32>(i.c);
    bool right = i.mode & 1, wrap = i.mode & 2;
    write_lanes(w, w.column<u32>(i.d), [=](int l) {
        u32 n = wrap ? c[l] & 31 : c[l] < 32 ? c[l] : 32;
        u64 value = u64(b[l]) << 32 | a[l];
        return right ? u32(value >> n) : u32((value << n) >> 32);
    });
}

void build_shf(Decoder& d, Form& f) {
    Inst i;
    i.mode = u8(f.take_any({"l", "r"}));
    if (f.take_any({"clamp", "wrap"}) == 1) i.mode |= 2;
    f.take("b32");
    i.run = funnel_shift;
    i.kind = Class::Integer;
    i.d = d.write(0, Type::B32);
    i.a = d.read(1, Type::B32);
    i.b = d.read(2, Type::B32);
    i.c = d.read(3, Type::U32);
    d.emit(std::move(i));
}

// lop3: bit k of the table is the result for input bits a b c = k.
void lop3(Warp& w, const Inst& i) {
    const u32 *a = w.column<u32>(i.a), *b = w.column<u32>(i.b), *c = w.column<u32>(i.c);
    u32 table = u32(i.immediate);
    write_lanes(w, w.column<u32>(i.d), [=](int l) {
        u32 x = a[l], y = b[l], z = c[l], r = 0;
        for (u32 k = 0; k < 8; k++) {
            u32 term = ((k & 4) ? x : ~x) & ((k & 2) ? y : ~y) & ((k & 1) ? z : ~z);
            r |= (table >> k & 1) ? term : 0;
        }
        return r;
    });
}

void build_lop3(Decoder& d, Form& f) {
    if (f.take("b32") && d.operand(0).kind == Operand::Pair)
        d.unknown("form with a predicate", "exec/bits.cpp");
    Inst i;
    i.run = lop3;
    i.kind = Class::Integer;
    i.d = d.write(0, Type::B32);
    i.a = d.read(1, Type::B32);
    i.b = d.read(2, Type::B32);
    i.c = d.read(3, Type::B32);
    i.immediate = d.immediate(4);
    d.emit(std::move(i));
}

// --- counting and reversing: the result has 32 bits (brev: the type's)
// ---------------------------------------------------
template <class T>
void population(Warp& w, const Inst& i) {
    const T* a = w.column<T>(i.a);
    write_active_lanes(w, w.column<u32>(i.d), [=](int l) { return u32(__builtin_popcountll(a[l])); });
}
template <class T>
void leading_zeros(Warp& w, const Inst& i) {
    const T* a = w.column<T>(i.a);
    constexpr u32 kBits = 8 * sizeof(T);
    write_active_lanes(w, w.column<u32>(i.d),
                       [=](int l) { return a[l] ? u32(__builtin_clzll(a[l])) - (64 - kBits) : kBits; });
}
template <class T>
T reversed(T x) {
    T r = 0;
    for (u32 k = 0; k < 8 * sizeof(T); k++) r |= T(x >> k & 1) << (8 * sizeof(T) - 1 - k);
    return r;
}
template <class T>
void reverse(Warp& w, const Inst& i) {
    const T* a = w.column<T>(i.a);
    write_active_lanes(w, w.column<T>(i.d), [=](int l) { return reversed(a[l]); });
}
// bfind: position of the most significant bit that differs from the sign; flag: as a shift amount.
template <class T>
void find_bit(Warp& w, const Inst& i) {
    const T* a = w.column<T>(i.a);
    constexpr u32 kBits = 8 * sizeof(T);
    write_active_lanes(w, w.column<u32>(i.d), [=](int l) {
        u64 x = u64(std::make_unsigned_t<T>(a[l] < 0 ? ~a[l] : a[l]));
        if (!x) return ~0u;
        u32 at = 63 - u32(__builtin_clzll(x));
        return i.flag ? kBits - 1 - at : at;
    });
}

void emit_count(Decoder& d, Handler run, Type type, Type result, bool flag = false) {
    if (!run) d.unknown("type", "exec/bits.cpp");
    Inst i;
    i.run = run;
    i.kind = Class::Integer;
    i.flag = flag;
    i.d = d.write(0, result);
    i.a = d.read(1, type);
    d.emit(std::move(i));
}

void build_popc(Decoder& d, Form& f) {
    Type t = f.take_type();
    emit_count(d,
               t == Type::B32   ? population<u32>
               : t == Type::B64 ? population<u64>
                                : nullptr,
               t, Type::U32);
}
void build_clz(Decoder& d, Form& f) {
    Type t = f.take_type();
    emit_count(d,
               t == Type::B32   ? leading_zeros<u32>
               : t == Type::B64 ? leading_zeros<u64>
                                : nullptr,
               t, Type::U32);
}
void build_brev(Decoder& d, Form& f) {
    Type t = f.take_type();
    emit_count(d, t == Type::B32 ? reverse<u32> : t == Type::B64 ? reverse<u64> : nullptr, t, t);
}
void build_bfind(Decoder& d, Form& f) {
    bool shift = f.take("shiftamt");
    Type t = f.take_type();
    Handler run = t == Type::U32   ? find_bit<u32>
                  : t == Type::S32 ? find_bit<s32>
                  : t == Type::U64 ? find_bit<u64>
                  : t == Type::S64 ? find_bit<s64>
                                   : nullptr;
    emit_count(d, run, t, Type::U32, shift);
}

// fns: the n-th set bit of a mask from a base position (b: base, c: n, negative goes down, 0 tests the base
// bit).
void find_nth(Warp& w, const Inst& i) {
    const u32 *a = w.column<u32>(i.a), *b = w.column<u32>(i.b);
    const s32* c = w.column<s32>(i.c);
    write_active_lanes(w, w.column<u32>(i.d), [=](int l) {
        int at = int(b[l]), n = c[l], step = n < 0 ? -1 : 1;
        if (n == 0) return (a[l] >> (at & 31) & 1) ? u32(at) : ~0u;
        for (n = n < 0 ? -n : n; at >= 0 && at < 32; at += step)
            if ((a[l] >> at & 1) && --n == 0) return u32(at);
        return ~0u;
    });
}

// bfe: c bits from position b, sign-extended for signed types from the field's (or the value's) top bit.
template <class T>
void extract(Warp& w, const Inst& i) {
    const T* a = w.column<T>(i.a);
    const u32 *b = w.column<u32>(i.b), *c = w.column<u32>(i.c);
    constexpr u32 kBits = 8 * sizeof(T);
    using U = std::make_unsigned_t<T>;
    write_active_lanes(w, w.column<T>(i.d), [=](int l) {
        u32 at = b[l] & 0xff, n = c[l] & 0xff;
        U x = U(a[l]);
        u32 top = at + n < 1 ? 0 : at + n - 1 < kBits - 1 ? at + n - 1 : kBits - 1;
        U fill = std::is_signed<T>::value && n != 0 && (x >> top & 1) ? ~U(0) : U(0);
        U field = at < kBits ? U(x >> at) : fill;
        if (n == 0) return T(0);
        u32 valid = at < kBits ? (n < kBits - at ? n : kBits - at) : 0;
        U keep = valid >= kBits ? ~U(0) : (U(1) << valid) - 1;
        return T((field & keep) | (fill & ~keep));
    });
}
void build_bfe(Decoder& d, Form& f) {
    Type t = f.take_type();
    Inst i;
    i.run = t == Type::U32   ? extract<u32>
            : t == Type::S32 ? extract<s32>
            : t == Type::U64 ? extract<u64>
            : t == Type::S64 ? extract<s64>
                             : nullptr;
    if (!i.run) d.unknown("type", "exec/bits.cpp");
    i.kind = Class::Integer;
    i.d = d.write(0, t);
    i.a = d.read(1, t);
    i.b = d.read(2, Type::U32);
    i.c = d.read(3, Type::U32);
    d.emit(std::move(i));
}

// bfi: d = b with `length` bits at `position` replaced by the low bits of a.
template <class T>
void insert(Warp& w, const Inst& i) {
    const T *a = w.column<T>(i.a), *b = w.column<T>(i.b);
    const u32 *c = w.column<u32>(i.c), *n = w.column<u32>(i.more[0]);
    constexpr u32 kBits = 8 * sizeof(T);
    write_active_lanes(w, w.column<T>(i.d), [=](int l) {
        u32 at = c[l] & 0xff, length = n[l] & 0xff;
        if (at >= kBits || length == 0) return b[l];
        T field = length >= kBits ? T(~T(0)) : T((T(1) << length) - 1);
        return T((b[l] & ~T(field << at)) | T((a[l] & field) << at));
    });
}
void build_bfi(Decoder& d, Form& f) {
    Type t = f.take_type();
    Inst i;
    i.run = t == Type::B32 ? insert<u32> : t == Type::B64 ? insert<u64> : nullptr;
    if (!i.run) d.unknown("type", "exec/bits.cpp");
    i.kind = Class::Integer;
    i.d = d.write(0, t);
    i.a = d.read(1, t);
    i.b = d.read(2, t);
    i.c = d.read(3, Type::U32);
    i.more.push_back(d.read(4, Type::U32));
    d.emit(std::move(i));
}

// bmsk, szext. mode bit 0: wrap.
void bit_mask(Warp& w, const Inst& i) {
    const u32 *a = w.column<u32>(i.a), *b = w.column<u32>(i.b);
    write_active_lanes(w, w.column<u32>(i.d), [=](int l) {
        u32 at = i.mode ? a[l] & 31 : a[l], n = i.mode ? b[l] & 31 : b[l];
        u32 field = n >= 32 ? ~0u : (1u << n) - 1;
        return at >= 32 ? 0u : field << at;
    });
}
template <class T>
void size_extend(Warp& w, const Inst& i) {
    const u32 *a = w.column<u32>(i.a), *b = w.column<u32>(i.b);
    write_active_lanes(w, w.column<u32>(i.d), [=](int l) {
        u32 n = i.mode ? b[l] & 31 : b[l];
        if (n >= 32) return a[l];
        if (n == 0) return 0u;
        return u32(T(a[l] << (32 - n)) >> (32 - n));
    });
}

// prmt: each selector nibble picks a byte of b:a (bit 3: replicate its sign); the modes pick by rule.
u32 permute(u32 a, u32 b, u32 c, int mode) {
    u64 bytes = u64(b) << 32 | a;
    u32 sel[4], k = c & 3;
    for (u32 n = 0; n < 4; n++) switch (mode) {
            case 0:
                sel[n] = c >> (4 * n) & 15;
                break;  // default
            case 1:
                sel[n] = n + k;
                break;  // f4e
            case 2:
                sel[n] = (k + 8 - n) & 7;
                break;  // b4e
            case 3:
                sel[n] = k;
                break;  // rc8
            case 4:
                sel[n] = n < k ? k : n;
                break;  // ecl
            case 5:
                sel[n] = n < k ? n : k;
                break;  // ecr
            default:
                sel[n] = (k & 1) * 2 + (n & 1);
                break;  // rc16
        }
    u32 r = 0;
    for (u32 n = 0; n < 4; n++) {
        u32 byte = u32(bytes >> 8 * (sel[n] & 7)) & 0xff;
        if (mode == 0 && (sel[n] & 8)) byte = byte & 0x80 ? 0xff : 0;
        r |= byte << 8 * n;
    }
    return r;
}
void permute_bytes(Warp& w, const Inst& i) {
    const u32 *a = w.column<u32>(i.a), *b = w.column<u32>(i.b), *c = w.column<u32>(i.c);
    int mode = i.mode;
    write_active_lanes(w, w.column<u32>(i.d), [=](int l) { return permute(a[l], b[l], c[l], mode); });
}
void build_prmt(Decoder& d, Form& f) {
    Inst i;
    f.take("b32");
    i.mode = u8(f.take_any({"f4e", "b4e", "rc8", "ecl", "ecr", "rc16"}) + 1);
    i.run = permute_bytes;
    i.kind = Class::Integer;
    i.d = d.write(0, Type::B32);
    i.a = d.read(1, Type::B32);
    i.b = d.read(2, Type::B32);
    i.c = d.read(3, Type::B32);
    d.emit(std::move(i));
}

}  // namespace

void add_bits(BuilderTable& t) {
    t["and"] = build_logic<And>;
    t["or"] = build_logic<Or>;
    t["xor"] = build_logic<Xor>;
    t["not"] = build_not;
    t["cnot"] = [](Decoder& d, Form& f) {
        Type type = f.take_type();
        emit_same_type(d, unary_bits_of<CNot>(type), type, Class::Integer, 1);
    };
    t["shl"] = build_shl;
    t["shr"] = build_shr;
    t["shf"] = build_shf;
    t["lop3"] = build_lop3;
    t["popc"] = build_popc;
    t["clz"] = build_clz;
    t["brev"] = build_brev;
    t["bfind"] = build_bfind;
    t["fns"] = [](Decoder& d, Form& f) {
        Type type = f.take_type();
        emit_same_type(d, find_nth, type, Class::Integer, 3);
    };
    t["bfe"] = build_bfe;
    t["bfi"] = build_bfi;
    t["bmsk"] = [](Decoder& d, Form& f) {
        bool wrap = f.take_any({"clamp", "wrap"}) == 1;
        Type type = f.take_type();
        Inst i;
        i.mode = wrap;
        i.run = bit_mask;
        i.kind = Class::Integer;
        i.d = d.write(0, type);
        i.a = d.read(1, type);
        i.b = d.read(2, type);
        d.emit(std::move(i));
    };
    t["szext"] = [](Decoder& d, Form& f) {
        bool wrap = f.take_any({"clamp", "wrap"}) == 1;
        Type type = f.take_type();
        Inst i;
        i.mode = wrap;
        i.run = type == Type::S32 ? size_extend<s32> : size_extend<u32>;
        i.kind = Class::Integer;
        i.d = d.write(0, type);
        i.a = d.read(1, type);
        i.b = d.read(2, Type::U32);
        d.emit(std::move(i));
    };
    t["prmt"] = build_prmt;
}

}  // namespace cusim
