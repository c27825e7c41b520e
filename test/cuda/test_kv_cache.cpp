// The ring cache and decoding on the CUDA device, against attention over the whole sequence in double.
#include "counters.h"
#include "cuda_test.h"
#include "kv_cache.cuh"

namespace {

struct Sizes {
    int H, G, E;
    size_t row() const { return size_t(H + 2 * G) * E; }
    size_t out() const { return size_t(H) * E; }
};

// The output of the query at `position` of a sequence, qkv (positions, Q): summed in Sum, every intermediate
// array rounded by `round`.
template <class Sum, class Round>
std::vector<double> attention(const std::vector<double>& qkv, int position, Window w, Sizes s, Round round) {
    std::vector<double> out;
    for (int h = 0; h < s.H; h++) {
        const int g = h / (s.H / s.G);
        const double* query = &qkv[position * s.row() + size_t(h) * s.E];
        std::vector<double> p(position + 1, -INFINITY);
        std::vector<Sum> o(s.E);
        double most = -INFINITY;
        Sum sum = 0;
        for (int k = 0; k <= position; k++) {
            if (!visible(w, position, k)) continue;
            const double* key = &qkv[k * s.row() + size_t(s.H + g) * s.E];
            Sum dot = 0;
            for (int e = 0; e < s.E; e++) dot += Sum(query[e] * key[e]);
            most = std::max(most, p[k] = round(dot / std::sqrt(s.E)));
        }
        for (double& x : p) sum += Sum(x = round(std::exp(x - most)));
        for (int k = 0; k <= position; k++)
            for (int e = 0; e < s.E; e++)
                o[e] += Sum(round(p[k] / sum) * qkv[k * s.row() + size_t(s.H + s.G + g) * s.E + e]);
        for (Sum x : o) out.push_back(round(x));
    }
    return out;
}

// A cache whose memory holds NaN wherever nothing is written, and the sequences in its slots.
template <class T>
struct Decoder {
    CudaDevice<T>& device = cuda<T>();
    Sizes s;
    KvCache<CudaDevice<T>> cache;
    Decoder(const std::vector<Window>& windows, int slots, int limit, Sizes s)
        : s(s), cache(device, windows, slots, limit, s.H, s.G, s.E) {
        const size_t rows = cache.size() * sizeof(T),
                     all = size_t(slots) * cache.bytes_per_slot(windows, limit, s.H, s.G, s.E);
        CUDA_CHECK(cudaMemsetAsync(cache.data(), 0xff, rows, device.stream));
        CUDA_CHECK(cudaMemsetAsync(cache.workspace(), 0xff, all - rows, device.stream));
    }
    void prompt(int layer, int slot, const std::vector<double>& qkv, int length) {
        OnDevice<T, T> in(device, {qkv.begin(), qkv.begin() + length * s.row()});
        cache_prompt(device, cache, layer, slot, in.data(), length, s.H);
        device.synchronize();
    }
    // Outputs (slots.size(), H*E) of the tokens at `positions` of sequences qkv[i].
    std::vector<double> step(int layer, const std::vector<const std::vector<double>*>& qkv,
                             const std::vector<int>& slots, const std::vector<int>& positions) {
        const int B = int(slots.size());
        std::vector<double> rows;
        for (int b = 0; b < B; b++)
            rows.insert(rows.end(), qkv[b]->begin() + positions[b] * s.row(),
                        qkv[b]->begin() + (positions[b] + 1) * s.row());
        OnDevice<T, T> in(device, rows), out(device, B * s.out());
        OnDevice<int, T> slot(device, {slots.begin(), slots.end()}),
            position(device, {positions.begin(), positions.end()});
        cache_append(device, cache, layer, in.data(), slot.data(), position.data(), B, s.H);
        attention_decode(device, out.data(), in.data(), cache, layer, slot.data(), position.data(), B, s.H);
        return out.values();
    }
};

template <class T>
void check_row(const std::vector<double>& out, int b, const std::vector<double>& qkv, int position, Window w,
               Sizes s) {
    CAPTURE(b, position, w.width, w.sinks, s.H, s.G, s.E);
    check_close<T>({out.begin() + b * s.out(), out.begin() + (b + 1) * s.out()},
                   attention<double>(qkv, position, w, s, [](double x) { return x; }),
                   attention<float>(qkv, position, w, s, [](double x) { return rounded<T>(x); }), 2);
}

// Prompts of the given lengths, one a slot, then `steps` tokens of each.
template <class T>
void check_sequences(Window w, int limit, Sizes s, const std::vector<int>& prompts, int steps,
                     double size = 1) {
    const int B = int(prompts.size());
    Decoder<T> decoder({w}, B, limit, s);
    std::vector<std::vector<double>> qkv;
    std::vector<const std::vector<double>*> sequences;
    std::vector<int> slots, positions = prompts;
    for (int b = 0; b < B; b++) {
        qkv.push_back(random_values<T>((prompts[b] + steps) * s.row(), uint32_t(b), size));
        slots.push_back(B - 1 - b);
        decoder.prompt(0, slots[b], qkv[b], prompts[b]);
    }
    for (const auto& x : qkv) sequences.push_back(&x);
    for (int i = 0; i < steps; i++) {
        const auto out = decoder.step(0, sequences, slots, positions);
        for (int b = 0; b < B; b++) check_row<T>(out, b, qkv[b], positions[b]++, w, s);
    }
}

}  // namespace

