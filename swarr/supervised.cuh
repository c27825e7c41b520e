// supervised.cuh: the training loop that pretraining and fine-tuning share: batches in a fixed random order,
// the update, validation, the log, checkpoints. Which model and which data is the programs' business.
#pragma once
#include "run.h"
#include "show.cuh"
#include "source.h"
#include "trainer.cuh"

struct SupervisedOptions {
    TrainOptions train;
    int64_t batch_size = 32, max_length = 4096, max_tokens = 8192;
    double epochs = 0;
    int recompute = 0;
    bool packing = true;

    void add_to(Cli& cli) {
        cli.option("--max-length", max_length, "tokens of a sequence at most", "Data")
            ->check(CLI::Range(2, 1 << 24));
        cli.option("--packing", packing, "several sequences in one pass (they never see each other)", "Data");
        cli.option("--batch-size", batch_size, "sequences per optimizer step", "Optimizer")
            ->check(CLI::Range(1, 1 << 20));
        cli.option("--epochs", epochs, "passes over the data; sets --steps", "Optimizer")
            ->check(CLI::Range(0.0, 1e6));
        train.add_to(cli);
        cli.option("--max-tokens-per-pass", max_tokens, "tokens of one pass; what memory is spent on",
                   "Memory")
            ->check(CLI::Range(1, 1 << 24));
        cli.option("--recompute", recompute,
                   "0 keep all activations, 1 norms and swiglu again, 2 layers again", "Memory")
            ->check(CLI::Range(0, 2));
    }

    template <class Device>
    void check_memory(const Device& device, const ModelConfig& config, int64_t longest, int ranks) const {
        ::check_memory(device.free_memory(),
                       {{"--max-tokens-per-pass", max_tokens, longest}, {"--recompute", recompute, 2}},
                       [&](const std::vector<int64_t>& v) {
                           return training_memory<Device>(config, int(v[0]), int(v[1]), ranks);
                       });
    }

    // Options that follow from the data.
    void settle(Cli& cli, const Dataset& data, const Dataset& val) {
        if (epochs > 0 && !cli.given("--steps") && cli.source("--steps") != "file") {
            train.steps = int64_t(std::ceil(epochs * double(data.sequences.size()) / double(batch_size)));
            cli.chosen("--steps", "from --epochs");
        }
        int64_t longest = longest_sequence(data, val);
        if (longest > max_tokens) {
            max_tokens = longest;
            cli.chosen("--max-tokens-per-pass", "longest sequence");
        }
    }
};

inline void print_data(const Dataset& data, const Dataset& val) {
    std::printf("data: %s\n", data.summary().c_str());
    if (!val.sequences.empty()) std::printf("validation: %s\n", val.summary().c_str());
}

// Trains from run.step() to options.train.steps; saves model folders with the tokenizer's files of `source`.
// `evaluate(step, metrics)` is called after every validation. Returns false if it was stopped before the end.
template <class Device, class Evaluate>
bool supervised_loop(Run& run, const RunOptions& run_options, const SupervisedOptions& options,
                     Trainer<Device>& trainer, const Dataset& data, const Dataset& val,
                     const std::string& source, Evaluate evaluate) {
    trainer.packing = options.packing;
    if (run.resumed()) trainer.load(run.checkpoint(), run.state());
    run.start();
    auto save = [&](int64_t step) {
        run.save(step, [&](const std::string& folder, Json& state) { trainer.save(source, folder, state); });
    };
    Order order(data.sequences.size(), run_options.seed);
    Progress progress(options.train.steps);
    int64_t step = run.step();
    if (step >= options.train.steps && !run.resumed()) save(step);  // --steps 0: conversion alone
    for (bool stopped = run.resumed() && run.must_stop(); step < options.train.steps && !stopped;) {
        Timer timer;
        std::vector<Sequence> batch;
        for (int64_t i = 0; i < options.batch_size; i++)
            batch.push_back(data.sequences[order.at(step * options.batch_size + i)]);
        double loss = trainer.supervised(batch, true);
        UpdateResult update = trainer.update(loss);
        step++;

        StepCost cost = step_cost(trainer.model.config, batch);
        double seconds = timer.seconds();
        Metrics metrics = {{"step", step},
                           {"epoch", double(step * options.batch_size) / double(data.sequences.size())},
                           {"loss", loss},
                           {"grad_norm", update.grad_norm},
                           {"lr", update.lr},
                           {"tokens", cost.tokens},
                           {"target_tokens", cost.targets},
                           {"skipped_updates", trainer.skipped},
                           {"time", run.seconds()},
                           {"perf/tokens_per_s", cost.tokens / seconds},
                           {"perf/flops", cost.flops}};
        progress.update(step, format("loss %.4f | norm %.3f | lr %.2e | %.0f tok/s", loss, update.grad_norm,
                                     update.lr, cost.tokens / seconds));
        stopped = run.must_stop();
        const bool last = step == options.train.steps;
        const bool validate = last || (run_options.eval_every && step % run_options.eval_every == 0);
        if (validate && !val.sequences.empty()) {
            metrics.push_back({"val/loss", trainer.supervised(val.sequences, false)});
            progress.note(format("step %lld: val/loss %.4f", (long long)step, metrics.back().second));
        }
        if (validate) evaluate(step, metrics);
        if (validate || stopped || step % run_options.log_every == 0) run.log(metrics);
        const bool due = run_options.save_every && step % run_options.save_every == 0;
        if (last || stopped || (due && !trainer.in_trouble())) save(step);
    }
    std::printf("saved: %s\n", newest_checkpoint(run.folder()).c_str());
    return step >= options.train.steps;
}
