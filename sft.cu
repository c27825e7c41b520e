// sft.cu: stage 1 of the recipe. Takes a full-attention model, converts it to sliding-window attention (every
// weight is kept; only who sees whom changes) and fine-tunes it on answers.
//
//   ./sft                                                       the built-in miniature
//   ./sft --model Qwen2.5-Math-1.5B --window 4096 --data train.jsonl --out runs/sft-4k
//
// loss = - (1 / target tokens of the batch) * sum of log pi(target). Targets are the assistant's tokens, each
// turn's end included. Documents are packed without padding and never see each other. Left out: adapters
// (LoRA), and any padding.
#include "supervised.cuh"

struct Options {
    RunOptions run;
    ModelOptions model;
    SupervisedOptions supervised;
    std::vector<std::string> data, val_data;
    std::string template_name, loss_on = "answer";
    int64_t limit = 0;

    void add_to(Cli& cli) {
        model.add_to(cli);
        cli.option("--data", data, "JSONL with messages, or prompt and completion", "Data")->delimiter(',');
        cli.option("--val-data", val_data, "the same, for validation", "Data")->delimiter(',');
        cli.option("--template", template_name, "chat template; default: the model folder's", "Data");
        cli.option("--loss-on", loss_on, "answer (the assistant's tokens) or all", "Data")
            ->check(CLI::IsMember({"answer", "all"}));
        cli.option("--limit", limit, "read only this many lines; 0 = all", "Data")
            ->check(CLI::NonNegativeNumber);
        supervised.add_to(cli);
        run.add_to(cli);
    }
};

// Without --model and --data: convert and fine-tune the small base model of data/ledger at window 16.
void choose_miniature(Cli& cli, Options& o) {
    if (!o.model.model.empty() || !o.data.empty()) return;
    Miniature mini(cli);
    mini.set("--model", o.model.model, std::string("data/ledger/base"));
    mini.set("--data", o.data, {"data/ledger/sft.jsonl"});
    mini.set("--window", o.model.window, int64_t(16));
    mini.set("--batch-size", o.supervised.batch_size, int64_t(64));
    mini.set("--steps", o.supervised.train.steps, int64_t(400));
    mini.set("--lr", o.supervised.train.lr, 5e-4);
    mini.set("--min-lr", o.supervised.train.min_lr, 5e-5);
    mini.set("--warmup", o.supervised.train.warmup, int64_t(20));
    std::printf(
        "no --model and no --data: the built-in miniature (data/ledger) at window %lld\n"
        "choose others with --model DIR --data FILE.jsonl --window W\n\n",
        (long long)o.model.window);
}

int main(int argc, char** argv) {
    return run_program("sft", [&] {
        Ranks ranks;
        Options o;
        Cli cli("sft", "Convert a model to sliding-window attention and fine-tune it on answers.");
        o.add_to(cli);
        Run run(cli, o.run, ranks, "sft", argc, argv);
        if (!run.ok()) return 0;
        choose_miniature(cli, o);
        if (o.model.model.empty() || o.data.empty())
            throw UsageError("--model and --data are both needed",
                             "or give neither, for the built-in miniature");

        const ModelSource source(o.model.model, o.model, o.template_name);
        auto load = [&](const std::vector<std::string>& files) {
            return load_conversations(files, source.tokenizer, source.chat, size_t(o.supervised.max_length),
                                      o.loss_on == "all", o.limit);
        };
        Dataset data = load(o.data), val;
        if (!o.val_data.empty()) val = load(o.val_data);
        o.supervised.settle(cli, data, val);

        cli.print();
        source.print();
        print_data(data, val);
        return on_device(o.run.device, ranks, [&](auto& device) {
            using Device = std::decay_t<decltype(device)>;
            o.supervised.check_memory(device, source.config, longest_sequence(data, val), ranks.size());
            if (o.run.dry_run) return dry_run(source.config, source.tokenizer, data, o.supervised.train);

            Model<Device> model(device, source.config);
            Trainer<Device> trainer(model, o.supervised.train, int(o.supervised.max_tokens),
                                    o.supervised.recompute, ranks);
            trainer.load_weights(run.resumed() ? run.checkpoint() : source.folder);
            bool done = supervised_loop(run, o.run, o.supervised, trainer, data, val, source.folder,
                                        [](int64_t, Metrics&) {});

            source.print_engine_notes();
            if (done)
                std::printf("next: ./eval --model %s    then: ./rl_cispo --model %s\n", run.folder().c_str(),
                            run.folder().c_str());
            else
                std::printf("stopped early; go on with: ./sft --resume %s\n", run.folder().c_str());
            return 0;
        });
    });
}
