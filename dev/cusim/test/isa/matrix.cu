// matrix.cu: mma.sync fragments and results, ldmatrix, movmatrix, cp.async (PTX ISA 9.7.14, 9.7.9.25).
//
// Fragments are packed and unpacked on the host by the ISA's formulas for row and column of element i in a
// lane. Entries are small integers, so that every product and sum is exact in any order.
#include "exact.h"

namespace {

struct Place {
    int row, column;
};
int group(int lane) {
    return lane >> 2;
}
int in_group(int lane) {
    return lane & 3;
}

// 16-bit A, 16 x K: two elements a register
Place a16(int lane, int i) {
    return {group(lane) + (i & 2 ? 8 : 0), in_group(lane) * 2 + (i & 1) + (i >= 4 ? 8 : 0)};
}
// 16-bit B, K x 8
Place b16(int lane, int i) {
    return {in_group(lane) * 2 + (i & 1) + (i >= 2 ? 8 : 0), group(lane)};
}
// tf32 A and B: one element a register
Place a32(int lane, int i) {
    return {group(lane) + (i & 1 ? 8 : 0), in_group(lane) + (i >= 2 ? 4 : 0)};
}
Place b32(int lane, int i) {
    return {in_group(lane) + (i ? 4 : 0), group(lane)};
}
// accumulators, 16 x 8
Place accumulator(int lane, int i) {
    return {group(lane) + (i >= 2 ? 8 : 0), in_group(lane) * 2 + (i & 1)};
}

struct Registers {
    u32 a[4], b[2], c[4], d[4];
};
struct Matrix {
    int rows, columns;
    std::vector<double> data;
    Matrix(int r, int c) : rows(r), columns(c), data(size_t(r) * c) {}
    double& at(Place p) { return data[size_t(p.row) * columns + p.column]; }
    void fill(int limit) {
        for (double& v : data) v = double(int(random_bits() % (2 * limit + 1)) - limit);
    }
};

u64 encode(double v, const Format& f) {
    u64 bits;
    std::memcpy(&bits, &v, 8);
    return rounded(exact(bits, f64), f, RN);
}

template <class F>
__global__ void run_mma(F f, Registers* r) {
    f(r[threadIdx.x]);
}

// `f`: type of A and B (32 bits for tf32), `acc`: of C and D, k: depth.
template <class F>
void mma(const char* name, F run, const Format& f, const Format& acc, int k) {
    bool wide = f.bits == 32;
    auto place_a = wide ? a32 : a16;
    auto place_b = wide ? b32 : b16;
    int elements_a = 16 * k / 32, elements_b = 8 * k / 32;
    for (int trial = 0; trial < 4; trial++) {
        Matrix a(16, k), b(k, 8), c(16, 8);
        a.fill(trial == 0 ? 1 : 8);
        b.fill(8);
        c.fill(100);
        if (trial == 1) {  // every element of A and B alone in its row and column: misplacements show
            for (double& v : a.data) v = 0;
            for (int r = 0; r < 16; r++) a.at({r, (5 * r + 3) % k}) = r + 1;
        }
        std::vector<Registers> regs(32);
        for (int lane = 0; lane < 32; lane++) {
            Registers& r = regs[size_t(lane)];
            std::memset(&r, 0, sizeof r);
            auto put = [](u32* to, int i, u64 v, bool whole) {
                if (whole)
                    to[i] = u32(v);
                else
                    to[i / 2] |= u32(v) << 16 * (i & 1);
            };
            for (int i = 0; i < elements_a; i++) put(r.a, i, encode(a.at(place_a(lane, i)), f), wide);
            for (int i = 0; i < elements_b; i++) put(r.b, i, encode(b.at(place_b(lane, i)), f), wide);
            for (int i = 0; i < 4; i++) put(r.c, i, encode(c.at(accumulator(lane, i)), acc), acc.bits == 32);
        }
        Device<Registers> device(regs);
        run_mma<<<1, 32>>>(run, device.data);
        CUDA(cudaGetLastError());
        CUDA(cudaDeviceSynchronize());
        regs = device.host();
        for (int lane = 0; lane < 32; lane++)
            for (int i = 0; i < 4; i++) {
                Place p = accumulator(lane, i);
                double want = c.at(p);
                for (int n = 0; n < k; n++) want += a.at({p.row, n}) * b.at({n, p.column});
                u32* d = regs[size_t(lane)].d;
                u64 got = acc.bits == 32 ? d[i] : d[i / 2] >> 16 * (i & 1) & 0xffff;
                expect_equal(name,
                             "trial " + std::to_string(trial) + ", lane " + std::to_string(lane) +
                                 ", element " + std::to_string(i),
                             got, encode(want, acc));
            }
    }
}

#define MMA_4_2(op)                                                                                  \
    op, [] __device__(Registers& r) {                                                                \
        asm volatile(op " {%0, %1, %2, %3}, {%4, %5, %6, %7}, {%8, %9}, {%10, %11, %12, %13};"       \
                     : "=r"(r.d[0]), "=r"(r.d[1]), "=r"(r.d[2]), "=r"(r.d[3])                        \
                     : "r"(r.a[0]), "r"(r.a[1]), "r"(r.a[2]), "r"(r.a[3]), "r"(r.b[0]), "r"(r.b[1]), \
                       "r"(r.c[0]), "r"(r.c[1]), "r"(r.c[2]), "r"(r.c[3]));                          \
    }
#define MMA_2_1(op)                                                                                  \
    op, [] __device__(Registers& r) {                                                                \
        asm volatile(op " {%0, %1, %2, %3}, {%4, %5}, {%6}, {%7, %8, %9, %10};"                      \
                     : "=r"(r.d[0]), "=r"(r.d[1]), "=r"(r.d[2]), "=r"(r.d[3])                        \
                     : "r"(r.a[0]), "r"(r.a[1]), "r"(r.b[0]), "r"(r.c[0]), "r"(r.c[1]), "r"(r.c[2]), \
                       "r"(r.c[3]));                                                                 \
    }

const Format tf32_register{32, 23, 127};  // small integers fit tf32's ten bits

void multiply_add() {
    mma(MMA_4_2("mma.sync.aligned.m16n8k16.row.col.f32.bf16.bf16.f32"), bf16, f32, 16);
    mma(MMA_4_2("mma.sync.aligned.m16n8k16.row.col.f32.f16.f16.f32"), f16, f32, 16);
    mma(MMA_4_2("mma.sync.aligned.m16n8k8.row.col.f32.tf32.tf32.f32"), tf32_register, f32, 8);
    mma(MMA_2_1("mma.sync.aligned.m16n8k4.row.col.f32.tf32.tf32.f32"), tf32_register, f32, 4);
    mma(
        "mma.sync.aligned.m16n8k8.row.col.f16.f16.f16.f16",
        [] __device__(Registers & r) {
            asm volatile(
                "mma.sync.aligned.m16n8k8.row.col.f16.f16.f16.f16 {%0, %1}, {%2, %3}, {%4}, {%5, %6};"
                : "=r"(r.d[0]), "=r"(r.d[1])
                : "r"(r.a[0]), "r"(r.a[1]), "r"(r.b[0]), "r"(r.c[0]), "r"(r.c[1]));
        },
        f16, f16, 8);
    mma(MMA_2_1("mma.sync.aligned.m16n8k8.row.col.f32.bf16.bf16.f32"), bf16, f32, 8);
    mma(MMA_2_1("mma.sync.aligned.m16n8k8.row.col.f32.f16.f16.f32"), f16, f32, 8);
    mma(
        "mma.sync.aligned.m16n8k16.row.col.f16.f16.f16.f16",
        [] __device__(Registers & r) {
            asm volatile(
                "mma.sync.aligned.m16n8k16.row.col.f16.f16.f16.f16 {%0, %1}, {%2, %3, %4, %5}, {%6, %7}, "
                "{%8, %9};"
                : "=r"(r.d[0]), "=r"(r.d[1])
                : "r"(r.a[0]), "r"(r.a[1]), "r"(r.a[2]), "r"(r.a[3]), "r"(r.b[0]), "r"(r.b[1]), "r"(r.c[0]),
                  "r"(r.c[1]));
        },
        f16, f16, 16);
}

// One infinity in A and a zero opposite give NaN in that row only.
template <class F>
void infinity_times_zero(const char* name, F run) {
    std::vector<Registers> regs(32);
    std::memset(regs.data(), 0, 32 * sizeof(Registers));
    regs[4 * 3].a[0] = 0x7f80;  // A[3][0]
    Device<Registers> device(regs);
    run_mma<<<1, 32>>>(run, device.data);
    CUDA(cudaDeviceSynchronize());
    regs = device.host();
    for (int lane = 0; lane < 32; lane++)
        for (int i = 0; i < 4; i++) {
            bool nan = accumulator(lane, i).row == 3;
            u32 d = regs[size_t(lane)].d[i];
            expect(nan ? f32.nan(d) : d == 0, name,
                   "infinity times zero, lane " + std::to_string(lane) + ", element " + std::to_string(i), d,
                   nan ? 0x7fffffff : 0);
        }
}

// Row r of matrix m lies at 16 * order(8 m + r); element values are 100 m + 10 r + column.
__host__ __device__ int order(int row) {
    return (row * 13 + 5) & 31;
}

template <int count, bool trans>
__global__ void load_matrices(u32* out) {
    __shared__ alignas(16) u16 tile[32 * 8];
    for (int i = threadIdx.x; i < 256; i += 32)
        tile[8 * order(i / 8) + i % 8] = u16(100 * (i / 64) + 10 * (i / 8 % 8) + i % 8);
    __syncthreads();
    int rows = 8 * count;
    u32 address = u32(__cvta_generic_to_shared(&tile[8 * order(threadIdx.x % rows)]));
    u32 r[4] = {0, 0, 0, 0};
    if (count == 1 && !trans)
        asm volatile("ldmatrix.sync.aligned.m8n8.x1.shared.b16 {%0}, [%1];"
                     : "=r"(r[0])
                     : "r"(address)
                     : "memory");
    if (count == 1 && trans)
        asm volatile("ldmatrix.sync.aligned.m8n8.x1.trans.shared.b16 {%0}, [%1];"
                     : "=r"(r[0])
                     : "r"(address)
                     : "memory");
    if (count == 2 && !trans)
        asm volatile("ldmatrix.sync.aligned.m8n8.x2.shared.b16 {%0, %1}, [%2];"
                     : "=r"(r[0]), "=r"(r[1])
                     : "r"(address)
                     : "memory");
    if (count == 2 && trans)
        asm volatile("ldmatrix.sync.aligned.m8n8.x2.trans.shared.b16 {%0, %1}, [%2];"
                     : "=r"(r[0]), "=r"(r[1])
                     : "r"(address)
                     : "memory");
    if (count == 4 && !trans)
        asm volatile("ldmatrix.sync.aligned.m8n8.x4.shared.b16 {%0, %1, %2, %3}, [%4];"
                     : "=r"(r[0]), "=r"(r[1]), "=r"(r[2]), "=r"(r[3])
                     : "r"(address)
                     : "memory");
    if (count == 4 && trans)
        asm volatile("ldmatrix.sync.aligned.m8n8.x4.trans.shared.b16 {%0, %1, %2, %3}, [%4];"
                     : "=r"(r[0]), "=r"(r[1]), "=r"(r[2]), "=r"(r[3])
                     : "r"(address)
                     : "memory");
    for (int i = 0; i < count; i++) out[4 * threadIdx.x + i] = r[i];
}
template <int count, bool trans>
void ldmatrix() {
    Device<u32> out(128);
    load_matrices<count, trans><<<1, 32>>>(out.data);
    CUDA(cudaDeviceSynchronize());
    std::vector<u32> got = out.host();
    for (int lane = 0; lane < 32; lane++)
        for (int m = 0; m < count; m++) {
            u32 want = 0;
            for (int i = 0; i < 2; i++) {
                int r = lane / 4, c = lane % 4 * 2 + i;
                want |= u32(100 * m + (trans ? 10 * c + r : 10 * r + c)) << 16 * i;
            }
            expect_equal("ldmatrix.x" + std::to_string(count) + (trans ? ".trans" : ""),
                         "lane " + std::to_string(lane) + ", matrix " + std::to_string(m),
                         got[size_t(4 * lane + m)], want);
        }
}

__global__ void transpose_registers(u32* out) {
    u32 lane = threadIdx.x, r = lane / 4, c = lane % 4 * 2, d;
    u32 a = (10 * r + c) | (10 * r + c + 1) << 16;
    asm volatile("movmatrix.sync.aligned.m8n8.trans.b16 %0, %1;" : "=r"(d) : "r"(a));
    out[lane] = d;
}
void movmatrix() {
    Device<u32> out(32);
    transpose_registers<<<1, 32>>>(out.data);
    CUDA(cudaDeviceSynchronize());
    std::vector<u32> got = out.host();
    for (u32 lane = 0; lane < 32; lane++) {
        u32 r = lane / 4, c = lane % 4 * 2;
        expect_equal("movmatrix", "lane " + std::to_string(lane), got[lane],
                     (10 * c + r) | (10 * (c + 1) + r) << 16);
    }
}

// 32 threads copy 16 bytes each by every kind of cp.async; a source size below the copy's leaves zeros.
__global__ void copy_async(const u32* in, u32* out) {
    __shared__ alignas(16) u32 tile[5][128];
    int t = threadIdx.x;
    u32 to[5];
    for (int k = 0; k < 5; k++) to[k] = u32(__cvta_generic_to_shared(&tile[k][4 * t]));
    const u32* from = in + 4 * t;
    for (int i = 0; i < 4; i++)
        asm volatile("cp.async.ca.shared.global [%0], [%1], 4;" ::"r"(to[0] + 4 * i), "l"(from + i)
                     : "memory");
    asm volatile("cp.async.commit_group;" ::: "memory");
    for (int i = 0; i < 4; i += 2)
        asm volatile("cp.async.ca.shared.global [%0], [%1], 8;" ::"r"(to[1] + 4 * i), "l"(from + i)
                     : "memory");
    asm volatile("cp.async.cg.shared.global [%0], [%1], 16;" ::"r"(to[2]), "l"(from) : "memory");
    asm volatile("cp.async.commit_group;" ::: "memory");
    asm volatile("cp.async.wait_group 1;" ::: "memory");
    for (int i = 0; i < 4; i++)
        out[4 * t + i] = tile[0][4 * t + i];  // the older group is complete, for its own thread
    asm volatile("cp.async.wait_group 0;" ::: "memory");
    __syncthreads();
    int other = 31 - t;
    for (int k = 1; k < 3; k++)
        for (int i = 0; i < 4; i++) out[128 * k + 4 * other + i] = tile[k][4 * other + i];
    asm volatile("cp.async.cg.shared.global [%0], [%1], 16, %2;" ::"r"(to[3]), "l"(from), "r"(4 * (t % 5))
                 : "memory");
    asm volatile("cp.async.ca.shared.global.L2::128B [%0], [%1], 8, %2;" ::"r"(to[4]), "l"(from), "r"(t % 9)
                 : "memory");
    asm volatile("cp.async.ca.shared.global [%0], [%1], 8;" ::"r"(to[4] + 8), "l"(from + 2) : "memory");
    asm volatile("cp.async.wait_all;" ::: "memory");
    for (int k = 3; k < 5; k++)
        for (int i = 0; i < 4; i++) out[128 * k + 4 * t + i] = tile[k][4 * t + i];
}
void cp_async() {
    std::vector<u32> in(128);
    for (u32& v : in) v = u32(random_bits());
    Device<u32> x(in), y(5 * 128);
    copy_async<<<1, 32>>>(x.data, y.data);
    CUDA(cudaDeviceSynchronize());
    std::vector<u32> got = y.host();
    const char* names[] = {"cp.async.ca 4", "cp.async.ca 8", "cp.async.cg 16", "cp.async.cg 16, source size",
                           "cp.async.ca 8, source size"};
    for (int k = 0; k < 5; k++)
        for (int t = 0; t < 32; t++) {
            u8 bytes[16];
            std::memcpy(bytes, &in[4 * t], 16);
            if (k == 3) std::memset(bytes + 4 * (t % 5), 0, size_t(16 - 4 * (t % 5)));
            if (k == 4) std::memset(bytes + t % 9, 0, size_t(8 - t % 9));
            u32 want[4];
            std::memcpy(want, bytes, 16);
            for (int i = 0; i < 4; i++)
                expect_equal(names[k], "thread " + std::to_string(t) + ", word " + std::to_string(i),
                             got[128 * k + 4 * t + i], want[i]);
        }
}

}  // namespace

int main() {
    multiply_add();
    infinity_times_zero(MMA_4_2("mma.sync.aligned.m16n8k16.row.col.f32.bf16.bf16.f32"));
    ldmatrix<1, false>();
    ldmatrix<1, true>();
    ldmatrix<2, false>();
    ldmatrix<2, true>();
    ldmatrix<4, false>();
    ldmatrix<4, true>();
    movmatrix();
    cp_async();
    return summary("matrix");
}
