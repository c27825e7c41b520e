// cispo.h: what CISPO needs besides the loss kernel: advantages within a group, what a truncated answer is
// worth, and how the loss is normalised.   (MiniMax-M1, arXiv 2506.13585; GRPO's group advantage, arXiv
// 2402.03300)
//
//   loss = - sum_t scale_t * clip(pi(x_t) / pi_old(x_t), lo, hi) * A * log pi(x_t)
//
// The clipped weight is held constant. lo and hi are absolute numbers on the weight (not 1 - eps, 1 + eps). A token whose weight was cut still has
// a gradient, -hi * A * d log pi: that is CISPO's difference from PPO. No KL and no entropy term unless
// asked.
#pragma once
#include <algorithm>
#include <cmath>
#include <string>
#include <vector>

#include "trainer.cuh"

struct GroupStatistics {
    int groups = 0, zero_std = 0, all_right = 0, all_wrong = 0;  // no spread; of those, reward 1, reward 0
};

// (r - mean) / std within the group, std over the group itself (divided by its size). A group without spread,
// a group of one among them, teaches nothing: advantage 0.
inline std::vector<double> group_advantages(const std::vector<double>& rewards, bool divide_by_std = true) {
    const double n = double(rewards.size());
    double mean = 0, square = 0;
    for (double r : rewards) mean += r / n;
    for (double r : rewards) square += (r - mean) * (r - mean) / n;
    double std = std::sqrt(square);
    std::vector<double> out;
    // Equal rewards can leave a rounding error in the deviation: compare with the rewards' own scale.
    bool spread = std > 1e-9 * (1 + std::fabs(mean));
    for (double r : rewards) out.push_back(spread ? (divide_by_std ? (r - mean) / std : r - mean) : 0);
    return out;
}

inline bool has_spread(const std::vector<double>& rewards) {
    for (double r : rewards)
        if (r != rewards[0]) return true;
    return false;
}

inline void count_group(GroupStatistics& s, const std::vector<double>& rewards) {
    s.groups++;
    if (has_spread(rewards)) return;
    s.zero_std++;
    s.all_right += rewards[0] == 1;
    s.all_wrong += rewards[0] == 0;
}

// What an answer that ran into the length limit is worth.
//   zero  its reward is 0, and it is trained on like any other
//   mask  its reward counts in the group's mean, but none of its tokens is trained on
//   soft  as zero, and an answer that comes within `buffer` tokens of the limit loses reward in proportion,
//         -1 at the limit (DAPO's soft overlong punishment, arXiv 2503.14476 eq. 13)
enum class Truncated { zero, mask, soft };

inline Truncated truncated_from(const std::string& name) {
    return name == "mask" ? Truncated::mask : name == "soft" ? Truncated::soft : Truncated::zero;
}

inline double shaped_reward(double reward, bool truncated, int length, int limit, Truncated rule,
                            int buffer) {
    if (truncated) reward = 0;
    if (rule != Truncated::soft || buffer <= 0) return reward;
    int over = length - (limit - buffer);
    return over > 0 ? reward - std::min(1.0, double(over) / buffer) : reward;
}

// What the sum of the tokens' losses is divided by.
//   token     the target tokens of the whole batch (all passes, all ranks): every token counts alike
//   sequence  each sequence's own tokens, then the number of sequences: every answer counts alike
//   constant  sequences times the length limit: a long answer weighs more, and no answer's weight depends on
//   another's
enum class LossNorm { token, sequence, constant };

inline LossNorm loss_norm_from(const std::string& name) {
    return name == "sequence"   ? LossNorm::sequence
           : name == "constant" ? LossNorm::constant
                                : LossNorm::token;
}

// scale_t for a token of a sequence with `tokens` targets, in a batch of `sequences` with `batch_tokens` in
// all.
inline double token_scale(LossNorm norm, int64_t tokens, int64_t batch_tokens, int64_t sequences, int limit) {
    if (batch_tokens == 0 || tokens == 0) return 0;
    if (norm == LossNorm::sequence) return 1.0 / (double(tokens) * double(sequences));
    if (norm == LossNorm::constant) return 1.0 / (double(sequences) * limit);
    return 1.0 / double(batch_tokens);
}

