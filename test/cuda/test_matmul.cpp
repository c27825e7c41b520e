// The linear layer on the CUDA device (cuBLASLt) against double.
#include "cuda_test.h"
#include "layers/matmul.cuh"

namespace {

using Values = std::vector<double>;

// c (rows, columns) = sum over k of a(r, k) b(k, c), each operand a function of its two indices; and the same
// with sums in float.
struct Product {
    Values exact, naive;
    template <class A, class B>
    Product(int rows, int columns, int depth, A a, B b) : exact(size_t(rows) * columns), naive(exact.size()) {
        for (int r = 0; r < rows; r++)
            for (int k = 0; k < depth; k++)
                for (int j = 0; j < columns; j++) {
                    const size_t at = size_t(r) * columns + j;
                    exact[at] += a(r, k) * b(k, j);
                    naive[at] = rounded<float>(naive[at] + a(r, k) * b(k, j));
                }
    }
    // Added to what was there.
    Product onto(const Values& before) const {
        Product out = *this;
        for (size_t i = 0; i < before.size(); i++) out.exact[i] += before[i], out.naive[i] += before[i];
        return out;
    }
    template <class T>
    void check(const Values& result, double factor) const {
        check_close<T>(result, exact, rounded<T>(naive), factor);
    }
};

// (rows, columns) of an array whose rows are `stride` apart, and what lies between them.
Values rows_of(const Values& a, int rows, int columns, int stride, bool between = false) {
    Values out;
    for (int r = 0; r < rows; r++)
        for (int c = between ? columns : 0; c < (between ? stride : columns); c++)
            out.push_back(a[size_t(r) * stride + c]);
    return out;
}
Values spread(const Values& a, int rows, int columns, int stride) {
    Values out(size_t(rows) * stride, NAN);
    for (int r = 0; r < rows; r++)
        for (int c = 0; c < columns; c++) out[size_t(r) * stride + c] = a[size_t(r) * columns + c];
    return out;
}
bool all_nan(const Values& a) {
    return std::all_of(a.begin(), a.end(), [](double x) { return std::isnan(x); });
}

struct Size {
    int N, O, I, gap;
};
const Size sizes[] = {{1, 8, 8, 0}, {3, 24, 40, 8}, {65, 72, 96, 0}, {300, 136, 16, 24}, {2, 1031, 8, 1}};

template <class T, class Out>
void check_forward(const Size& s, bool with_bias) {
    CudaDevice<T>& device = cuda<T>();
    const int N = s.N, O = s.O, I = s.I, row = O + s.gap;
    CAPTURE(N, O, I, row, with_bias);
    const Values x = random_values<T>(size_t(N) * I, 1), w = random_values<T>(size_t(O) * I, 2),
                 b = random_values<T>(size_t(O), 3);
    Product expected(
        N, O, I, [&](int n, int i) { return x[size_t(n) * I + i]; },
        [&](int i, int o) { return w[size_t(o) * I + i]; });
    if (with_bias) {
        expected.naive = rounded<Out>(expected.naive);
        Values rows;
        for (int n = 0; n < N; n++) rows.insert(rows.end(), b.begin(), b.end());
        expected = expected.onto(rows);
    }
    OnDevice<T, T> in(device, x), weight(device, w), bias(device, b);
    OnDevice<Out, T> out(device, size_t(N) * row);
    matmul_forward(device, out.data(), in.data(), Weight<T>{weight.data(), nullptr},
                   with_bias ? bias.data() : static_cast<const T*>(nullptr), N, O, I, s.gap ? row : 0);
    const Values y = out.values();
    expected.check<Out>(rows_of(y, N, O, row), 2);
    CHECK(all_nan(rows_of(y, N, O, row, true)));
}

}  // namespace

TEMPLATE_TEST_CASE("cuda: matmul_forward against double", "[cuda][matmul]", CUDA_TYPES) {
    for (const Size& s : sizes) {
        check_forward<TestType, TestType>(s, false);
        check_forward<TestType, TestType>(s, true);
    }
}

TEST_CASE("cuda: logits of bf16 weights are float", "[cuda][matmul]") {
    for (const Size& s : sizes) check_forward<bf16, float>(s, false);
}

