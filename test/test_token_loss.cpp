// The loss of SFT and CISPO: against a naive computation in double, by finite differences in every mode, and
// bit for bit over chunks, batches and threads.
#include <functional>
#include <random>
#include <vector>

#include "catch.h"
#include "swarr/layers/token_loss.cuh"

namespace {

template <class T>
std::vector<T> random_vector(size_t size, unsigned seed, double low = -1, double high = 1) {
    std::mt19937 generator(seed);
    std::uniform_real_distribution<double> uniform(low, high);
    std::vector<T> v(size);
    for (T& x : v) x = T(uniform(generator));
    return v;
}

// Inputs and results of one call; every third token or so has no target.
template <class T>
struct Head {
    int N, D, V;
    CpuDevice<T> device;
    std::vector<T> x, w, packed, old_logp, ref_logp, advantage, coefficient, token_scale;
    std::vector<T> logp, entropy, ratio, dx, dw;
    std::vector<int> targets, argmax;
    TokenLoss<T> args;
    Head(int N, int D, int V) : N(N), D(D), V(V) {
        x = random_vector<T>(size_t(N) * D, 1, -2, 2), w = random_vector<T>(size_t(V) * D, 2);
        old_logp = random_vector<T>(N, 3, -4, -1), ref_logp = random_vector<T>(N, 4, -4, -1);
        advantage = random_vector<T>(N, 5), coefficient = random_vector<T>(N, 6, 0, 2);
        token_scale = random_vector<T>(N, 7, 0.1, 1);
        packed.resize(packed_size<T>(V, D));
        std::mt19937 generator(8);
        for (int n = 0; n < N; n++)
            targets.push_back(generator() % 3 == 0 ? -1 : int(generator() % unsigned(V)));
        args.N = N, args.D = D, args.V = V;
        args.scale = 0.25;
        clear();
    }
    void clear() {
        logp.assign(N, NAN), entropy.assign(N, NAN), ratio.assign(N, NAN), argmax.assign(N, -7);
        dx.assign(size_t(N) * D, NAN), dw.assign(size_t(V) * D, T(0.5));
    }
    // Tokens [first, first + count) as a call of their own.
    TokenLossSum run(int first, int count, TokenLossWorkspace<CpuDevice<T>>& workspace,
                     bool gradients = true) {
        pack_weight(device, packed.data(), w.data(), V, D);
        TokenLoss<T> t = args;
        t.N = count;
        t.x = &x[size_t(first) * D], t.w = {w.data(), packed.data()}, t.targets = &targets[first];
        for (const T** p : {&t.coefficient, &t.old_logp, &t.advantage, &t.ref_logp, &t.token_scale})
            if (*p) *p += first;
        t.logp = &logp[first], t.entropy = &entropy[first], t.ratio = &ratio[first],
        t.argmax = &argmax[first];
        if (gradients) t.dx = &dx[size_t(first) * D], t.dw = dw.data();
        return token_loss_forward_backward(device, workspace, t);
    }
    TokenLossSum run(bool gradients = true) {
        TokenLossWorkspace<CpuDevice<T>> workspace(device, N, D, V);
        return run(0, N, workspace, gradients);
    }
};

struct Naive {
    double loss = 0;
    std::vector<double> logp, entropy;
};

// The header's formulas, one token at a time. fixed_logp: the log-probabilities of which c is held constant.
template <class T>
Naive naive(const Head<T>& h, const std::vector<double>* fixed_logp = nullptr) {
    Naive r;
    const TokenLoss<T>& t = h.args;
    for (int n = 0; n < h.N; n++) {
        r.logp.push_back(0), r.entropy.push_back(0);
        if (h.targets[n] < 0) continue;
        std::vector<double> z(h.V);
        double sum = 0, H = 0;
        for (int v = 0; v < h.V; v++) {
            for (int d = 0; d < h.D; d++) z[v] += double(h.x[size_t(n) * h.D + d]) * h.w[size_t(v) * h.D + d];
            z[v] /= t.temperature;
            sum += std::exp(z[v]);
        }
        for (int v = 0; v < h.V; v++) H -= std::exp(z[v]) / sum * (z[v] - std::log(sum));
        const double logp = z[h.targets[n]] - std::log(sum);
        r.logp[n] = logp, r.entropy[n] = H;
        double c = t.coefficient ? t.coefficient[n] : 1;
        if (t.old_logp) {
            double ratio = std::exp((fixed_logp ? (*fixed_logp)[n] : logp) - t.old_logp[n]);
            c = std::min(std::max(ratio, t.ratio_low), t.ratio_high) * t.advantage[n];
        }
        double term = -c * logp - t.entropy_coef * H;
        if (t.kl_coef != 0) term += t.kl_coef * (std::exp(t.ref_logp[n] - logp) - (t.ref_logp[n] - logp) - 1);
        r.loss += term * t.scale * (t.token_scale ? t.token_scale[n] : 1);
    }
    return r;
}

struct Mode {
    const char* name;
    std::function<void(Head<double>&)> set;
};
const std::vector<Mode>& modes() {
    auto cispo = [](Head<double>& h) {
        h.args.old_logp = h.old_logp.data(), h.args.advantage = h.advantage.data();
        h.args.ratio_low = 0.5, h.args.ratio_high = 2;
    };
    static const std::vector<Mode> all = {
        {"sft", [](Head<double>&) {}},
        {"weights", [](Head<double>& h) { h.args.coefficient = h.coefficient.data(); }},
        {"token scale", [](Head<double>& h) { h.args.token_scale = h.token_scale.data(); }},
        {"temperature", [](Head<double>& h) { h.args.temperature = 0.7; }},
        {"cispo", cispo},
        {"kl", [](Head<double>& h) { h.args.kl_coef = 0.3, h.args.ref_logp = h.ref_logp.data(); }},
        {"entropy", [](Head<double>& h) { h.args.entropy_coef = 0.2; }},
        {"all", [cispo](Head<double>& h) {
             cispo(h);
             h.args.token_scale = h.token_scale.data(), h.args.temperature = 1.3;
             h.args.kl_coef = 0.3, h.args.ref_logp = h.ref_logp.data(), h.args.entropy_coef = 0.2;
         }}};
    return all;
}

}  // namespace

