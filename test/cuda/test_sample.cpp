// Sampling on the CUDA device: the definition in double, and the CPU device's tokens by the same numbers.
#include <algorithm>

#include "cuda_test.h"
#include "layers/sample.cuh"

namespace {

struct Draws {
    std::vector<int> token;
    std::vector<double> logp, log_kept;
};

// Draw i is from row[i] of logits (rows, V) by uniform[i].
Draws draw(const std::vector<float>& logits, int V, const Sampling& s, const std::vector<int>& row,
           const std::vector<float>& uniform) {
    CudaDevice<bf16>& device = cuda<bf16>();
    auto numbers = [](const auto& v) { return std::vector<double>(v.begin(), v.end()); };
    OnDevice<float, bf16> z(device, numbers(logits)), u(device, numbers(uniform));
    OnDevice<int, bf16> rows(device, numbers(row)), token(device, row.size());
    OnDevice<float, bf16> logp(device, row.size()), kept(device, row.size());
    sample_tokens(device, token.data(), logp.data(), z.data(), rows.data(), u.data(), int(row.size()), V, s,
                  kept.data());
    const std::vector<double> tokens = token.values();
    return {{tokens.begin(), tokens.end()}, logp.values(), kept.values()};
}
Draws draw(const std::vector<float>& logits, const Sampling& s, const std::vector<float>& uniform) {
    return draw(logits, int(logits.size()), s, std::vector<int>(uniform.size()), uniform);
}
std::vector<float> floats(const std::vector<double>& v) {
    return {v.begin(), v.end()};
}

// What is kept, in the order of drawing, with shares of what is kept; `kept`: its share of the whole.
struct Kept {
    std::vector<std::pair<double, int>> tokens;
    double kept = 1;
};
Kept definition(const std::vector<float>& logits, const Sampling& s) {
    const int V = int(logits.size());
    const double top = *std::max_element(logits.begin(), logits.end());
    Kept out;
    double whole = 0;
    for (int v = 0; v < V; v++) {
        out.tokens.push_back({std::exp((logits[v] - top) / s.temperature), v});
        whole += out.tokens.back().first;
    }
    if (!s.filtered(V)) {
        for (auto& [p, v] : out.tokens) p /= whole;
        return out;
    }
    std::stable_sort(out.tokens.begin(), out.tokens.end(),
                     [](auto& a, auto& b) { return a.first > b.first; });
    double total = 0, sum = 0;
    if (s.top_k > 0 && s.top_k < V) out.tokens.resize(size_t(s.top_k));
    for (auto& [p, v] : out.tokens) total += p;
    size_t n = 0;
    while (n < out.tokens.size() && (n == 0 || sum < s.top_p * total)) sum += out.tokens[n++].first;
    out.tokens.resize(n);
    for (auto& [p, v] : out.tokens) p /= sum;
    out.kept = sum / whole;
    return out;
}

// Each kept token is drawn by the numbers from where its interval begins to where it ends, but for `margin`.
void check_intervals(const std::vector<float>& logits, const Sampling& s, double margin = 1e-5,
                     size_t most = 1000) {
    INFO("temperature " << s.temperature << " top_k " << s.top_k << " top_p " << s.top_p);
    const Kept want = definition(logits, s);
    std::vector<float> uniform;
    std::vector<int> token;
    double begin = 0;
    const size_t step = 1 + want.tokens.size() / most;
    for (size_t i = 0; i < want.tokens.size(); i++) {
        const auto [p, v] = want.tokens[i];
        if (p > 4 * margin && i % step == 0)
            for (double u : {begin + margin, begin + p - margin})
                uniform.push_back(float(u)), token.push_back(v);
        begin += p;
    }
    uniform.push_back(0), token.push_back(want.tokens[0].second);
    const Draws got = draw(logits, s, uniform);
    REQUIRE(got.token == token);
    double whole = 0;
    for (float z : logits) whole += std::exp(double(z) / s.temperature);
    for (size_t i = 0; i < token.size(); i++) {
        REQUIRE(got.logp[i] ==
                Approx(logits[size_t(token[i])] / s.temperature - std::log(whole)).margin(1e-5));
        REQUIRE(got.log_kept[i] == Approx(std::log(want.kept)).margin(1e-5));
    }
}

}  // namespace

