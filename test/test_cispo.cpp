// CISPO beside the loss kernel: advantages, the clipped weight held constant, norms over micro-batches, what
// a truncated answer is worth, the correction for samplers that cut the distribution.
#include "check.h"
#include "rollout.cuh"
#include "scratch.h"

namespace {

using Double = CpuDevice<double>;

ModelConfig tiny() {
    ModelConfig c;
    c.architecture = "qwen2";
    c.layers = 2, c.hidden = 16, c.heads = 2, c.kv_heads = 1, c.head_dim = 8, c.ff = 24, c.vocab = 11;
    c.max_positions = 64;
    c.tied = true;
    c.window = {5, 5};
    return c;
}

// A model in double, its trainer, and a few answers with their log-probabilities.
struct Setting {
    Threads one{1};
    Double device;
    Model<Double> model{device, tiny()};
    Trainer<Double> trainer{model, TrainOptions{}, 64, 0};
    std::vector<Trajectory> answers;

    Setting() {
        model.initialize(3);
        for (size_t i = 0; i < model.layout.matrices; i++) model.params()[i] *= 8;
        const double advantage[] = {1.5, -0.5, 0.25, -2};
        for (int i = 0; i < 4; i++) {
            Trajectory t;
            t.prompt = 2 + i % 2;
            for (int k = 0; k < t.prompt + 3 + 2 * i; k++) t.ids.push_back((5 * k + 3 * i + k * k) % 11);
            t.advantage = advantage[i];
            answers.push_back(t);
        }
        std::vector<std::vector<float>> logp;
        score_trajectories(model, trainer.workspace(), 64, answers, 1, logp);
        for (size_t i = 0; i < answers.size(); i++) answers[i].rollout_logp = answers[i].old_logp = logp[i];
    }
    // Moves the old log-probabilities, so that weights are spread around 1, some beyond the bounds.
    void drift() {
        for (size_t i = 0; i < answers.size(); i++)
            for (size_t a = 0; a < answers[i].old_logp.size(); a++)
                answers[i].old_logp[a] += 0.9f * float(int(a + i) % 5 - 2);
    }
    std::vector<double> gradient(const CispoOptions& o) {
        model.zero_gradients();
        CispoStatistics stats;
        cispo_gradient(trainer, answers, o, stats);
        std::vector<double> g(model.gradients(), model.gradients() + model.layout.total);
        model.zero_gradients();
        return g;
    }
    // log pi of all answers as they are now, in double.
    std::vector<std::vector<double>> log_pi() {
        std::vector<std::vector<double>> out;
        for (const Trajectory& t : answers) {
            Sequence s = t.sequence();
            Batch batch;
            batch.add(s.token.data(), int(s.token.size()));
            std::vector<double> logp(s.token.size());
            TokenLoss<double> args;
            args.targets = s.target.data();
            args.logp = logp.data();
            trainer.run(batch, args, false);
            out.emplace_back(logp.end() - t.answer(), logp.end());
        }
        return out;
    }
};

std::vector<double> parameters(Model<Double>& m) {
    return {m.params(), m.params() + m.layout.total};
}

}  // namespace

TEST_CASE("cispo: advantages within a group", "[cispo]") {
    auto near = [](const std::vector<double>& got, const std::vector<double>& want) {
        REQUIRE(got.size() == want.size());
        for (size_t i = 0; i < got.size(); i++) REQUIRE(got[i] == Approx(want[i]).margin(1e-12));
    };
    near(group_advantages({1, 1, 0, 0}), {1, 1, -1, -1});
    near(group_advantages({0, 1, 0, 0}),
         {-1 / std::sqrt(3.0), std::sqrt(3.0), -1 / std::sqrt(3.0), -1 / std::sqrt(3.0)});
    near(group_advantages({0, 1, 0, 0}, false), {-0.25, 0.75, -0.25, -0.25});
    for (double r : {0.0, 1.0, 0.1, -0.7})
        for (size_t n : {1, 2, 7})
            REQUIRE(group_advantages(std::vector<double>(n, r)) == std::vector<double>(n, 0.0));
    near(group_advantages({0.3}), {0});

    GroupStatistics s;
    for (const std::vector<double>& g : {std::vector<double>{1, 1}, {0, 0}, {0, 1}, {-0.5, -0.5}, {1}})
        count_group(s, g);
    REQUIRE(s.groups == 5);
    REQUIRE(s.zero_std == 4);
    REQUIRE(s.all_right == 2);
    REQUIRE(s.all_wrong == 1);
}

