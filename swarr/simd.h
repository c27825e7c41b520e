// simd.h: 64-byte vectors (GCC/Clang vector extensions: one zmm, two ymm or four NEON registers), the
// machine's own registers, and the few functions on them. Everything is element-wise or adds in a fixed order
// and every fused multiply-add is written out (the build sets -ffp-contract=off), so results do not depend on
// the width of the machine's registers, on the compiler's choices, or on the kernel a value passes through.
// No fast-math.
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

// The machine's own registers. Compilers keep vectors wider than these in memory, so inner loops hold their
// sums in registers; lane for lane the numbers are those of a Vec.
#if defined(__AVX512F__)
constexpr int register_bytes = 64;
#elif defined(__AVX__)
constexpr int register_bytes = 32;
#else
constexpr int register_bytes = 16;
#endif
template <class T>
struct RegOf {
    typedef T type __attribute__((vector_size(register_bytes)));
    typedef T unaligned __attribute__((vector_size(register_bytes), aligned(alignof(T)), may_alias));
};
template <class T>
using Reg = typename RegOf<T>::type;
template <class T>
constexpr int register_lanes = register_bytes / int(sizeof(T));
template <class T>
constexpr int registers = lanes<T> / register_lanes<T>;  // of a Vec

template <class T>
inline Reg<T> load_register(const T* p) {
    return *reinterpret_cast<const typename RegOf<T>::unaligned*>(p);
}
template <class T>
inline void store_register(T* p, Reg<T> v) {
    *reinterpret_cast<typename RegOf<T>::unaligned*>(p) = v;
}
template <class T>
inline Reg<T> splat_register(T x) {
    return x - Reg<T>{};
}

// a * b + c with one rounding
#if defined(__AVX512F__)
inline Reg<float> fma(Reg<float> a, Reg<float> b, Reg<float> c) {
    return Reg<float>(_mm512_fmadd_ps(__m512(a), __m512(b), __m512(c)));
}
inline Reg<double> fma(Reg<double> a, Reg<double> b, Reg<double> c) {
    return Reg<double>(_mm512_fmadd_pd(__m512d(a), __m512d(b), __m512d(c)));
}
#else
#if defined(__AVX__) && defined(__FMA__)
inline Reg<float> fma(Reg<float> a, Reg<float> b, Reg<float> c) {
    return Reg<float>(_mm256_fmadd_ps(__m256(a), __m256(b), __m256(c)));
}
inline Reg<double> fma(Reg<double> a, Reg<double> b, Reg<double> c) {
    return Reg<double>(_mm256_fmadd_pd(__m256d(a), __m256d(b), __m256d(c)));
}
#else
// One instruction where the machine has it (NEON); exact and slow where it does not.
inline Reg<float> fma(Reg<float> a, Reg<float> b, Reg<float> c) {
    for (int i = 0; i < register_lanes<float>; i++) c[i] = __builtin_fmaf(a[i], b[i], c[i]);
    return c;
}
inline Reg<double> fma(Reg<double> a, Reg<double> b, Reg<double> c) {
    for (int i = 0; i < register_lanes<double>; i++) c[i] = __builtin_fma(a[i], b[i], c[i]);
    return c;
}
#endif
// f on every register of Vecs.
template <class T, class F, class... V>
inline Vec<T> by_registers(F f, const V&... v) {
    Vec<T> out;
    for (int i = 0; i < registers<T>; i++) {
        Reg<T> r = f(load_register(reinterpret_cast<const T*>(&v) + i * register_lanes<T>)...);
        std::memcpy(reinterpret_cast<T*>(&out) + i * register_lanes<T>, &r, sizeof r);
    }
    return out;
}
inline Vec<float> fma(Vec<float> a, Vec<float> b, Vec<float> c) {
    return by_registers<float>([](auto x, auto y, auto z) { return fma(x, y, z); }, a, b, c);
}
inline Vec<double> fma(Vec<double> a, Vec<double> b, Vec<double> c) {
    return by_registers<double>([](auto x, auto y, auto z) { return fma(x, y, z); }, a, b, c);
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
inline Reg<float> exp(Reg<float> x) {
    typedef uint32_t Int __attribute__((vector_size(register_bytes)));  // wraps for x out of range
    const Reg<float> magic = splat_register(12582912.0f), ln2_high = splat_register(-0.693145752f),
                     ln2_low = splat_register(-1.42860677e-6f);
    Reg<float> shifted = fma(x, splat_register(1.44269504f), magic), n = shifted - magic;
    Reg<float> r = fma(n, ln2_low, fma(n, ln2_high, x));
    Reg<float> p = splat_register(1.0f / 5040);
    for (float c : {1.0f / 720, 1.0f / 120, 1.0f / 24, 1.0f / 6, 0.5f, 1.0f, 1.0f})
        p = fma(p, r, splat_register(c));
    Reg<float> scaled = Reg<float>(Int(p) + ((Int(shifted) - Int(magic)) << 23));
    scaled = x < -87.3365402f ? Reg<float>{} : scaled;
    scaled = x > 88.3762589f ? splat_register(INFINITY) : scaled;
    return x == x ? scaled : x;
}
inline Reg<double> exp(Reg<double> x) {
    for (int i = 0; i < register_lanes<double>; i++) x[i] = std::exp(x[i]);
    return x;
}
#ifndef __AVX512F__
inline Vec<float> exp(Vec<float> x) {
    return by_registers<float>([](auto v) { return exp(v); }, x);
}
inline Vec<double> exp(Vec<double> x) {
    return by_registers<double>([](auto v) { return exp(v); }, x);
}
#endif

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