TEMPLATE_TEST_CASE("cuda: matmul_backward against double", "[cuda][matmul]", CUDA_TYPES) {
    using T = TestType;
    CudaDevice<T>& device = cuda<T>();
    for (const Size& s : sizes) {
        const int N = s.N, O = s.O, I = s.I, row = O + s.gap;
        const bool has_bias = O % 8 == 0;
        const Values x = random_values<T>(size_t(N) * I, 1), w = random_values<T>(size_t(O) * I, 2),
                     dy = random_values<T>(size_t(N) * O, 3), dx0 = random_values<T>(size_t(N) * I, 4),
                     dw0 = random_values<float>(size_t(O) * I, 5), db0 = random_values<float>(size_t(O), 6);
        const auto dy_at = [&](int n, int o) { return dy[size_t(n) * O + o]; };
        const Product dx(N, I, O, dy_at, [&](int o, int i) { return w[size_t(o) * I + i]; });
        const Product dw = Product(
                               O, I, N, [&](int o, int n) { return dy_at(n, o); },
                               [&](int n, int i) { return x[size_t(n) * I + i]; })
                               .onto(dw0);
        const Product db =
            Product(
                1, O, N, [](int, int) { return 1.0; }, [&](int n, int o) { return dy_at(n, o); })
                .onto(db0);
        OnDevice<T, T> in(device, x), weight(device, w), grad(device, spread(dy, N, O, row));
        const Weight<T> W{weight.data(), nullptr};
        for (bool accumulate : {false, true}) {
            CAPTURE(N, O, I, row, accumulate);
            OnDevice<T, T> din =
                accumulate ? OnDevice<T, T>(device, dx0) : OnDevice<T, T>(device, dx0.size());
            OnDevice<float, T> dweight(device, dw0), dbias(device, db0);
            matmul_backward(device, din.data(), dweight.data(), has_bias ? dbias.data() : nullptr,
                            grad.data(), in.data(), W, N, O, I, accumulate, s.gap ? row : 0);
            (accumulate ? dx.onto(dx0) : dx).check<T>(din.values(), 3);
            dw.check<float>(dweight.values(), 3);
            if (has_bias) db.check<float>(dbias.values(), 3);
        }
        // Each result can be left out, and the others do not change.
        OnDevice<float, T> dweight(device, dw0);
        matmul_backward(device, static_cast<T*>(nullptr), dweight.data(), nullptr, grad.data(), in.data(), W,
                        N, O, I, false, s.gap ? row : 0);
        dw.check<float>(dweight.values(), 3);
        OnDevice<T, T> din(device, dx0.size());
        matmul_backward(device, din.data(), nullptr, nullptr, grad.data(), static_cast<const T*>(nullptr), W,
                        N, O, I, false, s.gap ? row : 0);
        dx.check<T>(din.values(), 3);
    }
}

TEMPLATE_TEST_CASE("cuda: gradients of a bias, many rows, with the same bits at every run", "[cuda][matmul]",
                   CUDA_TYPES) {
    using T = TestType;
    CudaDevice<T>& device = cuda<T>();
    const int N = 700, O = 136;
    const Values dy = random_values<T>(size_t(N) * O, 1);
    OnDevice<T, T> grad(device, dy);
    Values runs[2];
    for (Values& run : runs) {
        OnDevice<float, T> dbias(device, Values(O));
        matmul_backward(device, static_cast<T*>(nullptr), nullptr, dbias.data(), grad.data(),
                        static_cast<const T*>(nullptr), Weight<T>{}, N, O, 8);
        run = dbias.values();
    }
    CHECK(runs[0] == runs[1]);
    const Product sums(
        1, O, N, [](int, int) { return 1.0; }, [&](int n, int o) { return dy[size_t(n) * O + o]; });
    sums.check<float>(runs[0], 3);
}

TEMPLATE_TEST_CASE("cuda: matmul of no tokens", "[cuda][matmul]", CUDA_TYPES) {
    using T = TestType;
    CudaDevice<T>& device = cuda<T>();
    OnDevice<T, T> w(device, random_values<T>(64, 1));
    const Values before = random_values<float>(64, 2);
    OnDevice<float, T> dw(device, before), db(device, Values(before.begin(), before.begin() + 8));
    T* const none = nullptr;
    matmul_forward(device, none, static_cast<const T*>(none), Weight<T>{w.data(), nullptr},
                   static_cast<const T*>(none), 0, 8, 8);
    matmul_backward(device, none, dw.data(), db.data(), static_cast<const T*>(none),
                    static_cast<const T*>(none), Weight<T>{w.data(), nullptr}, 0, 8, 8);
    CHECK(dw.values() == before);
    CHECK(db.values() == Values(before.begin(), before.begin() + 8));
}

TEST_CASE("cuda: a product that cuBLASLt refuses is named", "[cuda][matmul]") {
    CudaDevice<float>& device = cuda<float>();
    OnDevice<float, float> a(device, 64), b(device, 64), c(device, 64);
    std::string message;
    try {
        matmul_forward(device, c.data(), a.data(), Weight<float>{b.data(), nullptr},
                       static_cast<const float*>(nullptr), 2, 8, 8, 4);
    } catch (const Error& e) {
        message = e.what();
    }
    CHECK(message.find("y = x W^T, (2, 8) x (8, 8): CUBLAS_STATUS") != std::string::npos);
}
