// exact.h: the reference of the floating-point tables: exact values of 128 bits and one rounding to a format.
//
// Operations give a value whose lost low bits are folded into the last bit ("sticky"); there are at least ten
// guard bits more than any format has, so `rounded` makes the one rounding that PTX asks for.
#pragma once
#include "isa.h"

struct Format {
    int bits, mantissa, bias;  // width, stored mantissa bits, exponent bias
    int exponent_mask() const { return (1 << (bits - 1 - mantissa)) - 1; }
    u64 sign() const { return 1ull << (bits - 1); }
    u64 infinity() const { return u64(exponent_mask()) << mantissa; }
    u64 largest() const { return infinity() - 1; }
    bool nan(u64 v) const { return (v & (sign() - 1)) > infinity(); }
    bool subnormal(u64 v) const { return (v & (sign() - 1)) != 0 && (v & infinity()) == 0; }
};
inline const Format f16{16, 10, 15}, bf16{16, 7, 127}, f32{32, 23, 127}, f64{64, 52, 1023}, tf32{19, 10, 127};

enum Rounding { RN, RZ, RM, RP, RNA };

// (-1)^negative * m * 2^e, or infinity, or NaN
struct Exact {
    bool negative = false;
    u128 m = 0;
    int e = 0;
    enum { Finite, Infinite, NotANumber } kind = Finite;
};

inline Exact exact(u64 v, const Format& f) {
    Exact x;
    x.negative = v & f.sign();
    int exponent = int(v >> f.mantissa & u64(f.exponent_mask()));
    u64 m = v & ((1ull << f.mantissa) - 1);
    if (exponent == f.exponent_mask()) {
        x.kind = m ? Exact::NotANumber : Exact::Infinite;
        return x;
    }
    x.m = exponent ? m | 1ull << f.mantissa : m;
    x.e = (exponent ? exponent : 1) - f.bias - f.mantissa;
    return x;
}
inline Exact exact_integer(i128 v) {
    return {v < 0, u128(v < 0 ? -v : v), 0, Exact::Finite};
}

inline int top_bit(u128 m) {
    int n = -1;
    for (; m; m >>= 1) n++;
    return n;
}
inline u128 shift_sticky(u128 m, int n) {
    if (n <= 0) return m << -n;
    if (n > 127) return m != 0;
    return m >> n | u128((m & ((u128(1) << n) - 1)) != 0);
}

// NaN of any payload is written as all ones below the sign bit: the canonical NaN.
inline u64 nan_of(const Format& f) {
    return f.sign() - 1;
}

inline u64 rounded(const Exact& x, const Format& f, Rounding mode) {
    u64 sign = x.negative ? f.sign() : 0;
    if (x.kind == Exact::NotANumber) return nan_of(f);
    if (x.kind == Exact::Infinite) return sign | f.infinity();
    if (x.m == 0) return sign;
    // the weight of the result's last place, not below that of the subnormals
    int unit = top_bit(x.m) + x.e - f.mantissa, least = 1 - f.bias - f.mantissa;
    if (unit < least) unit = least;
    int drop = unit - x.e;
    u128 kept, rest = 0, half = 1;
    if (drop <= 0) {
        kept = x.m << -drop;
    } else if (drop > 127) {
        kept = 0;
        rest = 1;
        half = 2;
    } else {
        kept = x.m >> drop;
        rest = x.m & ((u128(1) << drop) - 1);
        half = u128(1) << (drop - 1);
    }
    bool up = false;
    switch (mode) {
        case RN:
            up = rest > half || (rest == half && rest && (kept & 1));
            break;
        case RNA:
            up = rest && rest >= half;
            break;
        case RZ:
            break;
        case RM:
            up = rest && x.negative;
            break;
        case RP:
            up = rest && !x.negative;
            break;
    }
    u64 mantissa = u64(kept) + up;
    // A mantissa with its hidden bit adds one to the exponent field by itself; so does a carry.
    int exponent = unit - least;
    u64 value = (u64(exponent) << f.mantissa) + mantissa;
    if (exponent > f.exponent_mask() || value >= f.infinity()) {
        bool to_infinity =
            mode == RN || mode == RNA || (mode == RP && !x.negative) || (mode == RM && x.negative);
        return sign | (to_infinity ? f.infinity() : f.largest());
    }
    return sign | value;
}

inline Exact product(const Exact& a, const Exact& b) {
    Exact r{a.negative != b.negative, 0, 0, Exact::Finite};
    if (a.kind == Exact::NotANumber || b.kind == Exact::NotANumber)
        r.kind = Exact::NotANumber;
    else if (a.kind == Exact::Infinite || b.kind == Exact::Infinite)
        r.kind = (a.kind == Exact::Finite && !a.m) || (b.kind == Exact::Finite && !b.m) ? Exact::NotANumber
                                                                                        : Exact::Infinite;
    else
        r.m = a.m * b.m, r.e = a.e + b.e;
    return r;
}

// A sum that cancels is +0, and -0 when rounding down.
inline Exact sum(Exact a, Exact b, Rounding mode) {
    if (a.kind == Exact::NotANumber) return a;
    if (b.kind == Exact::NotANumber) return b;
    if (a.kind == Exact::Infinite) {
        if (b.kind == Exact::Infinite && a.negative != b.negative) a.kind = Exact::NotANumber;
        return a;
    }
    if (b.kind == Exact::Infinite) return b;
    if (a.m == 0 && b.m == 0) {
        if (a.negative != b.negative) a.negative = mode == RM;
        return a;
    }
    if (a.m == 0) return b;
    if (b.m == 0) return a;
    if (top_bit(a.m) + a.e < top_bit(b.m) + b.e) std::swap(a, b);
    int up = 125 - top_bit(a.m);  // the larger one at bit 125
    a.m <<= up;
    a.e -= up;
    b.m = shift_sticky(b.m, a.e - b.e);
    if (a.negative == b.negative)
        a.m += b.m;
    else if (b.m > a.m)
        a.negative = b.negative, a.m = b.m - a.m;
    else
        a.m -= b.m;
    if (a.m == 0) a.negative = mode == RM;
    return a;
}