TEST_CASE("cuda: greedy takes the likeliest, of equals the lowest id", "[cuda][sample]") {
    REQUIRE(draw({1, 3, 2}, {0, 1, 0}, {0.9f}).token[0] == 1);
    REQUIRE(draw({1, 3, 3, 2, 3}, {0, 1, 0}, {0.99f}).token[0] == 1);
    REQUIRE(draw({-5}, {0, 1, 0}, {0.5f}).token[0] == 0);
    REQUIRE(draw({1e-9f, 2e-9f}, {0, 1, 0}, {0.5f}).token[0] == 1);
    std::vector<float> wide(9001, -3.0f);
    for (int first : {9000, 4096, 4095, 2048, 2047, 3}) {  // found in every tile
        wide[size_t(first)] = 2;
        REQUIRE(draw(wide, {0, 1, 0}, {0.5f}).token[0] == first);
    }
}

TEST_CASE("cuda: sampling follows the definition of top-k and top-p", "[cuda][sample]") {
    const auto small = floats(random_values<float>(7, 1, 1.5)),
               large = floats(random_values<float>(40, 2, 2));
    for (int k : {0, 1, 3, 39, 100})
        for (double p : {1.0, 0.9, 0.5, 0.01}) {
            check_intervals(small, {1, p, k});
            check_intervals(large, {1, p, k});
        }
    for (double temperature : {0.3, 2.0}) {
        check_intervals(large, {temperature, 1, 0});
        check_intervals(large, {temperature, 0.9, 20});
    }
}

TEST_CASE("cuda: sampling among equals", "[cuda][sample]") {
    // Weights of 1: sums are exact, and the edges of the intervals belong to the next token.
    const std::vector<float> four = {5, 5, 5, 5};
    const std::vector<float> edges = {0, 0.2499999f, 0.25f, 0.4999999f, 0.5f, 0.75f, 0.9999999f, 1};
    REQUIRE(draw(four, {}, edges).token == std::vector<int>{0, 0, 1, 1, 2, 3, 3, 3});
    REQUIRE(draw(four, {1, 0.5, 0}, edges).token == std::vector<int>{0, 0, 0, 0, 1, 1, 1, 1});
    REQUIRE(draw(four, {1, 0.50001, 0}, {0.9999999f}).token[0] == 2);
    REQUIRE(draw(four, {1, 1, 3}, {0.3333f, 0.3334f, 0.9999999f}).token == std::vector<int>{0, 1, 2});
    REQUIRE(draw(four, {1, 0.5, 3}, edges).token == std::vector<int>{0, 0, 0, 0, 1, 1, 1, 1});
    check_intervals({1, 1, 1, 1, 0}, {1, 0.6, 0});
    check_intervals({0, 1, 0, 1, 1, 0, 0}, {1, 0.95, 5});
    // More equals than the list of candidates holds.
    const std::vector<float> many(9001, 0.5f);
    for (Sampling s : {Sampling{1, 1, 0}, Sampling{1, 1, 8500}, Sampling{1, 0.5, 0}, Sampling{1, 0.5, 100}})
        check_intervals(many, s, 1e-6, 5);
}

TEST_CASE("cuda: the same tokens as the CPU device, from rows in any order", "[cuda][sample]") {
    Cpu cpu;
    const int V = 5003, rows = 3, n = 12;  // only the first row is aligned
    const auto logits = floats(random_values<float>(size_t(rows) * V, 3, 3));
    std::vector<int> row;
    std::vector<float> uniform;
    for (int i = 0; i < n; i++) row.push_back(i * 2 % rows), uniform.push_back(sample_uniform(7, 1, 2, i));
    for (Sampling s : {Sampling{1, 1, 0}, Sampling{0.7, 1, 0}, Sampling{1, 0.95, 0}, Sampling{1.2, 1, 50},
                       Sampling{1, 0.9, 200}, Sampling{0, 1, 0}}) {
        CAPTURE(s.temperature, s.top_k, s.top_p);
        std::vector<int> token(n);
        std::vector<float> logp(n), kept(n);
        sample_tokens(cpu, token.data(), logp.data(), logits.data(), row.data(), uniform.data(), n, V, s,
                      kept.data());
        const Draws got = draw(logits, V, s, row, uniform);
        REQUIRE(got.token == token);
        for (size_t i = 0; i < size_t(n); i++) {
            REQUIRE(got.logp[i] == Approx(logp[i]).margin(1e-5));
            REQUIRE(got.log_kept[i] == Approx(kept[i]).margin(1e-5));
        }
    }
}

TEST_CASE("cuda: sampling from a vocabulary of 151,936", "[cuda][sample]") {
    const auto logits = floats(random_values<float>(151936, 4, 3));
    for (Sampling s : {Sampling{1, 1, 0}, Sampling{1, 0.95, 0}, Sampling{0.6, 0.9, 20}})
        check_intervals(logits, s, 2e-6, 3);
}

