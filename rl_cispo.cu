// rl_cispo.cu: stage 2 of the recipe. The model writes answers, the verifier marks them, and CISPO moves the
// model towards those that were right: on-policy, so that a sliding-window model finds ways to answer that it
// can follow.
//
//   ./rl_cispo                                                  the built-in miniature: adapts the newest run
//   of ./sft
//   ./rl_cispo --model runs/sft-4k --data dapo.jsonl --group-size 16 --prompts-per-step 64
//
// A step: --group-size answers to --prompts-per-step problems; rewards 0 or 1; advantages within each group;
// one or more updates on minibatches (cispo.h states the loss). The old log-probabilities are those that the
// rollout recorded: on the CPU they equal the trainer's bit for bit, so every weight of the first update is
// exactly 1. Left out: a value function, process rewards, replay of old answers.
#include "evaluate.h"
#include "rollout.cuh"
#include "show.cuh"

struct Options {
    RunOptions run;
    ModelOptions model;
    TrainOptions train;
    CispoOptions cispo;
    RolloutOptions rollout;
    std::vector<std::string> data, val_data;
    std::string template_name, system, answer_format = "boxed", truncated = "zero", loss_norm = "token";
    std::string old_logprobs = "rollout", input_key, label_key, explain;
    int64_t minibatch = 0, limit = 0, val_samples = 4, max_tokens = 8192;
    int recompute = 0;
    bool force_truncated_sampling = false, random_reward = false;

    void add_to(Cli& cli) {
        model.add_to(cli);
        cli.option("--data", data, "JSONL with problem and answer", "Data")->delimiter(',');
        cli.option("--val-data", val_data, "the same, evaluated every --eval-every steps", "Data")
            ->delimiter(',');
        cli.option("--val-samples", val_samples, "answers per problem of an evaluation", "Data")
            ->check(CLI::Range(1, 100000));
        cli.option("--template", template_name, "chat template; default: the model folder's", "Data");
        cli.option("--system", system, "system message in place of the template's own", "Data");
        cli.option("--input-key", input_key, "key of the question; default: the usual names", "Data");
        cli.option("--label-key", label_key, "key of the answer; default: the usual names", "Data");
        cli.option("--answer-format", answer_format, "boxed or ledger, where a row does not say", "Data")
            ->check(CLI::IsMember({"boxed", "ledger"}));
        cli.option("--limit", limit, "read only this many problems; 0 = all", "Data")
            ->check(CLI::NonNegativeNumber);

        cli.option("--prompts-per-step", rollout.prompts_per_step, "problems of a step", "Rollout")
            ->check(CLI::Range(1, 1 << 20));
        cli.option("--group-size,--n", rollout.group_size, "answers per problem", "Rollout")
            ->check(CLI::Range(1, 1 << 20));
        cli.option("--max-new-tokens", rollout.max_new_tokens, "longest answer", "Rollout")
            ->check(CLI::Range(1, 1 << 24));
        cli.option("--temperature", rollout.sampling.temperature,
                   "of rollouts, and of the distribution that is trained", "Rollout")
            ->check(CLI::PositiveNumber);
        cli.option("--top-p", rollout.sampling.top_p,
                   "keep the likeliest tokens of this share; refused unless forced", "Rollout");
        cli.option("--top-k", rollout.sampling.top_k, "keep this many tokens; refused unless forced",
                   "Rollout");
        cli.option("--force-truncated-sampling", force_truncated_sampling,
                   "allow --top-p and --top-k: weights are then measured against what was drawn from",
                   "Rollout");
        cli.option("--slots", rollout.slots, "answers written at the same time", "Rollout")
            ->check(CLI::Range(1, 65536));
        cli.option("--refill", rollout.refill,
                   "rounds in which groups without spread are replaced by new problems", "Rollout")
            ->check(CLI::Range(0, 1000));
        cli.option("--truncated", truncated, "an answer cut by the limit: zero, mask or soft (see cispo.h)",
                   "Rollout")
            ->check(CLI::IsMember({"zero", "mask", "soft"}));
        cli.option("--overlong-buffer", rollout.overlong_buffer,
                   "soft: tokens before the limit that cost reward", "Rollout")
            ->check(CLI::Range(0, 1 << 24));
        cli.option("--round-decimals", rollout.round_decimals,
                   "a decimal gold compares at its own digits; else exactly", "Rollout");
        cli.option("--random-reward", random_reward, "control: rewards from a coin, not from the verifier",
                   "Rollout");

        cli.option("--cispo-weight-min", cispo.weight_min, "lower bound on pi / pi_old, an absolute number",
                   "CISPO")
            ->check(CLI::NonNegativeNumber);
        cli.option("--cispo-weight-max", cispo.weight_max, "upper bound on pi / pi_old, an absolute number",
                   "CISPO")
            ->check(CLI::PositiveNumber);
        cli.option("--old-logprobs", old_logprobs, "rollout (as recorded) or recompute (by the trainer)",
                   "CISPO")
            ->check(CLI::IsMember({"rollout", "recompute"}));
        cli.option("--rollout-weight-max", cispo.rollout_weight_max,
                   "with recompute: cap on pi_old / pi_rollout as a further factor; 0 = off", "CISPO")
            ->check(CLI::NonNegativeNumber);
        cli.option("--advantage-std", rollout.divide_by_std, "divide advantages by the group's deviation",
                   "CISPO");
        cli.option("--loss-norm", loss_norm, "token, sequence or constant (see cispo.h)", "CISPO")
            ->check(CLI::IsMember({"token", "sequence", "constant"}));
        cli.option("--kl-coef", cispo.kl_coef, "of a KL term against the starting model; 0 = none", "CISPO")
            ->check(CLI::NonNegativeNumber);
        cli.option("--entropy-coef", cispo.entropy_coef, "of an entropy bonus; 0 = none", "CISPO")
            ->check(CLI::NonNegativeNumber);
        cli.option("--minibatch", minibatch, "answers per update; 0 = all answers of a step", "CISPO")
            ->check(CLI::Range(0, 1 << 24));

        train.lr = 1e-6, train.schedule = "constant", train.weight_decay = 0;
        train.add_to(cli);
        cli.option("--max-tokens-per-pass", max_tokens, "tokens of one training or prefill pass", "Memory")
            ->check(CLI::Range(1, 1 << 26));
        cli.option("--recompute", recompute,
                   "0 keep all activations, 1 norms and swiglu again, 2 layers again", "Memory")
            ->check(CLI::Range(0, 2));
        run.add_to(cli);
        cli.option("--explain", explain, "say what a metric of log.jsonl means, and exit", "Run");
    }

