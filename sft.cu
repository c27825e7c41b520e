// sft.cu: stage 1 of the recipe. Takes a full-attention model, converts it to sliding-window attention (every
// weight is kept; only who sees whom changes) and fine-tunes it on answers.
//
//   ./sft                                                       the built-in miniature
//   ./sft --model Qwen2.5-Math-1.5B --window 4096 --data train.jsonl --out runs/sft-4k
//
// loss = - (1 / target tokens of the batch) * sum of log pi(target). Targets are the assistant's tokens, each
// turn's end included. Documents are packed without padding and never see each other. Left out: LoRA, and any
// padding.
#include "run.h"
#include "show.cuh"
#include "trainer.cuh"

struct Options {
    RunOptions run;
    ModelOptions model;
    TrainOptions train;
    std::vector<std::string> data, val_data;
    std::string template_name, loss_on = "answer";
    int64_t batch_size = 32, max_length = 4096, max_tokens = 8192, limit = 0;
    double epochs = 0;
    int recompute = 0;
    bool packing = true;

    void add_to(Cli& cli) {
        model.add_to(cli);
        cli.option("--data", data, "JSONL with messages, or prompt and completion", "Data")->delimiter(',');
        cli.option("--val-data", val_data, "the same, for validation", "Data")->delimiter(',');
        cli.option("--template", template_name, "chat template; default: the model folder's", "Data");
        cli.option("--loss-on", loss_on, "answer (the assistant's tokens) or all", "Data")
            ->check(CLI::IsMember({"answer", "all"}));
        cli.option("--max-length", max_length, "longer samples are cut at their end", "Data")
            ->check(CLI::Range(2, 1 << 24));
        cli.option("--limit", limit, "read only this many lines; 0 = all", "Data")
            ->check(CLI::NonNegativeNumber);
        cli.option("--packing", packing, "several samples in one pass (they never see each other)", "Data");
        cli.option("--batch-size", batch_size, "samples per optimizer step", "Optimizer")
            ->check(CLI::PositiveNumber);
        cli.option("--epochs", epochs, "passes over the data; sets --steps", "Optimizer")
            ->check(CLI::NonNegativeNumber);
        train.add_to(cli);
        cli.option("--max-tokens-per-pass", max_tokens, "tokens of one pass; what memory is spent on",
                   "Memory")
            ->check(CLI::PositiveNumber);
        cli.option("--recompute", recompute,
                   "0 keep all activations, 1 norms and swiglu again, 2 layers again", "Memory")
            ->check(CLI::Range(0, 2));
        run.add_to(cli);
    }
};

// Without --model and --data: convert and fine-tune the small base model of data/ledger at window 16.
void choose_miniature(Cli& cli, Options& o) {
    if (!o.model.model.empty() || !o.data.empty()) return;
    Miniature mini(cli);
    mini.set("--model", o.model.model, std::string("data/ledger/base"));
    mini.set("--data", o.data, {"data/ledger/sft.jsonl"});
    mini.set("--val-data", o.val_data, {"data/ledger/sft_val.jsonl"});
    mini.set("--window", o.model.window, int64_t(16));
    mini.set("--batch-size", o.batch_size, int64_t(64));
    mini.set("--steps", o.train.steps, int64_t(400));
    mini.set("--lr", o.train.lr, 5e-4);
    mini.set("--warmup", o.train.warmup, int64_t(20));
    mini.set("--eval-every", o.run.eval_every, int64_t(100));
    std::printf(
        "no --model and no --data: the built-in miniature (data/ledger) at window %lld\n"
        "           choose others with --model DIR --data FILE.jsonl --window W\n",
        (long long)o.model.window);
}

