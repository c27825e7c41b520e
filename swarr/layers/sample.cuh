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
    SWARR_HOST_DEVICE bool filtered(int V) const { return top_p < 1 || (top_k > 0 && top_k < V); }
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

#ifdef __CUDACC__
#include "../cuda_kernel.cuh"

// One block a draw. Weights are exp(z), in (0, 1], as integers in units of 2^-44: their sums are exact in any
// order. Their order is that of their floats' bits, and whatever is looked for in it (the k-th token, the end
// of top-p, the drawn one) is found digit by digit: a histogram of the keys that begin as the one sought.
namespace sample {

using Count = unsigned long long;
constexpr int warps = token_loss::block / 32;
constexpr int digit = 10, bins = 1 << digit, key_bits = 30;  // the key of weight 1 has 30 bits
constexpr int list_size = 8192;

__device__ inline Count fixed(float weight) {
    return __float2ull_rn(weight * 17592186044416.0f);
}

struct CudaRow {
    const float* logits;
    int V;
    bool aligned;
    float inverse_temperature, max;
    // Weights of v, .., v + 3; past the end 0.
    __device__ void weights(float* w, int v) const {
        token_loss::load_four(w, logits, v, V, aligned, inverse_temperature);
        for (int j = 0; j < 4; j++) w[j] = expf(__fsub_rn(w[j], max));
    }
};

struct CudaShared {
    token_loss::Shared softmax;
    Count sum[2][warps];
    Count part[warps];
    Count above[2];  // number and weight
    int found, listed;
    bool few;
    unsigned bin;
    unsigned count[bins], low[bins], high[bins];
    unsigned list[list_size];
};

// The sum of x over the threads before this one; `total` over all. May be called again only after a barrier.
__device__ inline Count scan(Count x, Count* sums /*(warps)*/, Count& total) {
    const int lane = threadIdx.x % 32, warp = threadIdx.x / 32;
    Count sum = x;
    for (int d = 1; d < 32; d *= 2) {
        const Count other = __shfl_up_sync(0xffffffffu, sum, d);
        if (lane >= d) sum += other;
    }
    if (lane == 31) sums[warp] = sum;
    __syncthreads();
    Count before = 0;
    total = 0;
    for (int i = 0; i < warps; i++) {
        if (i < warp) before += sums[i];
        total += sums[i];
    }
    return before + sum - x;
}

// The first token, by id, at which the sum of value(weight) exceeds target(sum of all).
template <class Value, class Target>
__device__ int locate(const CudaRow& row, CudaShared& shared, Value value, Target target) {
    const int lane = threadIdx.x % 32, warp = threadIdx.x / 32;
    const int length = ((row.V + warps - 1) / warps + 127) / 128 * 128;  // of a warp's part
    Count sum = 0;
    for (int v = warp * length + lane * 4; v < min(row.V, (warp + 1) * length); v += 128) {
        float w[4];
        row.weights(w, v);
        for (int j = 0; j < 4; j++)
            if (v + j < row.V) sum += value(w[j]);
    }
    for (int d = 16; d; d /= 2) sum += __shfl_xor_sync(0xffffffffu, sum, d);
    if (lane == 0) shared.part[warp] = sum;
    __syncthreads();
    Count all = 0, before = 0;
    for (int i = 0; i < warps; i++) all += shared.part[i];
    const Count wanted = target(all);
    int part = 0;
    while (part + 1 < warps && wanted >= before + shared.part[part]) before += shared.part[part++];
    const int end = min(row.V, (part + 1) * length);
    for (int start = part * length; start < end; start += token_loss::block * 4) {
        const int v = start + int(threadIdx.x) * 4;
        float w[4];
        Count own[4] = {}, mine = 0, total;
        if (v < end) {
            row.weights(w, v);
            for (int j = 0; j < 4; j++)
                if (v + j < row.V) mine += own[j] = value(w[j]);
        }
        Count left = before + scan(mine, shared.sum[0], total);
        for (int j = 0; j < 4; left += own[j++])
            if (left <= wanted && wanted < left + own[j]) shared.found = v + j;
        before += total;
        __syncthreads();
    }
    return shared.found;
}

// A place in the order of falling weight: the weights' key, and number and weight of what comes before all of
// that key.
struct Place {
    unsigned key;
    Count above[2];
    __device__ Count weight() const { return fixed(__uint_as_float(key)); }
};
enum Measure { number, weight };

// What a row's searches know of it: the sum of all weights, and how many keys are listed, -1 before.
struct Known {
    Count whole = 0;
    int listed = -1;
};

// The place at which the sum of the measure exceeds target(sum of all). Later searches must not look further
// down, so that this one lists the keys that still matter, as soon as it knows that they are few enough.
template <class Target>
__device__ Place search(const CudaRow& row, CudaShared& shared, Known& known, Measure measure,
                        Target target) {
    Place place{0, {0, 0}};
    Count wanted = 0;
    bool collect = false;
    for (int shift = key_bits - digit; shift >= 0; shift -= digit) {
        const bool begins = shift == key_bits - digit;
        for (int i = threadIdx.x; i < bins; i += token_loss::block)
            shared.count[i] = shared.low[i] = shared.high[i] = 0;
        if (begins && threadIdx.x == 0) shared.listed = 0;
        __syncthreads();
        auto add = [&](unsigned key) {
            const unsigned beginning = key >> (shift + digit), bin = key >> shift & (bins - 1);
            if (collect && beginning >= place.key) shared.list[atomicAdd(&shared.listed, 1)] = key;
            if (beginning != place.key) return;
            const Count w = fixed(__uint_as_float(key));
            atomicAdd(&shared.count[bin], 1u);
            if (w == 0) return;
            // 64 bits in two halves with a carry: shared memory adds only 32 at a time without a loop.
            const unsigned low = unsigned(w), carry = atomicAdd(&shared.low[bin], low) + low < low;
            if (const unsigned high = unsigned(w >> 32) + carry) atomicAdd(&shared.high[bin], high);
        };
        if (known.listed >= 0)
            for (int i = threadIdx.x; i < known.listed; i += token_loss::block) add(shared.list[i]);
        else
            for (int v = int(threadIdx.x) * 4; v < row.V; v += token_loss::block * 4) {
                float w[4];
                row.weights(w, v);
                for (int j = 0; j < 4; j++)
                    if (v + j < row.V) add(__float_as_uint(w[j]));
            }
        __syncthreads();
        if (collect) known.listed = shared.listed;
        constexpr int each = bins / token_loss::block;
        Count mine[each][2], own[2] = {0, 0}, before[2], all[2];
        auto bin_of = [](int i) { return bins - 1 - (int(threadIdx.x) * each + i); };
        for (int i = 0; i < each; i++) {
            mine[i][number] = shared.count[bin_of(i)];
            mine[i][weight] = Count(shared.high[bin_of(i)]) << 32 | shared.low[bin_of(i)];
            for (int m = 0; m < 2; m++) own[m] += mine[i][m];
        }
        for (int m = 0; m < 2; m++) before[m] = scan(own[m], shared.sum[m], all[m]);
        if (begins) wanted = target(all[measure]);
        if (begins && known.listed < 0) known.whole = all[weight];
        for (int i = 0; i < each; i++) {
            if (before[measure] <= wanted && wanted < before[measure] + mine[i][measure]) {
                shared.bin = unsigned(bin_of(i));
                shared.few = before[number] + mine[i][number] <= Count(list_size);
                for (int m = 0; m < 2; m++) shared.above[m] = before[m];
            }
            for (int m = 0; m < 2; m++) before[m] += mine[i][m];
        }
        __syncthreads();
        collect = begins && known.listed < 0 && shared.few;
        place.key = place.key << digit | shared.bin;
        for (int m = 0; m < 2; m++) place.above[m] += shared.above[m];
        wanted -= shared.above[measure];
    }
    return place;
}

// floor(u * sum), below sum
__device__ inline Count share_of(double u, Count sum) {
    const Count target = Count(u * double(sum));
    return target < sum ? target : sum - 1;
}

__global__ void __launch_bounds__(token_loss::block, 1)
    draw_rows(int* token, float* logp, float* log_kept, const float* logits, const int* rows,
              const float* uniform, int V, Sampling s) {
    __shared__ CudaShared shared;
    logits += size_t(rows[blockIdx.x]) * V;
    int argmax, chosen;
    const SoftmaxRow<float> softmax = token_loss::softmax(
        logits, V, float(1 / (s.temperature > 0 ? s.temperature : 1)), argmax, shared.softmax);
    const bool finite = isfinite(softmax.log_sum) && isfinite(softmax.max);
    const CudaRow row{logits, V, reinterpret_cast<uintptr_t>(logits) % 16 == 0, softmax.inverse_temperature,
                      softmax.max};
    const double u = uniform[blockIdx.x];
    double share = 1;
    if (!finite) {
        chosen = -1;
    } else if (s.temperature == 0) {
        chosen = argmax;
    } else if (!s.filtered(V)) {
        chosen = locate(
            row, shared, [](float w) { return fixed(w); }, [&](Count all) { return share_of(u, all); });
    } else {
        const bool top_k = s.top_k > 0 && s.top_k < V;
        Known known;
        Count kept = 0;
        if (top_k) {
            const Count k = Count(s.top_k);
            const Place last = search(row, shared, known, number, [&](Count) { return k - 1; });
            kept = last.above[weight] + (k - last.above[number]) * last.weight();
        }
        if (s.top_p < 1) {  // the least sum that is top_p of them
            Count wanted = 0;
            const Place last = search(row, shared, known, weight, [&](Count all) {
                const Count sum = top_k ? kept : all, least = Count(ceil(s.top_p * double(sum)));
                return wanted = (least < 1 ? 1 : least > sum ? sum : least) - 1;
            });
            kept = last.above[weight] + ((wanted - last.above[weight]) / last.weight() + 1) * last.weight();
        }
        share = double(kept) / double(known.whole);
        const Count target = share_of(u, kept);
        const Place place = search(row, shared, known, weight, [&](Count) { return target; });
        const Count among_equals = (target - place.above[weight]) / place.weight();
        chosen = locate(
            row, shared, [&](float w) { return Count(__float_as_uint(w) == place.key); },
            [&](Count) { return among_equals; });
    }
    if (threadIdx.x != 0) return;
    token[blockIdx.x] = chosen;
    logp[blockIdx.x] = finite ? token_loss::z_of(softmax, logits[chosen]) - softmax.log_sum : 0.0f;
    if (log_kept) log_kept[blockIdx.x] = float(log(share));
}

}  // namespace sample

template <class T>
void sample_tokens(CudaDevice<T>& device, int* token, float* logp, const float* logits, const int* row,
                   const float* uniform, int n, int V, const Sampling& sampling, float* log_kept) {
    launch(device, sample::draw_rows, unsigned(n), token_loss::block, 0, token, logp, log_kept, logits, row,
           uniform, V, sampling);
}
template void sample_tokens(CudaDevice<bf16>&, int*, float*, const float*, const int*, const float*, int, int,
                            const Sampling&, float*);
template void sample_tokens(CudaDevice<float>&, int*, float*, const float*, const int*, const float*, int,
                            int, const Sampling&, float*);
#endif
