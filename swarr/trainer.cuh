// trainer.cuh: what every training loop shares: optimizer state, learning-rate schedule, micro-batches, the
// update with its guard against numbers that are not finite, and the state that makes a resumed run equal to
// one that never stopped.
//
// A batch is a list of sequences with a coefficient for each target token. It is cut into passes of at most
// --max-tokens-per-pass tokens; the sum of the losses is divided once, by the target tokens of the whole
// batch. Gradients add in the order of tokens, so the cut changes no bit of an untied model; a tied embedding gathers
// from both ends of the model pass by pass, and differs by rounding.
#pragma once
#include <cmath>
#include <memory>

#include "checkpoint.h"
#include "cli.h"
#include "data.h"
#include "memory_plan.h"
#include "model.cuh"

struct TrainOptions {
    double lr = 1e-4, min_lr = 0, weight_decay = 0.1, clip = 1;
    std::string schedule = "cosine";
    int64_t steps = 100, warmup = 0;
    double beta1 = 0.9, beta2 = 0.95, eps = 1e-8;
    int max_skips = 10;

    void add_to(Cli& cli) {
        cli.option("--lr", lr, "peak learning rate", "Optimizer")->check(CLI::NonNegativeNumber);
        cli.option("--min-lr", min_lr, "learning rate at the end of the schedule", "Optimizer")
            ->check(CLI::NonNegativeNumber);
        cli.option("--schedule", schedule, "constant, linear or cosine, after the warm-up", "Optimizer")
            ->check(CLI::IsMember({"constant", "linear", "cosine"}));
        cli.option("--warmup", warmup, "steps of linear warm-up", "Optimizer")->check(CLI::NonNegativeNumber);
        cli.option("--steps", steps, "optimizer steps", "Optimizer")->check(CLI::NonNegativeNumber);
        cli.option("--weight-decay", weight_decay, "decoupled; not for norms and biases", "Optimizer")
            ->check(CLI::NonNegativeNumber);
        cli.option("--clip", clip, "largest global norm of the gradient; 0 = no clipping", "Optimizer")
            ->check(CLI::NonNegativeNumber);
        cli.option("--beta1", beta1, "AdamW", "Optimizer")->check(CLI::Range(0.0, 0.9999999));
        cli.option("--beta2", beta2, "AdamW", "Optimizer")->check(CLI::Range(0.0, 0.9999999));
        cli.option("--eps", eps, "AdamW", "Optimizer")->check(CLI::PositiveNumber);
        cli.option("--max-skips", max_skips, "updates in a row that may be skipped for a NaN or Inf",
                   "Optimizer")
            ->check(CLI::PositiveNumber);
    }
};

// Step 0 is the first. Warm-up rises linearly to lr; then from lr to min_lr over the remaining steps.
inline double learning_rate(const TrainOptions& o, int64_t step) {
    if (step < o.warmup) return o.lr * double(step + 1) / double(o.warmup);
    if (o.schedule == "constant" || o.steps <= o.warmup) return o.lr;
    double t = std::min(1.0, double(step - o.warmup) / double(o.steps - o.warmup));
    double fall = o.schedule == "linear" ? 1 - t : 0.5 * (1 + std::cos(3.141592653589793 * t));
    return o.min_lr + (o.lr - o.min_lr) * fall;
}

struct UpdateResult {
    double grad_norm = 0, lr = 0;
    bool skipped = false;
};

// Calls pass(batch, first, last) for runs of sequences that fit into one pass of `max_tokens` together.
// Errors: a sequence longer than a pass.
template <class Pass>
void each_pass(const std::vector<Sequence>& sequences, int max_tokens, bool packing, Pass pass) {
    Batch batch;
    for (size_t first = 0, last; first < sequences.size(); first = last) {
        batch.clear();
        for (last = first; last < sequences.size(); last++) {
            const std::vector<int>& token = sequences[last].token;
            if (int(token.size()) > max_tokens)
                fail(format("a sequence of %zu tokens does not fit into a pass of %d", token.size(),
                            max_tokens),
                     "raise --max-tokens-per-pass or lower --max-length");
            if (last > first && (batch.tokens() + int(token.size()) > max_tokens || !packing)) break;
            batch.add(token.data(), int(token.size()));
        }
        pass(static_cast<const Batch&>(batch), first, last);
    }
}

