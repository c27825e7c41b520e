// sample.cuh: one token from a row of logits.
//
//   p(v) = exp(logit(v) / temperature) / sum      temperature 0: the likeliest token, of equals the lowest id
//   top-k  keeps the k likeliest; top-p keeps, of those, the fewest likeliest whose share reaches top_p; of
//          equals the lower id goes first. Both are exact. What is kept is drawn in proportion to p.
//
// One uniform number decides one token, so a text depends on its own stream of numbers alone. Recorded is
// log p(v) under the whole distribution at this temperature (at temperature 0: at 1), by the trainer's own
// softmax_row(): the two agree bit for bit. With top-k or top-p the token was drawn from fewer, with
// log p(v) - log(kept share); that logarithm is given apart.
#pragma once
#include <algorithm>
#include <cmath>
#include <vector>

#include "token_loss.cuh"

struct Sampling {
    double temperature = 1, top_p = 1;
    int top_k = 0;  // 0: all
    bool filtered(int V) const { return top_p < 1 || (top_k > 0 && top_k < V); }
};

// Errors: a value outside its range.
inline void check_sampling(const Sampling& s) {
    if (!(s.temperature >= 0 && s.temperature <= 100))
        throw UsageError(format("--temperature %g is not between 0 and 100", s.temperature),
                         "0 is greedy, 1 the model's own distribution");
    if (!(s.top_p > 0 && s.top_p <= 1))
        throw UsageError(format("--top-p %g is not in (0, 1]", s.top_p), "1 keeps every token");
    if (s.top_k < 0) throw UsageError(format("--top-k %d is negative", s.top_k), "0 keeps every token");
}

// ---------------------------------------------------------------------------------------------------- CPU

// Errors: one of the tokens (n), on the host, is -1, the mark of a row of logits that is not finite.
inline void check_tokens(const int* token, int n) {
    if (std::any_of(token, token + n, [](int t) { return t < 0; }))
        fail("the model's logits are not finite (NaN or infinite)",
             "the weights are damaged, or training diverged: try an earlier checkpoint");
}

