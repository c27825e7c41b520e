// float.h: bit-exact scalar pieces of floating point: canonical NaN, flush to zero, conversions to f16 and
// bf16. All are branch-free where lanes are to be vectorised.
#pragma once
#include <immintrin.h>

#include <cmath>
#include <cstring>

#include "../ptx/decode.h"

namespace cusim {

template <class To, class From>
[[gnu::always_inline]] inline To bit_cast(From x) {
    static_assert(sizeof(To) == sizeof(From), "sizes differ");
    To y;
    std::memcpy(&y, &x, sizeof y);
    return y;
}

// GPU arithmetic returns one NaN, whatever went in.
inline f32 canonical(f32 x) {
    return bit_cast<f32>(x != x ? 0x7fffffffu : bit_cast<u32>(x));
}
// Subnormals become zeros of the same sign.
inline f32 flush(f32 x) {
    u32 u = bit_cast<u32>(x);
    return bit_cast<f32>((u & 0x7f800000) ? u : u & 0x80000000);
}
// .sat: to [0, 1], NaN to +0.
inline f32 saturate(f32 x) {
    return x > 0 ? (x < 1 ? x : 1.0f) : 0.0f;
}
inline f64 saturate(f64 x) {
    return x > 0 ? (x < 1 ? x : 1.0) : 0.0;
}

// Rounding modes as PTX names them.
enum Rounding : u8 { kNearest, kZero, kDown, kUp, kAway, kNoRounding };
int host_rounding(Rounding r);  // FE_TONEAREST ...

inline f32 from_bf16(u16 h) {
    return bit_cast<f32>(u32(h) << 16);
}
inline u16 to_bf16(f32 x) {
    u32 u = bit_cast<u32>(x);
    u32 rounded = (u + 0x7fff + (u >> 16 & 1)) >> 16;
    return u16((u & 0x7fffffff) > 0x7f800000 ? 0x7fff : rounded);
}
inline f32 from_f16(u16 h) {
    return _cvtsh_ss(h);
}
inline u16 to_f16(f32 x) {
    return x != x ? u16(0x7fff) : u16(_cvtss_sh(x, _MM_FROUND_TO_NEAREST_INT));
}
u16 to_bf16(f32 x, Rounding r);
u16 to_f16(f32 x, Rounding r);

// a * b + c rounded to odd in f32: rounding that once more, to 22 bits or fewer, gives the correctly rounded
// result.
f32 fma_to_odd(f32 a, f32 b, f32 c);
// x rounded to odd in f32.
f32 to_odd(f64 x);

// 2^x to 2^-38 before the final rounding.
[[gnu::always_inline]] inline f32 exp2_lane(f32 x) {
    f32 low = x > -200 ? x : -200.0f, clamped = low < 200 ? low : 200.0f;  // -200 for NaN
    const f64 magic = 0x1.8p52;  // adding it rounds to an integer, found in the low bits
    f64 t = f64(clamped) + magic;
    f64 y = (f64(clamped) - (t - magic)) * 0x1.62e42fefa39efp-1;
    f64 p = 1.0 / 3628800;  // the series of e^y, |y| <= ln(2) / 2
    p = __builtin_fma(p, y, 1.0 / 362880);
    p = __builtin_fma(p, y, 1.0 / 40320);
    p = __builtin_fma(p, y, 1.0 / 5040);
    p = __builtin_fma(p, y, 1.0 / 720);
    p = __builtin_fma(p, y, 1.0 / 120);
    p = __builtin_fma(p, y, 1.0 / 24);
    p = __builtin_fma(p, y, 1.0 / 6);
    p = __builtin_fma(p, y, 0.5);
    p = __builtin_fma(p, y, 1.0);
    p = __builtin_fma(p, y, 1.0);
    f32 r = f32(bit_cast<f64>(bit_cast<u64>(p) + (bit_cast<u64>(t) << 52)));
    return bit_cast<f32>(x != x ? 0x7fffffffu : bit_cast<u32>(r));
}

// Builds the float form of an opcode that has integer forms too; `op` is its name.
void build_float(Decoder& d, Form& f, const char* op, Type type, int sources);
// rn rz rm rp (and rna), or kNoRounding.
Rounding take_rounding(Form& f);

}  // namespace cusim
