// rl_cispo.cu: stage 2 of the recipe. The model writes answers, the verifier marks them, and CISPO moves the model
// towards those that were right: on-policy, so that a sliding-window model finds ways to answer that it can follow.
//
//   ./rl_cispo                                                  the built-in miniature: adapts the newest run of ./sft
//   ./rl_cispo --model runs/sft-4k --data dapo.jsonl --group-size 16 --prompts-per-step 64
//
// A step: rollouts of --group-size answers to --prompts-per-step problems; rewards 0 or 1; advantages within each
// group; one or more updates on minibatches (cispo.h states the loss). The old log-probabilities are those that the
// rollout recorded: on the CPU they equal the trainer's bit for bit, so every weight of the first update is 1.
// Left out: a value function, process rewards, off-policy replay.
#include "cispo.h"
#include "generate.cuh"
#include "problems.h"
#include "rl_metrics.h"
#include "show.cuh"

struct Options {
    RunOptions run;
    ModelOptions model;
    TrainOptions train;
    CispoOptions cispo;
    Sampling sampling;
    std::vector<std::string> data, val_data;
    std::string template_name, system, answer_format = "boxed", truncated = "zero", loss_norm = "token";
    std::string old_logprobs = "rollout", input_key, label_key;
    int64_t prompts_per_step = 16, group_size = 8, minibatch = 0, limit = 0;
    int max_new_tokens = 1024, overlong_buffer = 256, slots = 64, refill = 0, val_samples = 4;
    int64_t max_tokens = 8192;
    int recompute = 0;
    bool divide_by_std = true, force_truncated_sampling = false;
    std::string explain;

    void add_to(Cli& cli) {
        model.add_to(cli);
        cli.option("--data", data, "JSONL with problem and answer", "Data")->delimiter(',');
        cli.option("--val-data", val_data, "the same, evaluated every --eval-every steps", "Data")->delimiter(',');
        cli.option("--val-samples", val_samples, "answers per problem of an evaluation", "Data")->check(CLI::PositiveNumber);
        cli.option("--template", template_name, "chat template; default: the model folder's", "Data");
        cli.option("--system", system, "system message in place of the template's own", "Data");
        cli.option("--input-key", input_key, "key of the question; default: problem, question, prompt, messages", "Data");
        cli.option("--label-key", label_key, "key of the answer; default: answer, label, ground_truth, ...", "Data");
        cli.option("--answer-format", answer_format, "boxed or ledger, where a row does not say", "Data")
            ->check(CLI::IsMember({"boxed", "ledger"}));
        cli.option("--limit", limit, "read only this many problems; 0 = all", "Data")->check(CLI::NonNegativeNumber);

        cli.option("--prompts-per-step", prompts_per_step, "problems of a step", "Rollout")->check(CLI::PositiveNumber);
        cli.option("--group-size,--n", group_size, "answers per problem", "Rollout")->check(CLI::PositiveNumber);
        cli.option("--max-new-tokens", max_new_tokens, "longest answer", "Rollout")->check(CLI::PositiveNumber);
        cli.option("--temperature", sampling.temperature, "of rollouts and of the trained distribution", "Rollout")
            ->check(CLI::PositiveNumber);
        cli.option("--top-p", sampling.top_p, "cuts the distribution; refused unless forced", "Rollout")
            ->check(CLI::Range(0.0, 1.0));
        cli.option("--top-k", sampling.top_k, "likewise", "Rollout")->check(CLI::NonNegativeNumber);
        cli.option("--force-truncated-sampling", force_truncated_sampling,
                   "allow --top-p and --top-k; the weights then count what was cut away", "Rollout");
        cli.option("--slots", slots, "answers written at the same time", "Rollout")->check(CLI::PositiveNumber);
        cli.option("--refill", refill, "rounds in which groups without spread are replaced by new problems", "Rollout")
            ->check(CLI::NonNegativeNumber);
        cli.option("--truncated", truncated, "an answer that ran into the limit: zero, mask or soft (cispo.h)", "Rollout")
            ->check(CLI::IsMember({"zero", "mask", "soft"}));
        cli.option("--overlong-buffer", overlong_buffer, "tokens before the limit in which soft takes reward away", "Rollout")
            ->check(CLI::NonNegativeNumber);

        cli.option("--cispo-weight-min", cispo.weight_min, "lower bound on pi / pi_old, absolute", "CISPO")
            ->check(CLI::NonNegativeNumber);
        cli.option("--cispo-weight-max", cispo.weight_max, "upper bound on pi / pi_old, absolute", "CISPO")
            ->check(CLI::PositiveNumber);
        cli.option("--old-logprobs", old_logprobs, "rollout (as recorded) or recompute (by the trainer)", "CISPO")
            ->check(CLI::IsMember({"rollout", "recompute"}));
        cli.option("--rollout-weight-max", cispo.rollout_weight_max,
                   "with recompute: cap on pi_old / pi_rollout as a further factor; 0 = off", "CISPO")
            ->check(CLI::NonNegativeNumber);
        cli.option("--advantage-std", divide_by_std, "divide advantages by the group's deviation", "CISPO");
        cli.option("--loss-norm", loss_norm, "token, sequence or constant (cispo.h)", "CISPO")
            ->check(CLI::IsMember({"token", "sequence", "constant"}));
        cli.option("--kl-coef", cispo.kl_coef, "of a KL term against the starting model; 0 = none", "CISPO")
            ->check(CLI::NonNegativeNumber);
        cli.option("--entropy-coef", cispo.entropy_coef, "of an entropy bonus; 0 = none", "CISPO")
            ->check(CLI::NonNegativeNumber);
        cli.option("--minibatch", minibatch, "answers per update; 0 = all of a step's", "CISPO")
            ->check(CLI::NonNegativeNumber);

        train.lr = 1e-6, train.schedule = "constant", train.weight_decay = 0;
        train.add_to(cli);
        cli.option("--max-tokens-per-pass", max_tokens, "tokens of one training or prefill pass", "Memory")
            ->check(CLI::PositiveNumber);
        cli.option("--recompute", recompute, "0 keep all activations, 1 norms and swiglu again, 2 layers again", "Memory")
            ->check(CLI::Range(0, 2));
        run.add_to(cli);
        cli.option("--explain", explain, "say what a metric means, and exit", "Run");
    }
};

