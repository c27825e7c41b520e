// The rollout engine: a text depends on its prompt, its key and the settings alone; its log-probabilities are
// the trainer's bit for bit; stop reasons; the memory plan.
#include <omp.h>

#include <map>

#include "check.h"
#include "generate.cuh"
#include "scratch.h"

namespace {

// Two sliding layers and one full one; the window is longer than a tile of keys and not a multiple of it.
ModelConfig small_config(int window = 40) {
    ModelConfig c;
    c.architecture = "qwen2";
    c.layers = 3, c.hidden = 32, c.heads = 4, c.kv_heads = 2, c.head_dim = 8, c.ff = 48, c.vocab = 61;
    c.max_positions = 256;
    c.tied = true;
    c.window = {window, 0, window};
    return c;
}

// Weights large enough that texts differ from each other.
void fill(Model<Cpu>& m) {
    uint32_t index = 500;
    for (const Parameter& p : m.layout.parameters) {
        bool matrix = p.shape.size() == 2;
        auto values = random_array<float>(p.size, index++, matrix ? 0.25 : 0.2, matrix ? 0 : 1);
        std::copy(values.begin(), values.end(), m.params() + p.offset);
    }
    m.weights_changed();
}

std::vector<Prompt> some_prompts(int new_tokens) {
    std::vector<Prompt> out;
    Rng rng(5, Stream::test, 77);
    for (int length : {3, 45, 1, 90, 17, 33, 8}) {
        Prompt p;
        for (int i = 0; i < length; i++) p.ids.push_back(int(rng.below(61)));
        p.key = uint32_t(1000 + length);
        p.tag = int64_t(out.size());
        p.samples = out.size() % 2 ? std::vector<int>{0, 1, 2, 3} : std::vector<int>{0};
        p.max_new_tokens = new_tokens;
        out.push_back(p);
    }
    return out;
}

using Texts = std::map<std::pair<int64_t, int>, Rollout>;

Texts generate(Model<Cpu>& m, const GenerateOptions& o, const std::vector<Prompt>& prompts) {
    Generator<Cpu> g(m, o);
    for (const Prompt& p : prompts) g.add(p);
    Texts out;
    std::map<std::pair<int64_t, int>, std::vector<int>> streamed;
    int steps = 0;
    bool more = true;
    while (more) {
        more = g.step(
            [&](Rollout r) {
                auto key = std::make_pair(r.tag, r.sample);
                REQUIRE(out.count(key) == 0);
                out[key] = std::move(r);
            },
            [&](int64_t tag, int sample, int id) {
                streamed[{tag, sample}].push_back(id);
            });
        REQUIRE(g.running() <= o.slots);
        REQUIRE(++steps < 10000);
    }
    int64_t tokens = 0;
    for (auto& [key, r] : out) {
        REQUIRE(streamed[key] == r.ids);
        REQUIRE(r.ids.size() == r.logp.size());
        tokens += int64_t(r.ids.size());
    }
    REQUIRE(tokens == g.tokens());
    return out;
}

void require_equal(const Texts& a, const Texts& b) {
    REQUIRE(a.size() == b.size());
    for (auto& [key, r] : a) {
        INFO("prompt " << key.first << " sample " << key.second);
        const Rollout& other = b.at(key);
        REQUIRE(r.ids == other.ids);
        REQUIRE(r.logp == other.logp);
        REQUIRE(int(r.stop) == int(other.stop));
    }
}

// What the trainer computes for the same texts, all in one packed pass.
std::vector<float> trainer_logp(Model<Cpu>& m, const std::vector<int>& prompt, const std::vector<int>& answer,
                                double temperature) {
    const ModelConfig& c = m.config;
    std::vector<int> ids = prompt, other = {5, 6, 7};
    ids.insert(ids.end(), answer.begin(), answer.end());
    Batch b;
    b.add(other.data(), 3);
    b.add(ids.data(), int(ids.size()));
    m.forward(b);
    std::vector<int> target(size_t(b.tokens()), -1);
    const size_t first = 3 + prompt.size() - 1;
    for (size_t i = 0; i < answer.size(); i++) target[first + i] = answer[i];
    std::vector<float> logp(size_t(b.tokens()));
    TokenLossWorkspace<CpuDevice<float>> workspace(m.dev, b.tokens(), c.hidden, c.vocab);
    TokenLoss<float> loss;
    loss.N = b.tokens(), loss.D = c.hidden, loss.V = c.vocab;
    loss.x = m.hidden(), loss.w = m.head(), loss.targets = target.data();
    loss.temperature = temperature;
    loss.logp = logp.data();
    token_loss_forward_backward(m.dev, workspace, loss);
    return {logp.begin() + int64_t(first), logp.begin() + int64_t(first + answer.size())};
}

}  // namespace

