// integer.cu: integer arithmetic, logic, shifts, bit fields, comparison and selection (PTX
// ISA 9.7.1, 9.7.2, 9.7.6 - 9.7.8).
#include <algorithm>

#include "isa.h"

namespace {

const std::vector<u64> edges32 = {0,          1,          2,          31,         32,         0x7f,
                                  0x80,       0x7fff,     0x8000,     0xffff,     0x10000,    0x7fffffff,
                                  0x80000000, 0x80000001, 0xfffffffe, 0xffffffff, 0xdeadbeef, 0x12345678};
const std::vector<u64> edges64 = {0,
                                  1,
                                  2,
                                  63,
                                  0x7fffffff,
                                  0x80000000,
                                  0xffffffff,
                                  0x100000000,
                                  0x7fffffffffffffff,
                                  0x8000000000000000,
                                  0x8000000000000001,
                                  0xfffffffffffffffe,
                                  0xffffffffffffffff,
                                  0x123456789abcdef0};
const std::vector<u64> edges16 = {0,    1,      2,      15,     16,     0x7f,   0x80,
                                  0xff, 0x7fff, 0x8000, 0x8001, 0xfffe, 0xffff, 0xbeef};
const std::vector<u64> few32 = {0, 1, 0x7fffffff, 0x80000000, 0xffffffff, 0x1234567};
const std::vector<u64> amounts = {0,  1,  4,  15,  16,  17,  31,         32,        33,
                                  63, 64, 65, 127, 255, 256, 0x80000000, 0xffffffff};

std::vector<In> without(std::vector<In> in, bool (*drop)(const In&)) {
    std::vector<In> kept;
    for (const In& i : in)
        if (!drop(i)) kept.push_back(i);
    return kept;
}

void add_sub() {
    auto p16 = pairs(edges16, edges16), p32 = pairs(edges32, edges32), p64 = pairs(edges64, edges64);
    table(OP2("add.s16", 16, 16, 16), p16, [](In i) { return u64(u16(i.a + i.b)); });
    table(OP2("add.u32", 32, 32, 32), p32, [](In i) { return u64(u32(i.a + i.b)); });
    table(OP2("add.s32", 32, 32, 32), p32, [](In i) { return u64(u32(i.a + i.b)); });
    table(OP2("add.s64", 64, 64, 64), p64, [](In i) { return i.a + i.b; });
    table(OP2("sub.u16", 16, 16, 16), p16, [](In i) { return u64(u16(i.a - i.b)); });
    table(OP2("sub.s32", 32, 32, 32), p32, [](In i) { return u64(u32(i.a - i.b)); });
    table(OP2("sub.u64", 64, 64, 64), p64, [](In i) { return i.a - i.b; });
    // .sat clamps to MININT..MAXINT, s32 only
    auto clamp = [](i64 v) {
        return u64(u32(v > 0x7fffffff ? 0x7fffffff : v < -0x80000000ll ? -0x80000000ll : v));
    };
    table(OP2("add.sat.s32", 32, 32, 32), p32, [&](In i) { return clamp(i64(i32(i.a)) + i32(i.b)); });
    table(OP2("sub.sat.s32", 32, 32, 32), p32, [&](In i) { return clamp(i64(i32(i.a)) - i32(i.b)); });
    table(OP2("add.sat.s32", 32, 32, 32), {{{0x7fffffff, 1}, 0x7fffffff},
                                           {{0x80000000, 0xffffffff}, 0x80000000},
                                           {{0x7fffffff, 0x80000000}, 0xffffffff}});
    // extended precision: the carry of add.cc goes into addc; sub.cc borrows
    table(CODE("add.cc.u32 + addc.u32", "{.reg .b32 t; add.cc.u32 t, %1, %2; addc.u32 %0, %3, 0;}", 32, 32,
               32, 32),
          triples(few32, few32, few32), [](In i) { return u64(u32(i.c + ((i.a + i.b) >> 32))); });
    table(CODE("add.cc.u32 + addc.cc.u32 + addc.u32",
               "{.reg .b32 t; add.cc.u32 t, %1, %2; addc.cc.u32 t, %3, 0xffffffff; addc.u32 %0, 0, 0;}", 32,
               32, 32, 32),
          triples(few32, few32, few32), [](In i) { return (i.c + 0xffffffffu + ((i.a + i.b) >> 32)) >> 32; });
    table(CODE("sub.cc.u32 + subc.u32", "{.reg .b32 t; sub.cc.u32 t, %1, %2; subc.u32 %0, %3, 0;}", 32, 32,
               32, 32),
          triples(few32, few32, few32), [](In i) { return u64(u32(i.c - (u32(i.a) < u32(i.b)))); });
    table(CODE("mad.lo.cc.u32 + madc.hi.u32",
               "{.reg .b32 t; mad.lo.cc.u32 t, %1, %2, %3; madc.hi.u32 %0, %1, %2, 0;}", 32, 32, 32, 32),
          triples(few32, few32, few32), [](In i) { return (i.a * i.b + i.c) >> 32; });
}

void multiply() {
    auto p16 = pairs(edges16, edges16), p32 = pairs(edges32, edges32), p64 = pairs(edges64, edges64);
    table(OP2("mul.lo.u16", 16, 16, 16), p16, [](In i) { return u64(u16(i.a * i.b)); });
    table(OP2("mul.hi.u16", 16, 16, 16), p16, [](In i) { return u64(u16(i.a * i.b >> 16)); });
    table(OP2("mul.hi.s16", 16, 16, 16), p16, [](In i) { return u64(u16(i32(i16(i.a)) * i16(i.b) >> 16)); });
    table(OP2("mul.wide.u16", 32, 16, 16), p16, [](In i) { return u64(u32(i.a * i.b)); });
    table(OP2("mul.wide.s16", 32, 16, 16), p16, [](In i) { return u64(u32(i32(i16(i.a)) * i16(i.b))); });
    table(OP2("mul.lo.s32", 32, 32, 32), p32, [](In i) { return u64(u32(i.a * i.b)); });
    table(OP2("mul.hi.u32", 32, 32, 32), p32, [](In i) { return i.a * i.b >> 32; });
    table(OP2("mul.hi.s32", 32, 32, 32), p32, [](In i) { return u64(u32(i64(i32(i.a)) * i32(i.b) >> 32)); });
    table(OP2("mul.wide.u32", 64, 32, 32), p32, [](In i) { return i.a * i.b; });
    table(OP2("mul.wide.s32", 64, 32, 32), p32, [](In i) { return u64(i64(i32(i.a)) * i32(i.b)); });
    table(OP2("mul.lo.u64", 64, 64, 64), p64, [](In i) { return i.a * i.b; });
    table(OP2("mul.hi.u64", 64, 64, 64), p64, [](In i) { return u64(u128(i.a) * i.b >> 64); });
    table(OP2("mul.hi.s64", 64, 64, 64), p64, [](In i) { return u64(i128(i64(i.a)) * i64(i.b) >> 64); });
    // operands that fit 24 bits; .hi is bits 47..16 of the product
    const std::vector<u64> u24 = {0, 1, 0xffff, 0x10000, 0x7fffff, 0x800000, 0xffffff, 0x123456};
    const std::vector<u64> s24 = {0, 1, 0x7fffff, 0xff800000, 0xffffffff, 0xffff8001, 0x123456, 0x10000};
    table(OP2("mul24.lo.u32", 32, 32, 32), pairs(u24, u24), [](In i) { return u64(u32(i.a * i.b)); });
    table(OP2("mul24.hi.u32", 32, 32, 32), pairs(u24, u24), [](In i) { return u64(u32(i.a * i.b >> 16)); });
    table(OP2("mul24.lo.s32", 32, 32, 32), pairs(s24, s24),
          [](In i) { return u64(u32(i64(i32(i.a)) * i32(i.b))); });
    table(OP2("mul24.hi.s32", 32, 32, 32), pairs(s24, s24),
          [](In i) { return u64(u32(i64(i32(i.a)) * i32(i.b) >> 16)); });
    table(OP3("mad24.lo.u32", 32, 32, 32, 32), triples(u24, u24, few32),
          [](In i) { return u64(u32(i.a * i.b + i.c)); });

    auto t32 = triples(few32, edges32, few32);
    table(OP3("mad.lo.s32", 32, 32, 32, 32), t32, [](In i) { return u64(u32(i.a * i.b + i.c)); });
    table(OP3("mad.hi.u32", 32, 32, 32, 32), t32, [](In i) { return u64(u32((i.a * i.b >> 32) + i.c)); });
    table(OP3("mad.hi.s32", 32, 32, 32, 32), t32,
          [](In i) { return u64(u32((i64(i32(i.a)) * i32(i.b) >> 32) + i64(i.c))); });
    table(OP3("mad.hi.sat.s32", 32, 32, 32, 32), t32, [](In i) {
        i64 v = (i64(i32(i.a)) * i32(i.b) >> 32) + i32(i.c);
        return u64(u32(v > 0x7fffffff ? 0x7fffffff : v < -0x80000000ll ? -0x80000000ll : v));
    });
    table(OP3("mad.wide.u32", 64, 32, 32, 64), triples(few32, few32, edges64),
          [](In i) { return i.a * i.b + i.c; });
    table(OP3("mad.wide.s32", 64, 32, 32, 64), triples(few32, few32, edges64),
          [](In i) { return u64(i64(i32(i.a)) * i32(i.b)) + i.c; });
    table(OP3("mad.wide.s16", 32, 16, 16, 32), triples(edges16, edges16, few32),
          [](In i) { return u64(u32(i32(i16(i.a)) * i16(i.b)) + i.c) & 0xffffffff; });
    table(OP3("mad.lo.u64", 64, 64, 64, 64), triples(edges64, edges64, {0, 1, ~0ull}),
          [](In i) { return i.a * i.b + i.c; });
    table(OP3("mad.hi.u64", 64, 64, 64, 64), triples(edges64, edges64, {0, 1, ~0ull}),
          [](In i) { return u64(u128(i.a) * i.b >> 64) + i.c; });
    table(OP3("mad.lo.u16", 16, 16, 16, 16), triples(edges16, edges16, {0, 1, 0xffff}),
          [](In i) { return u64(u16(i.a * i.b + i.c)); });
    table(OP3("sad.u32", 32, 32, 32, 32), t32,
          [](In i) { return u64(u32(i.c + (i.a < i.b ? i.b - i.a : i.a - i.b))); });
    table(OP3("sad.s32", 32, 32, 32, 32), t32, [](In i) {
        i64 d = i64(i32(i.a)) - i32(i.b);
        return u64(u32(i64(i.c) + (d < 0 ? -d : d)));
    });
    auto dot4 = [](In i, bool sa, bool sb) {
        u32 sum = u32(i.c);
        for (int k = 0; k < 4; k++) {
            u8 x = u8(i.a >> 8 * k), y = u8(i.b >> 8 * k);
            sum += u32((sa ? i32(i8(x)) : i32(x)) * (sb ? i32(i8(y)) : i32(y)));
        }
        return u64(sum);
    };
    table(OP3("dp4a.u32.u32", 32, 32, 32, 32), noise(64), [&](In i) { return dot4(i, false, false); });
    table(OP3("dp4a.s32.s32", 32, 32, 32, 32), noise(64), [&](In i) { return dot4(i, true, true); });
    table(OP3("dp4a.u32.s32", 32, 32, 32, 32), noise(64), [&](In i) { return dot4(i, false, true); });
}

void divide() {
    auto zero32 = [](const In& i) {
        return u32(i.b) == 0 || (u32(i.a) == 0x80000000 && u32(i.b) == 0xffffffff);
    };
    auto zero64 = [](const In& i) { return i.b == 0 || (i.a == 1ull << 63 && i.b == ~0ull); };
    auto zero16 = [](const In& i) { return u16(i.b) == 0 || (u16(i.a) == 0x8000 && u16(i.b) == 0xffff); };
    auto p32 = without(pairs(edges32, edges32), zero32), p64 = without(pairs(edges64, edges64), zero64),
         p16 = without(pairs(edges16, edges16), zero16);
    table(OP2("div.u32", 32, 32, 32), p32, [](In i) { return i.a / i.b; });
    table(OP2("div.s32", 32, 32, 32), p32, [](In i) { return u64(u32(i32(i.a) / i32(i.b))); });
    table(OP2("rem.u32", 32, 32, 32), p32, [](In i) { return i.a % i.b; });
    table(OP2("rem.s32", 32, 32, 32), p32, [](In i) { return u64(u32(i32(i.a) % i32(i.b))); });
    table(OP2("div.u64", 64, 64, 64), p64, [](In i) { return i.a / i.b; });
    table(OP2("div.s64", 64, 64, 64), p64, [](In i) { return u64(i64(i.a) / i64(i.b)); });
    table(OP2("rem.u64", 64, 64, 64), p64, [](In i) { return i.a % i.b; });
    table(OP2("rem.s64", 64, 64, 64), p64, [](In i) { return u64(i64(i.a) % i64(i.b)); });
    table(OP2("div.s16", 16, 16, 16), p16, [](In i) { return u64(u16(i16(i.a) / i16(i.b))); });
    table(OP2("rem.u16", 16, 16, 16), p16, [](In i) { return i.a % i.b; });
    // Division by zero and MININT / -1 give a machine-specific value but do not trap.
    const std::vector<In> odd = {{5, 0}, {0, 0}, {0x80000000, 0xffffffff}, {1ull << 63, ~0ull}};
    auto any = [](u64, u64) { return true; };
    auto none = [](In) { return u64(0); };
    table(OP2("div.u32", 32, 32, 32), odd, none, any);
    table(OP2("div.s32", 32, 32, 32), odd, none, any);
    table(OP2("rem.s32", 32, 32, 32), odd, none, any);
    table(OP2("div.s64", 64, 64, 64), odd, none, any);
    table(OP2("rem.u64", 64, 64, 64), odd, none, any);
    table(OP2("rem.s64", 64, 64, 64), odd, none, any);
}

void sign_and_order() {
    auto p16 = pairs(edges16, edges16), p32 = pairs(edges32, edges32), p64 = pairs(edges64, edges64);
    table(OP1("abs.s32", 32, 32),
          {{{0x80000000}, 0x80000000}, {{0xffffffff}, 1}, {{0x7fffffff}, 0x7fffffff}, {{0}, 0}});
    table(OP1("abs.s16", 16, 16), {{{0x8000}, 0x8000}, {{0xffff}, 1}, {{0x7fff}, 0x7fff}});
    table(OP1("abs.s64", 64, 64), {{{1ull << 63}, 1ull << 63}, {{~0ull}, 1}});
    table(OP1("neg.s32", 32, 32), {{{0x80000000}, 0x80000000}, {{1}, 0xffffffff}, {{0}, 0}});
    table(OP1("neg.s64", 64, 64), {{{1ull << 63}, 1ull << 63}, {{1}, ~0ull}});
    table(OP1("neg.s16", 16, 16), {{{0x8000}, 0x8000}, {{1}, 0xffff}});
    table(OP2("min.u32", 32, 32, 32), p32, [](In i) { return i.a < i.b ? i.a : i.b; });
    table(OP2("max.u32", 32, 32, 32), p32, [](In i) { return i.a > i.b ? i.a : i.b; });
    table(OP2("min.s32", 32, 32, 32), p32, [](In i) { return i32(i.a) < i32(i.b) ? i.a : i.b; });
    table(OP2("max.s32", 32, 32, 32), p32, [](In i) { return i32(i.a) > i32(i.b) ? i.a : i.b; });
    table(OP2("min.s64", 64, 64, 64), p64, [](In i) { return i64(i.a) < i64(i.b) ? i.a : i.b; });
    table(OP2("max.u64", 64, 64, 64), p64, [](In i) { return i.a > i.b ? i.a : i.b; });
    table(OP2("min.u16", 16, 16, 16), p16, [](In i) { return i.a < i.b ? i.a : i.b; });
    table(OP2("max.s16", 16, 16, 16), p16, [](In i) { return i16(i.a) > i16(i.b) ? i.a : i.b; });
}

void logic_and_shift() {
    auto p16 = pairs(edges16, edges16), p32 = pairs(edges32, edges32), p64 = pairs(edges64, edges64);
    table(OP2("and.b32", 32, 32, 32), p32, [](In i) { return i.a & i.b; });
    table(OP2("or.b64", 64, 64, 64), p64, [](In i) { return i.a | i.b; });
    table(OP2("xor.b16", 16, 16, 16), p16, [](In i) { return i.a ^ i.b; });
    table(OP1("not.b32", 32, 32), singles(edges32), [](In i) { return u64(u32(~i.a)); });
    table(OP1("not.b16", 16, 16), singles(edges16), [](In i) { return u64(u16(~i.a)); });
    table(OP1("not.b64", 64, 64), singles(edges64), [](In i) { return ~i.a; });
    table(OP1("cnot.b32", 32, 32), singles(edges32), [](In i) { return u64(i.a == 0); });
    // Amounts beyond the register width are clamped to it.
    auto s16 = pairs(edges16, amounts), s32 = pairs(edges32, amounts), s64 = pairs(edges64, amounts);
    table(OP2("shl.b16", 16, 16, 32), s16, [](In i) { return i.b > 15 ? 0 : u64(u16(i.a << i.b)); });
    table(OP2("shl.b32", 32, 32, 32), s32, [](In i) { return i.b > 31 ? 0 : u64(u32(i.a << i.b)); });
    table(OP2("shl.b64", 64, 64, 32), s64, [](In i) { return i.b > 63 ? 0 : i.a << i.b; });
    table(OP2("shr.u16", 16, 16, 32), s16, [](In i) { return i.b > 15 ? 0 : i.a >> i.b; });
    table(OP2("shr.s16", 16, 16, 32), s16, [](In i) { return u64(u16(i16(i.a) >> (i.b > 15 ? 15 : i.b))); });
    table(OP2("shr.u32", 32, 32, 32), s32, [](In i) { return i.b > 31 ? 0 : i.a >> i.b; });
    table(OP2("shr.b32", 32, 32, 32), s32, [](In i) { return i.b > 31 ? 0 : i.a >> i.b; });
    table(OP2("shr.s32", 32, 32, 32), s32, [](In i) { return u64(u32(i32(i.a) >> (i.b > 31 ? 31 : i.b))); });
    table(OP2("shr.u64", 64, 64, 32), s64, [](In i) { return i.b > 63 ? 0 : i.a >> i.b; });
    table(OP2("shr.s64", 64, 64, 32), s64, [](In i) { return u64(i64(i.a) >> (i.b > 63 ? 63 : i.b)); });
    // funnel: the upper or lower half of {b, a} shifted; .clamp limits the amount to 32, .wrap takes it mod
    // 32
    auto funnel = triples({0x12345678, 0xffffffff, 0x80000001}, {0x9abcdef0, 0, 0x80000001}, amounts);
    auto left = [](In i, u64 n) { return ((i.b << 32 | i.a) << n) >> 32 & 0xffffffff; };
    auto right = [](In i, u64 n) { return ((i.b << 32 | i.a) >> n) & 0xffffffff; };
    auto clamp = [](u64 n) { return n > 32 ? 32 : n; };
    table(OP3("shf.l.clamp.b32", 32, 32, 32, 32), funnel, [&](In i) { return left(i, clamp(i.c)); });
    table(OP3("shf.l.wrap.b32", 32, 32, 32, 32), funnel, [&](In i) { return left(i, i.c & 31); });
    table(OP3("shf.r.clamp.b32", 32, 32, 32, 32), funnel, [&](In i) { return right(i, clamp(i.c)); });
    table(OP3("shf.r.wrap.b32", 32, 32, 32, 32), funnel, [&](In i) { return right(i, i.c & 31); });

    // lop3: bit i of the result is bit (a_i << 2 | b_i << 1 | c_i) of the table
    auto lut = [](In i, u32 t) {
        u32 d = 0;
        for (int k = 0; k < 32; k++)
            d |= (t >> ((i.a >> k & 1) << 2 | (i.b >> k & 1) << 1 | (i.c >> k & 1)) & 1) << k;
        return u64(d);
    };
#define LOP3(n)                                                                                \
    table(CODE("lop3.b32 " #n, "lop3.b32 %0, %1, %2, %3, " #n ";", 32, 32, 32, 32), noise(16), \
          [&](In i) { return lut(i, n); });
    LOP3(0x80)
    LOP3(0xfe)
    LOP3(0x40) LOP3(0x1a) LOP3(0x96) LOP3(0xe8) LOP3(0xca) LOP3(0) LOP3(0xff) LOP3(0x01) LOP3(0xf0) LOP3(0xac)
#undef LOP3
}

// prmt: bytes 0..3 of a and 4..7 of b; each nibble of c picks one, its top bit replicates the sign.
u64 permute(In i, int mode) {
    u64 bytes = (i.b & 0xffffffff) << 32 | (i.a & 0xffffffff);
    auto byte = [&](int k) { return u32(u8(bytes >> 8 * (k & 7))); };
    int s = int(i.c & 3);
    // rows of the ISA's table, d.b0 first
    const int f4e[4][4] = {{0, 1, 2, 3}, {1, 2, 3, 4}, {2, 3, 4, 5}, {3, 4, 5, 6}};
    const int b4e[4][4] = {{0, 7, 6, 5}, {1, 0, 7, 6}, {2, 1, 0, 7}, {3, 2, 1, 0}};
    const int ecl[4][4] = {{0, 1, 2, 3}, {1, 1, 2, 3}, {2, 2, 2, 3}, {3, 3, 3, 3}};
    const int ecr[4][4] = {{0, 0, 0, 0}, {0, 1, 1, 1}, {0, 1, 2, 2}, {0, 1, 2, 3}};
    u32 d = 0;
    for (int k = 0; k < 4; k++) {
        u32 b = 0;
        int select = int(i.c >> 4 * k & 15);
        switch (mode) {
            case 0:
                b = byte(select);
                if (select & 8) b = b & 0x80 ? 0xff : 0;
                break;
            case 1:
                b = byte(f4e[s][k]);
                break;
            case 2:
                b = byte(b4e[s][k]);
                break;
            case 3:
                b = byte(s);
                break;
            case 4:
                b = byte(ecl[s][k]);
                break;
            case 5:
                b = byte(ecr[s][k]);
                break;
            case 6:
                b = byte((s & 1) * 2 + (k & 1));
                break;
        }
        d |= b << 8 * k;
    }
    return d;
}

void permutation() {
    table(OP3("prmt.b32", 32, 32, 32, 32), noise(200), [](In i) { return permute(i, 0); });
    table(OP3("prmt.b32", 32, 32, 32, 32), {{{0x33221100, 0x77665544, 0x3210}, 0x33221100},
                                            {{0x33221100, 0x77665544, 0x7531}, 0x77553311},
                                            {{0x80221100, 0x77665544, 0xbbb8}, 0xffffff00},
                                            {{0x33221100, 0x77665544, 0xffff3210}, 0x33221100}});
    table(OP3("prmt.b32.f4e", 32, 32, 32, 32), noise(24), [](In i) { return permute(i, 1); });
    table(OP3("prmt.b32.b4e", 32, 32, 32, 32), noise(24), [](In i) { return permute(i, 2); });
    table(OP3("prmt.b32.rc8", 32, 32, 32, 32), noise(24), [](In i) { return permute(i, 3); });
    table(OP3("prmt.b32.ecl", 32, 32, 32, 32), noise(24), [](In i) { return permute(i, 4); });
    table(OP3("prmt.b32.ecr", 32, 32, 32, 32), noise(24), [](In i) { return permute(i, 5); });
    table(OP3("prmt.b32.rc16", 32, 32, 32, 32), noise(24), [](In i) { return permute(i, 6); });
}

// 9.7.1.20: the field of `len` bits at `pos`, both taken mod 256; filled with its sign bit when signed.
u64 extract(u64 a, u64 b, u64 c, int msb, bool is_signed) {
    int pos = int(b & 255), len = int(c & 255);
    u64 sign = !is_signed || len == 0 ? 0 : a >> (pos + len - 1 < msb ? pos + len - 1 : msb) & 1, d = 0;
    for (int k = 0; k <= msb; k++) d |= (k < len && pos + k <= msb ? a >> (pos + k) & 1 : sign) << k;
    return d;
}
u64 insert(u64 a, u64 b, u64 c, u64 d, int msb) {
    int pos = int(c & 255), len = int(d & 255);
    for (int k = 0; k < len && pos + k <= msb; k++)
        b = (b & ~(1ull << (pos + k))) | (a >> k & 1) << (pos + k);
    return b;
}

void bit_fields() {
    const std::vector<u64> values = {0x12345678, 0x80000000, 0xffffffff, 0xcafe8001};
    const std::vector<u64> values64 = {0x123456789abcdef0, 1ull << 63, ~0ull, 0x8000000080000001};
    auto t32 = triples(values, amounts, amounts), t64 = triples(values64, amounts, amounts);
    table(OP3("bfe.u32", 32, 32, 32, 32), t32, [](In i) { return extract(i.a, i.b, i.c, 31, false); });
    table(OP3("bfe.s32", 32, 32, 32, 32), t32, [](In i) { return extract(i.a, i.b, i.c, 31, true); });
    table(OP3("bfe.u64", 64, 64, 32, 32), t64, [](In i) { return extract(i.a, i.b, i.c, 63, false); });
    table(OP3("bfe.s64", 64, 64, 32, 32), t64, [](In i) { return extract(i.a, i.b, i.c, 63, true); });
    std::vector<In> q;
    for (u64 pos : amounts)
        for (u64 len : amounts) q.push_back({0x5555aaaa5555aaab, 0x123456789abcdef0, pos, len});
    table(OP4("bfi.b32", 32, 32, 32, 32, 32), q,
          [](In i) { return insert(u32(i.a), u32(i.b), i.c, i.d, 31); });
    table(OP4("bfi.b64", 64, 64, 64, 32, 32), q, [](In i) { return insert(i.a, i.b, i.c, i.d, 63); });

    auto count = [](u64 v) {
        u64 n = 0;
        for (; v; v >>= 1) n += v & 1;
        return n;
    };
    auto highest = [](u64 v) {
        int n = -1;
        for (; v; v >>= 1) n++;
        return n;
    };
    auto v32 = singles(edges32), v64 = singles(edges64);
    table(OP1("popc.b32", 32, 32), v32, [&](In i) { return count(i.a); });
    table(OP1("popc.b64", 32, 64), v64, [&](In i) { return count(i.a); });
    table(OP1("clz.b32", 32, 32), v32, [&](In i) { return u64(31 - highest(i.a)); });
    table(OP1("clz.b64", 32, 64), v64, [&](In i) { return u64(63 - highest(i.a)); });
    table(OP1("bfind.u32", 32, 32), v32, [&](In i) { return u64(u32(highest(i.a))); });
    table(OP1("bfind.s32", 32, 32), v32,
          [&](In i) { return u64(u32(highest(i32(i.a) < 0 ? u32(~i.a) : i.a))); });
    table(OP1("bfind.u64", 32, 64), v64, [&](In i) { return u64(u32(highest(i.a))); });
    table(OP1("bfind.s64", 32, 64), v64, [&](In i) { return u64(u32(highest(i64(i.a) < 0 ? ~i.a : i.a))); });
    table(OP1("bfind.shiftamt.u32", 32, 32), v32,
          [&](In i) { return i.a ? u64(31 - highest(i.a)) : 0xffffffff; });
    table(OP1("bfind.shiftamt.s32", 32, 32),
          {{{0}, 0xffffffff}, {{0xffffffff}, 0xffffffff}, {{1}, 31}, {{0xfffffffe}, 31}, {{0x80000000}, 1}});
    table(OP1("brev.b32", 32, 32),
          {{{1}, 0x80000000}, {{0x80000001}, 0x80000001}, {{0x12345678}, 0x1e6a2c48}, {{0}, 0}});
    table(OP1("brev.b64", 64, 64), {{{1}, 1ull << 63}, {{0x12345678}, 0x1e6a2c48ull << 32}});
}

void masks() {
    auto p = pairs({0x12345678, 0x80000001, 0xffffffff, 0x0000ff80}, amounts);
    // an N-bit value extended; N is the amount mod 32, or at most 32
    auto extended = [](In i, bool clamp, bool is_signed) {
        u32 n = clamp ? u32(std::min<u64>(i.b, 32)) : u32(i.b & 31);
        if (n == 0) return u64(0);
        u32 mask = n == 32 ? ~0u : (1u << n) - 1, v = u32(i.a) & mask;
        return u64(is_signed && n < 32 && v >> (n - 1) ? v | ~mask : v);
    };
    table(OP2("szext.wrap.u32", 32, 32, 32), p, [&](In i) { return extended(i, false, false); });
    table(OP2("szext.wrap.s32", 32, 32, 32), p, [&](In i) { return extended(i, false, true); });
    table(OP2("szext.clamp.u32", 32, 32, 32), p, [&](In i) { return extended(i, true, false); });
    table(OP2("szext.clamp.s32", 32, 32, 32), p, [&](In i) { return extended(i, true, true); });
    // `b` ones from bit `a` on
    auto ones = [](u64 a, u64 b) {
        u32 d = 0;
        for (u64 k = a; k < a + b && k < 32; k++) d |= 1u << k;
        return u64(d);
    };
    auto q = pairs(amounts, amounts);
    table(OP2("bmsk.wrap.b32", 32, 32, 32), q, [&](In i) { return ones(i.a & 31, i.b & 31); });
    table(OP2("bmsk.clamp.b32", 32, 32, 32), q,
          [&](In i) { return ones(std::min<u64>(i.a, 32), std::min<u64>(i.b, 32)); });
    auto dot2 = [](In i, int from) {
        u32 sum = u32(i.c);
        for (int k = 0; k < 2; k++) sum += u32(i16(i.a >> 16 * k) * i8(i.b >> 8 * (k + from)));
        return u64(sum);
    };
    table(OP3("dp2a.lo.s32.s32", 32, 32, 32, 32), noise(32), [&](In i) { return dot2(i, 0); });
    table(OP3("dp2a.hi.s32.s32", 32, 32, 32, 32), noise(32), [&](In i) { return dot2(i, 2); });
}

void comparison() {
    auto p32 = pairs(edges32, edges32), p64 = pairs(edges64, edges64), p16 = pairs(edges16, edges16);
#define SETP(op, bits, expression)                                                                         \
    table(CODE("setp." op, "{.reg .pred p; setp." op " p, %1, %2; selp.u32 %0, 1, 0, p;}", 32, bits, bits, \
               32),                                                                                        \
          p##bits, [](In i) { return u64(expression); });
    SETP("eq.s32", 32, i.a == i.b)
    SETP("ne.b32", 32, i.a != i.b)
    SETP("lt.s32", 32, i32(i.a) < i32(i.b))
    SETP("le.s32", 32, i32(i.a) <= i32(i.b))
    SETP("gt.s32", 32, i32(i.a) > i32(i.b))
    SETP("ge.s32", 32, i32(i.a) >= i32(i.b))
    SETP("lt.u32", 32, i.a < i.b)
    SETP("lo.u32", 32, i.a < i.b)
    SETP("ls.u32", 32, i.a <= i.b)
    SETP("hi.u32", 32, i.a > i.b)
    SETP("hs.u32", 32, i.a >= i.b)
    SETP("lt.s64", 64, i64(i.a) < i64(i.b))
    SETP("ge.u64", 64, i.a >= i.b)
    SETP("eq.b64", 64, i.a == i.b)
    SETP("gt.s16", 16, i16(i.a) > i16(i.b))
    SETP("le.u16", 16, i.a <= i.b)
#undef SETP
    // p = (a < b) op c, q = !(a < b) op c
#define COMBINE(op, symbol)                                                                       \
    table(CODE("setp.lt." op ".s32 p|q",                                                          \
               "{.reg .pred p, q, r; setp.ne.u32 r, %3, 0;\n"                                     \
               "setp.lt." op ".s32 p|q, %1, %2, r; selp.u32 %0, 1, 0, p; @q add.u32 %0, %0, 2;}", \
               32, 32, 32, 32),                                                                   \
          triples(few32, few32, {0, 1}), [](In i) {                                               \
              bool t = i32(i.a) < i32(i.b), c = i.c != 0;                                         \
              return u64((t symbol c) + 2 * (!t symbol c));                                       \
          });
    COMBINE("and", &)
    COMBINE("or", |)
    COMBINE("xor", ^)
#undef COMBINE
    table(CODE("setp.lt.and.s32 with !c",
               "{.reg .pred p, r; setp.ne.u32 r, %3, 0; setp.lt.and.s32 p, %1, %2, !r; selp.u32 %0, 1, "
               "0, p;}",
               32, 32, 32, 32),
          triples(few32, few32, {0, 1}), [](In i) { return u64(i32(i.a) < i32(i.b) && !i.c); });
    table(CODE("set.lt.u32.s32", "set.lt.u32.s32 %0, %1, %2;", 32, 32, 32, 32), p32,
          [](In i) { return i32(i.a) < i32(i.b) ? u64(0xffffffff) : 0; });
    table(CODE("set.gt.f32.u32", "set.gt.f32.u32 %0, %1, %2;", 32, 32, 32, 32), p32,
          [](In i) { return i.a > i.b ? u64(0x3f800000) : 0; });
    table(CODE("selp.b64", "{.reg .pred p; setp.ne.u32 p, %3, 0; selp.b64 %0, %1, %2, p;}", 64, 64, 64, 32),
          triples({1, ~0ull}, {2}, {0, 1, 7}), [](In i) { return i.c ? i.a : i.b; });
    table(CODE("selp.b16", "{.reg .pred p; setp.ne.u32 p, %3, 0; selp.b16 %0, %1, %2, p;}", 16, 16, 16, 32),
          triples({1, 0xffff}, {2}, {0, 1, 7}), [](In i) { return i.c ? i.a : i.b; });
    table(OP3("slct.s32.s32", 32, 32, 32, 32), triples({1}, {2}, edges32),
          [](In i) { return i32(i.c) >= 0 ? i.a : i.b; });
    table(OP3("slct.u64.s32", 64, 64, 64, 32), triples({~0ull}, {2}, edges32),
          [](In i) { return i32(i.c) >= 0 ? i.a : i.b; });
    // f32 selector: -0 counts as 0, NaN selects b, .ftz flushes a subnormal
    table(OP3("slct.u32.f32", 32, 32, 32, 32), {{{1, 2, 0}, 1},
                                                {{1, 2, 0x80000000}, 1},
                                                {{1, 2, 0x7fc00000}, 2},
                                                {{1, 2, 0xbf800000}, 2},
                                                {{1, 2, 0x7f800000}, 1},
                                                {{1, 2, 0x80000001}, 2}});
    table(OP3("slct.ftz.u32.f32", 32, 32, 32, 32), {{{1, 2, 0x80000001}, 1}, {{1, 2, 0x80800000}, 2}});
    // predicates as operands of logic and of moves
    table(CODE("and/or/xor/not.pred",
               "{.reg .pred p, q, r; setp.ne.u32 p, %1, 0; setp.ne.u32 q, %2, 0; and.pred r, p, q; selp.u32 "
               "%0, 1, 0, r;\n"
               "or.pred r, p, q; @r add.u32 %0, %0, 2; xor.pred r, p, q; @r add.u32 %0, %0, 4; not.pred r, "
               "p; @r add.u32 %0, %0, 8;\n"
               "mov.pred r, q; @!r add.u32 %0, %0, 16;}",
               32, 32, 32, 32),
          pairs({0, 1}, {0, 1}),
          [](In i) { return (i.a & i.b) + 2 * (i.a | i.b) + 4 * (i.a ^ i.b) + 8 * !i.a + 16 * !i.b; });
}

void moves() {
    // vectors in mov: the first element is the least significant
    table(
        CODE("mov.b32 {lo, hi}", "{.reg .b16 x, y; mov.b32 {x, y}, %1; mov.b32 %0, {y, x};}", 32, 32, 32, 32),
        noise(8), [](In i) { return u64(u32(i.a << 16) | u32(i.a) >> 16); });
    table(CODE("mov.b64 {lo, hi}", "mov.b64 %0, {%1, %2};", 64, 32, 32, 32), noise(8),
          [](In i) { return i.b << 32 | u32(i.a); });
    table(CODE("mov.b64 {x, y, z, w}",
               "{.reg .b16 x, y, z, w; mov.b64 {x, y, z, w}, %1; mov.b64 %0, {w, x, y, z};}", 64, 64, 32, 32),
          noise(8), [](In i) { return i.a << 16 | i.a >> 48; });
    table(CODE("mov.b32 from 4 bytes through cvt", "{.reg .b16 x, y; mov.b32 {x, y}, %1; cvt.u32.u16 %0, y;}",
               32, 32, 32, 32),
          noise(8), [](In i) { return u64(u32(i.a) >> 16); });
}

}  // namespace

int main() {
    add_sub();
    multiply();
    divide();
    sign_and_order();
    logic_and_shift();
    permutation();
    bit_fields();
    masks();
    comparison();
    moves();
    return summary("integer");
}
