// conformance.cu: the same instructions on a GPU and under cusim, to compare.
//
//   conformance dump FILE      runs everything and writes one line per value: section index tolerance bits
//   conformance compare A B    compares two such files; NaNs are equal to each other
//
// Sections are exact (tolerance 0) wherever PTX defines the result; approximations and sums of unspecified
// order have a tolerance in units of 2^-23 relative to the section's largest magnitude or to the value,
// whichever is larger.
#include <cuda_bf16.h>
#include <cuda_fp16.h>

#include <cstdint>
#include <cstring>
#include <fstream>
#include <map>
#include <string>

#include "../../examples/example.h"

constexpr int kN = 4096;  // values per section

// Bit patterns: the special ones first, then random ones.
static std::vector<uint32_t> patterns(unsigned seed) {
    std::vector<uint32_t> v = {0,          0x80000000, 1,          0x80000001, 0x007fffff, 0x00800000,
                               0x3f800000, 0xbf800000, 0x7f7fffff, 0xff7fffff, 0x7f800000, 0xff800000,
                               0x7fc00000, 0xffc00001, 0x4b000000, 0x4f000000, 0xcf000000, 0x5f000000,
                               0xffffffff, 0x7fffffff, 0x3c003c00, 0x7c007c00, 0x00010001, 0x3f803f80,
                               0x7f807f80, 0x42280000};
    while (v.size() < size_t(kN)) {
        seed = seed * 1664525u + 1013904223u;
        uint32_t x = seed ^ seed >> 15;
        // Every other one a float of moderate size, so that sums and products do not all overflow.
        v.push_back(v.size() % 2 ? x : (x & 0x80ffffff) | 0x3f000000 | (x >> 3 & 0x01000000));
    }
    for (size_t i = 0; i < v.size(); i++) std::swap(v[i], v[(i * 7 + seed) % v.size()]);
    return v;
}

static std::ofstream dump_file;
static void dump(const char* section, const std::vector<uint32_t>& bits, double tolerance) {
    char line[200];
    for (size_t i = 0; i < bits.size(); i++) {
        std::snprintf(line, sizeof line, "%s %zu %g %08x\n", section, i, tolerance, bits[i]);
        dump_file << line;
    }
}

// One operation on three words per thread.
template <class F>
__global__ void apply(uint32_t* out, const uint32_t* a, const uint32_t* b, const uint32_t* c, F f) {
    int i = blockIdx.x * blockDim.x + threadIdx.x;
    out[i] = f(a[i], b[i], c[i]);
}
struct Inputs {
    DeviceArray<uint32_t> a{patterns(1)}, b{patterns(2)}, c{patterns(3)}, out{size_t(kN)};
};
static Inputs* inputs;
template <class F>
void section(const char* name, double tolerance, F f) {
    apply<<<kN / 128, 128>>>(inputs->out.data, inputs->a.data, inputs->b.data, inputs->c.data, f);
    CUDA(cudaGetLastError());
    dump(name, inputs->out.host(), tolerance);
}

// asm with one, two or three 32-bit sources; "r" registers hold any 32-bit type.
#define ASM1(text)                                        \
    [] __device__(uint32_t a, uint32_t, uint32_t) {       \
        uint32_t d;                                       \
        asm volatile(text " %0, %1;" : "=r"(d) : "r"(a)); \
        return d;                                         \
    }
#define ASM2(text)                                                    \
    [] __device__(uint32_t a, uint32_t b, uint32_t) {                 \
        uint32_t d;                                                   \
        asm volatile(text " %0, %1, %2;" : "=r"(d) : "r"(a), "r"(b)); \
        return d;                                                     \
    }
#define ASM3(text)                                                                \
    [] __device__(uint32_t a, uint32_t b, uint32_t c) {                           \
        uint32_t d;                                                               \
        asm volatile(text " %0, %1, %2, %3;" : "=r"(d) : "r"(a), "r"(b), "r"(c)); \
        return d;                                                                 \
    }
// A conversion through a 16-bit or a 64-bit register.
#define TO16(text)                                        \
    [] __device__(uint32_t a, uint32_t, uint32_t) {       \
        uint16_t d;                                       \
        asm volatile(text " %0, %1;" : "=h"(d) : "r"(a)); \
        return uint32_t(d);                               \
    }
#define FROM16(text)                                                \
    [] __device__(uint32_t a, uint32_t, uint32_t) {                 \
        uint32_t d;                                                 \
        asm volatile(text " %0, %1;" : "=r"(d) : "h"(uint16_t(a))); \
        return d;                                                   \
    }

