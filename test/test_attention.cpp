// attention.cuh against a plain computation in double that knows visible() and nothing else; gradients by
// finite differences; and the promise that nothing but positions decides a bit.
#include <omp.h>

#include <cmath>

#include "check.h"
#include "layers/attention.cuh"

namespace {

struct Sizes {
    int H, G, E;
    size_t row() const { return size_t(H + 2 * G) * E; }
};

// out, and dqkv for dout, of packed documents.
template <class T>
struct Result {
    std::vector<T> out, lse, dqkv;
};
template <class T>
Result<T> run(const std::vector<T>& qkv, const std::vector<T>& dout, const std::vector<int>& cu, Window w,
              Sizes s) {
    CpuDevice<T> device;
    const size_t N = cu.back();
    Result<T> r{std::vector<T>(N * s.H * s.E, T(NAN)), std::vector<T>(N * s.H, T(NAN)),
                std::vector<T>(N * s.row(), T(NAN))};
    const Documents docs{cu.data(), int(cu.size()) - 1, int(N)};
    attention_forward(device, r.out.data(), r.lse.data(), qkv.data(), docs, w, s.H, s.G, s.E);
    attention_backward(device, r.dqkv.data(), dout.data(), r.out.data(), r.lse.data(), qkv.data(), docs, w,
                       s.H, s.G, s.E);
    return r;
}

// One document, N x N in memory, in double. `rule(q, k)` says who sees whom.
template <class T, class Rule>
Result<double> naive(const std::vector<T>& qkv, const std::vector<T>& dout, int N, Sizes s, Rule rule) {
    const int E = s.E, group = s.H / s.G;
    Result<double> r{std::vector<double>(size_t(N) * s.H * E), std::vector<double>(size_t(N) * s.H),
                     std::vector<double>(N * s.row())};
    for (int h = 0; h < s.H; h++) {
        const size_t query = size_t(h) * E, key = size_t(s.H + h / group) * E, value = key + size_t(s.G) * E;
        for (int q = 0; q < N; q++) {
            std::vector<double> p(N, 0.0);
            double sum = 0, maximum = -INFINITY;
            for (int k = 0; k <= q; k++) {
                double score = 0;
                for (int e = 0; e < E; e++)
                    score += double(qkv[q * s.row() + query + e]) * double(qkv[k * s.row() + key + e]);
                p[k] = rule(q, k) ? score / std::sqrt(double(E)) : -INFINITY;
                maximum = std::max(maximum, p[k]);
            }
            for (int k = 0; k <= q; k++) sum += p[k] = std::exp(p[k] - maximum);
            r.lse[size_t(q) * s.H + h] = maximum + std::log(sum);
            double* out = &r.out[(size_t(q) * s.H + h) * E];
            const T* dq_out = &dout[(size_t(q) * s.H + h) * E];
            double delta = 0;
            for (int e = 0; e < E; e++) {
                for (int k = 0; k <= q; k++) out[e] += (p[k] / sum) * double(qkv[k * s.row() + value + e]);
                delta += out[e] * double(dq_out[e]);
            }
            for (int k = 0; k <= q; k++) {
                double dp = -delta;
                for (int e = 0; e < E; e++) dp += double(dq_out[e]) * double(qkv[k * s.row() + value + e]);
                const double ds = p[k] / sum * dp / std::sqrt(double(E));
                for (int e = 0; e < E; e++) {
                    r.dqkv[q * s.row() + query + e] += ds * double(qkv[k * s.row() + key + e]);
                    r.dqkv[k * s.row() + key + e] += ds * double(qkv[q * s.row() + query + e]);
                    r.dqkv[k * s.row() + value + e] += p[k] / sum * double(dq_out[e]);
                }
            }
        }
    }
    return r;
}

template <class T>
double difference(const std::vector<T>& a, const std::vector<double>& b) {
    for (T x : a)
        if (x != x) return INFINITY;  // also: never written
    return largest_difference(std::vector<double>(a.begin(), a.end()), b);
}

template <class T>
bool same_bits(const std::vector<T>& a, const std::vector<T>& b) {
    return a.size() == b.size() && (a.empty() || std::memcmp(a.data(), b.data(), a.size() * sizeof(T)) == 0);
}
template <class T>
bool same_bits(const Result<T>& a, const Result<T>& b) {
    return same_bits(a.out, b.out) && same_bits(a.lse, b.lse) && same_bits(a.dqkv, b.dqkv);
}

// Threads for the life of the object.
}  // namespace