// One pass over packed documents: forward, loss, and backward if `learn`. `args` brings targets,
// coefficients, scale and where results go; sizes, hidden states and gradients are filled in here.
template <class Device>
TokenLossSum loss_pass(Model<Device>& model, TokenLossWorkspace<Device>& workspace, const Batch& batch,
                       DeviceTokenLoss<Device> args, bool learn) {
    model.forward(batch);
    args.N = batch.tokens(), args.D = model.config.hidden, args.V = model.config.vocab;
    args.x = model.hidden();
    args.w = model.head();
    args.dx = learn ? model.hidden_gradient() : nullptr;
    args.dw = learn ? model.head_gradient() : nullptr;
    TokenLossSum sum = token_loss_forward_backward(model.dev, workspace, args);
    if (learn) model.backward();
    return sum;
}

template <class Device>
class Trainer {
  public:
    using T = typename Device::real;
    using S = typename Device::stat;

    // The weights are the model's; load_weights() brings others.
    Trainer(Model<Device>& model, const TrainOptions& options, int max_tokens_per_pass, int recompute)
        : model(model), options(options), max_tokens(max_tokens_per_pass) {
        model.prepare_training(max_tokens, recompute);
        const size_t n = model.layout.total;
        m_ = Buffer<S, Device>(model.dev, n, Memory::optimizer);
        v_ = Buffer<S, Device>(model.dev, n, Memory::optimizer);
        if constexpr (masters) {
            masters_ = Buffer<S, Device>(model.dev, n, Memory::optimizer);
            std::vector<S> host;
            model.dev.put(masters_.data(), model.dev.view(model.params(), n, host), n);
        }
        workspace_ = std::make_unique<TokenLossWorkspace<Device>>(model.dev, max_tokens, model.config.hidden,
                                                                  model.config.vocab);
    }

    // The weights that are updated and saved: the model's own, or, where the model computes with fewer bits,
    // masters of which the model holds a rounded copy.
    static constexpr bool masters = !std::is_same_v<T, S>;
    S* weights() {
        if constexpr (masters)
            return masters_.data();
        else
            return model.params();
    }
    const S* weights() const { return const_cast<Trainer*>(this)->weights(); }

    // From a model folder. Errors: as Model::load.
    void load_weights(const std::string& folder) {
        SafetensorsReader reader = SafetensorsReader::open(folder);
        check_weights(reader, model.config);
        model.read_parameters(reader, "", weights());
        publish();
    }

    Model<Device>& model;
    TrainOptions options;
    const int max_tokens;
    int64_t updates = 0, skipped = 0;  // done; left out because a number was not finite

    bool packing = true;  // several documents in a pass
    template <class Pass>
    void each_pass(const std::vector<Sequence>& sequences, Pass pass) const {
        ::each_pass(sequences, max_tokens, packing, pass);
    }

    // Mean loss over the targets of all sequences; adds its gradient if `learn`.
    // A batch without targets has loss 0 and no gradient.
    double supervised(const std::vector<Sequence>& sequences, bool learn) {
        int64_t targets = 0;
        for (const Sequence& s : sequences) targets += s.targets();
        if (targets == 0) return 0;
        double loss = 0;
        this->each_pass(sequences, [&](const Batch& batch, size_t first, size_t last) {
            std::vector<int> target;
            std::vector<S> coefficient;
            for (size_t i = first; i < last; i++) {
                const Sequence& s = sequences[i];
                target.insert(target.end(), s.target.begin(), s.target.end());
                if (s.coefficient.empty())
                    coefficient.insert(coefficient.end(), s.token.size(), S(1));
                else
                    coefficient.insert(coefficient.end(), s.coefficient.begin(), s.coefficient.end());
            }
            DeviceTokenLoss<Device> args;
            args.targets = target.data();
            args.coefficient = coefficient.data();
            args.scale = 1.0 / double(targets);
            loss += run(batch, args, learn).loss;
        });
        return loss;
    }

    // One pass: forward, loss, and backward if `learn`. `args` brings targets, coefficients, scale and where
    // results go; the rest is filled in here.
    TokenLossSum run(const Batch& batch, const DeviceTokenLoss<Device>& args, bool learn) {
        return loss_pass(model, *workspace_, batch, args, learn);
    }
    TokenLossWorkspace<Device>& workspace() { return *workspace_; }

