// The whole model: every gradient by finite differences, and the promises about bits: recompute levels,
// packing, splitting a batch, threads.
#include <omp.h>

#include "check.h"
#include "data.h"
#include "trainer.cuh"

namespace {

ModelConfig tiny(const std::string& architecture, bool tied = true) {
    ModelConfig c;
    c.architecture = architecture;
    c.layers = 2, c.hidden = 12, c.heads = 4, c.kv_heads = 2, c.head_dim = 6, c.ff = 20, c.vocab = 17;
    c.max_positions = 64;
    c.qkv_bias = architecture == "qwen2", c.qk_norm = architecture == "qwen3";
    c.tied = tied;
    c.window = {3, 0};  // one sliding layer, one full
    return c;
}

// Non-trivial values everywhere, biases and norms included.
template <class Device>
void fill(Model<Device>& m) {
    uint32_t index = 100;
    for (const Parameter& p : m.layout.parameters) {
        bool matrix = p.shape.size() == 2, bias = p.name.find("bias") != std::string::npos;
        auto values =
            random_array<typename Device::real>(p.size, index++, matrix ? 0.3 : 0.2, matrix || bias ? 0 : 1);
        std::copy(values.begin(), values.end(), m.params() + p.offset);
    }
    m.weights_changed();
}

std::vector<Sequence> documents(const std::vector<int>& lengths, int vocab, uint32_t index = 7) {
    std::vector<Sequence> out;
    Rng rng(3, Stream::test, index);
    for (int n : lengths) {
        std::vector<int> token(static_cast<size_t>(n));
        std::vector<uint8_t> learn(token.size());
        for (size_t i = 0; i < token.size(); i++)
            token[i] = int(rng.below(uint32_t(vocab))), learn[i] = i % 3 != 1;
        out.push_back(make_sequence(token, learn));
    }
    return out;
}

template <class T>
std::vector<T> gradients(Model<CpuDevice<T>>& m) {
    return {m.gradients(), m.gradients() + m.layout.total};
}

TrainOptions plain_options() {
    TrainOptions o;
    o.lr = 0.01, o.steps = 10, o.schedule = "constant";
    return o;
}

}  // namespace

TEST_CASE("model: every parameter's gradient by finite differences", "[model]") {
    for (const ModelConfig& c : {tiny("qwen2"), tiny("qwen2", false), tiny("qwen3"), tiny("llama", false)}) {
        CpuDevice<double> dev;
        Model<CpuDevice<double>> m(dev, c);
        fill(m);
        Trainer<CpuDevice<double>> trainer(m, plain_options(), 32, 0);
        std::vector<Sequence> data = documents({7, 1, 9, 2}, c.vocab);
        trainer.supervised(data, true);
        for (const Parameter& p : m.layout.parameters) {
            double* w = m.params() + p.offset;
            const double* g = m.gradients() + p.offset;
            std::vector<double> x(w, w + p.size), gradient(g, g + p.size);
            check_gradient(
                x, gradient,
                [&] {
                    std::copy(x.begin(), x.end(), w);
                    m.weights_changed();
                    return trainer.supervised(data, false);
                },
                c.architecture + " " + p.name, 1e-7, 12);
            std::copy(x.begin(), x.end(), w);
            m.weights_changed();
        }
    }
}

TEST_CASE("model: recompute levels, splits of the batch and threads change no bit", "[model]") {
    for (bool tied : {false, true}) {
        ModelConfig c = tiny(tied ? "qwen2" : "qwen3", tied);
        c.sink_tokens = 1;
        std::vector<Sequence> data = documents({40, 5, 33, 12, 1, 20}, c.vocab);
        std::vector<float> reference;
        double loss = 0;
        auto compare = [&](int max_tokens, int recompute, int threads, bool packing) {
            omp_set_num_threads(threads);
            Cpu dev;
            Model<Cpu> m(dev, c);
            fill(m);
            Trainer<Cpu> trainer(m, plain_options(), max_tokens, recompute);
            trainer.packing = packing;
            double l = trainer.supervised(data, true);
            if (reference.empty()) {
                reference = gradients(m);
                loss = l;
            }
            INFO("pass of " << max_tokens << ", recompute " << recompute << ", threads " << threads);
            // A tied embedding gathers from both ends of the model, pass by pass: there the order of adding
            // differs.
            if (tied && (max_tokens != 200 || !packing))
                CHECK(largest_difference(gradients(m), reference) < 2e-7);
            else
                CHECK((gradients(m) == reference));
            CHECK(l == Approx(loss).epsilon(1e-12));
        };
        compare(200, 0, 2, true);
        compare(200, 1, 2, true);
        compare(200, 2, 2, true);
        compare(41, 0, 2, true);
        compare(64, 2, 1, true);
        compare(200, 0, 1, false);
    }
}

TEST_CASE("model: a document's hidden states do not depend on its neighbours", "[model]") {
    ModelConfig c = tiny("qwen2");
    Cpu dev;
    Model<Cpu> m(dev, c);
    fill(m);
    std::vector<Sequence> data = documents({11, 30, 4}, c.vocab);
    Batch all;
    for (const Sequence& s : data) all.add(s.token.data(), int(s.token.size()));
    m.forward(all);
    std::vector<float> together(m.hidden(), m.hidden() + size_t(all.tokens()) * size_t(c.hidden));
    size_t at = 0;
    for (const Sequence& s : data) {
        Batch one;
        one.add(s.token.data(), int(s.token.size()));
        m.forward(one);
        std::vector<float> alone(m.hidden(), m.hidden() + s.token.size() * size_t(c.hidden));
        CHECK(std::equal(alone.begin(), alone.end(), together.begin() + int64_t(at)));
        at += alone.size();
    }
}

