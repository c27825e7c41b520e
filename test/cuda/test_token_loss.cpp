// The loss of SFT and CISPO on the CUDA device, against the CPU device in double, which finite differences
// check (test/test_token_loss.cpp).
#include <functional>

#include "cuda_test.h"
#include "layers/token_loss.cuh"

namespace {

// A problem whose numbers T holds exactly; every third token or so has no target.
template <class T>
struct Problem {
    int N, D, V;
    std::vector<double> x, w, coefficient, old_logp, advantage, ref_logp, token_scale;
    std::vector<int> targets;
    bool weighted = false, scaled = false, cispo = false;
    double temperature = 1, kl_coef = 0, entropy_coef = 0;
    Problem(int N, int D, int V, double size = 0.5) : N(N), D(D), V(V) {
        x = random_values<T>(size_t(N) * D, 1, size), w = random_values<T>(size_t(V) * D, 2);
        coefficient = random_values<float>(N, 3), old_logp = random_values<float>(N, 4),
        advantage = random_values<float>(N, 5), ref_logp = random_values<float>(N, 6),
        token_scale = random_values<float>(N, 7, 0.3);
        for (int n = 0; n < N; n++) {
            targets.push_back(n % 3 == 1 ? -1 : int((n * 7919u) % unsigned(V)));
            // around the model's own log-probabilities, so that some ratios are within their bounds
            old_logp[n] = float(old_logp[n] - std::log(V));
            ref_logp[n] = float(0.2 * ref_logp[n] - std::log(V));
        }
    }
};

struct Outcome {
    TokenLossSum sum;
    std::vector<double> logp, entropy, ratio, dx, dw, dz;
    std::vector<int> argmax;
};

template <class U>
std::vector<U> converted(const std::vector<double>& v) {
    return {v.begin(), v.end()};
}

constexpr double before = 0.5;  // dw accumulates

// Calls the loss with arrays of S on the host. The caller has set x, w, dx and dw.
template <class Device, class T, class S = typename Device::stat>
Outcome call(Device& device, TokenLossWorkspace<Device>& workspace, const Problem<T>& p,
             DeviceTokenLoss<Device> t) {
    const auto coefficient = converted<S>(p.coefficient), old_logp = converted<S>(p.old_logp),
               advantage = converted<S>(p.advantage), ref_logp = converted<S>(p.ref_logp),
               token_scale = converted<S>(p.token_scale);
    std::vector<S> logp(p.N, NAN), entropy(p.N, NAN), ratio(p.N, NAN);
    Outcome out;
    out.argmax.assign(p.N, -7);
    t.N = p.N, t.D = p.D, t.V = p.V, t.targets = p.targets.data();
    t.temperature = p.temperature, t.scale = 0.25;
    t.kl_coef = p.kl_coef, t.entropy_coef = p.entropy_coef;
    t.ratio_low = 0.5, t.ratio_high = 2;
    if (p.weighted) t.coefficient = coefficient.data();
    if (p.cispo) t.old_logp = old_logp.data(), t.advantage = advantage.data();
    if (p.kl_coef != 0) t.ref_logp = ref_logp.data();
    if (p.scaled) t.token_scale = token_scale.data();
    t.logp = logp.data(), t.entropy = entropy.data(), t.ratio = ratio.data(), t.argmax = out.argmax.data();
    out.sum = token_loss_forward_backward(device, workspace, t);
    out.logp.assign(logp.begin(), logp.end()), out.entropy.assign(entropy.begin(), entropy.end());
    out.ratio.assign(ratio.begin(), ratio.end());
    return out;
}

template <class Real, class T>
Outcome on_cpu(const Problem<T>& p) {
    CpuDevice<Real> device;
    TokenLossWorkspace<CpuDevice<Real>> workspace(device, p.N, p.D, p.V);
    const auto x = converted<Real>(p.x), w = converted<Real>(p.w);
    std::vector<Real> dx(p.x.size()), dw(p.w.size(), Real(before));
    TokenLoss<Real> t;
    t.x = x.data(), t.w = {w.data(), nullptr}, t.dx = dx.data(), t.dw = dw.data();
    Outcome out = call(device, workspace, p, t);
    out.dx.assign(dx.begin(), dx.end()), out.dw.assign(dw.begin(), dw.end());
    for (int i = 0; i < out.sum.targets; i++) {
        const Real* z = workspace.logits.data() + size_t(i) * workspace.row;
        out.dz.insert(out.dz.end(), z, z + p.V);
    }
    return out;
}

// The naive computation of gradients: in float, or with the logits' gradient and dx rounded to bfloat16.
template <class T>
Outcome naive(const Problem<T>& p, const Outcome& exact) {
    if constexpr (std::is_same_v<T, float>) return on_cpu<float>(p);
    Outcome out;
    out.dx.assign(p.x.size(), 0), out.dw.assign(p.w.size(), before);
    size_t at = 0;
    for (int n = 0; n < p.N; n++)
        for (int v = 0; p.targets[n] >= 0 && v < p.V; v++, at++)
            for (int d = 0; d < p.D; d++) {
                out.dx[size_t(n) * p.D + d] += rounded<T>(exact.dz[at]) * p.w[size_t(v) * p.D + d];
                out.dw[size_t(v) * p.D + d] += rounded<T>(exact.dz[at]) * p.x[size_t(n) * p.D + d];
            }
    out.dx = rounded<T>(out.dx);
    return out;
}

// chunk 0: the workspace's own.
template <class T>
Outcome on_cuda(const Problem<T>& p, int chunk = 0, bool gradients = true) {
    CudaDevice<T>& device = cuda<T>();
    TokenLossWorkspace<CudaDevice<T>> workspace(device, p.N, p.D, p.V);
    REQUIRE(workspace.chunk == p.N);
    if (chunk) workspace.chunk = chunk;
    OnDevice<T, T> x(device, p.x), w(device, p.w), dx(device, p.x.size());
    OnDevice<float, T> dw(device, std::vector<double>(p.w.size(), before));
    TokenLoss<T, float> t;
    t.x = x.data(), t.w = {w.data(), nullptr};
    if (gradients) t.dx = dx.data(), t.dw = dw.data();
    Outcome out = call(device, workspace, p, t);
    out.dx = dx.values(), out.dw = dw.values();
    return out;
}

template <class T>
void compare(const Problem<T>& p, const Outcome& got) {
    const Outcome want = on_cpu<double>(p), rough = naive(p, want);
    REQUIRE(got.sum.targets == want.sum.targets);
    REQUIRE(got.argmax == want.argmax);
    auto close = [](const std::vector<double>& a, const std::vector<double>& b) {
        const double error = largest_error(a, b), allowed = 4e-6 * (1 + largest(b));
        INFO("error " << error << ", allowed " << allowed);
        CHECK(error <= allowed);
    };
    close(got.logp, want.logp);
    close(got.entropy, want.entropy);
    if (p.cispo) close(got.ratio, want.ratio);
    close({got.sum.loss}, {want.sum.loss});
    check_close<T>(got.dx, want.dx, rough.dx, 3);
    // The products are summed in float whatever T is; the error is that of the logits' gradient.
    check_close<T>(got.dw, want.dw, rough.dw, 3);
    for (int n = 0; n < p.N; n++)
        if (p.targets[n] < 0)
            for (int d = 0; d < p.D; d++) REQUIRE(got.dx[size_t(n) * p.D + d] == 0);
}

}  // namespace