// One sampled answer on its way through the trainer.
struct Trajectory {
    std::vector<int> ids;             // prompt and answer
    int prompt = 0;                   // tokens of the prompt
    std::vector<float> rollout_logp;  // (answer) log pi as recorded, of the whole distribution
    std::vector<float> log_kept;      // (answer) log of the share that top-k and top-p kept; empty: all
    std::vector<float> old_logp;      // (answer) what the weight is measured against
    std::vector<float> ref_logp;      // (answer) of the starting model; only with a KL term
    double advantage = 0;
    bool learned = true;  // false: counted, but no token is trained on (--truncated mask)

    int answer() const { return int(ids.size()) - prompt; }
    // (answer) Given log pi of the whole distribution: that of the distribution that tokens were drawn from.
    std::vector<float> drawn_from(std::vector<float> logp) const {
        for (size_t a = 0; a < log_kept.size(); a++) logp[a] -= log_kept[a];
        return logp;
    }
    // Input and targets: token i predicts token i + 1; the last one predicts nothing and is left out.
    Sequence sequence() const {
        Sequence s;
        s.token = {ids.begin(), ids.end() - 1};
        s.target.assign(s.token.size(), -1);
        for (size_t i = size_t(prompt); i < ids.size(); i++) s.target[i - 1] = ids[i];
        return s;
    }
};

struct CispoOptions {
    double weight_min = 0, weight_max = 5;
    LossNorm norm = LossNorm::token;
    double kl_coef = 0, entropy_coef = 0;
    double rollout_weight_max = 0;  // cap on exp(old - rollout) as a factor of the weight; 0 = off
    double temperature = 1;
    int limit = 0;  // longest answer, for LossNorm::constant
};

// Sums over the answers' tokens of one or more minibatches.
struct CispoStatistics {
    double tokens = 0, entropy = 0, ratio = 0, ratio_min = INFINITY, ratio_max = 0, clipped = 0, not_one = 0;
    double kl = 0;     // estimate against the reference, where there is one
    double flops = 0;  // window-aware, of forward and backward
    // |log pi - the rollout's log pi|: before the first update, the two engines' mismatch.
    double gap = 0, gap_max = 0;

    // Over all ranks.
    void reduce(Ranks& ranks) {
        double sums[] = {tokens, entropy, ratio, clipped, not_one, kl, flops, gap};
        double largest[] = {-ratio_min, ratio_max, gap_max};
        ranks.sum("the statistics", sums, 8);
        ranks.max("the extremes", largest, 3);
        tokens = sums[0], entropy = sums[1], ratio = sums[2], clipped = sums[3], not_one = sums[4];
        kl = sums[5], flops = sums[6], gap = sums[7];
        ratio_min = -largest[0], ratio_max = largest[1], gap_max = largest[2];
    }
    void add(const CispoStatistics& o) {
        tokens += o.tokens, entropy += o.entropy, ratio += o.ratio, clipped += o.clipped;
        not_one += o.not_one, kl += o.kl, flops += o.flops, gap += o.gap;
        ratio_min = std::min(ratio_min, o.ratio_min), ratio_max = std::max(ratio_max, o.ratio_max);
        gap_max = std::max(gap_max, o.gap_max);
    }
};

// log pi of every answer token under `model`: out[i] as long as trajectory i's answer. The ranks divide the
// work; all get all of it.
template <class Device>
void score_trajectories(Model<Device>& model, TokenLossWorkspace<Device>& workspace, int max_tokens,
                        const std::vector<Trajectory>& trajectories, double temperature,
                        std::vector<std::vector<float>>& out, Ranks& ranks = Ranks::alone()) {
    std::vector<Sequence> sequences;
    std::vector<int> answer;
    for (size_t i = 0; i < trajectories.size(); i++)
        if (ranks.has(i))
            sequences.push_back(trajectories[i].sequence()), answer.push_back(trajectories[i].answer());
    std::vector<float> mine;
    each_pass(sequences, max_tokens, true, [&](const Batch& batch, size_t first, size_t last) {
        std::vector<int> target;
        for (size_t i = first; i < last; i++)
            target.insert(target.end(), sequences[i].target.begin(), sequences[i].target.end());
        std::vector<typename Device::stat> logp(target.size());
        DeviceTokenLoss<Device> args;
        args.targets = target.data();
        args.temperature = temperature;
        args.logp = logp.data();
        loss_pass(model, workspace, batch, args);
        for (size_t i = first; i < last; i++) {
            auto end = logp.begin() + batch.start[i - first + 1];
            mine.insert(mine.end(), end - answer[i], end);
        }
    });
    const std::vector<std::vector<float>> of_rank = ranks.all_gather("log-probabilities", mine);
    std::vector<size_t> at(size_t(ranks.size()));
    out.clear();
    for (size_t i = 0; i < trajectories.size(); i++) {
        const size_t r = i % size_t(ranks.size());
        const float* from = of_rank[r].data() + at[r];
        out.emplace_back(from, from + trajectories[i].answer());
        at[r] += size_t(trajectories[i].answer());
    }
}

