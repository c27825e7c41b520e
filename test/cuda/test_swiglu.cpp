// swiglu on the CUDA device against double.
#include "cuda_test.h"
#include "layers/swiglu.cuh"

namespace {

// In double, every result rounded by `round`.
template <class Round>
void reference(const std::vector<double>& gu, const std::vector<double>& dh, int N, int F,
               std::vector<double>& h, std::vector<double>& dgu, Round round) {
    h.resize(size_t(N) * F), dgu.resize(size_t(N) * 2 * F);
    for (int n = 0; n < N; n++)
        for (int i = 0; i < F; i++) {
            const double g = gu[size_t(n) * 2 * F + i], u = gu[size_t(n) * 2 * F + F + i],
                         d = dh[size_t(n) * F + i], s = round(1 / (1 + std::exp(-g)));
            h[size_t(n) * F + i] = round(round(g * s) * u);
            dgu[size_t(n) * 2 * F + F + i] = round(d * round(g * s));
            dgu[size_t(n) * 2 * F + i] = round(round(d * u) * round(s * (1 + g * (1 - s))));
        }
}

}  // namespace

TEMPLATE_TEST_CASE("cuda: swiglu against double", "[cuda][swiglu]", CUDA_TYPES) {
    using T = TestType;
    CudaDevice<T>& device = cuda<T>();
    for (int N : {1, 3, 70})
        for (int F : {8, 40, 264}) {
            CAPTURE(N, F);
            const auto gu = random_values<T>(size_t(N) * 2 * F, 1, 3),
                       dh = random_values<T>(size_t(N) * F, 2);
            std::vector<double> h, dgu, naive_h, naive_dgu;
            reference(gu, dh, N, F, h, dgu, [](double x) { return x; });
            reference(gu, dh, N, F, naive_h, naive_dgu, [](double x) { return rounded<T>(x); });
            OnDevice<T, T> in(device, gu), grad(device, dh), out(device, size_t(N) * F),
                din(device, size_t(N) * 2 * F);
            swiglu_forward(device, out.data(), in.data(), N, F);
            swiglu_backward(device, din.data(), grad.data(), in.data(), N, F);
            check_close<T>(out.values(), h, naive_h, 2);
            check_close<T>(din.values(), dgu, naive_dgu, 3);
        }
}
