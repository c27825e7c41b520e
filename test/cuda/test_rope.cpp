// rope on the CUDA device against double, with the CPU's table of angles.
#include "cuda_test.h"
#include "layers/rope.cuh"

namespace {

using Values = std::vector<double>;

Values turned(Values x, const Values& position, const RopeTable<CpuDevice<float>>& table, int N, int H, int G,
              int E, double sign, double (*round)(double)) {
    for (int n = 0; n < N; n++)
        for (int h = 0; h < H + G; h++)
            for (int i = 0; i < E / 2; i++) {
                const float* row = table.row(int(position[size_t(n)]));
                double *a = &x[(size_t(n) * (H + 2 * G) + h) * E + i], *b = a + E / 2;
                const double c = row[i], s = row[E / 2 + i] * sign, first = *a, second = *b;
                *a = round(round(first * c) - round(second * s));
                *b = round(round(second * c) + round(first * s));
            }
    return x;
}

struct Size {
    int N, H, G, E;
};

}  // namespace

TEMPLATE_TEST_CASE("cuda: rope against double", "[cuda][rope]", CUDA_TYPES) {
    using T = TestType;
    CudaDevice<T>& device = cuda<T>();
    Cpu cpu;
    const int positions = 4096;
    for (const Size& s : {Size{1, 1, 1, 16}, Size{5, 4, 2, 64}, Size{7, 2, 1, 80}, Size{3, 3, 3, 96},
                          Size{6, 6, 1, 128}, Size{0, 2, 1, 64}}) {
        CAPTURE(s.N, s.H, s.G, s.E);
        RopeTable<CpuDevice<float>> table(cpu, positions, s.E, 10000.0);
        RopeTable<CudaDevice<T>> device_table(device, positions, s.E, 10000.0);
        const size_t n = size_t(s.N) * size_t((s.H + 2 * s.G) * s.E);
        const Values x = random_values<T>(n, 1);
        Values position;
        for (int i = 0; i < s.N; i++) position.push_back(double(i % 2 ? i : positions - 1 - i));
        OnDevice<int, T> at(device, position);
        for (bool back : {false, true}) {
            OnDevice<T, T> y(device, x);
            if (back)
                rope_backward(device, y.data(), at.data(), device_table, s.N, s.H, s.G, s.E);
            else
                rope_forward(device, y.data(), at.data(), device_table, s.N, s.H, s.G, s.E);
            const double sign = back ? -1 : 1;
            check_close<T>(y.values(),
                           turned(x, position, table, s.N, s.H, s.G, s.E, sign, [](double v) { return v; }),
                           turned(x, position, table, s.N, s.H, s.G, s.E, sign, rounded<T>), 2);
        }
    }
}

TEMPLATE_TEST_CASE("cuda: rope leaves the values alone and turns all else", "[cuda][rope]", CUDA_TYPES) {
    using T = TestType;
    CudaDevice<T>& device = cuda<T>();
    const int N = 3, H = 2, G = 2, E = 64, Q = (H + 2 * G) * E;
    RopeTable<CudaDevice<T>> table(device, 64, E, 10000.0);
    const Values x = random_values<T>(size_t(N) * Q, 1);
    OnDevice<T, T> y(device, x);
    OnDevice<int, T> position(device, Values{50, 0, 7});
    rope_forward(device, y.data(), position.data(), table, N, H, G, E);
    const Values result = y.values();
    int changed = 0;
    for (size_t i = 0; i < x.size(); i++) {
        if (i % Q >= size_t((H + G) * E) || i / Q == 1)
            changed += result[i] != x[i] ? 1000000 : 0;  // a value, or position 0
        else
            changed += result[i] != x[i];
    }
    CHECK(changed < 1000000);
    CHECK(changed > 2 * (H + G) * E * 3 / 4);  // slow pairs turn by less than a unit of bf16
    float* const none = nullptr;
    if constexpr (std::is_same_v<T, float>)
        CHECK_THROWS_AS(rope_forward(device, none, position.data(), table, N, H, G, 24), Error);
}
