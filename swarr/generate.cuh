// generate.cuh: many texts at once: continuous batching over a ring cache.
//
// A slot holds one sequence. Prompts are prefilled packed, several in a pass; the cache of a prompt is copied
// to all samples of its group; a slot that falls free is filled at once. The head is computed for the last
// token of each prompt only. Every token is decided by its own random number, keyed by (seed, problem,
// sample, number of the token), and every layer adds in an order that does not depend on the batch: a text
// depends on nothing but its prompt, its key and the settings; not on slots, neighbours or threads.
//
//   Generator<Cpu> generator(model, options);
//   generator.add({ids, key, {0, 1, 2, 3}, tag});
//   while (generator.step(on_finish, on_token)) {}
//
// Finished texts are handed over in the order in which they end. The log-probability of each token is that
// which the trainer computes for it (layers/sample.cuh).
#pragma once
#include <algorithm>
#include <deque>
#include <map>
#include <memory>
#include <string>
#include <vector>

#include "kv_cache.cuh"
#include "layers/sample.cuh"
#include "model.cuh"

inline std::vector<Window> layer_windows(const ModelConfig& c) {
    std::vector<Window> out;
    for (int w : c.window) out.push_back({w, c.sink_tokens});
    return out;
}

struct GenerateOptions {
    Sampling sampling;
    uint64_t seed = 0;
    int slots = 32;
    int max_tokens_per_pass = 4096;  // of a prefill; a longer prompt is a pass of its own
    int limit = 0;                   // tokens of a prompt and its answer together; 0: the model's positions
    std::vector<int> stop;           // ids that end a text
};

// One group: `samples` are the numbers of the texts wanted, which need not start at 0.
struct Prompt {
    std::vector<int> ids;
    uint32_t key = 0;  // keys the random numbers
    std::vector<int> samples = {0};
    int64_t tag = 0;  // the caller's
    int max_new_tokens = 256;
};

enum class Stop { token, length };

struct Rollout {
    int64_t tag = 0;
    int sample = 0, prompt_tokens = 0;
    std::vector<int> ids;         // the answer, with the stop token if there is one
    std::vector<float> logp;      // of each of ids
    std::vector<float> log_kept;  // with top-k or top-p only: log of the share they kept (layers/sample.cuh)
    Stop stop = Stop::length;
    double logp_sum() const {
        double sum = 0;
        for (float l : logp) sum += double(l);
        return sum;
    }
};

template <class Device>
class Generator {
  public:
    using T = typename Device::real;
    using S = typename Device::stat;

    // Errors: no slots; a limit beyond the model's positions; a stop id outside the vocabulary.
    Generator(Model<Device>& model, const GenerateOptions& options)
        : model_(model),
          options_(checked(model.config, options)),
          cache_(model.dev, layer_windows(model.config), options_.slots + 1, options_.limit,
                 model.config.heads, model.config.kv_heads, model.config.head_dim),
          rows_(model.dev, size_t(options_.slots) * size_t(model.config.hidden), Memory::workspace),
          logits_(model.dev, size_t(options_.slots) * size_t(model.config.vocab), Memory::workspace) {
        for (int s = options_.slots; s >= 0; s--) free_.push_back(s);
        model_.reserve_positions(options_.limit);
        reserve_draws(options_.slots);
    }

    // Errors: an empty prompt or one that leaves no room for an answer; a token outside the vocabulary.
    void add(Prompt prompt) {
        if (prompt.ids.empty()) fail("an empty prompt", "there must be one token to start from");
        if (int(prompt.ids.size()) >= options_.limit)
            fail(format("a prompt of %zu tokens leaves no room for an answer (limit %d)", prompt.ids.size(),
                        options_.limit),
                 "shorten the prompt, or use a model with more positions");
        for (int id : prompt.ids)
            if (id < 0 || id >= model_.config.vocab)
                fail(format("token %d of a prompt is outside the vocabulary of %d", id, model_.config.vocab),
                     "do tokenizer.json and config.json belong together?");
        if (!prompt.samples.empty() && prompt.max_new_tokens > 0) queue_.push_back(std::move(prompt));
    }

