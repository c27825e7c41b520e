// Sampling: the exact distribution under temperature, top-k and top-p, ties, recorded log-probabilities.
#include <map>

#include "check.h"
#include "layers/sample.cuh"
#include "scratch.h"

namespace {

int draw_one(const std::vector<float>& logits, const Sampling& s, float u, float* logp = nullptr) {
    Cpu dev;
    int token, row = 0;
    float l;
    sample_tokens(dev, &token, logp ? logp : &l, logits.data(), &row, &u, 1, int(logits.size()), s);
    return token;
}

// What each token should be drawn with, by the definition: sorted, cut, renormalised.
std::map<int, double> expected(const std::vector<float>& logits, const Sampling& s) {
    std::vector<std::pair<double, int>> p;
    double sum = 0;
    for (size_t v = 0; v < logits.size(); v++) {
        p.push_back({-std::exp(double(logits[v]) / s.temperature), int(v)});
        sum -= p.back().first;
    }
    std::sort(p.begin(), p.end());
    if (s.top_k > 0 && s.top_k < int(p.size())) {
        p.resize(size_t(s.top_k));
        sum = 0;
        for (auto& [q, v] : p) sum -= q;
    }
    std::map<int, double> out;
    double kept = 0;
    for (auto& [q, v] : p) {
        if (!out.empty() && kept >= s.top_p * sum) break;
        out[v] = -q, kept -= q;
    }
    for (auto& [v, q] : out) q /= kept;
    return out;
}

void check_distribution(const std::vector<float>& logits, const Sampling& s) {
    const int n = 1 << 13;
    std::map<int, double> seen;
    for (int i = 0; i < n; i++) seen[draw_one(logits, s, (float(i) + 0.5f) / float(n))] += 1.0 / n;
    std::map<int, double> wanted = expected(logits, s);
    INFO("temperature " << s.temperature << " top_k " << s.top_k << " top_p " << s.top_p);
    // Each token's numbers u form one interval, so that the grid counts it to within two of its points.
    for (auto& [v, q] : wanted) REQUIRE(std::fabs(seen[v] - q) <= 2.1 / n);
    for (auto& [v, q] : seen) REQUIRE((q == 0 || wanted.count(v) == 1));
}

}  // namespace

TEST_CASE("sample: greedy takes the likeliest, of equals the lowest id", "[sample]") {
    REQUIRE(draw_one({1, 3, 2}, {0, 1, 0}, 0.9f) == 1);
    REQUIRE(draw_one({1, 3, 3, 2, 3}, {0, 1, 0}, 0.99f) == 1);
    REQUIRE(draw_one({-5}, {0, 1, 0}, 0.5f) == 0);
    // Two logits that differ by less than the softmax resolves are still two.
    REQUIRE(draw_one({1e-9f, 2e-9f}, {0, 1, 0}, 0) == 1);
}

TEST_CASE("sample: the distribution is exact", "[sample]") {
    std::vector<float> small = random_array<float>(7, 1, 1.5), large = random_array<float>(40, 2, 2);
    std::vector<float> ties = {1, 1, 1, 1, 0};
    for (double temperature : {0.5, 1.0, 2.0})
        for (int k : {0, 1, 3, 100})
            for (double p : {1.0, 0.9, 0.5, 0.01}) {
                Sampling s{temperature, p, k};
                check_distribution(small, s);
                if (temperature == 1) check_distribution(large, s), check_distribution(ties, s);
            }
}

TEST_CASE("sample: a large vocabulary, in blocks", "[sample]") {
    std::vector<float> logits = random_array<float>(5003, 3, 3);
    std::vector<double> p(logits.size());
    double sum = 0, walked = 0;
    for (size_t v = 0; v < p.size(); v++) sum += p[v] = std::exp(double(logits[v]));
    std::vector<float> uniform;
    for (size_t v = 0; v < p.size(); v++) {  // the middle of each token's interval draws it
        if (p[v] / sum > 1e-5) {
            float u = float((walked + p[v] / 2) / sum);
            INFO("token " << v);
            REQUIRE(draw_one(logits, {}, u) == int(v));
        }
        walked += p[v];
    }
    REQUIRE(draw_one(logits, {}, 0) == 0);
    REQUIRE(draw_one(logits, {}, 1 - 1.0f / 16777216) >= 0);
}

