// locality.h: how local is a text? For each token, what a scorer loses when it sees only the last w tokens.
//
//   p_full(t) = p(x_t | x_<t)        p_w(t) = p(x_t | the last w tokens before t)
//   g_t(w) = p_full(t) - p_w(t)      L(w) = 1 - mean over response tokens with t > w of max(0, g_t(w))
//
// The published text (arXiv 2606.11634) names g and L without a formula; these are ours. t counts the tokens
// before x_t, so for t <= w nothing is cut off and the gap is exactly 0; L(w) = 1 when no response token has
// t > w. From the same passes: the log gap log p_full - log p_w, the ratio p_w / p_full, the share of tokens
// with g <= 0.01, and KL(p(. | x_<t) || p(. | last w)).
//
//   exact    the last w tokens are run through the scorer alone, a document of their own for every t
//   strided  documents of w + stride - 1 tokens score their last `stride` tokens: each sees w to w + stride -
//   1 tokens,
//            for about 1 / stride of the work; stride 1 is exact
//   masked   the whole text once, with a band mask of w keys in every layer: what a sliding-window copy of
//   the scorer
//            sees, which through L layers reaches L (w - 1) tokens back
// With `keep_prompt` the prompt stays in front of the last w tokens (masked: its tokens stay visible as
// sinks).
#pragma once
#include <cmath>
#include <string>
#include <vector>

#include "layers/compare.cuh"
#include "model.cuh"
#include "statistics.h"
#include "trainer.cuh"

enum class Truncation { exact, masked };

struct LocalityOptions {
    std::vector<int> windows;  // ascending
    Truncation truncation = Truncation::exact;
    int stride = 1;
    bool keep_prompt = false;
    int max_tokens_per_pass = 8192;
    double threshold = 0.01;  // a larger gap counts as "needs more than w"
};

// A text and where its response begins.
struct LocalityText {
    std::string id;
    std::vector<int> ids;
    int prompt = 0;
    std::string outcome;  // right, wrong, ... where it is known
};

// One text under one scorer. Index i stands for response token x_t with t = first + i.
struct TextLocality {
    int first = 1;
    std::vector<double> full;              // (n) p_full
    std::vector<std::vector<double>> cut;  // (windows)(n) p_w; equals full where nothing was cut off
    std::vector<std::vector<double>> kl;   // (windows)(n)
};

// Tokens that the context of x_t loses under window w: those before this index (0: none).
inline int first_kept(const LocalityOptions& o, const LocalityText& text, int t, int w) {
    int from = t - w > 0 ? t - w : 0;
    return o.keep_prompt && from <= text.prompt ? 0 : from;
}

// Scores texts under one model, whose own windows count for p_full.
template <class Device>
class LocalityScorer {
  public:
    using T = typename Device::real;
    using S = typename Device::stat;

    LocalityScorer(Device& device, const ModelConfig& config, const std::string& folder)
        : config_(config), folder_(folder), model_(std::make_unique<Model<Device>>(device, config)) {
        model_->load(folder);
    }

    // Errors: a text without a response token; a token outside the vocabulary.
    std::vector<TextLocality> score(const std::vector<LocalityText>& texts, const LocalityOptions& o) {
        std::vector<TextLocality> out;
        for (const LocalityText& text : texts) {
            TextLocality score;
            score.first = std::max(1, text.prompt);
            const int n = int(text.ids.size()) - score.first;
            if (n < 1) fail("text " + quoted(text.id) + " has no response token", "leave it out");
            for (int id : text.ids)
                if (id < 0 || id >= config_.vocab)
                    fail(format("text %s: token %d is outside the scorer's vocabulary of %d",
                                quoted(text.id).c_str(), id, config_.vocab),
                         "score texts with a model of the same tokenizer");
            score.full.resize(size_t(n));
            score.cut.assign(o.windows.size(), std::vector<double>(size_t(n)));
            score.kl.assign(o.windows.size(), std::vector<double>(size_t(n), 0.0));
            out.push_back(std::move(score));
        }
        first_row_.clear();
        size_t rows = 0;
        for (const TextLocality& score : out) first_row_.push_back(rows), rows += score.full.size();
        hidden_ = {};
        hidden_ = Buffer<T, Device>(model_->dev, rows * size_t(config_.hidden), Memory::activations);
        whole_texts(texts, o, *model_, 0, out,
                    [&](const std::vector<Place>& places) { full_rows(texts, places, out); });
        for (size_t w = 0; w < o.windows.size(); w++)
            if (o.truncation == Truncation::masked)
                masked_pass(texts, o, w, out);
            else
                cut_pass(texts, o, w, out);
        return out;
    }