TEST_CASE("attention equals the plain sum over visible keys", "[attention]") {
    const int B = attention::tile;
    const Sizes sizes[] = {{2, 2, 8}, {4, 2, 16}, {7, 1, 6}};
    int i = 0;
    for (int T : {1, 2, B - 1, B, B + 1, 2 * B + 5, 4 * B})
        for (int width : {1, 2, B - 1, B, B + 1, T - 1, T, T + 1, 0})
            for (int sinks : {0, 1, 3}) {
                if (width < 0) continue;
                const Sizes s = sizes[i++ % 3];
                const Window w{width, sinks};
                INFO("T " << T << ", window " << width << ", sinks " << sinks << ", H " << s.H << ", G "
                          << s.G << ", E " << s.E);
                auto rule = [&](int q, int k) {  // said again, so that a change to visible() is noticed
                    return width == 0 || q - k < width || k < sinks;
                };
                auto qkv = random_array<float>(T * s.row(), i),
                     dout = random_array<float>(size_t(T) * s.H * s.E, i + 1);
                auto want = naive(qkv, dout, T, s, rule);
                auto have = run(qkv, dout, {0, T}, w, s);
                CHECK(difference(have.out, want.out) < 3e-6);
                CHECK(difference(have.lse, want.lse) < 3e-6);
                CHECK(difference(have.dqkv, want.dqkv) < 3e-5);
                std::vector<double> qkv2(qkv.begin(), qkv.end()), dout2(dout.begin(), dout.end());
                auto exact = run(qkv2, dout2, {0, T}, w, s);
                CHECK(difference(exact.out, want.out) < 1e-13);
                CHECK(difference(exact.dqkv, want.dqkv) < 1e-12);
                if (width > 0 && T > width + sinks) {  // one key more is noticed
                    auto wider = naive(qkv, dout, T, s, [&](int q, int k) {
                        return visible({width + 1, sinks}, q, k);
                    });
                    CHECK(difference(have.out, wider.out) > 1e-4);
                }
            }
}

TEST_CASE("attention at real head sizes", "[attention]") {
    for (Sizes s : {Sizes{14, 2, 64}, Sizes{2, 1, 80}, Sizes{2, 2, 96}, Sizes{3, 1, 128}, Sizes{2, 1, 34}}) {
        const int T = 150;
        const Window w{70, 0};
        INFO("H " << s.H << ", G " << s.G << ", E " << s.E);
        auto qkv = random_array<float>(T * s.row(), 1), dout = random_array<float>(size_t(T) * s.H * s.E, 2);
        auto want = naive(qkv, dout, T, s, [&](int q, int k) { return visible(w, q, k); });
        auto have = run(qkv, dout, {0, T}, w, s);
        CHECK(difference(have.out, want.out) < 5e-6);
        CHECK(difference(have.dqkv, want.dqkv) < 1e-4);
    }
}

TEST_CASE("attention gradient by finite differences", "[attention]") {
    const Sizes s{4, 2, 6};
    const std::vector<int> cu = {0, 9, 9, 50};  // with an empty document
    const size_t N = cu.back();
    for (Window w : {Window{0, 0}, Window{5, 0}, Window{5, 2}, Window{36, 1}}) {
        auto qkv = random_array<double>(N * s.row(), 3), dout = random_array<double>(N * s.H * s.E, 4);
        auto loss = [&] { return inner(run(qkv, dout, cu, w, s).out, dout); };
        const auto gradient = run(qkv, dout, cu, w, s).dqkv;
        check_gradient(qkv, gradient, loss, "window " + std::to_string(w.width), 1e-7, 100);
    }
}