    // Checks what one option says about another, and fills in what follows.
    void settle() {
        if (model.model.empty() || data.empty())
            throw UsageError("--model and --data are both needed",
                             "or give neither, for the built-in miniature");
        check_sampling(rollout.sampling);
        if (rollout.prompts_per_step * rollout.group_size > 1 << 24)
            throw UsageError(format("--prompts-per-step %lld times --group-size %lld are %lld answers a step",
                                    (long long)rollout.prompts_per_step, (long long)rollout.group_size,
                                    (long long)(rollout.prompts_per_step * rollout.group_size)),
                             "16777216 are the most; usual are hundreds or thousands");
        if ((rollout.sampling.top_p < 1 || rollout.sampling.top_k > 0) && !force_truncated_sampling)
            throw UsageError("--top-p and --top-k cut the distribution that is trained",
                             "leave them at 1 and 0, or add --force-truncated-sampling");
        if (cispo.weight_min > cispo.weight_max)
            throw UsageError(format("--cispo-weight-min %g is above --cispo-weight-max %g", cispo.weight_min,
                                    cispo.weight_max),
                             "the defaults are 0 and 5");
        if (cispo.rollout_weight_max > 0 && old_logprobs != "recompute")
            throw UsageError("--rollout-weight-max needs --old-logprobs recompute",
                             "the weights are measured against the rollout itself otherwise");
        rollout.truncated = truncated_from(truncated);
        rollout.seed = run.seed;
        rollout.max_tokens_per_pass = int(max_tokens);
        cispo.norm = loss_norm_from(loss_norm);
        cispo.temperature = rollout.sampling.temperature;
        cispo.limit = rollout.max_new_tokens;
    }
};