// The CISPO loss of a minibatch, which the ranks divide among them; adds this rank's part of its gradient.
// Trajectories of advantage 0 add nothing but their tokens to the norm, and are passed over unless a KL or
// entropy term wants them.
template <class Device>
double cispo_gradient(Trainer<Device>& trainer, const std::vector<Trajectory>& minibatch,
                      const CispoOptions& options, CispoStatistics& total) {
    using S = typename Device::stat;
    int64_t batch_tokens = 0, batch_sequences = 0;
    for (const Trajectory& t : minibatch)
        if (t.learned) batch_tokens += t.answer(), batch_sequences++;
    std::vector<const Trajectory*> used;
    for (const Trajectory& t : minibatch)
        if (t.learned && (t.advantage != 0 || options.kl_coef != 0 || options.entropy_coef != 0))
            used.push_back(&t);
    used = trainer.ranks.share(used);
    std::vector<Sequence> sequences;
    for (const Trajectory* t : used) sequences.push_back(t->sequence());
    CispoStatistics stats;
    stats.flops = step_cost(trainer.model.config, sequences).flops;
    double loss = 0;
    trainer.each_pass(sequences, [&](const Batch& batch, size_t first, size_t last) {
        const size_t N = size_t(batch.tokens());
        std::vector<int> target;
        std::vector<S> old(N), rolled(N), advantage(N), scale(N), ref(N), logp(N), entropy(N), ratio(N);
        for (size_t i = first; i < last; i++) {
            const Trajectory& t = *used[i];
            target.insert(target.end(), sequences[i].target.begin(), sequences[i].target.end());
            size_t at = size_t(batch.start[i - first + 1]) - size_t(t.answer());
            const std::vector<float> drawn = t.drawn_from(t.rollout_logp);
            for (size_t a = 0; a < size_t(t.answer()); a++) {
                // The rollout came from slightly other numbers than the old log-probabilities: an importance
                // weight.
                double cap = options.rollout_weight_max, weight = 1;
                if (cap > 0) weight = std::min(cap, std::exp(double(t.old_logp[a]) - double(drawn[a])));
                old[at + a] = S(t.old_logp[a]);
                rolled[at + a] = S(t.rollout_logp[a]);
                advantage[at + a] = S(t.advantage * weight);
                scale[at + a] =
                    S(token_scale(options.norm, t.answer(), batch_tokens, batch_sequences, options.limit));
                if (!t.ref_logp.empty()) ref[at + a] = S(t.ref_logp[a]);
            }
        }
        DeviceTokenLoss<Device> args;
        args.targets = target.data();
        args.temperature = options.temperature;
        args.old_logp = old.data();
        args.advantage = advantage.data();
        args.ratio_low = options.weight_min, args.ratio_high = options.weight_max;
        args.kl_coef = options.kl_coef, args.entropy_coef = options.entropy_coef;
        args.ref_logp = options.kl_coef != 0 ? ref.data() : nullptr;
        args.token_scale = scale.data();
        args.logp = logp.data(), args.entropy = entropy.data(), args.ratio = ratio.data();
        loss += trainer.run(batch, args, true).loss;
        for (size_t n = 0; n < N; n++) {
            if (target[n] < 0) continue;
            const double r = double(ratio[n]);
            stats.tokens++;
            stats.entropy += double(entropy[n]);
            stats.ratio += r;
            stats.ratio_min = std::min(stats.ratio_min, r);
            stats.ratio_max = std::max(stats.ratio_max, r);
            stats.clipped += r < options.weight_min || r > options.weight_max;
            stats.not_one += r != 1;
            const double gap = std::fabs(double(logp[n]) - double(rolled[n]));
            stats.gap += gap;
            stats.gap_max = std::max(stats.gap_max, gap);
            if (options.kl_coef != 0) {
                double d = double(ref[n]) - double(logp[n]);
                stats.kl += std::exp(d) - d - 1;
            }
        }
    });
    trainer.all_passed();
    stats.reduce(trainer.ranks);
    total.add(stats);
    return trainer.ranks.sum("the loss", loss);
}