TEMPLATE_TEST_CASE("cuda: decoding over a ring", "[cuda][kv_cache]", CUDA_TYPES) {
    for (int width : {1, 2, 15, 16, 17, 64, 255, 257})
        for (int sinks : {0, 1, 17}) {
            const int last = 2 * width + sinks + 3;
            check_sequences<TestType>({width, sinks}, last + 3, {2, 1, 16},
                                      {0, std::max(0, width - 2), width + sinks - 1, width + sinks, last}, 3);
        }
}

TEMPLATE_TEST_CASE("cuda: decoding without a window, up to the limit", "[cuda][kv_cache]", CUDA_TYPES) {
    check_sequences<TestType>({}, 515, {2, 1, 16}, {0, 14, 15, 16, 254, 255, 510, 513}, 2);
    // A window that the limit, not its width, ends.
    check_sequences<TestType>({40, 5}, 43, {2, 1, 16}, {0, 38, 40}, 3);
    check_sequences<TestType>({40, 50}, 43, {2, 1, 16}, {0, 38, 40}, 3);
    check_sequences<TestType>({50, 0}, 43, {2, 1, 16}, {0, 38, 40}, 3);
}

TEMPLATE_TEST_CASE("cuda: decoding, head sizes and groups", "[cuda][kv_cache]", CUDA_TYPES) {
    for (Sizes s : {Sizes{2, 2, 16}, Sizes{6, 1, 32}, Sizes{14, 2, 64}, Sizes{16, 1, 80}, Sizes{3, 3, 96},
                    Sizes{12, 2, 128}, Sizes{40, 2, 16}})
        check_sequences<TestType>({200, 0}, 240, s, {3, 77, 230}, 2);
}

TEMPLATE_TEST_CASE("cuda: decoding with scores far apart", "[cuda][kv_cache]", CUDA_TYPES) {
    check_sequences<TestType>({}, 300, {4, 2, 32}, {1, 290}, 2, 12);
}

TEMPLATE_TEST_CASE("cuda: a decoded row depends on its sequence alone", "[cuda][kv_cache]", CUDA_TYPES) {
    using T = TestType;
    const Sizes s{6, 2, 32};
    const std::vector<int> lengths = {300, 5, 290};
    Decoder<T> decoder({Window{280, 2}}, 6, 400, s);
    std::vector<std::vector<double>> qkv;
    for (int b = 0; b < 3; b++) {
        qkv.push_back(random_values<T>((lengths[b] + 1) * s.row(), uint32_t(b)));
        decoder.prompt(0, b + 1, qkv[b], lengths[b]);
    }
    std::vector<std::vector<double>> alone;
    for (int b = 0; b < 3; b++) alone.push_back(decoder.step(0, {&qkv[b]}, {b + 1}, {lengths[b]}));
    std::vector<T> before(decoder.cache.size()), after(decoder.cache.size());
    decoder.device.download(before.data(), decoder.cache.data(), before.size() * sizeof(T));
    // Other neighbours, another order, and rows of padding, which write zeros, and nothing to the cache.
    const std::vector<int> order = {2, -1, 0, 1, -1};
    std::vector<const std::vector<double>*> sequences;
    std::vector<int> slots, positions;
    for (int b : order) {
        sequences.push_back(&qkv[std::max(b, 0)]);
        slots.push_back(b < 0 ? -1 : b + 1);
        positions.push_back(lengths[std::max(b, 0)]);
    }
    for (int run = 0; run < 2; run++) {
        const auto out = decoder.step(0, sequences, slots, positions);
        for (size_t i = 0; i < order.size(); i++) {
            const std::vector<double> row(out.begin() + i * s.out(), out.begin() + (i + 1) * s.out());
            CHECK(row == (order[i] < 0 ? std::vector<double>(s.out(), 0) : alone[order[i]]));
        }
    }
    decoder.device.download(after.data(), decoder.cache.data(), after.size() * sizeof(T));
    CHECK(std::memcmp(before.data(), after.data(), before.size() * sizeof(T)) == 0);
}

