// bench_train.cpp: the whole training step (forward, loss, backward, AdamW) on synthetic tokens, as a share
// of the machine's multiply-add peak measured in the same run.   bench_train [a|b] [window]
#include <cstring>

#include "ceilings.h"
#include "swarr/trainer.cuh"

namespace {

struct Shape {
    const char* name;
    int layers, hidden, ff, heads, kv_heads, vocab, length, sequences, pass;
};
const Shape shapes[] = {
    {"a: 4 layers, d 256, ff 768, heads 4/2, vocabulary 4096", 4, 256, 768, 4, 2, 4096, 256, 16, 4096},
    {"b: Qwen2.5-0.5B", 24, 896, 4864, 14, 2, 151936, 1024, 1, 1024},
};

void bench(const Shape& shape, int window) {
    ModelConfig c;
    c.layers = shape.layers, c.hidden = shape.hidden, c.ff = shape.ff, c.heads = shape.heads;
    c.kv_heads = shape.kv_heads, c.head_dim = 64, c.vocab = shape.vocab, c.tied = true;
    c.max_positions = shape.length;
    c.window.assign(size_t(c.layers), window);
    Cpu device;
    Model<Cpu> model(device, c);
    model.initialize(1);
    TrainOptions options;
    double planned = 0;
    for (auto& [name, bytes] : training_memory<Cpu>(c, shape.pass, 0)) planned += bytes;
    Trainer<Cpu> trainer(model, options, shape.pass, 0);
    Rng rng(1, Stream::test);
    std::vector<Sequence> batch(static_cast<size_t>(shape.sequences));
    for (Sequence& s : batch)
        for (int i = 0; i < shape.length; i++)
            s.token.push_back(int(rng.below(uint32_t(c.vocab)))),
                s.target.push_back(int(rng.below(uint32_t(c.vocab))));
    StepCost cost = step_cost(c, batch);
    Ceilings ceilings;
    ceilings.measure();
    double best = best_seconds(
        [&] {
            double loss = trainer.supervised(batch, true);
            trainer.update(loss);
        },
        shape.hidden > 500 ? 2 : 5);
    ceilings.measure();
    double rate = cost.flops / best / 1e9;
    std::printf("%s, T %d, window %d: %.0f tokens/s, %.1f GFLOP/s = %.0f%% of the %.0f GFLOP/s peak\n",
                shape.name, shape.length, window, cost.tokens / best, rate, 100 * rate / ceilings.fma,
                ceilings.fma);
    double peak = 0;
    for (size_t bytes : device.memory.peak) peak += double(bytes);
    std::printf("   memory: planned %s, allocated %s\n", bytes_text(planned).c_str(),
                bytes_text(peak).c_str());
}

}  // namespace

int main(int argc, char** argv) {
    int window = argc > 2 ? std::atoi(argv[2]) : 0;
    for (const Shape& shape : shapes)
        if (argc > 1 ? shape.name[0] == argv[1][0] : shape.name[0] == 'a') bench(shape, window);
}
