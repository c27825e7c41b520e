// attention on the CUDA device against a plain computation in double that knows visible() and nothing else;
// what must not change a bit; and, where cusim counts, that the window bounds the work and that shared memory
// has no bank conflicts.
#include <unistd.h>

#include <cstdlib>
#include <cstring>

#include "cuda_test.h"
#include "json_lines.h"
#include "layers/attention.cuh"

namespace {

struct Case {
    std::vector<int> lengths;  // of the documents
    Window window;
    int H, G, E;
    std::vector<int> start() const {
        std::vector<int> s{0};
        for (int n : lengths) s.push_back(s.back() + n);
        return s;
    }
    int tokens() const { return start().back(); }
    size_t row() const { return size_t(H + 2 * G) * E; }
    size_t out_size() const { return size_t(tokens()) * H * E; }
};

struct Result {
    std::vector<double> out, lse, dqkv;
};
bool operator==(const Result& a, const Result& b) {
    return a.out == b.out && a.lse == b.lse && a.dqkv == b.dqkv;
}

// Every result rounded by `round`, sums in Sum.
template <class Sum, class Round>
Result reference(const Case& c, const std::vector<double>& qkv, const std::vector<double>& dout,
                 Round round) {
    const int H = c.H, E = c.E, group = c.H / c.G;
    const size_t row = c.row();
    Result r{std::vector<double>(c.out_size()), std::vector<double>(size_t(c.tokens()) * H),
             std::vector<double>(c.tokens() * row)};
    const std::vector<int> start = c.start();
    for (size_t d = 0; d < c.lengths.size(); d++)
        for (int h = 0; h < H; h++) {
            const int n = c.lengths[d], g = h / group;
            const double scale = 1 / std::sqrt(double(E));
            auto at = [&](int t, int head) { return (start[d] + t) * row + size_t(head) * E; };
            for (int q = 0; q < n; q++) {
                const size_t o = (size_t(start[d] + q) * H + h) * E, query = at(q, h);
                std::vector<double> p(q + 1, 0.0);
                double most = -INFINITY, sum = 0;
                Sum delta = 0;
                for (int k = 0; k <= q; k++) {
                    Sum s = 0;
                    for (int e = 0; e < E; e++) s += Sum(qkv[query + e] * qkv[at(k, H + g) + e]);
                    p[k] = visible(c.window, q, k) ? round(round(s) * scale) : -INFINITY;
                    most = std::max(most, p[k]);
                }
                for (int k = 0; k <= q; k++) sum += p[k] = round(std::exp(p[k] - most));
                r.lse[o / E] = most + std::log(sum);
                for (int k = 0; k <= q; k++) p[k] = round(p[k] / sum);
                for (int e = 0; e < E; e++) {
                    Sum value = 0;
                    for (int k = 0; k <= q; k++) value += Sum(p[k] * qkv[at(k, H + c.G + g) + e]);
                    delta += Sum(dout[o + e] * (r.out[o + e] = round(value)));
                }
                delta = Sum(round(delta));
                for (int k = 0; k <= q; k++) {
                    if (p[k] == 0) continue;
                    Sum dp = 0;
                    for (int e = 0; e < E; e++) dp += Sum(dout[o + e] * qkv[at(k, H + c.G + g) + e]);
                    const double ds = round(round(p[k] * round(round(dp) - delta)) * scale);
                    for (int e = 0; e < E; e++) {
                        r.dqkv[query + e] += ds * qkv[at(k, H + g) + e];
                        r.dqkv[at(k, H + g) + e] += ds * qkv[query + e];
                        r.dqkv[at(k, H + c.G + g) + e] += p[k] * dout[o + e];
                    }
                }
            }
        }
    for (double& x : r.dqkv) x = round(x);
    return r;
}

// Outputs, and the workspace between the passes, are poisoned.
template <class T>
Result run(const Case& c, const std::vector<double>& qkv, const std::vector<double>& dout) {
    CudaDevice<T>& device = cuda<T>();
    const std::vector<int> start = c.start();
    Buffer<int, CudaDevice<T>> start_on_device(device, start.size(), Memory::workspace);
    device.upload(start_on_device.data(), start.data(), start.size() * sizeof(int));
    const Documents documents{start_on_device.data(), int(c.lengths.size()), c.tokens()};
    OnDevice<T, T> in(device, qkv), grad(device, dout), out(device, c.out_size()),
        din(device, c.tokens() * c.row());
    OnDevice<float, T> lse(device, size_t(c.tokens()) * c.H);
    if (c.tokens() > 0) {
        const std::vector<float> poison(size_t(c.tokens()) * c.H, NAN);
        device.upload(device.scratch(poison.size() * sizeof(float)), poison.data(),
                      poison.size() * sizeof(float));
    }
    attention_forward(device, out.data(), lse.data(), in.data(), documents, c.window, c.H, c.G, c.E);
    attention_backward(device, din.data(), grad.data(), out.data(), lse.data(), in.data(), documents,
                       c.window, c.H, c.G, c.E);
    return {out.values(), lse.values(), din.values()};
}

// Columns [first, end) of rows of `row`.
std::vector<double> columns(const std::vector<double>& x, size_t row, size_t first, size_t end) {
    std::vector<double> out;
    for (size_t i = 0; i < x.size(); i++)
        if (i % row >= first && i % row < end) out.push_back(x[i]);
    return out;
}

// The rule of cuda_test.h, and a few roundings in float: of the exponent, whose error grows with the scores,
// and of dp - delta, which may cancel altogether.
template <class T>
void check_part(const std::vector<double>& result, const std::vector<double>& exact,
                const std::vector<double>& naive, double factor, double scale) {
    const double error = largest_error(result, exact);
    const double allowed =
        factor * largest_error(naive, exact) + 4 * unit<T> * largest(exact) + 32 * unit<float> * scale;
    INFO("error " << error << ", allowed " << allowed);
    CHECK(error <= allowed);
}

template <class T>
void check(const Case& c, const std::vector<double>& qkv, const std::vector<double>& dout) {
    CAPTURE(c.lengths, c.window.width, c.window.sinks, c.H, c.G, c.E);
    const Result result = run<T>(c, qkv, dout),
                 exact = reference<double>(c, qkv, dout, [](double x) { return x; }),
                 naive = reference<float>(c, qkv, dout, [](double x) { return rounded<T>(x); });
    check_part<T>(result.out, exact.out, naive.out, 2, largest(exact.out));
    CHECK(largest_error(result.lse, exact.lse) <= 3e-6 * (1 + largest(exact.lse)));
    const size_t E = c.E, ends[] = {0, c.H * E, (c.H + c.G) * E, c.row()};
    for (int i = 0; i < 3; i++) {  // queries, keys, values
        CAPTURE(i);
        auto part = [&](const Result& r) { return columns(r.dqkv, c.row(), ends[i], ends[i + 1]); };
        check_part<T>(part(result), part(exact), part(naive), 3, largest(exact.dqkv));
    }
}
template <class T>
void check(const Case& c) {
    check<T>(c, random_values<T>(c.tokens() * c.row(), 1), random_values<T>(c.out_size(), 2));
}

}  // namespace

