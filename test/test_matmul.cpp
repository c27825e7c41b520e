// The linear layer: against a naive product in double, by finite differences, and bit for bit over every way
// to cut the work.
#include <array>
#include <random>
#include <vector>

#include "check.h"
#include "swarr/layers/matmul.cuh"

namespace {

template <class T>
std::vector<T> random_vector(size_t size, unsigned seed) {
    std::mt19937 generator(seed);
    std::uniform_real_distribution<double> uniform(-1, 1);
    std::vector<T> v(size);
    for (T& x : v) x = T(uniform(generator));
    return v;
}

// One layer with all its results, computed in one call.
template <class T>
struct Layer {
    int N, O, I;
    std::vector<T> x, w, bias, dy, packed, y, dx, dw, dbias;
    CpuDevice<T> device;
    Layer(int N, int O, int I) : N(N), O(O), I(I) {
        x = random_vector<T>(size_t(N) * I, 1), w = random_vector<T>(size_t(O) * I, 2);
        bias = random_vector<T>(O, 3), dy = random_vector<T>(size_t(N) * O, 4);
        dw = random_vector<T>(size_t(O) * I, 5), dbias = random_vector<T>(O, 6);
        y.assign(size_t(N) * O, NAN), dx.assign(size_t(N) * I, NAN);
        packed.resize(packed_size<T>(O, I));
        pack_weight(device, packed.data(), w.data(), O, I);
    }
    Weight<T> weight(bool use_packed = true) { return {w.data(), use_packed ? packed.data() : nullptr}; }
    void run(bool use_packed = true) {
        matmul_forward(device, y.data(), x.data(), weight(use_packed), bias.data(), N, O, I);
        matmul_backward(device, dx.data(), dw.data(), dbias.data(), dy.data(), x.data(), weight(), N, O, I);
    }
};

// The promised order, spelled out: one chain of fused multiply-adds per output.
template <class T>
void require_chain(Layer<T>& l) {
    Layer<T> fresh(l.N, l.O, l.I);
    auto at = [](int row, int width, int column) { return size_t(row) * width + column; };
    for (int n = 0; n < l.N; n++)
        for (int o = 0; o < l.O; o++) {
            T s = l.bias[o];
            for (int i = 0; i < l.I; i++) s = std::fma(l.x[at(n, l.I, i)], l.w[at(o, l.I, i)], s);
            if (s != l.y[at(n, l.O, o)]) FAIL("y " << n << " " << o);
        }
    for (int n = 0; n < l.N; n++)
        for (int i = 0; i < l.I; i++) {
            T s = 0;
            for (int o = 0; o < l.O; o++) s = std::fma(l.dy[at(n, l.O, o)], l.w[at(o, l.I, i)], s);
            if (s != l.dx[at(n, l.I, i)]) FAIL("dx " << n << " " << i);
        }
    for (int o = 0; o < l.O; o++)
        for (int i = 0; i < l.I; i++) {
            T s = fresh.dw[at(o, l.I, i)];
            for (int n = 0; n < l.N; n++) s = std::fma(l.dy[at(n, l.O, o)], l.x[at(n, l.I, i)], s);
            if (s != l.dw[at(o, l.I, i)]) FAIL("dw " << o << " " << i);
        }
    for (int o = 0; o < l.O; o++) {
        T s = fresh.dbias[o];
        for (int n = 0; n < l.N; n++) s += l.dy[at(n, l.O, o)];
        if (s != l.dbias[o]) FAIL("dbias " << o);
    }
}

}  // namespace

TEST_CASE("matmul: every output is the one chain, at every edge size", "[matmul]") {
    const int M = tile_rows, W = panel_width<float>, K = matmul::block_k;
    for (int n : {1, 2, M - 1, M, M + 1, 2 * M + 3})
        for (int o : {1, 15, W - 1, W, W + 1, 4 * W, 5 * W + 7})
            for (int i : {1, 3, W + 1, 70}) {
                CAPTURE(n, o, i);
                Layer<float> l(n, o, i);
                l.run();
                require_chain(l);
                Layer<float> raw(n, o, i);
                raw.run(false);
                REQUIRE(raw.y == l.y);
            }
    for (int k : {K - 1, K, K + 1, 2 * K - 1, 2 * K, 2 * K + 1, 4 * K + 1}) {
        CAPTURE(k);
        Layer<float> inputs(M + 1, W + 1, k), tokens(k, W + 1, M + 1), outputs(M + 2, k, W - 1);
        for (Layer<float>* l : {&inputs, &tokens, &outputs}) {
            l->run();
            require_chain(*l);
        }
    }
    // more rows than a small batch and than a block; more panels than a group; rows narrow enough to stay in
    // place
    const int narrow = int(matmul::narrow);
    for (auto s : {std::array<int, 3>{matmul::small_batch, 3 * W, 33},
                   {matmul::small_batch + 1, 3 * W, 33},
                   {matmul::block_rows + 1, 9 * W + 1, 20},
                   {70, narrow, narrow},
                   {70, narrow + W, narrow + W},
                   {300, 2, 2 * W},
                   {5, 2 * W, 1}}) {
        CAPTURE(s[0], s[1], s[2]);
        Layer<float> l(s[0], s[1], s[2]);
        l.run();
        require_chain(l);
    }
    Layer<double> l(M + 1, panel_width<double> + 3, 37);
    l.run();
    require_chain(l);
}

