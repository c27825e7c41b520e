// half.cpp: f16 and bf16 arithmetic, one value or two (x2) per register. Results are correctly rounded: sums
// are formed to odd in f32 and rounded once more.
#include "float.h"
#include "lanes.h"
#include "tables.h"

namespace cusim {

namespace {

struct F16 {
    static constexpr u16 kNan = 0x7fff, kExponent = 0x7c00;
    static f32 load(u16 h) { return from_f16(h); }
    static u16 store(f32 x) { return to_f16(x); }
};
struct BF16 {
    static constexpr u16 kNan = 0x7fff, kExponent = 0x7f80;
    static f32 load(u16 h) { return from_bf16(h); }
    static u16 store(f32 x) { return to_bf16(x); }
};

enum HalfFlags : u8 { kFtz = 1, kSat = 2, kRelu = 4, kNanWins = 8, kXorSign = 16 };

template <class H>
bool is_nan(u16 h) {
    return (h & 0x7fff) > H::kExponent;
}
template <class H>
u16 flush_half(u16 h) {
    return (h & H::kExponent) ? h : h & 0x8000;
}

template <class H>
u16 finish(f32 x, u8 flags) {
    u16 h = H::store(x);
    if (flags & kFtz) h = flush_half<H>(h);
    if (flags & kSat) h = H::store(saturate(H::load(h)));
    // .relu: negative to +0, NaN to the canonical NaN.
    if ((flags & kRelu) && !is_nan<H>(h) && (h & 0x8000)) h = 0;
    return h;
}

template <class H>
struct Add {
    static u16 apply(u16 a, u16 b, u16, u8 f) { return finish<H>(fma_to_odd(H::load(a), 1, H::load(b)), f); }
};
template <class H>
struct Sub {
    static u16 apply(u16 a, u16 b, u16, u8 f) { return finish<H>(fma_to_odd(H::load(a), 1, -H::load(b)), f); }
};
template <class H>
struct Mul {
    static u16 apply(u16 a, u16 b, u16, u8 f) {
        return finish<H>(fma_to_odd(H::load(a), H::load(b), -0.0f), f);
    }
};
template <class H>
struct Fma {
    static u16 apply(u16 a, u16 b, u16 c, u8 f) {
        return finish<H>(fma_to_odd(H::load(a), H::load(b), H::load(c)), f);
    }
};
template <class H>
struct Abs {
    static u16 apply(u16 a, u16, u16, u8) { return u16(a & 0x7fff); }
};
template <class H>
struct Neg {
    static u16 apply(u16 a, u16, u16, u8) { return u16(a ^ 0x8000); }
};
template <class H>
struct Ex2 {
    static u16 apply(u16 a, u16, u16, u8 f) { return finish<H>(to_odd(std::exp2(f64(H::load(a)))), f); }
};
template <class H>
struct Tanh {
    static u16 apply(u16 a, u16, u16, u8 f) { return finish<H>(to_odd(std::tanh(f64(H::load(a)))), f); }
};
template <class H, bool kMax>
u16 min_max(u16 a, u16 b, u8 f) {
    u16 sign = u16((a ^ b) & 0x8000);
    if (f & kXorSign) a &= 0x7fff, b &= 0x7fff;
    if (is_nan<H>(a) || is_nan<H>(b)) {
        if ((f & kNanWins) || (is_nan<H>(a) && is_nan<H>(b))) return H::kNan;
        u16 r = is_nan<H>(a) ? b : a;
        return (f & kXorSign) ? u16(r | sign) : r;
    }
    f32 x = H::load(a), y = H::load(b);
    bool first = x == y ? ((a & 0x8000) != 0) != kMax : kMax ? x > y : x < y;
    u16 r = first ? a : b;
    return (f & kXorSign) ? u16(r | sign) : r;
}
template <class H>
struct Min {
    static u16 apply(u16 a, u16 b, u16, u8 f) { return min_max<H, false>(a, b, f); }
};
template <class H>
struct Max {
    static u16 apply(u16 a, u16 b, u16, u8 f) { return min_max<H, true>(a, b, f); }
};

// .ftz flushes sources here, results in finish().
template <class H, class Op>
u16 apply_flushed(u16 a, u16 b, u16 c, u8 flags) {
    if (flags & kFtz) a = flush_half<H>(a), b = flush_half<H>(b), c = flush_half<H>(c);
    return Op::apply(a, b, c, flags);
}

// T = u16: one value; T = u32: two.
template <class H, class Op, class T, int kSources>
void half_op(Warp& w, const Inst& i) {
    const T* a = w.column<T>(i.a);
    const T* b = kSources > 1 ? w.column<T>(i.b) : a;
    const T* c = kSources > 2 ? w.column<T>(i.c) : a;
    u8 flags = i.mode;
    write_active_lanes(w, w.column<T>(i.d), [=](int l) {
        u32 low = apply_flushed<H, Op>(u16(a[l]), u16(b[l]), u16(c[l]), flags);
        if (sizeof(T) == 2) return T(low);
        u32 x = a[l], y = b[l], z = c[l];
        u32 high = apply_flushed<H, Op>(u16(x >> 16), u16(y >> 16), u16(z >> 16), flags);
        return T(low | high << 16);
    });
}

template <template <class> class Op, int kSources>
Handler half_handler(Type type) {
    switch (type) {
        case Type::F16:
            return half_op<F16, Op<F16>, u16, kSources>;
        case Type::F16x2:
            return half_op<F16, Op<F16>, u32, kSources>;
        case Type::BF16:
            return half_op<BF16, Op<BF16>, u16, kSources>;
        default:
            return half_op<BF16, Op<BF16>, u32, kSources>;
    }
}

}  // namespace

bool build_half(Decoder& d, Form& f, std::string_view op, Type type, int sources) {
    if (type < Type::F16 || type > Type::BF16x2) return false;
    Inst i;
    f.take("rn");
    f.take("approx");
    if (f.take("ftz")) i.mode |= kFtz;
    if (f.take("sat")) i.mode |= kSat;
    if (f.take("relu")) i.mode |= kRelu;
    if (f.take("NaN")) i.mode |= kNanWins;
    if (f.take("xorsign")) {
        if (!f.take("abs")) d.unknown("form", "exec/half.cpp");
        i.mode |= kXorSign;
    }
    i.run = op == "add"    ? half_handler<Add, 2>(type)
            : op == "sub"  ? half_handler<Sub, 2>(type)
            : op == "mul"  ? half_handler<Mul, 2>(type)
            : op == "fma"  ? half_handler<Fma, 3>(type)
            : op == "min"  ? half_handler<Min, 2>(type)
            : op == "max"  ? half_handler<Max, 2>(type)
            : op == "abs"  ? half_handler<Abs, 1>(type)
            : op == "neg"  ? half_handler<Neg, 1>(type)
            : op == "ex2"  ? half_handler<Ex2, 1>(type)
            : op == "tanh" ? half_handler<Tanh, 1>(type)
                           : nullptr;
    if (!i.run || (sources > 2 && op != "fma")) d.unknown("half-precision operation", "exec/half.cpp");
    i.kind = Class::Half;
    i.d = d.write(0, type);
    i.a = d.read(1, type);
    if (sources > 1) i.b = d.read(2, type);
    if (sources > 2) i.c = d.read(3, type);
    d.emit(std::move(i));
    return true;
}

}  // namespace cusim
