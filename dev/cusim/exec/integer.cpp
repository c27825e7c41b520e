// integer.cpp: add, sub, mul, mad, div, rem, min, max, abs, neg, sad, carries, dot products. The float types
// of the shared opcodes (add, mul, min ...) are passed on to float.cpp and half.cpp.
#include "float.h"
#include "lanes.h"
#include "tables.h"

namespace cusim {

namespace {

template <class T>
using Unsigned = std::make_unsigned_t<T>;
template <class T, class Signed, class Plain>
using LikeSigned = std::conditional_t<std::is_signed<T>::value, Signed, Plain>;
template <class T>
using WiderT = std::conditional_t<
    sizeof(T) == 2, LikeSigned<T, s32, u32>,
    std::conditional_t<sizeof(T) == 4, LikeSigned<T, s64, u64>, LikeSigned<T, __int128, unsigned __int128>>>;

// Arithmetic wraps: done on unsigned values of at least 32 bits (u16 * u16 would overflow int).
struct Add {
    template <class T>
    static T apply(T x, T y) {
        return T(Unsigned<T>(x) + Unsigned<T>(y));
    }
};
struct Sub {
    template <class T>
    static T apply(T x, T y) {
        return T(Unsigned<T>(x) - Unsigned<T>(y));
    }
};
struct MulLow {
    template <class T>
    static T apply(T x, T y) {
        return T(u64(x) * u64(y));
    }
};
struct MulHigh {
    template <class T>
    static T apply(T x, T y) {
        return T((WiderT<T>(x) * WiderT<T>(y)) >> (8 * sizeof(T)));
    }
};
struct MadLow {
    template <class T>
    static T apply(T x, T y, T z) {
        return T(u64(x) * u64(y) + u64(z));
    }
};
struct MadHigh {
    template <class T>
    static T apply(T x, T y, T z) {
        return T(Unsigned<T>(MulHigh::apply(x, y)) + Unsigned<T>(z));
    }
};
struct Min {
    template <class T>
    static T apply(T x, T y) {
        return x < y ? x : y;
    }
};
struct Max {
    template <class T>
    static T apply(T x, T y) {
        return x > y ? x : y;
    }
};
struct Abs {
    template <class T>
    static T apply(T x) {
        return x < 0 ? T(0 - Unsigned<T>(x)) : x;
    }
};
struct Neg {
    template <class T>
    static T apply(T x) {
        return T(0 - Unsigned<T>(x));
    }
};
struct Sad {
    template <class T>
    static T apply(T x, T y, T z) {
        return T(Unsigned<T>(z) +
                 (x < y ? Unsigned<T>(y) - Unsigned<T>(x) : Unsigned<T>(x) - Unsigned<T>(y)));
    }
};
// Division by zero is unspecified by PTX; all ones is what GPUs give. MIN / -1 wraps.
struct Div {
    template <class T>
    static T apply(T x, T y) {
        if (y == 0) return T(-1);
        if (std::is_signed<T>::value && y == T(-1)) return Neg::apply(x);
        return T(x / y);
    }
};
struct Rem {
    template <class T>
    static T apply(T x, T y) {
        if (y == 0) return x;
        if (std::is_signed<T>::value && y == T(-1)) return 0;
        return T(x % y);
    }
};
template <class T>
s32 clamp32(T x) {
    return s32(x < INT32_MIN ? INT32_MIN : x > INT32_MAX ? INT32_MAX : x);
}
struct AddSat {
    static s32 apply(s32 x, s32 y) { return clamp32(s64(x) + y); }
};
struct SubSat {
    static s32 apply(s32 x, s32 y) { return clamp32(s64(x) - y); }
};
struct MadHighSat {
    static s32 apply(s32 x, s32 y, s32 z) { return clamp32((s64(x) * y >> 32) + z); }
};
s32 low24(s32 x) {
    return s32(u32(x) << 8) >> 8;
}
u32 low24(u32 x) {
    return x & 0xffffff;
}
struct Mul24Low {
    template <class T>
    static T apply(T x, T y) {
        return T(u64(s64(low24(x)) * s64(low24(y))));
    }
};
struct Mul24High {
    template <class T>
    static T apply(T x, T y) {
        return T((s64(low24(x)) * s64(low24(y))) >> 16);
    }
};
struct Mad24Low {
    template <class T>
    static T apply(T x, T y, T z) {
        return T(u32(Mul24Low::apply(x, y)) + u32(z));
    }
};
struct Mad24High {
    template <class T>
    static T apply(T x, T y, T z) {
        return T(u32(Mul24High::apply(x, y)) + u32(z));
    }
};

// Two 16-bit halves of a register.
template <class Op, class T>
struct Halves {
    static u32 apply(u32 x, u32 y) {
        return u32(u16(Op::apply(T(x), T(y)))) | u32(u16(Op::apply(T(x >> 16), T(y >> 16)))) << 16;
    }
};

template <class Op>
Handler binary_of(Type type) {
    switch (type) {
#define CASE(E, T) \
    case Type::E:  \
        return binary<Op, T>;
        CUSIM_INTEGER_TYPES(CASE)
#undef CASE
        default:
            return nullptr;
    }
}
template <class Op>
Handler binary_slow_of(Type type) {
    switch (type) {
#define CASE(E, T) \
    case Type::E:  \
        return binary_slow<Op, T>;
        CUSIM_INTEGER_TYPES(CASE)
#undef CASE
        default:
            return nullptr;
    }
}
template <class Op>
Handler ternary_of(Type type) {
    switch (type) {
#define CASE(E, T) \
    case Type::E:  \
        return ternary<Op, T>;
        CUSIM_INTEGER_TYPES(CASE)
#undef CASE
        default:
            return nullptr;
    }
}

// d (wide) = a * b [+ c (wide)]
template <class T, bool kAdd>
void multiply_wide(Warp& w, const Inst& i) {
    using W = WiderT<T>;
    const T *a = w.column<T>(i.a), *b = w.column<T>(i.b);
    const W* c = kAdd ? w.column<W>(i.c) : nullptr;
    write_lanes(w, w.column<W>(i.d), [=](int l) {
        W product = W(u64(W(a[l])) * u64(W(b[l])));
        return kAdd ? W(u64(product) + u64(c[l])) : product;
    });
}

template <bool kAdd>
Handler multiply_wide_of(Type type) {
    switch (type) {
        case Type::U16:
            return multiply_wide<u16, kAdd>;
        case Type::S16:
            return multiply_wide<s16, kAdd>;
        case Type::U32:
            return multiply_wide<u32, kAdd>;
        case Type::S32:
            return multiply_wide<s32, kAdd>;
        default:
            return nullptr;
    }
}

Type wider_type(Type type) {
    return type == Type::U16   ? Type::U32
           : type == Type::S16 ? Type::S32
           : type == Type::U32 ? Type::U64
                               : Type::S64;
}

// --- carries: the condition code is one predicate of the kernel, kept in a register of its own
// ------------------------- add.cc / addc / sub.cc / subc / mad.cc / madc. flag: sets the carry; mode: 1 =
// also adds it.
template <class T, bool kSubtract>
void add_carry(Warp& w, const Inst& i) {
    const T *a = w.column<T>(i.a), *b = w.column<T>(i.b);
    T* d = w.column<T>(i.d);
    u32 carry = w.carry, out = 0;
    write_active_lanes(w, d, [&](int l) {
        T y = kSubtract ? T(~b[l]) : b[l];
        // a - b = a + ~b + 1; the condition code of a subtraction is the borrow.
        bool in = i.mode ? (carry >> l & 1) != kSubtract : kSubtract;
        unsigned __int128 sum = (unsigned __int128)a[l] + y + in;
        bool over = (sum >> (8 * sizeof(T))) & 1;
        out |= u32(over != kSubtract) << l;
        return T(sum);
    });
    if (i.flag) w.carry = (carry & ~w.mask) | (out & w.mask);
}

template <class T, bool kHigh, bool kSigned>
void multiply_carry(Warp& w, const Inst& i) {
    const T *a = w.column<T>(i.a), *b = w.column<T>(i.b), *c = w.column<T>(i.c);
    u32 carry = w.carry, out = 0;
    write_active_lanes(w, w.column<T>(i.d), [&](int l) {
        using S = std::make_signed_t<T>;
        unsigned __int128 product =
            kSigned ? (unsigned __int128)((__int128)S(a[l]) * S(b[l])) : (unsigned __int128)a[l] * b[l];
        T part = T(kHigh ? product >> (8 * sizeof(T)) : product);
        unsigned __int128 sum = (unsigned __int128)part + c[l] + (i.mode ? carry >> l & 1 : 0);
        out |= u32((sum >> (8 * sizeof(T))) & 1) << l;
        return T(sum);
    });
    if (i.flag) w.carry = (carry & ~w.mask) | (out & w.mask);
}

void build_carry(Decoder& d, Form& f, bool subtract, bool reads_carry) {
    bool sets = f.take("cc");
    Type type = f.take_type();
    bool wide = type_bytes(type) == 8;
    Inst i;
    i.run = subtract ? (wide ? add_carry<u64, true> : add_carry<u32, true>)
                     : (wide ? add_carry<u64, false> : add_carry<u32, false>);
    if (type_bytes(type) < 4) d.unknown("type", "exec/integer.cpp");
    i.kind = Class::Integer;
    i.flag = sets;
    i.mode = reads_carry;
    i.d = d.write(0, type);
    i.a = d.read(1, type);
    i.b = d.read(2, type);
    d.emit(std::move(i));
}

void build_mad_carry(Decoder& d, Form& f, bool reads_carry) {
    bool high = f.take_any({"lo", "hi"}) == 1, sets = f.take("cc");
    Type type = f.take_type();
    if (type_bytes(type) < 4) d.unknown("type", "exec/integer.cpp");
    bool wide = type_bytes(type) == 8, sign = type_is_signed(type);
    Inst i;
    if (wide)
        i.run = !high  ? multiply_carry<u64, false, false>
                : sign ? multiply_carry<u64, true, true>
                       : multiply_carry<u64, true, false>;
    else
        i.run = !high  ? multiply_carry<u32, false, false>
                : sign ? multiply_carry<u32, true, true>
                       : multiply_carry<u32, true, false>;
    i.kind = Class::Integer;
    i.flag = sets;
    i.mode = reads_carry;
    i.d = d.write(0, type);
    i.a = d.read(1, type);
    i.b = d.read(2, type);
    i.c = d.read(3, type);
    d.emit(std::move(i));
}

// --- builders
// ---------------------------------------------------------------------------------------------------------

void build_add_sub(Decoder& d, Form& f, bool subtract) {
    bool cc = false;
    for (std::string_view m : f.rest()) cc |= m == "cc";
    if (cc) return build_carry(d, f, subtract, false);
    Type type = f.take_type();
    if (type_is_float(type)) return build_float(d, f, subtract ? "sub" : "add", type, 2);
    if (type == Type::U16x2 || type == Type::S16x2)
        return emit_same_type(d, subtract ? binary<Halves<Sub, u16>, u32> : binary<Halves<Add, u16>, u32>,
                              Type::B32, Class::Integer, 2);
    if (type == Type::S32 && f.take("sat"))
        return emit_same_type(d, subtract ? binary<SubSat, s32> : binary<AddSat, s32>, type, Class::Integer,
                              2);
    emit_same_type(d, subtract ? binary_of<Sub>(type) : binary_of<Add>(type), type, Class::Integer, 2);
}

void build_mul(Decoder& d, Form& f) {
    int part = f.take_any({"lo", "hi", "wide"});
    Type type = f.take_type();
    if (type_is_float(type)) return build_float(d, f, "mul", type, 2);
    if (part == 2) {
        Inst i;
        i.run = multiply_wide_of<false>(type);
        if (!i.run) d.unknown("type", "exec/integer.cpp");
        i.kind = Class::Integer;
        i.d = d.write(0, wider_type(type));
        i.a = d.read(1, type);
        i.b = d.read(2, type);
        return d.emit(std::move(i));
    }
    emit_same_type(d, part == 1 ? binary_of<MulHigh>(type) : binary_of<MulLow>(type), type, Class::Integer,
                   2);
}

void build_mad(Decoder& d, Form& f) {
    for (std::string_view m : f.rest())
        if (m == "cc") return build_mad_carry(d, f, false);
    int part = f.take_any({"lo", "hi", "wide"});
    Type type = f.take_type();
    if (type_is_float(type)) return build_float(d, f, "fma", type, 3);
    if (part == 2) {
        Inst i;
        i.run = multiply_wide_of<true>(type);
        if (!i.run) d.unknown("type", "exec/integer.cpp");
        i.kind = Class::Integer;
        i.d = d.write(0, wider_type(type));
        i.a = d.read(1, type);
        i.b = d.read(2, type);
        i.c = d.read(3, wider_type(type));
        return d.emit(std::move(i));
    }
    if (part == 1 && type == Type::S32 && f.take("sat"))
        return emit_same_type(d, ternary<MadHighSat, s32>, type, Class::Integer, 3);
    emit_same_type(d, part == 1 ? ternary_of<MadHigh>(type) : ternary_of<MadLow>(type), type, Class::Integer,
                   3);
}

void build_mul24(Decoder& d, Form& f) {
    bool high = f.take_any({"lo", "hi"}) == 1;
    Type type = f.take_type();
    Handler run = type == Type::S32   ? (high ? binary<Mul24High, s32> : binary<Mul24Low, s32>)
                  : type == Type::U32 ? (high ? binary<Mul24High, u32> : binary<Mul24Low, u32>)
                                      : nullptr;
    emit_same_type(d, run, type, Class::Integer, 2);
}

void build_mad24(Decoder& d, Form& f) {
    bool high = f.take_any({"lo", "hi"}) == 1;
    Type type = f.take_type();
    Handler run = type == Type::S32   ? (high ? ternary<Mad24High, s32> : ternary<Mad24Low, s32>)
                  : type == Type::U32 ? (high ? ternary<Mad24High, u32> : ternary<Mad24Low, u32>)
                                      : nullptr;
    emit_same_type(d, run, type, Class::Integer, 3);
}

void build_div(Decoder& d, Form& f) {
    Type type = f.take_type();
    if (type_is_float(type)) return build_float(d, f, "div", type, 2);
    emit_same_type(d, binary_slow_of<Div>(type), type, Class::Integer, 2);
}

template <class Op>
void build_min_max(Decoder& d, Form& f, const char* name) {
    Type type = f.take_type();
    if (type_is_float(type)) {
        int sources = d.operand_count() == 4 ? 3 : 2;
        return build_float(d, f, name, type, sources);
    }
    if (type == Type::U16x2)
        return emit_same_type(d, binary<Halves<Op, u16>, u32>, Type::B32, Class::Integer, 2);
    if (type == Type::S16x2)
        return emit_same_type(d, binary<Halves<Op, s16>, u32>, Type::B32, Class::Integer, 2);
    emit_same_type(d, binary_of<Op>(type), type, Class::Integer, 2);
}

template <class Op>
void build_sign(Decoder& d, Form& f, const char* name) {
    Type type = f.take_type();
    if (type_is_float(type)) return build_float(d, f, name, type, 1);
    Handler run = type == Type::S16   ? unary<Op, s16>
                  : type == Type::S32 ? unary<Op, s32>
                  : type == Type::S64 ? unary<Op, s64>
                                      : nullptr;
    emit_same_type(d, run, type, Class::Integer, 1);
}

// dp4a / dp2a: dot products of bytes. mode bit 0: a signed, bit 1: b signed, bit 2: dp2a, bit 3: upper half
// of b.
void dot_product(Warp& w, const Inst& i) {
    const u32 *a = w.column<u32>(i.a), *b = w.column<u32>(i.b), *c = w.column<u32>(i.c);
    auto byte = [](u32 x, int k, bool sign) { return sign ? s32(s8(x >> 8 * k)) : s32(u8(x >> 8 * k)); };
    auto half = [](u32 x, int k, bool sign) { return sign ? s32(s16(x >> 16 * k)) : s32(u16(x >> 16 * k)); };
    bool a_signed = i.mode & 1, b_signed = i.mode & 2, two = i.mode & 4, high = i.mode & 8;
    write_active_lanes(w, w.column<u32>(i.d), [&](int l) {
        u32 sum = c[l];
        for (int k = 0; k < (two ? 2 : 4); k++)
            sum += two ? u32(half(a[l], k, a_signed) * byte(b[l], k + 2 * high, b_signed))
                       : u32(byte(a[l], k, a_signed) * byte(b[l], k, b_signed));
        return sum;
    });
}

void build_dot(Decoder& d, Form& f, bool two) {
    Inst i;
    bool high = two && f.take_any({"lo", "hi"}) == 1;
    Type a = f.take_type(), b = f.take_type();
    i.mode = u8((a == Type::S32) | (b == Type::S32) << 1 | two << 2 | high << 3);
    i.run = dot_product;
    i.kind = Class::Integer;
    i.d = d.write(0, Type::B32);
    i.a = d.read(1, Type::B32);
    i.b = d.read(2, Type::B32);
    i.c = d.read(3, Type::B32);
    d.emit(std::move(i));
}

}  // namespace

void add_integer(BuilderTable& t) {
    t["add"] = [](Decoder& d, Form& f) { build_add_sub(d, f, false); };
    t["sub"] = [](Decoder& d, Form& f) { build_add_sub(d, f, true); };
    t["addc"] = [](Decoder& d, Form& f) { build_carry(d, f, false, true); };
    t["subc"] = [](Decoder& d, Form& f) { build_carry(d, f, true, true); };
    t["madc"] = [](Decoder& d, Form& f) { build_mad_carry(d, f, true); };
    t["mul"] = build_mul;
    t["mad"] = build_mad;
    t["mul24"] = build_mul24;
    t["mad24"] = build_mad24;
    t["div"] = build_div;
    t["rem"] = [](Decoder& d, Form& f) {
        Type type = f.take_type();
        emit_same_type(d, binary_slow_of<Rem>(type), type, Class::Integer, 2);
    };
    t["min"] = [](Decoder& d, Form& f) { build_min_max<Min>(d, f, "min"); };
    t["max"] = [](Decoder& d, Form& f) { build_min_max<Max>(d, f, "max"); };
    t["abs"] = [](Decoder& d, Form& f) { build_sign<Abs>(d, f, "abs"); };
    t["neg"] = [](Decoder& d, Form& f) { build_sign<Neg>(d, f, "neg"); };
    t["sad"] = [](Decoder& d, Form& f) {
        Type type = f.take_type();
        emit_same_type(d, ternary_of<Sad>(type), type, Class::Integer, 3);
    };
    t["dp4a"] = [](Decoder& d, Form& f) { build_dot(d, f, false); };
    t["dp2a"] = [](Decoder& d, Form& f) { build_dot(d, f, true); };
}

}  // namespace cusim
