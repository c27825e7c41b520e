// bench_attention: attention on the CPU against the machine's ceilings, and windows against full attention.
//
// GFLOP/s count visible pairs only: 4 E per pair and head forward, 10 E backward (two and five products).
// "ideal" is the ratio of visible pairs, full to windowed; "x full" what was measured.
//   bench_attention [longest context, default 32768]
#include <random>

#include "ceilings.h"
#include "kv_cache.cuh"

namespace {

Cpu device;
Ceilings ceilings;

void fill(Buffer<float, Cpu>& x) {
    std::mt19937 generator(1);
    for (size_t i = 0; i < x.size(); i++) x[i] = float(generator()) * 0x1p-31f - 1;
}

double visible_pairs(Window w, int length) {
    double sum = 0;
    for (int q = 0; q < length; q++) sum += w.width ? std::min(w.width, q + 1) : q + 1;
    return sum;
}

struct Times {
    double forward, backward;
};

// `docs` documents of `length` tokens in one pass.
Times measure(const char* name, int docs, int length, Window w, int H, int G, int E,
              const Times* full = nullptr) {
    const size_t N = size_t(docs) * length, Q = size_t(H + 2 * G) * E;
    auto array = [](size_t n) { return Buffer<float, Cpu>(device, n, Memory::workspace); };
    auto qkv = array(N * Q), dqkv = array(N * Q), dout = array(N * H * E), out = array(N * H * E),
         lse = array(N * H);
    fill(qkv);
    fill(dout);
    std::vector<int> cu;
    for (int d = 0; d <= docs; d++) cu.push_back(d * length);
    const double flops = 4.0 * E * H * docs * visible_pairs(w, length);
    const int repeats = flops > 2e11 ? 1 : flops > 1e10 ? 3 : 7;
    Times t;
    t.forward = best_seconds(
        [&] {
            attention_forward(device, out.data(), lse.data(), qkv.data(),
                              Documents{cu.data(), docs, cu.back()}, w, H, G, E);
        },
        repeats);
    t.backward = best_seconds(
        [&] {
            attention_backward(device, dqkv.data(), dout.data(), out.data(), lse.data(), qkv.data(),
                               Documents{cu.data(), docs, cu.back()}, w, H, G, E);
        },
        repeats);
    const double forward = 1e-9 * flops / t.forward, backward = 2.5e-9 * flops / t.backward;
    std::printf(
        "%-8s %4d x %5d  window %5d | %7.2f us/token %5.0f GFLOP/s %3.0f%% | %7.2f us/token %5.0f GFLOP/s "
        "%3.0f%%",
        name, docs, length, w.width, 1e6 * t.forward / N, forward, 100 * forward / ceilings.fma,
        1e6 * t.backward / N, backward, 100 * backward / ceilings.fma);
    if (full)
        std::printf(" | x full %5.2f %5.2f, ideal %5.2f", full->forward / t.forward,
                    full->backward / t.backward, visible_pairs({}, length) / visible_pairs(w, length));
    std::printf("\n");
    std::fflush(stdout);
    return t;
}

void decode(const char* name, int B, int context, Window w, int H, int G, int E) {
    const size_t Q = size_t(H + 2 * G) * E;
    // Several layers, walked in turn, so that keys come from memory as they do between other layers.
    const size_t bytes = KvCache<Cpu>::bytes_per_slot({w}, context, H, G, E) * B;
    const int layers = int(std::max<size_t>(1, (size_t(256) << 20) / bytes));
    KvCache<Cpu> cache(device, std::vector<Window>(size_t(layers), w), B, context, H, G, E);
    Buffer<float, Cpu> qkv(device, B * Q, Memory::workspace),
        out(device, size_t(B) * H * E, Memory::workspace);
    fill(qkv);
    for (size_t i = 0; i < cache.size(); i++) cache.data()[i] = float(i % 17) * 0.1f - 0.8f;
    std::vector<int> slots, positions(size_t(B), context - 1);
    for (int b = 0; b < B; b++) slots.push_back(b);
    const double seconds = best_seconds([&] {
                               for (int l = 0; l < layers; l++)
                                   attention_decode(device, out.data(), qkv.data(), cache, l, slots.data(),
                                                    positions.data(), B, H);
                           }) /
                           layers;
    const double keys = w.width ? std::min(w.width, context) : context;
    const double read = 1e-9 * keys * B * G * 2 * E * sizeof(float) / seconds;
    std::printf("%-8s %4d x %5d  window %5d | %7.2f us/token %5.1f GB/s %3.0f%% of the read ceiling\n", name,
                B, context, w.width, 1e6 * seconds / B, read, 100 * read / ceilings.read);
    std::fflush(stdout);
}

}  // namespace

int main(int argc, char** argv) {
    const int longest = argc > 1 ? std::atoi(argv[1]) : 32768;
    ceilings.measure();
    ceilings.print();
    std::printf("training                             | forward                             | backward\n");
    measure("demo", 32, 70, {16, 0}, 4, 2, 16);
    measure("demo", 1, 70, {16, 0}, 4, 2, 16);
    measure("demo", 32, 70, {}, 4, 2, 16);
    measure("(a)", 16, 256, {}, 4, 2, 64);
    measure("(a)", 16, 256, {64, 0}, 4, 2, 64);
    measure("(b)", 1, 1024, {}, 14, 2, 64);
    measure("(b)", 4, 1024, {256, 0}, 14, 2, 64);
    measure("1 head", 1, 1024, {}, 1, 1, 64);
    measure("E 128", 2, 1024, {}, 4, 1, 128);
    for (int length = 1024; length <= longest; length *= 2) {
        ceilings.measure();
        const Times full = measure("(a)", 1, length, {}, 4, 2, 64);
        for (int width : {512, 2048, 4096}) measure("(a)", 1, length, {width, 0}, 4, 2, 64, &full);
    }
    std::printf("decoding\n");
    ceilings.measure();
    for (int context : {1024, 4096, longest}) decode("(b)", 1, context, {}, 14, 2, 64);
    for (int width : {512, 2048}) decode("(b)", 1, longest, {width, 0}, 14, 2, 64);
    decode("(b)", 64, 1024, {}, 14, 2, 64);
    decode("(b)", 64, 4096, {512, 0}, 14, 2, 64);
    decode("(a)", 1, longest, {}, 4, 2, 64);
    decode("(a)", 64, 256, {}, 4, 2, 64);
    decode("demo", 64, 128, {16, 0}, 4, 2, 16);
    ceilings.measure();
    ceilings.print();
}