inline Exact quotient(const Exact& a, const Exact& b) {
    Exact r{a.negative != b.negative, 0, 0, Exact::Finite};
    if (a.kind == Exact::NotANumber || b.kind == Exact::NotANumber ||
        (a.kind == Exact::Infinite && b.kind == Exact::Infinite) ||
        (a.kind == Exact::Finite && b.kind == Exact::Finite && !a.m && !b.m))
        r.kind = Exact::NotANumber;
    else if (a.kind == Exact::Infinite || (b.kind == Exact::Finite && !b.m))
        r.kind = Exact::Infinite;
    else if (b.kind == Exact::Finite) {
        int up = 126 - top_bit(a.m);
        if (a.m == 0) return r;
        u128 m = a.m << up;
        r.m = (m / b.m) << 1 | u128(m % b.m != 0);
        r.e = a.e - up - b.e - 1;
    }
    return r;
}

inline Exact square_root(const Exact& a) {
    Exact r = a;
    if (a.kind == Exact::NotANumber || (a.kind == Exact::Finite && !a.m)) return r;
    if (a.negative) {
        r.kind = Exact::NotANumber;
        return r;
    }
    if (a.kind == Exact::Infinite) return r;
    int up = 124 - top_bit(a.m);
    if ((a.e - up) & 1) up++;
    u128 m = a.m << up, root = 0;
    for (int k = 63; k >= 0; k--) {
        u128 t = root | u128(1) << k;
        if (t * t <= m) root = t;
    }
    r.m = root << 1 | u128(root * root != m);
    r.e = (a.e - up) / 2 - 1;
    return r;
}

// .ftz: subnormal inputs and results become zero of the same sign.
inline u64 flushed(u64 v, const Format& f) {
    return f.subnormal(v) ? v & f.sign() : v;
}
// .sat: into [0, 1], NaN becomes +0.
inline u64 saturated(u64 v, const Format& f) {
    u64 one = u64(f.bias) << f.mantissa;
    if (f.nan(v) || (v & f.sign())) return 0;
    return v > one ? one : v;
}
inline u64 fused(u64 a, u64 b, u64 c, const Format& f, Rounding mode) {
    return rounded(sum(product(exact(a, f), exact(b, f)), exact(c, f), mode), f, mode);
}
inline u64 added(u64 a, u64 b, const Format& f, Rounding mode) {
    return rounded(sum(exact(a, f), exact(b, f), mode), f, mode);
}
inline u64 multiplied(u64 a, u64 b, const Format& f, Rounding mode) {
    return rounded(product(exact(a, f), exact(b, f)), f, mode);
}

// Equal, or both NaN: PTX leaves the payload of a NaN open except where it says "canonical NaN".
inline bool same_f32(u64 got, u64 want) {
    return got == want || (f32.nan(got) && f32.nan(want));
}
inline bool same_f64(u64 got, u64 want) {
    return got == want || (f64.nan(got) && f64.nan(want));
}
inline bool same_f16(u64 got, u64 want) {
    return got == want || (f16.nan(got) && f16.nan(want));
}
inline bool same_bf16(u64 got, u64 want) {
    return got == want || (bf16.nan(got) && bf16.nan(want));
}
inline bool same_f16x2(u64 got, u64 want) {
    return same_f16(got & 0xffff, want & 0xffff) && same_f16(got >> 16, want >> 16);
}
inline bool same_bf16x2(u64 got, u64 want) {
    return same_bf16(got & 0xffff, want & 0xffff) && same_bf16(got >> 16, want >> 16);
}
// .relu: "clamps the result to 0 if negative"; the sign of a zero is left open.
inline u64 rectified(u64 v, const Format& f) {
    return f.nan(v) ? nan_of(f) : v & f.sign() ? 0 : v;
}
template <class Same>
auto any_zero(Same same) {
    return [same](u64 got, u64 want) {
        for (int k = 0; k < 64; k += 16) {
            u64 g = got >> k & 0xffff, w = want >> k & 0xffff;
            if (!same(g, w) && !(w == 0 && g == 0x8000)) return false;
        }
        return true;
    };
}

// The smaller (or larger) of two numbers: a NaN loses against a number (or wins, for .NaN); -0 < +0.
inline u64 smaller(u64 a, u64 b, const Format& f, bool nan_wins, bool larger) {
    if (f.nan(a) || f.nan(b)) {
        if (nan_wins || (f.nan(a) && f.nan(b))) return nan_of(f);
        return f.nan(a) ? b : a;
    }
    auto order = [&](u64 v) { return v & f.sign() ? -i64(v & (f.sign() - 1)) - 1 : i64(v); };
    return (order(a) < order(b)) != larger ? a : b;
}

inline float float_of(u64 v) {
    u32 bits = u32(v);
    float x;
    std::memcpy(&x, &bits, 4);
    return x;
}
inline u64 bits_of(float x) {
    u32 bits;
    std::memcpy(&bits, &x, 4);
    return bits;
}
inline double value(u64 v, const Format& f) {
    Exact x = exact(v, f);
    if (x.kind == Exact::NotANumber) return NAN;
    double d = x.kind == Exact::Infinite ? INFINITY : std::ldexp(double(u64(x.m)), x.e);
    return x.negative ? -d : d;
}
