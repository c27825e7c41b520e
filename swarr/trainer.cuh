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
#include "comm.h"
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
// `layer_done`: as Model::backward.
template <class Device, class LayerDone>
TokenLossSum loss_pass(Model<Device>& model, TokenLossWorkspace<Device>& workspace, const Batch& batch,
                       DeviceTokenLoss<Device> args, bool learn, LayerDone layer_done) {
    model.forward(batch);
    args.N = batch.tokens(), args.D = model.config.hidden, args.V = model.config.vocab;
    args.x = model.hidden();
    args.w = model.head();
    args.dx = learn ? model.hidden_gradient() : nullptr;
    args.dw = learn ? model.head_gradient() : nullptr;
    TokenLossSum sum = token_loss_forward_backward(model.dev, workspace, args);
    if (learn) model.backward(layer_done);
    return sum;
}
template <class Device>
TokenLossSum loss_pass(Model<Device>& model, TokenLossWorkspace<Device>& workspace, const Batch& batch,
                       const DeviceTokenLoss<Device>& args) {
    return loss_pass(model, workspace, batch, args, false, [](int) {});
}

// A model folder: config, the given weights on the host in F32, and the tokenizer's files as they are in
// `source`.
template <class Device>
void write_model_folder(const Model<Device>& model, const typename Device::stat* host,
                        const std::string& source, const std::string& folder) {
    ModelConfig config = model.config;
    config.dtype = "float32";
    save_config(config, folder);
    SafetensorsWriter writer;
    model.add_parameters(writer, "", host, Dtype::F32);
    writer.write_model(folder);
    carry_files(source, folder);
}

// A run of the flat buffer whose gradients are complete at the same time: the embedding, the matrices of each
// layer, an untied head, and at the end norms and biases. In the order of the buffer, without gaps.
struct Bucket {
    size_t begin, end;
    size_t size() const { return end - begin; }
};
inline std::vector<Bucket> gradient_buckets(const Layout& layout) {
    std::vector<size_t> begin = {layout.embed};
    for (const Layout::Layer& l : layout.layer) begin.push_back(l.wqkv);
    if (layout.head != layout.embed) begin.push_back(layout.head);
    begin.push_back(layout.matrices);
    begin.push_back(layout.total);
    std::vector<Bucket> out;
    for (size_t i = 0; i + 1 < begin.size(); i++) out.push_back({begin[i], begin[i + 1]});
    return out;
}

template <class Device>
class Trainer {
  public:
    using T = typename Device::real;
    using S = typename Device::stat;

    // The weights are the model's; load_weights() brings others.
    Trainer(Model<Device>& model, const TrainOptions& options, int max_tokens_per_pass, int recompute,
            Ranks& ranks = Ranks::alone())
        : model(model),
          options(options),
          max_tokens(max_tokens_per_pass),
          ranks(ranks),
          comm_(model.dev, ranks),
          buckets_(gradient_buckets(model.layout)) {
        model.prepare_training(max_tokens, recompute);
        const size_t n = divide_parameters();
        m_ = Buffer<S, Device>(model.dev, n, Memory::optimizer);
        v_ = Buffer<S, Device>(model.dev, n, Memory::optimizer);
        if constexpr (masters) {
            masters_ = Buffer<S, Device>(model.dev, n, Memory::optimizer);
            std::vector<S> space;
            const S* host = model.dev.view(model.params(), model.layout.total, space);
            for (const Part& p : parts_) model.dev.put(masters_.data() + p.at, host + p.begin, p.size);
        }
        workspace_ = std::make_unique<TokenLossWorkspace<Device>>(model.dev, max_tokens, model.config.hidden,
                                                                  model.config.vocab);
    }