TEMPLATE_TEST_CASE("cuda: token_loss in every mode", "[cuda][token_loss]", CUDA_TYPES) {
    using P = Problem<TestType>;
    const std::pair<const char*, std::function<void(P&)>> modes[] = {
        {"sft", [](P&) {}},
        {"weights", [](P& p) { p.weighted = true; }},
        {"token scale", [](P& p) { p.scaled = true; }},
        {"temperature", [](P& p) { p.temperature = 0.7; }},
        {"cispo", [](P& p) { p.cispo = true; }},
        {"kl", [](P& p) { p.kl_coef = 0.3; }},
        {"entropy", [](P& p) { p.entropy_coef = 0.2; }},
        {"all", [](P& p) {
             p.cispo = p.scaled = true, p.temperature = 1.3, p.kl_coef = 0.3, p.entropy_coef = 0.2;
         }}};
    for (auto& [name, set] : modes) {
        CAPTURE(name);
        P p(14, 16, 61);
        set(p);
        const Outcome got = on_cuda(p);
        compare(p, got);
        if (!p.cispo) continue;
        int low = 0, high = 0, within = 0;  // the bounds matter on both sides
        for (int n = 0; n < p.N; n++)
            if (p.targets[n] >= 0) (got.ratio[n] < 0.5 ? low : got.ratio[n] > 2 ? high : within)++;
        CAPTURE(low, high, within);
        REQUIRE((low > 0 && high > 0 && within > 0));
    }
}

