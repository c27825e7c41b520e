// show.cuh: what a program shows before it starts: the model with its effective windows, the stop tokens,
// samples with the learned tokens in colour; and the dry run.
#pragma once
#include <unistd.h>

#include <string>
#include <vector>

#include "trainer.cuh"

inline int64_t longest_sequence(const Dataset& a, const Dataset& b = {}) {
    size_t longest = 1;
    for (const Dataset* data : {&a, &b})
        for (const Sequence& s : data->sequences) longest = std::max(longest, s.token.size());
    return int64_t(longest);
}

// The tokens as text; those that are learned green on a terminal, between guillemets elsewhere.
inline void print_sample(const Sequence& s, const Tokenizer& tokenizer) {
    const bool colour = isatty(STDOUT_FILENO) || std::getenv("CLICOLOR_FORCE");
    const char *on = colour ? "\x1b[32m" : "«", *off = colour ? "\x1b[0m" : "»";
    std::string out;
    bool learned = false;
    std::vector<int> run;
    auto flush = [&](bool next) {
        out += tokenizer.decode(run);
        run.clear();
        if (next != learned) out += next ? on : off;
        learned = next;
    };
    for (size_t i = 0; i < s.token.size(); i++) {
        bool next = i > 0 && s.target[i - 1] >= 0;
        if (next != learned) flush(next);
        run.push_back(s.token[i]);
    }
    flush(false);
    std::printf("%s\n", out.c_str());
}

// Shows three samples and trains a toy copy (one narrow layer, the same vocabulary) on them for one step.
inline int dry_run(const ModelConfig& config, const Tokenizer& tokenizer, const Dataset& data,
                   const TrainOptions& options) {
    std::vector<Sequence> batch;
    for (size_t i = 0; i < std::min<size_t>(3, data.sequences.size()); i++) {
        std::printf("--- sample %zu: %zu tokens, %d learned\n", i + 1, data.sequences[i].token.size(),
                    data.sequences[i].targets());
        print_sample(data.sequences[i], tokenizer);
        batch.push_back(data.sequences[i]);
    }
    ModelConfig toy = config;
    toy.layers = 1, toy.hidden = 32, toy.heads = toy.kv_heads = 2, toy.head_dim = 16, toy.ff = 64;
    toy.window.resize(1);
    Cpu device;
    Model<Cpu> model(device, toy);
    model.initialize(1);
    int longest = 1;
    for (const Sequence& s : batch) longest = std::max(longest, int(s.token.size()));
    Trainer<Cpu> trainer(model, options, longest, 0);
    double loss = trainer.supervised(batch, true);
    UpdateResult update = trainer.update(loss);
    std::printf("--- one step on a toy copy: loss %.4f, norm %.4f\n", loss, update.grad_norm);
    if (update.skipped)
        fail("the toy copy's loss or gradient is not finite", "is --eps 0, or the data empty?");
    std::printf("dry run: all is well; nothing was written\n");
    return 0;
}