    // What this and score() take, for sets whose texts have up to `longest` tokens and that have up to
    // `response` response tokens each; a pass may be smaller.
    static MemoryPlan memory(const ModelConfig& c, const LocalityOptions& o, int longest, size_t response) {
        const double models = o.truncation == Truncation::masked ? 2 : 1;
        const size_t row = size_t(c.hidden) * sizeof(T),
                     place = row + 2 * size_t(c.vocab) * sizeof(S) + sizeof(S) + sizeof(double) + sizeof(int);
        return {{"weights",
                 models * double(Model<Device>::weight_bytes(c) + Model<Device>::rope_bytes(c, longest))},
                {"activations", models * double(Model<Device>::activation_bytes(
                                             c, std::max(longest, o.max_tokens_per_pass), 0, false)) +
                                    double(response * row)},
                {"workspace", double(chunk(c) * place)}};
    }

  private:
    // Response token `index` of a text, and the row of the pass that predicts it.
    struct Place {
        size_t text, index;
        int row;
    };

    // Packs whole texts, the first of which is number `offset`; all their response tokens are places.
    template <class Use>
    void whole_texts(const std::vector<LocalityText>& texts, const LocalityOptions& o, Model<Device>& model,
                     size_t offset, const std::vector<TextLocality>& out, Use use) {
        std::vector<Sequence> sequences;
        for (const LocalityText& text : texts) {
            Sequence s;
            s.token = {text.ids.begin(), text.ids.end() - 1};
            sequences.push_back(std::move(s));
        }
        each_pass(sequences, budget(sequences, o), true, [&](const Batch& batch, size_t first, size_t last) {
            model.forward(batch);
            std::vector<Place> places;
            for (size_t d = first; d < last; d++) {
                const TextLocality& score = out[offset + d];
                for (size_t i = 0; i < score.full.size(); i++)
                    places.push_back({offset + d, i, batch.start[d - first] + score.first + int(i) - 1});
            }
            use(places);
        });
    }

    static int budget(const std::vector<Sequence>& sequences, const LocalityOptions& o) {
        size_t n = size_t(o.max_tokens_per_pass);
        for (const Sequence& s : sequences) n = std::max(n, s.token.size());
        return int(n);
    }

    static size_t chunk(const ModelConfig& c) {
        return std::max<size_t>(1, std::min<size_t>(1024, (size_t(1) << 24) / size_t(c.vocab)));
    }
    size_t chunk() const { return chunk(config_); }
    // Room for a chunk of places, on both sides.
    void reserve() {
        if (x_.size()) return;
        Device& dev = model_->dev;
        const size_t n = chunk(), V = size_t(config_.vocab);
        x_ = Buffer<T, Device>(dev, n * size_t(config_.hidden), Memory::workspace);
        logits_ = Buffer<S, Device>(dev, n * V, Memory::workspace);
        full_logits_ = Buffer<S, Device>(dev, n * V, Memory::workspace);
        logp_ = Buffer<S, Device>(dev, n, Memory::workspace);
        kl_ = Buffer<double, Device>(dev, n, Memory::workspace);
        index_ = Buffer<int, Device>(dev, n, Memory::workspace);
    }
    // Rows of `hidden`, number row(place) for each of `count` places, to `to`.
    template <class Row>
    void gather(T* to, const T* hidden, const Place* places, size_t count, Row row) {
        std::vector<int> index(count);
        for (size_t i = 0; i < count; i++) index[i] = row(places[i]);
        model_->dev.upload(index_.data(), index.data(), count * sizeof(int));
        embedding_forward(model_->dev, to, index_.data(), hidden, int(count), config_.hidden);
    }
    void logits(S* to, const T* x, size_t count) {
        head_logits(model_->dev, to, x, model_->head(), int(count), config_.hidden, config_.vocab);
    }
    // p of the places' tokens by logits_, and with `compared` the divergence of full_logits_ from them.
    void compare(const std::vector<LocalityText>& texts, const std::vector<TextLocality>& out,
                 const Place* places, size_t count, bool compared, std::vector<double>& p,
                 std::vector<double>& kl) {
        Device& dev = model_->dev;
        std::vector<int> target(count);
        for (size_t i = 0; i < count; i++) {
            const size_t d = places[i].text;
            target[i] = texts[d].ids[size_t(out[d].first) + places[i].index];
        }
        dev.upload(index_.data(), target.data(), count * sizeof(int));
        compare_logits(dev, logp_.data(), compared ? kl_.data() : nullptr, logits_.data(),
                       compared ? full_logits_.data() : nullptr, index_.data(), int(count), config_.vocab);
        std::vector<S> logp(count);
        dev.download(logp.data(), logp_.data(), count * sizeof(S));
        p.assign(count, 0);
        for (size_t i = 0; i < count; i++) p[i] = std::exp(double(logp[i]));
        kl.assign(count, 0);
        if (compared) dev.download(kl.data(), kl_.data(), count * sizeof(double));
    }