TEST_CASE("cispo: what a truncated answer is worth", "[cispo]") {
    for (Truncated rule : {Truncated::zero, Truncated::mask, Truncated::soft}) {
        REQUIRE(shaped_reward(1, false, 5, 20, rule, 10) == 1);
        REQUIRE(shaped_reward(0, false, 5, 20, rule, 10) == 0);
    }
    REQUIRE(shaped_reward(1, true, 20, 20, Truncated::zero, 10) == 0);
    REQUIRE(shaped_reward(1, true, 20, 20, Truncated::mask, 10) == 0);
    REQUIRE(shaped_reward(1, false, 10, 20, Truncated::soft, 10) == 1);
    REQUIRE(shaped_reward(1, false, 15, 20, Truncated::soft, 10) == 0.5);
    REQUIRE(shaped_reward(0, false, 15, 20, Truncated::soft, 10) == -0.5);
    REQUIRE(shaped_reward(1, true, 20, 20, Truncated::soft, 10) == -1);
    REQUIRE(shaped_reward(1, false, 19, 20, Truncated::soft, 0) == 1);
}

TEST_CASE("cispo: the gradient is that of the loss whose weight is held constant", "[cispo]") {
    Setting s;
    s.drift();
    CispoOptions o;
    o.weight_max = 1.8, o.weight_min = 0.4, o.limit = 20;
    for (LossNorm norm : {LossNorm::token, LossNorm::sequence, LossNorm::constant}) {
        o.norm = norm;
        // Weights as they are now; they stay what they are while the parameters move.
        std::vector<std::vector<double>> weight = s.log_pi();
        int64_t tokens = 0;
        bool low = false, high = false;
        for (size_t i = 0; i < weight.size(); i++)
            for (size_t a = 0; a < weight[i].size(); a++, tokens++) {
                double w = std::exp(weight[i][a] - double(s.answers[i].old_logp[a]));
                low = low || w < o.weight_min, high = high || w > o.weight_max;
                weight[i][a] = std::min(std::max(w, o.weight_min), o.weight_max);
            }
        REQUIRE((low && high));
        auto loss = [&] {
            s.model.weights_changed();
            double sum = 0;
            std::vector<std::vector<double>> logp = s.log_pi();
            for (size_t i = 0; i < logp.size(); i++)
                for (size_t a = 0; a < logp[i].size(); a++)
                    sum -= weight[i][a] * s.answers[i].advantage * logp[i][a] *
                           (norm == LossNorm::token      ? 1.0 / double(tokens)
                            : norm == LossNorm::sequence ? 1.0 / double(logp[i].size() * logp.size())
                                                         : 1.0 / double(logp.size() * 20));
            return sum;
        };
        std::vector<double> gradient = s.gradient(o), x = parameters(s.model);
        auto at_x = [&] {
            std::copy(x.begin(), x.end(), s.model.params());
            return loss();
        };
        check_gradient(x, gradient, at_x, "cispo", 1e-6, 120);
        std::copy(x.begin(), x.end(), s.model.params());
        s.model.weights_changed();
    }
}

TEST_CASE("cispo: a clipped token's gradient is -cap * A * d log pi", "[cispo]") {
    Setting s;
    s.answers.resize(1);
    Trajectory& t = s.answers[0];
    CispoOptions o;
    o.weight_max = 2;
    const std::vector<double> whole = s.gradient(o);  // every weight is 1: sum of -A / n * d log pi
    REQUIRE(t.advantage == 1.5);
    for (float& old : t.old_logp) old -= 3;  // every weight is e^3, cut to 2
    const std::vector<double> clipped = s.gradient(o);
    double largest = 0;
    for (double g : whole) largest = std::max(largest, std::fabs(g));
    REQUIRE(largest > 0);
    for (size_t i = 0; i < whole.size(); i++)
        REQUIRE(clipped[i] == Approx(2 * whole[i]).margin(1e-6 * largest));
    CispoStatistics stats;
    cispo_gradient(s.trainer, s.answers, o, stats);
    REQUIRE(stats.clipped == stats.tokens);
    REQUIRE(stats.ratio / stats.tokens == Approx(std::exp(3)));
}