TEST_CASE("cuda: sampling in a graph", "[cuda][sample]") {
    CudaDevice<bf16>& device = cuda<bf16>();
    OnDevice<float, bf16> logits(device, {1, 1, 1, 1}), uniform(device, std::vector<double>{0}),
        logp(device, 1);
    OnDevice<int, bf16> row(device, std::vector<double>{0}), token(device, 1);
    cudaGraph_t graph;
    cudaGraphExec_t step;
    CUDA_CHECK(cudaStreamBeginCapture(device.stream, cudaStreamCaptureModeThreadLocal));
    sample_tokens(device, token.data(), logp.data(), logits.data(), row.data(), uniform.data(), 1, 4, {});
    CUDA_CHECK(cudaStreamEndCapture(device.stream, &graph));
    CUDA_CHECK(cudaGraphInstantiate(&step, graph, 0));
    for (int i = 0; i < 4; i++) {
        const float u = 0.25f * float(i);
        device.upload(uniform.data(), &u, sizeof u);
        CUDA_CHECK(cudaGraphLaunch(step, device.stream));
        REQUIRE(token.values()[0] == i);
    }
    CUDA_CHECK(cudaGraphExecDestroy(step));
    CUDA_CHECK(cudaGraphDestroy(graph));
}

TEST_CASE("cuda: what cannot be drawn", "[cuda][sample]") {
    const float none = -INFINITY;
    for (double p : {1.0, 0.9}) {
        REQUIRE(draw({none, 2, none, none}, {1, p, 0}, {0, 0.3f, 0.9999999f}).token ==
                std::vector<int>{1, 1, 1});
        REQUIRE(draw({none, -200, none, 0}, {1, p, 2}, {0, 0.3f, 0.9999999f}).token ==
                std::vector<int>{3, 3, 3});
    }
    // A damaged row gives -1 and does not disturb the others.
    const std::vector<float> rows = {1, 2, 3, NAN, 1, 2, 1, INFINITY, 0, none, none, none, 3, 2, 1};
    for (Sampling s : {Sampling{1, 1, 0}, Sampling{0, 1, 0}, Sampling{1, 0.9, 2}}) {
        const Draws got = draw(rows, 3, s, {0, 1, 2, 3, 4}, {0, 0, 0, 0, 0});
        CAPTURE(s.temperature, s.top_k, got.token);
        REQUIRE((got.token[0] == 2 || !s.filtered(3)));
        REQUIRE(std::vector<int>(got.token.begin() + 1, got.token.end()) == std::vector<int>{-1, -1, -1, 0});
        REQUIRE_THROWS_WITH(check_tokens(got.token.data(), 5),
                            Catch::Contains("the model's logits are not finite"));
    }
}

TEMPLATE_TEST_CASE("cuda: a sampled token's log-probability is the trainer's", "[cuda][sample]", CUDA_TYPES) {
    using T = TestType;
    CudaDevice<T>& device = cuda<T>();
    const int N = 9, D = 16, V = 203;
    OnDevice<T, T> x(device, random_values<T>(N * D, 5, 0.7)), w(device, random_values<T>(size_t(V) * D, 6));
    OnDevice<float, T> logits(device, size_t(N) * V), logp(device, N),
        uniform(device, random_values<float>(N, 7, 0));
    std::vector<double> rows(N);
    for (int n = 0; n < N; n++) rows[n] = n;
    OnDevice<int, T> row(device, rows), token(device, N);
    for (double temperature : {1.0, 0.7}) {
        head_logits(device, logits.data(), x.data(), {w.data(), nullptr}, N, D, V);
        sample_tokens(device, token.data(), logp.data(), logits.data(), row.data(), uniform.data(), N, V,
                      {temperature, 1, 0});
        const auto drawn = token.values(), recorded = logp.values();
        const std::vector<int> targets(drawn.begin(), drawn.end());
        std::vector<float> scored(N);
        TokenLossWorkspace<CudaDevice<T>> workspace(device, N, D, V);
        TokenLoss<T, float> t;
        t.N = N, t.D = D, t.V = V, t.x = x.data(), t.w = {w.data(), nullptr}, t.targets = targets.data();
        t.temperature = temperature, t.logp = scored.data();
        token_loss_forward_backward(device, workspace, t);
        // Equal bits from equal logits; a GPU's products may differ between lengths of rows.
        for (size_t n = 0; n < size_t(N); n++) REQUIRE(recorded[n] == Approx(scored[n]).margin(2e-6));
    }
}
