// model.cuh: a decoder of the Qwen2 / Qwen3 / Llama family: parameters, activations, forward, backward.
//
//   x = embed[token]
//   each layer:  x += Wo attention(rope(norm_qk(Wqkv norm1(x) + b)))
//                x += Wdown swiglu(Wgu norm2(x))
//   logits = Whead norm(x)          (fused with the loss in token_loss.cuh; N x V logits never exist)
//
// Parameters lie in one flat buffer, matrices first, then norms and biases (which are not decayed). The rows
// of q, k and v are neighbours, so that one matrix product makes the fused (N, Q) rows; likewise gate and up.
// Gradients have the same layout and accumulate until zero_gradients().
//
// Recompute levels: 0 keeps every activation; 1 makes the norms' outputs and swiglu's output again in the
// backward pass (cheap, element-wise); 2 keeps each layer's input only and runs the layer again. Same bits at
// every level.
#pragma once
#include <algorithm>
#include <map>
#include <memory>
#include <string>
#include <vector>

#include "config.h"
#include "layers/adamw.cuh"
#include "layers/attention.cuh"
#include "layers/embedding.cuh"
#include "layers/matmul.cuh"
#include "layers/rmsnorm.cuh"
#include "layers/rope.cuh"
#include "layers/swiglu.cuh"
#include "layers/token_loss.cuh"
#include "rng.h"
#include "safetensors.h"

// One tensor under its Hugging Face name.
struct Parameter {
    std::string name;
    std::vector<int64_t> shape;
    size_t offset, size;
};

// Where everything lies in the flat buffer.
struct Layout {
    struct Layer {
        size_t norm1 = 0, wqkv = 0, bqkv = 0, norm_q = 0, norm_k = 0, wo = 0, norm2 = 0, wgu = 0, wdown = 0;
    };
    size_t embed = 0, head = 0, norm = 0;  // head == embed when tied
    std::vector<Layer> layer;
    size_t matrices = 0, total = 0;     // [0, matrices) is decayed, [matrices, total) is not
    std::vector<Parameter> parameters;  // in the order of the buffer

    explicit Layout(const ModelConfig& c) {
        std::map<std::string, std::vector<int64_t>> shapes;
        for (const TensorShape& t : model_tensors(c)) shapes[t.name] = t.shape;
        auto group = [&](const std::string& prefix, const std::vector<std::string>& names) {
            total = (total + 15) / 16 * 16;  // a group starts on a 64-byte line and has no gaps
            size_t start = total;
            for (const std::string& name : names) {
                const std::vector<int64_t>& shape = shapes.at(prefix + name);
                size_t size = 1;
                for (int64_t s : shape) size *= size_t(s);
                parameters.push_back({prefix + name, shape, total, size});
                total += size;
            }
            return start;
        };
        layer.resize(size_t(c.layers));
        auto prefix = [](int l) { return "model.layers." + std::to_string(l) + "."; };

        embed = group("model.", {"embed_tokens.weight"});
        for (int l = 0; l < c.layers; l++) {
            Layer& at = layer[size_t(l)];
            at.wqkv = group(prefix(l) + "self_attn.", {"q_proj.weight", "k_proj.weight", "v_proj.weight"});
            at.wo = group(prefix(l) + "self_attn.", {"o_proj.weight"});
            at.wgu = group(prefix(l) + "mlp.", {"gate_proj.weight", "up_proj.weight"});
            at.wdown = group(prefix(l) + "mlp.", {"down_proj.weight"});
        }
        head = c.tied ? embed : group("", {"lm_head.weight"});
        matrices = total;
        for (int l = 0; l < c.layers; l++) {
            Layer& at = layer[size_t(l)];
            at.norm1 = group(prefix(l), {"input_layernorm.weight"});
            if (c.qkv_bias)
                at.bqkv = group(prefix(l) + "self_attn.", {"q_proj.bias", "k_proj.bias", "v_proj.bias"});
            if (c.qk_norm) {
                at.norm_q = group(prefix(l) + "self_attn.", {"q_norm.weight"});
                at.norm_k = group(prefix(l) + "self_attn.", {"k_norm.weight"});
            }
            at.norm2 = group(prefix(l), {"post_attention_layernorm.weight"});
        }
        norm = group("model.", {"norm.weight"});
    }
};