// Without --model and --data: adapt the newest fine-tuned run on the problems of data/ledger.
void choose_miniature(Cli& cli, Options& o) {
    if (!o.model.model.empty() || !o.data.empty()) return;
    Miniature mini(cli);
    std::string sft = newest_run("sft");
    if (sft.empty() && !std::filesystem::exists("data/ledger"))
        fail("no --model and no --data, and data/ledger is not here", "run it in the project's folder, or give both");
    if (sft.empty()) fail("no run of ./sft below runs/ to start from", "run ./sft first, or give --model and --data");
    mini.set("--model", o.model.model, sft);
    mini.set("--data", o.data, {"data/ledger/rl.jsonl"});
    mini.set("--val-data", o.val_data, {"data/ledger/val.jsonl"});
    mini.set("--val-samples", o.val_samples, 1);
    mini.set("--answer-format", o.answer_format, std::string("ledger"));
    mini.set("--max-new-tokens", o.max_new_tokens, 80);
    mini.set("--steps", o.train.steps, int64_t(60));
    mini.set("--eval-every", o.run.eval_every, int64_t(20));
    mini.set("--minibatch", o.minibatch, int64_t(64));
    mini.set("--lr", o.train.lr, 3e-4);
    mini.set("--cispo-weight-max", o.cispo.weight_max, 2.0);
    std::printf("no --model and no --data: the built-in miniature, %s on data/ledger\n"
                "choose others with --model DIR --data FILE.jsonl\n\n",
                sft.c_str());
}

// Everything of one step's rollouts.
struct Rollouts {
    std::vector<Trajectory> trajectories;  // in the order of problems and samples
    Json rows = Json::array();             // for rollouts/step_N.jsonl
    RolloutStatistics statistics;
};

class Sampler {
  public:
    Sampler(const Options& options, Model<Cpu>& model, const Tokenizer& tokenizer, const std::vector<int>& stop)
        : o_(options), model_(model), tokenizer_(tokenizer), stop_(stop) {}

    // Answers to problems[i], samples first[i] ... first[i] + count - 1; out[i][g].
    std::vector<std::vector<Rollout>> generate(const std::vector<const EncodedProblem*>& problems,
                                               const std::vector<int64_t>& first, int count, const Sampling& sampling) {
        GenerateOptions g;
        g.sampling = sampling;
        g.seed = o_.run.seed;
        g.slots = o_.slots;
        g.max_tokens_per_pass = int(o_.max_tokens);
        g.stop = stop_;
        size_t longest = 0;
        for (const EncodedProblem* p : problems) longest = std::max(longest, p->ids.size());
        g.limit = std::min(model_.config.max_positions, int(longest) + o_.max_new_tokens);
        Generator<Cpu> generator(model_, g);
        std::vector<std::vector<Rollout>> out(problems.size());
        for (size_t i = 0; i < problems.size(); i++) {
            Prompt prompt;
            prompt.ids = problems[i]->ids;
            prompt.key = problem_key(problems[i]->problem.id);
            prompt.samples.clear();
            for (int s = 0; s < count; s++) prompt.samples.push_back(int(first[i]) + s);
            prompt.tag = int64_t(i);
            prompt.max_new_tokens = o_.max_new_tokens;
            out[i].resize(size_t(count));
            generator.add(std::move(prompt));
        }
        while (generator.step([&](Rollout&& r) {
            size_t problem = size_t(r.tag), sample = size_t(r.sample - int(first[problem]));
            out[problem][sample] = std::move(r);
        })) {
        }
        return out;
    }

