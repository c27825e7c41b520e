// simd.h: 64-byte vectors (GCC/Clang vector extensions: one zmm, two ymm or four NEON registers) and the few
// functions on them. Everything is element-wise or adds in a fixed order and every fused multiply-add is
// written out (the build sets -ffp-contract=off), so results do not depend on the width of the machine's
// registers, on the compiler's choices, or on the kernel a value passes through. No fast-math.
#pragma once
#include <cmath>
#include <cstdint>
#include <cstring>
#include <type_traits>
#ifdef __FMA__
#include <immintrin.h>
#endif

template <class T>
struct VecOf {
    typedef T type __attribute__((vector_size(64)));
    typedef T unaligned __attribute__((vector_size(64), aligned(alignof(T)), may_alias));
};
template <class T>
using Vec = typename VecOf<T>::type;
template <class T>
constexpr int lanes = 64 / int(sizeof(T));

template <class T>
inline Vec<T> load(const T* p) {
    return *reinterpret_cast<const typename VecOf<T>::unaligned*>(p);
}
template <class T>
inline void store(T* p, Vec<T> v) {
    *reinterpret_cast<typename VecOf<T>::unaligned*>(p) = v;
}
template <class T>
inline Vec<T> splat(T x) {
    return x - Vec<T>{};  // x - 0 keeps the sign of a zero
}

// a * b + c with one rounding
#ifdef __AVX512F__
inline Vec<float> fma(Vec<float> a, Vec<float> b, Vec<float> c) {
    return Vec<float>(_mm512_fmadd_ps(__m512(a), __m512(b), __m512(c)));
}
inline Vec<double> fma(Vec<double> a, Vec<double> b, Vec<double> c) {
    return Vec<double>(_mm512_fmadd_pd(__m512d(a), __m512d(b), __m512d(c)));
}
#else
// The loops become vector instructions where the machine has a fused multiply-add.
inline Vec<float> fma(Vec<float> a, Vec<float> b, Vec<float> c) {
    for (int i = 0; i < lanes<float>; i++) c[i] = __builtin_fmaf(a[i], b[i], c[i]);
    return c;
}
inline Vec<double> fma(Vec<double> a, Vec<double> b, Vec<double> c) {
    for (int i = 0; i < lanes<double>; i++) c[i] = __builtin_fma(a[i], b[i], c[i]);
    return c;
}
#endif

// Largest lane; sum of lanes by halving (lane i with lane i + n/2, and so on).
template <class V>
inline auto max_lane(V v) {
    std::decay_t<decltype(v[0])> m = v[0];
    for (int i = 1; i < int(sizeof(V) / sizeof m); i++) m = v[i] > m ? v[i] : m;
    return m;
}
template <class V>
inline auto sum_lanes(V v) {
    std::decay_t<decltype(v[0])> s[sizeof(V) / sizeof v[0]];
    std::memcpy(s, &v, sizeof v);
    for (int n = int(sizeof(V) / sizeof v[0]) / 2; n > 0; n /= 2)
        for (int i = 0; i < n; i++) s[i] += s[i + n];
    return s[0];
}

// exp(x) = 2^n * exp(r), n = round(x / ln 2), |r| <= ln(2) / 2: n comes from the low bits of x / ln 2 + 1.5 *
// 2^23, exp(r) from its Taylor series. Within 1 ulp or so (tested); 0 below the smallest normal number, -inf
// included; +inf above the largest; NaN stays NaN.
inline Vec<float> exp(Vec<float> x) {
    typedef uint32_t Int __attribute__((vector_size(64)));  // wraps for x out of range
    const Vec<float> magic = splat(12582912.0f), ln2_high = splat(-0.693145752f),
                     ln2_low = splat(-1.42860677e-6f);
    Vec<float> shifted = fma(x, splat(1.44269504f), magic), n = shifted - magic;
    Vec<float> r = fma(n, ln2_low, fma(n, ln2_high, x));
    Vec<float> p = splat(1.0f / 5040);
    p = fma(p, r, splat(1.0f / 720));
    p = fma(p, r, splat(1.0f / 120));
    p = fma(p, r, splat(1.0f / 24));
    p = fma(p, r, splat(1.0f / 6));
    p = fma(p, r, splat(0.5f));
    p = fma(p, r, splat(1.0f));
    p = fma(p, r, splat(1.0f));
    Vec<float> scaled = Vec<float>(Int(p) + ((Int(shifted) - Int(magic)) << 23));
    scaled = x < -87.3365402f ? Vec<float>{} : scaled;
    scaled = x > 88.3762589f ? splat(INFINITY) : scaled;
    return x == x ? scaled : x;
}
inline Vec<double> exp(Vec<double> x) {
    for (int i = 0; i < lanes<double>; i++) x[i] = std::exp(x[i]);
    return x;
}

// The first n <= lanes<T> elements; the rest of the vector is 0.
template <class T>
inline Vec<T> load_part(const T* p, int n) {
    if (n >= lanes<T>) return load(p);
    Vec<T> v{};
    std::memcpy(&v, p, size_t(n) * sizeof(T));
    return v;
}
template <class T>
inline void store_part(T* p, Vec<T> v, int n) {
    if (n >= lanes<T>)
        store(p, v);
    else
        std::memcpy(p, &v, size_t(n) * sizeof(T));
}

// sum of a[i] * b[i]: lane j adds the products of i = j, j + lanes, ... in order, then sum_lanes
template <class T>
inline T dot(const T* a, const T* b, int n) {
    Vec<T> sum{};
    for (int i = 0; i < n; i += lanes<T>) sum = fma(load_part(a + i, n - i), load_part(b + i, n - i), sum);
    return sum_lanes(sum);
}