// Packed documents: no padding, attention never crosses a document.
struct Batch {
    std::vector<int> token, position;  // (N)
    std::vector<int> start = {0};      // (documents + 1): cu_seqlens
    int tokens() const { return int(token.size()); }
    int documents() const { return int(start.size()) - 1; }
    void add(const int* ids, int n) {
        for (int i = 0; i < n; i++) token.push_back(ids[i]), position.push_back(i);
        start.push_back(tokens());
    }
    void clear() {
        token.clear();
        position.clear();
        start.assign(1, 0);
    }
};

// Floating-point operations of one forward pass (a backward pass costs twice that), counting only the keys
// that the window lets a query see: 2 per parameter of a matrix and token, 4 * H * E per visible pair and
// layer.
inline double forward_flops(const ModelConfig& c, const std::vector<int>& start, bool with_head = true) {
    double tokens = start.back();
    double matrices = double(c.heads + 2 * c.kv_heads) * c.head_dim * c.hidden +
                      double(c.hidden) * c.heads * c.head_dim + 3.0 * c.ff * c.hidden;
    double flops = 2 * tokens * (matrices * c.layers + (with_head ? double(c.vocab) * c.hidden : 0));
    for (int l = 0; l < c.layers; l++)
        for (size_t d = 0; d + 1 < start.size(); d++) {
            double T = start[d + 1] - start[d], W = c.window[size_t(l)], S = c.sink_tokens, pairs;
            if (W == 0 || W >= T) {
                pairs = T * (T + 1) / 2;
            } else {
                pairs = W * (W + 1) / 2 + (T - W) * W;
                double outside =
                    std::min(S, T - W);  // sink s is outside the window for queries s + W ... T - 1
                pairs += outside * (T - W) - outside * (outside - 1) / 2;
            }
            flops += 4.0 * pairs * c.heads * c.head_dim;
        }
    return flops;
}

template <class Device>
class Model {
  public:
    using T = typename Device::real;  // weights, activations and their gradients
    using S = typename Device::stat;  // statistics of rows, gradients of weights

    Model(Device& device, const ModelConfig& config)
        : dev(device),
          config(supported(config)),
          layout(config),
          params_(device, layout.total, Memory::weights),
          packed_layer_(size_t(config.layers)) {}

    Device& dev;
    const ModelConfig config;
    const Layout layout;

    T* params() { return params_.data(); }
    const T* params() const { return params_.data(); }
    S* gradients() { return grads_.data(); }
    bool training() const { return grads_.size() != 0; }

    // Weights of a fresh model: normal with deviation 0.02 (GPT-2's), projections into the residual stream
    // scaled by 1 / sqrt(2 L), norms 1, biases 0. Depends on the seed and the tensor's place alone.
    void initialize(uint64_t seed) {
        uint32_t index = 0;
        const Json range = config.original.value("initializer_range", Json(0.02));
        const double base = range.is_number() ? range.get<double>() : 0.02;
        for (const Parameter& p : layout.parameters) {
            bool residual = ends_with(p.name, "o_proj.weight") || ends_with(p.name, "down_proj.weight");
            double deviation = base / (residual ? std::sqrt(2.0 * config.layers) : 1.0);
            std::vector<S> values(p.size);
            for (size_t i = 0; i < p.size; i++)
                values[i] = p.shape.size() == 2 ? S(deviation * normal_at(seed, Stream::init, index, i))
                                                : S(ends_with(p.name, "bias") ? 0 : 1);
            dev.put(params() + p.offset, values.data(), p.size);
            index++;
        }
        weights_changed();
    }