    // One step's groups, from `cursor` on; groups without spread are replaced for o.refill rounds.
    Rollouts step(const std::vector<EncodedProblem>& problems, Order& order, int64_t& cursor) {
        Rollouts out;
        const int G = int(o_.group_size);
        int64_t wanted = o_.prompts_per_step;
        for (int round = 0; wanted > 0 && round <= o_.refill; round++) {
            std::vector<const EncodedProblem*> chosen;
            std::vector<int64_t> first;
            for (int64_t i = 0; i < wanted; i++, cursor++) {
                chosen.push_back(&problems[order.at(cursor)]);
                // A problem that comes again in a later pass over the data gets fresh random numbers.
                first.push_back(cursor / int64_t(problems.size()) * G);
            }
            std::vector<std::vector<Rollout>> groups = generate(chosen, first, G, o_.sampling);
            for (size_t i = 0; i < groups.size(); i++)
                if (add_group(out, *chosen[i], groups[i]) || round == o_.refill) wanted--;
        }
        return out;
    }

  private:
    // Marks a group and keeps it, unless it has no spread and may still be replaced. Returns whether it has spread.
    bool add_group(Rollouts& out, const EncodedProblem& problem, std::vector<Rollout>& group) {
        Timer timer;
        std::vector<double> rewards;
        std::vector<Json> rows;
        for (const Rollout& r : group) {
            std::string text = tokenizer_.decode(r.ids, true);
            Judgement judgement = judge(problem.problem.format, text, problem.problem.gold);
            bool cut = r.stop == Stop::length;
            double value = shaped_reward(reward(judgement), cut, int(r.ids.size()), o_.max_new_tokens,
                                         truncated_from(o_.truncated), o_.overlong_buffer);
            rewards.push_back(value);
            out.statistics.add(value, judgement.outcome == Outcome::unparsed, int(r.ids.size()), cut);
            rows.push_back({{"id", problem.problem.id},
                            {"sample", r.sample},
                            {"text", text},
                            {"gold", problem.problem.gold[0]},
                            {"answer", judgement.answer},
                            {"reward", value},
                            {"stop", cut ? "length" : "token"},
                            {"tokens", r.ids.size()}});
        }
        count_group(out.statistics.groups, rewards);
        std::vector<double> advantages = group_advantages(rewards, o_.divide_by_std);
        bool spread = has_spread(rewards);
        for (size_t g = 0; g < group.size(); g++) {
            rows[g]["advantage"] = advantages[g];
            out.rows.push_back(rows[g]);
            if (!spread && o_.refill > 0) continue;
            Trajectory t;
            t.ids = problem.ids;
            t.prompt = int(problem.ids.size());
            t.ids.insert(t.ids.end(), group[g].ids.begin(), group[g].ids.end());
            t.rollout_logp = group[g].logp;
            t.advantage = advantages[g];
            t.learned = !(group[g].stop == Stop::length && o_.truncated == "mask");
            out.trajectories.push_back(std::move(t));
        }
        out.statistics.seconds_reward += timer.seconds();
        return spread;
    }

    const Options& o_;
    Model<Cpu>& model_;
    const Tokenizer& tokenizer_;
    std::vector<int> stop_;
};

int main(int argc, char** argv) {
    return run_program("rl_cispo", [&] {
        Options o;
        Cli cli("rl_cispo", "Adapt a model by reinforcement learning with verifiable rewards (CISPO).");
        o.add_to(cli);
        Run run(cli, o.run, "rl_cispo", argc, argv);
        if (!run.ok()) return 0;
        if (!o.explain.empty()) return std::printf("%s: %s\n", o.explain.c_str(), explain(o.explain).c_str()), 0;
        choose_miniature(cli, o);
        check_options(cli, o);

        const std::string source = model_folder(o.model.model);
        ModelConfig config = read_config(source);
        o.model.apply(config);
        Tokenizer tokenizer = Tokenizer::load(source);
        check_vocabulary(tokenizer, config, source);
        ChatTemplate chat = ChatTemplate::from_folder(source, o.template_name);
        StopIds stop = stop_ids(source, tokenizer, chat);
        return 0;
    });
}
