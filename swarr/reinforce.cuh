// reinforce.cuh: what ./rl_cispo needs beside its loop: its options, the updates of one step, what it logs.
#pragma once
#include <algorithm>
#include <memory>
#include <string>
#include <vector>

#include "evaluation.cuh"
#include "trainer.cuh"

struct ReinforceOptions {
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
    bool force_truncated_sampling = false;

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
        cli.option("--random-reward", rollout.random_reward,
                   "control: rewards from a coin, not from the verifier", "Rollout");

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

// What came out of one step's updates: sums over all of them; the mismatch is that of the first.
struct TrainedStep {
    double loss = 0, grad_norm = 0, lr = 0, mismatch = 0, mismatch_max = 0, first_not_one = 0, flops = 0;
    int updates = 0, empty = 0;  // minibatches with and without anything to learn
    CispoStatistics stats;
};

// Updates the model with a step's answers, minibatch by minibatch. `reference`: with a KL term, the starting
// model; else null. Errors: as Trainer::update.
template <class Device>
TrainedStep train_step(Trainer<Device>& trainer, const ReinforceOptions& o,
                       std::vector<Trajectory>& trajectories, Model<Device>* reference) {
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
        if (out.stats.tokens == before.tokens) {  // no answer of it teaches anything
            out.empty++;
            continue;
        }
        if (out.updates == 0) {
            out.mismatch = out.stats.gap / out.stats.tokens;
            out.mismatch_max = out.stats.gap_max;
            out.first_not_one = out.stats.not_one / out.stats.tokens;
        }
        UpdateResult update = trainer.update(loss);
        out.loss += loss, out.grad_norm = update.grad_norm, out.lr = update.lr;
        out.updates++;
    }
    if (out.updates) out.loss /= out.updates;
    out.flops += out.stats.flops;
    return out;
}

struct StepSeconds {
    double rollout = 0, train = 0, step = 0;
};

// A line of log.jsonl; log.h says what each number means. `skipped` and `cursor` count from the run's start.
inline Metrics step_metrics(int64_t step, const RolloutStatistics& r, const TrainedStep& t, int64_t skipped,
                            int64_t cursor, const StepSeconds& seconds, bool has_reference) {
    const CispoStatistics& s = t.stats;
    const double n = double(r.reward.size()), groups = r.groups.groups, tokens = std::max(1.0, s.tokens);
    double mean = 0, square = 0;
    for (double x : r.reward) mean += x / n;
    for (double x : r.reward) square += (x - mean) * (x - mean) / n;
    Metrics metrics = {{"step", step},
                       {"loss", t.loss},
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
                       {"actor/grad_norm", t.grad_norm},
                       {"actor/lr", t.lr},
                       {"actor/updates", t.updates},
                       {"actor/empty_minibatches", t.empty},
                       {"mismatch/logprob_abs_diff/mean", t.mismatch},
                       {"mismatch/logprob_abs_diff/max", t.mismatch_max},
                       {"mismatch/weight_not_one_frac", t.first_not_one},
                       {"skipped_updates", skipped},
                       {"cursor", cursor},
                       {"perf/flops", r.flops + t.flops},
                       {"perf/tokens_per_s", (r.tokens + r.prompt_tokens) / seconds.step},
                       {"perf/rollout_tokens_per_s", r.tokens / seconds.rollout},
                       {"time/rollout", seconds.rollout},
                       {"time/reward", r.seconds_reward},
                       {"time/train", seconds.train},
                       {"time/step", seconds.step}};
    if (has_reference) metrics.push_back({"actor/kl", s.kl / tokens});
    return metrics;
}

// The shares of an evaluation's summary, under val/SET.
inline void add_validation(Metrics& metrics, const Json& summary) {
    const std::string k = "@" + std::to_string(summary.at("samples").get<int64_t>());
    for (const std::string& name :
         {"avg" + k, "pass" + k, "maj" + k, std::string("unparsed"), std::string("truncated")})
        if (summary.contains(name) && name != "pass@1")
            metrics.push_back({"val/" + summary.at("set").get<std::string>() + "/" + name, summary.at(name)});
}

// The numbers of a step that the console shows.
inline std::string progress_text(const Metrics& metrics) {
    auto of = [&](const char* name) {
        for (const auto& [key, value] : metrics)
            if (key == name) return value;
        return 0.0;
    };
    return format("reward %.3f | length %.1f | entropy %.3f | cut %.4f | norm %.3f | %.0f tok/s",
                  of("reward/mean"), of("response_length/mean"), of("actor/entropy"), of("actor/clip_ratio"),
                  of("actor/grad_norm"), of("perf/rollout_tokens_per_s"));
}