TEMPLATE_TEST_CASE("cuda: a sequence is copied to other slots, and those go their ways", "[cuda][kv_cache]",
                   CUDA_TYPES) {
    using T = TestType;
    const Sizes s{4, 2, 16};
    const std::vector<Window> windows = {{16, 0}, {16, 0}, {0, 0}, {40, 1}};
    const int L = int(windows.size()), samples = 3, steps = 18;
    for (int prompt : {1, 41}) {
        Decoder<T> decoder(windows, 4, 100, s);
        std::vector<std::vector<double>> qkv[samples];
        for (int b = 0; b < samples; b++)
            for (int l = 0; l < L; l++) {
                auto x = random_values<T>((prompt + steps) * s.row(), uint32_t(l));
                const auto rest = random_values<T>(steps * s.row(), uint32_t(10 * b + l));
                std::copy(rest.begin(), rest.end(), x.begin() + prompt * s.row());
                qkv[b].push_back(x);
            }
        // The slots hold longer sequences from before.
        for (int l = 0; l < L; l++) {
            const std::vector<double> old(100 * s.row(), 1e6);
            for (int slot = 0; slot < 4; slot++) decoder.prompt(l, slot, old, 100);
            decoder.prompt(l, 3, qkv[0][l], prompt);
        }
        for (int b = 0; b < samples; b++) decoder.cache.copy(3, b, prompt);
        for (int i = 0; i < steps; i++)
            for (int l = 0; l < L; l++) {
                const auto out = decoder.step(l, {&qkv[2][l], &qkv[0][l], &qkv[1][l]}, {2, 0, 1},
                                              {prompt + i, prompt + i, prompt + i});
                if (i > 1 && i < steps - 1) continue;
                for (int b = 0; b < samples; b++)
                    check_row<T>(out, b, qkv[(b + 2) % 3][l], prompt + i, windows[l], s);
            }
    }
}

TEMPLATE_TEST_CASE("cuda: a captured step of decoding serves all later positions", "[cuda][kv_cache]",
                   CUDA_TYPES) {
    using T = TestType;
    const Sizes s{4, 2, 16};
    const Window w{270, 0};
    const int B = 3;
    Decoder<T> decoder({w}, B, 600, s);
    auto& [device, sizes, cache] = decoder;
    OnDevice<T, T> row(device, B * s.row()), out(device, B * s.out());
    OnDevice<int, T> slot(device, B), position(device, B);
    cudaGraph_t graph;
    cudaGraphExec_t program;
    CUDA_CHECK(cudaStreamBeginCapture(device.stream, cudaStreamCaptureModeGlobal));
    cache_append(device, cache, 0, row.data(), slot.data(), position.data(), B, s.H);
    attention_decode(device, out.data(), row.data(), cache, 0, slot.data(), position.data(), B, s.H);
    CUDA_CHECK(cudaStreamEndCapture(device.stream, &graph));
    CUDA_CHECK(cudaGraphInstantiate(&program, graph, 0));
    const auto qkv = random_values<T>(600 * s.row(), 3);
    for (int last : {0, 200, 300, 599}) {
        // Slot 1 has only its newest token; slot 2 has all before; one row of padding.
        if (last > 0) decoder.prompt(0, 2, qkv, last);
        const int slots[B] = {1, -1, 2}, positions[B] = {0, 5, last};
        std::vector<T> rows;
        for (int p : positions)
            for (size_t i = 0; i < s.row(); i++) rows.push_back(T(float(qkv[p * s.row() + i])));
        device.upload(row.data(), rows.data(), rows.size() * sizeof(T));
        device.upload(slot.data(), slots, sizeof slots);
        device.upload(position.data(), positions, sizeof positions);
        CUDA_CHECK(cudaGraphLaunch(program, device.stream));
        const auto values = out.values();
        check_row<T>(values, 0, qkv, 0, w, s);
        CHECK(largest({values.begin() + s.out(), values.begin() + 2 * s.out()}) == 0);
        check_row<T>(values, 2, qkv, last, w, s);
    }
    cudaGraphExecDestroy(program);
    cudaGraphDestroy(graph);
}