TEST_CASE("cispo: passes change nothing, for every norm", "[cispo]") {
    for (LossNorm norm : {LossNorm::token, LossNorm::sequence, LossNorm::constant}) {
        Setting s;
        s.drift();
        s.answers[1].learned = false;
        CispoOptions o;
        o.norm = norm, o.limit = 20;
        std::vector<double> one;
        double loss = 0;
        for (int budget : {64, 24, 12}) {  // 1, 2 and 3 or 4 passes
            Trainer<Double> trainer(s.model, TrainOptions{}, budget, 0);
            s.model.zero_gradients();
            CispoStatistics stats;
            double l = cispo_gradient(trainer, s.answers, o, stats);
            std::vector<double> g(s.model.gradients(), s.model.gradients() + s.model.layout.total);
            s.model.zero_gradients();
            if (one.empty()) {
                one = g, loss = l;
                continue;
            }
            REQUIRE(l == Approx(loss).epsilon(1e-12));
            for (size_t i = 0; i < g.size(); i++) REQUIRE(g[i] == Approx(one[i]).margin(1e-12));
        }
    }
}

TEST_CASE("cispo: masked answers and those without advantage", "[cispo]") {
    Setting s;
    CispoOptions o;
    o.norm = LossNorm::token;
    const std::vector<double> all = s.gradient(o);
    CispoStatistics stats;
    s.answers[3].learned = false;
    double kept = 0;
    for (int i = 0; i < 3; i++) kept += s.answers[size_t(i)].answer();
    cispo_gradient(s.trainer, s.answers, o, stats);
    REQUIRE(stats.tokens == kept);  // masked: out of the sum and out of the norm
    s.model.zero_gradients();

    // Advantage 0: out of the sum, but its tokens still divide.
    Setting z;
    z.answers[3].advantage = 0;
    const std::vector<double> zero = z.gradient(o), masked = s.gradient(o);
    const double ratio = kept / (kept + z.answers[3].answer());
    for (size_t i = 0; i < zero.size(); i++) REQUIRE(zero[i] == Approx(masked[i] * ratio).margin(1e-12));

    for (Trajectory& t : z.answers) t.advantage = 0;
    for (double g : z.gradient(o)) REQUIRE(g == 0);
    o.kl_coef = 0.1;
    for (Trajectory& t : z.answers) {
        t.ref_logp = t.rollout_logp;
        for (float& l : t.ref_logp) l -= 1;
    }
    double largest = 0;
    for (double g : z.gradient(o)) largest = std::max(largest, std::fabs(g));
    REQUIRE(largest > 0);  // a KL term learns from them all the same
}

TEST_CASE("cispo: a planted NaN is skipped, counted, and leaves no trace", "[cispo]") {
    Setting s, clean;
    for (Setting* x : {&s, &clean}) {
        x->drift();
        x->trainer.options.schedule = "constant";  // others count skipped updates as steps
        x->trainer.options.warmup = 0;
    }
    const CispoOptions o;
    auto update = [&](Setting& x) {
        CispoStatistics stats;
        return x.trainer.update(cispo_gradient(x.trainer, x.answers, o, stats));
    };
    const std::vector<double> before = parameters(s.model);
    const float good = s.answers[1].old_logp[2];
    for (float bad : {NAN, -INFINITY}) {
        s.answers[1].old_logp[2] = bad;
        s.answers[2].advantage = double(bad);
        REQUIRE(update(s).skipped);
        REQUIRE(s.trainer.in_trouble());
        REQUIRE((parameters(s.model) == before));
        s.answers[1].old_logp[2] = good;
        s.answers[2].advantage = clean.answers[2].advantage;
    }
    REQUIRE(s.trainer.skipped == 2);
    REQUIRE(!update(s).skipped);
    REQUIRE(!s.trainer.in_trouble());
    update(clean);
    // Nothing of the planted numbers is left in gradients or moments.
    REQUIRE((parameters(s.model) == parameters(clean.model)));
    REQUIRE(s.trainer.updates == 1);
}