    // From a model folder. Errors: whatever check_weights() and the reader find, NaN and Inf included.
    void load(const std::string& folder) {
        SafetensorsReader reader = SafetensorsReader::open(folder);
        check_weights(reader, config);
        read_parameters(reader, "", params());
        weights_changed();
    }

    // One array laid out like the parameters (weights, or a moment of the optimizer), under prefixed names.
    template <class Number>
    void read_parameters(const SafetensorsReader& reader, const std::string& prefix, Number* to) {
        if constexpr (Device::on_host) {
            std::vector<typename SafetensorsReader::Target<Number>> targets;
            for (const Parameter& p : layout.parameters)
                targets.push_back({&reader.expect(prefix + p.name, p.shape), to + p.offset});
            reader.read_all(targets);
        } else {
            for (const Parameter& p : layout.parameters) {
                std::vector<S> values(p.size);
                reader.read(reader.expect(prefix + p.name, p.shape), values.data());
                dev.put(to + p.offset, values.data(), p.size);
            }
        }
    }
    void add_parameters(SafetensorsWriter& writer, const std::string& prefix, const S* host,
                        Dtype dtype) const {
        for (const Parameter& p : layout.parameters)
            writer.add(prefix + p.name, dtype, p.shape, host + p.offset);
    }

    // Must follow every change of the weights: the packed forms are made again when next needed.
    void weights_changed() { packed_fresh_ = false; }

    // Memory for training passes of up to `max_tokens`.
    void prepare_training(int max_tokens, int recompute) {
        if (!training()) grads_ = Buffer<S, Device>(dev, layout.total, Memory::gradients);
        recompute_ = recompute;
        capacity_ = max_tokens;
        allocate_activations(max_tokens, true);
    }
    void zero_gradients() { dev.zero(grads_.data(), layout.total * sizeof(S)); }

    // Runs all layers; the normed output of the last one is at hidden(). `after_attention(layer, qkv)` sees
    // each layer's fused rows (rotated), from which a prefill fills its cache.
    template <class AfterAttention>
    void forward(const Batch& b, AfterAttention after_attention) {
        const int N = b.tokens();
        reserve(N);
        load_batch(b);
        pack();
        embedding_forward(dev, act_[0].x, token_, params() + layout.embed, N, config.hidden);
        first_norm(0, N);
        for (int l = 0; l < config.layers; l++) {
            layer_inside(l, N, position_, [&](Activations& at) {
                attention_forward(dev, at.att, at.lse, at.qkv, documents_, window(l), config.heads,
                                  config.kv_heads, config.head_dim);
                after_attention(l, at.qkv);
            });
            layer_output(l, N);
        }
    }
    void forward(const Batch& b) {
        forward(b, [](int, const T*) {});
    }

    // One token for each of B sequences, token (B) and position (B) on the device, positions below those that
    // reserve_positions() was told; `attend(layer, att, qkv)` appends to a cache and attends to it.
    template <class Attend>
    void decode(const int* token, const int* position, int B, Attend attend) {
        reserve(B);
        pack();
        embedding_forward(dev, act_[0].x, token, params() + layout.embed, B, config.hidden);
        first_norm(0, B);
        for (int l = 0; l < config.layers; l++) {
            layer_inside(l, B, position,
                         [&](Activations& a) { attend(l, a.att, static_cast<const T*>(a.qkv)); });
            layer_output(l, B);
        }
    }

    // The rotary table grows with the longest document seen, in powers of two.
    void reserve_positions(int longest) {
        if (rope_ && longest <= rope_->positions()) return;
        moves_++;
        rope_ = nullptr;
        rope_ = std::make_unique<RopeTable<Device>>(dev, rope_positions(longest), config.head_dim,
                                                    config.rope_theta);
    }