    // Fills free slots, then decodes one token of every running text. Calls token(tag, sample, id) for each
    // new token and finish(Rollout&&) for each text that ended. Returns false when nothing is left to do.
    template <class Finish, class Token>
    bool step(Finish finish, Token token) {
        admit(finish, token);
        if (running_.empty()) return false;
        decode(finish, token);
        return !running_.empty() || !queue_.empty() || ready_;
    }
    template <class Finish>
    bool step(Finish finish) {
        return step(finish, [](int64_t, int, int) {});
    }

    int running() const { return int(running_.size()); }
    int64_t tokens() const { return tokens_; }                // drawn so far
    int64_t prompt_tokens() const { return prompt_tokens_; }  // prefilled so far
    int limit() const { return options_.limit; }

    // Bytes by the arithmetic of the allocations themselves.
    struct Plan {
        size_t weights, slot, cache, activations, logits;
        size_t total() const { return weights + cache + activations + logits; }
    };
    static Plan plan(const ModelConfig& c, const GenerateOptions& asked, int longest_prompt) {
        GenerateOptions o = checked(c, asked);
        Plan p;
        p.weights = Model<Device>::weight_bytes(c) + Model<Device>::rope_bytes(c, o.limit);
        p.slot = KvCache<Device>::bytes_per_slot(layer_windows(c), o.limit, c.heads, c.kv_heads, c.head_dim);
        p.cache = p.slot * size_t(o.slots + 1);
        p.activations = Model<Device>::activation_bytes(
            c, std::max({o.slots, std::min(o.max_tokens_per_pass, o.slots * longest_prompt), longest_prompt}),
            0, false);
        p.logits = size_t(o.slots) * (size_t(c.vocab) * sizeof(S) + size_t(c.hidden) * sizeof(T) +
                                      step_words * sizeof(int) + drawn_words * sizeof(S));
        return p;
    }

  private:
    struct Running {
        Rollout out;
        int slot, last, position, left;  // `last` is the token to feed, at `position`; tokens still allowed
        uint32_t key;
    };
    // A prefilled prompt some of whose samples have not started.
    struct Ready {
        Prompt prompt;
        int slot;
        std::vector<int> first;  // (samples) first token of each
        std::vector<S> logp, log_kept;
        size_t next = 0;
    };

    static GenerateOptions checked(const ModelConfig& c, GenerateOptions o) {
        check_sampling(o.sampling);
        if (o.slots < 1 || o.slots > 65535)
            throw UsageError(format("--slots %d is not between 1 and 65535", o.slots), "32 is a good start");
        if (o.limit <= 0) o.limit = c.max_positions;
        if (o.limit > c.max_positions)
            fail(format("%d tokens are asked for, the model has %d positions", o.limit, c.max_positions),
                 "lower --max-new-tokens, or shorten the prompt");
        for (int id : o.stop)
            if (id < 0 || id >= c.vocab)
                fail(format("stop token %d is outside the vocabulary of %d", id, c.vocab),
                     "do tokenizer.json, generation_config.json and config.json belong together?");
        return o;
    }

    float uniform(uint32_t key, int sample, int number) const {
        return sample_uniform(options_.seed, key, uint32_t(sample), uint32_t(number));
    }

    // Starts samples until every slot is taken. At most one prompt stays ready with samples left; it holds
    // the slot beyond options.slots.
    template <class Finish, class Token>
    void admit(Finish& finish, Token& token) {
        while (int(running_.size()) < options_.slots) {
            if (!ready_) {
                if (prefilled_.empty() && !queue_.empty()) prefill();
                if (prefilled_.empty()) return;
                ready_ = std::make_unique<Ready>(std::move(prefilled_.front()));
                prefilled_.pop_front();
            }
            start_one(finish, token);
        }
    }

    template <class Finish, class Token>
    void start_one(Finish& finish, Token& token) {
        Ready& r = *ready_;
        const size_t i = r.next++;
        const bool last = r.next == r.prompt.samples.size();
        const int length = int(r.prompt.ids.size());
        Running s;
        s.out.tag = r.prompt.tag;
        s.out.sample = r.prompt.samples[i];
        s.out.prompt_tokens = length;
        s.key = r.prompt.key;
        s.position = length - 1;
        s.left = std::min(r.prompt.max_new_tokens, options_.limit - length);
        if (last) {
            s.slot = r.slot;
        } else {
            s.slot = free_.back();
            free_.pop_back();
            cache_.copy(r.slot, s.slot, length);
        }
        const int first = r.first[i];
        const S logp = r.logp[i], log_kept = r.log_kept[i];
        if (last) ready_.reset();
        if (accept(s, first, logp, log_kept, finish, token)) running_.push_back(std::move(s));
    }