    // p_full of the places; keeps their hidden states for the comparisons.
    void full_rows(const std::vector<LocalityText>& texts, const std::vector<Place>& places,
                   std::vector<TextLocality>& out) {
        reserve();
        std::vector<double> p, kl;
        for (size_t first = 0; first < places.size(); first += chunk()) {
            const size_t count = std::min(chunk(), places.size() - first);
            const Place* part = &places[first];
            // Places come in the order of texts and tokens, which is that of the kept rows.
            T* kept = hidden_.data() + kept_row(*part) * size_t(config_.hidden);
            gather(kept, model_->hidden(), part, count, [](const Place& place) { return place.row; });
            logits(logits_.data(), kept, count);
            compare(texts, out, part, count, false, p, kl);
            for (size_t i = 0; i < count; i++) {
                TextLocality& score = out[part[i].text];
                score.full[part[i].index] = p[i];
                for (std::vector<double>& cut : score.cut) cut[part[i].index] = p[i];
            }
        }
    }
    size_t kept_row(const Place& p) const { return first_row_[p.text] + p.index; }

    // p_w and KL of the places of a cut or masked pass with hidden states `hidden`.
    void cut_rows(const std::vector<LocalityText>& texts, const std::vector<Place>& places, const T* hidden,
                  size_t w, std::vector<TextLocality>& out) {
        reserve();
        std::vector<double> p, kl;
        for (size_t first = 0; first < places.size(); first += chunk()) {
            const size_t count = std::min(chunk(), places.size() - first);
            const Place* part = &places[first];
            gather(x_.data(), hidden_.data(), part, count,
                   [&](const Place& place) { return int(kept_row(place)); });
            logits(full_logits_.data(), x_.data(), count);
            gather(x_.data(), hidden, part, count, [](const Place& place) { return place.row; });
            logits(logits_.data(), x_.data(), count);
            compare(texts, out, part, count, true, p, kl);
            for (size_t i = 0; i < count; i++) {
                TextLocality& score = out[part[i].text];
                score.cut[w][part[i].index] = p[i];
                score.kl[w][part[i].index] = std::max(0.0, kl[i]);
            }
        }
    }

    void masked_pass(const std::vector<LocalityText>& texts, const LocalityOptions& o, size_t w,
                     std::vector<TextLocality>& out) {
        std::unique_ptr<Model<Device>> masked;
        auto run = [&](const std::vector<LocalityText>& part, size_t offset, int sinks) {
            if (!masked || masked->config.sink_tokens != sinks) {
                ModelConfig narrow = config_;
                narrow.window.assign(size_t(narrow.layers), o.windows[w]);
                narrow.sink_tokens = sinks;
                masked.reset();  // before the next one is allocated
                masked = std::make_unique<Model<Device>>(model_->dev, narrow);
                masked->load(folder_);
            }
            whole_texts(part, o, *masked, offset, out, [&](const std::vector<Place>& places) {
                cut_rows(texts, places, masked->hidden(), w, out);
            });
        };
        if (!o.keep_prompt) return run(texts, 0, 0);
        // The prompt's tokens stay visible as sinks; their number belongs to the model, so text by text.
        for (size_t i = 0; i < texts.size(); i++) run({texts[i]}, i, texts[i].prompt);
    }