TEST_CASE("generate: texts do not depend on slots, passes, neighbours or threads", "[generate]") {
    Cpu dev;
    Model<Cpu> m(dev, small_config());
    fill(m);
    GenerateOptions o;
    o.seed = 9, o.stop = {3, 60}, o.slots = 16;
    std::vector<Prompt> prompts = some_prompts(120);
    const Texts whole = generate(m, o, prompts);
    REQUIRE(whole.size() == 4 + 3 * 4);

    for (int slots : {1, 2, 3, 5, 64}) {
        o.slots = slots;
        o.max_tokens_per_pass = slots == 3 ? 20 : 4096;
        require_equal(whole, generate(m, o, prompts));
    }
    o.slots = 4;
    std::vector<Prompt> reversed(prompts.rbegin(), prompts.rend());
    require_equal(whole, generate(m, o, reversed));
    for (int n : {1, 2, 3}) {
        Threads threads(n);
        require_equal(whole, generate(m, o, prompts));
    }

    // One sample drawn alone, as a resumed evaluation would.
    Prompt alone = prompts[3];
    alone.samples = {2};
    Texts one = generate(m, o, {alone});
    REQUIRE(one.size() == 1);
    REQUIRE(one.at({3, 2}).ids == whole.at({3, 2}).ids);

    // Samples of a group differ, and so do seeds.
    REQUIRE(whole.at({3, 0}).ids != whole.at({3, 1}).ids);
    o.seed = 10;
    REQUIRE(generate(m, o, prompts).at({3, 0}).ids != whole.at({3, 0}).ids);
}

TEST_CASE("generate: log-probabilities equal the trainer's bit for bit", "[generate]") {
    Threads one(1);
    // Tiles of keys have 32; prompts have 3, 45, 1 and 90 tokens, and texts 100 more.
    for (int window : {1, 2, 31, 32, 33, 44, 45, 46, 102, 103, 104, 0}) {
        Cpu dev;
        Model<Cpu> m(dev, small_config(window));
        fill(m);
        for (Sampling s : {Sampling{1, 1, 0}, Sampling{0.7, 0.9, 20}}) {
            GenerateOptions o;
            o.sampling = s, o.slots = 3;
            std::vector<Prompt> prompts = some_prompts(100);
            prompts.resize(4);
            for (auto& [key, r] : generate(m, o, prompts)) {
                INFO("window " << window << " prompt " << key.first << " sample " << key.second);
                REQUIRE(r.ids.size() == 100);
                const std::vector<int>& prompt = prompts[size_t(key.first)].ids;
                REQUIRE(r.prompt_tokens == int(prompt.size()));
                REQUIRE(r.logp == trainer_logp(m, prompt, r.ids, s.temperature));
            }
        }
    }
}

TEST_CASE("generate: greedy text equals whole passes over the growing text", "[generate]") {
    Cpu dev;
    Model<Cpu> m(dev, small_config(5));
    fill(m);
    GenerateOptions o;
    o.sampling.temperature = 0;
    std::vector<int> ids = {4, 8, 15};
    Prompt p;
    p.ids = ids, p.max_new_tokens = 40;
    std::vector<int> text = generate(m, o, {p}).at({0, 0}).ids;
    REQUIRE(text.size() == 40);
    std::vector<float> logits(61);
    for (int expected : text) {
        Batch b;
        b.add(ids.data(), int(ids.size()));
        m.forward(b);
        head_logits(dev, logits.data(), m.hidden() + (ids.size() - 1) * 32, m.head(), 1, 32, 61);
        REQUIRE(int(std::max_element(logits.begin(), logits.end()) - logits.begin()) == expected);
        ids.push_back(expected);
    }
}

