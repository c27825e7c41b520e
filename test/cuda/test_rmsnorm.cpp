// rmsnorm, add and copy on the CUDA device against double.
#include "cuda_test.h"
#include "layers/rmsnorm.cuh"

namespace {

using Values = std::vector<double>;
constexpr float eps = 1e-6f;

double same(double x) {
    return x;
}

struct Norm {
    Values y, r, dx, dw;
};
// In double; what is stored and what lies between is rounded by `round`, sums by `sum`.
Norm reference(const Values& x, const Values& w, const Values& dy, Rows rows, int D, double (*round)(double),
               double (*sum)(double)) {
    Norm out{Values(x.size(), NAN), {}, Values(x.size(), NAN), Values(size_t(D))};
    for (int t = 0; t < rows.tokens; t++)
        for (int h = 0; h < rows.heads; h++) {
            const size_t at = size_t(t) * rows.stride + size_t(h) * D;
            double squares = 0, along = 0;
            for (size_t d = 0; d < size_t(D); d++) {
                squares = sum(squares + x[at + d] * x[at + d]);
                along = sum(along + round(dy[at + d] * w[d]) * x[at + d]);
            }
            const double r = sum(1 / std::sqrt(sum(squares / D) + double(eps)));
            out.r.push_back(r);
            for (size_t d = 0; d < size_t(D); d++) {
                const double normed = round(x[at + d] * r);
                out.y[at + d] = round(w[d] * normed);
                out.dx[at + d] = round(round(r * round(dy[at + d] * w[d])) -
                                       round(x[at + d] * sum(r * r * r / D * along)));
                out.dw[d] = sum(out.dw[d] + dy[at + d] * normed);
            }
        }
    return out;
}

// An array that is part of rows keeps what lies outside of them.
Values of_rows(const Values& a, Rows rows, int D, bool inside = true) {
    Values out;
    const size_t width = size_t(rows.heads) * size_t(D);
    for (size_t i = 0; i < a.size(); i++)
        if ((i % rows.stride < width) == inside) out.push_back(a[i]);
    return out;
}

bool all_nan(const Values& a) {
    return std::all_of(a.begin(), a.end(), [](double x) { return std::isnan(x); });
}

struct Shape {
    Rows rows;
    int D;
};
// All widths that the kernels tell apart: parts of a warp, a warp, a block.
const Shape shapes[] = {{{1, 1, 8}, 8},       {{37, 1, 40}, 40},    {{5, 3, 64}, 16},
                        {{70, 2, 400}, 128},  {{3, 1, 264}, 264},   {{70, 1, 1040}, 1040},
                        {{2, 1, 1536}, 1536}, {{1, 1, 8192}, 8192}, {{33, 1, 2056}, 2056},
                        {{9, 1, 136}, 128},   {{0, 1, 64}, 64}};

}  // namespace

TEMPLATE_TEST_CASE("cuda: rmsnorm against double", "[cuda][rmsnorm]", CUDA_TYPES) {
    using T = TestType;
    CudaDevice<T>& device = cuda<T>();
    for (const Shape& s : shapes) {
        const Rows rows = s.rows;
        const int D = s.D;
        const size_t n = size_t(rows.tokens) * rows.stride, count = size_t(rows.tokens * rows.heads);
        CAPTURE(rows.tokens, rows.heads, rows.stride, D);
        const double size = D == 16 ? 1e-3 : 3;  // small ones, beside which eps is not
        const Values x = random_values<T>(n, 1, size), w = random_values<T>(size_t(D), 2),
                     dy = random_values<T>(n, 3), dx0 = random_values<T>(n, 4),
                     dw0 = random_values<float>(size_t(D), 5);
        Norm exact = reference(x, w, dy, rows, D, same, same),
             naive = reference(x, w, dy, rows, D, rounded<T>, rounded<float>);
        for (size_t d = 0; d < dw0.size(); d++) exact.dw[d] += dw0[d], naive.dw[d] += dw0[d];
        OnDevice<T, T> in(device, x), weight(device, w), grad(device, dy), y(device, n), dx(device, n);
        OnDevice<float, T> r(device, count), dw(device, dw0), exact_r(device, exact.r);
        rmsnorm_forward(device, y.data(), r.data(), in.data(), weight.data(), rows, D, eps);
        check_close<T>(of_rows(y.values(), rows, D), of_rows(exact.y, rows, D), of_rows(naive.y, rows, D), 2);
        CHECK(all_nan(of_rows(y.values(), rows, D, false)));
        check_close<float>(r.values(), exact.r, naive.r, 2);

        rmsnorm_backward(device, dx.data(), dw.data(), grad.data(), in.data(), exact_r.data(), weight.data(),
                         rows, D, false);
        const Values first = dx.values();
        check_close<T>(of_rows(first, rows, D), of_rows(exact.dx, rows, D), of_rows(naive.dx, rows, D), 3);
        CHECK(all_nan(of_rows(first, rows, D, false)));
        check_close<float>(dw.values(), exact.dw, naive.dw, 3);

        // In place over dy, and dw with the same bits at every run.
        OnDevice<T, T> place(device, dy);
        OnDevice<float, T> again(device, dw0);
        rmsnorm_backward(device, place.data(), again.data(), place.data(), in.data(), exact_r.data(),
                         weight.data(), rows, D, false);
        CHECK(of_rows(place.values(), rows, D) == of_rows(first, rows, D));
        CHECK(of_rows(place.values(), rows, D, false) == of_rows(dy, rows, D, false));
        CHECK(again.values() == dw.values());

        // Onto the residual stream's gradient.
        OnDevice<T, T> stream(device, dx0);
        rmsnorm_backward(device, stream.data(), again.data(), grad.data(), in.data(), exact_r.data(),
                         weight.data(), rows, D, true);
        for (size_t i = 0; i < n; i++) exact.dx[i] += dx0[i], naive.dx[i] = rounded<T>(naive.dx[i] + dx0[i]);
        check_close<T>(of_rows(stream.values(), rows, D), of_rows(exact.dx, rows, D),
                       of_rows(naive.dx, rows, D), 3);
    }
}

