// The small layers: embedding, RMSNorm, SwiGLU, AdamW; and the fixed-order vector functions below them.
#include <omp.h>

#include "check.h"
#include "layers/adamw.cuh"
#include "layers/embedding.cuh"
#include "layers/rmsnorm.cuh"
#include "layers/swiglu.cuh"

namespace {
CpuDevice<double> cpu64;
Cpu cpu;
using Doubles = std::vector<double>;
}  // namespace

TEST_CASE("exp: within 2 ulp of libm, exact limits") {
    double worst = 0;
    for (double a = -87.3; a < 88.3; a += 0.0137) {
        float x[lanes<float>], y[lanes<float>];
        for (int i = 0; i < lanes<float>; i++) x[i] = float(a + i * 1e-3);
        store(y, exp(load(x)));
        for (int i = 0; i < lanes<float>; i++) {
            double truth = std::exp(double(x[i]));
            worst = std::max(worst, std::fabs(y[i] - truth) / (truth * std::ldexp(1.0, -23)));
        }
    }
    CHECK(worst < 2);
    float x[lanes<float>] = {-INFINITY, INFINITY, NAN, 0, -90, 90, -1e30f}, y[lanes<float>];
    store(y, exp(load(x)));
    CHECK(y[0] == 0);
    CHECK(y[1] == INFINITY);
    CHECK(std::isnan(y[2]));
    CHECK(y[3] == 1);
    CHECK(y[4] == 0);
    CHECK(y[5] == INFINITY);
    CHECK(y[6] == 0);
}

TEST_CASE("dot: every length, tails included") {
    for (int n : {1, 2, 7, 8, 9, 15, 16, 17, 31, 33, 100}) {
        Doubles a = random_array(size_t(n), 1), b = random_array(size_t(n), 2);
        CHECK(dot(a.data(), b.data(), n) == Approx(inner(a, b)).epsilon(1e-13));
    }
}

TEST_CASE("embedding: gradient counts repeated tokens, in token order whatever the threads") {
    const int V = 7, D = 70, N = 5;
    const std::vector<int> token = {3, 0, 3, 6, 3};
    std::vector<float> table = random_array<float>(V * D, 1), out(N * D),
                       dout = random_array<float>(N * D, 2);
    embedding_forward(cpu, out.data(), token.data(), table.data(), N, D);
    for (int n = 0; n < N; n++)
        for (int d = 0; d < D; d++)
            REQUIRE(out[size_t(n * D + d)] == table[size_t(token[size_t(n)] * D + d)]);
    std::vector<float> grad(V * D, 0.5f), expected(V * D, 0.5f);
    embedding_backward(cpu, grad.data(), token.data(), dout.data(), N, D);
    for (int n = 0; n < N; n++)
        for (int d = 0; d < D; d++) expected[size_t(token[size_t(n)] * D + d)] += dout[size_t(n * D + d)];
    CHECK(grad == expected);
}

TEST_CASE("rmsnorm: values and gradients, plain rows and heads inside wider rows") {
    const double eps = 1e-3;
    for (int D : {3, 8, 24}) {
        for (bool heads : {false, true}) {
            const int tokens = 4, H = heads ? 3 : 1;
            const size_t stride = size_t(H * D + (heads ? 5 : 0));
            Rows rows{tokens, H, stride};
            Doubles x = random_array(tokens * stride, 1), w = random_array(size_t(D), 2, 0.3, 1);
            Doubles r(size_t(tokens * H)), y(tokens * stride, 0.0), dy = random_array(tokens * stride, 3);
            if (heads)  // the gap belongs to nobody
                for (size_t t = 0; t < size_t(tokens); t++)
                    for (size_t i = size_t(H * D); i < stride; i++) dy[t * stride + i] = 0;
            auto loss = [&] {
                rmsnorm_forward(cpu64, y.data(), r.data(), x.data(), w.data(), rows, D, eps);
                return inner(y, dy);
            };
            loss();
            double mean = 0;
            for (int d = 0; d < D; d++) mean += x[size_t(d)] * x[size_t(d)] / D;
            CHECK(y[1] == Approx(w[1] * x[1] / std::sqrt(mean + eps)).epsilon(1e-12));
            Doubles dx(tokens * stride, 0.0), dw(size_t(D), 0.0);
            rmsnorm_backward(cpu64, dx.data(), dw.data(), dy.data(), x.data(), r.data(), w.data(), rows, D,
                             false);
            check_gradient(x, dx, loss, "rmsnorm dx");
            check_gradient(w, dw, loss, "rmsnorm dw");

            Doubles twice = dx, dw2 = dw;
            rmsnorm_backward(cpu64, twice.data(), dw2.data(), dy.data(), x.data(), r.data(), w.data(), rows,
                             D, true);
            for (size_t i = 0; i < dx.size(); i++) REQUIRE(twice[i] == dx[i] + dx[i]);
            CHECK(dw2[0] == Approx(2 * dw[0]));
        }
    }
}