// Without --model and --data: adapt the newest fine-tuned run on the problems of data/ledger.
void choose_miniature(Cli& cli, Options& o) {
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

// Control experiment: a coin, keyed like the samples, decides each answer's reward.
void toss_rewards(StepRollouts& rollouts, const Options& o, int64_t step) {
    const size_t G = size_t(o.rollout.group_size);
    for (size_t first = 0; first + G <= rollouts.trajectories.size(); first += G) {
        std::vector<double> rewards;
        for (size_t g = 0; g < G; g++)
            rewards.push_back(
                sample_uniform(o.run.seed ^ 0x5eed, uint32_t(step), uint32_t(first), uint32_t(g)) < 0.5f);
        std::vector<double> advantages = group_advantages(rewards, o.rollout.divide_by_std);
        for (size_t g = 0; g < G; g++) rollouts.trajectories[first + g].advantage = advantages[g];
    }
}

void write_rollouts(const std::string& run, int64_t step, const StepRollouts& rollouts) {
    std::string lines;
    for (const Json& row : rollouts.rows)
        lines += row.dump(-1, ' ', false, Json::error_handler_t::replace) + "\n";
    write_whole(run + "/rollouts/" + step_name(step) + ".jsonl", lines);
}

// avg@k and its kin on one validation set, under the samples' numbers of ./eval.
template <class Device>
void evaluate(Model<Device>& model, const Options& o, const ModelSource& source, const std::string& set,
              const std::vector<EncodedProblem>& problems, Metrics& metrics, Progress& progress,
              Ranks& ranks) {
    std::vector<const EncodedProblem*> all;
    for (const EncodedProblem& p : problems) all.push_back(&p);
    const int k = int(o.val_samples);
    auto groups = generate_groups(model, o.rollout, source.stop.ids(), all,
                                  std::vector<int64_t>(all.size(), 0), k, ranks);
    StepRollouts marked;
    Samples samples;
    for (size_t i = 0; i < groups.size(); i++)
        add_group(marked, o.rollout, source, *all[i], groups[i], false);
    const double n = double(marked.rows.size());
    std::vector<double> per_problem;
    double pass = 0, majority_right = 0;
    for (size_t i = 0; i < groups.size(); i++) {
        int right = 0;
        std::map<std::string, int> number;
        std::vector<int> vote;
        std::vector<bool> is_right;
        for (int g = 0; g < k; g++) {
            const Json& row = marked.rows[i * size_t(k) + size_t(g)];
            bool r = row["outcome"] == "right";
            right += r;
            is_right.push_back(r);
            std::string answer = row["answer"];
            vote.push_back(answer.empty() ? -1 : number.emplace(answer, int(number.size())).first->second);
        }
        pass += pass_at_k(k, right, k);
        majority_right += majority(vote, is_right);
    }
    const double avg = marked.statistics.right / n, count = double(groups.size());
    auto put = [&](const std::string& name, double value) {
        metrics.push_back({"val/" + set + "/" + name, value});
    };
    put(format("avg@%d", k), avg);
    if (k > 1) put(format("pass@%d", k), pass / count), put(format("maj@%d", k), majority_right / count);
    put("unparsed", marked.statistics.unparsed / n);
    put("truncated", marked.statistics.truncated / n);
    progress.note(format("val/%s/avg@%d %.1f%%", set.c_str(), k, 100 * avg));
}

// One step's updates. Returns the last update's result; statistics are of all updates, the mismatch of the
// first.
struct TrainedStep {
    double loss = 0, grad_norm = 0, lr = 0, mismatch = 0, mismatch_max = 0, first_not_one = 0, flops = 0;
    int updates = 0, empty = 0;
    CispoStatistics stats;
};
template <class Device>
TrainedStep train(Trainer<Device>& trainer, const Options& o, std::vector<Trajectory>& trajectories,
                  Model<Device>* reference) {
    TrainedStep out;
    const double temperature = o.cispo.temperature;
    std::vector<std::vector<float>> logp;
    std::vector<Sequence> all;
    for (const Trajectory& t : trajectories) all.push_back(t.sequence());
    const double scoring = step_cost(trainer.model.config, all).flops / 3;  // forward only
    if (reference) {
        out.flops += scoring;
        score_trajectories(*reference, trainer.workspace(), trainer.max_tokens, trajectories, temperature,
                           logp, trainer.ranks);
        for (size_t i = 0; i < trajectories.size(); i++) trajectories[i].ref_logp = logp[i];
    }
    for (Trajectory& t : trajectories) t.old_logp = t.drawn_from(t.rollout_logp);
    if (o.old_logprobs == "recompute") {
        out.flops += scoring;
        score_trajectories(trainer.model, trainer.workspace(), trainer.max_tokens, trajectories, temperature,
                           logp, trainer.ranks);
        for (size_t i = 0; i < trajectories.size(); i++)
            trajectories[i].old_logp = trajectories[i].drawn_from(logp[i]);
    }
    const size_t size = o.minibatch > 0 ? size_t(o.minibatch) : trajectories.size();
    for (size_t first = 0; first < trajectories.size(); first += size) {
        const size_t last = std::min(first + size, trajectories.size());
        std::vector<Trajectory> minibatch(trajectories.begin() + int64_t(first),
                                          trajectories.begin() + int64_t(last));
        CispoStatistics before = out.stats;
        double loss = cispo_gradient(trainer, minibatch, o.cispo, out.stats);
        if (first == 0 && out.stats.tokens > 0) {
            out.mismatch = out.stats.gap / out.stats.tokens;
            out.mismatch_max = out.stats.gap_max;
            out.first_not_one = out.stats.not_one / out.stats.tokens;
        }
        if (out.stats.tokens == before.tokens) {  // no answer of it teaches anything
            out.empty++;
            continue;
        }
        UpdateResult update = trainer.update(loss);
        out.loss += loss, out.grad_norm = update.grad_norm, out.lr = update.lr;
        out.updates++;
    }
    if (out.updates) out.loss /= out.updates;
    out.flops += out.stats.flops;
    return out;
}

int main(int argc, char** argv) {
    return run_program("rl_cispo", [&] {
        Ranks ranks;
        Options o;
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
            if (o.cispo.kl_coef > 0) {
                reference = std::make_unique<Model<Device>>(device, source.config);
                reference->load(source.folder);
            }
            run.start();
            if (ranks.first()) make_folders(run.folder() + "/rollouts");
            Order order(problems.size(), o.run.seed);
            int64_t step = run.step(), cursor = run.resumed() ? run.state_integer("cursor") : 0;
            auto save = [&] {
                run.save(step, [&](const std::string& folder, Json& state) {
                    trainer.save(source.folder, folder, state);
                    state["cursor"] = cursor;
                });
            };
            Progress progress(o.train.steps);
            auto validate = [&](Metrics& metrics) {
                for (auto& [set, of_set] : validation)
                    evaluate(model, o, source, set, of_set, metrics, progress, ranks);
            };
            if (!run.resumed() && !validation.empty()) {
                Metrics metrics = {{"step", 0}, {"time", run.seconds()}};
                validate(metrics);
                run.log(metrics);
            }

            for (bool stopped = false; step < o.train.steps && !stopped;) {
                Timer timer;
                StepRollouts rollouts =
                    rollout_step(model, o.rollout, source, problems, order, cursor, ranks);
                if (o.random_reward) toss_rewards(rollouts, o, step);
                const double rollout_seconds = timer.seconds() - rollouts.statistics.seconds_reward;
                Timer train_timer;
                TrainedStep trained = train(trainer, o, rollouts.trajectories, reference.get());
                const double train_seconds = train_timer.seconds();
                step++;
                if (ranks.first()) write_rollouts(run.folder(), step, rollouts);

                const RolloutStatistics& r = rollouts.statistics;
                const CispoStatistics& s = trained.stats;
                const double n = double(r.reward.size()), groups = r.groups.groups,
                             tokens = std::max(1.0, s.tokens);
                double mean = 0, square = 0;
                for (double x : r.reward) mean += x / n;
                for (double x : r.reward) square += (x - mean) * (x - mean) / n;
                Metrics metrics = {
                    {"step", step},
                    {"loss", trained.loss},
                    {"reward/mean", mean},
                    {"reward/std", std::sqrt(square)},
                    {"reward/zero_std_frac", r.groups.zero_std / groups},
                    {"reward/all_right_frac", r.groups.all_right / groups},
                    {"reward/all_wrong_frac", r.groups.all_wrong / groups},
                    {"reward/unparsed", r.unparsed / n},
                    {"response_length/mean", r.tokens / n},
                    {"response_length/max", *std::max_element(r.length.begin(), r.length.end())},
                    {"response_length/clip_ratio", r.truncated / n},
                    {"actor/entropy", s.entropy / tokens},
                    {"actor/clip_ratio", s.clipped / tokens},
                    {"actor/ratio/mean", s.ratio / tokens},
                    {"actor/ratio/min", s.tokens > 0 ? s.ratio_min : 1},
                    {"actor/ratio/max", s.tokens > 0 ? s.ratio_max : 1},
                    {"actor/grad_norm", trained.grad_norm},
                    {"actor/lr", trained.lr},
                    {"actor/updates", trained.updates},
                    {"actor/empty_minibatches", trained.empty},
                    {"mismatch/logprob_abs_diff/mean", trained.mismatch},
                    {"mismatch/logprob_abs_diff/max", trained.mismatch_max},
                    {"mismatch/weight_not_one_frac", trained.first_not_one},
                    {"skipped_updates", trainer.skipped},
                    {"cursor", cursor},
                    {"perf/flops", r.flops + trained.flops},
                    {"perf/tokens_per_s", (r.tokens + r.prompt_tokens) / timer.seconds()},
                    {"perf/rollout_tokens_per_s", r.tokens / rollout_seconds},
                    {"time/rollout", rollout_seconds},
                    {"time/reward", r.seconds_reward},
                    {"time/train", train_seconds},
                    {"time/step", timer.seconds()}};
                if (o.cispo.kl_coef > 0) metrics.push_back({"actor/kl", s.kl / tokens});
                stopped = run.must_stop();
                const bool last = step == o.train.steps;
                if (last || stopped || (o.run.eval_every && step % o.run.eval_every == 0)) validate(metrics);
                metrics.push_back({"time", run.seconds()});
                run.log(metrics);
                progress.update(
                    step,
                    format("reward %.3f | length %.1f | entropy %.3f | cut %.4f | norm %.3f | %.0f tok/s",
                           mean, r.tokens / n, s.entropy / tokens, s.clipped / tokens, trained.grad_norm,
                           r.tokens / rollout_seconds));
                if (last || stopped || (o.run.save_every && step % o.run.save_every == 0)) save();
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
