// self_test.cuh: does this checkpoint, on this machine, see exactly its window? One or two seconds.
//
// On the loaded weights, with every window shortened to W' so that a short text goes well beyond it:
//   1. decoding over the ring cache gives the rows of a whole pass, bit for bit;
//   2. in every sliding layer, a query at i does not see the key at i - W', and does see the key at i - W' +
//   1:
//      the key and value there are changed, and the query's output must stay the same, or change;
//   3. the same through the cache.
// In a layer with full attention the key at i + 1 and the key at 0 stand in.
#pragma once
#include <algorithm>
#include <string>
#include <vector>

#include "generate.cuh"

struct SelfTest {
    bool passed = true;
    std::vector<std::string> lines;
    void check(bool good, const std::string& what) {
        passed = passed && good;
        lines.push_back(std::string(good ? "ok    " : "WRONG ") + what);
    }
};

// The configuration to load the model with: windows of at most `window` keys.
inline ModelConfig self_test_config(ModelConfig c, int window = 12) {
    for (int& w : c.window)
        if (w) w = std::min(w, window);
    c.sink_tokens = std::min(c.sink_tokens, 4);
    return c;
}

template <class Device>
SelfTest window_self_test(Model<Device>& model) {
    using T = typename Device::real;
    const ModelConfig& c = model.config;
    const size_t Q = size_t(c.heads + 2 * c.kv_heads) * size_t(c.head_dim),
                 A = size_t(c.heads) * size_t(c.head_dim), D = size_t(c.hidden);
    int widest = 1;
    for (int w : c.window) widest = std::max(widest, w);
    const int decoded = 4, prompt = 3 * widest + c.sink_tokens, N = prompt + decoded, i = N - 2;
    SelfTest test;

    std::vector<int> ids;
    Rng rng(1, Stream::test);
    for (int t = 0; t < N; t++) ids.push_back(int(rng.below(uint32_t(c.vocab))));
    Batch batch;
    batch.add(ids.data(), N);

    // 2 and 3, on each layer's own rows while the whole pass runs.
    KvCache<Device> one(model.dev, layer_windows(c), 1, N, c.heads, c.kv_heads, c.head_dim);
    Buffer<T, Device> rows(model.dev, size_t(N) * Q, Memory::workspace),
        out(model.dev, size_t(N) * A, Memory::workspace),
        lse(model.dev, size_t(N) * size_t(c.heads), Memory::workspace);
    std::vector<T> base(A), decoded_row(A);
    std::vector<int> wrong_pass, wrong_cache;
    model.forward(batch, [&](int layer, const T* qkv) {
        const Window w = model.window(layer);
        // The output of query i when the key and value at j are others, by a whole pass and through the
        // cache.
        auto outputs = [&](int j) {
            std::copy_n(qkv, size_t(N) * Q, rows.data());
            for (size_t e = A; e < Q && j >= 0; e++) rows[size_t(j) * Q + e] += T(1);
            attention_forward(model.dev, out.data(), lse.data(), rows.data(), {batch.start.data(), 1, N}, w,
                              c.heads, c.kv_heads, c.head_dim);
            const int slot = 0;
            cache_prompt(model.dev, one, layer, slot, rows.data(), i, c.heads);
            cache_append(model.dev, one, layer, rows.data() + size_t(i) * Q, &slot, &i, 1, c.heads);
            attention_decode(model.dev, decoded_row.data(), rows.data() + size_t(i) * Q, one, layer, &slot,
                             &i, 1, c.heads);
        };
        auto row = [&] { return out.data() + size_t(i) * A; };
        outputs(-1);
        std::copy_n(row(), A, base.begin());
        bool pass = true, cache = decoded_row == base;
        for (bool seen : {false, true}) {
            outputs(w.width == 0 ? (seen ? 0 : i + 1) : i - w.width + seen);
            pass = pass && std::equal(base.begin(), base.end(), row()) != seen;
            cache = cache && (decoded_row == base) != seen;
        }
        if (!pass) wrong_pass.push_back(layer);
        if (!cache) wrong_cache.push_back(layer);
    });
    std::vector<T> whole(model.hidden() + size_t(prompt) * D, model.hidden() + size_t(N) * D);

    // 1
    KvCache<Device> cache(model.dev, layer_windows(c), 1, N, c.heads, c.kv_heads, c.head_dim);
    batch.clear();
    batch.add(ids.data(), prompt);
    model.forward(batch, [&](int layer, const T* qkv) {
        cache_prompt(model.dev, cache, layer, 0, qkv, prompt, c.heads);
    });
    bool equal = true;
    for (int t = prompt; t < N; t++) {
        const int slot = 0;
        model.decode(&ids[size_t(t)], &t, 1, [&](int layer, T* att, const T* qkv) {
            cache_append(model.dev, cache, layer, qkv, &slot, &t, 1, c.heads);
            attention_decode(model.dev, att, qkv, cache, layer, &slot, &t, 1, c.heads);
        });
        equal = equal && std::equal(model.hidden(), model.hidden() + D,
                                    whole.begin() + int64_t(t - prompt) * int64_t(D));
    }

    auto layers = [&](const std::vector<int>& wrong) {
        std::string text;
        for (int l : wrong) text += (text.empty() ? ": layers " : ", ") + std::to_string(l);
        return text;
    };
    test.check(equal, format("%d decoded tokens equal those of a whole pass, bit for bit", decoded));
    const bool slides = std::count(c.window.begin(), c.window.end(), 0) < c.layers;
    const bool full = std::count(c.window.begin(), c.window.end(), 0) > 0;
    std::string rule = slides ? "the key at i-W has no effect, the key at i-W+1 has" : "";
    if (full)
        rule += std::string(slides ? "; " : "") + "full attention: the key at i+1 has none, the key at 0 has";
    test.check(wrong_pass.empty(), "every layer, whole pass: " + rule + layers(wrong_pass));
    test.check(wrong_cache.empty(),
               "every layer, ring cache: the same, and equal to the whole pass" + layers(wrong_cache));
    return test;
}