TEMPLATE_TEST_CASE("cuda: dw does not depend on other rows' number", "[cuda][rmsnorm]", CUDA_TYPES) {
    // More rows than parts have at least, and a last part that is not full.
    using T = TestType;
    CudaDevice<T>& device = cuda<T>();
    const int N = 16 * 1024 + 40, D = 8;
    const Rows rows = plain_rows(N, D);
    const Values x = random_values<T>(size_t(N) * D, 1), w = random_values<T>(size_t(D), 2),
                 dy = random_values<T>(size_t(N) * D, 3);
    const Norm exact = reference(x, w, dy, rows, D, same, same),
               naive = reference(x, w, dy, rows, D, rounded<T>, rounded<float>);
    OnDevice<T, T> in(device, x), weight(device, w), grad(device, dy), dx(device, x.size());
    OnDevice<float, T> r(device, exact.r), dw(device, Values(D));
    rmsnorm_backward(device, dx.data(), dw.data(), grad.data(), in.data(), r.data(), weight.data(), rows, D,
                     false);
    check_close<T>(dx.values(), exact.dx, naive.dx, 3);
    check_close<float>(dw.values(), exact.dw, naive.dw, 3);
}

TEMPLATE_TEST_CASE("cuda: add and norm in one kernel have the bits of the norm of the sum", "[cuda][rmsnorm]",
                   CUDA_TYPES) {
    using T = TestType;
    CudaDevice<T>& device = cuda<T>();
    for (int N : {1, 6, 35})
        for (int D : {8, 264, 1536, 2056}) {
            CAPTURE(N, D);
            const size_t n = size_t(N) * size_t(D);
            const Values x = random_values<T>(n, 1, 3), delta = random_values<T>(n, 2),
                         w = random_values<T>(size_t(D), 3);
            OnDevice<T, T> a(device, x), b(device, delta), weight(device, w), sum(device, n), y(device, n),
                y2(device, n);
            OnDevice<float, T> r(device, size_t(N)), r2(device, size_t(N));
            add_rmsnorm_forward(device, sum.data(), y.data(), r.data(), a.data(), b.data(), weight.data(), N,
                                D, eps);
            Values expected(n);
            for (size_t i = 0; i < n; i++) expected[i] = rounded<T>(x[i] + delta[i]);
            CHECK(sum.values() == expected);
            rmsnorm_forward(device, y2.data(), r2.data(), sum.data(), weight.data(), plain_rows(N, D), D,
                            eps);
            CHECK(y.values() == y2.values());
            CHECK(r.values() == r2.values());
        }
}

TEMPLATE_TEST_CASE("cuda: copy_rows", "[cuda][rmsnorm]", CUDA_TYPES) {
    using T = TestType;
    CudaDevice<T>& device = cuda<T>();
    const Rows rows{21, 3, 72};
    const int D = 16;
    const Values x = random_values<T>(21 * 72, 1);
    OnDevice<T, T> in(device, x), out(device, x.size());
    copy_rows(device, out.data() + 24, in.data() + 24, rows, D);
    const Rows others{21, 1, 72};  // the 24 elements before
    Values expected, result = out.values();
    for (size_t i = 0; i < x.size(); i++)
        if (i % 72 >= 24) expected.push_back(x[i]);
    CHECK(of_rows(result, others, 24, false) == expected);
    CHECK(all_nan(of_rows(result, others, 24)));
}

TEST_CASE("cuda: a row too long for the norms is refused", "[cuda][rmsnorm]") {
    CudaDevice<float>& device = cuda<float>();
    float* const none = nullptr;
    for (int D : {8200, 12, 0})
        CHECK_THROWS_AS(rmsnorm_forward(device, none, none, none, none, plain_rows(1, D), D, eps), Error);
}