    // Documents cut to the window, each predicting its last `stride` tokens or fewer.
    void cut_pass(const std::vector<LocalityText>& texts, const LocalityOptions& o, size_t w,
                  std::vector<TextLocality>& out) {
        std::vector<Sequence> sequences;
        std::vector<std::vector<Place>> places;  // of each sequence; rows count from its start
        for (size_t d = 0; d < texts.size(); d++) {
            const LocalityText& text = texts[d];
            const int n = int(out[d].full.size());
            for (int i = 0; i < n;) {
                const int t = out[d].first + i, from = first_kept(o, text, t, o.windows[w]);
                const int count = std::min(o.stride, n - i);
                if (from == 0) {  // nothing is cut off: p_w = p_full
                    i++;
                    continue;
                }
                Sequence s;
                if (o.keep_prompt) s.token = {text.ids.begin(), text.ids.begin() + text.prompt};
                s.token.insert(s.token.end(), text.ids.begin() + from, text.ids.begin() + t + count - 1);
                std::vector<Place> predicted;
                for (int k = 0; k < count; k++)
                    predicted.push_back({d, size_t(i + k), int(s.token.size()) - count + k});
                sequences.push_back(std::move(s));
                places.push_back(std::move(predicted));
                i += count;
            }
        }
        each_pass(sequences, budget(sequences, o), true, [&](const Batch& batch, size_t first, size_t last) {
            model_->forward(batch);
            std::vector<Place> of_pass;
            for (size_t s = first; s < last; s++)
                for (Place p : places[s]) {
                    p.row += batch.start[s - first];
                    of_pass.push_back(p);
                }
            cut_rows(texts, of_pass, model_->hidden(), w, out);
        });
    }

    ModelConfig config_;
    std::string folder_;
    std::unique_ptr<Model<Device>> model_;
    std::vector<size_t> first_row_;  // (texts) of hidden_
    Buffer<T, Device> hidden_, x_;   // (response tokens of all texts, D) of the full pass; (chunk, D)
    Buffer<S, Device> logits_, full_logits_, logp_;  // (chunk, V) twice, (chunk)
    Buffer<double, Device> kl_;                      // (chunk)
    Buffer<int, Device> index_;                      // (chunk)
};

// ---------------------------------------------------------------------------------------------------------
// Scores

// One window over a set of texts. Means are over response tokens that lose context (t > w), pooled; the
// interval treats texts as clusters.
struct WindowScore {
    int window = 0;
    int64_t tokens = 0, response_tokens = 0;  // that lose context; all of them
    Estimate L;
    double log_gap = 0, ratio = 0, small = 0, kl = 0;  // means; small: share with g <= threshold
    double needs_more = 0;                             // share of all response tokens with g > threshold
};

// 1 - sum of y / sum of n with a 95% interval from the spread of texts; 1 without tokens.
inline Estimate pooled_locality(const std::vector<double>& y, const std::vector<double>& n) {
    Estimate e;
    double sum = 0, tokens = 0, squares = 0, k = 0;
    for (size_t i = 0; i < y.size(); i++) sum += y[i], tokens += n[i], k += n[i] > 0;
    e.problems = int(k);
    e.mean = e.low = e.high = 1;
    if (tokens == 0) return e;
    const double gap = sum / tokens;
    for (size_t i = 0; i < y.size(); i++) squares += (y[i] - gap * n[i]) * (y[i] - gap * n[i]);
    e.mean = 1 - gap;
    e.error = k > 1 ? std::sqrt(k / (k - 1) * squares) / tokens : 0;
    const double reach = k > 1 ? student_quantile(0.95, k - 1) * e.error : 1;
    e.low = std::max(0.0, e.mean - reach), e.high = std::min(1.0, e.mean + reach);
    return e;
}

inline WindowScore window_score(const std::vector<LocalityText>& texts,
                                const std::vector<TextLocality>& scores, const LocalityOptions& o, size_t w) {
    WindowScore out;
    out.window = o.windows[w];
    std::vector<double> gap(texts.size()), count(texts.size());
    for (size_t d = 0; d < texts.size(); d++) {
        const TextLocality& s = scores[d];
        for (size_t i = 0; i < s.full.size(); i++) {
            out.response_tokens++;
            if (first_kept(o, texts[d], s.first + int(i), out.window) == 0) continue;
            const double g = s.full[i] - s.cut[w][i];
            out.tokens++;
            count[d]++;
            gap[d] += std::max(0.0, g);
            out.log_gap += std::log(std::max(s.full[i], 1e-300) / std::max(s.cut[w][i], 1e-300));
            out.ratio += s.cut[w][i] / std::max(s.full[i], 1e-300);
            out.small += g <= o.threshold;
            out.kl += s.kl[w][i];
            out.needs_more += g > o.threshold;
        }
    }
    out.L = pooled_locality(gap, count);
    if (out.response_tokens) out.needs_more /= double(out.response_tokens);
    if (out.tokens)
        for (double* mean : {&out.log_gap, &out.ratio, &out.small, &out.kl}) *mean /= double(out.tokens);
    else
        out.ratio = out.small = 1;
    return out;
}