static void arithmetic() {
    section("add.f32", 0, ASM2("add.rn.f32"));
    section("add.rz.f32", 0, ASM2("add.rz.f32"));
    section("add.rp.ftz.sat.f32", 0, ASM2("add.rp.ftz.sat.f32"));
    section("sub.rm.f32", 0, ASM2("sub.rm.f32"));
    section("mul.f32", 0, ASM2("mul.rn.f32"));
    section("mul.ftz.f32", 0, ASM2("mul.rn.ftz.f32"));
    section("fma.f32", 0, ASM3("fma.rn.f32"));
    section("fma.rz.sat.f32", 0, ASM3("fma.rz.sat.f32"));
    section("div.f32", 0, ASM2("div.rn.f32"));
    section("sqrt.f32", 0, ASM1("sqrt.rn.f32"));
    section("rcp.f32", 0, ASM1("rcp.rn.f32"));
    section("min.f32", 0, ASM2("min.f32"));
    section("max.NaN.f32", 0, ASM2("max.NaN.f32"));
    section("abs.f32", 0, ASM1("abs.ftz.f32"));
    section("fma.f16x2", 0, ASM3("fma.rn.f16x2"));
    section("fma.relu.bf16x2", 0, ASM3("fma.rn.relu.bf16x2"));
    section("add.sat.f16x2", 0, ASM2("add.sat.f16x2"));
    section("mul.f16x2", 0, ASM2("mul.rn.f16x2"));
    section("max.bf16x2", 0, ASM2("max.bf16x2"));
    section("min.NaN.f16x2", 0, ASM2("min.NaN.f16x2"));
    section("ex2.approx.ftz.f32", 4, ASM1("ex2.approx.ftz.f32"));
    section("rsqrt.approx.f32", 4, ASM1("rsqrt.approx.f32"));
    section("rcp.approx.f32", 2, ASM1("rcp.approx.ftz.f32"));
}

static void conversions() {
    section("cvt.rn.bf16.f32", 0, TO16("cvt.rn.bf16.f32"));
    section("cvt.rz.bf16.f32", 0, TO16("cvt.rz.bf16.f32"));
    section("cvt.rn.f16.f32", 0, TO16("cvt.rn.f16.f32"));
    section("cvt.rp.f16.f32", 0, TO16("cvt.rp.f16.f32"));
    section("cvt.f32.f16", 0, FROM16("cvt.f32.f16"));
    section("cvt.rn.bf16x2.f32", 0, ASM2("cvt.rn.bf16x2.f32"));
    section("cvt.rna.tf32.f32", 0, ASM1("cvt.rna.tf32.f32"));
    section("cvt.rni.s32.f32", 0, ASM1("cvt.rni.s32.f32"));
    section("cvt.rmi.u32.f32", 0, ASM1("cvt.rmi.u32.f32"));
    section("cvt.rpi.f32.f32", 0, ASM1("cvt.rpi.f32.f32"));
    section("cvt.rz.f32.s32", 0, ASM1("cvt.rz.f32.s32"));
    section("cvt.rn.f32.u32", 0, ASM1("cvt.rn.f32.u32"));
    section("cvt.sat.u8.s32", 0, ASM1("cvt.sat.u8.s32"));
    section("cvt.s32.s8", 0, ASM1("cvt.s32.s8"));
}

static void integers() {
    section("mul.hi.s32", 0, ASM2("mul.hi.s32"));
    section("mad.lo.u32", 0, ASM3("mad.lo.u32"));
    section("add.sat.s32", 0, ASM2("add.sat.s32"));
    section("sad.s32", 0, ASM3("sad.s32"));
    section("shr.s32", 0, ASM2("shr.s32"));
    section("shl.b32", 0, ASM2("shl.b32"));
    section("shf.l.wrap", 0, ASM3("shf.l.wrap.b32"));
    section("shf.r.clamp", 0, ASM3("shf.r.clamp.b32"));
    section("bfe.s32", 0, ASM3("bfe.s32"));
    section("prmt", 0, ASM3("prmt.b32"));
    section("prmt.ecl", 0, ASM3("prmt.b32.ecl"));
    section("lop3", 0, [] __device__(uint32_t a, uint32_t b, uint32_t c) {
        uint32_t d;
        asm volatile("lop3.b32 %0, %1, %2, %3, 0x6a;" : "=r"(d) : "r"(a), "r"(b), "r"(c));
        return d;
    });
    section("bfi", 0, [] __device__(uint32_t a, uint32_t b, uint32_t c) {
        uint32_t d;
        asm volatile("bfi.b32 %0, %1, %2, %3, %4;" : "=r"(d) : "r"(a), "r"(b), "r"(c & 63), "r"(c >> 8 & 63));
        return d;
    });
    section("bfind", 0, ASM1("bfind.s32"));
    section("clz", 0, ASM1("clz.b32"));
    section("popc", 0, ASM1("popc.b32"));
    section("brev", 0, ASM1("brev.b32"));
    section("dp4a", 0, ASM3("dp4a.s32.u32"));
    section("slct", 0, ASM3("slct.s32.s32"));
    section("mul24", 0, ASM2("mul24.lo.s32"));
}