TEST_CASE("cispo: on-policy weights are exactly 1; a sampler that cuts is corrected for", "[cispo]") {
    Setting s;
    CispoOptions o;
    CispoStatistics stats;
    cispo_gradient(s.trainer, s.answers, o, stats);
    // Old log-probabilities are floats, the tiny model is double: 1 up to that rounding.
    REQUIRE(stats.ratio_max == Approx(1).epsilon(1e-6));
    REQUIRE(stats.ratio_min == Approx(1).epsilon(1e-6));

    Threads one(1);
    const ModelSource source("data/ledger/base", ModelOptions{});
    Cpu device;
    Model<Cpu> model(device, source.config);
    model.load(source.folder);
    Trainer<Cpu> trainer(model, TrainOptions{}, 4096, 0);
    ProblemKeys keys;
    keys.format = AnswerFormat::ledger;
    std::vector<EncodedProblem> problems = encode_problems({"data/ledger/rl.jsonl"}, source, keys, "", 8);
    RolloutOptions r;
    r.prompts_per_step = 8, r.group_size = 4, r.max_new_tokens = 60;
    for (Sampling sampling : {Sampling{}, Sampling{0.8, 1, 0}, Sampling{1.2, 0.7, 0}, Sampling{1, 1, 2}}) {
        r.sampling = sampling;
        o.temperature = sampling.temperature;
        Order order(problems.size(), 1);
        int64_t cursor = 0;
        StepRollouts step = rollout_step(model, r, source, problems, order, cursor);
        double least = 0;
        for (Trajectory& t : step.trajectories) {
            t.advantage = 1;
            t.old_logp = t.drawn_from(t.rollout_logp);
            REQUIRE(t.log_kept.size() == (sampling.filtered(source.config.vocab) ? size_t(t.answer()) : 0));
            for (float kept : t.log_kept) {
                REQUIRE(kept <= 0);
                if (sampling.top_k == 0) REQUIRE(kept >= std::log(sampling.top_p) - 1e-5);
                least = std::min(least, double(kept));
            }
        }
        REQUIRE((least < 0) == sampling.filtered(source.config.vocab));
        CispoStatistics drawn;
        cispo_gradient(trainer, step.trajectories, o, drawn);
        model.zero_gradients();
        REQUIRE(drawn.gap_max == 0);  // trainer and rollout agree bit for bit
        if (sampling.filtered(source.config.vocab)) {
            // pi / (pi / kept): the kept share
            REQUIRE(drawn.ratio_min == Approx(std::exp(least)).epsilon(1e-6));
            REQUIRE(drawn.ratio_max <= 1 + 1e-6);
        } else {
            REQUIRE(drawn.ratio_min == 1);
            REQUIRE(drawn.ratio_max == 1);
        }
    }
}

TEST_CASE("cispo: refill has a limit", "[cispo]") {
    Threads one(1);
    const ModelSource source("data/ledger/base", ModelOptions{});
    Cpu device;
    Model<Cpu> model(device, source.config);
    model.load(source.folder);
    ProblemKeys keys;
    keys.format = AnswerFormat::ledger;
    std::vector<EncodedProblem> problems = encode_problems({"data/ledger/rl.jsonl"}, source, keys, "", 5);
    RolloutOptions r;
    r.prompts_per_step = 3, r.group_size = 2, r.max_new_tokens = 4;  // too short for any right answer
    r.refill = 7;
    Order order(problems.size(), 1);
    int64_t cursor = 0;
    StepRollouts step = rollout_step(model, r, source, problems, order, cursor);
    REQUIRE(cursor == 3 * 8);  // the first round and seven more
    REQUIRE(step.trajectories.size() == 6);
    REQUIRE(step.rows.size() == 48);
    REQUIRE(step.statistics.groups.zero_std == 24);
    REQUIRE(step.statistics.truncated == 48);

    // With time for an answer, groups with spread are kept and only the others are drawn anew.
    r.max_new_tokens = 60, r.sampling.temperature = 2, r.group_size = 8, r.prompts_per_step = 4;
    cursor = 0;
    StepRollouts spread = rollout_step(model, r, source, problems, order, cursor);
    REQUIRE(spread.trajectories.size() == 32);
    int kept = 0;
    for (const Json& row : spread.rows) kept += row["trained"] == true;
    REQUIRE(kept == 32);
    REQUIRE(int64_t(spread.rows.size()) == cursor * 8);
}