    // How often buffers that a decoding step uses were allocated anew.
    int moves() const { return moves_; }

    const T* hidden() const { return final_.data(); }  // (N,D)
    T* hidden_gradient() { return d_final_.data(); }   // (N,D), to be filled by token_loss before backward()
    // The output of layer l for the last forward pass, before the next norm (for tests).
    const T* residual(int l) const { return l + 1 < config.layers ? act_[size_t(l + 1)].x : last_.data(); }

    Weight<T> head() const { return weight(layout.head, packed_head_); }
    S* head_gradient() { return grads_.data() + layout.head; }

    // Adds every parameter's gradient of the last forward pass, given hidden_gradient(). layer_done(l) is called
    // when nothing will be added any more to the matrices of layer l and of the layers above, nor to an untied
    // head.
    template <class LayerDone>
    void backward(LayerDone layer_done) {
        const int N = documents_.tokens, D = config.hidden;
        T* dx = d_x_.data();
        rmsnorm_backward(dev, dx, grad(layout.norm), d_final_.data(), last_.data(), final_r_.data(),
                         params() + layout.norm, plain_rows(N, D), D, false);
        for (int l = config.layers - 1; l >= 0; l--) {
            layer_backward(l, dx);
            layer_done(l);
        }
        embedding_backward(dev, grad(layout.embed), token_, dx, N, D);
    }
    void backward() {
        backward([](int) {});
    }

    Window window(int l) const { return {config.window[size_t(l)], config.sink_tokens}; }

    // Bytes that passes of up to `max_tokens` take, by the arithmetic of the allocation itself: the memory
    // plan.
    static size_t activation_bytes(const ModelConfig& c, int max_tokens, int recompute, bool keep) {
        std::vector<Activations> act(size_t(c.layers));
        size_t total = 0, per_token = 3 * sizeof(int);
        each_activation(c, size_t(max_tokens), recompute, keep, act,
                        [&](auto*&, size_t bytes) { total += round64(bytes); });
        for (size_t size : working_sizes(c, keep)) per_token += size * sizeof(T);
        return total + size_t(max_tokens) * (per_token + sizeof(S));
    }

    // c, if the device can train it. Errors: sizes that its kernels do not take.
    static const ModelConfig& supported(const ModelConfig& c) {
        if (Device::on_host) return c;
        auto must = [](bool holds, const char* what, int value, const char* rule) {
            if (!holds)
                fail(format("the CUDA device takes %s %s, not %d", what, rule, value), "use --device cpu");
        };
        must(c.hidden % 8 == 0, "a hidden_size that is", c.hidden, "a multiple of 8");
        must(c.ff % 8 == 0, "an intermediate_size that is", c.ff, "a multiple of 8");
        must(c.head_dim % 16 == 0 && c.head_dim <= 128, "a head_dim that is", c.head_dim,
             "a multiple of 16 up to 128");
        return c;
    }

    // Of the rotary table for documents of up to `longest` tokens.
    static size_t rope_bytes(const ModelConfig& c, int longest) {
        return size_t(rope_positions(longest)) * size_t(c.head_dim) * sizeof(S);
    }
    // The most that a launcher of a training pass asks of the device's scratch memory.
    static size_t scratch_bytes(const ModelConfig& c, int max_tokens) {
        if (Device::on_host) return 0;
        const size_t N = size_t(max_tokens), D = size_t(c.hidden),
                     Q = size_t(c.heads + 2 * c.kv_heads) * size_t(c.head_dim);
        return std::max({N * size_t(c.heads),                     // attention_backward
                         std::min(N / 16 + 1, size_t(1024)) * D,  // rmsnorm_backward
                         c.qkv_bias ? (N / 256 + 1) * Q : 0}) *
               sizeof(S);  // add_tall_column_sums
    }

