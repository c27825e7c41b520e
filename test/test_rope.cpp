// rope.cuh: the rotation of its formula in double, its inverse, and its gradient.
#include <cmath>
#include <vector>

#include "check.h"
#include "layers/rope.cuh"

TEST_CASE("rope turns halves of query and key heads, and no value", "[rope]") {
    const int N = 5, H = 3, G = 1, E = 8, Q = (H + 2 * G) * E;
    const int position[N] = {0, 1, 2, 0, 900};  // two documents
    CpuDevice<double> device;
    RopeTable<CpuDevice<double>> table(device, 1000, E, 10000.0);
    auto before = random_array(N * Q, 1), after = before;
    rope_forward(device, after.data(), position, table, N, H, G, E);
    for (int t = 0; t < N; t++)
        for (int h = 0; h < H + 2 * G; h++)
            for (int i = 0; i < E / 2; i++) {
                const size_t a = size_t(t) * Q + h * E + i, b = a + E / 2;
                double angle = h < H + G ? position[t] * std::pow(10000.0, -2.0 * i / E) : 0;
                CHECK(after[a] ==
                      Approx(before[a] * std::cos(angle) - before[b] * std::sin(angle)).margin(2e-4));
                CHECK(after[b] ==
                      Approx(before[b] * std::cos(angle) + before[a] * std::sin(angle)).margin(2e-4));
            }
    rope_backward(device, after.data(), position, table, N, H, G, E);
    for (size_t i = 0; i < after.size(); i++) CHECK(after[i] == Approx(before[i]).margin(1e-12));
}

TEST_CASE("rope gradient by finite differences", "[rope]") {
    const int N = 3, H = 2, G = 1, E = 6, Q = (H + 2 * G) * E;
    const int position[N] = {7, 8, 31};
    CpuDevice<double> device;
    RopeTable<CpuDevice<double>> table(device, 32, E, 1000000.0);
    auto x = random_array(N * Q, 2), dy = random_array(N * Q, 3), gradient = dy;
    rope_backward(device, gradient.data(), position, table, N, H, G, E);
    auto loss = [&] {
        auto y = x;
        rope_forward(device, y.data(), position, table, N, H, G, E);
        return inner(y, dy);
    };
    check_gradient(x, gradient, loss, "rope");
}

TEST_CASE("rope: scores depend on the distance alone", "[rope]") {
    const int H = 1, G = 1, E = 64, Q = (H + 2 * G) * E;
    CpuDevice<double> device;
    RopeTable<CpuDevice<double>> table(device, 2000, E, 10000.0);
    auto x = random_array(2 * Q, 4);
    auto score = [&](int q, int k) {
        auto y = x;
        const int position[2] = {q, k};
        rope_forward(device, y.data(), position, table, 2, H, G, E);
        double sum = 0;
        for (int e = 0; e < E; e++) sum += y[e] * y[Q + E + e];
        return sum;
    };
    CHECK(score(1900, 1880) == Approx(score(20, 0)).margin(0.02));  // angles are floats
    CHECK(std::abs(score(21, 0) - score(20, 0)) > 0.1);
}

TEST_CASE("rope: angles rounded as transformers rounds them", "[rope]") {
    // float32 inv_freq of theta 10000 and E 8 is 1, 0.1, 0.01, 0.001 rounded to float; then one float
    // product.
    CpuDevice<float> device;
    RopeTable<CpuDevice<float>> table(device, 30001, 8, 10000.0);
    const float frequency[] = {1.0f, 0.1f, 0.01f, 0.001f};
    for (int i = 0; i < 4; i++) {
        const float angle = 30000.0f * frequency[i];
        CHECK(table.row(30000)[i] == float(std::cos(double(angle))));
        CHECK(table.row(30000)[4 + i] == float(std::sin(double(angle))));
    }
}

TEST_CASE("rope: errors", "[rope]") {
    CpuDevice<float> device;
    CHECK_THROWS_WITH(RopeTable<CpuDevice<float>>(device, 4, 7, 10000.0),
                      "rotary positions need an even head size, not 7");
    RopeTable<CpuDevice<float>> table(device, 4, 2, 10000.0);
    std::vector<float> qkv(6);
    for (int p : {-1, 4}) CHECK_THROWS_AS(rope_forward(device, qkv.data(), &p, table, 1, 1, 1, 2), Error);
}