TEST_CASE("cuda: what the cache takes, and what it refuses", "[cuda][kv_cache]") {
    CudaDevice<bf16>& device = cuda<bf16>();
    using Cache = KvCache<CudaDevice<bf16>>;
    const std::vector<Window> windows = {{100, 3}, {0, 0}};
    // 103 and 1000 rows of keys and values, 4 splits of 4 heads' sums
    CHECK(Cache::bytes_per_slot(windows, 1000, 4, 2, 16) ==
          (103 + 1000) * 2 * 2 * 16 * sizeof(bf16) + 4 * 4 * (16 + 2) * sizeof(float));
    CHECK(Cache::bytes_per_slot({{100, 3}}, 1000, 4, 2, 16) ==
          Cache::bytes_per_slot({{100, 3}}, 9999, 4, 2, 16));
    const size_t before = device.memory.now[int(Memory::cache)];
    Cache cache(device, windows, 3, 1000, 4, 2, 16);
    CHECK(device.memory.now[int(Memory::cache)] - before ==
          3 * Cache::bytes_per_slot(windows, 1000, 4, 2, 16));
    CHECK_THROWS_AS(Cache(device, windows, 3, 1000, 4, 2, 40), Error);
    CHECK_THROWS_AS(cache_prompt(device, cache, 0, 3, (bf16*)nullptr, 1, 4), Error);
    CHECK_THROWS_AS(cache_prompt(device, cache, 0, 0, (bf16*)nullptr, 1001, 4), Error);
    CHECK_THROWS_AS(attention_decode(device, (bf16*)nullptr, (bf16*)nullptr, cache, 0, (int*)nullptr,
                                     (int*)nullptr, 4, 4),
                    Error);
}

namespace {

// A layer without a window and one with: many more splits than are in use, and two that are.
const Sizes counted{12, 2, 128};
const std::vector<int> counted_positions = {299, 31, 250};
const std::vector<Window> counted_windows = {{0, 0}, {200, 0}};

}  // namespace

TEST_CASE("cuda: decoding to be counted", "[.counted-decoding]") {
    Decoder<bf16> decoder(counted_windows, 3, 4000, counted);
    decoder.device.zero(decoder.cache.data(), decoder.cache.size() * sizeof(bf16));
    const std::vector<double> qkv(300 * counted.row());
    for (int l = 0; l < 2; l++) decoder.step(l, {&qkv, &qkv, &qkv}, {0, 1, 2}, counted_positions);
}

TEST_CASE("cuda: decoding reads what is visible, once for all heads of a group", "[cuda][counters]") {
    const Json kernels = counters("[.counted-decoding]");
    if (kernels.is_null()) {
        std::puts("skipped: counters (only cusim counts)");
        return;
    }
    bool seen = false;
    for (const Json& k : kernels) {
        const std::string name = k["signature"];
        if (name.find("decode::attend") == std::string::npos) continue;
        seen = true;
        size_t rows = 0, blocks = 0;
        for (int p : counted_positions)
            for (const Window& w : counted_windows) {
                const size_t n = size_t(w.width ? std::min(p + 1, w.width) : p + 1);
                rows += n, blocks += (n + 255) / 256 * counted.G;
            }
        const size_t head = size_t(counted.E) * sizeof(bf16), of_keys = rows * counted.G * 2 * head;
        const size_t of_queries = blocks * 6 * head, ints = 2 * 128 * sizeof(int);
        const Json &global = k["global"], &shared = k["shared"];
        CAPTURE(of_keys, of_queries, blocks);
        CHECK(global["read"]["bytes"].get<size_t>() >= of_keys + of_queries);
        CHECK(global["read"]["bytes"].get<size_t>() <=
              of_keys + of_queries + k["blocks"].get<size_t>() * 2 * ints);
        CHECK(global["read"]["sectors"] == global["read"]["ideal"]);
        CHECK(global["write"]["sectors"] == global["write"]["ideal"]);
        for (const char* direction : {"read", "write"})
            CHECK(shared[direction]["wavefronts"] == shared[direction]["ideal"]);
    }
    CHECK(seen);
}
