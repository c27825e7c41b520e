// log.h: what a run tells: a progress line with the time left on the console, and log.jsonl for machines.
//
// log.jsonl holds one JSON object a line, flushed at once: {"schema":1,"step":12,"time":3.1,"loss":...}. A
// metric that is not finite is written as the string "nan", "inf" or "-inf", since JSON has no such numbers.
// Metric names are the field's usual ones; explain() says in one line what each means.
#pragma once
#include <unistd.h>

#include <cmath>
#include <string>
#include <utility>
#include <vector>

#include "json_lines.h"

struct MetricText {
    const char* name;
    const char* text;
};

// A name may end in "*": any suffix.
inline const std::vector<MetricText>& metric_texts() {
    static const std::vector<MetricText> texts = {
        {"step", "optimizer steps done"},
        {"epoch", "passes over the training data, fractional"},
        {"loss", "mean of -c * log pi(token) over the step's target tokens; c = 1 in SFT"},
        {"val/loss", "mean of -log pi(token) over the target tokens of the validation set"},
        {"grad_norm", "global L2 norm of the gradient before clipping"},
        {"lr", "learning rate of this step"},
        {"tokens", "tokens processed in this step, prompts included"},
        {"target_tokens", "tokens of this step that the loss counts"},
        {"reward/mean", "mean reward of the step's answers, those of replaced groups included"},
        {"reward/std", "deviation of the rewards over all answers of the step"},
        {"reward/zero_std_frac", "share of groups whose rewards are all equal: they teach nothing"},
        {"reward/all_right_frac",
         "share of groups in which every answer is right: the problem is too easy by now"},
        {"reward/all_wrong_frac", "share of groups in which every answer is wrong: too hard, or cut off"},
        {"reward/unparsed", "share of answers in which no answer could be found or read"},
        {"response_length/mean", "tokens per answer, the stop token included"},
        {"response_length/max", "tokens of the longest answer"},
        {"response_length/clip_ratio", "share of answers that ran into --max-new-tokens (truncated)"},
        {"actor/entropy",
         "mean entropy in nats of the distributions that the answers' tokens were drawn from"},
        {"actor/clip_ratio",
         "share of tokens whose weight pi / pi_old lay outside --cispo-weight-min ... -max"},
        {"actor/ratio/mean", "mean of pi / pi_old over the trained tokens, before the bounds"},
        {"actor/ratio/min", "smallest pi / pi_old of the step; exactly 1 until something was updated"},
        {"actor/ratio/max",
         "largest pi / pi_old of the step; a rising one means old and new policy drift apart"},
        {"actor/grad_norm", "global L2 norm of the gradient of the step's last update, before clipping"},
        {"actor/lr", "learning rate of the step's last update"},
        {"actor/updates", "optimizer updates of the step"},
        {"actor/empty_minibatches", "minibatches without an answer that teaches anything; they are left out"},
        {"actor/kl", "estimate of KL(pi || starting model) per token (k3: exp(d) - d - 1)"},
        {"mismatch/logprob_abs_diff/mean",
         "mean |log pi of the trainer - log pi of the rollout| before the first update; 0 on the CPU"},
        {"mismatch/logprob_abs_diff/max",
         "the largest such difference; a rising one means two engines disagree"},
        {"mismatch/weight_not_one_frac",
         "share of the first update's tokens whose weight pi / pi_old is not exactly 1; 0 on the CPU"},
        {"cursor", "problems drawn so far"},
        {"perf/rollout_tokens_per_s", "answer tokens written per second of rollout"},
        {"time/rollout", "seconds of writing answers"},
        {"time/reward", "seconds of marking them"},
        {"time/train", "seconds of updates, recomputed log-probabilities included"},
        {"time/step", "seconds of the whole step, validation aside"},
        {"val/*",
         "of a validation set: avg@k mean share right, pass@k one of k right, maj@k the majority right, "
         "unparsed (ended by itself without an answer), truncated (cut by the length limit)"},
        {"skipped_updates", "updates left out so far because the loss or the gradient was not finite"},
        {"time", "seconds since the run started, resumed parts included"},
        {"perf/tokens_per_s", "tokens processed per second of this step"},
        {"perf/flops", "floating-point operations of this step by the window-aware formula"},
        {"perf/mfu", "perf/flops over the time and the device's peak; absent where the peak is unknown"},
    };
    return texts;
}

inline std::string explain(const std::string& name) {
    for (const MetricText& m : metric_texts()) {
        std::string pattern = m.name;
        bool prefix = pattern.back() == '*';
        if (prefix ? name.compare(0, pattern.size() - 1, pattern, 0, pattern.size() - 1) == 0
                   : name == pattern)
            return m.text;
    }
    std::string known;
    for (const MetricText& m : metric_texts()) known += std::string(known.empty() ? "" : ", ") + m.name;
    fail("no metric is called " + quoted(name), "known: " + known);
}

inline Json finite_or_text(double x) {
    if (std::isfinite(x)) return x;
    return std::isnan(x) ? "nan" : x > 0 ? "inf" : "-inf";
}

using Metrics = std::vector<std::pair<std::string, double>>;

inline Json metrics_json(const Metrics& metrics) {
    Json row = {{"schema", 1}};
    for (const auto& [name, value] : metrics) {
        if (std::isfinite(value) && value == std::floor(value) && std::fabs(value) < 1e15)
            row[name] = int64_t(value);
        else
            row[name] = finite_or_text(value);
    }
    return row;
}

// Whether this process shows its progress: of several ranks only the first does.
inline bool shows_progress = true;

// One line that is rewritten on a terminal, and printed now and then elsewhere.
class Progress {
  public:
    explicit Progress(int64_t total) : total_(total) {}

    // `done` of total; the time left follows from the speed since this process started.
    void update(int64_t done, const std::string& text) {
        if (!shows_progress) return;
        if (first_ < 0) first_ = done - 1;
        double spent = timer_.seconds();
        bool last = done >= total_;
        if (!last && shown_ > 0 && spent - shown_ < (terminal_ ? 0.1 : 2.0)) return;
        shown_ = spent;
        std::fflush(stdout);  // where both streams go to one file, in the order in which they were written
        std::string eta = duration_text(spent / double(done - first_) * double(total_ - done));
        std::fprintf(stderr, "%s%lld/%lld | %s | eta %s%s", terminal_ ? "\r\x1b[K" : "", (long long)done,
                     (long long)total_, text.c_str(), eta.c_str(), terminal_ && !last ? "" : "\n");
        std::fflush(stderr);
    }

    // A line that stays.
    void note(const std::string& text) {
        if (!shows_progress) return;
        std::fflush(stdout);
        std::fprintf(stderr, "%s%s\n", terminal_ ? "\r\x1b[K" : "", text.c_str());
    }

  private:
    int64_t total_, first_ = -1;
    double shown_ = 0;
    bool terminal_ = isatty(STDERR_FILENO);
    Timer timer_;
};