    // Bytes of the weights and their packed copy, once that is made. Errors: as supported().
    static size_t weight_bytes(const ModelConfig& c) {
        supported(c);
        std::vector<Packed> layers;
        size_t head;
        return (Layout(c).total + place_packed(c, layers, head)) * sizeof(T);
    }

    // Repacks the weights if they changed. Called by forward and decode. A GPU reads them as they are stored.
    void pack() {
        if (packed_fresh_) return;
        packed_layer_.resize(size_t(config.layers));  // places, which a GPU does not use
        if constexpr (Device::on_host) {
            const ModelConfig& c = config;
            const int D = c.hidden, q = c.heads * c.head_dim, Q = (c.heads + 2 * c.kv_heads) * c.head_dim;
            if (packed_.size() == 0)
                packed_ =
                    Buffer<T, Device>(dev, place_packed(c, packed_layer_, packed_head_), Memory::weights);
            auto pack_one = [&](size_t to, size_t from, int O, int I) {
                pack_weight(dev, packed_.data() + to, params() + from, O, I);
            };
            for (int l = 0; l < c.layers; l++) {
                const Packed& p = packed_layer_[size_t(l)];
                const Layout::Layer& at = layout.layer[size_t(l)];
                pack_one(p.wqkv, at.wqkv, Q, D);
                pack_one(p.wo, at.wo, D, q);
                pack_one(p.wgu, at.wgu, 2 * c.ff, D);
                pack_one(p.wdown, at.wdown, D, c.ff);
            }
            pack_one(packed_head_, layout.head, c.vocab, D);
        }
        packed_fresh_ = true;
    }

  private:
    // Pointers into one buffer. A tensor that is not kept per layer is shared by all layers.
    struct Activations {
        T *x, *norm1;             // (N,D) residual input, (N,D)
        T* raw;                   // (N,Q) before the norms of q and k (qk_norm only)
        T *qkv, *att;             // (N,Q) rotated, (N,H*E)
        T *mid, *norm2, *gu, *h;  // (N,D) after attention, (N,D), (N,2F), (N,F)
        S *r1, *rq, *rk, *r2;     // (N), (N,H), (N,G), (N) of the norms
        S* lse;                   // (N,H)
    };
    struct Packed {
        size_t wqkv, wo, wgu, wdown;
    };

    // Where the packed weights lie in their buffer; returns its size.
    static size_t place_packed(const ModelConfig& c, std::vector<Packed>& layers, size_t& head) {
        const int D = c.hidden, q = c.heads * c.head_dim, Q = (c.heads + 2 * c.kv_heads) * c.head_dim;
        size_t total = 0;
        layers.resize(size_t(c.layers));
        head = 0;
        if (!Device::on_host) return total;
        auto place = [&](int O, int I) {
            size_t at = total;
            total += (packed_size<T>(O, I) + 15) / 16 * 16;
            return at;
        };
        for (Packed& p : layers) p = {place(Q, D), place(D, q), place(2 * c.ff, D), place(D, c.ff)};
        head = place(c.vocab, D);
        return total;
    }

    static int rope_positions(int longest) {
        int size = 256;
        while (size < longest) size *= 2;
        return size;
    }
    static bool ends_with(const std::string& s, const std::string& tail) {
        return s.size() >= tail.size() && s.compare(s.size() - tail.size(), tail.size(), tail) == 0;
    }
    S* grad(size_t offset) { return grads_.data() + offset; }
    Weight<T> weight(size_t raw, size_t packed) const {
        return {params_.data() + raw, Device::on_host && packed_fresh_ ? packed_.data() + packed : nullptr};
    }

    // Passes without gradients (prefill, decoding, scoring) reuse one layer's activations.
    void reserve(int N) {
        if (N <= capacity_) return;
        capacity_ = N;
        allocate_activations(N, training());
    }

