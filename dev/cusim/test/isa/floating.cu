// floating.cu: f32, f64, f16 and bf16 arithmetic and comparison (PTX ISA 9.7.3 - 9.7.7).
#include "exact.h"

namespace {

// Zeros, subnormals, the smallest and largest normals, ties, infinities, NaNs.
const std::vector<u64> values32 = {0,          0x80000000, 1,          0x80000001, 0x007fffff, 0x807fffff,
                                   0x00800000, 0x80800001, 0x3f800000, 0xbf800000, 0x3f800001, 0x3f7fffff,
                                   0x33800000, 0xb3800001, 0x40490fdb, 0x4b7fffff, 0xcb800001, 0x7f7fffff,
                                   0xff7fffff, 0x7f800000, 0xff800000, 0x7fc00000, 0xffa00001};
const std::vector<u64> values64 = {0,
                                   1ull << 63,
                                   1,
                                   0x800fffffffffffff,
                                   0x0010000000000000,
                                   0x3ff0000000000000,
                                   0xbff0000000000001,
                                   0x3fefffffffffffff,
                                   0x3ca0000000000000,
                                   0x400921fb54442d18,
                                   0x7fefffffffffffff,
                                   0xffefffffffffffff,
                                   0x7ff0000000000000,
                                   0xfff0000000000000,
                                   0x7ff8000000000000};
const std::vector<u64> values16 = {0,      0x8000, 1,      0x8001, 0x03ff, 0x83ff, 0x0400,
                                   0x3c00, 0xbc00, 0x3c01, 0x3bff, 0x1001, 0x4248, 0x6400,
                                   0xe401, 0x7bff, 0xfbff, 0x7c00, 0xfc00, 0x7e00};
const std::vector<u64> values_b16 = {0,      0x8000, 1,      0x8001, 0x007f, 0x807f, 0x0080,
                                     0x3f80, 0xbf80, 0x3f81, 0x3f7f, 0x3b80, 0x4049, 0x4300,
                                     0xc301, 0x7f7f, 0xff7f, 0x7f80, 0xff80, 0x7fc0};

std::vector<In> plus(std::vector<In> a, const std::vector<In>& b) {
    a.insert(a.end(), b.begin(), b.end());
    return a;
}
// Random numbers near one another, so that sums round and cancel.
std::vector<In> near32(int n) {
    std::vector<In> in;
    auto one = [] { return (random_bits() & 0x807fffff) | (117 + random_bits() % 20) << 23; };
    for (int i = 0; i < n; i++) in.push_back({one(), one(), one()});
    return in;
}

const std::vector<In> pairs32 = plus(pairs(values32, values32), plus(noise(200), near32(200)));
const std::vector<In> triples32 = plus(
    triples(values32, {1, 0x80000000, 0x3f800000, 0xbf800001, 0x7f7fffff, 0x7f800000, 0x7fc00000, 0x00800000},
            values32),
    plus(near32(400), noise(100)));

#define ROUNDED2(op, type, width, in, want)                                                           \
    table(                                                                                            \
        OP2(op ".rn." #type, width, width, width), in, [](In i) { return want(i.a, i.b, type, RN); }, \
        same_##type);                                                                                 \
    table(                                                                                            \
        OP2(op ".rz." #type, width, width, width), in, [](In i) { return want(i.a, i.b, type, RZ); }, \
        same_##type);                                                                                 \
    table(                                                                                            \
        OP2(op ".rm." #type, width, width, width), in, [](In i) { return want(i.a, i.b, type, RM); }, \
        same_##type);                                                                                 \
    table(                                                                                            \
        OP2(op ".rp." #type, width, width, width), in, [](In i) { return want(i.a, i.b, type, RP); }, \
        same_##type);
#define ROUNDED3(op, type, width, in)                                      \
    table(                                                                 \
        OP3(op ".rn." #type, width, width, width, width), in,              \
        [](In i) { return fused(i.a, i.b, i.c, type, RN); }, same_##type); \
    table(                                                                 \
        OP3(op ".rz." #type, width, width, width, width), in,              \
        [](In i) { return fused(i.a, i.b, i.c, type, RZ); }, same_##type); \
    table(                                                                 \
        OP3(op ".rm." #type, width, width, width, width), in,              \
        [](In i) { return fused(i.a, i.b, i.c, type, RM); }, same_##type); \
    table(                                                                 \
        OP3(op ".rp." #type, width, width, width, width), in,              \
        [](In i) { return fused(i.a, i.b, i.c, type, RP); }, same_##type);

u64 subtracted(u64 a, u64 b, const Format& f, Rounding mode) {
    return added(a, f.nan(b) ? b : b ^ f.sign(), f, mode);
}
u64 divided(u64 a, u64 b, const Format& f, Rounding mode) {
    return rounded(quotient(exact(a, f), exact(b, f)), f, mode);
}
u64 root(u64 a, const Format& f, Rounding mode) {
    return rounded(square_root(exact(a, f)), f, mode);
}
u64 inverse(u64 a, const Format& f, Rounding mode) {
    return divided(u64(f.bias) << f.mantissa, a, f, mode);
}

In low32(In i) {
    return {u32(i.a), u32(i.b), u32(i.c)};
}
// The inputs as f32, random ones cut to their low words.
std::vector<In> cut(std::vector<In> in) {
    for (In& i : in) i = low32(i);
    return in;
}

void single() {
    auto p = cut(pairs32), t = cut(triples32);
    ROUNDED2("add", f32, 32, p, added)
    ROUNDED2("sub", f32, 32, p, subtracted)
    ROUNDED2("mul", f32, 32, p, multiplied)
    ROUNDED2("div", f32, 32, p, divided)
    ROUNDED3("fma", f32, 32, t)
    auto z = [](u64 v) { return flushed(v, f32); };
    table(
        OP2("add.f32", 32, 32, 32), p, [](In i) { return added(i.a, i.b, f32, RN); }, same_f32);
    table(
        OP2("add.ftz.f32", 32, 32, 32), p, [&](In i) { return z(added(z(i.a), z(i.b), f32, RN)); }, same_f32);
    table(
        OP2("mul.ftz.f32", 32, 32, 32), p, [&](In i) { return z(multiplied(z(i.a), z(i.b), f32, RN)); },
        same_f32);
    table(
        OP3("fma.rn.ftz.f32", 32, 32, 32, 32), t,
        [&](In i) { return z(fused(z(i.a), z(i.b), z(i.c), f32, RN)); }, same_f32);
    table(OP2("add.sat.f32", 32, 32, 32), p, [](In i) { return saturated(added(i.a, i.b, f32, RN), f32); });
    table(OP2("mul.sat.f32", 32, 32, 32), p,
          [](In i) { return saturated(multiplied(i.a, i.b, f32, RN), f32); });
    table(OP3("fma.rn.sat.f32", 32, 32, 32, 32), t,
          [](In i) { return saturated(fused(i.a, i.b, i.c, f32, RN), f32); });
    auto s = singles(values32);
    for (const In& i : p) s.push_back({i.a});
    table(
        OP1("rcp.rn.f32", 32, 32), s, [](In i) { return inverse(i.a, f32, RN); }, same_f32);
    table(
        OP1("rcp.rz.f32", 32, 32), s, [](In i) { return inverse(i.a, f32, RZ); }, same_f32);
    table(
        OP1("sqrt.rn.f32", 32, 32), s, [](In i) { return root(i.a, f32, RN); }, same_f32);
    table(
        OP1("sqrt.rp.f32", 32, 32), s, [](In i) { return root(i.a, f32, RP); }, same_f32);
    table(
        OP1("sqrt.rm.f32", 32, 32), s, [](In i) { return root(i.a, f32, RM); }, same_f32);
    // literal ties: 1 + 2^-24, and 1.5 ulp
    table(OP2("add.rn.f32", 32, 32, 32), {{{0x3f800000, 0x33800000}, 0x3f800000},
                                          {{0x3f800001, 0x33800000}, 0x3f800002},
                                          {{0x7f7fffff, 0x73000000}, 0x7f800000},
                                          {{0x7f7fffff, 0x72ffffff}, 0x7f7fffff}});
    table(OP2("add.rm.f32", 32, 32, 32), {{{0x3f800000, 0xbf800000}, 0x80000000}});
}

void doubles() {
    auto p = pairs(values64, values64),
         t = triples(values64, values64, {0, 0x3ff0000000000000, 0xffefffffffffffff, 0x8000000000000001});
    p = plus(p, noise(100));
    t = plus(t, noise(100));
    ROUNDED2("add", f64, 64, p, added)
    ROUNDED2("mul", f64, 64, p, multiplied)
    table(
        OP2("sub.rn.f64", 64, 64, 64), p, [](In i) { return subtracted(i.a, i.b, f64, RN); }, same_f64);
    table(
        OP2("div.rn.f64", 64, 64, 64), p, [](In i) { return divided(i.a, i.b, f64, RN); }, same_f64);
    ROUNDED3("fma", f64, 64, t)
    table(
        OP1("rcp.rn.f64", 64, 64), p, [](In i) { return inverse(i.a, f64, RN); }, same_f64);
    table(
        OP1("sqrt.rn.f64", 64, 64), p, [](In i) { return root(i.a, f64, RN); }, same_f64);
    table(
        OP1("sqrt.rz.f64", 64, 64), p, [](In i) { return root(i.a, f64, RZ); }, same_f64);
}

void order() {
    auto p = pairs(values32, values32), p64 = pairs(values64, values64), p16 = pairs(values16, values16),
         pb = pairs(values_b16, values_b16);
    auto z = [](u64 v) { return flushed(v, f32); };
    table(
        OP2("min.f32", 32, 32, 32), p, [](In i) { return smaller(i.a, i.b, f32, false, false); }, same_f32);
    table(
        OP2("max.f32", 32, 32, 32), p, [](In i) { return smaller(i.a, i.b, f32, false, true); }, same_f32);
    table(
        OP2("min.ftz.f32", 32, 32, 32), p, [&](In i) { return smaller(z(i.a), z(i.b), f32, false, false); },
        same_f32);
    // with .NaN the result is the canonical NaN, to the bit
    table(OP2("min.NaN.f32", 32, 32, 32), p, [](In i) { return smaller(i.a, i.b, f32, true, false); });
    table(OP2("max.NaN.f32", 32, 32, 32), p, [](In i) { return smaller(i.a, i.b, f32, true, true); });
    table(
        OP2("min.f64", 64, 64, 64), p64, [](In i) { return smaller(i.a, i.b, f64, false, false); }, same_f64);
    table(
        OP2("max.f64", 64, 64, 64), p64, [](In i) { return smaller(i.a, i.b, f64, false, true); }, same_f64);
    table(
        OP2("min.f16", 16, 16, 16), p16, [](In i) { return smaller(i.a, i.b, f16, false, false); }, same_f16);
    table(OP2("max.NaN.f16", 16, 16, 16), p16, [](In i) { return smaller(i.a, i.b, f16, true, true); });
    table(
        OP2("max.bf16", 16, 16, 16), pb, [](In i) { return smaller(i.a, i.b, bf16, false, true); },
        same_bf16);
    table(OP2("min.NaN.bf16", 16, 16, 16), pb, [](In i) { return smaller(i.a, i.b, bf16, true, false); });

    auto s = singles(values32);
    table(
        OP1("abs.f32", 32, 32), s, [](In i) { return i.a & 0x7fffffff; }, same_f32);
    table(
        OP1("neg.f32", 32, 32), s, [](In i) { return i.a ^ 0x80000000; }, same_f32);
    table(
        OP1("abs.ftz.f32", 32, 32), s, [&](In i) { return z(i.a) & 0x7fffffff; }, same_f32);
    table(
        OP1("neg.ftz.f32", 32, 32), s, [&](In i) { return z(i.a) ^ 0x80000000; }, same_f32);
    table(
        OP1("abs.f64", 64, 64), singles(values64), [](In i) { return i.a & ~(1ull << 63); }, same_f64);
    table(
        OP1("neg.f64", 64, 64), singles(values64), [](In i) { return i.a ^ 1ull << 63; }, same_f64);
    table(
        OP1("neg.f16", 16, 16), singles(values16), [](In i) { return i.a ^ 0x8000; }, same_f16);
    table(
        OP1("abs.f16", 16, 16), singles(values16), [](In i) { return i.a & 0x7fff; }, same_f16);
    table(
        OP1("neg.bf16", 16, 16), singles(values_b16), [](In i) { return i.a ^ 0x8000; }, same_bf16);
    table(
        OP1("abs.bf16", 16, 16), singles(values_b16), [](In i) { return i.a & 0x7fff; }, same_bf16);
    table(OP1("neg.bf16x2", 32, 32), {{{0x3f80bf80}, 0xbf803f80}, {{0x00008000}, 0x80000000}});
    table(OP1("abs.f16x2", 32, 32), {{{0xbc00fc00}, 0x3c007c00}, {{0x80008001}, 0x00000001}});
    // the sign of a, the magnitude of b
    table(
        OP2("copysign.f32", 32, 32, 32), p, [](In i) { return (i.a & 0x80000000) | (i.b & 0x7fffffff); },
        same_f32);
    table(OP2("copysign.f64", 64, 64, 64), {{{1ull << 63, 0x3ff0000000000000}, 0xbff0000000000000},
                                            {{0, 0xbff0000000000000}, 0x3ff0000000000000}});
#define TESTP(test, condition)                                                                              \
    table(CODE("testp." test ".f32", "{.reg .pred p; testp." test ".f32 p, %1; selp.u32 %0, 1, 0, p;}", 32, \
               32, 32, 32),                                                                                 \
          s, [](In i) { return u64(condition); });
    TESTP("finite", (i.a & 0x7fffffff) < 0x7f800000)
    TESTP("infinite", (i.a & 0x7fffffff) == 0x7f800000)
    TESTP("number", !f32.nan(i.a))
    TESTP("notanumber", f32.nan(i.a))
    TESTP("normal", (i.a & 0x7fffffff) < 0x7f800000 && !f32.subnormal(i.a))  // zeros count as normal
    TESTP("subnormal", f32.subnormal(i.a))
#undef TESTP
}

void comparison() {
    auto p = pairs(values32, values32);
#define X value(i.a, f32)
#define Y value(i.b, f32)
#define UNORDERED (f32.nan(i.a) || f32.nan(i.b))
#define SETP(op, condition)                                                                               \
    table(CODE("setp." op ".f32", "{.reg .pred p; setp." op ".f32 p, %1, %2; selp.u32 %0, 1, 0, p;}", 32, \
               32, 32, 32),                                                                               \
          p, [](In i) { return u64(condition); });
    SETP("eq", X == Y)
    SETP("ne", !UNORDERED && X != Y)
    SETP("lt", X < Y)
    SETP("le", X <= Y)
    SETP("gt", X > Y)
    SETP("ge", X >= Y)
    SETP("equ", UNORDERED || X == Y)
    SETP("neu", UNORDERED || X != Y)
    SETP("ltu", UNORDERED || X < Y)
    SETP("leu", UNORDERED || X <= Y)
    SETP("gtu", UNORDERED || X > Y)
    SETP("geu", UNORDERED || X >= Y)
    SETP("num", !UNORDERED)
    SETP("nan", UNORDERED)
    SETP("lt.ftz", value(flushed(i.a, f32), f32) < value(flushed(i.b, f32), f32))
#undef SETP
#undef X
#undef Y
#undef UNORDERED
    // q is the negation of the comparison, also when unordered
    table(CODE("setp.lt.f32 p|q",
               "{.reg .pred p, q; setp.lt.f32 p|q, %1, %2; selp.u32 %0, 1, 0, p; @q add.u32 %0, %0, 2;}", 32,
               32, 32, 32),
          p, [](In i) { return value(i.a, f32) < value(i.b, f32) ? u64(1) : 2; });
    table(
        CODE("setp.gtu.f64", "{.reg .pred p; setp.gtu.f64 p, %1, %2; selp.u32 %0, 1, 0, p;}", 32, 64, 64, 32),
        pairs(values64, values64), [](In i) { return u64(!(value(i.a, f64) <= value(i.b, f64))); });
    table(OP2("set.lt.u32.f32", 32, 32, 32), p,
          [](In i) { return value(i.a, f32) < value(i.b, f32) ? u64(0xffffffff) : 0; });
    table(OP2("set.geu.f32.f32", 32, 32, 32), p,
          [](In i) { return value(i.a, f32) < value(i.b, f32) ? 0 : u64(0x3f800000); });
    auto h = pairs(values16, values16);
    table(CODE("setp.lt.f16", "{.reg .pred p; setp.lt.f16 p, %1, %2; selp.u32 %0, 1, 0, p;}", 32, 16, 16, 32),
          h, [](In i) { return u64(value(i.a, f16) < value(i.b, f16)); });
    table(
        CODE("setp.neu.f16", "{.reg .pred p; setp.neu.f16 p, %1, %2; selp.u32 %0, 1, 0, p;}", 32, 16, 16, 32),
        h, [](In i) { return u64(!(value(i.a, f16) == value(i.b, f16))); });
    // p is the low half's comparison, q the high half's
    table(CODE("setp.lt.f16x2 p|q",
               "{.reg .pred p, q; setp.lt.f16x2 p|q, %1, %2; selp.u32 %0, 1, 0, p; @q add.u32 %0, %0, 2;}",
               32, 32, 32, 32),
          {{{0x3c004000, 0x40003c00}, 2},
           {{0x40003c00, 0x3c004000}, 1},
           {{0x7e000000, 0x3c003c00}, 1},
           {{0, 0x3c003c00}, 3}});
    table(OP2("set.lt.f16x2.f16x2", 32, 32, 32),
          {{{0x3c004000, 0x40003c00}, 0x3c000000}, {{0x40003c00, 0x3c004000}, 0x00003c00}});
}

// Applies a 16-bit operation to both halves.
template <class F>
u64 halves(In i, F f) {
    In low{i.a & 0xffff, i.b & 0xffff, i.c & 0xffff},
        high{i.a >> 16 & 0xffff, i.b >> 16 & 0xffff, i.c >> 16 & 0xffff};
    return f(high) << 16 | f(low);
}

void half_precision() {
    auto p = pairs(values16, values16),
         t = triples(values16, {1, 0x8000, 0x3c00, 0xbc01, 0x7bff, 0x7c00, 0x7e00, 0x3555}, values16);
    auto tb = triples(values_b16, {1, 0x8000, 0x3f80, 0xbf81, 0x7f7f, 0x7f80, 0x7fc0, 0x3eab}, values_b16);
    table(
        OP2("add.rn.f16", 16, 16, 16), p, [](In i) { return added(i.a, i.b, f16, RN); }, same_f16);
    table(
        OP2("sub.f16", 16, 16, 16), p, [](In i) { return subtracted(i.a, i.b, f16, RN); }, same_f16);
    table(
        OP2("mul.f16", 16, 16, 16), p, [](In i) { return multiplied(i.a, i.b, f16, RN); }, same_f16);
    table(OP2("add.sat.f16", 16, 16, 16), p, [](In i) { return saturated(added(i.a, i.b, f16, RN), f16); });
    table(
        OP2("mul.ftz.f16", 16, 16, 16), p,
        [](In i) { return flushed(multiplied(flushed(i.a, f16), flushed(i.b, f16), f16, RN), f16); },
        same_f16);
    table(
        OP3("fma.rn.f16", 16, 16, 16, 16), t, [](In i) { return fused(i.a, i.b, i.c, f16, RN); }, same_f16);
    table(OP3("fma.rn.sat.f16", 16, 16, 16, 16), t,
          [](In i) { return saturated(fused(i.a, i.b, i.c, f16, RN), f16); });
    table(
        OP3("fma.rn.relu.f16", 16, 16, 16, 16), t,
        [](In i) { return rectified(fused(i.a, i.b, i.c, f16, RN), f16); }, any_zero(same_f16));
    table(
        OP3("fma.rn.bf16", 16, 16, 16, 16), tb, [](In i) { return fused(i.a, i.b, i.c, bf16, RN); },
        same_bf16);
    table(
        OP3("fma.rn.relu.bf16", 16, 16, 16, 16), tb,
        [](In i) { return rectified(fused(i.a, i.b, i.c, bf16, RN), bf16); }, any_zero(same_bf16));

    std::vector<In> both;
    for (size_t k = 0; k + 1 < t.size(); k += 3)
        both.push_back({t[k].a << 16 | t[t.size() - 1 - k].a, t[k].b << 16 | t[t.size() - 1 - k].b,
                        t[k].c << 16 | t[t.size() - 1 - k].c});
    both = plus(both, cut(noise(200)));
    table(
        OP2("add.f16x2", 32, 32, 32), both,
        [](In i) { return halves(i, [](In h) { return added(h.a, h.b, f16, RN); }); }, same_f16x2);
    table(
        OP2("sub.f16x2", 32, 32, 32), both,
        [](In i) { return halves(i, [](In h) { return subtracted(h.a, h.b, f16, RN); }); }, same_f16x2);
    table(
        OP2("mul.f16x2", 32, 32, 32), both,
        [](In i) { return halves(i, [](In h) { return multiplied(h.a, h.b, f16, RN); }); }, same_f16x2);
    table(
        OP3("fma.rn.f16x2", 32, 32, 32, 32), both,
        [](In i) { return halves(i, [](In h) { return fused(h.a, h.b, h.c, f16, RN); }); }, same_f16x2);
    table(
        OP3("fma.rn.bf16x2", 32, 32, 32, 32), both,
        [](In i) { return halves(i, [](In h) { return fused(h.a, h.b, h.c, bf16, RN); }); }, same_bf16x2);
    table(
        OP2("max.f16x2", 32, 32, 32), both,
        [](In i) { return halves(i, [](In h) { return smaller(h.a, h.b, f16, false, true); }); }, same_f16x2);
    table(
        OP2("min.bf16x2", 32, 32, 32), both,
        [](In i) { return halves(i, [](In h) { return smaller(h.a, h.b, bf16, false, false); }); },
        same_bf16x2);
    table(OP2("max.NaN.bf16x2", 32, 32, 32), both,
          [](In i) { return halves(i, [](In h) { return smaller(h.a, h.b, bf16, true, true); }); });
}

// ---- approximations: within the error that the ISA documents

auto within(double relative, double absolute, const Format& f) {
    return [=](u64 got, u64 want) {
        double g = value(got, f), w = value(want, f);
        if (std::isnan(w) || std::isinf(w) || w == 0)
            return std::isnan(w) ? std::isnan(g)
                                 : got == want || (absolute > 0 && std::fabs(g - w) <= absolute);
        return std::fabs(g - w) <= relative * std::fabs(w) + absolute;
    };
}

void approximations() {
    const double ulp = std::ldexp(1.0, -23), half = ulp / 2;  // the wanted value itself is rounded to f32
    std::vector<In> positive, any;
    for (int k = 0; k < 300; k++) {
        u64 v = (random_bits() & 0x7fffff) | (1 + random_bits() % 250) << 23;
        positive.push_back({v});
        any.push_back({v | (random_bits() & 0x80000000)});
    }
    auto f = [](double (*function)(double)) {
        return [=](In i) { return bits_of(float(function(value(i.a, f32)))); };
    };
    const u64 inf = 0x7f800000, nan = 0x7fffffff, minus = 0x80000000;

    table(OP1("rcp.approx.ftz.f32", 32, 32), any, f([](double x) { return 1 / x; }), [&](u64 g, u64 w) {
        return f32.subnormal(w) ? (g & 0x7fffffff) <= 0x00800000 : within(1.01 * ulp + half, 0, f32)(g, w);
    });
    table(OP1("rcp.approx.f32", 32, 32), {{{0}, inf},
                                          {{minus}, minus | inf},
                                          {{inf}, 0},
                                          {{minus | inf}, minus},
                                          {{0x3f800000}, 0x3f800000},
                                          {{0x40000000}, 0x3f000000}});
    table(OP1("sqrt.approx.f32", 32, 32), positive, f([](double x) { return std::sqrt(x); }),
          within(ulp + half, 0, f32));
    table(OP1("sqrt.approx.f32", 32, 32), {{{0}, 0}, {{minus}, minus}, {{inf}, inf}});
    table(OP1("rsqrt.approx.f32", 32, 32), positive, f([](double x) { return 1 / std::sqrt(x); }),
          within(std::ldexp(1.0, -22) * 1.08 + half, 0, f32));
    table(OP1("rsqrt.approx.f32", 32, 32),
          {{{0}, inf}, {{minus}, minus | inf}, {{inf}, 0}, {{0x3f800000}, 0x3f800000}});
    table(OP1("rsqrt.approx.ftz.f32", 32, 32), {{{1}, inf}, {{0x80000001}, minus | inf}});
    {
        auto is_nan = [](u64 g, u64) { return f32.nan(g); };
        auto want = [&](In) { return nan; };
        const std::vector<In> bad = {{0xbf800000}, {minus | inf}, {0x7fc00000}};
        table(OP1("sqrt.approx.f32", 32, 32), bad, want, is_nan);
        table(OP1("rsqrt.approx.f32", 32, 32), bad, want, is_nan);
        table(OP1("lg2.approx.f32", 32, 32), bad, want, is_nan);
        const std::vector<In> endless = {{inf}, {minus | inf}, {0x7fc00000}};
        table(OP1("sin.approx.f32", 32, 32), endless, want, is_nan);
        table(OP1("cos.approx.f32", 32, 32), endless, want, is_nan);
    }
    table(OP1("lg2.approx.f32", 32, 32), positive, f([](double x) { return std::log2(x); }),
          within(std::ldexp(1.0, -22), std::ldexp(1.0, -22), f32));
    table(OP1("lg2.approx.f32", 32, 32), {{{0}, minus | inf},
                                          {{minus}, minus | inf},
                                          {{inf}, inf},
                                          {{0x3f800000}, 0},
                                          {{0x41000000}, 0x40400000}});
    table(OP1("lg2.approx.ftz.f32", 32, 32), {{{1}, minus | inf}});

    std::vector<In> exponents, angles, small;
    for (int k = 0; k < 300; k++) {
        exponents.push_back({bits_of(float(double(random_bits() >> 11) / (1ull << 53) * 250 - 125))});
        angles.push_back({bits_of(float(double(random_bits() >> 11) / (1ull << 53) * 12.56 - 6.28))});
        small.push_back({bits_of(float(
            std::ldexp(double(random_bits() >> 11) / (1ull << 52) - 1, int(random_bits() % 16) - 10)))});
    }
    table(OP1("ex2.approx.f32", 32, 32), exponents, f([](double x) { return std::exp2(x); }),
          within(std::ldexp(1.0, -22) + half, 0, f32));
    table(OP1("ex2.approx.ftz.f32", 32, 32), exponents, f([](double x) { return std::exp2(x); }),
          within(std::ldexp(1.0, -22) + half, 0, f32));
    table(OP1("ex2.approx.f32", 32, 32), {{{minus | inf}, 0},
                                          {{inf}, inf},
                                          {{0}, 0x3f800000},
                                          {{1}, 0x3f800000},
                                          {{0x43000000}, inf},
                                          {{0x40400000}, 0x41000000}});
    table(OP1("ex2.approx.ftz.f32", 32, 32),
          {{{0xc3000000}, 0}, {{0x80000001}, 0x3f800000}, {{0xc3160000}, 0}});
    table(OP1("ex2.approx.f32", 32, 32), {{{0xc3000000}, 0x00200000}});  // 2^-128, a subnormal
    table(OP1("sin.approx.f32", 32, 32), angles, f([](double x) { return std::sin(x); }),
          within(0, std::ldexp(1.0, -20.5) + half, f32));
    table(OP1("cos.approx.f32", 32, 32), angles, f([](double x) { return std::cos(x); }),
          within(0, std::ldexp(1.0, -20.5) + half, f32));
    table(OP1("sin.approx.f32", 32, 32), {{{0}, 0}, {{minus}, minus}});
    table(OP1("cos.approx.f32", 32, 32), {{{0}, 0x3f800000}, {{minus}, 0x3f800000}});
    table(OP1("tanh.approx.f32", 32, 32), small, f([](double x) { return std::tanh(x); }),
          within(std::ldexp(1.0, -11) + half, 0, f32));
    table(OP1("tanh.approx.f32", 32, 32),
          {{{0}, 0}, {{minus}, minus}, {{inf}, 0x3f800000}, {{minus | inf}, 0xbf800000}});

    std::vector<In> fractions;
    for (int k = 0; k < 300; k++) fractions.push_back({any[k].a, any[(k + 1) % 300].a});
    auto ratio = [](In i) { return bits_of(float(value(i.a, f32) / value(i.b, f32))); };
    auto ratio_error = [&](u64 g, u64 w) {
        return f32.subnormal(w) || !(w & 0x7fffffff) || within(2 * ulp + half, 0, f32)(g, w);
    };
    table(OP2("div.approx.f32", 32, 32, 32), fractions, ratio, ratio_error);
    table(OP2("div.full.f32", 32, 32, 32), fractions, ratio, ratio_error);
    table(OP2("div.full.f32", 32, 32, 32),
          {{{0x3f800000, 0}, inf}, {{0x40c00000, 0x40000000}, 0x40400000}, {{0x3f800000, inf}, 0}});

    std::vector<In> h;
    for (int k = 0; k < 200; k++) h.push_back({(random_bits() & 0x83ff) | (5 + random_bits() % 13) << 10});
    auto as_half = [](double (*function)(double)) {
        return [=](In i) {
            float y = float(function(value(i.a, f16)));
            return rounded(exact(bits_of(y), f32), f16, RN);
        };
    };
    const double half16 = std::ldexp(1.0, -11), tiny16 = std::ldexp(1.0, -25);
    table(OP1("ex2.approx.f16", 16, 16), h, as_half([](double x) { return std::exp2(x); }),
          within(std::ldexp(1.0, -9.9) + half16, tiny16, f16));
    table(OP1("tanh.approx.f16", 16, 16), h, as_half([](double x) { return std::tanh(x); }),
          within(half16, std::ldexp(1.0, -10.987) + tiny16, f16));
    table(OP1("ex2.approx.f16x2", 32, 32), {{{0x40003c00}, 0x44004000}, {{0xfc007c00}, 0x00007c00}});
    table(OP1("tanh.approx.f16x2", 32, 32), {{{0x7c00fc00}, 0x3c00bc00}, {{0x80000000}, 0x80000000}});
}

}  // namespace

int main() {
    single();
    doubles();
    order();
    comparison();
    half_precision();
    approximations();
    return summary("floating");
}
