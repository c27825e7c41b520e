// hopper.cu: what PTX has from sm_90 on: stmatrix, elect, bf16 arithmetic, comparison, conversion and
// atomics.
#include <algorithm>

#include "exact.h"

namespace {

// ---- stmatrix: the opposite of ldmatrix

__host__ __device__ int order(int row) {
    return (row * 11 + 7) & 31;
}

// Lane l, register m holds elements 2 (l % 4) and its neighbour of row l / 4 of matrix m, valued 100 m + 10
// row + column.
template <int count, bool trans>
__global__ void store_matrices(u16* out) {
    __shared__ alignas(16) u16 tile[32 * 8];
    int lane = threadIdx.x, rows = 8 * count;
    for (int i = lane; i < 256; i += 32) tile[i] = 9999;
    __syncthreads();
    u32 r[4];
    for (int m = 0; m < 4; m++) {
        u32 first = u32(100 * m + 10 * (lane / 4) + lane % 4 * 2);
        r[m] = first | (first + 1) << 16;
    }
    u32 address = u32(__cvta_generic_to_shared(&tile[8 * order(lane % rows)]));
    if (count == 1 && !trans)
        asm volatile("stmatrix.sync.aligned.m8n8.x1.shared.b16 [%0], {%1};" ::"r"(address), "r"(r[0])
                     : "memory");
    if (count == 1 && trans)
        asm volatile("stmatrix.sync.aligned.m8n8.x1.trans.shared.b16 [%0], {%1};" ::"r"(address), "r"(r[0])
                     : "memory");
    if (count == 2 && !trans)
        asm volatile("stmatrix.sync.aligned.m8n8.x2.shared.b16 [%0], {%1, %2};" ::"r"(address), "r"(r[0]),
                     "r"(r[1])
                     : "memory");
    if (count == 2 && trans)
        asm volatile("stmatrix.sync.aligned.m8n8.x2.trans.shared.b16 [%0], {%1, %2};" ::"r"(address),
                     "r"(r[0]), "r"(r[1])
                     : "memory");
    if (count == 4 && !trans)
        asm volatile("stmatrix.sync.aligned.m8n8.x4.shared.b16 [%0], {%1, %2, %3, %4};" ::"r"(address),
                     "r"(r[0]), "r"(r[1]), "r"(r[2]), "r"(r[3])
                     : "memory");
    if (count == 4 && trans)
        asm volatile("stmatrix.sync.aligned.m8n8.x4.trans.shared.b16 [%0], {%1, %2, %3, %4};" ::"r"(address),
                     "r"(r[0]), "r"(r[1]), "r"(r[2]), "r"(r[3])
                     : "memory");
    __syncthreads();
    for (int i = lane; i < 256; i += 32) out[i] = tile[i];
}
template <int count, bool trans>
void stmatrix() {
    Device<u16> out(256);
    store_matrices<count, trans><<<1, 32>>>(out.data);
    CUDA(cudaDeviceSynchronize());
    std::vector<u16> got = out.host(), want(256, 9999);
    for (int m = 0; m < count; m++)
        for (int r = 0; r < 8; r++)
            for (int c = 0; c < 8; c++)
                want[size_t(8 * order(8 * m + r) + c)] = u16(100 * m + (trans ? 10 * c + r : 10 * r + c));
    for (int i = 0; i < 256; i++)
        expect_equal("stmatrix.x" + std::to_string(count) + (trans ? ".trans" : ""),
                     "element " + std::to_string(i), got[size_t(i)], want[size_t(i)]);
}

// ---- bf16

const std::vector<u64> values = {0,      0x8000, 1,      0x8001, 0x007f, 0x807f, 0x0080,
                                 0x3f80, 0xbf80, 0x3f81, 0x3f7f, 0x3b80, 0x4049, 0x4300,
                                 0xc301, 0x7f7f, 0xff7f, 0x7f80, 0xff80, 0x7fc0};

u64 negated(u64 v) {
    return bf16.nan(v) ? v : v ^ 0x8000;
}

void arithmetic() {
    auto p = pairs(values, values);
    table(
        OP2("add.rn.bf16", 16, 16, 16), p, [](In i) { return added(i.a, i.b, bf16, RN); }, same_bf16);
    table(
        OP2("sub.bf16", 16, 16, 16), p, [](In i) { return added(i.a, negated(i.b), bf16, RN); }, same_bf16);
    table(
        OP2("mul.rn.bf16", 16, 16, 16), p, [](In i) { return multiplied(i.a, i.b, bf16, RN); }, same_bf16);
    std::vector<In> both = noise(200);
    for (In& i : both) i = {u32(i.a), u32(i.b)};
    table(
        OP2("add.rn.bf16x2", 32, 32, 32), both,
        [](In i) {
            return added(i.a >> 16, i.b >> 16, bf16, RN) << 16 | added(i.a & 0xffff, i.b & 0xffff, bf16, RN);
        },
        same_bf16x2);
    table(
        OP2("mul.bf16x2", 32, 32, 32), both,
        [](In i) {
            return multiplied(i.a >> 16, i.b >> 16, bf16, RN) << 16 |
                   multiplied(i.a & 0xffff, i.b & 0xffff, bf16, RN);
        },
        same_bf16x2);
    table(
        OP2("sub.rn.bf16x2", 32, 32, 32), both,
        [](In i) {
            return added(i.a >> 16, negated(i.b >> 16), bf16, RN) << 16 |
                   added(i.a & 0xffff, negated(i.b & 0xffff), bf16, RN);
        },
        same_bf16x2);
    table(
        CODE("setp.lt.bf16", "{.reg .pred p; setp.lt.bf16 p, %1, %2; selp.u32 %0, 1, 0, p;}", 32, 16, 16, 32),
        p, [](In i) { return u64(value(i.a, bf16) < value(i.b, bf16)); });
    table(CODE("setp.neu.bf16", "{.reg .pred p; setp.neu.bf16 p, %1, %2; selp.u32 %0, 1, 0, p;}", 32, 16, 16,
               32),
          p, [](In i) { return u64(!(value(i.a, bf16) == value(i.b, bf16))); });
    // .xorsign.abs (sm_86): the larger magnitude with the product's sign
    table(
        OP2("max.xorsign.abs.f32", 32, 32, 32),
        pairs({0, 0x80000000, 0x3f800000, 0xc0000000, 0x7f800000, 0xff800000, 1},
              {0, 0xbf800000, 0x40400000, 0x80000001}),
        [](In i) {
            return smaller(i.a & 0x7fffffff, i.b & 0x7fffffff, f32, false, true) | ((i.a ^ i.b) & 0x80000000);
        },
        same_f32);
    table(OP1("ex2.approx.ftz.bf16", 16, 16),
          {{{0x4040}, 0x4100}, {{0x0000}, 0x3f80}, {{0xff80}, 0}, {{0x7f80}, 0x7f80}, {{0xbf80}, 0x3f00}});
    table(OP1("tanh.approx.bf16", 16, 16),
          {{{0}, 0}, {{0x8000}, 0x8000}, {{0x7f80}, 0x3f80}, {{0xff80}, 0xbf80}});
}

void packed() {
    std::vector<In> in = noise(100);
    for (In& i : in) i = {u32(i.a), u32(i.b)};
    auto halves = [](In i, auto f) {
        return u64(u16(f(u16(i.a >> 16), u16(i.b >> 16)))) << 16 | u16(f(u16(i.a), u16(i.b)));
    };
    table(OP2("add.u16x2", 32, 32, 32), in,
          [&](In i) { return halves(i, [](u16 a, u16 b) { return a + b; }); });
    table(OP2("min.s16x2", 32, 32, 32), in,
          [&](In i) { return halves(i, [](u16 a, u16 b) { return i16(a) < i16(b) ? a : b; }); });
    table(OP2("max.u16x2", 32, 32, 32), in,
          [&](In i) { return halves(i, [](u16 a, u16 b) { return a > b ? a : b; }); });
    table(OP2("set.lt.bf16x2.bf16x2", 32, 32, 32),
          {{{0x3f804000, 0x40003f80}, 0x3f800000}, {{0x7fc03f80, 0x3f804000}, 0x00003f80}});
    table(OP1("ex2.approx.ftz.bf16x2", 32, 32),
          {{{0x40403f80, 0}, 0x41004000}, {{0xff800000, 0}, 0x00003f80}});
    table(OP1("tanh.approx.bf16x2", 32, 32), {{{0x7f80ff80, 0}, 0x3f80bf80}, {{0x80000000, 0}, 0x80000000}});
}

void conversion() {
    std::vector<u64> all;
    for (u64 v = 0; v < 0x10000; v += 11) all.push_back(v);
    all.insert(all.end(), values.begin(), values.end());
    auto s = singles(all);
    table(
        OP1("cvt.f32.bf16", 32, 16), s, [](In i) { return rounded(exact(i.a, bf16), f32, RN); }, same_f32);
    table(
        OP1("cvt.rn.f16.bf16", 16, 16), s, [](In i) { return rounded(exact(i.a, bf16), f16, RN); }, same_f16);
    table(
        OP1("cvt.rn.bf16.f16", 16, 16), s, [](In i) { return rounded(exact(i.a, f16), bf16, RN); },
        same_bf16);
    auto n = singles({0, 1, 0x80, 0xff, 0x101, 0x1ff, 0x7fff, 0x8000, 0xffff, 0x1010000, 0x7fffffff,
                      0x80000000, 0xffffffff});
    table(OP1("cvt.rn.bf16.s32", 16, 32), n, [](In i) { return rounded(exact_integer(i32(i.a)), bf16, RN); });
    table(OP1("cvt.rn.bf16.u32", 16, 32), n, [](In i) { return rounded(exact_integer(u32(i.a)), bf16, RN); });
    table(OP1("cvt.rz.bf16.s32", 16, 32), n, [](In i) { return rounded(exact_integer(i32(i.a)), bf16, RZ); });
    table(OP1("cvt.rni.s32.bf16", 32, 16), {{{0x3f00}, 0},
                                            {{0x3fc0}, 2},
                                            {{0xc020}, 0xfffffffe},
                                            {{0x4f80}, 0x7fffffff},
                                            {{0xff80}, 0x80000000},
                                            {{0x7fc0}, 0}});
}

// ---- bf16 atomics, elect

__device__ u32 cells[8192];

void atomics() {
    std::vector<In> both = noise(100);
    for (In& i : both) i = {u32(i.a), u32(i.b)};
    table(
        "atom.global.add.noftz.bf16x2",
        [] __device__(const In& in) -> u64 {
            u32* cell = &cells[blockIdx.x * 64 + threadIdx.x];
            *cell = u32(in.a);
            u32 old;
            asm volatile("atom.global.add.noftz.bf16x2 %0, [%1], %2;"
                         : "=r"(old)
                         : "l"(cell), "r"(u32(in.b))
                         : "memory");
            return old == u32(in.a) ? u64(*cell) : 0xbad0bad0bad0bad0;
        },
        both,
        [](In i) {
            return added(i.a >> 16, i.b >> 16, bf16, RN) << 16 | added(i.a & 0xffff, i.b & 0xffff, bf16, RN);
        },
        same_bf16x2);
    table(
        "red.global.add.noftz.bf16x2",
        [] __device__(const In& in) -> u64 {
            u32* cell = &cells[blockIdx.x * 64 + threadIdx.x];
            *cell = u32(in.a);
            asm volatile("red.global.add.noftz.bf16x2 [%0], %1;" ::"l"(cell), "r"(u32(in.b)) : "memory");
            return *cell;
        },
        both,
        [](In i) {
            return added(i.a >> 16, i.b >> 16, bf16, RN) << 16 | added(i.a & 0xffff, i.b & 0xffff, bf16, RN);
        },
        same_bf16x2);
    // 16 bits: the neighbouring half of the word stays
    table(
        "atom.global.add.noftz.bf16",
        [] __device__(const In& in) -> u64 {
            u32* cell = &cells[blockIdx.x * 64 + threadIdx.x];
            *cell = u32(in.a);
            u16 old;
            asm volatile("atom.global.add.noftz.bf16 %0, [%1+2], %2;"
                         : "=h"(old)
                         : "l"(cell), "h"(u16(in.b))
                         : "memory");
            return old == u16(in.a >> 16) ? u64(*cell) : 0xbad0bad0bad0bad0;
        },
        both, [](In i) { return added(i.a >> 16, i.b & 0xffff, bf16, RN) << 16 | (i.a & 0xffff); },
        [](u64 g, u64 w) { return same_bf16(g >> 16, w >> 16) && (g & 0xffff) == (w & 0xffff); });
}

__global__ void elect(u32* out) {
    u32 leader, is;
    asm volatile("{.reg .pred p; elect.sync %0|p, 0xffffffff; selp.u32 %1, 1, 0, p;}"
                 : "=r"(leader), "=r"(is));
    out[threadIdx.x] = leader << 1 | is;
}
void election() {
    Device<u32> out(32);
    elect<<<1, 32>>>(out.data);
    CUDA(cudaDeviceSynchronize());
    std::vector<u32> got = out.host();
    u32 count = 0;
    for (u32 t = 0; t < 32; t++) {
        count += got[t] & 1;
        expect_equal("elect.sync", "lane " + std::to_string(t), got[t],
                     got[0] >> 1 << 1 | u32(t == got[0] >> 1));
    }
    expect_equal("elect.sync elects one", "", count, 1);
}

}  // namespace

int main() {
    cudaDeviceProp device;
    CUDA(cudaGetDeviceProperties(&device, 0));
    if (device.major < 9) {
        std::printf("skipped: hopper (needs compute capability 9.0, not %d.%d)\n", device.major,
                    device.minor);
        return 0;
    }
    stmatrix<1, false>();
    stmatrix<1, true>();
    stmatrix<2, false>();
    stmatrix<2, true>();
    stmatrix<4, false>();
    stmatrix<4, true>();
    arithmetic();
    packed();
    conversion();
    atomics();
    election();
    return summary("hopper");
}