TEMPLATE_TEST_CASE("cuda: attention, sizes of heads", "[cuda][attention]", CUDA_TYPES) {
    for (int E : {8, 16, 24, 32, 64, 72, 80, 96, 128}) {
        if (std::is_same_v<TestType, float> && E % 32) continue;
        check<TestType>({{70}, {0, 0}, 2, 1, E});
        check<TestType>({{70, 3}, {20, 0}, 2, 2, E});
    }
    for (int E : {0, 4, 12, 136, 256}) {
        CAPTURE(E);
        CHECK_THROWS_AS(
            run<TestType>({{3}, {0, 0}, 1, 1, E}, std::vector<double>(9 * E), std::vector<double>(3 * E)),
            Error);
    }
}

TEMPLATE_TEST_CASE("cuda: attention, windows and sinks", "[cuda][attention]", CUDA_TYPES) {
    const int T = 200;
    for (int W : {1, 2, 63, 64, 65, 127, 128, 129, T - 1, T, T + 1, 0}) {
        if (std::is_same_v<TestType, float> && W != 0 && W != 1 && W != 65) continue;
        check<TestType>({{T}, {W, 0}, 1, 1, 32});
    }
    for (int S : {1, 3, 64, 65}) {
        if (std::is_same_v<TestType, float> && S != 3) continue;
        check<TestType>({{T, 40}, {33, S}, 2, 1, 32});
    }
}