TEST_CASE("token_loss: every mode against the formula and finite differences", "[token_loss]") {
    for (const Mode& mode : modes()) {
        CAPTURE(mode.name);
        Head<double> h(9, 3, 11);
        mode.set(h);
        TokenLossSum result = h.run();
        Naive expected = naive(h);
        REQUIRE(result.loss == Approx(expected.loss));
        for (int n = 0; n < h.N; n++) {
            REQUIRE(h.logp[n] == Approx(expected.logp[n]));
            REQUIRE(h.entropy[n] == Approx(expected.entropy[n]));
            if (h.args.old_logp && h.targets[n] >= 0)
                REQUIRE(h.ratio[n] == Approx(std::exp(expected.logp[n] - h.old_logp[n])));
        }
        auto check = [&](std::vector<double>& values, const std::vector<double>& gradient, double before) {
            for (size_t j = 0; j < values.size(); j++) {
                const double kept = values[j], step = 1e-5;
                values[j] = kept + step;
                const double up = naive(h, &expected.logp).loss;
                values[j] = kept - step;
                const double down = naive(h, &expected.logp).loss;
                values[j] = kept;
                REQUIRE(gradient[j] - before == Approx((up - down) / (2 * step)).margin(1e-8));
            }
        };
        check(h.x, h.dx, 0);
        check(h.w, h.dw, 0.5);
    }
}

TEST_CASE("token_loss: float against double, at every edge of the vocabulary", "[token_loss]") {
    const int L = lanes<float>, W = panel_width<float>;
    for (int V : {1, 2, L - 1, L, L + 1, W - 1, W, W + 1, 40, 1000}) {
        CAPTURE(V);
        Head<float> h(7, 20, V);
        TokenLossSum result = h.run();
        Naive expected = naive(h);
        REQUIRE(result.loss == Approx(expected.loss).margin(1e-6));
        for (int n = 0; n < h.N; n++) {
            REQUIRE(h.logp[n] == Approx(expected.logp[n]).margin(2e-6));
            REQUIRE(h.entropy[n] == Approx(expected.entropy[n]).margin(5e-6));
        }
    }
}

