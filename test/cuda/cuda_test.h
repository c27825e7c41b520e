// cuda_test.h: for tests of the CUDA layers: arrays on the device, outputs poisoned with NaN, and the rule by
// which a result in bfloat16 is judged.
//
// The rule is FlashAttention's: the largest error against the same computation in double may be at most
// `factor` times (2 forward, 3 gradients) that of a naive computation whose every intermediate array is
// rounded as the kernel's inputs are, plus a few units of the last place of the largest number.
#pragma once
#include <cmath>
#include <string>
#include <vector>

#include "../catch.h"
#include "device.h"
#include "rng.h"

// Both element types, for TEMPLATE_TEST_CASE.
#define CUDA_TYPES bf16, float

template <class T>
constexpr double unit = std::is_same_v<T, bf16> ? 1.0 / 256
                                                : 1.0 / (1 << 24);  // half a unit of the last place

template <class T>
double rounded(double x) {
    if constexpr (std::is_same_v<T, bf16>)
        return double(__bfloat162float(__float2bfloat16_rn(float(x))));
    else
        return double(float(x));
}
template <class T>
std::vector<double> rounded(std::vector<double> x) {
    for (double& v : x) v = rounded<T>(v);
    return x;
}

// Normal numbers that T can hold exactly.
template <class T>
std::vector<double> random_values(size_t n, uint32_t seed, double deviation = 1) {
    std::vector<double> out(n);
    for (size_t i = 0; i < n; i++) out[i] = rounded<T>(deviation * normal_at(seed, Stream::init, 0, i));
    return out;
}

// One device a test binary; every test may use it.
template <class T>
CudaDevice<T>& cuda() {
    static CudaDevice<T> device(0);
    return device;
}

// An array on the device, of T, float or int, from and to doubles on the host.
template <class U, class T>
struct OnDevice {
    CudaDevice<T>& device;
    Buffer<U, CudaDevice<T>> buffer;
    OnDevice(CudaDevice<T>& device, const std::vector<double>& values)
        : device(device), buffer(device, values.size(), Memory::workspace) {
        std::vector<U> host(values.size());
        for (size_t i = 0; i < values.size(); i++) host[i] = U(float(values[i]));
        device.upload(buffer.data(), host.data(), host.size() * sizeof(U));
    }
    // An output: every byte 0xff, which is NaN (or -1), so that what a kernel does not write is seen.
    OnDevice(CudaDevice<T>& device, size_t n) : device(device), buffer(device, n, Memory::workspace) {
        std::vector<unsigned char> poison(n * sizeof(U), 0xff);
        device.upload(buffer.data(), poison.data(), poison.size());
    }
    U* data() { return buffer.data(); }
    std::vector<double> values() {
        std::vector<U> host(buffer.size());
        device.download(host.data(), buffer.data(), host.size() * sizeof(U));
        std::vector<double> out(host.size());
        for (size_t i = 0; i < host.size(); i++) out[i] = double(float(host[i]));
        return out;
    }
};

inline double largest_error(const std::vector<double>& a, const std::vector<double>& b) {
    REQUIRE(a.size() == b.size());
    double worst = 0;
    for (size_t i = 0; i < a.size(); i++) {
        if (a[i] == b[i]) continue;
        double e = std::fabs(a[i] - b[i]);
        if (!(e <= worst)) worst = std::isnan(e) ? INFINITY : e;
    }
    return worst;
}
inline double largest(const std::vector<double>& a) {
    double m = 0;
    for (double x : a) m = std::max(m, std::fabs(x));
    return m;
}

// `naive`: the same in the kernel's precision, computed on the host.
template <class T>
void check_close(const std::vector<double>& result, const std::vector<double>& exact,
                 const std::vector<double>& naive, double factor) {
    const double error = largest_error(result, exact), of_naive = largest_error(naive, exact);
    const double allowed = factor * of_naive + 4 * unit<T> * largest(exact);
    INFO("error " << error << ", naive " << of_naive << ", allowed " << allowed);
    CHECK(error <= allowed);
}