TEST_CASE("attention: packing and threads change no bit", "[attention]") {
    const std::vector<int> cu = {0, 70, 71, 300, 300, 331, 363, 396};
    const size_t N = cu.back();
    for (Sizes s : {Sizes{4, 2, 16}, Sizes{7, 1, 8}, Sizes{2, 2, 64}})
        // The edges of windows, tiles (32 keys) and documents (70 and 229 tokens).
        for (Window w : {Window{0, 0}, Window{1, 0}, Window{2, 1}, Window{16, 0}, Window{31, 0},
                         Window{32, 0}, Window{33, 3}, Window{69, 0}, Window{70, 0}, Window{71, 0},
                         Window{228, 2}, Window{229, 0}, Window{230, 0}}) {
            auto qkv = random_array<float>(N * s.row(), 5), dout = random_array<float>(N * s.H * s.E, 6);
            Result<float> packed;
            for (int threads : {1, 2, 3, 16}) {  // with 16 the gradient is cut into more tasks
                Threads t(threads);
                auto r = run(qkv, dout, cu, w, s);
                if (threads == 1) packed = r;
                CHECK(same_bits(packed, r));
            }
            for (size_t d = 0; d + 1 < cu.size(); d++) {
                const size_t a = cu[d], b = cu[d + 1], row = s.row(), o = size_t(s.H) * s.E;
                auto part = [&](const std::vector<float>& x, size_t width) {
                    return std::vector<float>(x.begin() + a * width, x.begin() + b * width);
                };
                auto alone = run(part(qkv, row), part(dout, o), {0, int(b - a)}, w, s);
                CHECK(same_bits(alone, {part(packed.out, o), part(packed.lse, s.H), part(packed.dqkv, row)}));
            }
        }
}

TEST_CASE("attention: a prefix of a document gives the same rows", "[attention]") {
    const Sizes s{4, 2, 16};
    const int T = 130;
    for (Window w : {Window{0, 0}, Window{16, 0}, Window{33, 3}}) {
        auto qkv = random_array<float>(T * s.row(), 7), dout = random_array<float>(size_t(T) * s.H * s.E, 8);
        auto whole = run(qkv, dout, {0, T}, w, s);
        for (int n : {1, 15, 16, 17, 31, 32, 33, 100}) {
            auto prefix = run(qkv, dout, {0, n}, w, s);
            whole.out.resize(std::max(whole.out.size(), prefix.out.size()));
            CHECK(std::memcmp(prefix.out.data(), whole.out.data(), prefix.out.size() * sizeof(float)) == 0);
        }
    }
}

TEST_CASE("attention: large scores and no score", "[attention]") {
    const Sizes s{1, 1, 8};
    const int T = 100;
    auto qkv = random_array<float>(T * s.row(), 9), dout = random_array<float>(size_t(T) * s.E, 10);
    for (float& x : qkv) x *= 40;  // scores of several thousands
    auto want = naive(qkv, dout, T, s, [](int q, int k) { return visible({40, 0}, q, k); });
    auto have = run(qkv, dout, {0, T}, {40, 0}, s);
    CHECK(difference(have.out, want.out) < 0.1);  // of values up to 150; a score is good to 1e-3
    CHECK(difference(have.dqkv, want.dqkv) < 1);

    // A row that sees nothing: 0 and lse +inf, never NaN (no rule of today makes one).
    attention::Shape shape{{1, 0}, 1, 1, 8};
    std::vector<float> out(8, 1), lse(1, 1);
    std::vector<float> scratch(attention::forward_scratch<float>(shape), NAN);
    attention::forward_block(shape, out.data(), lse.data(), qkv.data(), attention::Document{0, 1},
                             attention::Task{0, 0, 0, 1, 0, 0, true, true, 0},
                             attention::Pieces<float>{scratch.data()});
    CHECK(out == std::vector<float>(8, 0));
    CHECK(lse[0] == INFINITY);
}