    // AdamW on the gathered gradients, which are zeroed. A loss or gradient that is not finite leaves the
    // weights as they are and is counted; errors: more than options.max_skips of those in a row.
    UpdateResult update(double loss) {
        UpdateResult result;
        const Layout& layout = model.layout;
        result.grad_norm = global_norm(model.dev, model.gradients(), layout.total);
        result.lr = learning_rate(options, updates + skipped);
        result.skipped = !std::isfinite(loss) || !std::isfinite(result.grad_norm);
        if (result.skipped) {
            skipped++;
            if (++skips_in_a_row_ > options.max_skips)
                fail(format("%d updates in a row had a loss or gradient that is not finite", skips_in_a_row_),
                     "start anew from the last checkpoint (--model RUN) with a lower --lr, or a smaller "
                     "--clip");
        } else {
            skips_in_a_row_ = 0;
            updates++;
            AdamW adam;
            adam.lr = float(result.lr), adam.beta1 = float(options.beta1), adam.beta2 = float(options.beta2);
            adam.eps = float(options.eps);
            S scale =
                S(options.clip > 0 && result.grad_norm > options.clip ? options.clip / result.grad_norm : 1);
            auto part = [&](size_t from, size_t to, double decay) {
                adamw_update(model.dev, weights() + from, m_.data() + from, v_.data() + from,
                             model.gradients() + from, to - from, adam, float(decay), scale, updates);
            };
            part(0, layout.matrices, options.weight_decay);
            part(layout.matrices, layout.total, 0);
            publish();
        }
        model.zero_gradients();
        return result;
    }

    // The trainer's part of a checkpoint: optimizer.safetensors. The model's weights are in its folder, in
    // F32.
    void save(const std::string& folder, Json& state) const {
        SafetensorsWriter writer;
        std::vector<S> m, v;
        model.add_parameters(writer, "m.", model.dev.view(m_.data(), m_.size(), m), Dtype::F32);
        model.add_parameters(writer, "v.", model.dev.view(v_.data(), v_.size(), v), Dtype::F32);
        writer.write(folder + "/optimizer.safetensors");
        state["updates"] = updates;
        state["skipped_updates"] = skipped;
        state["skips_in_a_row"] = skips_in_a_row_;
    }
    void load(const std::string& folder, const Json& state) {
        SafetensorsReader reader = SafetensorsReader::open(folder + "/optimizer.safetensors");
        model.read_parameters(reader, "m.", m_.data());
        model.read_parameters(reader, "v.", v_.data());
        Fields fields(state, folder + "/trainer.json");
        updates = fields.integer("updates", 0, int64_t(1) << 60);
        skipped = fields.integer("skipped_updates", 0, int64_t(1) << 60);
        skips_in_a_row_ = int(fields.integer("skips_in_a_row", 0, 1 << 30));
    }

  private:
    // The model's copy of the weights, after a change.
    void publish() {
        if constexpr (masters) cast_weights(model.dev, model.params(), masters_.data(), masters_.size());
        model.weights_changed();
    }

    Buffer<S, Device> m_, v_, masters_;
    std::unique_ptr<TokenLossWorkspace<Device>> workspace_;
    int skips_in_a_row_ = 0;
};

// What training takes, by category.
template <class Device>
MemoryPlan training_memory(const ModelConfig& c, int max_tokens, int recompute) {
    using S = typename Device::stat;
    const double parameters = double(Layout(c).total) * sizeof(S);
    const int states = Trainer<Device>::masters ? 3 : 2;
    return {{"weights", double(Model<Device>::weight_bytes(c))},
            {"gradients", parameters},
            {"optimizer", states * parameters},
            {"activations", double(Model<Device>::activation_bytes(c, max_tokens, recompute, true))},
            {"workspace", double(TokenLossWorkspace<Device>::bytes(max_tokens, c.hidden, c.vocab))}};
}

// Tokens, targets and floating-point operations of a step that trains on these sequences.
struct StepCost {
    double tokens = 0, targets = 0, flops = 0;
};
inline StepCost step_cost(const ModelConfig& c, const std::vector<Sequence>& sequences) {
    StepCost cost;
    std::vector<int> start = {0};
    for (const Sequence& s : sequences) {
        start.push_back(start.back() + int(s.token.size()));
        cost.targets += s.targets();
    }
    cost.tokens = start.back();
    double head = 2.0 * c.vocab * c.hidden * cost.targets;  // only where something is learned
    cost.flops = 3 * (forward_flops(c, start, false) + head);
    return cost;
}

// A model folder: config, the given weights (the model's own or its trainer's) in F32, and the tokenizer's
// files as they are in `source`.
template <class Device, class Number>
void write_model_folder(const Model<Device>& model, const Number* weights, const std::string& source,
                        const std::string& folder) {
    ModelConfig config = model.config;
    config.dtype = "float32";
    save_config(config, folder);
    SafetensorsWriter writer;
    std::vector<typename Device::stat> space;
    model.add_parameters(writer, "", model.dev.view(weights, model.layout.total, space), Dtype::F32);
    writer.write_model(folder);
    carry_files(source, folder);
}