    // Adds a drawn token. False if the text has ended; its slot is then free.
    template <class Finish, class Token>
    bool accept(Running& s, int id, S logp, S log_kept, Finish& finish, Token& token) {
        s.out.ids.push_back(id);
        s.out.logp.push_back(float(logp));
        if (options_.sampling.filtered(model_.config.vocab)) s.out.log_kept.push_back(float(log_kept));
        s.last = id;
        s.position++;
        s.left--;
        tokens_++;
        token(s.out.tag, s.out.sample, id);
        const bool stop = std::find(options_.stop.begin(), options_.stop.end(), id) != options_.stop.end();
        if (!stop && s.left > 0) return true;
        s.out.stop = stop ? Stop::token : Stop::length;
        free_.push_back(s.slot);
        finish(std::move(s.out));
        return false;
    }

    // One packed pass over the next prompts: as many as the free slots' samples and the budget ask for.
    void prefill() {
        const ModelConfig& c = model_.config;
        const int wanted = options_.slots - int(running_.size());
        Batch batch;
        for (int samples = 0; !queue_.empty() && samples < wanted; queue_.pop_front()) {
            Prompt& next = queue_.front();
            const int length = int(next.ids.size());
            if (batch.documents() && batch.tokens() + length > options_.max_tokens_per_pass) break;
            batch.add(next.ids.data(), length);
            samples += int(next.samples.size());
            prefilled_.push_back({std::move(next), free_.back(), {}, {}, {}, 0});
            free_.pop_back();
        }
        prompt_tokens_ += batch.tokens();
        const size_t Q = size_t(c.heads + 2 * c.kv_heads) * size_t(c.head_dim);
        model_.forward(batch, [&](int layer, const T* qkv) {
            for (size_t d = 0; d < prefilled_.size(); d++)
                cache_prompt(model_.dev, cache_, layer, prefilled_[d].slot, qkv + size_t(batch.start[d]) * Q,
                             batch.start[d + 1] - batch.start[d], c.heads);
        });
        size_t draws = 0;
        for (const Ready& r : prefilled_) draws += r.prompt.samples.size();
        reserve_draws(draws);
        size_t n = 0;
        for (size_t d = 0; d < prefilled_.size(); d++) {
            host_.token[d] = batch.start[d + 1] - 1;
            for (int sample : prefilled_[d].prompt.samples)
                host_.row[n] = int(d), host_.uniform[n++] = uniform(prefilled_[d].prompt.key, sample, 0);
        }
        send();
        embedding_forward(model_.dev, rows_.data(), there_.token, model_.hidden(), batch.documents(),
                          c.hidden);
        draw(rows_.data(), batch.documents(), int(n));
        receive();
        size_t at = 0;
        for (Ready& r : prefilled_)
            for (size_t i = 0; i < r.prompt.samples.size(); i++, at++)
                r.first.push_back(drawn_.token[at]), r.logp.push_back(drawn_.logp[at]),
                    r.log_kept.push_back(drawn_.log_kept[at]);
    }

    // Logits of `rows` hidden states x, and `n` draws from them.
    void draw(const T* x, int rows, int n) {
        const ModelConfig& c = model_.config;
        head_logits(model_.dev, logits_.data(), x, model_.head(), rows, c.hidden, c.vocab);
        sample_tokens(model_.dev, drawn_there_.token, drawn_there_.logp, logits_.data(), there_.row,
                      there_.uniform, n, c.vocab, options_.sampling, drawn_there_.log_kept);
    }

