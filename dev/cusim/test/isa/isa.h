// isa.h: instruction tables: inputs, the instruction as inline PTX, and the results the PTX ISA demands.
//
// A table is run by one thread per row; operands are 64-bit containers of the raw bits. Expected results are
// literals or formulas written from the ISA's text on the host. The same executables run on a GPU.
#pragma once
#include <cuda_runtime.h>

#include <cmath>
#include <cstdint>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <string>
#include <vector>

using u8 = std::uint8_t;
using u16 = std::uint16_t;
using u32 = std::uint32_t;
using u64 = std::uint64_t;
using i8 = std::int8_t;
using i16 = std::int16_t;
using i32 = std::int32_t;
using i64 = std::int64_t;
using u128 = unsigned __int128;
using i128 = __int128;

struct In {
    u64 a = 0, b = 0, c = 0, d = 0;
};
struct Row {
    In in;
    u64 want;
};

inline int passed, failed;

inline void cuda_check(cudaError_t e, const char* what, int line) {
    if (e == cudaSuccess) return;
    std::printf("line %d: %s: %s\n", line, what, cudaGetErrorString(e));
    std::exit(1);
}
#define CUDA(call) cuda_check(call, #call, __LINE__)

// Counts one comparison and prints it if it is wrong.
inline void expect(bool good, const std::string& instruction, const std::string& inputs, u64 got, u64 want) {
    good ? passed++ : failed++;
    if (!good)
        std::printf("%s (%s): got 0x%llx, expected 0x%llx\n", instruction.c_str(), inputs.c_str(),
                    (unsigned long long)got, (unsigned long long)want);
}
inline void expect_equal(const std::string& instruction, const std::string& inputs, u64 got, u64 want) {
    expect(got == want, instruction, inputs, got, want);
}

inline int summary(const char* file) {
    std::printf("%s: %d passed, %d failed\n", file, passed, failed);
    return failed ? 1 : 0;
}

inline std::string text(const In& in) {
    char s[100];
    std::snprintf(s, sizeof s, "0x%llx, 0x%llx, 0x%llx, 0x%llx", (unsigned long long)in.a,
                  (unsigned long long)in.b, (unsigned long long)in.c, (unsigned long long)in.d);
    return s;
}

// Device memory holding a copy of `host`.
template <class T>
class Device {
  public:
    explicit Device(const std::vector<T>& host) : size_(host.size()) {
        CUDA(cudaMalloc(&data, size_ * sizeof(T)));
        CUDA(cudaMemcpy(data, host.data(), size_ * sizeof(T), cudaMemcpyHostToDevice));
    }
    explicit Device(size_t n) : Device(std::vector<T>(n)) {}
    Device(const Device&) = delete;
    ~Device() { cudaFree(data); }
    std::vector<T> host() const {
        std::vector<T> out(size_);
        CUDA(cudaMemcpy(out.data(), data, size_ * sizeof(T), cudaMemcpyDeviceToHost));
        return out;
    }
    T* data = nullptr;

  private:
    size_t size_;
};

template <class F>
__global__ void run_table(F f, const In* in, u64* out, int n) {
    int i = blockIdx.x * blockDim.x + threadIdx.x;
    if (i < n) out[i] = f(in[i]);
}

template <class F>
std::vector<u64> results(F f, const std::vector<In>& in) {
    Device<In> x(in);
    Device<u64> y(in.size());
    run_table<<<(int(in.size()) + 63) / 64, 64>>>(f, x.data, y.data, int(in.size()));
    CUDA(cudaGetLastError());
    CUDA(cudaDeviceSynchronize());
    return y.host();
}

// How a result may differ from what is wanted.
inline bool same_bits(u64 got, u64 want) {
    return got == want;
}

// Literal rows.
template <class F>
void table(const char* name, F f, const std::vector<Row>& rows) {
    std::vector<In> in;
    for (const Row& r : rows) in.push_back(r.in);
    std::vector<u64> out = results(f, in);
    for (size_t i = 0; i < rows.size(); i++)
        expect(out[i] == rows[i].want, name, text(rows[i].in), out[i], rows[i].want);
}

// A formula: want(In) -> u64; `same(got, want)` says what counts as equal.
template <class F, class Want, class Same>
void table(const char* name, F f, const std::vector<In>& in, Want want, Same same) {
    std::vector<u64> out = results(f, in);
    for (size_t i = 0; i < in.size(); i++) {
        u64 w = want(in[i]);
        expect(same(out[i], w), name, text(in[i]), out[i], w);
    }
}
template <class F, class Want>
void table(const char* name, F f, const std::vector<In>& in, Want want) {
    table(name, f, in, want, same_bits);
}

// An instruction as "name, device function" with the widths of its destination and sources in bits. Registers
// are untyped, so f32 travels in 32 bits. OPn("add.s32", 32, 32, 32) is add.s32 %d, %a, %b.
#define REG16 u16
#define REG32 u32
#define REG64 u64
#define CON16 "h"
#define CON32 "r"
#define CON64 "l"
#define ARG(width, value) CON##width(static_cast<REG##width>(value))
#define OP1(op, W, A)                                        \
    op, [] __device__(const In& in) -> u64 {                 \
        REG##W out;                                          \
        asm(op " %0, %1;" : "=" CON##W(out) : ARG(A, in.a)); \
        return out;                                          \
    }
#define OP2(op, W, A, B)                                                       \
    op, [] __device__(const In& in) -> u64 {                                   \
        REG##W out;                                                            \
        asm(op " %0, %1, %2;" : "=" CON##W(out) : ARG(A, in.a), ARG(B, in.b)); \
        return out;                                                            \
    }
#define OP3(op, W, A, B, C) CODE(op, op " %0, %1, %2, %3;", W, A, B, C)
#define OP4(op, W, A, B, C, D)                                         \
    op, [] __device__(const In& in) -> u64 {                           \
        REG##W out;                                                    \
        asm(op " %0, %1, %2, %3, %4;"                                  \
            : "=" CON##W(out)                                          \
            : ARG(A, in.a), ARG(B, in.b), ARG(C, in.c), ARG(D, in.d)); \
        return out;                                                    \
    }
// Several statements: %0 is the destination, %1... the sources a, b, c.
#define CODE(name, body, W, A, B, C)                                            \
    name, [] __device__(const In& in) -> u64 {                                  \
        REG##W out;                                                             \
        asm(body : "=" CON##W(out) : ARG(A, in.a), ARG(B, in.b), ARG(C, in.c)); \
        return out;                                                             \
    }

inline u64 random_bits() {
    static u64 state = 0x9e3779b97f4a7c15;
    state ^= state << 13;
    state ^= state >> 7;
    state ^= state << 17;
    return state * 0x2545f4914f6cdd1d;
}

inline std::vector<In> singles(const std::vector<u64>& v) {
    std::vector<In> in;
    for (u64 a : v) in.push_back({a});
    return in;
}
inline std::vector<In> pairs(const std::vector<u64>& v, const std::vector<u64>& w) {
    std::vector<In> in;
    for (u64 a : v)
        for (u64 b : w) in.push_back({a, b});
    return in;
}
inline std::vector<In> triples(const std::vector<u64>& v, const std::vector<u64>& w,
                               const std::vector<u64>& x) {
    std::vector<In> in;
    for (u64 a : v)
        for (u64 b : w)
            for (u64 c : x) in.push_back({a, b, c});
    return in;
}
// `n` rows of random bits.
inline std::vector<In> noise(int n) {
    std::vector<In> in;
    for (int i = 0; i < n; i++) in.push_back({random_bits(), random_bits(), random_bits(), random_bits()});
    return in;
}
