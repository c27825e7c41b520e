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
    using S = typename Device::stat;
    const ModelConfig& c = model.config;
    // On the CPU the two engines agree bit for bit; on a GPU they add in different orders, to some places of T.
    const double tolerance = Device::on_host ? 0 : sizeof(T) == 2 ? 0.05 : 1e-4;
    auto agree = [&](const std::vector<S>& a, const std::vector<S>& b) {
        double largest = 0, apart = 0;
        for (size_t k = 0; k < a.size(); k++) {
            largest = std::max(largest, std::fabs(double(b[k])));
            const double gap = std::fabs(double(a[k]) - double(b[k]));
            if (!(gap <= apart)) apart = gap;
        }
        return apart <= tolerance * largest;
    };
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
    Device& dev = model.dev;
    KvCache<Device> one(dev, layer_windows(c), 1, N, c.heads, c.kv_heads, c.head_dim);
    Buffer<T, Device> rows(dev, size_t(N) * Q, Memory::workspace), out(dev, size_t(N) * A, Memory::workspace),
        decoded_row(dev, A, Memory::workspace);
    Buffer<S, Device> lse(dev, size_t(N) * size_t(c.heads), Memory::workspace);
    Buffer<int, Device> ints(dev, 5, Memory::workspace);
    const int start[5] = {0, N, 0, i, 0};  // a document of N tokens; slot 0; position i
    dev.upload(ints.data(), start, sizeof start);
    const int *bounds = ints.data(), *slot = bounds + 2, *position = bounds + 3;
    auto read = [&](const T* from, size_t n) {
        std::vector<S> space;
        const S* values = dev.view(from, n, space);
        return std::vector<S>(values, values + n);
    };
    std::vector<int> wrong_pass, wrong_cache;
    model.forward(batch, [&](int layer, const T* qkv) {
        const Window w = model.window(layer);
        const std::vector<S> all = read(qkv, size_t(N) * Q);
        std::vector<S> pass_row, cache_row;
        // The output of query i when the key and value at j are others, by a whole pass and through the
        // cache.
        auto outputs = [&](int j) {
            std::vector<S> changed = all;
            for (size_t e = A; e < Q && j >= 0; e++) changed[size_t(j) * Q + e] += S(1);
            dev.put(rows.data(), changed.data(), changed.size());
            attention_forward(dev, out.data(), lse.data(), rows.data(), {bounds, 1, N}, w, c.heads,
                              c.kv_heads, c.head_dim);
            pass_row = read(out.data() + size_t(i) * A, A);
            cache_prompt(dev, one, layer, 0, rows.data(), i, c.heads);
            cache_append(dev, one, layer, rows.data() + size_t(i) * Q, slot, position, 1, c.heads);
            attention_decode(dev, decoded_row.data(), rows.data() + size_t(i) * Q, one, layer, slot, position,
                             1, c.heads);
            cache_row = read(decoded_row.data(), A);
        };
        outputs(-1);
        const std::vector<S> base = pass_row, cache_base = cache_row;
        bool pass = true, cache = agree(cache_base, base);
        for (bool seen : {false, true}) {
            outputs(w.width == 0 ? (seen ? 0 : i + 1) : i - w.width + seen);
            pass = pass && (base == pass_row) != seen;
            cache = cache && (cache_base == cache_row) != seen;
        }
        if (!pass) wrong_pass.push_back(layer);
        if (!cache) wrong_cache.push_back(layer);
    });
    const std::vector<S> whole = read(model.hidden() + size_t(prompt) * D, size_t(N - prompt) * D);

    // 1
    KvCache<Device> cache(dev, layer_windows(c), 1, N, c.heads, c.kv_heads, c.head_dim);
    batch.clear();
    batch.add(ids.data(), prompt);
    model.forward(batch,
                  [&](int layer, const T* qkv) { cache_prompt(dev, cache, layer, 0, qkv, prompt, c.heads); });
    bool equal = true;
    model.reserve_positions(N);
    for (int t = prompt; t < N; t++) {
        const int step[3] = {ids[size_t(t)], 0, t};
        dev.upload(ints.data(), step, sizeof step);
        model.decode(bounds, bounds + 2, 1, [&](int layer, T* att, const T* qkv) {
            cache_append(dev, cache, layer, qkv, bounds + 1, bounds + 2, 1, c.heads);
            attention_decode(dev, att, qkv, cache, layer, bounds + 1, bounds + 2, 1, c.heads);
        });
        const auto of_pass = whole.begin() + int64_t(t - prompt) * int64_t(D);
        equal = equal && agree(read(model.hidden(), D), std::vector<S>(of_pass, of_pass + int64_t(D)));
    }

    auto layers = [&](const std::vector<int>& wrong) {
        std::string text;
        for (int l : wrong) text += (text.empty() ? ": layers " : ", ") + std::to_string(l);
        return text;
    };
    test.check(equal, format("%d decoded tokens equal those of a whole pass%s", decoded,
                             Device::on_host ? ", bit for bit"
                                             : format(" to %g of the largest number", tolerance).c_str()));
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
