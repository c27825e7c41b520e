// bench_generate.cpp: decoding with the rollout engine, sampling included, on random weights: tokens per
// second against the number of slots, as shares of the ceilings measured in the same run: reading every
// weight and cached key once a step, and the multiply-adds of the step.
//   bench_generate [a|b|d] [tokens of context] [window] [slots ...]
#include "ceilings.h"
#include "swarr/generate.cuh"

namespace {

struct Shape {
    const char* name;
    int layers, hidden, ff, heads, kv_heads, vocab;
};
const Shape shapes[] = {
    {"a: 4 layers, d 256, ff 768, heads 4/2, vocabulary 4096", 4, 256, 768, 4, 2, 4096},
    {"b: Qwen2.5-0.5B", 24, 896, 4864, 14, 2, 151936},
    {"d: the demo's model, 2 layers, d 64, ff 192, heads 4/2, vocabulary 40", 2, 64, 192, 4, 2, 40},
};

// Best time of a decoding step of n texts, over a few tens of milliseconds; texts never end.
double step_seconds(Model<Cpu>& model, int context, int n, int& steps) {
    GenerateOptions o;
    o.slots = n;
    o.limit = model.config.max_positions;
    Generator<Cpu> generator(model, o);
    Rng rng(1, Stream::test);
    for (int i = 0; i < n; i++) {
        Prompt p;
        for (int t = 0; t < context; t++) p.ids.push_back(int(rng.below(uint32_t(model.config.vocab))));
        p.key = uint32_t(i), p.max_new_tokens = o.limit;
        generator.add(std::move(p));
    }
    auto drop = [](Rollout) {};
    generator.step(drop);  // prefill, packing
    generator.step(drop);
    const double start = bench_seconds();
    for (int i = 0; i < steps; i++) generator.step(drop);
    const double seconds = (bench_seconds() - start) / steps;
    steps = std::clamp(int(0.03 / seconds), 1, 200);
    if (sched_getscheduler(0) == SCHED_FIFO) usleep(unsigned(4e6 * seconds * steps));
    return seconds;
}

void bench(const Shape& shape, int context, int window, const std::vector<int>& slots) {
    ModelConfig c;
    c.layers = shape.layers, c.hidden = shape.hidden, c.ff = shape.ff, c.heads = shape.heads;
    c.kv_heads = shape.kv_heads, c.head_dim = std::min(64, shape.hidden / shape.heads), c.vocab = shape.vocab,
    c.tied = true;
    c.max_positions = context + 256;
    c.window.assign(size_t(c.layers), window);
    Cpu device;
    Model<Cpu> model(device, c);
    model.initialize(1);
    std::printf("%s, context from %d, window %d\n", shape.name, context, window);
    const double matrices = double(model.layout.matrices - (c.tied ? 0 : size_t(c.vocab) * size_t(c.hidden)));
    Ceilings ceilings;
    double one = 0;
    for (int n : slots) {
        ceilings.measure();
        double seconds = 1e30;
        for (int repeat = 0, steps = 1; repeat < 6; repeat++)
            seconds = std::min(seconds, step_seconds(model, context, n, steps));
        ceilings.measure();
        const double visible = window ? std::min(window, context) : context;
        const double cache = n * visible * 2 * c.layers * c.kv_heads * c.head_dim * sizeof(float);
        const double bytes = matrices * sizeof(float) + cache;
        const double flops = n * (2 * matrices + 4 * visible * c.layers * c.heads * c.head_dim);
        const double rate = n / seconds;
        if (one == 0) one = rate / n;
        std::printf(
            "  %3d slots: %8.1f tokens/s (%5.1f x one slot), %5.1f GB/s = %3.0f%% of %.1f read, %6.1f "
            "GFLOP/s = "
            "%3.0f%% of %.0f\n",
            n, rate, rate / one, bytes / seconds * 1e-9, 100 * bytes / seconds * 1e-9 / ceilings.read,
            ceilings.read, flops / seconds * 1e-9, 100 * flops / seconds * 1e-9 / ceilings.fma, ceilings.fma);
    }
}

}  // namespace

int main(int argc, char** argv) {
    const char* which = argc > 1 ? argv[1] : "a";
    const int context = argc > 2 ? std::atoi(argv[2]) : 64, window = argc > 3 ? std::atoi(argv[3]) : 0;
    std::vector<int> slots;
    for (int i = 4; i < argc; i++) slots.push_back(std::atoi(argv[i]));
    if (slots.empty()) slots = {1, 8, 32, 64};
    for (const Shape& shape : shapes)
        if (shape.name[0] == which[0]) bench(shape, context, window, slots);
}