static void library() {
#define MATH(name, tolerance, expression)                                      \
    section(name, tolerance, [] __device__(uint32_t a, uint32_t b, uint32_t) { \
        float x = __uint_as_float(a & 0x80ffffff | 0x3f000000),                \
              y = __uint_as_float(b & 0x80ffffff | 0x3f000000);                \
        (void)y;                                                               \
        return __float_as_uint(expression);                                    \
    })
    MATH("expf", 4, expf(x));
    MATH("logf", 4, logf(fabsf(x)));
    MATH("sinf", 4, sinf(x));
    MATH("tanhf", 4, tanhf(x));
    MATH("powf", 8, powf(fabsf(x), y));
    MATH("erff", 4, erff(x));
    MATH("quotient", 0, x / y);
    MATH("__expf", 8, __expf(x));
    MATH("__logf", 16, __logf(fabsf(x) + 1));
#undef MATH
}

// Every lane's value of warp operations with full and partial masks.
__global__ void warp_operations(uint32_t* out) {
    uint32_t lane = threadIdx.x, x = lane * lane + 7, all = 0xffffffff;
    int p;
    uint32_t r[] = {__shfl_up_sync(all, x, 3),
                    __shfl_down_sync(all, x, 5, 16),
                    __shfl_xor_sync(all, x, 9),
                    __shfl_sync(all, x, 35, 8),
                    __ballot_sync(all, x & 4),
                    uint32_t(__all_sync(all, x > 6)),
                    uint32_t(__any_sync(all, x == 8)),
                    __match_any_sync(all, x & 3),
                    __match_all_sync(all, 5, &p),
                    __reduce_add_sync(all, x),
                    uint32_t(__reduce_min_sync(all, int(x) - 40)),
                    __reduce_xor_sync(all, x)};
    uint32_t odd = 0;
    if (lane & 1)
        odd = __shfl_xor_sync(0xaaaaaaaa, x, 2) + __popc(__ballot_sync(0xaaaaaaaa, lane > 10)) +
              __reduce_max_sync(0xaaaaaaaa, x);
    for (int k = 0; k < 12; k++) out[k * 32 + lane] = r[k];
    out[12 * 32 + lane] = odd;
}

__global__ void atomics(uint32_t* out, uint32_t* cells, const uint32_t* x) {
    uint32_t v = x[threadIdx.x];
    atomicAdd(&cells[0], v);
    atomicMin(reinterpret_cast<int*>(&cells[1]), int(v));
    atomicMax(&cells[2], v);
    atomicXor(&cells[3], v);
    atomicInc(&cells[4], 10);
    atomicAdd(reinterpret_cast<float*>(&cells[5]), float(threadIdx.x));  // exact in any order
    atomicAdd(reinterpret_cast<__nv_bfloat162*>(&cells[6]), __floats2bfloat162_rn(1, 2));
    __syncthreads();
    if (threadIdx.x < 7) out[threadIdx.x] = cells[threadIdx.x];
}

// mma and ldmatrix: `small` inputs make every sum exact.
__global__ void tensor(uint32_t* out, const uint32_t* a, const uint32_t* b, bool small, bool transpose) {
    __shared__ __align__(16) uint32_t tile[4 * 32];
    int lane = threadIdx.x;
    auto value = [&](uint32_t bits) {
        return small ? __float2bfloat16(float(int(bits % 17) - 8))
                     : __float2bfloat16(float(int(bits % 2001) - 1000) / 777);
    };
    auto word = [&](uint32_t bits) {
        __nv_bfloat162 p = __halves2bfloat162(value(bits), value(bits / 65536));
        return *reinterpret_cast<uint32_t*>(&p);
    };
    for (int k = 0; k < 4; k++) tile[k * 32 + lane] = word(a[k * 32 + lane]);
    __syncthreads();
    uint32_t x[4], address = uint32_t(__cvta_generic_to_shared(tile + lane * 4));
    if (transpose)
        asm volatile("ldmatrix.sync.aligned.m8n8.x4.trans.shared.b16 {%0,%1,%2,%3}, [%4];"
                     : "=r"(x[0]), "=r"(x[1]), "=r"(x[2]), "=r"(x[3])
                     : "r"(address));
    else
        asm volatile("ldmatrix.sync.aligned.m8n8.x4.shared.b16 {%0,%1,%2,%3}, [%4];"
                     : "=r"(x[0]), "=r"(x[1]), "=r"(x[2]), "=r"(x[3])
                     : "r"(address));
    uint32_t y0 = word(b[lane]), y1 = word(b[32 + lane]);
    float c[4];
    for (int k = 0; k < 4; k++) c[k] = float(int(b[64 + k * 32 + lane] % 101) - 50);
    asm volatile(
        "mma.sync.aligned.m16n8k16.row.col.f32.bf16.bf16.f32 {%0,%1,%2,%3}, {%4,%5,%6,%7}, {%8,%9}, "
        "{%0,%1,%2,%3};"
        : "+f"(c[0]), "+f"(c[1]), "+f"(c[2]), "+f"(c[3])
        : "r"(x[0]), "r"(x[1]), "r"(x[2]), "r"(x[3]), "r"(y0), "r"(y1));
    for (int k = 0; k < 4; k++) out[k * 32 + lane] = x[k], out[(4 + k) * 32 + lane] = __float_as_uint(c[k]);
}

