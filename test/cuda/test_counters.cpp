// What the element-wise layers read and write, counted by cusim: every input once, whole sectors.
#include <unistd.h>

#include <algorithm>
#include <fstream>

#include "cuda_test.h"
#include "json_lines.h"
#include "layers/adamw.cuh"
#include "layers/embedding.cuh"
#include "layers/matmul.cuh"
#include "layers/rmsnorm.cuh"
#include "layers/rope.cuh"
#include "layers/swiglu.cuh"

namespace {

constexpr int N = 64, D = 1536, F = 1024, H = 4, G = 2, E = 128, Q = (H + 2 * G) * E;
constexpr size_t weights = 10000;

// cusim's counters of the hidden test below, by kernel; null on a GPU, where nothing counts.
Json counters() {
    const std::string file = format("/tmp/swarr-counters-%d.json", int(getpid()));
    const std::string command =
        format("CUSIM_QUIET=1 CUSIM_STATS=%s /proc/%d/exe '[.counted-layers]' >/dev/null", file.c_str(),
               int(getpid()));
    REQUIRE(std::system(command.c_str()) == 0);
    std::ifstream in(file);
    if (!in) return {};
    Json out = Json::parse(in);
    std::remove(file.c_str());
    return out;
}

}  // namespace

TEST_CASE("cuda: layers to be counted", "[.counted-layers]") {
    CudaDevice<bf16>& device = cuda<bf16>();
    using Values = std::vector<double>;
    const size_t n = size_t(N) * D;
    OnDevice<bf16, bf16> x(device, Values(n)), delta(device, Values(n)), w(device, Values(D)), y(device, n),
        sum(device, n), gu(device, Values(size_t(N) * 2 * F)), h(device, size_t(N) * F),
        qkv(device, Values(size_t(N) * Q));
    Values ids(N);
    for (int i = 0; i < N; i++) ids[i] = N - 1 - i;
    OnDevice<int, bf16> token(device, ids);
    OnDevice<float, bf16> r(device, size_t(N)), dw(device, Values(size_t(D))), dtable(device, Values(n)),
        p(device, Values(weights)), m(device, Values(weights)), v(device, Values(weights)),
        g(device, Values(weights)), dbias(device, Values(size_t(Q)));
    add_rmsnorm_forward(device, sum.data(), y.data(), r.data(), x.data(), delta.data(), w.data(), N, D,
                        1e-6f);
    rmsnorm_backward(device, x.data(), dw.data(), y.data(), sum.data(), r.data(), w.data(), plain_rows(N, D),
                     D, true);
    embedding_forward(device, y.data(), token.data(), x.data(), N, D);
    embedding_backward(device, dtable.data(), token.data(), y.data(), N, D);
    RopeTable<CudaDevice<bf16>> table(device, N, E, 10000.0);
    rope_forward(device, qkv.data(), token.data(), table, N, H, G, E);
    swiglu_forward(device, h.data(), gu.data(), N, F);
    swiglu_backward(device, gu.data(), h.data(), gu.data(), N, F);
    matmul_backward(device, static_cast<bf16*>(nullptr), nullptr, dbias.data(), qkv.data(),
                    static_cast<const bf16*>(nullptr), Weight<bf16>{}, N, Q, 8);
    adamw_update(device, p.data(), m.data(), v.data(), g.data(), weights, AdamW{}, 0, 1, 1);
    global_norm(device, g.data(), weights);
    device.synchronize();
}

TEST_CASE("cuda: layers read every input once, in whole sectors", "[cuda][counters]") {
    const Json all = counters();
    if (all.is_null()) {
        std::puts("skipped: counters (only cusim counts)");
        return;
    }
    auto global = [&](const char* kernel) -> Json {
        for (const Json& k : all["kernels"])
            if (k["signature"].get<std::string>().find(kernel) != std::string::npos) return k["global"];
        FAIL("no kernel " << kernel);
        return {};
    };
    auto bytes = [&](const char* kernel, const char* direction) {
        return global(kernel)[direction]["bytes"].get<size_t>();
    };
    const size_t rows = size_t(N) * D * sizeof(bf16), row_of_each = rows;  // a weight is read for each row
    CHECK(bytes("rmsnorm::forward", "read") == 2 * rows + row_of_each);
    CHECK(bytes("rmsnorm::forward", "write") == 2 * rows + N * sizeof(float));
    // x, dy and the gradient that is added to; the weight twice; the statistic for all 64 threads of a row.
    CHECK(bytes("rmsnorm::backward", "read") == 3 * rows + 2 * row_of_each + N * 64 * sizeof(float));
    CHECK(bytes("adamw::update", "read") == 4 * weights * sizeof(float));
    CHECK(bytes("adamw::update", "write") == 3 * weights * sizeof(float));
    CHECK(bytes("adamw::squares", "read") == weights * sizeof(float));
    CHECK(bytes("rope::turn", "write") == size_t(N) * (H + G) * E * sizeof(bf16));
    CHECK(bytes("column_sum::sum<__nv_bfloat16>", "read") == size_t(N) * Q * sizeof(bf16));

    auto whole_sectors = [&](const char* kernel, const char* direction) {
        INFO(kernel << " " << direction);
        const Json counts = global(kernel)[direction];
        CHECK(counts["sectors"] == counts["ideal"]);
    };
    for (const char* kernel :
         {"rmsnorm::forward", "embedding::forward", "swiglu::forward", "swiglu::backward", "adamw::update",
          "column_sum::sum<__nv_bfloat16>", "column_sum::sum<float>"}) {
        whole_sectors(kernel, "read");
        whole_sectors(kernel, "write");
    }
    whole_sectors("rmsnorm::backward", "read");
    whole_sectors("rope::turn", "write");
}
