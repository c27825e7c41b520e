// show.cuh: what a program shows before it starts: the model with its effective windows, the stop tokens,
// samples with the learned tokens in colour; and the dry run.
#pragma once
#include <unistd.h>

#include <string>
#include <vector>

#include "chat.h"
#include "trainer.cuh"

inline void print_model(const ModelConfig& c, const std::string& source) {
    for (const std::string& warning : c.warnings) std::printf("warning: %s\n", warning.c_str());
    std::printf("model: %s, %s: %s parameters, %d layers, hidden %d, heads %d/%d of %d, vocabulary %d\n",
                source.c_str(), c.architecture.c_str(), count_text(parameter_count(c)).c_str(), c.layers,
                c.hidden, c.heads, c.kv_heads, c.head_dim, c.vocab);
    std::printf("%s\n", window_runs(c).c_str());
}

// What other engines will do with a folder of this model.
inline void print_engine_notes(const ModelConfig& c) {
    std::printf("other engines read this folder so:\n");
    for (const EngineNote& note : engine_notes(write_config(c)))
        std::printf("  %-12s  %s\n", note.engine.c_str(), note.text.c_str());
}

inline void print_stop_ids(const StopIds& stop, const ChatTemplate& chat) {
    std::printf("template: %s; stops at: %s\n", chat.name().c_str(), stop.text().c_str());
    if (!stop.warning.empty()) std::printf("warning: %s\n", stop.warning.c_str());
}

// Errors: the tokenizer has ids that the model has no row for.
inline void check_vocabulary(const Tokenizer& tokenizer, const ModelConfig& c, const std::string& folder) {
    if (tokenizer.vocab_size() > c.vocab)
        fail(folder + ": the tokenizer has ids up to " + std::to_string(tokenizer.vocab_size() - 1) +
                 ", config.json has vocab_size " + std::to_string(c.vocab),
             "do tokenizer.json and config.json belong together?");
}

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