    // Tokens, positions and the documents' bounds to the device.
    void load_batch(const Batch& b) {
        const size_t N = size_t(b.tokens()), starts = b.start.size();
        int longest = 1;
        for (size_t d = 0; d + 1 < starts; d++) longest = std::max(longest, b.start[d + 1] - b.start[d]);
        reserve_positions(longest);
        if (2 * N + starts > ints_.size()) {
            ints_ = {};
            ints_ = Buffer<int, Device>(dev, 2 * N + starts, Memory::activations);
        }
        token_ = ints_.data(), position_ = token_ + N;
        int* start = position_ + N;
        dev.upload(token_, b.token.data(), N * sizeof(int));
        dev.upload(position_, b.position.data(), N * sizeof(int));
        dev.upload(start, b.start.data(), starts * sizeof(int));
        documents_ = {start, b.documents(), b.tokens()};
    }

    // Calls place(pointer, bytes) for every tensor, per-layer ones first layer by layer.
    template <class Place>
    static void each_activation(const ModelConfig& c, size_t N, int recompute, bool keep,
                                std::vector<Activations>& act, Place place) {
        const size_t D = size_t(c.hidden), H = size_t(c.heads), G = size_t(c.kv_heads),
                     E = size_t(c.head_dim), F = size_t(c.ff), Q = (H + 2 * G) * E;
        auto tensor = [&](auto field, size_t per_token, bool per_layer) {
            for (size_t l = 0; l < act.size(); l++)
                if (per_layer || l == 0)
                    place(act[l].*field, N * per_token * sizeof(*(act[l].*field)));
                else
                    act[l].*field = act[0].*field;
        };
        const bool all = keep && recompute < 2, cheap = keep && recompute < 1;
        tensor(&Activations::x, D, keep);
        tensor(&Activations::norm1, D, cheap);
        tensor(&Activations::r1, 1, all);
        tensor(&Activations::raw, c.qk_norm ? Q : 0, all);
        tensor(&Activations::rq, c.qk_norm ? H : 0, all);
        tensor(&Activations::rk, c.qk_norm ? G : 0, all);
        tensor(&Activations::qkv, Q, all);
        tensor(&Activations::att, H * E, all);
        tensor(&Activations::lse, H, all);
        tensor(&Activations::mid, D, all);
        tensor(&Activations::norm2, D, cheap);
        tensor(&Activations::r2, 1, all);
        tensor(&Activations::gu, 2 * F, all);
        tensor(&Activations::h, F, cheap);
    }

    void allocate_activations(int max_tokens, bool keep) {
        const size_t N = size_t(max_tokens);
        moves_++;
        act_.assign(size_t(config.layers), Activations{});
        size_t total = 0;
        each_activation(config, N, recompute_, keep, act_,
                        [&](auto*&, size_t bytes) { total += round64(bytes); });
        memory_ = {};  // the old block goes before the new one is asked for
        memory_ = Buffer<char, Device>(dev, total, Memory::activations);
        size_t at = 0;
        each_activation(config, N, recompute_, keep, act_, [&](auto*& p, size_t bytes) {
            p = bytes ? reinterpret_cast<std::remove_reference_t<decltype(p)>>(memory_.data() + at) : nullptr;
            at += round64(bytes);
        });
        final_r_ = {};
        final_r_ = Buffer<S, Device>(dev, N, Memory::activations);
        Buffer<T, Device>* buffers[] = {&last_,   &delta_, &final_, &d_final_, &d_x_,
                                        &d_norm_, &d_att_, &d_qkv_, &d_gu_,    &d_h_};
        std::vector<size_t> sizes = working_sizes(config, keep);
        for (size_t i = 0; i < sizes.size(); i++) {
            *buffers[i] = {};
            *buffers[i] = Buffer<T, Device>(dev, N * sizes[i], Memory::activations);
        }
    }

