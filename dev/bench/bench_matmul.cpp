// Dense products and the fused head and loss, as shares of the ceilings of the same run.
// Shape (a): 4 layers, d 256, ff 768, vocabulary 4096; shape (b): Qwen2.5-0.5B; demo: 2 layers, d 64.
#include <array>
#include <vector>

#include "ceilings.h"
#include "swarr/layers/token_loss.cuh"

namespace {

Cpu device;
Ceilings ceilings;

using Floats = Buffer<float, Cpu>;
Floats filled(size_t size) {
    Floats b(device, size, Memory::workspace);
    uint32_t state = 1;
    for (size_t i = 0; i < size; i++) {
        state = state * 1664525u + 1013904223u;
        b[i] = float(state >> 8) / float(1 << 24) - 0.5f;
    }
    return b;
}

// N tokens, O outputs, I inputs: forward, dx, dW.
void training(int N, int O, int I) {
    Floats x = filled(size_t(N) * I), w = filled(size_t(O) * I), y = filled(size_t(N) * O),
           dx = filled(size_t(N) * I), dw = filled(size_t(O) * I),
           packed(device, packed_size<float>(O, I), Memory::workspace);
    pack_weight(device, packed.data(), w.data(), O, I);
    const Weight<float> weight{w.data(), packed.data()};
    const double flops = 2e-9 * N * O * I;
    const double forward =
        best_seconds([&] { matmul_forward<float>(device, y.data(), x.data(), weight, nullptr, N, O, I); });
    const double back_x = best_seconds([&] {
        matmul_backward<float>(device, dx.data(), nullptr, nullptr, y.data(), x.data(), weight, N, O, I);
    });
    const double back_w = best_seconds([&] {
        matmul_backward<float>(device, nullptr, dw.data(), nullptr, y.data(), x.data(), weight, N, O, I);
    });
    std::printf("%6d x %6d x %5d   %5.0f %5.0f %5.0f GFLOP/s  %3.0f%% %3.0f%% %3.0f%% of FMA\n", N, O, I,
                flops / forward, flops / back_x, flops / back_w, 100 * flops / forward / ceilings.fma,
                100 * flops / back_x / ceilings.fma, 100 * flops / back_w / ceilings.fma);
}

// Few rows against weights that come from memory: copies worth 400 MB in turn (at_most 1 copy: from the
// cache).
void decoding(int N, int O, int I, int at_most = 1 << 20) {
    const size_t size = packed_size<float>(O, I);
    const int copies = std::min(at_most, int(std::max<size_t>(1, (size_t(100) << 20) / size)));
    Floats x = filled(size_t(N) * I), packed = filled(size * copies), y = filled(size_t(N) * O);
    const double seconds =
        best_seconds([&] {
            for (int c = 0; c < copies; c++)
                matmul_forward<float>(device, y.data(), x.data(), {nullptr, packed.data() + c * size},
                                      nullptr, N, O, I);
        }) /
        copies;
    const double bytes = 4e-9 * double(size), flops = 2e-9 * N * O * I;
    std::printf("%6d x %6d x %5d   %9.1f us  %5.1f GB/s %3.0f%% of read   %5.0f GFLOP/s %3.0f%% of FMA\n", N,
                O, I, 1e6 * seconds, bytes / seconds,
                100 * read_seconds(packed.data(), size * copies) / copies / seconds, flops / seconds,
                100 * flops / seconds / ceilings.fma);
}

void head_and_loss(int N, int D, int V) {
    Floats x = filled(size_t(N) * D), w = filled(size_t(V) * D), dx = filled(size_t(N) * D),
           dw = filled(size_t(V) * D), logp = filled(N),
           packed(device, packed_size<float>(V, D), Memory::workspace);
    pack_weight(device, packed.data(), w.data(), V, D);
    std::vector<int> targets(N, V / 2);
    TokenLossWorkspace<CpuDevice<float>> workspace(device, N, D, V);
    TokenLoss<float> t;
    t.N = N, t.D = D, t.V = V, t.x = x.data(), t.w = {w.data(), packed.data()}, t.targets = targets.data();
    t.logp = logp.data();
    const double flops = 2e-9 * N * D * V;
    const double score = best_seconds([&] { token_loss_forward_backward(device, workspace, t); });
    t.dx = dx.data(), t.dw = dw.data();
    const double train = best_seconds([&] { token_loss_forward_backward(device, workspace, t); });
    std::printf("%6d x %6d x %5d   score %5.0f GFLOP/s %3.0f%%   train %5.0f GFLOP/s %3.0f%% of FMA\n", N, V,
                D, flops / score, 100 * flops / score / ceilings.fma, 3 * flops / train,
                300 * flops / train / ceilings.fma);
}

}  // namespace

int main() {
    ceilings.measure();
    std::puts("training: tokens x outputs x inputs, forward, dx, dW");
    for (auto s : std::vector<std::array<int, 3>>{{512, 64, 64},
                                                  {512, 256, 64},
                                                  {512, 64, 256},
                                                  {512, 256, 256},
                                                  {4096, 256, 256},
                                                  {4096, 512, 256},
                                                  {4096, 1536, 256},
                                                  {4096, 256, 768},
                                                  {4096, 4096, 256},
                                                  {512, 896, 896},
                                                  {1024, 1152, 896},
                                                  {1024, 9728, 896},
                                                  {1024, 896, 4864},
                                                  {1000, 1000, 1000},
                                                  {512, 4096, 4096}})
        training(s[0], s[1], s[2]);
    std::puts("head and loss: tokens x vocabulary x hidden size");
    head_and_loss(512, 64, 40);
    head_and_loss(4096, 256, 4096);
    head_and_loss(256, 896, 151936);
    ceilings.measure();
    std::puts("decoding: rows x outputs x inputs, weights from memory");
    for (int n : {1, 2, 4, 8, 16, 32, 64, 128}) {
        decoding(n, 896, 896);
        decoding(n, 9728, 896);
        decoding(n, 896, 4864);
    }
    decoding(1, 151936, 896);
    decoding(64, 151936, 896);
    std::puts("decoding, weights in the cache");
    for (int n : {1, 4, 16, 64}) {
        decoding(n, 64, 64, 1);
        decoding(n, 256, 64, 1);
        decoding(n, 512, 256, 1);
        decoding(n, 1536, 256, 1);
        decoding(n, 4096, 256, 1);
    }
    ceilings.measure();
    ceilings.print();
}