TEST_CASE("token_loss: the same bits for any chunk, micro-batch and threads", "[token_loss]") {
    const int N = 61, D = 50, V = 333;
    auto cispo = [](Head<float>& h) {
        h.args.old_logp = h.old_logp.data(), h.args.advantage = h.advantage.data();
    };
    Head<float> whole(N, D, V);
    cispo(whole);
    const double loss = whole.run().loss;
    auto require_equal = [&](const Head<float>& h) {
        REQUIRE(h.logp == whole.logp);
        REQUIRE(h.entropy == whole.entropy);
        REQUIRE(h.ratio == whole.ratio);
        REQUIRE(h.argmax == whole.argmax);
        REQUIRE(h.dx == whole.dx);
        REQUIRE(h.dw == whole.dw);
    };
    Head<float> cut(N, D, V);
    cispo(cut);
    for (int chunk : {1, 5, tile_rows, tile_rows + 1}) {
        TokenLossWorkspace<CpuDevice<float>> workspace(cut.device, chunk, D, V);
        cut.clear();
        REQUIRE(cut.run(0, N, workspace).loss == loss);
        require_equal(cut);
        cut.clear();
        for (int first = 0; first < N; first += 7) cut.run(first, std::min(7, N - first), workspace);
        require_equal(cut);
    }
    const int before = omp_get_max_threads();
    for (int threads : {1, 2, 3}) {
        omp_set_num_threads(threads);
        cut.clear();
        REQUIRE(cut.run().loss == loss);
        require_equal(cut);
    }
    omp_set_num_threads(before);

    Head<float> scored(N, D, V);  // scoring gives the same numbers and touches no gradient
    cispo(scored);
    scored.run(false);
    REQUIRE(scored.logp == whole.logp);
    REQUIRE(scored.entropy == whole.entropy);
    for (float g : scored.dw) REQUIRE(g == 0.5f);
    for (float g : scored.dx) REQUIRE(std::isnan(g));

    std::vector<float> logits(V);  // what a sampler sees of one row
    for (int n = 0; n < N; n++) {
        if (whole.targets[n] < 0) continue;
        head_logits<float>(whole.device, logits.data(), &whole.x[size_t(n) * D],
                           {whole.w.data(), whole.packed.data()}, 1, D, V);
        REQUIRE(softmax_row(logits.data(), V, 1).logp(logits[whole.targets[n]]) == whole.logp[n]);
        REQUIRE(std::max_element(logits.begin(), logits.end()) - logits.begin() == whole.argmax[n]);
    }
}

TEST_CASE("token_loss: the ratio is 1 when nothing changed; its bounds bound the gradient", "[token_loss]") {
    Head<float> h(12, 8, 30);
    h.run();
    h.old_logp = h.logp;
    h.args.old_logp = h.old_logp.data(), h.args.advantage = h.advantage.data();
    h.clear();
    h.run();
    for (int n = 0; n < h.N; n++) REQUIRE(h.ratio[n] == (h.targets[n] < 0 ? 0.0f : 1.0f));

    // Far off-policy: the ratio is above the bound, and the gradient is that of c = ratio_high * advantage.
    for (float& l : h.old_logp) l = -50;
    h.args.ratio_high = 5;
    h.clear();
    h.run();
    Head<float> bounded(12, 8, 30);
    for (int n = 0; n < h.N; n++) bounded.coefficient[n] = 5 * h.advantage[n];
    bounded.args.coefficient = bounded.coefficient.data();
    bounded.run();
    for (size_t j = 0; j < h.dw.size(); j++) REQUIRE(h.dw[j] == Approx(bounded.dw[j]).margin(1e-6));
}

TEST_CASE("token_loss: without targets the loss and the gradients are zero", "[token_loss]") {
    Head<float> h(20, 8, 30);
    h.targets.assign(20, -1);
    TokenLossSum result = h.run();
    REQUIRE(result.loss == 0);
    REQUIRE(result.targets == 0);
    for (float g : h.dx) REQUIRE(g == 0);
    for (float g : h.dw) REQUIRE(g == 0.5f);

    Head<float> mixed(20, 8, 30);
    REQUIRE(mixed.run().targets ==
            int(std::count_if(mixed.targets.begin(), mixed.targets.end(), [](int t) { return t >= 0; })));
    for (int n = 0; n < mixed.N; n++)
        if (mixed.targets[n] < 0)
            for (int d = 0; d < mixed.D; d++) REQUIRE(mixed.dx[size_t(n) * mixed.D + d] == 0);
}

TEST_CASE("token_loss: hostile numbers", "[token_loss]") {
    Head<float> h(6, 8, 30);
    h.targets.assign(6, 3);
    for (float& x : h.x) x *= 1000;  // logits of thousands: no overflow
    REQUIRE(std::isfinite(h.run().loss));
    for (float g : h.dw) REQUIRE(std::isfinite(g));
    h.args.temperature = 1e-6;
    REQUIRE(std::isfinite(h.run().loss));
    h.x[2 * 8] = NAN;  // shows, and only in its own row
    h.args.temperature = 1;
    h.clear();
    REQUIRE(std::isnan(h.run().loss));
    for (int n = 0; n < 6; n++) REQUIRE(std::isnan(h.logp[n]) == (n == 2));
    h.targets[4] = 30;
    REQUIRE_THROWS_AS(h.run(), Error);
}