static void special_kernels() {
    DeviceArray<uint32_t> out(13 * 32);
    warp_operations<<<1, 32>>>(out.data);
    dump("warp", out.host(), 0);
    DeviceArray<uint32_t> cells(8), seven(7);
    CUDA(cudaMemset(cells.data, 0, 32));
    atomics<<<1, 128>>>(seven.data, cells.data, inputs->a.data);
    dump("atomics", seven.host(), 0);
    DeviceArray<uint32_t> fragments(8 * 32);
    for (int transpose = 0; transpose < 2; transpose++) {
        tensor<<<1, 32>>>(fragments.data, inputs->a.data, inputs->b.data, true, transpose);
        dump(transpose ? "mma.exact.trans" : "mma.exact", fragments.host(), 0);
    }
    tensor<<<1, 32>>>(fragments.data, inputs->a.data, inputs->b.data, false, false);
    auto all = fragments.host();
    dump("mma.rounded", std::vector<uint32_t>(all.begin() + 128, all.end()), 32);
}

struct Line {
    double tolerance;
    uint32_t bits;
};
static std::map<std::pair<std::string, int>, Line> read(const char* path) {
    std::map<std::pair<std::string, int>, Line> lines;
    std::ifstream in(path);
    std::string name, hex;
    int index;
    double tolerance;
    while (in >> name >> index >> tolerance >> hex)
        lines[{name, index}] = {tolerance, uint32_t(std::stoul(hex, nullptr, 16))};
    return lines;
}
static float as_float(uint32_t bits) {
    float f;
    std::memcpy(&f, &bits, 4);
    return f;
}

static int compare(const char* left, const char* right) {
    auto a = read(left), b = read(right);
    std::map<std::string, std::pair<int, int>> wrong;  // section: differing, all
    if (a.empty() || a.size() != b.size())
        return std::printf("the files have %zu and %zu values\n", a.size(), b.size()), 1;
    int failures = 0;
    for (auto& [key, x] : a) {
        auto it = b.find(key);
        auto& count = wrong[key.first];
        count.second++;
        float f = as_float(x.bits), g = it == b.end() ? 0 : as_float(it->second.bits);
        bool same = it != b.end() && (x.bits == it->second.bits ||
                                      (key.first.find("32") != std::string::npos && f != f && g != g));
        if (!same && it != b.end() && x.tolerance > 0) {
            double scale = std::fmax(std::fmax(std::fabs(f), std::fabs(g)),
                                     key.first.substr(0, 3) == "mma" ? 16 : 1e-38);
            same =
                (f != f && g != g) || f == g || std::fabs(double(f) - g) <= x.tolerance * scale / (1 << 23);
        }
        if (same) continue;
        if (count.first++ == 0)
            std::printf("%s[%d]: %08x (%g) and %08x (%g)\n", key.first.c_str(), key.second, x.bits, f,
                        it->second.bits, g);
        failures++;
    }
    int sections = 0;
    for (auto& [name, count] : wrong) {
        sections++;
        if (count.first) std::printf("%s: %d of %d values differ\n", name.c_str(), count.first, count.second);
    }
    std::printf("conformance: %d sections, %zu values, %d differ\n", sections, a.size(), failures);
    return failures > 0;
}

int main(int argc, char** argv) {
    if (argc == 4 && !std::strcmp(argv[1], "compare")) return compare(argv[2], argv[3]);
    if (argc != 3 || std::strcmp(argv[1], "dump")) {
        std::fprintf(stderr, "usage: conformance dump FILE | conformance compare A B\n");
        return 2;
    }
    dump_file.open(argv[2]);
    inputs = new Inputs;
    arithmetic();
    conversions();
    integers();
    library();
    special_kernels();
    delete inputs;
    dump_file.close();
    return dump_file ? 0 : 1;
}