TEST_CASE("model: validation leaves gradients alone; a batch without targets teaches nothing", "[model]") {
    ModelConfig c = tiny("llama");
    Cpu dev;
    Model<Cpu> m(dev, c);
    fill(m);
    Trainer<Cpu> trainer(m, plain_options(), 64, 0);
    std::vector<Sequence> data = documents({20, 9}, c.vocab);
    trainer.supervised(data, true);
    std::vector<float> before = gradients(m);
    trainer.supervised(data, false);
    CHECK(gradients(m) == before);
    m.zero_gradients();
    for (Sequence& s : data) s.target.assign(s.target.size(), -1);
    CHECK(trainer.supervised(data, true) == 0);
    for (float g : gradients(m)) REQUIRE(g == 0);
}

TEST_CASE("trainer: a NaN or Inf never reaches the weights, and too many stop the run", "[trainer]") {
    ModelConfig c = tiny("qwen2");
    Cpu dev;
    Model<Cpu> m(dev, c);
    fill(m);
    TrainOptions o = plain_options();
    o.max_skips = 2;
    Trainer<Cpu> trainer(m, o, 64, 0);
    std::vector<Sequence> data = documents({20}, c.vocab);
    std::vector<float> before(m.params(), m.params() + m.layout.total);
    for (float bad : {NAN, INFINITY}) {
        trainer.supervised(data, true);
        m.gradients()[5] = bad;
        UpdateResult r = trainer.update(1.0);
        CHECK(r.skipped);
        CHECK(std::equal(before.begin(), before.end(), m.params()));
    }
    CHECK(trainer.skipped == 2);
    trainer.supervised(data, true);
    CHECK_THROWS_WITH(trainer.update(NAN), Catch::Contains("3 updates in a row"));
    CHECK(std::equal(before.begin(), before.end(), m.params()));
}

TEST_CASE("trainer: clipping scales the gradient; decay spares norms and biases", "[trainer]") {
    ModelConfig c = tiny("qwen2");
    Cpu dev;
    std::vector<Sequence> data = documents({20}, c.vocab);
    // With eps far above the gradient, AdamW's first step is proportional to it.
    auto weights_after = [&](double clip_share, float scale) {
        Model<Cpu> m(dev, c);
        fill(m);
        TrainOptions o = plain_options();
        o.eps = 1e3, o.lr = 1e3, o.weight_decay = 0;
        Trainer<Cpu> trainer(m, o, 64, 0);
        double loss = trainer.supervised(data, true);
        double norm = global_norm(dev, m.gradients(), m.layout.total);
        trainer.options.clip = clip_share * norm;
        for (size_t i = 0; i < m.layout.total; i++) m.gradients()[i] *= scale;
        trainer.update(loss);
        return std::vector<float>(m.params(), m.params() + m.layout.total);
    };
    CHECK(largest_difference(weights_after(0.25, 1), weights_after(0, 0.25f)) < 1e-6);
    CHECK(weights_after(4, 1) == weights_after(0, 1));
    CHECK(largest_difference(weights_after(0.25, 1), weights_after(0, 1)) > 1e-3);

    Model<Cpu> m(dev, c);
    fill(m);
    TrainOptions o = plain_options();
    o.weight_decay = 0.5, o.lr = 0.1;
    Trainer<Cpu> trainer(m, o, 64, 0);
    std::vector<float> before(m.params(), m.params() + m.layout.total);
    m.zero_gradients();
    trainer.update(0);
    for (const Parameter& p : m.layout.parameters) {
        const float expected = before[p.offset] * (p.shape.size() == 2 ? 1 - 0.1f * 0.5f : 1.0f);
        INFO(p.name);
        CHECK(m.params()[p.offset] == Approx(expected).epsilon(1e-6));
    }
}

TEST_CASE("schedule: warm-up, constant, linear, cosine", "[trainer]") {
    TrainOptions o;
    o.lr = 1, o.min_lr = 0.1, o.warmup = 4, o.steps = 14;
    o.schedule = "constant";
    CHECK(learning_rate(o, 0) == 0.25);
    CHECK(learning_rate(o, 3) == 1);
    CHECK(learning_rate(o, 13) == 1);
    o.schedule = "linear";
    CHECK(learning_rate(o, 4) == 1);
    CHECK(learning_rate(o, 9) == Approx(0.55));
    CHECK(learning_rate(o, 14) == Approx(0.1));
    o.schedule = "cosine";
    CHECK(learning_rate(o, 9) == Approx(0.55));
    CHECK(learning_rate(o, 14) == Approx(0.1));
    CHECK(learning_rate(o, 99) == Approx(0.1));
    CHECK(learning_rate(o, 5) > learning_rate(o, 6));
}

TEST_CASE("flops: the hand formula, window included", "[model]") {
    ModelConfig c = tiny("qwen2");
    c.window = {0, 4};
    std::vector<int> start = {0, 10, 13};
    double pairs = (55 + 6) + (4 * 5 / 2 + 6 * 4 + 6);
    double matrices = 2.0 * 13 * (2 * ((4 + 4) * 6 * 12 + 12 * 24 + 3 * 20 * 12) + 17 * 12);
    CHECK(forward_flops(c, start) == matrices + 4 * pairs * 4 * 6);
    // sinks: count the visible pairs
    c.window = {4, 4};
    c.sink_tokens = 3;
    double visible_pairs = 0;
    for (int d = 0; d < 2; d++)
        for (int q = 0; q < start[size_t(d + 1)] - start[size_t(d)]; q++)
            for (int k = 0; k <= q; k++) visible_pairs += visible({4, 3}, q, k);
    CHECK(forward_flops(c, start) == matrices + 2 * 4 * visible_pairs * 4 * 6);
}
