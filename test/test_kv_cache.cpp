// kv_cache.cuh: a decoded row equals the row of a training pass bit for bit, far past the window, whatever
// lies in memory that no position has reached.
#include <omp.h>

#include <cmath>

#include "check.h"
#include "kv_cache.cuh"

namespace {

struct Sizes {
    int H, G, E;
    size_t row() const { return size_t(H + 2 * G) * E; }
    size_t out() const { return size_t(H) * E; }
};

std::vector<float> trained(const std::vector<float>& qkv, int N, Window w, Sizes s) {
    Cpu device;
    std::vector<float> out(N * s.out()), lse(size_t(N) * s.H);
    const int cu[2] = {0, N};
    attention_forward(device, out.data(), lse.data(), qkv.data(), {cu, 1, N}, w, s.H, s.G, s.E);
    return out;
}

void poison(KvCache<Cpu>& cache) {
    std::fill_n(cache.data(), cache.size(), NAN);
}

bool same_bits(const float* a, const float* b, size_t n) {
    return std::memcmp(a, b, n * sizeof(float)) == 0;
}

}  // namespace

TEST_CASE("decoding equals training bit for bit", "[kv_cache]") {
    const int B = attention::tile;
    int i = 0;
    for (int width : {1, 2, 16, B - 1, B, B + 1, B + 2, 2 * B, 100, 0})
        for (int sinks : {0, 1, 3, B + 1})
            for (Sizes s : {Sizes{4, 2, 16}, Sizes{7, 1, 8}, Sizes{2, 2, 34}, Sizes{11, 1, 16}}) {
                const Window w{width, sinks};
                const int N = std::max(4 * width, 100);
                INFO("window " << width << ", sinks " << sinks << ", H " << s.H << ", E " << s.E);
                auto qkv = random_array<float>(N * s.row(), i++);
                auto want = trained(qkv, N, w, s);
                Cpu device;
                KvCache<Cpu> cache(device, {w}, 1, N, s.H, s.G, s.E);
                poison(cache);
                const int slot = 0;
                std::vector<float> out(s.out());
                bool same = true;
                for (int t = 0; t < N; t++) {
                    cache_append(device, cache, 0, &qkv[t * s.row()], &slot, &t, 1, s.H);
                    attention_decode(device, out.data(), &qkv[t * s.row()], cache, 0, &slot, &t, 1, s.H);
                    same = same && same_bits(out.data(), &want[t * s.out()], s.out());
                }
                CHECK(same);
            }
}

TEST_CASE("a prompt read at once, then decoding, at every edge of window, tile and text", "[kv_cache]") {
    const int B = attention::tile;
    int i = 0;
    for (int N : {2, B - 1, B, B + 1, 3 * B + 5})
        for (int width : {1, 2, B - 1, B, B + 1, N - 1, N, N + 1, 0})
            for (int sinks : {0, 3}) {
                const Sizes s = i % 2 ? Sizes{4, 2, 16} : Sizes{7, 1, 8};
                const Window w{width, sinks};
                auto qkv = random_array<float>(N * s.row(), 300 + i++);
                auto want = trained(qkv, N, w, s);
                for (int prompt : {1, width - 1, width, width + 1, N - 1}) {
                    if (prompt < 1 || prompt >= N) continue;
                    INFO("window " << width << ", sinks " << sinks << ", T " << N << ", prompt " << prompt);
                    Cpu device;
                    KvCache<Cpu> cache(device, {w}, 1, N, s.H, s.G, s.E);
                    poison(cache);
                    cache_prompt(device, cache, 0, 0, qkv.data(), prompt, s.H);
                    const int slot = 0;
                    std::vector<float> out(s.out());
                    bool same = true;
                    for (int t = prompt; t < N; t++) {
                        cache_append(device, cache, 0, &qkv[t * s.row()], &slot, &t, 1, s.H);
                        attention_decode(device, out.data(), &qkv[t * s.row()], cache, 0, &slot, &t, 1, s.H);
                        same = same && same_bits(out.data(), &want[t * s.out()], s.out());
                    }
                    CHECK(same);
                }
            }
}