namespace sample {

constexpr int block = 1024;  // partial sums of the search for the drawn token

// A thread's weights exp(z) (V, padded to vectors), and candidates of the filters.
template <class T>
struct Scratch {
    std::vector<T> weight;
    std::vector<int> kept;
};

// Fills scratch.weight; returns the sums of its blocks.
template <class T>
std::vector<double> weights(Scratch<T>& scratch, const T* logits, int V, const SoftmaxRow<T>& row) {
    scratch.weight.resize(size_t(V) + lanes<T>);
    std::vector<double> sums;
    T* w = scratch.weight.data();
    for (int first = 0; first < V; first += block) {
        Vec<T> sum{};
        for (int v = first; v < std::min(first + block, V); v += lanes<T>) {
            Vec<T> e = exp(row.z(logits, v, V, false));
            store(w + v, e);
            sum += e;
        }
        sums.push_back(double(sum_lanes(sum)));
    }
    return sums;
}

// The token at share u of the weights in the order of ids.
template <class T>
int draw(const T* weight, const std::vector<double>& sums, int V, float u) {
    double total = 0;
    for (double s : sums) total += s;
    double left = u * total;
    size_t b = 0;
    while (b + 1 < sums.size() && left >= sums[b]) left -= sums[b++];
    // Rounding may leave a rest at the end of a block: the last token that has any weight takes it.
    int last = -1, begin = int(b) * block;
    for (int v = begin; v < std::min(begin + block, V); v++) {
        if (!(weight[v] > 0)) continue;
        last = v;
        if (left < double(weight[v])) return v;
        left -= double(weight[v]);
    }
    while (last < 0 && begin > 0)
        if (weight[--begin] > 0) last = begin;
    return last;
}

// The same, of the tokens that the filters keep, in order of falling weight; `share` is theirs of the whole.
template <class T>
int draw_filtered(Scratch<T>& scratch, const std::vector<double>& sums, int V, const Sampling& s, float u,
                  double& share) {
    const T* weight = scratch.weight.data();
    std::vector<int>& kept = scratch.kept;
    kept.clear();
    auto likelier = [&](int a, int b) { return weight[a] != weight[b] ? weight[a] > weight[b] : a < b; };
    double whole = 0;
    for (double sum : sums) whole += sum;
    double total = whole;
    if (s.top_k > 0 && s.top_k < V) {
        // The k likeliest so far as a heap with the least likely on top; ids come in ascending order.
        for (int v = 0; v < V; v++) {
            if (int(kept.size()) == s.top_k) {
                if (!(weight[v] > weight[kept[0]])) continue;
                std::pop_heap(kept.begin(), kept.end(), likelier);
                kept.pop_back();
            }
            kept.push_back(v);
            std::push_heap(kept.begin(), kept.end(), likelier);
        }
        total = 0;
        for (int v : kept) total += double(weight[v]);
    } else {
        // Tokens below this share cannot be needed: all of them together fall short of 1 - top_p. (Halved,
        // so that rounding keeps one too many rather than one too few.)
        const double least = 0.5 * (1 - s.top_p) * total / V;
        for (int v = 0; v < V; v++)
            if (double(weight[v]) > least || s.top_p == 1) kept.push_back(v);
    }
    std::sort(kept.begin(), kept.end(), likelier);
    double sum = 0;
    size_t n = 0;
    while (n < kept.size() && (n == 0 || sum < s.top_p * total)) sum += double(weight[kept[n++]]);
    share = std::min(1.0, sum / whole);
    double left = u * sum;
    for (size_t i = 0; i + 1 < n; i++) {
        if (left < double(weight[kept[i]])) return kept[i];
        left -= double(weight[kept[i]]);
    }
    return kept[n - 1];
}

// -1 if the row has a NaN or no finite maximum.
template <class T>
int row(T* logp, T* log_kept, const T* logits, int V, const Sampling& s, float u, Scratch<T>& scratch) {
    const SoftmaxRow<T> softmax = softmax_row(logits, V, s.temperature > 0 ? s.temperature : 1);
    if (!std::isfinite(softmax.log_sum) || !std::isfinite(softmax.max)) return -1;
    int token;
    double share = 1;
    if (s.temperature == 0) {
        token = int(std::max_element(logits, logits + V) - logits);
    } else {
        std::vector<double> sums = weights(scratch, logits, V, softmax);
        token = s.filtered(V) ? draw_filtered(scratch, sums, V, s, u, share)
                              : draw(scratch.weight.data(), sums, V, u);
    }
    if (token >= 0) *logp = softmax.logp(logits[token]);
    if (log_kept) *log_kept = T(std::log(share));
    return token;
}

}  // namespace sample

// token (n), logp (n): draw i is from row[i] of logits (rows, V), by uniform[i] in [0, 1). log_kept (n), if
// wanted: the logarithm of the share of the distribution that top-k and top-p kept.
// Errors: logits that are not finite.
template <class T>
void sample_tokens(CpuDevice<T>&, int* token, T* logp, const T* logits, const int* row, const float* uniform,
                   int n, int V, const Sampling& sampling, T* log_kept = nullptr) {
#pragma omp parallel for schedule(dynamic) if (n > 1 && size_t(n) * V > (1 << 14))
    for (int i = 0; i < n; i++) {
        thread_local sample::Scratch<T> scratch;
        token[i] = sample::row(&logp[i], log_kept ? &log_kept[i] : nullptr, logits + size_t(row[i]) * V, V,
                               sampling, uniform[i], scratch);
    }
    check_tokens(token, n);
}

// ---- CUDA -----------------------------------------------------------------------------------------------

#ifdef SWARR_CUDA
// As on the CPU, but every array is in the device's memory, nothing waits and nothing is allocated. A row of
// logits that is not finite gives token -1; whoever fetches the tokens calls check_tokens().
template <class T>
void sample_tokens(CudaDevice<T>& device, int* token, float* logp, const float* logits, const int* row,
                   const float* uniform, int n, int V, const Sampling& sampling, float* log_kept = nullptr);
#endif
