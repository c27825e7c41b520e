// What a memory plan says is what the CUDA device is asked for, category by category; what the kernels do not
// take is refused before anything is.
#include "cuda_test.h"
#include "generate.cuh"
#include "locality.h"
#include "trainer.cuh"

namespace {

ModelConfig config() {
    ModelConfig c;
    c.architecture = "qwen2", c.qkv_bias = c.tied = true;
    c.layers = 2, c.hidden = 256, c.heads = 4, c.kv_heads = 2, c.head_dim = 32, c.ff = 512, c.vocab = 503;
    c.max_positions = 512, c.window = {50, 50};
    return c;
}
double planned(const MemoryPlan& plan, const std::string& category) {
    for (const auto& [name, bytes] : plan)
        if (name == category) return bytes;
    return 0;
}
// At most 2% more than is taken, and never less.
void check(double plan, size_t peak) {
    CHECK(plan >= double(peak));
    CHECK(plan <= 1.02 * double(peak) + 1024);
}

template <class Step>
std::string message(Step step) {
    try {
        step();
    } catch (const std::exception& e) {
        return e.what();
    }
    return "";
}

}  // namespace

TEMPLATE_TEST_CASE("cuda: a training plan is what is allocated", "[cuda][memory]", CUDA_TYPES) {
    using Device = CudaDevice<TestType>;
    const int recompute = GENERATE(0, 1, 2), tokens = GENERATE(512, 33);
    CAPTURE(recompute, tokens);
    ModelConfig c = config();
    if (recompute == 1) c.qk_norm = true, c.qkv_bias = false, c.architecture = "qwen3";
    Device device;
    Model<Device> model(device, c);
    model.initialize(1);
    Trainer<Device> trainer(model, {}, tokens, recompute);
    Sequence s;
    for (int i = 0; i < tokens; i++) s.token.push_back(i % c.vocab), s.target.push_back((i + 1) % c.vocab);
    trainer.update(trainer.supervised({s}, true));
    const MemoryPlan plan = training_memory<Device>(c, tokens, recompute);
    auto peak = [&](Memory m) { return device.memory.peak[int(m)]; };
    for (Memory m : {Memory::weights, Memory::gradients, Memory::optimizer, Memory::activations}) {
        CAPTURE(memory_name(m));
        check(planned(plan, memory_name(m)), peak(m));
    }
    check(planned(plan, "workspace"), peak(Memory::workspace) - Device::blas_bytes);
}

TEMPLATE_TEST_CASE("cuda: a generator's plan is what is allocated", "[cuda][memory]", CUDA_TYPES) {
    using Device = CudaDevice<TestType>;
    const ModelConfig c = config();
    Device device;
    Model<Device> model(device, c);
    model.initialize(1);
    GenerateOptions o;
    o.slots = 5, o.max_tokens_per_pass = 90, o.limit = 200;
    {
        Generator<Device> generator(model, o);
        for (int i = 0; i < 9; i++) {
            Prompt p;
            p.ids.assign(size_t(45), i), p.tag = i, p.max_new_tokens = 4 + i;
            generator.add(p);
        }
        while (generator.step([](Rollout&&) {})) {
        }
    }
    const auto plan = Generator<Device>::plan(c, o, 45);
    auto peak = [&](Memory m) { return device.memory.peak[int(m)]; };
    CHECK(double(plan.cache) == double(peak(Memory::cache)));
    check(double(plan.weights), peak(Memory::weights));
    check(double(plan.activations), peak(Memory::activations));
    check(double(plan.logits), peak(Memory::workspace) - Device::blas_bytes);
}

TEST_CASE("cuda: sizes without a kernel are refused before anything is allocated", "[cuda][memory]") {
    using Device = CudaDevice<bf16>;
    Device& device = cuda<bf16>();
    const size_t before = device.memory.now[int(Memory::weights)];
    auto refused = [&](auto change, const std::string& what) {
        ModelConfig c = config();
        change(c);
        CHECK(message([&] { Model<Device> model(device, c); }).find(what) != std::string::npos);
        CHECK(message([&] { training_memory<Device>(c, 100, 0); }).find(what) != std::string::npos);
    };
    refused([](ModelConfig& c) { c.hidden = 36; }, "hidden_size that is a multiple of 8, not 36");
    refused([](ModelConfig& c) { c.ff = 100; }, "intermediate_size that is a multiple of 8, not 100");
    refused([](ModelConfig& c) { c.head_dim = 40; }, "head_dim that is a multiple of 16 up to 128, not 40");
    refused([](ModelConfig& c) { c.head_dim = 256; }, "head_dim that is a multiple of 16 up to 128, not 256");
    CHECK(device.memory.now[int(Memory::weights)] == before);
    // 48 and 112 can be trained, not decoded with.
    ModelConfig c = config();
    c.head_dim = 48;
    training_memory<Device>(c, 100, 0);
    GenerateOptions o;
    auto plan = [&](const ModelConfig& c) { return message([&] { Generator<Device>::plan(c, o, 10); }); };
    CHECK(plan(c).find("cannot decode with heads of 48") != std::string::npos);
    CHECK(plan(config()) == "");
    o.slots = 65536;  // a grid's third side is shorter
    CHECK(plan(config()).find("between 1 and 65535") != std::string::npos);
}

TEMPLATE_TEST_CASE("cuda: a locality plan is what is allocated", "[cuda][memory]", CUDA_TYPES) {
    using Device = CudaDevice<TestType>;
    const ModelConfig c = read_config("data/ledger/base");
    LocalityOptions o;
    o.windows = {4, 8}, o.max_tokens_per_pass = 40;
    o.truncation = GENERATE(Truncation::exact, Truncation::masked);
    std::vector<LocalityText> texts(3);
    for (LocalityText& text : texts)
        for (int i = 0; i < 40; i++) text.ids.push_back(i % c.vocab), text.prompt = 5;
    Device device;
    LocalityScorer<Device> scorer(device, c, "data/ledger/base");
    scorer.score(texts, o);
    const MemoryPlan plan = LocalityScorer<Device>::memory(c, o, 40, 3 * 35);
    auto peak = [&](Memory m) { return device.memory.peak[int(m)]; };
    check(planned(plan, "weights"), peak(Memory::weights));
    check(planned(plan, "workspace"), peak(Memory::workspace) - Device::blas_bytes);
    // Passes hold 39 tokens, since the last of a text predicts nothing.
    CHECK(planned(plan, "activations") >= double(peak(Memory::activations)));
    CHECK(planned(plan, "activations") < 1.05 * double(peak(Memory::activations)));
}
