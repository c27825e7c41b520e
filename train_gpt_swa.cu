// train_gpt_swa.cu: pretrains a decoder with full, sliding or mixed attention, or continues to pretrain one.
//
//   ./train_gpt_swa                                             the built-in miniature: makes the base of
//   data/ledger
//   ./train_gpt_swa --config DIR --data corpus.txt --window 512 --full-layers 0,7 --out runs/small
//   ./train_gpt_swa --model Qwen2.5-0.5B --data corpus.jsonl    continues a trained model
//
// Every token is learned from the ones before it in its document. Documents are cut into pieces of
// --max-length and packed without padding; pieces never see each other. Left out: a vocabulary of its own
// (./tokenizer train makes one), and data larger than memory.
#include "generate.cuh"
#include "supervised.cuh"

struct Options {
    RunOptions run;
    ModelOptions model;
    SupervisedOptions supervised;
    std::string config, loss_on = "all";
    std::vector<std::string> data, val_data, prompts;
    int sample_tokens = 64;
    double temperature = 0.8;

    void add_to(Cli& cli) {
        cli.option("--config", config, "folder with config.json and tokenizer.json for a fresh model",
                   "Model");
        model.add_to(cli);
        cli.option("--data", data, ".txt, .jsonl (text, or as for sft) or .bin token shards", "Data")
            ->delimiter(',');
        cli.option("--val-data", val_data, "the same, for validation", "Data")->delimiter(',');
        cli.option("--loss-on", loss_on,
                   "all tokens, or of conversations (prompt and completion) the answer only", "Data")
            ->check(CLI::IsMember({"answer", "all"}));
        cli.option("--sample-prompt", prompts, "text that is continued at every validation", "Data");
        cli.option("--sample-tokens", sample_tokens, "length of the continuation", "Data")
            ->check(CLI::Range(1, 1 << 24));
        cli.option("--temperature", temperature, "of the continuation", "Data")
            ->check(CLI::NonNegativeNumber);
        supervised.add_to(cli);
        run.add_to(cli);
    }
};

// Without a model and without data: the base model of the miniature, trained until it knows both styles.
void choose_miniature(Cli& cli, Options& o) {
    if (!o.config.empty() || !o.model.model.empty() || !o.data.empty()) return;
    Miniature mini(cli);
    mini.set("--config", o.config, std::string("data/ledger"));
    mini.set("--data", o.data, {"data/ledger/pretrain.jsonl"});
    mini.set("--sample-prompt", o.prompts, {"a3b5c2d7e1f4="});
    mini.set("--batch-size", o.supervised.batch_size, int64_t(64));
    mini.set("--loss-on", o.loss_on, std::string("answer"));
    mini.set("--steps", o.supervised.train.steps, int64_t(2000));
    mini.set("--lr", o.supervised.train.lr, 2e-3);
    mini.set("--min-lr", o.supervised.train.min_lr, 2e-4);
    mini.set("--warmup", o.supervised.train.warmup, int64_t(50));
    mini.set("--eval-every", o.run.eval_every, int64_t(400));
    std::printf(
        "no --config, --model or --data: the built-in miniature, a base model for data/ledger\n"
        "choose others with --config DIR --data FILE\n\n");
}

int main(int argc, char** argv) {
    return run_program("train_gpt_swa", [&] {
        Ranks ranks;
        Options o;
        Cli cli("train_gpt_swa", "Pretrain a decoder with full, sliding or mixed attention.");
        o.add_to(cli);
        Run run(cli, o.run, ranks, "train_gpt_swa", argc, argv);
        if (!run.ok()) return 0;
        choose_miniature(cli, o);
        if (o.config.empty() == o.model.model.empty())
            throw UsageError("one of --config (a fresh model) and --model (continue one) is needed",
                             "or give neither and no --data, for the built-in miniature");
        if (o.data.empty()) throw UsageError("--data is needed", "a .txt, .jsonl or .bin file");

        const bool fresh = !o.config.empty();
        const ModelSource source(fresh ? o.config : o.model.model, o.model);
        const int end = source.config.eos.empty() ? -1 : source.config.eos[0];
        auto load = [&](const std::vector<std::string>& files) {
            return load_documents(files, source.tokenizer, source.chat, size_t(o.supervised.max_length),
                                  source.config.vocab, end, o.loss_on == "all");
        };
        Dataset data = load(o.data), val;
        if (!o.val_data.empty()) val = load(o.val_data);
        o.supervised.settle(cli, data, val);
        size_t longest_prompt = 0;
        for (const std::string& prompt : o.prompts) {  // not after hours, at the first validation
            const size_t tokens = source.tokenizer.encode(prompt).size();
            if (tokens == 0)
                throw UsageError("--sample-prompt " + quoted(prompt) + " has no token",
                                 "there must be one to start from");
            longest_prompt = std::max(longest_prompt, tokens);
        }

        cli.print();
        source.print();
        print_data(data, val);
        return on_device(o.run.device, ranks, [&](auto& device) {
            using Device = std::decay_t<decltype(device)>;
            o.supervised.check_memory(device, source.config, longest_sequence(data, val), ranks.size());
            GenerateOptions generate;
            generate.sampling.temperature = o.temperature;
            generate.seed = o.run.seed;
            generate.slots = std::max(1, int(o.prompts.size()));
            generate.limit = int(
                std::min(int64_t(source.config.max_positions), int64_t(longest_prompt) + o.sample_tokens));
            generate.stop = source.stop.ids();
            if (!o.prompts.empty())  // what cannot be decoded is refused here
                Generator<Device>::plan(source.config, generate, int(longest_prompt));
            if (o.run.dry_run) return dry_run(source.config, source.tokenizer, data, o.supervised.train);

            Model<Device> model(device, source.config);
            if (fresh) model.initialize(o.run.seed);
            Trainer<Device> trainer(model, o.supervised.train, int(o.supervised.max_tokens),
                                    o.supervised.recompute, ranks);
            if (run.resumed() || !fresh)
                trainer.load_weights(run.resumed() ? run.checkpoint() : source.folder);

            bool done = supervised_loop(
                run, o.run, o.supervised, trainer, data, val, source.folder, [&](int64_t step, Metrics&) {
                    if (!ranks.first() || o.prompts.empty()) return;
                    std::vector<std::string> text = o.prompts;
                    Generator<Device> generator(model, generate);
                    for (size_t i = 0; i < text.size(); i++) {
                        Prompt p;
                        p.ids = source.tokenizer.encode(text[i]);
                        p.key = uint32_t(i), p.tag = int64_t(i);
                        p.max_new_tokens = o.sample_tokens;
                        generator.add(p);
                    }
                    while (generator.step(
                        [&](Rollout&& r) { text[size_t(r.tag)] += source.tokenizer.decode(r.ids); })) {
                    }
                    for (const std::string& t : text)
                        std::fprintf(stderr, "step %lld: %s\n", (long long)step, t.c_str());
                });
            if (done)
                std::printf("next: ./eval --model %s    or    ./sft --model %s --window W --data FILE\n",
                            run.folder().c_str(), run.folder().c_str());
            else
                std::printf("stopped early; go on with: ./train_gpt_swa --resume %s\n", run.folder().c_str());
            return 0;
        });
    });
}
