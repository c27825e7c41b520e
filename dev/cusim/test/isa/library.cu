// library.cu: CUDA's mathematical functions, long chains of the instructions that the other tables take one
// by one, against the host's, within the errors of the CUDA programming guide's table.
#include "exact.h"

namespace {

template <class T, class F>
__global__ void apply(F f, const T* x, const T* y, T* out, int n) {
    int i = blockIdx.x * blockDim.x + threadIdx.x;
    if (i < n) out[i] = f(x[i], y[i]);
}

// Arguments uniform in [low, high]; a difference of `ulps` units in the last place is allowed.
template <class T, class F, class Want>
void compare(const char* name, double low, double high, double ulps, F f, Want want) {
    const int n = 200;
    std::vector<T> x, y;
    for (int i = 0; i < n; i++) {
        x.push_back(T(low + (high - low) * (double(random_bits() >> 11) / (1ull << 53))));
        y.push_back(T(double(random_bits() >> 11) / (1ull << 53) * 6 - 3));
    }
    Device<T> dx(x), dy(y), out{size_t(n)};
    apply<<<(n + 63) / 64, 64>>>(f, dx.data, dy.data, out.data, n);
    CUDA(cudaGetLastError());
    CUDA(cudaDeviceSynchronize());
    std::vector<T> got = out.host();
    for (int i = 0; i < n; i++) {
        // the host's value in the next wider format
        auto exact_value = want((long double)x[i], (long double)y[i]);
        T w = T(exact_value);
        double unit = std::fabs(double(std::nextafter(w, T(INFINITY)) - w));
        bool good = std::isnan(w) ? std::isnan(got[i])
                    : std::isinf(w)
                        ? got[i] == w
                        : std::fabs(double((long double)got[i] - exact_value)) <= (ulps + 0.5) * unit;
        char line[120];
        std::snprintf(line, sizeof line, "%.9g, %.9g: got %.9g, expected %.9g", double(x[i]), double(y[i]),
                      double(got[i]), double(w));
        expect(good, name, line, u64(i), u64(i));
    }
}

#define FLOAT(name, low, high, ulps, device, host)                                 \
    compare<float>(                                                                \
        name, low, high, ulps, [] __device__(float x, float y) { return device; }, \
        [](long double x, long double y) {                                         \
            (void)y;                                                               \
            return host;                                                           \
        });
#define DOUBLE(name, low, high, ulps, device, host)                                  \
    compare<double>(                                                                 \
        name, low, high, ulps, [] __device__(double x, double y) { return device; }, \
        [](long double x, long double y) {                                           \
            (void)y;                                                                 \
            return host;                                                             \
        });

}  // namespace

int main() {
    FLOAT("expf", -90, 90, 1, expf(x), expl(x))
    FLOAT("exp2f", -130, 130, 2, exp2f(x), exp2l(x))
    FLOAT("logf", 0, 1000, 1, logf(x), logl(x))
    FLOAT("log2f", 0, 1e30, 1, log2f(x), log2l(x))
    FLOAT("log1pf", -0.9, 3, 1, log1pf(x), log1pl(x))
    FLOAT("expm1f", -3, 3, 1, expm1f(x), expm1l(x))
    FLOAT("sinf", -100, 100, 2, sinf(x), sinl(x))
    FLOAT("sinf of large arguments", -1e9, 1e9, 2, sinf(x), sinl(x))
    FLOAT("cosf", -100000, 100000, 2, cosf(x), cosl(x))
    FLOAT("tanhf", -5, 5, 2, tanhf(x), tanhl(x))
    FLOAT("erff", -4, 4, 2, erff(x), erfl(x))
    FLOAT("powf", 0.01, 50, 4, powf(x, y), powl(x, y))
    FLOAT("fmodf", -100, 100, 0, fmodf(x, y), fmodl(x, y))
    FLOAT("sqrtf", 0, 1e10, 0, sqrtf(x), sqrtl(x))
    FLOAT("rsqrtf", 0.001, 1e10, 2, rsqrtf(x), 1 / sqrtl(x))
    FLOAT("x / y", -100, 100, 0, x / y, x / y)
    FLOAT("rintf", -100, 100, 0, rintf(x), rintl(x))
    FLOAT("roundf", -100, 100, 0, roundf(x), roundl(x))
    FLOAT("floorf", -100, 100, 0, floorf(x), floorl(x))
    FLOAT("ldexpf", -100, 100, 0, ldexpf(x, int(y)), ldexpl(x, int(y)))
    DOUBLE("exp", -700, 700, 1, exp(x), expl(x))
    DOUBLE("log", 0, 1e9, 1, log(x), logl(x))
    DOUBLE("sin", -1e5, 1e5, 2, sin(x), sinl(x))
    DOUBLE("pow", 0.01, 50, 2, pow(x, y), powl(x, y))
    DOUBLE("tanh", -5, 5, 2, tanh(x), tanhl(x))
    DOUBLE("rsqrt", 0.001, 1e10, 1, rsqrt(x), 1 / sqrtl(x))
    DOUBLE("double x / y", -100, 100, 0, x / y, x / y)
    return summary("library");
}
