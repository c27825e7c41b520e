// statistics.h: what may be said about a model from k samples on each of n problems.
//
// The problems are the units: samples of one problem are alike, so every interval is clustered by problem.
//
//   mean of means      m = 1/n sum_i x_i, x_i the mean over problem i's samples; variance of m: s^2 / n
//   95% of a share     Wilson's interval with n_eff = m (1 - m) / (s^2 / n) in place of n and Student's t
//   with
//                      n - 1 degrees of freedom in place of the normal quantile (Korn and Graubard's idea).
//                      It stays inside [0, 1] and does not shrink to a point where all problems agree; the
//                      plain t interval, simulated, covers 27-90% instead of 95% at shares below 0.1.
//   95% of a difference  m -+ t s / sqrt(n) of the paired differences x_i - y_i
//   pass@k             1 - C(n-c, k) / C(n, k), c of n samples right (Chen et al., "Evaluating large language
//                      models trained on code", 2021, eq. 1): unbiased; needs k <= n
#pragma once
#include <algorithm>
#include <cmath>
#include <string>
#include <vector>

#include "base.h"

// Regularised incomplete beta function I_x(a, b) by its continued fraction (Lentz's method).
inline double incomplete_beta(double a, double b, double x) {
    if (x <= 0) return 0;
    if (x >= 1) return 1;
    if (x > (a + 1) / (a + b + 2)) return 1 - incomplete_beta(b, a, 1 - x);
    const double tiny = 1e-300;
    double front =
        std::exp(std::lgamma(a + b) - std::lgamma(a) - std::lgamma(b) + a * std::log(x) + b * std::log1p(-x));
    double c = 1, d = 1 - (a + b) * x / (a + 1);
    d = 1 / (std::fabs(d) < tiny ? tiny : d);
    double f = d;
    for (int m = 1; m < 10000; m++) {
        auto step = [&](double numerator) {
            d = 1 + numerator * d;
            c = 1 + numerator / c;
            d = 1 / (std::fabs(d) < tiny ? tiny : d);
            c = std::fabs(c) < tiny ? tiny : c;
            f *= c * d;
            return c * d;
        };
        step(m * (b - m) * x / ((a + 2 * m - 1) * (a + 2 * m)));
        double last = step(-(a + m) * (a + b + m) * x / ((a + 2 * m) * (a + 2 * m + 1)));
        if (std::fabs(last - 1) < 1e-14) break;
    }
    return front * f / a;
}

// The t with P(|T| <= t) = level for Student's distribution with `df` >= 1 degrees of freedom.
inline double student_quantile(double level, double df) {
    // P(|T| > t) = I_x(df/2, 1/2) at x = df / (df + t^2); bisection on t, which is all a summary needs.
    double low = 0, high = 1;
    auto outside = [&](double t) { return incomplete_beta(df / 2, 0.5, df / (df + t * t)); };
    while (outside(high) > 1 - level && high < 1e9) high *= 2;
    for (int i = 0; i < 100; i++) {
        double middle = (low + high) / 2;
        (outside(middle) > 1 - level ? low : high) = middle;
    }
    return (low + high) / 2;
}

struct Estimate {
    double mean = 0, low = 0, high = 0;  // 95%
    double error = 0;                    // standard error of the mean, clustered
    int problems = 0;
};

namespace statistics_detail {
inline Estimate mean_and_error(const std::vector<double>& x) {
    Estimate e;
    const size_t n = x.size();
    e.problems = int(n);
    if (n == 0) return e;
    double sum = 0, squares = 0;
    for (double v : x) sum += v;
    e.mean = sum / double(n);
    for (double v : x) squares += (v - e.mean) * (v - e.mean);
    e.error = n > 1 ? std::sqrt(squares / double(n - 1) / double(n)) : 0;
    return e;
}
}  // namespace statistics_detail

// x (n): each problem's share, in [0, 1]; `samples` per problem bound what a problem can tell.
inline Estimate share_estimate(const std::vector<double>& x, int samples) {
    Estimate e = statistics_detail::mean_and_error(x);
    e.low = 0, e.high = 1;
    if (e.problems < 2) return e;
    const double n = e.problems, m = e.mean, variance = e.error * e.error;
    // All problems alike: at 0 or 1 they may well be alike in truth, and count as n; else as n * samples.
    double effective = m <= 0 || m >= 1 ? n : n * samples;
    if (variance > 0) effective = std::min(effective, m * (1 - m) / variance);
    const double t = student_quantile(0.95, n - 1), z = t * t / effective;
    const double center = (m + z / 2) / (1 + z);
    const double half = t / (1 + z) * std::sqrt(m * (1 - m) / effective + z / (4 * effective));
    e.low = std::max(0.0, center - half), e.high = std::min(1.0, center + half);
    return e;
}

// d (n): differences of the two sides on the same problem.
inline Estimate difference_estimate(const std::vector<double>& d) {
    Estimate e = statistics_detail::mean_and_error(d);
    double half = e.problems < 2 ? 1 : student_quantile(0.95, e.problems - 1) * e.error;
    e.low = e.mean - half, e.high = e.mean + half;
    return e;
}

// Errors: k larger than the number of samples, which no estimate can mend.
inline double pass_at_k(int samples, int right, int k) {
    if (k < 1 || k > samples)
        fail(format("pass@%d needs at least %d samples per problem (there are %d)", k, k, samples),
             "draw more with --samples, or ask for a smaller k");
    if (samples - right < k) return 1;
    double none = 1;  // product form: no overflow
    for (int i = samples - right + 1; i <= samples; i++) none *= 1 - double(k) / i;
    return 1 - none;
}

// 1, 2, 4, ... and k itself
inline std::vector<int> power_ladder(int k) {
    std::vector<int> out;
    for (int i = 1; i < k; i *= 2) out.push_back(i);
    out.push_back(k);
    return out;
}

// The most frequent vote; null votes (-1) are not counted. Ties: a tie between m answers counts 1/m for each,
// the expectation of drawing lots. Returns the share of the winning answers that is right. `right[v]` tells
// of vote v.
inline double majority(const std::vector<int>& vote, const std::vector<bool>& right) {
    std::vector<int> count(right.size(), 0);
    for (int v : vote)
        if (v >= 0) count[size_t(v)]++;
    int most = 0, winners = 0, good = 0;
    for (int c : count) most = std::max(most, c);
    if (most == 0) return 0;
    for (size_t v = 0; v < count.size(); v++)
        if (count[v] == most) winners++, good += right[v];
    return double(good) / winners;
}

// Value below which the share q of the values lies, interpolated linearly between neighbours.
inline double quantile(std::vector<double> x, double q) {
    if (x.empty()) return 0;
    std::sort(x.begin(), x.end());
    double at = q * double(x.size() - 1);
    size_t i = size_t(at);
    return i + 1 < x.size() ? x[i] + (at - double(i)) * (x[i + 1] - x[i]) : x[i];
}