    // Numbers per token of last_, delta_, final_ and, with gradients, d_final_ ... d_h_.
    static std::vector<size_t> working_sizes(const ModelConfig& c, bool keep) {
        const size_t D = size_t(c.hidden), q = size_t(c.heads) * size_t(c.head_dim), F = size_t(c.ff);
        std::vector<size_t> sizes = {D, D, D};
        if (keep)
            sizes.insert(sizes.end(),
                         {D, D, D, q, q + 2 * size_t(c.kv_heads) * size_t(c.head_dim), 2 * F, F});
        return sizes;
    }
    static size_t round64(size_t bytes) { return (bytes + 63) / 64 * 64; }

    // From a layer's x to its norm1.
    void first_norm(int l, int N) {
        Activations& a = act_[size_t(l)];
        rmsnorm_forward(dev, a.norm1, a.r1, a.x, params() + layout.layer[size_t(l)].norm1,
                        plain_rows(N, config.hidden), config.hidden, S(config.rms_eps));
    }
    // From there to its h.
    template <class Attend>
    void layer_inside(int l, int N, const int* position, Attend attend) {
        const ModelConfig& c = config;
        const int D = c.hidden, H = c.heads, G = c.kv_heads, E = c.head_dim, Q = (H + 2 * G) * E;
        const Layout::Layer& at = layout.layer[size_t(l)];
        const Packed& packed = packed_layer_[size_t(l)];
        Activations& a = act_[size_t(l)];
        const T* p = params();
        const S eps = S(c.rms_eps);

        matmul_forward(dev, c.qk_norm ? a.raw : a.qkv, a.norm1, weight(at.wqkv, packed.wqkv),
                       c.qkv_bias ? p + at.bqkv : nullptr, N, Q, D);
        if (c.qk_norm) {
            const size_t k = size_t(H) * E, v = k + size_t(G) * E;
            rmsnorm_forward(dev, a.qkv, a.rq, a.raw, p + at.norm_q, Rows{N, H, size_t(Q)}, E, eps);
            rmsnorm_forward(dev, a.qkv + k, a.rk, a.raw + k, p + at.norm_k, Rows{N, G, size_t(Q)}, E, eps);
            copy_rows(dev, a.qkv + v, a.raw + v, Rows{N, G, size_t(Q)}, E);
        }
        rope_forward(dev, a.qkv, position, *rope_, N, H, G, E);
        attend(a);
        matmul_forward(dev, delta_.data(), a.att, weight(at.wo, packed.wo), static_cast<const T*>(nullptr), N,
                       D, H * E);
        add_rmsnorm_forward(dev, a.mid, a.norm2, a.r2, a.x, delta_.data(), p + at.norm2, N, D, eps);
        matmul_forward(dev, a.gu, a.norm2, weight(at.wgu, packed.wgu), static_cast<const T*>(nullptr), N,
                       2 * c.ff, D);
        swiglu_forward(dev, a.h, a.gu, N, c.ff);
    }
    // From there to the next layer's x and norm1, or to last_ and final_.
    void layer_output(int l, int N) {
        const int D = config.hidden;
        const Layout::Layer& at = layout.layer[size_t(l)];
        Activations& a = act_[size_t(l)];
        matmul_forward(dev, delta_.data(), a.h, weight(at.wdown, packed_layer_[size_t(l)].wdown),
                       static_cast<const T*>(nullptr), N, D, config.ff);
        auto add = [&](T* sum, T* norm, S* r, size_t w) {
            add_rmsnorm_forward(dev, sum, norm, r, a.mid, delta_.data(), params() + w, N, D,
                                S(config.rms_eps));
        };
        if (l + 1 < config.layers) {
            Activations& next = act_[size_t(l + 1)];
            add(next.x, next.norm1, next.r1, layout.layer[size_t(l + 1)].norm1);
        } else {
            add(last_.data(), final_.data(), final_r_.data(), layout.norm);
        }
    }