TEST_CASE("sample: tokens of no weight are never drawn", "[sample]") {
    const float none = -std::numeric_limits<float>::infinity();
    for (double p : {1.0, 0.9})
        for (float u : {0.0f, 0.3f, 0.9999999f}) {
            REQUIRE(draw_one({none, 2, none, none}, {1, p, 0}, u) == 1);
            REQUIRE(draw_one({none, -200, none, 0}, {1, p, 2}, u) == 3);
        }
    std::vector<float> wide(3000, none);
    wide[1500] = 0;
    for (float u : {0.0f, 0.9999999f}) REQUIRE(draw_one(wide, {}, u) == 1500);
}

TEST_CASE("sample: the recorded log-probability is that of the whole distribution at this temperature",
          "[sample]") {
    std::vector<float> logits = random_array<float>(1000, 4, 2);
    for (Sampling s : {Sampling{1, 1, 0}, Sampling{0.7, 1, 0}, Sampling{0.7, 0.5, 10}, Sampling{0, 1, 0}}) {
        float logp;
        int token = draw_one(logits, s, 0.37f, &logp);
        double t = s.temperature > 0 ? s.temperature : 1, sum = 0;
        for (float l : logits) sum += std::exp(double(l) / t);
        REQUIRE(logp == Approx(double(logits[size_t(token)]) / t - std::log(sum)).epsilon(1e-5));
        REQUIRE(logp == softmax_row(logits.data(), 1000, t).logp(logits[size_t(token)]));
    }
}

TEST_CASE("sample: a row does not depend on its neighbours", "[sample]") {
    Cpu dev;
    const int V = 3001, n = 9;
    std::vector<float> logits = random_array<float>(size_t(4 * V), 5, 2),
                       uniform = {0.1f, 0.2f, 0.3f, 0.4f, 0.5f, 0.6f, 0.7f, 0.8f, 0.9f};
    std::vector<int> row = {0, 1, 2, 3, 0, 1, 2, 3, 3}, token(n);
    std::vector<float> logp(n);
    sample_tokens(dev, token.data(), logp.data(), logits.data(), row.data(), uniform.data(), n, V, {});
    for (int i = 0; i < n; i++) {
        float l;
        std::vector<float> one(&logits[size_t(row[size_t(i)]) * V], &logits[size_t(row[size_t(i)]) * V] + V);
        REQUIRE(draw_one(one, {}, uniform[size_t(i)], &l) == token[size_t(i)]);
        REQUIRE(l == logp[size_t(i)]);
    }
}

TEST_CASE("sample: errors", "[sample]") {
    const std::string damaged = "the model's logits are not finite (NaN or infinite)";
    REQUIRE(error_of([] { draw_one({1, NAN, 2}, {}, 0.5f); }) == damaged);
    REQUIRE(error_of([] { draw_one({1, INFINITY}, {0, 1, 0}, 0.5f); }) == damaged);
    REQUIRE(error_of([] { check_sampling({-1, 1, 0}); }) == "--temperature -1 is not between 0 and 100");
    REQUIRE(error_of([] {
                check_sampling({NAN, 1, 0});
            }).find("is not between 0 and 100") != std::string::npos);
    REQUIRE(error_of([] { check_sampling({1, 0, 0}); }) == "--top-p 0 is not in (0, 1]");
    REQUIRE(error_of([] { check_sampling({1, 1.5, 0}); }) == "--top-p 1.5 is not in (0, 1]");
    REQUIRE(error_of([] { check_sampling({1, 1, -1}); }) == "--top-k -1 is negative");
}
