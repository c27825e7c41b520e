// Number formats against references made of exact arithmetic: nearest values are found by search, not by bit
// tricks.
#include <cmath>
#include <limits>

#include "../exec/float.h"
#include "harness.h"

using namespace cusim;

namespace {

// The value of a small float with `mantissa` stored bits and `exponent` bits, from its definition.
double value_of(u16 bits, int mantissa, int exponent) {
    int e = bits >> mantissa & ((1 << exponent) - 1), bias = (1 << (exponent - 1)) - 1;
    double m = bits & ((1 << mantissa) - 1), sign = bits >> 15 ? -1 : 1;
    if (e == (1 << exponent) - 1) return m != 0 ? NAN : sign * INFINITY;
    return sign *
           (e ? std::ldexp(1 + m / (1 << mantissa), e - bias) : std::ldexp(m / (1 << mantissa), 1 - bias));
}

// Round to nearest even by comparing the two neighbours' distances; `x` is finite.
template <class T>
u16 nearest(T x, int mantissa, int exponent) {
    bool negative = x < 0 || (x == 0 && std::signbit(double(x)));
    u16 sign = negative ? 0x8000 : 0, inf = u16(((1 << exponent) - 1) << mantissa);
    T y = negative ? -x : x;
    u16 low = 0, high = inf;  // largest value <= y, by bisection over the ordered bit patterns
    while (high - low > 1) {
        u16 middle = u16((low + high) / 2);
        (value_of(middle, mantissa, exponent) <= y ? low : high) = middle;
    }
    double below = value_of(low, mantissa, exponent);
    // The step past the largest finite number stands for infinity.
    double above = low + 1 == inf ? below + (below - value_of(u16(low - 1), mantissa, exponent))
                                  : value_of(u16(low + 1), mantissa, exponent);
    T d = (y - below) - (above - y);
    return sign | u16(d > 0 || (d == 0 && (low & 1)) ? low + 1 : low);
}

u32 next_random() {
    static u32 state = 1;
    state = state * 1664525u + 1013904223u;
    return state ^ state >> 13;
}

}  // namespace

TEST_CASE("f16 and bf16: widening every value, narrowing is its inverse") {
    for (u32 h = 0; h < 0x10000; h++) {
        double f16 = value_of(u16(h), 10, 5), bf16 = value_of(u16(h), 7, 8);
        if (f16 == f16) REQUIRE((double(from_f16(u16(h))) == f16 && to_f16(from_f16(u16(h))) == h));
        if (bf16 == bf16) REQUIRE((double(from_bf16(u16(h))) == bf16 && to_bf16(from_bf16(u16(h))) == h));
    }
    CHECK(to_f16(NAN) == 0x7fff);
    CHECK(to_bf16(NAN) == 0x7fff);
}

TEST_CASE("f16 and bf16: rounding to nearest even, random and halfway values") {
    for (int i = 0; i < 200000; i++) {
        f32 x = bit_cast<f32>(next_random());
        if (i % 2) {  // exactly between two bf16 or two f16 numbers
            u16 h = u16(next_random());
            x = i % 4 == 1 ? bit_cast<f32>((u32(h) << 16) | 0x8000)
                           : f32((value_of(h & 0x7bff, 10, 5) + value_of((h & 0x7bff) + 1, 10, 5)) / 2);
        }
        if (!std::isfinite(x)) continue;
        REQUIRE(to_bf16(x) == nearest(x, 7, 8));
        REQUIRE(to_f16(x) == nearest(x, 10, 5));
    }
}

TEST_CASE("f16 and bf16: directed rounding brackets the value") {
    for (int i = 0; i < 100000; i++) {
        f32 x = bit_cast<f32>(next_random());
        if (!std::isfinite(x)) continue;
        double down = value_of(to_bf16(x, kDown), 7, 8), up = value_of(to_bf16(x, kUp), 7, 8),
               zero = value_of(to_bf16(x, kZero), 7, 8);
        REQUIRE((down <= x && x <= up && std::fabs(zero) <= std::fabs(x)));
        REQUIRE((zero == down || zero == up));
        REQUIRE((to_bf16(x, kNearest) == to_bf16(x, kDown) || to_bf16(x, kNearest) == to_bf16(x, kUp)));
        down = value_of(to_f16(x, kDown), 10, 5), up = value_of(to_f16(x, kUp), 10, 5);
        REQUIRE((down <= x && x <= up));
    }
}

TEST_CASE("half fma is rounded once") {
    for (int i = 0; i < 300000; i++) {
        u16 a = u16(next_random()), b = u16(next_random()), c = u16(next_random());
        for (int bf = 0; bf < 2; bf++) {
            int mantissa = bf ? 7 : 10, exponent = bf ? 8 : 5;
            double x = value_of(a, mantissa, exponent), y = value_of(b, mantissa, exponent),
                   z = value_of(c, mantissa, exponent);
            if (!std::isfinite(x) || !std::isfinite(y) || !std::isfinite(z)) continue;
            // With 113 bits the sum is exact, unless one term is negligible in a way the other cannot notice.
            double p = x * y;
            if (p == 0 || z == 0 || std::abs(std::ilogb(p) - std::ilogb(z)) > 85) continue;
            __float128 exact = __float128(p) + z;
            if (exact > 1e38 || exact < -1e38) continue;
            u16 expected = nearest(exact, mantissa, exponent);
            if (exact == 0) expected = 0;  // x - x is +0
            f32 odd = bf ? fma_to_odd(from_bf16(a), from_bf16(b), from_bf16(c))
                         : fma_to_odd(from_f16(a), from_f16(b), from_f16(c));
            u16 got = bf ? to_bf16(odd) : to_f16(odd);
            INFO(a << " " << b << " " << c << " bf16 " << bf);
            REQUIRE(got == expected);
        }
    }
}

TEST_CASE("exp2 is within 0.51 units of the last place") {
    double worst = 0;
    for (int i = 0; i < 200000; i++) {
        f32 x = (f32(next_random()) / 4294967296.0f - 0.5f) * 250;
        double exact = std::exp2(double(x));
        f32 got = exp2_lane(x);
        f32 near = f32(exact);
        double unit = std::ldexp(1.0, std::max(std::ilogb(near == 0 ? 1e-45 : double(near)), -126) - 23);
        worst = std::max(worst, std::fabs(got - exact) / unit);
    }
    CHECK(worst < 0.51);
    CHECK(exp2_lane(INFINITY) == INFINITY);
    CHECK(exp2_lane(-INFINITY) == 0);
    CHECK(exp2_lane(NAN) != exp2_lane(NAN));
    CHECK(exp2_lane(127) == std::ldexp(1.0f, 127));
    CHECK(exp2_lane(-149) == std::ldexp(1.0f, -149));
}