TEST_CASE("swiglu: values and gradients, tails included, backward in place") {
    for (int F : {1, 7, 8, 19}) {
        const int N = 3;
        Doubles gu = random_array(size_t(N * 2 * F), 1, 2), h(size_t(N * F)),
                dh = random_array(size_t(N * F), 2);
        auto loss = [&] {
            swiglu_forward(cpu64, h.data(), gu.data(), N, F);
            return inner(h, dh);
        };
        loss();
        CHECK(h[0] == Approx(gu[0] / (1 + std::exp(-gu[0])) * gu[size_t(F)]).epsilon(1e-12));
        Doubles dgu(gu.size());
        swiglu_backward(cpu64, dgu.data(), dh.data(), gu.data(), N, F);
        check_gradient(gu, dgu, loss, "swiglu");
        swiglu_backward(cpu64, gu.data(), dh.data(), gu.data(), N, F);
        CHECK(gu == dgu);
    }
}

TEST_CASE("swiglu: large gates neither overflow nor turn to NaN") {
    std::vector<float> gu = {-200, 200, -INFINITY, 3, 3, 3}, h(3);
    gu[2] = -90;
    swiglu_forward(cpu, h.data(), gu.data(), 1, 3);
    CHECK(h[0] == 0);
    CHECK(h[1] == 600);
    CHECK(std::isfinite(h[2]));
}

TEST_CASE("adamw: two steps by hand; decay is decoupled; the scale acts on the gradient") {
    std::vector<double> p = {1, -2}, m(2), v(2), g = {0.5, 4};
    AdamW o;
    o.lr = 0.1f, o.beta1 = 0.5f, o.beta2 = 0.75f, o.eps = 0;
    adamw_update(cpu64, p.data(), m.data(), v.data(), g.data(), 2, o, 0.25f, 0.5, 1);
    // g = 0.25, 2: both moments' corrections leave sign(g)
    const double lr = double(0.1f);
    CHECK(p[0] == Approx(1 - lr * (1 + 0.25 * 1)).epsilon(1e-6));
    CHECK(p[1] == Approx(-2 - lr * (1 + 0.25 * -2)).epsilon(1e-6));
    double before = p[0];
    g = {-1, 0};
    adamw_update(cpu64, p.data(), m.data(), v.data(), g.data(), 2, o, 0.f, 1.0, 2);
    double m2 = 0.5 * (0.5 * 0.25) + 0.5 * -1, v2 = 0.75 * (0.25 * 0.0625) + 0.25 * 1;
    CHECK(p[0] == Approx(before - lr * (m2 / 0.75) / std::sqrt(v2 / (1 - 0.75 * 0.75))).epsilon(1e-6));
}

TEST_CASE("global norm: right, independent of threads, and lets NaN and inf through") {
    std::vector<float> g = random_array<float>(100003, 5);
    double expected = std::sqrt(inner(g, g));
    omp_set_num_threads(1);
    double one = global_norm(cpu, g.data(), g.size());
    omp_set_num_threads(2);
    double two = global_norm(cpu, g.data(), g.size());
    CHECK(one == two);
    CHECK(one == Approx(expected).epsilon(1e-12));
    g[77777] = NAN;
    CHECK(std::isnan(global_norm(cpu, g.data(), g.size())));
    g[77777] = INFINITY;
    CHECK(std::isinf(global_norm(cpu, g.data(), g.size())));
}