TEST_CASE("generate: why a text ended", "[generate]") {
    Cpu dev;
    Model<Cpu> m(dev, small_config());
    fill(m);
    GenerateOptions o;
    o.stop = {3, 60};
    std::vector<Prompt> prompts = some_prompts(200);
    o.limit = 130;  // prompt and answer together
    int stopped = 0;
    for (auto& [key, r] : generate(m, o, prompts)) {
        bool last_is_stop = r.ids.back() == 3 || r.ids.back() == 60;
        REQUIRE((r.stop == Stop::token) == last_is_stop);
        for (size_t i = 0; i + 1 < r.ids.size(); i++) REQUIRE((r.ids[i] != 3 && r.ids[i] != 60));
        if (r.stop == Stop::length) REQUIRE(r.prompt_tokens + int(r.ids.size()) == 130);
        stopped += r.stop == Stop::token;
    }
    REQUIRE(stopped > 0);
    // A single token; the last of the allowed tokens is a stop token: ended by itself.
    for (Prompt& p : prompts) p.max_new_tokens = 1;
    for (auto& [key, r] : generate(m, o, prompts)) REQUIRE(r.ids.size() == 1);
    o.stop.clear();
    for (int v = 0; v < 61; v++) o.stop.push_back(v);
    for (auto& [key, r] : generate(m, o, prompts)) REQUIRE(r.stop == Stop::token);
    // Nothing asked for.
    for (Prompt& p : prompts) p.samples.clear();
    REQUIRE(generate(m, o, prompts).empty());
    REQUIRE(generate(m, o, {}).empty());
}

TEST_CASE("generate: the memory plan is what is allocated; a slot does not grow beyond the window",
          "[generate]") {
    Cpu dev;
    ModelConfig c = small_config(40);
    c.window = {40, 40, 40};
    {
        Model<Cpu> m(dev, c);
        fill(m);
        GenerateOptions o;
        o.slots = 6, o.max_tokens_per_pass = 90, o.limit = 200;
        std::vector<Prompt> prompts = some_prompts(50);
        auto plan = Generator<Cpu>::plan(c, o, 90);
        generate(m, o, prompts);
        auto peak = [&](Memory k) { return dev.memory.peak[int(k)]; };
        REQUIRE(peak(Memory::cache) == plan.cache);
        REQUIRE(double(peak(Memory::activations)) == Approx(double(plan.activations)).epsilon(0.05));
        // The rotary table counts as weights.
        REQUIRE(double(peak(Memory::weights)) == Approx(double(plan.weights)).epsilon(0.05));
    }
    GenerateOptions o;
    c.max_positions = 1 << 20;
    o.limit = 1000;
    size_t before = Generator<Cpu>::plan(c, o, 10).slot;
    o.limit = 1000000;
    REQUIRE(Generator<Cpu>::plan(c, o, 10).slot == before);
}

TEST_CASE("generate: errors", "[generate]") {
    Cpu dev;
    Model<Cpu> m(dev, small_config());
    fill(m);
    auto with = [&](auto change) {
        GenerateOptions o;
        change(o);
        return error_of([&] { Generator<Cpu> g(m, o); });
    };
    REQUIRE(with([](auto& o) { o.slots = 0; }) == "--slots 0 is not between 1 and 65535");
    REQUIRE(with([](auto& o) { o.limit = 1000; }) ==
            "1000 tokens are asked for, the model has 256 positions");
    REQUIRE(with([](auto& o) { o.stop = {61}; }) == "stop token 61 is outside the vocabulary of 61");
    REQUIRE(with([](auto& o) { o.sampling.top_p = 2; }) == "--top-p 2 is not in (0, 1]");

    GenerateOptions o;
    Generator<Cpu> g(m, o);
    auto add = [&](std::vector<int> ids) {
        Prompt p;
        p.ids = ids;
        return error_of([&] { g.add(p); });
    };
    REQUIRE(add({}) == "an empty prompt");
    REQUIRE(add({1, 61}) == "token 61 of a prompt is outside the vocabulary of 61");
    REQUIRE(add({-1}) == "token -1 of a prompt is outside the vocabulary of 61");
    REQUIRE(add(std::vector<int>(256, 1)) ==
            "a prompt of 256 tokens leaves no room for an answer (limit 256)");
    m.params()[m.layout.norm] = NAN;
    m.weights_changed();
    REQUIRE(add({1, 2}) == "no error");
    REQUIRE(error_of([&] { g.step([](Rollout) {}); }) ==
            "the model's logits are not finite (NaN or infinite)");
}
