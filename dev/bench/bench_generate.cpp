// bench_generate.cpp: decoding with the rollout engine, sampling included, on random weights: tokens per
// second against the number of slots, as shares of the ceilings measured in the same run: reading every
// weight and cached key once a step, and the multiply-adds of the step.
//   bench_generate [a|b] [tokens of context] [window] [slots ...]
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
};

void bench(const Shape& shape, int context, int window, const std::vector<int>& slots) {
    ModelConfig c;
    c.layers = shape.layers, c.hidden = shape.hidden, c.ff = shape.ff, c.heads = shape.heads;
    c.kv_heads = shape.kv_heads, c.head_dim = 64, c.vocab = shape.vocab, c.tied = true;
    c.max_positions = context + 4096;
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
        GenerateOptions o;
        o.slots = n;
        Generator<Cpu> generator(model, o);
        Rng rng(1, Stream::test);
        for (int i = 0; i < n; i++) {
            Prompt p;
            for (int t = 0; t < context; t++) p.ids.push_back(int(rng.below(uint32_t(c.vocab))));
            p.key = uint32_t(i), p.max_new_tokens = 4096;
            generator.add(std::move(p));
        }
        auto drop = [](Rollout) {};
        generator.step(drop);  // prefill, packing
        generator.step(drop);
        // best_seconds repeats a step; texts stay far from their end.
        double seconds = best_seconds([&] { generator.step(drop); }, shape.hidden > 500 ? 4 : 8);
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