int main(int argc, char** argv) {
    return run_program("sft", [&] {
        Options o;
        Cli cli("sft", "Convert a model to sliding-window attention and fine-tune it on answers.");
        o.add_to(cli);
        Run run(cli, o.run, "sft", argc, argv);
        if (!run.ok()) return 0;
        choose_miniature(cli, o);
        if (o.model.model.empty() || o.data.empty())
            throw UsageError("--model and --data are both needed",
                             "or give neither for the built-in miniature");

        // data
        const std::string source = model_folder(o.model.model);
        ModelConfig config = read_config(source);
        o.model.apply(config);
        Tokenizer tokenizer = Tokenizer::load(source);
        check_vocabulary(tokenizer, config, source);
        ChatTemplate chat = ChatTemplate::from_folder(source, o.template_name);
        auto load = [&](const std::vector<std::string>& files) {
            return load_conversations(files, tokenizer, chat, size_t(o.max_length), o.loss_on == "all",
                                      o.limit);
        };
        Dataset data = load(o.data), val;
        if (!o.val_data.empty()) val = load(o.val_data);
        if (o.epochs > 0 && !cli.given("--steps")) {
            o.train.steps =
                int64_t(std::ceil(o.epochs * double(data.sequences.size()) / double(o.batch_size)));
            cli.chosen("--steps", "from --epochs");
        }
        o.max_tokens = std::max(o.max_tokens, longest_sequence(data, val));

        // what will happen
        cli.print();
        std::printf("%s\n", device_line(o.run.device).c_str());
        print_model(config, source);
        print_stop_ids(stop_ids(source, tokenizer, chat), chat);
        std::printf("data: %s\n", data.summary().c_str());
        if (!val.sequences.empty()) std::printf("validation: %s\n", val.summary().c_str());
        print_memory_plan(training_memory<Cpu>(config, int(o.max_tokens), o.recompute),
                          "lower --max-tokens-per-pass or raise --recompute");
        if (o.run.dry_run) return dry_run(config, tokenizer, data, o.train);

        // model
        Cpu device;
        Model<Cpu> model(device, config);
        model.load(run.resumed() ? run.checkpoint() : source);
        Trainer<Cpu> trainer(model, o.train, int(o.max_tokens), o.recompute);
        trainer.packing = o.packing;
        if (run.resumed()) trainer.load(run.checkpoint(), run.state());
        run.start();
        Order order(data.sequences.size(), o.run.seed);
        auto save = [&](int64_t step) {
            run.save(step, [&](const std::string& folder, Json& state) {
                write_model_folder(model, source, folder);
                trainer.save(folder, state);
            });
        };

        // training
        Progress progress(o.train.steps);
        int64_t step = run.step();
        bool stopped = false;
        while (step < o.train.steps && !stopped) {
            Timer timer;
            std::vector<Sequence> batch;
            for (int64_t i = 0; i < o.batch_size; i++)
                batch.push_back(data.sequences[order.at(step * o.batch_size + i)]);
            double loss = trainer.supervised(batch, true);
            UpdateResult update = trainer.update(loss);
            step++;

            StepCost cost = step_cost(config, batch);
            Metrics metrics = {{"step", step},
                               {"epoch", double(step * o.batch_size) / double(data.sequences.size())},
                               {"loss", loss},
                               {"grad_norm", update.grad_norm},
                               {"lr", update.lr},
                               {"tokens", cost.tokens},
                               {"target_tokens", cost.targets},
                               {"skipped_updates", trainer.skipped},
                               {"time", run.seconds()},
                               {"perf/tokens_per_s", cost.tokens / timer.seconds()},
                               {"perf/flops", cost.flops}};
            stopped = stop_requested() || run.out_of_time();
            bool last = step == o.train.steps;
            if (!val.sequences.empty() && (last || (o.run.eval_every && step % o.run.eval_every == 0))) {
                double val_loss = trainer.supervised(val.sequences, false);
                metrics.push_back({"val/loss", val_loss});
                progress.note(format("step %lld: val/loss %.4f", (long long)step, val_loss));
            }
            if (last || step % o.run.log_every == 0 || metrics.back().first == "val/loss") run.log(metrics);
            progress.update(step, format("loss %.4f | norm %.3f | lr %.2e | %.0f tok/s", loss,
                                         update.grad_norm, update.lr, cost.tokens / timer.seconds()));
            if (last || stopped || (o.run.save_every && step % o.run.save_every == 0)) save(step);
        }
        if (run.saved() < 0 && !run.resumed()) save(step);  // --steps 0: conversion alone

        std::printf("saved: %s\n", newest_checkpoint(run.folder()).c_str());
        print_engine_notes(config);
        if (stopped && step < o.train.steps)
            std::printf("stopped after %lld of %lld steps; go on with: ./sft --resume %s\n", (long long)step,
                        (long long)o.train.steps, run.folder().c_str());
        else
            std::printf("next: ./eval --model %s    or    ./rl_cispo --model %s\n", run.folder().c_str(),
                        run.folder().c_str());
        return 0;
    });
}
