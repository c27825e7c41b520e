// AdamW, the gradient's norm and the cast of weights on the CUDA device.
#include "cuda_test.h"
#include "layers/adamw.cuh"

namespace {
using Values = std::vector<double>;
}

TEMPLATE_TEST_CASE("cuda: adamw_update against the CPU in double", "[cuda][adamw]", CUDA_TYPES) {
    using T = TestType;
    CudaDevice<T>& device = cuda<T>();
    CpuDevice<double> cpu;
    AdamW options;
    options.lr = 0.01f;
    for (size_t n : {0, 1, 4, 7, 1030}) {
        CAPTURE(n);
        Values p = random_values<float>(n, 1), m(n), v(n);
        OnDevice<float, T> dp(device, p), dm(device, m), dv(device, v);
        for (int t = 1; t <= 3; t++) {
            const Values g = random_values<float>(n, uint32_t(t) + 1);
            OnDevice<float, T> dg(device, g);
            adamw_update(cpu, p.data(), m.data(), v.data(), g.data(), n, options, 0.1f, 0.5, t);
            adamw_update(device, dp.data(), dm.data(), dv.data(), dg.data(), n, options, 0.1f, 0.5f, t);
        }
        // beta and 1 - beta are floats on the device: relative errors of 1e-6 in m and v.
        CHECK(largest_error(dp.values(), p) <= 2e-6 * largest(p));
        CHECK(largest_error(dm.values(), m) <= 2e-6 * largest(m));
        CHECK(largest_error(dv.values(), v) <= 2e-6 * largest(v));
    }
}

TEMPLATE_TEST_CASE("cuda: global_norm", "[cuda][adamw]", CUDA_TYPES) {
    using T = TestType;
    CudaDevice<T>& device = cuda<T>();
    for (size_t n : {0, 1, 3, 4, 1029, 65536, 65536 * 2 + 6}) {
        CAPTURE(n);
        const Values g = random_values<float>(n, 1, 1e25);  // the squares do not fit float
        double exact = 0;
        for (double x : g) exact += x * x;
        OnDevice<float, T> in(device, g);
        const double norm = global_norm(device, in.data(), n);
        CHECK(std::fabs(norm - std::sqrt(exact)) <= 1e-13 * std::sqrt(exact));
        CHECK(global_norm(device, in.data(), n) == norm);
    }
    for (size_t place : {size_t(0), size_t(65536), size_t(70002)}) {
        Values g(70003, 1.0);
        g[place] = INFINITY;
        CHECK(std::isinf(global_norm(device, OnDevice<float, T>(device, g).data(), g.size())));
        g[place] = NAN;
        CHECK(std::isnan(global_norm(device, OnDevice<float, T>(device, g).data(), g.size())));
    }
}

TEMPLATE_TEST_CASE("cuda: cast_weights rounds to nearest even", "[cuda][adamw]", CUDA_TYPES) {
    using T = TestType;
    CudaDevice<T>& device = cuda<T>();
    for (size_t n : {0, 1, 8, 2061}) {
        Values x = random_values<float>(n, 1);
        if (n > 4) x[1] = 1 + 1.0 / 256, x[2] = 1 + 3.0 / 256, x[3] = INFINITY;  // ties
        OnDevice<float, T> from(device, x);
        OnDevice<T, T> to(device, n);
        cast_weights(device, to.data(), from.data(), n);
        CHECK(to.values() == rounded<T>(x));
    }
    OnDevice<float, T> same(device, random_values<float>(9, 2));
    if constexpr (std::is_same_v<T, float>) {
        cast_weights(device, same.data(), same.data(), 9);
        CHECK(same.values() == random_values<float>(9, 2));
    }
}
