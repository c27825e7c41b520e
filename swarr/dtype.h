// dtype.h: the number formats of files: their names and sizes, conversions one by one, and of whole arrays at the
// speed of memory, where NaN and Inf are noticed in the same pass.
#pragma once
#ifdef __SSE2__
#include <immintrin.h>
#endif

#include <cstdint>
#include <cstring>

enum class Dtype { F32, BF16, F16, F64, I64, I32, I16, I8, U64, U32, U16, U8, BOOL, F8_E4M3, F8_E5M2 };

struct DtypeRow {
    Dtype dtype;
    const char* name;
    int bytes;
};
inline constexpr DtypeRow dtype_table[] = {
    {Dtype::F32, "F32", 4},   {Dtype::BF16, "BF16", 2},       {Dtype::F16, "F16", 2},
    {Dtype::F64, "F64", 8},   {Dtype::I64, "I64", 8},         {Dtype::I32, "I32", 4},
    {Dtype::I16, "I16", 2},   {Dtype::I8, "I8", 1},           {Dtype::U64, "U64", 8},
    {Dtype::U32, "U32", 4},   {Dtype::U16, "U16", 2},         {Dtype::U8, "U8", 1},
    {Dtype::BOOL, "BOOL", 1}, {Dtype::F8_E4M3, "F8_E4M3", 1}, {Dtype::F8_E5M2, "F8_E5M2", 1},
};
inline const char* dtype_name(Dtype dtype) {
    return dtype_table[int(dtype)].name;
}
inline int dtype_bytes(Dtype dtype) {
    return dtype_table[int(dtype)].bytes;
}

inline uint32_t float_bits(float x) {
    uint32_t bits;
    std::memcpy(&bits, &x, 4);
    return bits;
}
inline float float_from_bits(uint32_t bits) {
    float x;
    std::memcpy(&x, &bits, 4);
    return x;
}

inline float float_from_bf16(uint16_t h) {
    return float_from_bits(uint32_t(h) << 16);
}

// Round to nearest, ties to even; too large becomes infinity, NaN stays NaN.
inline uint16_t bf16_from_float(float x) {
    uint32_t bits = float_bits(x);
    if ((bits & 0x7fffffff) > 0x7f800000) return uint16_t(bits >> 16 | 0x40);
    return uint16_t((bits + 0x7fff + (bits >> 16 & 1)) >> 16);
}

inline float float_from_f16(uint16_t h) {
    // The half's exponent and mantissa, read as a float, are 2^112 too small; this is exact for subnormals
    // too.
    uint32_t magnitude = float_bits(float_from_bits(uint32_t(h & 0x7fff) << 13) * 0x1p112f);
    if ((h & 0x7c00) == 0x7c00) magnitude |= 0x7f800000;
    return float_from_bits(magnitude | uint32_t(h & 0x8000) << 16);
}

// Round to nearest, ties to even; too large becomes infinity, NaN stays NaN.
inline uint16_t f16_from_float(float x) {
    uint32_t bits = float_bits(x), sign = bits >> 16 & 0x8000, magnitude = bits & 0x7fffffff;
    if (magnitude >= 0x47800000) return uint16_t(sign | (magnitude > 0x7f800000 ? 0x7e00 : 0x7c00));
    // Below 2^-14 the half's spacing is 2^-24, which is the float's spacing in [0.5, 1): let the adder round.
    if (magnitude < 0x38800000)
        return uint16_t(sign | (float_bits(float_from_bits(magnitude) + 0.5f) - 0x3f000000));
    return uint16_t(sign | (magnitude + 0xc8000fff + (magnitude >> 13 & 1)) >> 13);
}

// Past the caches where the machine can: weights are larger than they are, and a plain store first reads the
// line that it overwrites. finish_stores() must follow before another thread reads.
template <class T>
void store_past_caches(T* to, const T* from, int64_t n) {
    int64_t i = 0;
#ifdef __SSE2__
    const int64_t line = 64 / int64_t(sizeof(T));
    for (; i < n && uintptr_t(to + i) % 64 != 0; i++) to[i] = from[i];
    for (; i + line <= n; i += line) {
#ifdef __AVX512F__
        _mm512_stream_si512(reinterpret_cast<__m512i*>(to + i), _mm512_loadu_si512(from + i));
#else
        for (int64_t j = i; j < i + line; j += line / 4)
            _mm_stream_si128(reinterpret_cast<__m128i*>(to + j),
                             _mm_loadu_si128(reinterpret_cast<const __m128i*>(from + j)));
#endif
    }
#endif
    for (; i < n; i++) to[i] = from[i];
}
inline void finish_stores() {
#ifdef __SSE2__
    _mm_sfence();
#endif
}

// from (n numbers of `dtype`, any alignment) -> to (n). Returns false if one of them is NaN or infinite.
template <class T>
bool convert_numbers(Dtype dtype, const unsigned char* from, T* to, int64_t n) {
    uint32_t worst = 0;
    if (dtype == Dtype::F32) {
#pragma omp simd reduction(max : worst)
        for (int64_t i = 0; i < n; i++) {
            uint32_t bits;
            std::memcpy(&bits, from + 4 * i, 4);
            uint32_t magnitude = bits & 0x7fffffff;
            worst = worst > magnitude ? worst : magnitude;
            to[i] = T(float_from_bits(bits));
        }
    } else if (dtype == Dtype::BF16) {
#pragma omp simd reduction(max : worst)
        for (int64_t i = 0; i < n; i++) {
            uint16_t h;
            std::memcpy(&h, from + 2 * i, 2);
            uint32_t magnitude = uint32_t(h & 0x7fff) << 16;
            worst = worst > magnitude ? worst : magnitude;
            to[i] = T(float_from_bf16(h));
        }
    } else {
#pragma omp simd reduction(max : worst)
        for (int64_t i = 0; i < n; i++) {
            uint16_t h;
            std::memcpy(&h, from + 2 * i, 2);
            float x = float_from_f16(h);
            uint32_t magnitude = float_bits(x) & 0x7fffffff;
            worst = worst > magnitude ? worst : magnitude;
            to[i] = T(x);
        }
    }
    return worst < 0x7f800000;
}
