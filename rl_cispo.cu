// rl_cispo.cu: stage 2 of the recipe. The model writes answers, the verifier marks them, and CISPO moves the
// model towards those that were right: on-policy, so that a sliding-window model finds ways to answer that it
// can follow.
//
//   ./rl_cispo                                  the built-in miniature: adapts the newest run of ./sft
//   ./rl_cispo --model runs/sft-4k --data dapo.jsonl --group-size 16 --prompts-per-step 64
//
// A step: --group-size answers to --prompts-per-step problems; rewards 0 or 1; advantages within each group;
// one or more updates on minibatches (cispo.h states the loss). The old log-probabilities are those that the
// rollout recorded: on the CPU they equal the trainer's bit for bit, so every weight of the first update is
// exactly 1. Left out: a value function, process rewards, replay of old answers.
#include "reinforce.cuh"

// Without --model and --data: adapt the newest fine-tuned run on the problems of data/ledger.
void choose_miniature(Cli& cli, ReinforceOptions& o) {
    if (!o.model.model.empty() || !o.data.empty()) return;
    std::string sft = newest_run("sft");
    if (sft.empty())
        fail("no run of ./sft below runs/ to start from", "run ./sft first, or give --model and --data");
    Miniature mini(cli);
    mini.set("--model", o.model.model, sft);
    mini.set("--data", o.data, {"data/ledger/rl.jsonl"});
    mini.set("--val-data", o.val_data, {"data/ledger/val.jsonl"});
    mini.set("--val-samples", o.val_samples, int64_t(1));
    mini.set("--answer-format", o.answer_format, std::string("ledger"));
    mini.set("--max-new-tokens", o.rollout.max_new_tokens, 80);
    mini.set("--slots", o.rollout.slots, 128);
    mini.set("--minibatch", o.minibatch, int64_t(64));
    mini.set("--steps", o.train.steps, int64_t(100));
    mini.set("--warmup", o.train.warmup, int64_t(5));
    mini.set("--lr", o.train.lr, 3e-4);
    mini.set("--cispo-weight-max", o.cispo.weight_max, 2.0);
    mini.set("--eval-every", o.run.eval_every, int64_t(20));
    std::printf(
        "no --model and no --data: the built-in miniature, %s on data/ledger\n"
        "choose others with --model DIR --data FILE.jsonl\n\n",
        sft.c_str());
}

void write_rollouts(const std::string& run, int64_t step, const StepRollouts& rollouts) {
    std::string lines;
    for (const Json& row : rollouts.rows)
        lines += row.dump(-1, ' ', false, Json::error_handler_t::replace) + "\n";
    write_whole(run + "/rollouts/" + step_name(step) + ".jsonl", lines);
}