TEMPLATE_TEST_CASE("cuda: attention, heads and packed documents", "[cuda][attention]", CUDA_TYPES) {
    if (std::is_same_v<TestType, bf16>) {
        check<bf16>({{130}, {50, 0}, 4, 4, 64});
        check<bf16>({{130}, {50, 0}, 6, 1, 64});
        check<bf16>({{130}, {0, 0}, 14, 2, 64});
        check<bf16>({{1, 0, 63, 64, 65, 129, 7, 0, 128}, {40, 0}, 2, 1, 64});
        check<bf16>({{64, 64, 128, 1}, {0, 0}, 1, 1, 128});
    }
    check<TestType>({{0, 0, 1, 1, 33, 0, 16, 65}, {0, 0}, 2, 1, 32});
    check<TestType>({{0, 0, 1, 1, 33, 0, 16, 65}, {17, 2}, 2, 2, 32});
    check<TestType>({{1}, {1, 0}, 1, 1, 32});
    check<TestType>({{}, {0, 0}, 2, 1, 32});
    check<TestType>({{0}, {0, 0}, 2, 1, 32});
}

// exp(0 - lse) overflows where lse < -88: zeros past the end of a document must be masked before it.
TEMPLATE_TEST_CASE("cuda: attention, scores far below 0 and large ones", "[cuda][attention]", CUDA_TYPES) {
    for (int n : {65, 127, 192}) {
        const Case c{{n, 5}, {n == 127 ? 64 : 0, 0}, 2, 1, 32};
        auto qkv = random_values<TestType>(c.tokens() * c.row(), 1);
        for (size_t i = 0; i < qkv.size(); i += c.E) {
            const size_t head = i % c.row() / c.E;
            if (head < 3) qkv[i] = head < 2 ? 40 : -40;
        }
        const auto dout = random_values<TestType>(c.out_size(), 2);
        check<TestType>(c, qkv, dout);
        REQUIRE(largest(run<TestType>(c, qkv, dout).lse) > 200);
    }
    const Case c{{150}, {40, 0}, 1, 1, 64};
    check<TestType>(c, random_values<TestType>(c.tokens() * c.row(), 1, 3),
                    random_values<TestType>(c.out_size(), 2));
}

TEMPLATE_TEST_CASE("cuda: attention, what is invisible changes nothing; two runs agree", "[cuda][attention]",
                   CUDA_TYPES) {
    const Case c{{160, 70}, {50, 2}, 2, 1, 64};
    const auto qkv = random_values<TestType>(c.tokens() * c.row(), 1),
               dout = random_values<TestType>(c.out_size(), 2);
    const Result plain = run<TestType>(c, qkv, dout);
    CHECK(run<TestType>(c, qkv, dout) == plain);
    const size_t H = c.H, E = c.E;
    for (int changed : {1, 40, 100, 159, 160, 229}) {
        CAPTURE(changed);
        auto other = qkv;
        for (size_t i = H * E; i < c.row(); i++) other[changed * c.row() + i] = 7;
        const Result result = run<TestType>(c, other, dout);
        int moved = 0;
        for (int q = 0; q < c.tokens(); q++) {
            const int start = q < 160 ? 0 : 160;
            const bool sees =
                changed >= start && changed <= q && visible(c.window, q - start, changed - start);
            const bool same =
                std::equal(&plain.out[q * H * E], &plain.out[q * H * E] + H * E, &result.out[q * H * E]) &&
                std::equal(&plain.dqkv[q * c.row()], &plain.dqkv[q * c.row()] + H * E,
                           &result.dqkv[q * c.row()]);
            if (!sees && !same) FAIL("query " << q << " sees key " << changed);
            moved += !same;
        }
        CHECK(moved > 0);
    }
}

