// memory.cu: loads, stores, address spaces, atomics and reductions (PTX ISA 9.7.9, 9.7.13).
#include <algorithm>

#include "exact.h"

namespace {

__device__ u64 cells[16384];

// ---- atomics, one thread a cell: the old value is returned, the new one stored

// The new value, or a mark if the instruction did not return the old one. The cell holds a; b and c are
// operands.
#define ATOMIC(instruction, W, operands)                                                                 \
    instruction, [] __device__(const In& in) -> u64 {                                                    \
        __shared__ REG##W box[64];                                                                       \
        REG##W* cell = ATOMIC_SHARED ? &box[threadIdx.x]                                                 \
                                     : reinterpret_cast<REG##W*>(&cells[blockIdx.x * 64 + threadIdx.x]); \
        *cell = static_cast<REG##W>(in.a);                                                               \
        REG##W old;                                                                                      \
        u64 address = ATOMIC_SHARED ? __cvta_generic_to_shared(cell) : __cvta_generic_to_global(cell);   \
        asm volatile(instruction " %0, [%1], " operands ";"                                              \
                     : "=" CON##W(old)                                                                   \
                     : "l"(address), ARG(W, in.b), ARG(W, in.c)                                          \
                     : "memory");                                                                        \
        return old == static_cast<REG##W>(in.a) ? u64(*cell) : 0xbad0bad0bad0bad0;                       \
    }
const std::vector<u64> some32 = {0, 1, 5, 0x7fffffff, 0x80000000, 0xfffffffe, 0xffffffff, 0x12345678};
const std::vector<u64> some64 = {0, 1, 0xffffffff, 0x7fffffffffffffff, 1ull << 63, ~0ull, 0x123456789abcdef0};
const std::vector<u64> some_f32 = {0,          0x80000000, 0x3f800000, 0xbf800000, 0x33800000,
                                   0x7f7fffff, 0x7f800000, 0x7fc00000, 0x40490fdb};
const std::vector<u64> some_f64 = {
    0, 1ull << 63, 0x3ff0000000000000, 0xbff0000000000000, 0x3ca0000000000000, 0x7ff0000000000000, 1};

#define BOTH(op, W, operands, in, want, same) \
    table(                                    \
        ATOMIC("atom." SPACE "." op, W, operands), in, [](In i) { return u64(want); }, same);
#define ATOMIC_TABLES                                                                                   \
    auto p32 = pairs(some32, some32), p64 = pairs(some64, some64), pf = pairs(some_f32, some_f32);      \
    BOTH("add.u32", 32, "%2", p32, u32(i.a + i.b), same_bits)                                           \
    BOTH("add.s32", 32, "%2", p32, u32(i.a + i.b), same_bits)                                           \
    BOTH("add.u64", 64, "%2", p64, i.a + i.b, same_bits)                                                \
    BOTH("add.f32", 32, "%2", pf, added(i.a, i.b, f32, RN), same_f32)                                   \
    BOTH("add.f64", 64, "%2", pairs(some_f64, some_f64), added(i.a, i.b, f64, RN), same_f64)            \
    BOTH("min.u32", 32, "%2", p32, std::min(u32(i.a), u32(i.b)), same_bits)                             \
    BOTH("max.u32", 32, "%2", p32, std::max(u32(i.a), u32(i.b)), same_bits)                             \
    BOTH("min.s32", 32, "%2", p32, u32(std::min(i32(i.a), i32(i.b))), same_bits)                        \
    BOTH("max.s32", 32, "%2", p32, u32(std::max(i32(i.a), i32(i.b))), same_bits)                        \
    BOTH("min.u64", 64, "%2", p64, std::min(i.a, i.b), same_bits)                                       \
    BOTH("max.s64", 64, "%2", p64, std::max(i64(i.a), i64(i.b)), same_bits)                             \
    BOTH("and.b32", 32, "%2", p32, i.a& i.b, same_bits)                                                 \
    BOTH("or.b32", 32, "%2", p32, i.a | i.b, same_bits)                                                 \
    BOTH("xor.b64", 64, "%2", p64, i.a ^ i.b, same_bits)                                                \
    BOTH("exch.b32", 32, "%2", p32, i.b, same_bits)                                                     \
    BOTH("exch.b64", 64, "%2", p64, i.b, same_bits)                                                     \
    BOTH("cas.b32", 32, "%2, %3", triples(some32, some32, {7}), i.a == i.b ? i.c : i.a, same_bits)      \
    BOTH("cas.b64", 64, "%2, %3", triples(some64, some64, {7}), i.a == i.b ? i.c : i.a, same_bits)      \
    BOTH("inc.u32", 32, "%2", p32, i.a >= i.b ? 0 : i.a + 1, same_bits)                                 \
    BOTH("dec.u32", 32, "%2", p32, i.a == 0 || i.a > i.b ? i.b : i.a - 1, same_bits)                    \
    BOTH("cas.b16", 16, "%2, %3", triples({0, 7, 0xffff}, {0, 7, 0xffff}, {5}), i.a == i.b ? i.c : i.a, \
         same_bits)                                                                                     \
    BOTH("add.noftz.f16", 16, "%2",                                                                     \
         pairs({0, 0x3c00, 0xbc01, 0x7bff, 1, 0x7c00}, {0x8000, 0x3c00, 1, 0x7bff}),                    \
         added(i.a, i.b, f16, RN), same_f16)                                                            \
    BOTH("add.noftz.f16x2", 32, "%2", noise32(100),                                                     \
         added(i.a >> 16, i.b >> 16, f16, RN) << 16 | added(i.a & 0xffff, i.b & 0xffff, f16, RN),       \
         same_f16x2)

std::vector<In> noise32(int n) {
    std::vector<In> in = noise(n);
    for (In& i : in) i = {u32(i.a), u32(i.b)};
    return in;
}

#define SPACE "global"
#define ATOMIC_SHARED false
void global_atomics() {
    ATOMIC_TABLES
    // on global memory add.f32 flushes subnormals, on shared memory it does not
    BOTH("add.f32", 32, "%2", (std::vector<In>{{1, 2}, {0x00800000, 0x80000001}, {0x007fffff, 0x3f800000}}),
         flushed(added(flushed(i.a, f32), flushed(i.b, f32), f32, RN), f32), same_f32)
    BOTH("relaxed.gpu.add.u32", 32, "%2", p32, u32(i.a + i.b), same_bits)
    BOTH("acq_rel.sys.exch.b32", 32, "%2", p32, i.b, same_bits)
    BOTH("acquire.cta.cas.b32", 32, "%2, %3", triples(some32, some32, {7}), i.a == i.b ? i.c : i.a, same_bits)
}
#undef SPACE
#undef ATOMIC_SHARED
#define SPACE "shared"
#define ATOMIC_SHARED true
void shared_atomics() {
    ATOMIC_TABLES
    BOTH("add.f32", 32, "%2", (std::vector<In>{{1, 2}, {0x00800000, 0x80000001}}), added(i.a, i.b, f32, RN),
         same_f32)
    BOTH("cta.add.u32", 32, "%2", p32, u32(i.a + i.b), same_bits)
}
#undef SPACE
#undef ATOMIC_SHARED

// ---- contention

enum Counter { Add, Distinct, Min, Max, Or, Xor, Inc, Cas, FloatAdd, LongAdd, Red, RedMax, Counters };

__global__ void contend(u64* c, u32* returned) {
    u32 t = blockIdx.x * blockDim.x + threadIdx.x;
    __shared__ u32 sum;
    if (threadIdx.x == 0) sum = 0;
    __syncthreads();
    atomicAdd(&sum, t);
    returned[t] = atomicAdd(reinterpret_cast<u32*>(&c[Distinct]), 1u);
    atomicMin(reinterpret_cast<int*>(&c[Min]), -int(t * 37 % 1001));
    atomicMax(reinterpret_cast<u32*>(&c[Max]), t * 37 % 1001);
    atomicOr(reinterpret_cast<u32*>(&c[Or]), 1u << t % 32);
    atomicXor(reinterpret_cast<u32*>(&c[Xor]), t);
    atomicInc(reinterpret_cast<u32*>(&c[Inc]), 99);
    atomicAdd(reinterpret_cast<float*>(&c[FloatAdd]), float(t % 8));
    atomicAdd(reinterpret_cast<unsigned long long*>(&c[LongAdd]), 1ull << 31);
    u32* cell = reinterpret_cast<u32*>(&c[Cas]);
    for (u32 seen = *reinterpret_cast<volatile u32*>(cell);;) {
        u32 was = atomicCAS(cell, seen, seen + 3);
        if (was == seen) break;
        seen = was;
    }
    asm volatile("red.global.add.u32 [%0], %1;" ::"l"(&c[Red]), "r"(t) : "memory");
    asm volatile("red.relaxed.gpu.global.max.s32 [%0], %1;" ::"l"(&c[RedMax]), "r"(int(t) - 5) : "memory");
    __syncthreads();
    if (threadIdx.x == 0) atomicAdd(reinterpret_cast<u32*>(&c[Add]), sum);
}
void contention() {
    const u32 n = 4 * 96;
    Device<u64> c{size_t(Counters)};
    Device<u32> r{size_t(n)};
    contend<<<4, 96>>>(c.data, r.data);
    CUDA(cudaDeviceSynchronize());
    std::vector<u64> got = c.host();
    std::vector<u32> returned = r.host();
    std::sort(returned.begin(), returned.end());
    u32 low = 0, high = 0, bits = 0;
    for (u32 t = 0; t < n; t++) {
        expect_equal("atom.add.u32 returns every count once", std::to_string(t), returned[t], t);
        low = std::max(low, t * 37 % 1001), high = std::max(high, t * 37 % 1001), bits ^= t;
    }
    expect_equal("atom.shared.add.u32, 4 blocks", "", got[Add], n * (n - 1) / 2);
    expect_equal("atom.min.s32 of many", "", got[Min], u32(-int(low)));
    expect_equal("atom.max.u32 of many", "", got[Max], high);
    expect_equal("atom.or.b32 of many", "", got[Or], 0xffffffff);
    expect_equal("atom.xor.b32 of many", "", got[Xor], bits);
    expect_equal("atom.inc.u32 wraps at 99", "", got[Inc], n % 100);
    expect_equal("atom.add.f32 of many", "", got[FloatAdd], bits_of(n / 8 * 28));
    expect_equal("atom.add.u64 of many", "", got[LongAdd], u64(n) << 31);
    expect_equal("atom.cas.b32 loop", "", got[Cas], 3 * n);
    expect_equal("red.global.add.u32", "", got[Red], n * (n - 1) / 2);
    expect_equal("red.global.max.s32", "", got[RedMax], n - 6);
}

// ---- loads and stores

struct alignas(16) Bytes {
    u8 b[16];
};
// Loads 16 bytes in several ways and sums what it got, weighted by position.
#define LOAD(instruction, W, list, ...)                                           \
    {                                                                             \
        REG##W v[4] = {0, 0, 0, 0};                                               \
        asm volatile(instruction " " list ";" : __VA_ARGS__ : "l"(p) : "memory"); \
        u64 x = 0;                                                                \
        for (int k = 0; k < 4; k++) x = x * 1000003 + v[k];                       \
        out[n++] = x;                                                             \
    }
__global__ void load_forms(const Bytes* in, u64* out) {
    const Bytes* p = in;
    int n = 0;
#define TWO(W) "=" CON##W(v[0]), "=" CON##W(v[1])
#define FOUR(W) TWO(W), "=" CON##W(v[2]), "=" CON##W(v[3])
    LOAD("ld.global.u32", 32, "%0, [%1]", "=r"(v[0]))
    LOAD("ld.global.u8", 32, "%0, [%1+1]", "=r"(v[0]))
    LOAD("ld.global.s8", 32, "%0, [%1+1]", "=r"(v[0]))
    LOAD("ld.global.s16", 32, "%0, [%1+2]", "=r"(v[0]))
    LOAD("ld.global.u16", 32, "%0, [%1+2]", "=r"(v[0]))
    LOAD("ld.global.s32", 64, "%0, [%1+4]", "=l"(v[0]))
    LOAD("ld.global.u64", 64, "%0, [%1+8]", "=l"(v[0]))
    LOAD("ld.global.v2.u32", 32, "{%0, %1}, [%2+8]", TWO(32))
    LOAD("ld.global.v4.u32", 32, "{%0, %1, %2, %3}, [%4]", FOUR(32))
    LOAD("ld.global.v4.u8", 32, "{%0, %1, %2, %3}, [%4+4]", FOUR(32))
    LOAD("ld.global.v4.s8", 32, "{%0, %1, %2, %3}, [%4+4]", FOUR(32))
    LOAD("ld.global.v2.u16", 16, "{%0, %1}, [%2+4]", TWO(16))
    LOAD("ld.global.v4.u16", 16, "{%0, %1, %2, %3}, [%4+8]", FOUR(16))
    LOAD("ld.global.v2.u64", 64, "{%0, %1}, [%2]", TWO(64))
    LOAD("ld.global.nc.v4.f32", 32, "{%0, %1, %2, %3}, [%4]", FOUR(32))
    LOAD("ld.global.nc.L1::no_allocate.v4.b32", 32, "{%0, %1, %2, %3}, [%4]", FOUR(32))
    LOAD("ld.global.L1::evict_last.L2::128B.v4.u32", 32, "{%0, %1, %2, %3}, [%4]", FOUR(32))
    LOAD("ld.global.cg.v2.f64", 64, "{%0, %1}, [%2]", TWO(64))
    LOAD("ld.global.cs.u32", 32, "%0, [%1]", "=r"(v[0]))
    LOAD("ld.global.ca.b16", 16, "%0, [%1+6]", "=h"(v[0]))
    LOAD("ld.volatile.global.u32", 32, "%0, [%1]", "=r"(v[0]))
    LOAD("ld.relaxed.gpu.global.u32", 32, "%0, [%1]", "=r"(v[0]))
    LOAD("ld.acquire.sys.global.u32", 32, "%0, [%1]", "=r"(v[0]))
    LOAD("ld.u32", 32, "%0, [%1+12]", "=r"(v[0]))
    p = in + 1;
    LOAD("ld.global.u32", 32, "%0, [%1+-4]", "=r"(v[0]))
}
void loads() {
    Bytes data;
    for (int k = 0; k < 16; k++) data.b[k] = u8(0x71 + 29 * k);
    auto part = [&](int at, int bytes, bool is_signed) {
        u64 v = 0;
        for (int k = bytes; k-- > 0;) v = v << 8 | data.b[at + k];
        if (is_signed && bytes < 8 && v >> (8 * bytes - 1)) v |= ~0ull << 8 * bytes;
        return v;
    };
    auto many = [&](int at, int bytes, int count, bool is_signed = false, int width = 64) {
        u64 x = 0, mask = width == 64 ? ~0ull : (1ull << width) - 1;
        for (int k = 0; k < 4; k++)
            x = x * 1000003 + (k < count ? part(at + bytes * k, bytes, is_signed) & mask : 0);
        return x;
    };
    struct Want {
        const char* name;
        u64 value;
    };
    const std::vector<Want> wants = {{"ld.global.u32", many(0, 4, 1)},
                                     {"ld.global.u8", many(1, 1, 1)},
                                     {"ld.global.s8", many(1, 1, 1, true, 32)},
                                     {"ld.global.s16", many(2, 2, 1, true, 32)},
                                     {"ld.global.u16", many(2, 2, 1)},
                                     {"ld.global.s32 into 64 bits", many(4, 4, 1, true)},
                                     {"ld.global.u64", many(8, 8, 1)},
                                     {"ld.global.v2.u32", many(8, 4, 2)},
                                     {"ld.global.v4.u32", many(0, 4, 4)},
                                     {"ld.global.v4.u8", many(4, 1, 4)},
                                     {"ld.global.v4.s8", many(4, 1, 4, true, 32)},
                                     {"ld.global.v2.u16", many(4, 2, 2)},
                                     {"ld.global.v4.u16", many(8, 2, 4)},
                                     {"ld.global.v2.u64", many(0, 8, 2)},
                                     {"ld.global.nc.v4.f32", many(0, 4, 4)},
                                     {"ld.global.nc.L1::no_allocate.v4.b32", many(0, 4, 4)},
                                     {"ld.global.L1::evict_last.L2::128B.v4.u32", many(0, 4, 4)},
                                     {"ld.global.cg.v2.f64", many(0, 8, 2)},
                                     {"ld.global.cs.u32", many(0, 4, 1)},
                                     {"ld.global.ca.b16", many(6, 2, 1)},
                                     {"ld.volatile.global.u32", many(0, 4, 1)},
                                     {"ld.relaxed.gpu.global.u32", many(0, 4, 1)},
                                     {"ld.acquire.sys.global.u32", many(0, 4, 1)},
                                     {"ld.u32 (generic)", many(12, 4, 1)},
                                     {"ld.global.u32 at a negative offset", many(12, 4, 1)}};
    Device<Bytes> in(std::vector<Bytes>{data, Bytes{}});
    Device<u64> out(wants.size());
    load_forms<<<1, 1>>>(in.data, out.data);
    CUDA(cudaDeviceSynchronize());
    std::vector<u64> got = out.host();
    for (size_t k = 0; k < wants.size(); k++) expect_equal(wants[k].name, "", got[k], wants[k].value);
}

// Stores into 32-byte rows filled with 0xee; the untouched bytes must stay.
__global__ void store_forms(Bytes* out) {
    const u32 a = 0x04030201, b = 0x08070605, c = 0x0c0b0a09, d = 0x100f0e0d;
    const u64 ab = u64(b) << 32 | a, cd = u64(d) << 32 | c;
    u64 p = reinterpret_cast<u64>(out);
    asm volatile("st.global.u8 [%0+3], %1;" ::"l"(p), "r"(a) : "memory");
    p += 16;
    asm volatile("st.global.u16 [%0+6], %1;" ::"l"(p), "h"(u16(a)) : "memory");
    p += 16;
    asm volatile("st.global.u32 [%0+8], %1;" ::"l"(p), "r"(a) : "memory");
    p += 16;
    asm volatile("st.global.v2.u32 [%0+8], {%1, %2};" ::"l"(p), "r"(a), "r"(b) : "memory");
    p += 16;
    asm volatile("st.global.v4.u32 [%0], {%1, %2, %3, %4};" ::"l"(p), "r"(a), "r"(b), "r"(c), "r"(d)
                 : "memory");
    p += 16;
    asm volatile("st.global.v4.u8 [%0+4], {%1, %2, %3, %4};" ::"l"(p), "r"(a), "r"(b), "r"(c), "r"(d)
                 : "memory");
    p += 16;
    asm volatile("st.global.cs.v2.b64 [%0], {%1, %2};" ::"l"(p), "l"(ab), "l"(cd) : "memory");
    p += 16;
    asm volatile("st.global.wt.u32 [%0+4], %1;" ::"l"(p), "r"(c) : "memory");
    p += 16;
    asm volatile("st.release.gpu.global.u32 [%0+4], %1;" ::"l"(p), "r"(c) : "memory");
    p += 16;
    asm volatile("st.global.v4.u16 [%0+8], {%1, %2, %1, %2};" ::"l"(p), "h"(u16(a)), "h"(u16(b)) : "memory");
    p += 16;
    asm volatile("st.global.v2.f32 [%0], {%1, %2};" ::"l"(p), "f"(1.0f), "f"(-2.0f) : "memory");
}
void stores() {
    struct Want {
        const char* name;
        int at;
        std::vector<u8> bytes;
    };
    const std::vector<Want> wants = {
        {"st.global.u8", 3, {1}},
        {"st.global.u16", 6, {1, 2}},
        {"st.global.u32", 8, {1, 2, 3, 4}},
        {"st.global.v2.u32", 8, {1, 2, 3, 4, 5, 6, 7, 8}},
        {"st.global.v4.u32", 0, {1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11, 12, 13, 14, 15, 16}},
        {"st.global.v4.u8", 4, {1, 5, 9, 13}},
        {"st.global.cs.v2.b64", 0, {1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11, 12, 13, 14, 15, 16}},
        {"st.global.wt.u32", 4, {9, 10, 11, 12}},
        {"st.release.gpu.global.u32", 4, {9, 10, 11, 12}},
        {"st.global.v4.u16", 8, {1, 2, 5, 6, 1, 2, 5, 6}},
        {"st.global.v2.f32", 0, {0, 0, 0x80, 0x3f, 0, 0, 0, 0xc0}}};
    Bytes blank;
    std::memset(&blank, 0xee, sizeof blank);
    Device<Bytes> out(std::vector<Bytes>(wants.size(), blank));
    store_forms<<<1, 1>>>(out.data);
    CUDA(cudaDeviceSynchronize());
    std::vector<Bytes> got = out.host();
    for (size_t k = 0; k < wants.size(); k++) {
        Bytes want = blank;
        std::copy(wants[k].bytes.begin(), wants[k].bytes.end(), want.b + wants[k].at);
        for (int i = 0; i < 16; i++)
            expect_equal(wants[k].name, "byte " + std::to_string(i), got[k].b[i], want.b[i]);
    }
}

// ---- address spaces

__constant__ u32 constants[8] = {3, 1, 4, 1, 5, 9, 2, 6};
__device__ u32 symbol = 77;
struct Parameters {
    u8 a;
    u16 b;
    u32 c;
    u64 d;
    float e[3];
};

__device__ u32 spaces(const void* p) {
    u32 s = 0;
#define IS(space, bit)                                                                                      \
    {                                                                                                       \
        u32 d;                                                                                              \
        asm volatile("{.reg .pred q; isspacep." space " q, %1; selp.u32 %0, 1, 0, q;}" : "=r"(d) : "l"(p)); \
        s |= d << bit;                                                                                      \
    }
    IS("global", 0)
    IS("shared", 1)
    IS("local", 2)
    IS("const", 3)
#undef IS
    return s;
}
__device__ __noinline__ u32 through_generic(volatile u32* p) {
    return *p += 1;
}

__global__ void address_spaces(u64* out, Parameters q) {
    __shared__ u32 box[4];
    extern __shared__ u32 dynamic[];
    u32 own[4];
    for (int k = 0; k < 4; k++) own[k] = k, box[k] = 10 * k, dynamic[k] = 100 * k;
    out[0] = spaces(&symbol);
    out[1] = spaces(&box[1]);
    out[2] = spaces(&own[symbol % 4]);
    out[3] = spaces(&constants[2]);
    out[4] = through_generic(&own[1]);
    out[5] = through_generic(&box[2]);
    out[6] = through_generic(&dynamic[3]);
    out[7] = through_generic(&symbol);
    u64 there, back;
    asm volatile("cvta.to.shared.u64 %0, %2;\ncvta.shared.u64 %1, %0;"
                 : "=&l"(there), "=l"(back)
                 : "l"(&box[3]));
    out[8] = back == reinterpret_cast<u64>(&box[3]);
    u32 v;
    asm volatile("ld.shared.u32 %0, [%1];" : "=r"(v) : "l"(there) : "memory");
    out[9] = v;
    asm volatile("cvta.to.global.u64 %0, %2;\ncvta.global.u64 %1, %0;"
                 : "=&l"(there), "=l"(back)
                 : "l"(&symbol));
    out[10] = back == reinterpret_cast<u64>(&symbol);
    asm volatile("{.reg .u64 a; cvta.to.const.u64 a, %1; ld.const.u32 %0, [a+4];}"
                 : "=r"(v)
                 : "l"(&constants[4]));
    out[11] = v;
    out[12] = q.a + q.b + q.c + q.d + u64(q.e[0] + q.e[1] + q.e[2]);
    out[13] = constants[q.a % 8];
    asm volatile("{.reg .b32 t; st.shared.v2.u32 [%1], {%2, %3};\nld.shared.v2.u32 {%0, t}, [%1];}"
                 : "=r"(v)
                 : "r"(u32(__cvta_generic_to_shared(box))), "r"(5), "r"(6)
                 : "memory");
    out[14] = v * 100 + box[1];
    asm volatile(
        "prefetch.global.L2 [%0];\nmembar.gl;\nfence.acq_rel.gpu;\nfence.sc.sys;\nmembar.cta;\nnanosleep.u32 "
        "1;" ::"l"(&symbol)
        : "memory");
    out[15] = 1;
}
void address() {
    Device<u64> out(16);
    u32 set = 1000;
    CUDA(cudaMemcpyToSymbol(symbol, &set, 4));
    address_spaces<<<1, 1, 64>>>(out.data, Parameters{1, 2, 3, 4, {0.5f, 0.25f, 0.25f}});
    CUDA(cudaDeviceSynchronize());
    std::vector<u64> got = out.host();
    const u64 want[] = {1, 2, 4, 0, 2, 21, 301, 1001, 1, 30, 1, 9, 11, 1, 506, 1};
    const char* names[] = {"isspacep of a global",
                           "isspacep of shared memory",
                           "isspacep of local memory",
                           "isspacep of a constant",
                           "generic access to local",
                           "generic access to shared",
                           "generic access to dynamic shared",
                           "generic access to global",
                           "cvta.shared",
                           "ld.shared after cvta.to.shared",
                           "cvta.global",
                           "ld.const after cvta.to.const",
                           "kernel parameters",
                           "ld.const at a run-time index",
                           "st.shared.v2, ld.shared.v2",
                           "prefetch, fences, nanosleep"};
    for (int k = 0; k < 16; k++)
        if (k == 3)
            expect((got[3] & 6) == 0, names[3], "", got[3], 8);
        else
            expect_equal(names[k], "", got[size_t(k)], want[k]);
    CUDA(cudaMemcpyFromSymbol(&set, symbol, 4));
    expect_equal("cudaMemcpyFromSymbol", "", set, 1001);
}

}  // namespace

int main() {
    global_atomics();
    shared_atomics();
    contention();
    loads();
    stores();
    address();
    return summary("memory");
}
