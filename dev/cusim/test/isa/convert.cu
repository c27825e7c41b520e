// convert.cu: cvt between integers, f32, f64, f16, bf16 and tf32 (PTX ISA 9.7.9.21).
#include "exact.h"

namespace {

const std::vector<u64> integers = {0,          1,          0x7f,       0x80,       0xff,
                                   0x100,      0x7fff,     0x8000,     0xffff,     0x10000,
                                   0x7fffffff, 0x80000000, 0xffffff7f, 0xffffff80, 0xffff8000,
                                   0xffff7fff, 0xffffffff, 0x01000001, 0x01000003, 0x7fffffbf};
const std::vector<u64> long_integers = {0,
                                        1,
                                        0xffffffff,
                                        0x100000000,
                                        1ull << 63,
                                        ~0ull,
                                        1ull << 53,
                                        (1ull << 53) + 1,
                                        (1ull << 53) + 3,
                                        0x7fffffffffffffff,
                                        0x8000000000000001,
                                        0x123456789abcdef1,
                                        0xffffffff80000000,
                                        0xffffffff7fffffff};

u64 bits32(double v) {
    float f = float(v);
    return bits_of(f);
}
u64 bits64(double v) {
    u64 b;
    std::memcpy(&b, &v, 8);
    return b;
}
const std::vector<double> reals = {0.0,
                                   -0.0,
                                   0.25,
                                   0.5,
                                   0.75,
                                   1.0,
                                   1.5,
                                   2.5,
                                   -0.25,
                                   -0.5,
                                   -0.75,
                                   -1.0,
                                   -1.5,
                                   -2.5,
                                   3.499999,
                                   127.0,
                                   127.5,
                                   128.0,
                                   -128.0,
                                   -128.5,
                                   -129.0,
                                   255.0,
                                   255.5,
                                   256.0,
                                   32767.5,
                                   32768.0,
                                   -32768.5,
                                   -32769.0,
                                   65535.5,
                                   65536.0,
                                   2147483520.0,
                                   2147483648.0,
                                   -2147483648.0,
                                   -2147483904.0,
                                   4294967040.0,
                                   4294967296.0,
                                   9.2233714871e18,
                                   9.2233720368547758e18,
                                   -9.2233720368547758e18,
                                   1.8446742974e19,
                                   1.8446744073709552e19,
                                   1e30,
                                   -1e30,
                                   1e-40,
                                   -1e-40,
                                   INFINITY,
                                   -INFINITY};
std::vector<u64> floats() {
    std::vector<u64> v;
    for (double x : reals) v.push_back(bits32(x));
    return v;
}
std::vector<u64> doubles() {
    std::vector<u64> v;
    for (double x : reals) v.push_back(bits64(x));
    for (double x : {2147483647.5, 4294967295.5, -2147483648.5, 1e300, 5e-324}) v.push_back(bits64(x));
    return v;
}

// The integer that a float rounds to, clamped into [low, high].
i128 to_integer(u64 v, const Format& f, Rounding mode, i128 low, i128 high) {
    Exact x = exact(v, f);
    if (x.kind == Exact::Infinite) return x.negative ? low : high;
    i128 whole, limit = i128(1) << 100;
    if (x.e >= 0) {
        whole = x.e > 70 ? (x.m ? limit : 0) : i128(x.m << x.e);
    } else {
        int drop = -x.e;
        u128 kept = drop > 126 ? 0 : x.m >> drop, rest = drop > 126 ? x.m : x.m & ((u128(1) << drop) - 1),
             half = drop > 126 ? ~u128(0) : u128(1) << (drop - 1);
        bool up = mode == RN   ? rest > half || (rest == half && (kept & 1))
                  : mode == RM ? rest && x.negative
                  : mode == RP ? rest && !x.negative
                               : false;
        whole = i128(kept + up);
    }
    if (x.negative) whole = -whole;
    return whole < low ? low : whole > high ? high : whole;
}
const i128 one = 1;

void float_to_integer() {
    auto s = singles(floats()), d = singles(doubles());
#define FROM(op, width_d, width_a, in, format, mode, low, high, mask) \
    table(OP1("cvt." op, width_d, width_a), in,                       \
          [](In i) { return u64(to_integer(i.a, format, mode, low, high)) & (mask); });
#define TO_S32(op, mode) FROM(op ".s32.f32", 32, 32, s, f32, mode, -(one << 31), (one << 31) - 1, 0xffffffff)
    TO_S32("rni", RN)
    TO_S32("rzi", RZ)
    TO_S32("rmi", RM)
    TO_S32("rpi", RP)
#define TO_U32(op, mode) FROM(op ".u32.f32", 32, 32, s, f32, mode, 0, (one << 32) - 1, 0xffffffff)
    TO_U32("rni", RN)
    TO_U32("rzi", RZ)
    TO_U32("rmi", RM)
    TO_U32("rpi", RP)
    FROM("rzi.s64.f32", 64, 32, s, f32, RZ, -(one << 63), (one << 63) - 1, ~0ull)
        FROM("rni.u64.f32", 64, 32, s, f32, RN, 0, (one << 64) - 1, ~0ull)
            FROM("rzi.s16.f32", 16, 32, s, f32, RZ, -(one << 15), (one << 15) - 1, 0xffff)
                FROM("rni.u16.f32", 16, 32, s, f32, RN, 0, (one << 16) - 1, 0xffff)
        // a result narrower than its register is extended to it
        FROM("rzi.u8.f32", 32, 32, s, f32, RZ, 0, 255, 0xffffffff)
            FROM("rni.s8.f32", 32, 32, s, f32, RN, -128, 127, 0xffffffff)
                FROM("rzi.s32.f64", 32, 64, d, f64, RZ, -(one << 31), (one << 31) - 1, 0xffffffff)
                    FROM("rni.u32.f64", 32, 64, d, f64, RN, 0, (one << 32) - 1, 0xffffffff)
                        FROM("rmi.s64.f64", 64, 64, d, f64, RM, -(one << 63), (one << 63) - 1, ~0ull)
                            FROM("rzi.u64.f64", 64, 64, d, f64, RZ, 0, (one << 64) - 1, ~0ull)
                                std::vector<u64>
                                    h;
    for (u64 v = 0; v < 0x7c01; v += 61) h.push_back(v), h.push_back(v | 0x8000);
    for (u64 v : {0x7c00, 0xfc00, 0x3800, 0x3e00, 0x4100, 0xb800, 0xbe00}) h.push_back(v);
    auto half = singles(h);
    FROM("rni.s32.f16", 32, 16, half, f16, RN, -(one << 31), (one << 31) - 1, 0xffffffff)
    FROM("rzi.u16.f16", 16, 16, half, f16, RZ, 0, 65535, 0xffff)
    FROM("rpi.s16.f16", 16, 16, half, f16, RP, -32768, 32767, 0xffff)
    // .ftz: a subnormal is zero before it is rounded up
    table(OP1("cvt.rpi.ftz.s32.f32", 32, 32), {{{1}, 0}, {{0x00800000}, 1}});
    table(OP1("cvt.rpi.s32.f32", 32, 32), {{{1}, 1}});
    // NaN gives 0, but the top bit where source or destination has 64 bits
    table(OP1("cvt.rni.s32.f32", 32, 32), {{{0x7fc00000}, 0}, {{0xffc00001}, 0}});
    table(OP1("cvt.rzi.u32.f32", 32, 32), {{{0x7fc00000}, 0}});
    table(OP1("cvt.rzi.s64.f32", 64, 32), {{{0x7fc00000}, 1ull << 63}});
    table(OP1("cvt.rzi.u64.f32", 64, 32), {{{0x7fc00000}, 1ull << 63}});
    table(OP1("cvt.rzi.s32.f64", 32, 64), {{{0x7ff8000000000000}, 0x80000000}});
    table(OP1("cvt.rzi.u32.f64", 32, 64), {{{0x7ff8000000000000}, 0x80000000}});
    table(OP1("cvt.rzi.s64.f64", 64, 64), {{{0xfff8000000000000}, 1ull << 63}});
    table(OP1("cvt.rni.s32.f16", 32, 16), {{{0x7e00}, 0}});
#undef FROM
#undef TO_S32
#undef TO_U32
}

void integer_to_float() {
    auto i32s = singles(integers), i64s = singles(long_integers);
#define INTO(op, width_d, width_a, in, cast, format, mode) \
    table(OP1("cvt." op, width_d, width_a), in,            \
          [](In i) { return rounded(exact_integer(cast(i.a)), format, mode); });
    INTO("rn.f32.s32", 32, 32, i32s, i32, f32, RN)
    INTO("rz.f32.s32", 32, 32, i32s, i32, f32, RZ)
    INTO("rm.f32.s32", 32, 32, i32s, i32, f32, RM)
    INTO("rp.f32.s32", 32, 32, i32s, i32, f32, RP)
    INTO("rn.f32.u32", 32, 32, i32s, u32, f32, RN)
    INTO("rz.f32.u32", 32, 32, i32s, u32, f32, RZ)
    INTO("rn.f32.s64", 32, 64, i64s, i64, f32, RN)
    INTO("rn.f32.u64", 32, 64, i64s, u64, f32, RN)
    INTO("rp.f32.u64", 32, 64, i64s, u64, f32, RP)
    INTO("rn.f64.s32", 64, 32, i32s, i32, f64, RN)
    INTO("rn.f64.u32", 64, 32, i32s, u32, f64, RN)
    INTO("rn.f64.s64", 64, 64, i64s, i64, f64, RN)
    INTO("rz.f64.u64", 64, 64, i64s, u64, f64, RZ)
    INTO("rn.f32.s16", 32, 16, i32s, i16, f32, RN)
    INTO("rn.f32.u16", 32, 16, i32s, u16, f32, RN)
    INTO("rn.f32.u8", 32, 32, i32s, u8, f32, RN)
    INTO("rn.f32.s8", 32, 32, i32s, i8, f32, RN)
    INTO("rn.f16.s32", 16, 32, i32s, i32, f16, RN)
    INTO("rz.f16.u32", 16, 32, i32s, u32, f16, RZ)
    INTO("rn.f16.s16", 16, 16, i32s, i16, f16, RN)
    INTO("rn.f16.u16", 16, 16, i32s, u16, f16, RN)
#undef INTO
    table(OP1("cvt.rn.sat.f32.s32", 32, 32),
          {{{5}, 0x3f800000}, {{0xffffffff}, 0}, {{1}, 0x3f800000}, {{0}, 0}});
}

void integer_to_integer() {
    auto i32s = singles(integers), i64s = singles(long_integers);
#define CVT(op, width_d, width_a, in, expression) \
    table(OP1("cvt." op, width_d, width_a), in, [](In i) { return u64(expression); });
    CVT("s32.s8", 32, 32, i32s, u32(i32(i8(i.a))))
    CVT("u32.u8", 32, 32, i32s, u8(i.a))
    CVT("s32.s16", 32, 16, i32s, u32(i32(i16(i.a))))
    CVT("u32.u16", 32, 16, i32s, u16(i.a))
    CVT("s64.s32", 64, 32, i32s, i64(i32(i.a)))
    CVT("u64.u32", 64, 32, i32s, u32(i.a))
    CVT("u64.s32", 64, 32, i32s, i64(i32(i.a)))
    CVT("u32.u64", 32, 64, i64s, u32(i.a))
    CVT("u16.u32", 16, 32, i32s, u16(i.a))
    CVT("u8.u32", 32, 32, i32s, u8(i.a))
    CVT("s8.s32", 32, 32, i32s, u32(i32(i8(i.a))))
    CVT("s16.s8", 16, 32, i32s, u16(i16(i8(i.a))))
    auto clamp = [](i128 v, i128 low, i128 high) { return v < low ? low : v > high ? high : v; };
#define SAT(op, width_d, width_a, in, cast, low, high, mask) \
    table(OP1("cvt.sat." op, width_d, width_a), in,          \
          [&](In i) { return u64(clamp(i128(cast(i.a)), low, high)) & (mask); });
    SAT("u8.s32", 32, 32, i32s, i32, 0, 255, 0xffffffff)
    SAT("s8.s32", 32, 32, i32s, i32, -128, 127, 0xffffffff)
    SAT("u8.u32", 32, 32, i32s, u32, 0, 255, 0xffffffff)
    SAT("s16.s32", 16, 32, i32s, i32, -32768, 32767, 0xffff)
    SAT("u16.s32", 16, 32, i32s, i32, 0, 65535, 0xffff)
    SAT("u32.s32", 32, 32, i32s, i32, 0, (one << 32) - 1, 0xffffffff)
    SAT("s32.u32", 32, 32, i32s, u32, 0, (one << 31) - 1, 0xffffffff)
    SAT("s32.s64", 32, 64, i64s, i64, -(one << 31), (one << 31) - 1, 0xffffffff)
    SAT("u32.u64", 32, 64, i64s, u64, 0, (one << 32) - 1, 0xffffffff)
    SAT("s64.u64", 64, 64, i64s, u64, 0, (one << 63) - 1, ~0ull)
#undef CVT
#undef SAT
}

std::vector<u64> awkward32() {
    std::vector<u64> v = floats();
    // around every kind of tie of f16 and bf16, normal and subnormal, and around overflow
    for (u64 base :
         {0x3f800000, 0x3f801000, 0x3f803000, 0x3f808000, 0x3f818000, 0x477fe000, 0x477ff000, 0x477fefff,
          0x33000000, 0x33800000, 0x33c00000, 0x387fe000, 0x387ff000, 0x38800000, 0x7f7f0000, 0x7f7f8000,
          0x7f7f7fff, 0x7f7fffff, 0x00008000, 0x00018000, 0x00400000, 0x007f8000})
        for (u64 d : {0, 1})
            for (u64 s : {0u, 0x80000000u}) v.push_back((base + d) | s), v.push_back((base - d) | s);
    for (int k = 0; k < 200; k++) v.push_back(u32(random_bits()));
    for (int k = 0; k < 200; k++)
        v.push_back((random_bits() & 0x807fffff) | (100 + random_bits() % 45) << 23);
    v.push_back(0x7fc00000);
    v.push_back(0xff800001);
    return v;
}

u64 convert(u64 v, const Format& from, const Format& to, Rounding mode) {
    return rounded(exact(v, from), to, mode);
}

void float_to_float() {
    auto s = singles(awkward32());
    table(
        OP1("cvt.rn.f16.f32", 16, 32), s, [](In i) { return convert(i.a, f32, f16, RN); }, same_f16);
    table(
        OP1("cvt.rz.f16.f32", 16, 32), s, [](In i) { return convert(i.a, f32, f16, RZ); }, same_f16);
    table(
        OP1("cvt.rm.f16.f32", 16, 32), s, [](In i) { return convert(i.a, f32, f16, RM); }, same_f16);
    table(
        OP1("cvt.rp.f16.f32", 16, 32), s, [](In i) { return convert(i.a, f32, f16, RP); }, same_f16);
    table(OP1("cvt.rn.sat.f16.f32", 16, 32), s,
          [](In i) { return saturated(convert(i.a, f32, f16, RN), f16); });
    table(
        OP1("cvt.rn.relu.f16.f32", 16, 32), s,
        [](In i) { return rectified(convert(i.a, f32, f16, RN), f16); }, any_zero(same_f16));
    table(
        OP1("cvt.rn.bf16.f32", 16, 32), s, [](In i) { return convert(i.a, f32, bf16, RN); }, same_bf16);
    table(
        OP1("cvt.rz.bf16.f32", 16, 32), s, [](In i) { return convert(i.a, f32, bf16, RZ); }, same_bf16);
    table(
        OP1("cvt.rn.relu.bf16.f32", 16, 32), s,
        [](In i) { return rectified(convert(i.a, f32, bf16, RN), bf16); }, any_zero(same_bf16));
    // the first source goes to the upper half
    std::vector<In> two;
    for (size_t k = 0; k + 1 < s.size(); k++) two.push_back({s[k].a, s[k + 1].a});
    table(
        OP2("cvt.rn.f16x2.f32", 32, 32, 32), two,
        [](In i) { return convert(i.a, f32, f16, RN) << 16 | convert(i.b, f32, f16, RN); }, same_f16x2);
    table(
        OP2("cvt.rz.f16x2.f32", 32, 32, 32), two,
        [](In i) { return convert(i.a, f32, f16, RZ) << 16 | convert(i.b, f32, f16, RZ); }, same_f16x2);
    table(
        OP2("cvt.rn.bf16x2.f32", 32, 32, 32), two,
        [](In i) { return convert(i.a, f32, bf16, RN) << 16 | convert(i.b, f32, bf16, RN); }, same_bf16x2);
    table(
        OP2("cvt.rn.relu.bf16x2.f32", 32, 32, 32), two,
        [](In i) {
            return rectified(convert(i.a, f32, bf16, RN), bf16) << 16 |
                   rectified(convert(i.b, f32, bf16, RN), bf16);
        },
        any_zero(same_bf16));
    // tf32: nearest, ties away; only the upper 19 bits count
    table(
        OP1("cvt.rna.tf32.f32", 32, 32), s, [](In i) { return convert(i.a, f32, tf32, RNA) << 13; },
        [](u64 g, u64 w) { return same_f32(g & 0xffffe000, w); });

    std::vector<u64> h;
    for (u64 v = 0; v < 0x10000; v += 13) h.push_back(v);
    for (u64 v : {0x0001, 0x03ff, 0x0400, 0x7bff, 0x7c00, 0xfc00, 0x7e00, 0x7c01, 0x8001}) h.push_back(v);
    table(
        OP1("cvt.f32.f16", 32, 16), singles(h), [](In i) { return convert(i.a, f16, f32, RN); }, same_f32);
    table(
        OP1("cvt.f64.f16", 64, 16), singles(h), [](In i) { return convert(i.a, f16, f64, RN); }, same_f64);
    table(OP1("cvt.sat.f32.f16", 32, 16), singles(h),
          [](In i) { return saturated(convert(i.a, f16, f32, RN), f32); });

    auto d = doubles();
    for (int k = 0; k < 300; k++)
        d.push_back((random_bits() & 0x800fffffffffffff) | (860 + random_bits() % 300) << 52);
    for (u64 v : {0x3ff0000010000000ull, 0x3ff0000030000000ull, 0x47efffffefffffffull, 0x47effffff0000000ull,
                  0x36a0000000000000ull, 0x3690000000000000ull, 0x3690000000000001ull, 0x380fffffffffffffull,
                  0x7ff8000000000000ull})
        d.push_back(v), d.push_back(v | 1ull << 63);
    table(
        OP1("cvt.rn.f32.f64", 32, 64), singles(d), [](In i) { return convert(i.a, f64, f32, RN); }, same_f32);
    table(
        OP1("cvt.rz.f32.f64", 32, 64), singles(d), [](In i) { return convert(i.a, f64, f32, RZ); }, same_f32);
    table(
        OP1("cvt.rm.f32.f64", 32, 64), singles(d), [](In i) { return convert(i.a, f64, f32, RM); }, same_f32);
    table(
        OP1("cvt.rp.f32.f64", 32, 64), singles(d), [](In i) { return convert(i.a, f64, f32, RP); }, same_f32);
    table(
        OP1("cvt.rn.f16.f64", 16, 64), singles(d), [](In i) { return convert(i.a, f64, f16, RN); }, same_f16);
    table(
        OP1("cvt.f64.f32", 64, 32), s, [](In i) { return convert(i.a, f32, f64, RN); }, same_f64);
    table(
        OP1("cvt.ftz.f64.f32", 64, 32), s, [](In i) { return convert(flushed(i.a, f32), f32, f64, RN); },
        same_f64);

    // rounding to an integral value of the same type keeps the sign of zero
    auto integral = [](u64 v, const Format& f, Rounding mode) {
        Exact x = exact(v, f);
        if (x.kind != Exact::Finite || x.e >= 0) return f.nan(v) ? nan_of(f) : v;
        i128 whole = to_integer(v, f, mode, -(one << 90), one << 90);
        Exact y = exact_integer(whole);
        y.negative = x.negative;
        return rounded(y, f, RN);
    };
    table(
        OP1("cvt.rni.f32.f32", 32, 32), s, [&](In i) { return integral(i.a, f32, RN); }, same_f32);
    table(
        OP1("cvt.rzi.f32.f32", 32, 32), s, [&](In i) { return integral(i.a, f32, RZ); }, same_f32);
    table(
        OP1("cvt.rmi.f32.f32", 32, 32), s, [&](In i) { return integral(i.a, f32, RM); }, same_f32);
    table(
        OP1("cvt.rpi.f32.f32", 32, 32), s, [&](In i) { return integral(i.a, f32, RP); }, same_f32);
    table(
        OP1("cvt.rni.f64.f64", 64, 64), singles(d), [&](In i) { return integral(i.a, f64, RN); }, same_f64);
    table(
        OP1("cvt.rmi.f16.f16", 16, 16), singles(h), [&](In i) { return integral(i.a, f16, RM); }, same_f16);
    table(OP1("cvt.sat.f32.f32", 32, 32), s, [](In i) { return saturated(i.a, f32); });
    table(OP1("cvt.rni.sat.f32.f32", 32, 32),
          {{{bits32(0.75)}, 0x3f800000}, {{bits32(-3.0)}, 0}, {{bits32(7.2)}, 0x3f800000}});
    table(
        OP1("cvt.ftz.f32.f32", 32, 32), s, [](In i) { return flushed(i.a, f32); }, same_f32);
}

}  // namespace

int main() {
    float_to_integer();
    integer_to_float();
    integer_to_integer();
    float_to_float();
    return summary("convert");
}
