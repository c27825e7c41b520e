// rollout.cuh: from problems to marked groups of answers: the first half of an RL step.
//
// The texts are those that ./eval writes for the same seed: sample g of a problem in the first pass over the
// data is sample g there. In the n-th pass the samples are n * group_size + g, so that they are fresh.
#pragma once
#include <string>
#include <vector>

#include "cispo.h"
#include "generate.cuh"
#include "problems.h"
#include "source.h"

struct EncodedProblem {
    Problem problem;
    std::vector<int> ids;  // the prompt
};

struct RolloutOptions {
    int64_t prompts_per_step = 16, group_size = 8;
    int refill = 0;  // rounds in which groups without spread are replaced
    int max_new_tokens = 1024, slots = 64, max_tokens_per_pass = 8192;
    Truncated truncated = Truncated::zero;
    int overlong_buffer = 256;
    bool divide_by_std = true;
    bool round_decimals = true;  // a decimal gold compares at its own digits (verifier/compare.h)
    bool random_reward = false;  // control: a coin, keyed like the samples, decides each reward
    Sampling sampling;
    uint64_t seed = 1;
};

// Of all answers that were drawn, groups that were replaced included.
struct RolloutStatistics {
    GroupStatistics groups;
    std::vector<double> reward, length;
    double truncated = 0, unparsed = 0, right = 0, tokens = 0, prompt_tokens = 0, seconds_reward = 0;
    double flops = 0;  // window-aware: a prompt once for its group, then token by token
};

struct StepRollouts {
    std::vector<Trajectory> trajectories;  // in the order of problems and samples
    std::vector<Json> rows;                // for rollouts/step_N.jsonl
    RolloutStatistics statistics;
};

// Prompts of the problems that leave room for an answer. Errors: none does; a bad row of the data.
inline std::vector<EncodedProblem> encode_problems(const std::vector<std::string>& files,
                                                   const ModelSource& source, const ProblemKeys& keys,
                                                   const std::string& system, int64_t limit) {
    std::vector<EncodedProblem> out;
    for (const std::string& file : files)
        for (Problem& p : read_problems(file, keys, limit)) {
            std::vector<int> ids = source.encode(p.messages, system);
            if (int(ids.size()) >= source.config.max_positions)
                fail(file + ": the prompt of " + quoted(p.id) + " has " + std::to_string(ids.size()) +
                         " tokens, the model has " + std::to_string(source.config.max_positions) +
                         " positions",
                     "leave the problem out, or use a model with more positions");
            out.push_back({std::move(p), std::move(ids)});
        }
    return out;
}

// A rollout as words of 32 bits, on its way between ranks.
inline void pack(const Rollout& r, std::vector<int>& to) {
    auto put = [&](const auto& list) {
        const size_t at = to.size();
        to.resize(at + 1 + list.size());
        to[at] = int(list.size());
        std::memcpy(to.data() + at + 1, list.data(), list.size() * sizeof(int));
    };
    to.insert(to.end(), {r.sample, r.prompt_tokens, int(r.stop)});
    put(r.ids), put(r.logp), put(r.log_kept);
}
inline Rollout unpack(const int*& from) {
    Rollout r;
    auto take = [&](auto& list) {
        list.resize(size_t(*from++));
        std::memcpy(list.data(), from, list.size() * sizeof(int));
        from += list.size();
    };
    r.sample = *from++, r.prompt_tokens = *from++, r.stop = Stop(*from++);
    take(r.ids), take(r.logp), take(r.log_kept);
    return r;
}

// `count` answers to each of the problems, from sample number first[i] on: out[i][g]. The ranks divide the
// problems among them, and all get all answers.
template <class Device>
std::vector<std::vector<Rollout>> generate_groups(Model<Device>& model, const RolloutOptions& o,
                                                  const std::vector<int>& stop,
                                                  const std::vector<const EncodedProblem*>& problems,
                                                  const std::vector<int64_t>& first, int count,
                                                  Ranks& ranks = Ranks::alone()) {
    std::vector<std::vector<Rollout>> out(problems.size(), std::vector<Rollout>(size_t(count)));
    size_t longest = 0, own = 0;
    for (size_t i = 0; i < problems.size(); i++)
        longest = std::max(longest, problems[i]->ids.size()), own += ranks.has(i);
    if (own > 0) {
        GenerateOptions g;
        g.sampling = o.sampling;
        g.seed = o.seed;
        g.slots = int(std::min<int64_t>(o.slots, int64_t(own) * count));
        g.max_tokens_per_pass = o.max_tokens_per_pass;
        g.limit = int(std::min<int64_t>(model.config.max_positions, int64_t(longest) + o.max_new_tokens));
        g.stop = stop;
        Generator<Device> generator(model, g);
        for (size_t i = 0; i < problems.size(); i++) {
            if (!ranks.has(i)) continue;
            Prompt prompt;
            prompt.ids = problems[i]->ids;
            prompt.key = problem_key(problems[i]->problem.id);
            prompt.samples.clear();
            for (int s = 0; s < count; s++) prompt.samples.push_back(int(first[i]) + s);
            prompt.tag = int64_t(i);
            prompt.max_new_tokens = o.max_new_tokens;
            generator.add(std::move(prompt));
        }
        auto finish = [&](Rollout&& r) {
            const size_t problem = size_t(r.tag), sample = size_t(r.sample - int(first[problem]));
            out[problem][sample] = std::move(r);
        };
        while (generator.step(finish)) continue;
    }
    if (ranks.size() == 1) return out;

    std::vector<int> mine;
    for (size_t i = 0; i < out.size(); i++)
        for (const Rollout& r : out[i])
            if (ranks.has(i)) pack(r, mine);
    const std::vector<std::vector<int>> of_rank = ranks.all_gather("the rollouts", mine);
    std::vector<const int*> at;
    for (const std::vector<int>& words : of_rank) at.push_back(words.data());
    for (size_t i = 0; i < out.size(); i++)
        for (Rollout& r : out[i]) r = unpack(at[i % at.size()]), r.tag = int64_t(i);
    return out;
}

