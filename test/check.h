// check.h: what the tests share: deterministic random arrays, central differences, closeness of arrays.
#pragma once
#include <omp.h>

#include <cmath>
#include <functional>
#include <string>
#include <vector>

#include "catch.h"
#include "rng.h"

// While it lives, parallel loops use `n` threads. One is fastest for tiny models on a busy machine, where
// waiting for a second thread takes longer than the work.
struct Threads {
    int before = omp_get_max_threads();
    explicit Threads(int n) { omp_set_num_threads(n); }
    ~Threads() { omp_set_num_threads(before); }
    Threads(const Threads&) = delete;
    Threads& operator=(const Threads&) = delete;
};

// n standard normals from stream `index`; the same in every test run.
template <class T = double>
std::vector<T> random_array(size_t n, uint32_t index, double scale = 1, double shift = 0) {
    std::vector<T> out(n);
    for (size_t i = 0; i < n; i++) out[i] = T(shift + scale * normal_at(1, Stream::test, index, i));
    return out;
}

// sum of a[i] * b[i]: turns an array into the scalar whose gradient is b
template <class T>
double inner(const std::vector<T>& a, const std::vector<T>& b) {
    double sum = 0;
    for (size_t i = 0; i < a.size(); i++) sum += double(a[i]) * double(b[i]);
    return sum;
}

// Compares `gradient` with central differences of `loss` in every element of x (or `at_most` evenly spaced
// ones). With a step of 1e-5 in double the difference quotient is good to about 1e-9 of the function's scale.
inline void check_gradient(std::vector<double>& x, const std::vector<double>& gradient,
                           const std::function<double()>& loss, const std::string& what,
                           double tolerance = 1e-7, size_t at_most = 400) {
    REQUIRE(gradient.size() == x.size());
    double largest = 0;
    for (double g : gradient) largest = std::max(largest, std::fabs(g));
    INFO(what);
    REQUIRE(largest > 0);  // a gradient that is zero everywhere proves nothing
    size_t stride = x.size() > at_most ? x.size() / at_most : 1;
    for (size_t i = 0; i < x.size(); i += stride) {
        const double step = 1e-5, keep = x[i];
        x[i] = keep + step;
        double up = loss();
        x[i] = keep - step;
        double down = loss();
        x[i] = keep;
        double expected = (up - down) / (2 * step);
        INFO(what << " element " << i << ": gradient " << gradient[i] << ", difference quotient "
                  << expected);
        REQUIRE(std::fabs(gradient[i] - expected) <= tolerance * std::max(1.0, largest));
    }
}

template <class T>
double largest_difference(const std::vector<T>& a, const std::vector<T>& b) {
    REQUIRE(a.size() == b.size());
    double worst = 0;
    for (size_t i = 0; i < a.size(); i++) {
        double gap = std::fabs(double(a[i]) - double(b[i]));
        if (!(gap <= worst)) worst = gap;  // a NaN stays
        if (std::isnan(worst)) break;
    }
    return worst;
}