    template <class Finish, class Token>
    void decode(Finish& finish, Token& token) {
        const ModelConfig& c = model_.config;
        const int B = int(running_.size()), padded = Device::on_host ? B : decode_batch(B, options_.slots);
        for (int b = 0; b < padded; b++) {
            host_.row[b] = b;
            if (b < B) {
                const Running& s = running_[size_t(b)];
                host_.token[b] = s.last, host_.position[b] = s.position, host_.slot[b] = s.slot;
                host_.uniform[b] = uniform(s.key, s.out.sample, int(s.out.ids.size()));
            } else {
                host_.token[b] = 0, host_.position[b] = 0, host_.slot[b] = -1, host_.uniform[b] = 0;
            }
        }
        send();
        if (moves_ != model_.moves()) graphs_.clear(), moves_ = model_.moves();
        model_.dev.replay(graphs_[padded], [&] {
            model_.decode(there_.token, there_.position, padded, [&](int layer, T* att, const T* qkv) {
                cache_append(model_.dev, cache_, layer, qkv, there_.slot, there_.position, padded, c.heads);
                attention_decode(model_.dev, att, qkv, cache_, layer, there_.slot, there_.position, padded,
                                 c.heads);
            });
            draw(model_.hidden(), padded, padded);
        });
        receive();
        size_t kept = 0;
        for (size_t i = 0; i < running_.size(); i++)
            if (accept(running_[i], drawn_.token[i], drawn_.logp[i], drawn_.log_kept[i], finish, token)) {
                if (kept != i) running_[kept] = std::move(running_[i]);
                kept++;
            }
        running_.erase(running_.begin() + int64_t(kept), running_.end());
    }

    // A step is one graph for each number of sequences, so those are rounded up to few values; the rest of
    // the rows belongs to no slot.
    static int decode_batch(int B, int slots) {
        int size = 1;
        if (B > 64)
            size = (B + 31) / 32 * 32;
        else if (B > 8)
            size = (B + 7) / 8 * 8;
        else
            while (size < B) size *= 2;
        return std::min(size, slots);
    }

    // What one step sends to the device and gets back lies in one block each, on the host and there.
    static constexpr size_t step_words = 5, drawn_words = 3;
    struct Step {
        int *token, *position, *slot, *row;
        float* uniform;
    };
    struct Drawn {
        S *logp, *log_kept;
        int* token;
    };
    void reserve_draws(size_t n) {
        if (n <= draws_) return;
        draws_ = n;
        host_step_.resize(step_words * n), host_drawn_.resize(drawn_words * n);
        step_ = {}, drawn_block_ = {};
        step_ = Buffer<int, Device>(model_.dev, step_words * n, Memory::workspace);
        drawn_block_ = Buffer<S, Device>(model_.dev, drawn_words * n, Memory::workspace);
        auto step = [n](int* p) {
            return Step{p, p + n, p + 2 * n, p + 3 * n, reinterpret_cast<float*>(p + 4 * n)};
        };
        auto drawn = [n](S* p) { return Drawn{p, p + n, reinterpret_cast<int*>(p + 2 * n)}; };
        host_ = step(host_step_.data()), there_ = step(step_.data());
        drawn_ = drawn(host_drawn_.data()), drawn_there_ = drawn(drawn_block_.data());
        graphs_.clear();
    }
    void send() { model_.dev.upload(step_.data(), host_step_.data(), host_step_.size() * sizeof(int)); }
    void receive() {
        model_.dev.download(host_drawn_.data(), drawn_block_.data(), host_drawn_.size() * sizeof(S));
    }

    Model<Device>& model_;
    const GenerateOptions options_;
    KvCache<Device> cache_;
    Buffer<T, Device> rows_;    // (slots,D)
    Buffer<S, Device> logits_;  // (slots,V)
    std::deque<Prompt> queue_;
    std::deque<Ready> prefilled_;
    std::unique_ptr<Ready> ready_;
    std::vector<Running> running_;
    std::vector<int> free_;
    size_t draws_ = 0;
    std::vector<int> host_step_;
    std::vector<S> host_drawn_;
    Buffer<int, Device> step_;
    Buffer<S, Device> drawn_block_;
    Step host_{}, there_{};
    Drawn drawn_{}, drawn_there_{};
    std::map<int, typename Device::Graph> graphs_;  // by number of sequences
    int moves_ = 0;                                 // of the model's buffers, when the graphs were made
    int64_t tokens_ = 0, prompt_tokens_ = 0;
};
