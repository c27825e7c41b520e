// float.cpp: f32 and f64 arithmetic. Compiled with -frounding-math, since directed rounding changes the
// host's mode.
//
// The approximate functions (ex2, lg2, sin, cos, tanh, rcp, rsqrt, sqrt, div.full) are computed to f32
// accuracy: better than a GPU gives, so tests must keep the tolerances the PTX manual states.
#include "float.h"

#include <cfenv>
#include <map>

#include "lanes.h"
#include "tables.h"

namespace cusim {

Handler exp2_handler(bool ftz);  // ex2.cpp

int host_rounding(Rounding r) {
    return r == kZero ? FE_TOWARDZERO : r == kDown ? FE_DOWNWARD : r == kUp ? FE_UPWARD : FE_TONEAREST;
}

Rounding take_rounding(Form& f) {
    int r = f.take_any({"rn", "rz", "rm", "rp", "rna"});
    return r < 0 ? kNoRounding : Rounding(r);
}

f32 to_odd(f64 s) {
    f32 f = f32(s);
    u32 bits = bit_cast<u32>(f);
    bool inexact = f64(f) != s && s == s && (bits & 0x7f800000) != 0x7f800000;
    bool even = !(bits & 1), below = std::fabs(f64(f)) < std::fabs(s);
    u32 moved = below ? bits + 1 : bits - 1;
    // Overflow to infinity came from a finite value: the largest finite number is odd.
    if ((bits & 0x7fffffff) == 0x7f800000 && std::fabs(s) <= 1.7976931348623157e308)
        return bit_cast<f32>(bits - 1);
    return bit_cast<f32>(inexact && even ? moved : bits);
}

f32 fma_to_odd(f32 a, f32 b, f32 c) {
    f64 p = f64(a) * f64(b), s = p + f64(c);  // the product is exact
    f64 z = s - p, error = (p - (s - z)) + (f64(c) - z);
    u64 bits = bit_cast<u64>(s);
    bool finite = (bits >> 52 & 0x7ff) != 0x7ff;
    if (finite && error != 0 && !(bits & 1)) bits += (error > 0) == (s > 0) ? 1 : u64(-1);
    return to_odd(bit_cast<f64>(bits));
}

namespace {

struct Add {
    template <class T>
    static T apply(T x, T y) {
        return x + y;
    }
};
struct Sub {
    template <class T>
    static T apply(T x, T y) {
        return x - y;
    }
};
struct Mul {
    template <class T>
    static T apply(T x, T y) {
        return x * y;
    }
};
struct Div {
    template <class T>
    static T apply(T x, T y) {
        return x / y;
    }
};
struct Fma {
    static f32 apply(f32 x, f32 y, f32 z) { return __builtin_fmaf(x, y, z); }
    static f64 apply(f64 x, f64 y, f64 z) { return __builtin_fma(x, y, z); }
};
struct Rcp {
    template <class T>
    static T apply(T x) {
        return T(1) / x;
    }
};
struct Sqrt {
    static f32 apply(f32 x) { return __builtin_sqrtf(x); }
    static f64 apply(f64 x) { return __builtin_sqrt(x); }
};
struct Rsqrt {
    template <class T>
    static T apply(T x) {
        return T(1.0 / __builtin_sqrt(f64(x)));
    }
};
struct Lg2 {
    static f32 apply(f32 x) { return f32(std::log2(f64(x))); }
};
struct Sin {
    static f32 apply(f32 x) { return f32(std::sin(f64(x))); }
};
struct Cos {
    static f32 apply(f32 x) { return f32(std::cos(f64(x))); }
};
struct Tanh {
    static f32 apply(f32 x) { return f32(std::tanh(f64(x))); }
};
// min and max: -0 is less than +0, a NaN loses (or wins with .NaN).
struct Min {
    template <class T>
    static bool first(T x, T y) {
        return x < y || (x == y && std::signbit(x));
    }
};
struct Max {
    template <class T>
    static bool first(T x, T y) {
        return x > y || (x == y && !std::signbit(x));
    }
};

f32 finish(f32 x) {
    return canonical(x);
}
f64 finish(f64 x) {
    return x;
}
f32 flushed(f32 x) {
    return flush(x);
}
f64 flushed(f64 x) {
    return x;
}

// The common case: round to nearest; flag kFtz.
template <class Op, class T, bool kFtz>
void nearest1(Warp& w, const Inst& i) {
    const T* a = w.column<T>(i.a);
    write_lanes(w, w.column<T>(i.d), [=](int l) {
        T r = finish(Op::apply(kFtz ? flushed(a[l]) : a[l]));
        return kFtz ? flushed(r) : r;
    });
}
template <class Op, class T, bool kFtz>
void nearest2(Warp& w, const Inst& i) {
    const T *a = w.column<T>(i.a), *b = w.column<T>(i.b);
    write_lanes(w, w.column<T>(i.d), [=](int l) {
        T r = finish(kFtz ? Op::apply(flushed(a[l]), flushed(b[l])) : Op::apply(a[l], b[l]));
        return kFtz ? flushed(r) : r;
    });
}
template <class Op, class T, bool kFtz>
void nearest3(Warp& w, const Inst& i) {
    const T *a = w.column<T>(i.a), *b = w.column<T>(i.b), *c = w.column<T>(i.c);
    write_lanes(w, w.column<T>(i.d), [=](int l) {
        T r = finish(kFtz ? Op::apply(flushed(a[l]), flushed(b[l]), flushed(c[l]))
                          : Op::apply(a[l], b[l], c[l]));
        return kFtz ? flushed(r) : r;
    });
}

// Any rounding, .ftz, .sat: lane by lane. mode: Rounding, bit 4: ftz, bit 5: sat.
constexpr u8 kModeFtz = 16, kModeSat = 32;
template <class Op, class T, int kSources>
void general(Warp& w, const Inst& i) {
    const T *a = w.column<T>(i.a), *b = kSources > 1 ? w.column<T>(i.b) : nullptr;
    const T* c = kSources > 2 ? w.column<T>(i.c) : nullptr;
    T* d = w.column<T>(i.d);
    bool ftz = i.mode & kModeFtz, sat = i.mode & kModeSat;
    int before = std::fegetround();
    std::fesetround(host_rounding(Rounding(i.mode & 15)));
    for (u32 rest = w.mask; rest; rest &= rest - 1) {
        int l = __builtin_ctz(rest);
        auto in = [&](const T* p) { return ftz ? flushed(p[l]) : p[l]; };
        // volatile keeps the arithmetic between the two changes of mode.
        volatile T r;
        if constexpr (kSources == 1)
            r = Op::apply(in(a));
        else if constexpr (kSources == 2)
            r = Op::apply(in(a), in(b));
        else
            r = Op::apply(in(a), in(b), in(c));
        T out = finish(T(r));
        if (ftz) out = flushed(out);
        d[l] = sat ? saturate(out) : out;
    }
    std::fesetround(before);
}

template <class Op, class T, int kSources>
Handler arithmetic(Form& f, u8& mode) {
    Rounding r = take_rounding(f);
    f.take_any({"approx", "full"});
    bool ftz = f.take("ftz"), sat = f.take("sat");
    mode = u8((r == kNoRounding ? kNearest : r) | (ftz ? kModeFtz : 0) | (sat ? kModeSat : 0));
    if ((r != kNearest && r != kNoRounding) || sat) return general<Op, T, kSources>;
    if constexpr (kSources == 1)
        return ftz ? nearest1<Op, T, true> : nearest1<Op, T, false>;
    else if constexpr (kSources == 2)
        return ftz ? nearest2<Op, T, true> : nearest2<Op, T, false>;
    else
        return ftz ? nearest3<Op, T, true> : nearest3<Op, T, false>;
}

template <class Op>
void emit_arithmetic(Decoder& d, Form& f, Type type) {
    constexpr int kSources = std::is_same<Op, Fma>::value ? 3 : 2;
    Inst i;
    i.run = type == Type::F64 ? arithmetic<Op, f64, kSources>(f, i.mode)
                              : arithmetic<Op, f32, kSources>(f, i.mode);
    i.kind = type == Type::F64 ? Class::Double : Class::Float;
    i.d = d.write(0, type);
    i.a = d.read(1, type);
    i.b = d.read(2, type);
    if (kSources > 2) i.c = d.read(3, type);
    d.emit(std::move(i));
}

// mode bit 0: NaN wins, bit 1: xorsign.abs, bit 4: ftz.
template <class Op, class T>
void min_max(Warp& w, const Inst& i) {
    const T *a = w.column<T>(i.a), *b = w.column<T>(i.b), *c = i.c != kNoColumn ? w.column<T>(i.c) : nullptr;
    bool nan_wins = i.mode & 1, xorsign = i.mode & 2, ftz = i.mode & kModeFtz;
    const T nan = finish(T(NAN));
    auto pick = [=](T x, T y) {
        if (ftz) x = flushed(x), y = flushed(y);
        bool negative = std::signbit(x) != std::signbit(y);
        if (xorsign) x = std::fabs(x), y = std::fabs(y);
        T r;
        if (x != x || y != y)
            r = nan_wins || (x != x && y != y) ? nan : x != x ? y : x;
        else
            r = Op::first(x, y) ? x : y;
        return xorsign && r == r ? std::copysign(r, negative ? T(-1) : T(1)) : r;
    };
    write_active_lanes(w, w.column<T>(i.d),
                       [=](int l) { return c ? pick(pick(a[l], b[l]), c[l]) : pick(a[l], b[l]); });
}
// The common form of f32, which vectorises.
template <bool kMax>
void min_max_f32(Warp& w, const Inst& i) {
    const f32 *a = w.column<f32>(i.a), *b = w.column<f32>(i.b);
    write_lanes(w, w.column<f32>(i.d), [=](int l) {
        f32 x = a[l], y = b[l];
        u32 ux = bit_cast<u32>(x), uy = bit_cast<u32>(y);
        u32 both = kMax ? ux & uy : ux | uy;  // of zeros: the sign decides
        u32 r = x == y ? both : (kMax ? x > y : x < y) ? ux : uy;
        r = x != x ? uy : y != y ? ux : r;
        return canonical(bit_cast<f32>(r));
    });
}

void build_min_max(Decoder& d, Form& f, bool max, Type type, int sources) {
    Inst i;
    i.mode = u8(f.take("NaN"));
    if (f.take("xorsign")) {
        if (!f.take("abs")) d.unknown("form", "exec/float.cpp");
        i.mode |= 2;
    }
    if (f.take("ftz")) i.mode |= kModeFtz;
    if (type == Type::F64)
        i.run = max ? min_max<Max, f64> : min_max<Min, f64>;
    else if (i.mode || sources > 2)
        i.run = max ? min_max<Max, f32> : min_max<Min, f32>;
    else
        i.run = max ? min_max_f32<true> : min_max_f32<false>;
    i.kind = type == Type::F64 ? Class::Double : Class::Float;
    i.d = d.write(0, type);
    i.a = d.read(1, type);
    i.b = d.read(2, type);
    if (sources > 2) i.c = d.read(3, type);
    d.emit(std::move(i));
}

template <bool kAbs, class U, bool kFtz>
void change_sign(Warp& w, const Inst& i) {
    constexpr U kSign = U(1) << (8 * sizeof(U) - 1);
    const U* a = w.column<U>(i.a);
    write_lanes(w, w.column<U>(i.d), [=](int l) {
        U x = a[l];
        if (kFtz) x = U(bit_cast<u32>(flush(bit_cast<f32>(u32(x)))));
        return kAbs ? U(x & ~kSign) : U(x ^ kSign);
    });
}

template <bool kAbs>
void build_sign(Decoder& d, Form& f, Type type) {
    bool ftz = f.take("ftz");
    Handler run = type == Type::F64 ? change_sign<kAbs, u64, false>
                  : ftz             ? change_sign<kAbs, u32, true>
                                    : change_sign<kAbs, u32, false>;
    emit_same_type(d, run, type, Class::Float, 1);
}

// One-argument functions. The slow ones (library calls) run for active lanes only.
template <class Op, bool kFtz>
void function_slow(Warp& w, const Inst& i) {
    const f32* a = w.column<f32>(i.a);
    write_active_lanes(w, w.column<f32>(i.d), [=](int l) {
        f32 r = canonical(Op::apply(kFtz ? flush(a[l]) : a[l]));
        return kFtz ? flush(r) : r;
    });
}

template <class Op>
void build_slow_function(Decoder& d, Form& f) {
    f.take("approx");
    bool ftz = f.take("ftz");
    Type type = f.take_type();
    if (build_half(d, f, std::is_same<Op, Tanh>::value ? "tanh" : "", type, 1)) return;
    if (type != Type::F32) d.unknown("type", "exec/float.cpp");
    emit_same_type(d, ftz ? function_slow<Op, true> : function_slow<Op, false>, type, Class::Float, 1);
}

template <class Op>
void build_function(Decoder& d, Form& f) {
    Type type = f.take_type();
    Inst i;
    if (type == Type::F32) i.run = arithmetic<Op, f32, 1>(f, i.mode);
    if (type == Type::F64) i.run = arithmetic<Op, f64, 1>(f, i.mode);
    if (!i.run) d.unknown("type", "exec/float.cpp");
    i.kind = type == Type::F64 ? Class::Double : Class::Float;
    i.d = d.write(0, type);
    i.a = d.read(1, type);
    d.emit(std::move(i));
}

void build_ex2(Decoder& d, Form& f) {
    Type type = f.take_type();
    if (build_half(d, f, "ex2", type, 1)) return;
    if (type != Type::F32 || !f.take("approx")) d.unknown("form", "exec/float.cpp");
    emit_same_type(d, exp2_handler(f.take("ftz")), type, Class::Float, 1);
}

// copysign d, a, b: b's magnitude, a's sign.
template <class U>
void copy_sign(Warp& w, const Inst& i) {
    constexpr U kSign = U(1) << (8 * sizeof(U) - 1);
    const U *a = w.column<U>(i.a), *b = w.column<U>(i.b);
    write_lanes(w, w.column<U>(i.d), [=](int l) { return U((a[l] & kSign) | (b[l] & ~kSign)); });
}

template <class T>
void test_property(Warp& w, const Inst& i) {
    const T* a = w.column<T>(i.a);
    write_predicate(w, i.d, lane_bits([=](int l) {
                        T x = a[l];
                        switch (i.mode) {
                            case 0:
                                return bool(std::isfinite(x));
                            case 1:
                                return bool(std::isinf(x));
                            case 2:
                                return x == x;
                            case 3:
                                return x != x;
                            case 4:
                                return x == 0 || std::isnormal(x);  // zeros count as normal
                            default:
                                return std::fpclassify(x) == FP_SUBNORMAL;
                        }
                    }));
}

void build_testp(Decoder& d, Form& f) {
    Inst i;
    int which = f.take_any({"finite", "infinite", "number", "notanumber", "normal", "subnormal"});
    if (which < 0) d.unknown("property", "exec/float.cpp");
    Type type = f.take_type();
    i.mode = u8(which);
    i.run = type == Type::F64 ? test_property<f64> : test_property<f32>;
    i.kind = Class::Compare;
    i.d = d.write(0, Type::Pred);
    i.a = d.read(1, type);
    d.emit(std::move(i));
}

}  // namespace

void build_float(Decoder& d, Form& f, const char* op, Type type, int sources) {
    if (build_half(d, f, op, type, sources)) return;
    if (type != Type::F32 && type != Type::F64) d.unknown("type", "exec/float.cpp");
    std::string_view name = op;
    if (name == "add") return emit_arithmetic<Add>(d, f, type);
    if (name == "sub") return emit_arithmetic<Sub>(d, f, type);
    if (name == "mul") return emit_arithmetic<Mul>(d, f, type);
    if (name == "div") return emit_arithmetic<Div>(d, f, type);
    if (name == "fma") return emit_arithmetic<Fma>(d, f, type);
    if (name == "min" || name == "max") return build_min_max(d, f, name == "max", type, sources);
    if (name == "abs") return build_sign<true>(d, f, type);
    if (name == "neg") return build_sign<false>(d, f, type);
    d.unknown("operation", "exec/float.cpp");
}

void add_float(BuilderTable& t) {
    t["fma"] = [](Decoder& d, Form& f) { build_float(d, f, "fma", f.take_type(), 3); };
    t["rcp"] = build_function<Rcp>;
    t["sqrt"] = build_function<Sqrt>;
    t["rsqrt"] = build_function<Rsqrt>;
    t["ex2"] = build_ex2;
    t["lg2"] = build_slow_function<Lg2>;
    t["sin"] = build_slow_function<Sin>;
    t["cos"] = build_slow_function<Cos>;
    t["tanh"] = build_slow_function<Tanh>;
    t["copysign"] = [](Decoder& d, Form& f) {
        Type type = f.take_type();
        emit_same_type(d, type == Type::F64 ? copy_sign<u64> : copy_sign<u32>, type, Class::Float, 2);
    };
    t["testp"] = build_testp;
}

}  // namespace cusim