TEMPLATE_TEST_CASE("cuda: token_loss at the edges of the vocabulary", "[cuda][token_loss]", CUDA_TYPES) {
    // A tile has 4096 logits; the gradient of one overlays others.
    for (int V : {1, 3, 8, 2047, 4096, 4097, 9001}) {
        CAPTURE(V);
        Problem<TestType> p(5, 8, V);
        p.entropy_coef = 0.1;
        p.targets = {V - 1, 0, -1, V / 2, V - 1};
        compare(p, on_cuda(p));
    }
}

TEMPLATE_TEST_CASE("cuda: token_loss gives the same bits for any chunk", "[cuda][token_loss]", CUDA_TYPES) {
    Problem<TestType> p(23, 16, 131);
    p.cispo = true;
    const Outcome whole = on_cuda(p);
    for (int chunk : {1, 5, 15, 16}) {
        CAPTURE(chunk);
        const Outcome cut = on_cuda(p, chunk);
        REQUIRE(cut.sum.loss == whole.sum.loss);
        REQUIRE(cut.logp == whole.logp);
        REQUIRE(cut.entropy == whole.entropy);
        REQUIRE(cut.ratio == whole.ratio);
        compare(p, cut);
    }
    const Outcome again = on_cuda(p);
    REQUIRE(again.dx == whole.dx);
    REQUIRE(again.dw == whole.dw);

    const Outcome scored = on_cuda(p, 7, false);
    REQUIRE(scored.sum.loss == whole.sum.loss);
    REQUIRE(scored.logp == whole.logp);
    for (double g : scored.dw) REQUIRE(g == before);
    for (double g : scored.dx) REQUIRE(std::isnan(g));
}

TEMPLATE_TEST_CASE("cuda: token_loss with hostile numbers", "[cuda][token_loss]", CUDA_TYPES) {
    using T = TestType;
    Problem<T> p(6, 8, 300, 4000);  // logits beyond 1e4
    p.targets = {0, 299, -1, 17, 18, 19};
    const Outcome huge = on_cuda(p);
    compare(p, huge);
    REQUIRE(largest(huge.logp) > 1e4);

    for (double temperature : {1e-6, 1e6}) {
        p.temperature = temperature;
        const Outcome extreme = on_cuda(p);
        REQUIRE(std::isfinite(extreme.sum.loss));
        for (double g : extreme.dw) REQUIRE(std::isfinite(g));
    }
    p.temperature = 1;
    p.x[3 * 8] = NAN;  // shows, and only in its own row
    const Outcome damaged = on_cuda(p);
    REQUIRE(std::isnan(damaged.sum.loss));
    for (int n = 0; n < p.N; n++) {
        REQUIRE(std::isnan(damaged.logp[n]) == (n == 3));
        REQUIRE(std::isnan(damaged.dx[size_t(n) * 8]) == (n == 3));
    }

    Problem<T> none(6, 8, 30);
    none.targets.assign(6, -1);
    const Outcome zero = on_cuda(none);
    REQUIRE(zero.sum.loss == 0);
    REQUIRE(zero.sum.targets == 0);
    REQUIRE(zero.argmax == std::vector<int>(6, -1));
    REQUIRE(largest(zero.dx) == 0);
    for (double g : zero.dw) REQUIRE(g == before);

    none.targets[4] = 30;
    REQUIRE_THROWS_WITH(on_cuda(none), Catch::Contains("target token 30 with a vocabulary of 30"));
    TokenLossWorkspace<CudaDevice<T>> small(cuda<T>(), 2, 8, 30);
    const std::vector<int> three = {1, 2, 3};
    TokenLoss<T, float> t;
    t.N = 3, t.D = 8, t.V = 30, t.targets = three.data();
    REQUIRE_THROWS_WITH(token_loss_forward_backward(cuda<T>(), small, t),
                        Catch::Contains("3 targets in a pass that was prepared for 2"));
}

TEST_CASE("cuda: token_loss's workspace is what its plan says", "[cuda][token_loss]") {
    CudaDevice<bf16>& device = cuda<bf16>();
    const size_t now = device.memory.now[int(Memory::workspace)];
    for (auto [tokens, D, V] : {std::array<int, 3>{1, 8, 5}, {300, 64, 1001}}) {
        TokenLossWorkspace<CudaDevice<bf16>> workspace(device, tokens, D, V);
        REQUIRE(device.memory.now[int(Memory::workspace)] - now ==
                TokenLossWorkspace<CudaDevice<bf16>>::bytes(tokens, D, V));
    }
    REQUIRE(TokenLossWorkspace<CudaDevice<bf16>>::chunk_of(32768, 151936) == 2048);
}
