// embedding on the CUDA device: exact, since rows are copied and sums have one order.
#include "cuda_test.h"
#include "layers/embedding.cuh"

namespace {

using Values = std::vector<double>;

// N tokens of V, some of them common.
Values random_tokens(int N, int V) {
    Values out(static_cast<size_t>(N));
    for (size_t n = 0; n < out.size(); n++) {
        const double x = normal_at(7, Stream::init, 1, n);
        out[n] = std::fabs(x) < 0.3 ? V / 2 : std::fmod(std::fabs(x) * 1000, V);
        out[n] = std::floor(out[n]);
    }
    return out;
}

struct Size {
    int N, V, D;
};

}  // namespace

TEMPLATE_TEST_CASE("cuda: embedding", "[cuda][embedding]", CUDA_TYPES) {
    using T = TestType;
    CudaDevice<T>& device = cuda<T>();
    for (const Size& s : {Size{1, 3, 8}, Size{40, 7, 40}, Size{2500, 300, 8}, Size{2049, 2, 16},
                          Size{12, 4, 2056}, Size{0, 3, 8}}) {
        CAPTURE(s.N, s.V, s.D);
        const size_t D = size_t(s.D), N = size_t(s.N);
        const Values token = random_tokens(s.N, s.V), table = random_values<T>(size_t(s.V) * D, 1),
                     dout = random_values<T>(N * D, 2), before = random_values<float>(table.size(), 3);
        Values out(N * D), dtable = before;
        for (size_t i = 0; i < out.size(); i++) {
            const size_t at = size_t(token[i / D]) * D + i % D;
            out[i] = table[at];
            dtable[at] = rounded<float>(dtable[at] + dout[i]);
        }
        OnDevice<int, T> ids(device, token);
        OnDevice<T, T> weight(device, table), rows(device, N * D), grad(device, dout);
        embedding_forward(device, rows.data(), ids.data(), weight.data(), s.N, s.D);
        CHECK(rows.values() == out);
        OnDevice<float, T> sums(device, before);
        embedding_backward(device, sums.data(), ids.data(), grad.data(), s.N, s.D);
        CHECK(sums.values() == dtable);
        // Micro-batches add up to the same bits.
        OnDevice<float, T> parts(device, before);
        const int half = s.N / 3;
        embedding_backward(device, parts.data(), ids.data(), grad.data(), half, s.D);
        embedding_backward(device, parts.data(), ids.data() + half, grad.data() + size_t(half) * D,
                           s.N - half, s.D);
        CHECK(parts.values() == dtable);
    }
}
