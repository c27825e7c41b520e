// cispo.h: what CISPO needs besides the loss kernel: advantages within a group, what a truncated answer is
// worth, and how the loss is normalised.   (MiniMax-M1, arXiv 2506.13585; GRPO's group advantage, arXiv
// 2402.03300)
//
//   loss = - sum_t scale_t * clip(pi(x_t) / pi_old(x_t), lo, hi) * A * log pi(x_t)       the clipped weight
//   is constant
//
// lo and hi are absolute numbers on the weight (not 1 - eps, 1 + eps). A token whose weight was cut still has
// a gradient, -hi * A * d log pi: that is CISPO's difference from PPO. No KL and no entropy term unless
// asked.
#pragma once
#include <algorithm>
#include <cmath>
#include <string>
#include <vector>

#include "base.h"

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
//   down to
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