TEST_CASE("slots at different positions, after prompts, reused and shared", "[kv_cache]") {
    const Sizes s{4, 2, 16};
    const std::vector<Window> windows = {{16, 0}, {0, 0}, {40, 1}};
    const int L = int(windows.size()), limit = 300, samples = 3;
    Cpu device;
    KvCache<Cpu> cache(device, windows, 4, limit, s.H, s.G, s.E);
    poison(cache);
    for (int round = 0; round < 2; round++)  // the second finds the numbers of the first in its memory
        for (int prompt : {1, 31, 32, 33, 64, 130}) {
            const int steps = 90, N = prompt + steps;
            // One prompt in slot 3, copied to slots 0..2, which then go on differently, each at its own pace.
            std::vector<std::vector<std::vector<float>>> qkv(samples), want(samples);
            for (int b = 0; b < samples; b++)
                for (int l = 0; l < L; l++) {
                    auto x = random_array<float>(N * s.row(), 1000 * round + 10 * prompt + l);
                    auto rest = random_array<float>(steps * s.row(), 77 * (b + 1) + l + round);
                    std::copy(rest.begin(), rest.end(), x.begin() + prompt * s.row());
                    qkv[b].push_back(x);
                    want[b].push_back(trained(x, N, windows[l], s));
                }
            for (int l = 0; l < L; l++) cache_prompt(device, cache, l, 3, qkv[0][l].data(), prompt, s.H);
            for (int b = 0; b < samples; b++) cache.copy(3, b, prompt);
            bool same = true;
            for (int step = 0; step < steps; step++)
                for (int l = 0; l < L; l++) {
                    std::vector<int> slots, positions;
                    std::vector<float> rows;
                    for (int b = samples - 1; b >= 0; b--) {
                        if (step % (b + 1)) continue;  // sample b moves every (b+1)-th step
                        slots.push_back(b);
                        positions.push_back(prompt + step / (b + 1));
                        const float* row = &qkv[b][l][positions.back() * s.row()];
                        rows.insert(rows.end(), row, row + s.row());
                    }
                    const int B = int(slots.size());
                    std::vector<float> out(B * s.out(), NAN);
                    cache_append(device, cache, l, rows.data(), slots.data(), positions.data(), B, s.H);
                    attention_decode(device, out.data(), rows.data(), cache, l, slots.data(),
                                     positions.data(), B, s.H);
                    for (int b = 0; b < B; b++)
                        same = same && same_bits(&out[b * s.out()],
                                                 &want[slots[b]][l][positions[b] * s.out()], s.out());
                }
            INFO("round " << round << ", prompt " << prompt);
            CHECK(same);
        }
}

TEST_CASE("threads change no bit of decoding", "[kv_cache]") {
    const Sizes s{14, 2, 64};
    const int N = 700, before = omp_get_max_threads();
    auto qkv = random_array<float>(N * s.row(), 5);
    Cpu device;
    KvCache<Cpu> cache(device, {Window{}}, 2, N, s.H, s.G, s.E);
    for (int slot = 0; slot < 2; slot++) cache_prompt(device, cache, 0, slot, qkv.data(), N, s.H);
    const int slots[2] = {0, 1}, positions[2] = {N - 1, N - 200};
    std::vector<float> rows(qkv.end() - s.row(), qkv.end());
    rows.insert(rows.end(), qkv.end() - 200 * s.row(), qkv.end() - 199 * s.row());
    std::vector<float> one(2 * s.out()), two(2 * s.out());
    omp_set_num_threads(1);
    attention_decode(device, one.data(), rows.data(), cache, 0, slots, positions, 2, s.H);
    omp_set_num_threads(2);
    attention_decode(device, two.data(), rows.data(), cache, 0, slots, positions, 2, s.H);
    omp_set_num_threads(before);
    CHECK(one == two);
}

TEST_CASE("bytes of a slot are flat beyond the window", "[kv_cache]") {
    const std::vector<Window> sliding(4, Window{100, 3});
    const size_t tile = size_t(attention::tile) * 2 * 16 * sizeof(float);
    // 100 keys touch at most 5 tiles of 32, and sinks one more
    CHECK(KvCache<Cpu>::bytes_per_slot(sliding, 1000, 4, 2, 16) == 4 * 6 * 2 * tile);
    CHECK(KvCache<Cpu>::bytes_per_slot(sliding, 100000, 4, 2, 16) == 4 * 6 * 2 * tile);
    CHECK(KvCache<Cpu>::bytes_per_slot(sliding, 64, 4, 2, 16) == 4 * 2 * 2 * tile);
    CHECK(KvCache<Cpu>::bytes_per_slot({Window{}}, 1000, 4, 2, 16) == 32 * 2 * tile);
    CHECK(KvCache<Cpu>::bytes_per_slot({Window{}}, 2000, 4, 2, 16) == 63 * 2 * tile);
    Cpu device;
    KvCache<Cpu> cache(device, sliding, 3, 1000, 4, 2, 16);
    CHECK(device.memory.now[int(Memory::cache)] == 3 * KvCache<Cpu>::bytes_per_slot(sliding, 1000, 4, 2, 16));
}

TEST_CASE("the cache refuses what it has no room for", "[kv_cache]") {
    Cpu device;
    KvCache<Cpu> cache(device, {Window{16, 0}}, 2, 64, 1, 1, 8);
    std::vector<float> qkv(65 * 24), out(8);
    const int good = 0;
    for (int bad : {-1, 2})
        CHECK_THROWS_AS(cache_append(device, cache, 0, qkv.data(), &bad, &good, 1, 1), Error);
    for (int bad : {-1, 64}) {
        CHECK_THROWS_AS(cache_append(device, cache, 0, qkv.data(), &good, &bad, 1, 1), Error);
        CHECK_THROWS_AS(attention_decode(device, out.data(), qkv.data(), cache, 0, &good, &bad, 1, 1), Error);
    }
    CHECK_THROWS_AS(cache_prompt(device, cache, 0, 0, qkv.data(), 65, 1), Error);
    CHECK_NOTHROW(cache_prompt(device, cache, 0, 0, qkv.data(), 64, 1));
}