// What the tests below run in a process of its own, with cusim's counters on.
TEST_CASE("cuda: attention, a pass to be counted", "[.counted]") {
    auto number = [](const char* name) { return std::atoi(std::getenv(name)); };
    const Case c{
        {number("SWARR_TEST_TOKENS")}, {number("SWARR_TEST_WINDOW"), 0}, 2, 1, number("SWARR_TEST_HEAD")};
    run<bf16>(c, random_values<bf16>(c.tokens() * c.row(), 1), random_values<bf16>(c.out_size(), 2));
}

namespace {

// The counters of attention's kernels in that pass; empty where nothing counts (on a GPU).
std::vector<Json> count(int tokens, int window, int E) {
    const std::string file = format("/tmp/swarr-attention-%d.json", int(getpid()));
    const std::string command = format(
        "SWARR_TEST_TOKENS=%d SWARR_TEST_WINDOW=%d SWARR_TEST_HEAD=%d CUSIM_QUIET=1 CUSIM_CHECK=none "
        "CUSIM_STATS=%s /proc/%d/exe '[.counted]' >/dev/null",
        tokens, window, E, file.c_str(), int(getpid()));
    REQUIRE(std::system(command.c_str()) == 0);
    std::vector<Json> kernels;
    if (access(file.c_str(), R_OK) != 0) return kernels;
    const Json counters = read_json(file);
    for (const Json& kernel : counters["kernels"])
        if (kernel["signature"].get<std::string>().find("flash::") != std::string::npos)
            kernels.push_back(kernel);
    std::remove(file.c_str());
    REQUIRE(kernels.size() == 4);
    return kernels;
}
bool nothing_counts(const std::vector<Json>& kernels) {
    if (kernels.empty()) std::puts("skipped: attention's counters (not under cusim)");
    return kernels.empty();
}

}  // namespace

TEST_CASE("cuda: attention, the window bounds the work", "[cuda][attention]") {
    const auto narrow = count(512, 64, 64), longer = count(1024, 64, 64), full = count(1024, 0, 64);
    if (nothing_counts(narrow)) return;
    for (size_t i = 0; i < narrow.size(); i++) {
        const std::string name = narrow[i]["signature"];
        CAPTURE(name);
        REQUIRE(longer[i]["signature"] == name);
        const char* counters[] = {"instructions", "tensor_multiply_adds"};
        for (const char* counter : counters) {
            const double a = narrow[i][counter], b = longer[i][counter], c = full[i][counter];
            CHECK(b <= 2.15 * a);  // T * W, not T * T
            if (name.find("delta") == std::string::npos) CHECK(c >= 2 * b);
        }
        CHECK(longer[i]["global"]["read"]["bytes"].get<double>() <=
              2.15 * narrow[i]["global"]["read"]["bytes"].get<double>());
    }
}

TEST_CASE("cuda: attention, no bank conflicts, nothing in local memory, coalesced", "[cuda][attention]") {
    for (int E : {32, 64, 80, 96, 128}) {
        const auto kernels = count(150, 70, E);
        if (nothing_counts(kernels)) return;
        for (const Json& kernel : kernels) {
            CAPTURE(E, kernel["signature"].get<std::string>());
            for (const char* way : {"read", "write"}) {
                const Json &shared = kernel["shared"][way], &global = kernel["global"][way];
                CHECK(shared["wavefronts"] == shared["ideal"]);
                CHECK(global["sectors"].get<double>() <= 1.1 * global["ideal"].get<double>());
                CHECK(kernel["local"][way]["requests"] == 0);
            }
        }
    }
}