    // dx: in, the gradient of the layer's output; out, of its input.
    void layer_backward(int l, T* dx) {
        const ModelConfig& c = config;
        const int N = documents_.tokens, D = c.hidden, H = c.heads, G = c.kv_heads, E = c.head_dim,
                  Q = (H + 2 * G) * E;
        const Layout::Layer& at = layout.layer[size_t(l)];
        const Packed& packed = packed_layer_[size_t(l)];
        Activations& a = act_[size_t(l)];
        const T* p = params();
        S* const none = nullptr;

        if (recompute_ >= 2) {
            first_norm(l, N);
            layer_inside(l, N, position_, [&](Activations& at_) {
                attention_forward(dev, at_.att, at_.lse, at_.qkv, documents_, window(l), H, G, E);
            });
        } else if (recompute_ == 1) {
            rmsnorm_forward(dev, a.norm2, a.r2, a.mid, p + at.norm2, plain_rows(N, D), D, S(c.rms_eps));
            swiglu_forward(dev, a.h, a.gu, N, c.ff);
        }
        matmul_backward(dev, d_h_.data(), grad(at.wdown), none, dx, a.h, weight(at.wdown, packed.wdown), N, D,
                        c.ff);
        swiglu_backward(dev, d_gu_.data(), d_h_.data(), a.gu, N, c.ff);
        matmul_backward(dev, d_norm_.data(), grad(at.wgu), none, d_gu_.data(), a.norm2,
                        weight(at.wgu, packed.wgu), N, 2 * c.ff, D);
        rmsnorm_backward(dev, dx, grad(at.norm2), d_norm_.data(), a.mid, a.r2, p + at.norm2, plain_rows(N, D),
                         D, true);

        matmul_backward(dev, d_att_.data(), grad(at.wo), none, dx, a.att, weight(at.wo, packed.wo), N, D,
                        H * E);
        attention_backward(dev, d_qkv_.data(), d_att_.data(), a.att, a.lse, a.qkv, documents_, window(l), H,
                           G, E);
        rope_backward(dev, d_qkv_.data(), position_, *rope_, N, H, G, E);
        if (c.qk_norm) {
            const size_t k = size_t(H) * E;
            rmsnorm_backward(dev, d_qkv_.data(), grad(at.norm_q), d_qkv_.data(), a.raw, a.rq, p + at.norm_q,
                             Rows{N, H, size_t(Q)}, E, false);
            rmsnorm_backward(dev, d_qkv_.data() + k, grad(at.norm_k), d_qkv_.data() + k, a.raw + k, a.rk,
                             p + at.norm_k, Rows{N, G, size_t(Q)}, E, false);
        }
        if (recompute_ == 1) first_norm(l, N);
        matmul_backward(dev, d_norm_.data(), grad(at.wqkv), c.qkv_bias ? grad(at.bqkv) : none, d_qkv_.data(),
                        a.norm1, weight(at.wqkv, packed.wqkv), N, Q, D);
        rmsnorm_backward(dev, dx, grad(at.norm1), d_norm_.data(), a.x, a.r1, p + at.norm1, plain_rows(N, D),
                         D, true);
    }

    Buffer<T, Device> params_, packed_;
    Buffer<S, Device> grads_;
    Buffer<char, Device> memory_;             // the activations
    Buffer<T, Device> last_, delta_, final_;  // (N,D) each
    Buffer<S, Device> final_r_;               // (N)
    Buffer<T, Device> d_final_, d_x_, d_norm_, d_att_, d_qkv_, d_gu_, d_h_;
    std::vector<Activations> act_;
    std::vector<Packed> packed_layer_;
    size_t packed_head_ = 0;
    bool packed_fresh_ = false;
    int capacity_ = 0, recompute_ = 0, moves_ = 0;
    Buffer<int, Device> ints_;                    // of the last forward pass:
    int *token_ = nullptr, *position_ = nullptr;  // (N), (N)
    Documents documents_{nullptr, 0, 0};
    std::unique_ptr<RopeTable<Device>> rope_;
};
