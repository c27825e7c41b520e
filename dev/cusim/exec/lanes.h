// lanes.h: loops over the 32 lanes that the compiler can vectorise, and the handler templates made from them.
//
// With all lanes active results go straight into the destination column (columns of one instruction are equal
// or disjoint, see pack.cpp). Otherwise all 32 are computed and the active ones kept: an operation must not
// trap.
#pragma once
#include <immintrin.h>

#include <cstring>

#include "../ptx/decode.h"
#include "warp.h"

// The iterations of the next loop do not depend on each other. (clang needs no hint.)
#ifdef __clang__
#define CUSIM_INDEPENDENT
#else
#define CUSIM_INDEPENDENT _Pragma("GCC ivdep")
#endif

namespace cusim {

template <class D, class F>
[[gnu::always_inline]] inline void write_lanes(const Warp& w, D* d, F&& value) {
    if (w.mask == kFullMask) {
        CUSIM_INDEPENDENT
        for (int l = 0; l < kWarp; l++) d[l] = value(l);
        return;
    }
    D t[kWarp];
    for (int l = 0; l < kWarp; l++) t[l] = value(l);
    const u32 mask = w.mask;
    for (u32 l = 0; l < kWarp; l++) d[l] = (mask >> l & 1) ? t[l] : d[l];
}

// For operations that are slow or may trap: active lanes only.
template <class D, class F>
inline void write_active_lanes(const Warp& w, D* d, F&& value) {
    for (u32 rest = w.mask; rest; rest &= rest - 1) {
        int l = __builtin_ctz(rest);
        d[l] = value(l);
    }
}

// Sets the active lanes' bits of a predicate.
inline void write_predicate(const Warp& w, Column d, u32 bits) {
    u32& p = w.predicate(d);
    p = (p & ~w.mask) | (bits & w.mask);
}

// One bit per lane.
template <class F>
[[gnu::always_inline]] inline u32 lane_bits(F&& holds) {
    alignas(32) s32 t[kWarp];
    for (int l = 0; l < kWarp; l++) t[l] = holds(l) ? -1 : 0;
    u32 bits = 0;
    for (int part = 0; part < 4; part++) {
        __m256 signs = _mm256_castsi256_ps(_mm256_load_si256(reinterpret_cast<const __m256i*>(t + 8 * part)));
        bits |= u32(_mm256_movemask_ps(signs)) << (8 * part);
    }
    return bits;
}

// Handlers from an operation: struct Op { template <class T> static T apply(T x, T y); }
template <class Op, class T>
void unary(Warp& w, const Inst& i) {
    const T* a = w.column<T>(i.a);
    write_lanes(w, w.column<T>(i.d), [=](int l) { return T(Op::apply(a[l])); });
}
template <class Op, class T>
void binary(Warp& w, const Inst& i) {
    const T *a = w.column<T>(i.a), *b = w.column<T>(i.b);
    write_lanes(w, w.column<T>(i.d), [=](int l) { return T(Op::apply(a[l], b[l])); });
}
template <class Op, class T>
void ternary(Warp& w, const Inst& i) {
    const T *a = w.column<T>(i.a), *b = w.column<T>(i.b), *c = w.column<T>(i.c);
    write_lanes(w, w.column<T>(i.d), [=](int l) { return T(Op::apply(a[l], b[l], c[l])); });
}
template <class Op, class T>
void unary_slow(Warp& w, const Inst& i) {
    const T* a = w.column<T>(i.a);
    write_active_lanes(w, w.column<T>(i.d), [=](int l) { return T(Op::apply(a[l])); });
}
template <class Op, class T>
void binary_slow(Warp& w, const Inst& i) {
    const T *a = w.column<T>(i.a), *b = w.column<T>(i.b);
    write_active_lanes(w, w.column<T>(i.d), [=](int l) { return T(Op::apply(a[l], b[l])); });
}

// An instruction with the usual operands d, a[, b[, c]] of one type.
inline void emit_same_type(Decoder& d, Handler run, Type type, Class kind, int sources) {
    if (!run) return d.unknown("type", nullptr);
    Inst i;
    i.run = run;
    i.kind = kind;
    i.d = d.write(0, type);
    i.a = d.read(1, type);
    if (sources > 1) i.b = d.read(2, type);
    if (sources > 2) i.c = d.read(3, type);
    d.emit(std::move(i));
}

// The handler for a type, out of those an operation has.
#define CUSIM_INTEGER_TYPES(X) X(U16, u16) X(S16, s16) X(U32, u32) X(S32, s32) X(U64, u64) X(S64, s64)
#define CUSIM_BIT_TYPES(X) X(B16, u16) X(B32, u32) X(B64, u64)

}  // namespace cusim