int main(int argc, char** argv) {
    return run_program("rl_cispo", [&] {
        Ranks ranks;
        ReinforceOptions o;
        Cli cli("rl_cispo", "Adapt a model by reinforcement learning with verifiable rewards (CISPO).");
        o.add_to(cli);
        if (std::string name = argument(argc, argv, "--explain"); !name.empty()) {
            std::printf("%s: %s\n", name.c_str(), explain(name).c_str());
            return 0;
        }
        Run run(cli, o.run, ranks, "rl_cispo", argc, argv);
        if (!run.ok()) return 0;
        choose_miniature(cli, o);
        o.settle();

        const ModelSource source(o.model.model, o.model, o.template_name);
        ProblemKeys keys;
        keys.input = o.input_key, keys.label = o.label_key;
        keys.format = answer_format(o.answer_format, "--answer-format");
        std::vector<EncodedProblem> problems = encode_problems(o.data, source, keys, o.system, o.limit);
        std::vector<std::pair<std::string, std::vector<EncodedProblem>>> validation;
        for (const std::string& file : o.val_data)
            validation.push_back({set_name(file), encode_problems({file}, source, keys, o.system, 0)});
        size_t longest = 0;
        for (const EncodedProblem& p : problems) longest = std::max(longest, p.ids.size());
        for (const auto& [name, set] : validation)  // they are answered in the same memory
            for (const EncodedProblem& p : set) longest = std::max(longest, p.ids.size());
        const int longest_sequence =
            int(std::min<int64_t>(source.config.max_positions, int64_t(longest) + o.rollout.max_new_tokens));
        o.max_tokens = std::max(o.max_tokens, int64_t(longest_sequence));

        cli.print();
        source.print();
        const int64_t answers = o.rollout.prompts_per_step * o.rollout.group_size;
        const int64_t updates = o.minibatch > 0 ? (answers + o.minibatch - 1) / o.minibatch : 1;
        std::printf("data: %s problems, longest prompt %zu tokens; a step: %lld answers, %lld update%s\n",
                    count_text(int64_t(problems.size())).c_str(), longest, (long long)answers,
                    (long long)updates, updates == 1 ? "" : "s");
        std::printf("weight pi / pi_old kept in [%g, %g]; loss / %s; KL %g, entropy %g\n", o.cispo.weight_min,
                    o.cispo.weight_max, o.loss_norm.c_str(), o.cispo.kl_coef, o.cispo.entropy_coef);
        return on_device(o.run.device, ranks, [&](auto& device) {
            using Device = std::decay_t<decltype(device)>;
            check_memory(
                device.free_memory(),
                {{"--max-tokens-per-pass", o.max_tokens, longest_sequence},
                 {"--slots", o.rollout.slots, 1},
                 {"--recompute", o.recompute, 2}},
                [&](const std::vector<int64_t>& v) {
                    MemoryPlan plan =
                        training_memory<Device>(source.config, int(v[0]), int(v[2]), ranks.size());
                    GenerateOptions g;
                    g.slots = int(v[1]);
                    g.limit = longest_sequence;
                    const auto rollouts = Generator<Device>::plan(source.config, g, int(longest));
                    plan.push_back({"KV cache", double(rollouts.cache)});
                    plan.push_back({"logits", double(rollouts.logits)});
                    if (o.cispo.kl_coef > 0)
                        plan.push_back({"reference",
                                        double(rollouts.weights + Model<Device>::activation_bytes(
                                                                      source.config, int(v[0]), 0, false))});
                    return plan;
                });
            if (o.run.dry_run) {
                for (size_t i = 0; i < std::min<size_t>(3, problems.size()); i++)
                    std::printf("--- problem %s, gold %s\n%s\n", problems[i].problem.id.c_str(),
                                problems[i].problem.gold[0].c_str(),
                                source.tokenizer.decode(problems[i].ids).c_str());
                std::printf("dry run: all is well; nothing was written\n");
                return 0;
            }

            Model<Device> model(device, source.config);
            Trainer<Device> trainer(model, o.train, int(o.max_tokens), o.recompute, ranks);
            trainer.load_weights(run.resumed() ? run.checkpoint() : source.folder);
            if (run.resumed()) trainer.load(run.checkpoint(), run.state());
            std::unique_ptr<Model<Device>> reference;
            std::string reference_folder;
            if (o.cispo.kl_coef > 0) {
                reference = std::make_unique<Model<Device>>(device, source.config);
                // Of a resumed run, the one it started from: --model may be a run that went on since.
                reference_folder = run.resumed() ? run.state_text("reference") : source.folder;
                reference->load(reference_folder);
            }
            run.start();
            if (ranks.first()) make_folders(run.folder() + "/rollouts");
            Order order(problems.size(), o.run.seed);
            int64_t step = run.step(), cursor = run.resumed() ? run.state_integer("cursor") : 0;
            auto save = [&] {
                run.save(step, [&](const std::string& folder, Json& state) {
                    trainer.save(source.folder, folder, state);
                    state["cursor"] = cursor;
                    if (reference) state["reference"] = reference_folder;
                });
            };
            Progress progress(o.train.steps);
            auto validate = [&](Metrics& metrics) {
                for (auto& [set, of_set] : validation) {
                    const Json summary =
                        evaluate_now(model, o.rollout, source, set, of_set, int(o.val_samples), ranks);
                    add_validation(metrics, summary);
                    progress.note(format("val/%s/avg@%lld ", set.c_str(), (long long)o.val_samples) +
                                  percent(summary.at(format("avg@%lld", (long long)o.val_samples))));
                }
            };
            if (!run.resumed() && !validation.empty()) {
                Metrics metrics = {{"step", 0}, {"time", run.seconds()}};
                validate(metrics);
                run.log(metrics);
            }

            for (bool stopped = run.resumed() && run.must_stop(); step < o.train.steps && !stopped;) {
                Timer timer;
                StepRollouts rollouts =
                    rollout_step(model, o.rollout, source, problems, order, cursor, ranks);
                StepSeconds seconds;
                seconds.rollout = timer.seconds() - rollouts.statistics.seconds_reward;
                Timer train_timer;
                const TrainedStep trained = train_step(trainer, o, rollouts.trajectories, reference.get());
                seconds.train = train_timer.seconds();
                step++;
                if (ranks.first()) write_rollouts(run.folder(), step, rollouts);
                seconds.step = timer.seconds();

                Metrics metrics = step_metrics(step, rollouts.statistics, trained, trainer.skipped, cursor,
                                               seconds, o.cispo.kl_coef > 0);
                stopped = run.must_stop();
                const bool end = stopped || step == o.train.steps;
                auto due = [&](int64_t every) { return every > 0 && step % every == 0; };
                if (end || due(o.run.eval_every)) validate(metrics);
                metrics.push_back({"time", run.seconds()});
                if (end || due(o.run.eval_every) || due(o.run.log_every)) run.log(metrics);
                progress.update(step, progress_text(metrics));
                if (end || (due(o.run.save_every) && !trainer.in_trouble())) save();
            }
            std::printf("saved: %s\n", newest_checkpoint(run.folder()).c_str());
            if (step < o.train.steps)
                std::printf("stopped early; go on with: ./rl_cispo --resume %s\n", run.folder().c_str());
            else
                std::printf("next: ./eval --model %s    or    ./locality\n", run.folder().c_str());
            return 0;
        });
    });
}