    // The weights that are updated and saved: the model's own, or, where the model computes with fewer bits,
    // masters of which the model holds a rounded copy (of several ranks, each has its parts of them).
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
        if constexpr (masters) {
            read_parts(reader, "", masters_.data());
            cast_weights(model.dev, model.params(), model.gradients(), model.layout.total);
            model.zero_gradients();
        } else {
            model.read_parameters(reader, "", model.params());
        }
        model.weights_changed();
    }

    Model<Device>& model;
    TrainOptions options;
    const int max_tokens;
    Ranks& ranks;
    int64_t updates = 0, skipped = 0;  // done; left out because a number was not finite

    bool packing = true;  // several documents in a pass
    // The passes of this rank's sequences. What they learn must be all that the next update does; then
    // all_passed() follows, on every rank.
    template <class Pass>
    void each_pass(const std::vector<Sequence>& sequences, Pass pass) {
        reduced_ = 0;
        ::each_pass(sequences, max_tokens, packing, [&](const Batch& batch, size_t first, size_t last) {
            final_pass_ = last == sequences.size();
            pass(batch, first, last);
        });
        final_pass_ = false;
    }
    // Sums what is left to sum of the gradients: the last buckets, or all of them if this rank had no pass.
    void all_passed() {
        reduce(buckets_.size());
        comm_.finish();
    }

    // Mean loss over the targets of all sequences, which the ranks divide among them; adds this rank's part of
    // its gradient if `learn`. A batch without targets has loss 0 and no gradient.
    double supervised(const std::vector<Sequence>& batch_of_all, bool learn) {
        int64_t targets = 0;
        for (const Sequence& s : batch_of_all) targets += s.targets();
        if (targets == 0) return 0;
        std::vector<Sequence> share;
        if (ranks.size() > 1) share = ranks.share(batch_of_all);
        const std::vector<Sequence>& sequences = ranks.size() > 1 ? share : batch_of_all;
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
        if (learn) all_passed();
        return ranks.sum("the loss", loss);
    }

    // One pass: forward, loss, and backward if `learn`. `args` brings targets, coefficients, scale and where
    // results go; the rest is filled in here.
    TokenLossSum run(const Batch& batch, const DeviceTokenLoss<Device>& args, bool learn) {
        return loss_pass(model, *workspace_, batch, args, learn, [&](int l) {
            if (final_pass_) reduce(buckets_.size() - 2 - size_t(l));
        });
    }
    TokenLossWorkspace<Device>& workspace() { return *workspace_; }

    // AdamW on the gathered gradients, which are zeroed. A loss (of all ranks) or gradient that is not finite
    // leaves the weights as they are and is counted; errors: more than options.max_skips of those in a row.
    UpdateResult update(double loss) {
        UpdateResult result;
        double square = 0;
        for (const Part& p : parts_)
            square += std::pow(global_norm(model.dev, model.gradients() + p.begin, p.size), 2);
        result.grad_norm = std::sqrt(ranks.sum("the gradient's norm", square));
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
            for (const Part& p : parts_)
                adamw_update(model.dev, weights() + (masters ? p.at : p.begin), m_.data() + p.at,
                             v_.data() + p.at, model.gradients() + p.begin, p.size, adam,
                             float(p.begin < model.layout.matrices ? options.weight_decay : 0), scale,
                             updates);
            publish();
        }
        model.zero_gradients();
        return result;
    }

    // The last update was left out: what these weights give is not finite, so a checkpoint of them may be no
    // place to start from again.
    bool in_trouble() const { return skips_in_a_row_ > 0; }

    // A checkpoint: the model folder with the tokenizer's files of `source`, optimizer.safetensors, and this
    // class's part of trainer.json. Every rank calls it; the first one writes.
    void save(const std::string& source, const std::string& folder, Json& state) {
        std::vector<S> m, v;
        {
            std::vector<S> space;
            const S* w = masters ? gathered(masters_.data(), space)
                                 : model.dev.view(model.params(), model.layout.total, space);
            if (ranks.first()) write_model_folder(model, w, source, folder);
        }
        const S *of_m = gathered(m_.data(), m), *of_v = gathered(v_.data(), v);
        if (!ranks.first()) return;
        SafetensorsWriter writer;
        model.add_parameters(writer, "m.", of_m, Dtype::F32);
        model.add_parameters(writer, "v.", of_v, Dtype::F32);
        writer.write(folder + "/optimizer.safetensors");
        state["updates"] = updates;
        state["skipped_updates"] = skipped;
        state["skips_in_a_row"] = skips_in_a_row_;
    }
    // What save() wrote, with any number of ranks.
    void load(const std::string& folder, const Json& state) {
        SafetensorsReader reader = SafetensorsReader::open(folder + "/optimizer.safetensors");
        read_parts(reader, "m.", m_.data());
        read_parts(reader, "v.", v_.data());
        model.zero_gradients();
        Fields fields(state, folder + "/trainer.json");
        updates = fields.integer("updates", 0, int64_t(1) << 60);
        skipped = fields.integer("skipped_updates", 0, int64_t(1) << 60);
        skips_in_a_row_ = int(fields.integer("skips_in_a_row", 0, 1 << 30));
    }

  private:
    // What this rank updates (ZeRO-1): its shard of every bucket, neighbours joined. The optimizer's state and
    // the masters hold the parts one after another.
    struct Part {
        size_t begin, size;  // in the flat buffer
        size_t at;           // in the state
    };
    // Returns the numbers in all parts. One rank has two: what is decayed and what is not.
    size_t divide_parameters() {
        size_t total = 0;
        for (const Bucket& b : buckets_) {
            const Shard s = comm_.shard(b.size());
            const size_t begin = b.begin + s.begin;
            if (s.size == 0) continue;
            if (!parts_.empty() && parts_.back().begin + parts_.back().size == begin &&
                begin != model.layout.matrices)
                parts_.back().size += s.size;
            else
                parts_.push_back({begin, s.size, total});
            total += s.size;
        }
        return total;
    }

    // Begins to sum gradients over the ranks, until that many buckets are on their way: in the order in which a
    // backward pass completes them, from the head or the last layer down to the embedding; norms and biases,
    // the last bucket, come at the end.
    void reduce(size_t buckets) {
        for (const size_t n = buckets_.size() - 1; reduced_ < buckets; reduced_++) {
            const Bucket& b = buckets_[reduced_ < n ? n - 1 - reduced_ : n];
            comm_.reduce_scatter(model.gradients() + b.begin, b.size());
        }
    }

    // The model's copy of the weights, after a change of every rank's parts.
    void publish() {
        if constexpr (masters)
            for (const Part& p : parts_)
                cast_weights(model.dev, model.params() + p.begin, masters_.data() + p.at, p.size);
        for (const Bucket& b : buckets_) comm_.all_gather(model.params() + b.begin, b.size());
        comm_.finish();
        model.weights_changed();
    }

    // An array laid out like m_, whole, for the first rank's host to read; the others get nullptr. The
    // gradients' memory serves several ranks as the place to meet; between updates there is nothing in it.
    const S* gathered(const S* mine, std::vector<S>& space) {
        const size_t n = model.layout.total;
        if (ranks.size() == 1) return model.dev.view(mine, n, space);
        S* all = model.gradients();
        for (const Part& p : parts_) model.dev.copy(all + p.begin, mine + p.at, p.size * sizeof(S));
        for (const Bucket& b : buckets_) comm_.all_gather(all + b.begin, b.size());
        comm_.finish();
        if (ranks.first()) {
            space.resize(n);
            model.dev.download(space.data(), all, n * sizeof(S));
        }
        model.zero_gradients();
        return ranks.first() ? space.data() : nullptr;
    }
    // The other way: this rank's parts of what is in a file. All of it is left in the gradients' memory.
    void read_parts(const SafetensorsReader& reader, const std::string& prefix, S* to) {
        model.read_parameters(reader, prefix, model.gradients());
        for (const Part& p : parts_)
            model.dev.copy(to + p.at, model.gradients() + p.begin, p.size * sizeof(S));
    }

    Comm<Device> comm_;
    const std::vector<Bucket> buckets_;
    std::vector<Part> parts_;
    size_t reduced_ = 0;  // buckets on their way
    bool final_pass_ = false;
    Buffer<S, Device> m_, v_, masters_;
    std::unique_ptr<TokenLossWorkspace<Device>> workspace_;
    int skips_in_a_row_ = 0;
};

// What training takes on each rank, by category.
template <class Device>
MemoryPlan training_memory(const ModelConfig& c, int max_tokens, int recompute, int ranks = 1) {
    using S = typename Device::stat;
    const double parameters = double(Layout(c).total) * sizeof(S);
    const int states = Trainer<Device>::masters ? 3 : 2;
    return {{"weights", double(Model<Device>::weight_bytes(c) + Model<Device>::rope_bytes(c, max_tokens))},
            {"gradients", parameters},
            {"optimizer", states * parameters / ranks},
            {"activations", double(Model<Device>::activation_bytes(c, max_tokens, recompute, true))},
            {"workspace", double(TokenLossWorkspace<Device>::bytes(max_tokens, c.hidden, c.vocab) +
                                 Model<Device>::scratch_bytes(c, max_tokens))}};
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