// What is judged: the answer without the token that ended it.
inline std::string answer_text(const Tokenizer& tokenizer, const Rollout& r) {
    std::vector<int> ids = r.ids;
    if (r.stop == Stop::token) ids.pop_back();
    return tokenizer.decode(ids);
}

// Floating-point operations of a group: one prefill, then every token but a text's last is fed once.
inline double rollout_flops(const ModelConfig& c, int prompt, const std::vector<Rollout>& group) {
    const double before = forward_flops(c, {0, prompt}, false), head = 2.0 * c.vocab * c.hidden;
    double flops = before + head;
    for (const Rollout& r : group) {
        const int fed = int(r.ids.size()) - 1;
        flops += forward_flops(c, {0, prompt + fed}, false) - before + head * fed;
    }
    return flops;
}

// Marks one group and adds it; returns whether its rewards have spread. A group that will be replaced leaves
// its rows and counts, but no trajectories.
inline bool add_group(StepRollouts& out, const RolloutOptions& o, const ModelSource& source,
                      const EncodedProblem& problem, const std::vector<Rollout>& group,
                      bool may_be_replaced) {
    Timer timer;
    RolloutStatistics& stats = out.statistics;
    std::vector<double> rewards;
    std::vector<Json> rows;
    for (const Rollout& r : group) {
        const bool cut = r.stop == Stop::length;
        const std::string text = answer_text(source.tokenizer, r);
        Judgement judgement =
            judge(problem.problem.format, text, problem.problem.gold, verifier::Mode::rl, o.round_decimals);
        const double value = o.random_reward
                                 ? double(sample_uniform(o.seed ^ 0x5eed, problem_key(problem.problem.id),
                                                         uint32_t(r.sample), 0) < 0.5f)
                                 : shaped_reward(reward(judgement), cut, int(r.ids.size()), o.max_new_tokens,
                                                 o.truncated, o.overlong_buffer);
        rewards.push_back(value);
        stats.reward.push_back(value);
        stats.length.push_back(double(r.ids.size()));
        stats.truncated += cut;
        stats.unparsed += judgement.outcome == Outcome::unparsed;
        stats.right += judgement.outcome == Outcome::right;
        stats.tokens += double(r.ids.size());
        rows.push_back({{"id", problem.problem.id},
                        {"sample", r.sample},
                        {"text", text},
                        {"gold", problem.problem.gold},
                        {"answer", judgement.answer},
                        {"outcome", outcome_name(judgement.outcome)},
                        {"reward", value},
                        {"stop", cut ? "length" : "token"},
                        {"tokens", r.ids.size()},
                        {"prompt_ids", problem.ids},
                        {"ids", r.ids}});
    }
    stats.prompt_tokens += double(problem.ids.size());
    stats.flops += rollout_flops(source.config, int(problem.ids.size()), group);
    count_group(stats.groups, rewards);
    std::vector<double> advantages = group_advantages(rewards, o.divide_by_std);
    const bool spread = has_spread(rewards), replaced = !spread && may_be_replaced;
    for (size_t g = 0; g < group.size(); g++) {
        const bool learned = !(group[g].stop == Stop::length && o.truncated == Truncated::mask);
        rows[g]["advantage"] = advantages[g];
        rows[g]["trained"] = learned && !replaced;
        out.rows.push_back(std::move(rows[g]));
        if (replaced) continue;
        Trajectory t;
        t.ids = problem.ids;
        t.prompt = int(problem.ids.size());
        t.ids.insert(t.ids.end(), group[g].ids.begin(), group[g].ids.end());
        t.rollout_logp = group[g].logp;
        t.log_kept = group[g].log_kept;
        t.advantage = advantages[g];
        t.learned = learned;
        out.trajectories.push_back(std::move(t));
    }
    stats.seconds_reward += timer.seconds();
    return spread;
}

// One step's groups, from position `cursor` of the order on, which it moves. Groups without spread are
// replaced by the next problems for o.refill rounds; what is still without spread then stays.
template <class Device>
StepRollouts rollout_step(Model<Device>& model, const RolloutOptions& o, const ModelSource& source,
                          const std::vector<EncodedProblem>& problems, Order& order, int64_t& cursor,
                          Ranks& ranks = Ranks::alone()) {
    StepRollouts out;
    int64_t wanted = o.prompts_per_step;
    for (int round = 0; wanted > 0; round++) {
        std::vector<const EncodedProblem*> chosen;
        std::vector<int64_t> first;
        for (int64_t i = 0; i < wanted; i++, cursor++) {
            chosen.push_back(&problems[order.at(cursor)]);
            first.push_back(cursor / int64_t(problems.size()) * o.group_size);
        }
        auto groups = generate_groups(model, o, source.stop.ids(), chosen, first, int(o.group_size), ranks);
        const bool last = round >= o.refill;
        for (size_t i = 0; i < groups.size(); i++)
            if (add_group(out, o, source, *chosen[i], groups[i], !last) || last) wanted--;
    }
    return out;
}