TEST_CASE("matmul: within the error of a sum in float", "[matmul]") {
    Layer<float> l(40, 70, 600);
    l.run();
    for (int n = 0; n < l.N; n++)
        for (int o = 0; o < l.O; o++) {
            double s = l.bias[o], magnitude = std::abs(s);
            for (int i = 0; i < l.I; i++) {
                double product = double(l.x[size_t(n) * l.I + i]) * l.w[size_t(o) * l.I + i];
                s += product;
                magnitude += std::abs(product);
            }
            REQUIRE(std::abs(l.y[size_t(n) * l.O + o] - s) < magnitude * 600 * 6e-8);
        }
}

TEST_CASE("matmul: finite differences in double", "[matmul]") {
    const int N = 5, O = 4, I = 6;
    Layer<double> l(N, O, I);
    std::vector<double> dw_before = l.dw, dbias_before = l.dbias;
    l.run();
    auto objective = [&] {  // sum of dy * y
        pack_weight(l.device, l.packed.data(), l.w.data(), O, I);
        std::vector<double> y(size_t(N) * O);
        matmul_forward(l.device, y.data(), l.x.data(), l.weight(), l.bias.data(), N, O, I);
        double s = 0;
        for (size_t j = 0; j < y.size(); j++) s += y[j] * l.dy[j];
        return s;
    };
    auto check = [&](std::vector<double>& values, const std::vector<double>& gradient,
                     const std::vector<double>* before) {
        for (size_t j = 0; j < values.size(); j++) {
            double kept = values[j], h = 1e-5;
            values[j] = kept + h;
            double up = objective();
            values[j] = kept - h;
            double down = objective();
            values[j] = kept;
            REQUIRE(gradient[j] - (before ? (*before)[j] : 0) == Approx((up - down) / (2 * h)).margin(1e-8));
        }
    };
    check(l.x, l.dx, nullptr);
    check(l.w, l.dw, &dw_before);
    check(l.bias, l.dbias, &dbias_before);

    std::vector<double> twice = l.dx;
    matmul_backward<double>(l.device, twice.data(), nullptr, nullptr, l.dy.data(), l.x.data(), l.weight(), N,
                            O, I, true);
    for (size_t j = 0; j < twice.size(); j++) REQUIRE(twice[j] == Approx(2 * l.dx[j]).margin(1e-12));
}

TEST_CASE("matmul: the same bits for any threads, any batch, any micro-batches", "[matmul]") {
    const int N = 301, O = 273, I = 130;
    auto run = [&](int threads) {
        Threads set(threads);
        Layer<float> l(N, O, I);
        l.run();
        return l;
    };
    Layer<float> one = run(1), two = run(2), three = run(3);
    REQUIRE(one.packed == two.packed);
    for (Layer<float>* l : {&two, &three}) {
        REQUIRE(l->y == one.y);
        REQUIRE(l->dx == one.dx);
        REQUIRE(l->dw == one.dw);
        REQUIRE(l->dbias == one.dbias);
    }
    Layer<float> parts(N, O, I);  // 1 token, 2 tokens, ..., so that few-row and tile kernels both run
    for (int first = 0, count = 1; first < N; first += count, count += 3) {
        count = std::min(count, N - first);
        const float *x = &parts.x[size_t(first) * I], *dy = &parts.dy[size_t(first) * O];
        matmul_forward(parts.device, &parts.y[size_t(first) * O], x, parts.weight(), parts.bias.data(), count,
                       O, I);
        matmul_backward(parts.device, &parts.dx[size_t(first) * I], parts.dw.data(), parts.dbias.data(), dy,
                        x, parts.weight(), count, O, I);
    }
    REQUIRE(parts.y == one.y);
    REQUIRE(parts.dx == one.dx);
    REQUIRE(parts.dw == one.dw);
    REQUIRE(parts.dbias == one.dbias);
}

TEST_CASE("matmul: nothing to do", "[matmul]") {
    Layer<float> l(3, 5, 7);
    std::vector<float> dw = l.dw, dbias = l.dbias;
    l.N = 0;
    l.run();
    REQUIRE(l.dw == dw);
    REQUIRE(l.dbias == dbias);
    REQUIRE(std::isnan(l.y[0]));
}
