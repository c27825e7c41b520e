// token_loss.cuh: the one loss of supervised fine-tuning and of CISPO, fused with the output projection.
//
//   z = x Wv^T / temperature,   logp = z(target) - log sum_v exp z(v),   H = - sum_v p(v) log p(v)
//   loss = sum over tokens with a target of  scale * (- c logp + kl_coef * KL - entropy_coef * H)
//
//   c: supervised 1 or a weight of the data; CISPO (MiniMax-M1, arXiv 2506.13585, eq. 4-5)
//      clip(exp(logp - old_logp), ratio_low, ratio_high) * advantage, held constant in the gradient.
//   KL: estimate of KL(policy || reference) from the one sampled token, exp(d) - d - 1 with d = ref_logp -
//   logp
//      ("k3", J. Schulman, Approximating KL divergence, 2020); it is differentiated as written.
//
//   dlogp = scale * (- c + kl_coef * (1 - exp(ref_logp - logp)))
//   dz(v) = dlogp * ([v = target] - p(v)) + scale * entropy_coef * p(v) * (log p(v) + H)
//   dx = dz Wv / temperature     overwritten; zero for a token without a target
//   dWv += dz^T x / temperature  accumulated
//
// Only tokens with a target are computed, in chunks: N x V logits never exist, and the gradient of the logits
// replaces them in place. Each sum over V runs lane by lane from v = 0 and adds the lanes last; each gradient
// is one chain over V or over tokens (matmul.cuh). So no result depends on the chunk, the batch or the
// threads. What the sampler records as a token's log-probability comes from the same softmax_row() and is
// therefore equal to the trainer's, bit for bit.
#pragma once
#include <limits>
#include <string>

#include "../rng.h"
#include "matmul.cuh"

// T: weights, activations and their gradients. S: what is summed or kept exact, a device's `stat`.
// x, w, dx and dw are in the device's memory; the arrays of one number a token are the host's on every
// device.
template <class T, class S = T>
struct TokenLoss {
    int N = 0, D = 0, V = 0;
    const T* x = nullptr;          // (N, D) final hidden states
    Weight<T> w{};                 // (V, D)
    const int* targets = nullptr;  // (N) token to predict, -1 = none
    double temperature = 1;

    // the coefficient c
    const S* coefficient = nullptr;        // (N), or null for 1; not with the next two
    const S* old_logp = nullptr;           // (N) CISPO
    const S* advantage = nullptr;          // (N)
    double ratio_low = 0, ratio_high = 5;  // bounds on exp(logp - old_logp)
    double kl_coef = 0, entropy_coef = 0;  // off unless asked for
    const S* ref_logp = nullptr;           // (N), with kl_coef
    double scale = 1;                      // 1 / target tokens of the global batch
    const S* token_scale = nullptr;        // (N), times scale; for normalising by sequence

    // results, each null if not wanted; a token without a target gets 0 (argmax: -1)
    S* logp = nullptr;      // (N)
    S* entropy = nullptr;   // (N)
    S* ratio = nullptr;     // (N) exp(logp - old_logp) before the bounds
    int* argmax = nullptr;  // (N) likeliest token, the first of equals
    T* dx = nullptr;        // (N, D)
    S* dw = nullptr;        // (V, D) accumulated
};

template <class Device>
using DeviceTokenLoss = TokenLoss<typename Device::real, typename Device::stat>;

struct TokenLossSum {
    double loss = 0;  // in token order
    int targets = 0;
};

// The memory of token_loss_forward_backward(), for calls of at most max_tokens tokens:
// (device, max_tokens, D, V), and bytes(max_tokens, D, V) for plans. `chunk`: rows of logits at a time.
template <class Device>
struct TokenLossWorkspace;

namespace token_loss {

// What is given of one token with a target, and what comes out of it.
struct Given {
    int token, target;  // its place in the pass, what it should predict
    double scale, coefficient, old_logp, advantage, ref_logp;
};
struct Term {
    double loss, dlogp, dentropy, ratio;  // derivatives of the loss by logp and by -H
};

template <class T, class S>
Given given(const TokenLoss<T, S>& t, int n) {
    auto at = [n](const S* p, double otherwise) { return p ? double(p[n]) : otherwise; };
    return {n,
            t.targets[n],
            t.scale * at(t.token_scale, 1),
            at(t.coefficient, 1),
            at(t.old_logp, 0),
            at(t.advantage, 0),
            at(t.ref_logp, 0)};
}

// The formulas above. Of t, only the settings are read: on a GPU its pointers are the host's.
template <class T, class S>
SWARR_HOST_DEVICE Term term(const TokenLoss<T, S>& t, const Given& g, double logp, double entropy) {
    double c = g.coefficient, ratio = 0;
    if (t.old_logp) {
        ratio = std::exp(logp - g.old_logp);
        c = (ratio < t.ratio_low ? t.ratio_low : ratio > t.ratio_high ? t.ratio_high : ratio) * g.advantage;
    }
    double loss = -c * logp, dlogp = -c;
    if (t.kl_coef != 0) {
        const double d = g.ref_logp - logp, e = std::exp(d);
        loss += t.kl_coef * (e - d - 1);
        dlogp += t.kl_coef * (1 - e);
    }
    loss -= t.entropy_coef * entropy;
    return {g.scale * loss, g.scale * dlogp, g.scale * t.entropy_coef, ratio};
}

// Errors: a target outside 0..V-1. Negative: there is none.
inline void check_target(int target, int V) {
    if (target >= V)
        fail("target token " + std::to_string(target) + " with a vocabulary of " + std::to_string(V),
             "the data were made with another tokenizer");
}

// The results of a token without a target, but for dx.
template <class T, class S>
void no_target(const TokenLoss<T, S>& t, int n) {
    if (t.logp) t.logp[n] = 0;
    if (t.entropy) t.entropy[n] = 0;
    if (t.ratio) t.ratio[n] = 0;
    if (t.argmax) t.argmax[n] = -1;
}

}  // namespace token_loss

// ---------------------------------------------------------------------------------------------------- CPU

// Rows of logits are worth 128 MB: dWv is read and written once a chunk, so chunks are large.
inline int token_loss_chunk(int max_tokens, int V) {
    const int rows = int(std::max<int64_t>(16, (int64_t(1) << 25) / V));
    return std::max(1, std::min({rows, max_tokens, 1024}));
}

template <class T>
struct TokenLossWorkspace<CpuDevice<T>> {
    int chunk, row;  // of logits: rows, and their length, whole panels
    Buffer<T, CpuDevice<T>> logits, x, dx;
    Buffer<double, CpuDevice<T>> terms;
    Buffer<int, CpuDevice<T>> tokens;
    TokenLossWorkspace(CpuDevice<T>& device, int max_tokens, int D, int V)
        : chunk(token_loss_chunk(max_tokens, V)),
          row(row_of(V)),
          logits(device, size_t(chunk) * row, Memory::workspace),
          x(device, size_t(chunk) * D, Memory::workspace),
          dx(device, size_t(chunk) * D, Memory::workspace),
          terms(device, size_t(chunk), Memory::workspace),
          tokens(device, size_t(chunk), Memory::workspace) {}

    static size_t bytes(int max_tokens, int D, int V) {
        const size_t rows = size_t(token_loss_chunk(max_tokens, V));
        return rows * ((size_t(row_of(V)) + 2 * size_t(D)) * sizeof(T) + sizeof(double) + sizeof(int));
    }
    static int row_of(int V) { return (V + panel_width<T> - 1) / panel_width<T> * panel_width<T>; }
};

// What a row of logits (V) needs for any log-probability: log p(v) = z(v) - log_sum,
// z(v) = logit / temperature - max.
template <class T>
struct SoftmaxRow {
    T inverse_temperature, max = 0, log_sum, inverse_sum, entropy;
    T z(T logit) const { return logit * inverse_temperature - max; }
    T logp(T logit) const { return z(logit) - log_sum; }

    // z of logits v, v + 1, ...; lanes past the end get a number of which exp is 0 and 0 times it is 0. With
    // `padded` a whole vector may be read there.
    Vec<T> z(const T* logits, int v, int V, bool padded) const {
        Vec<T> z{}, lane;
        if (v + lanes<T> <= V) return load(logits + v) * inverse_temperature - max;
        if (padded)
            z = load(logits + v);
        else
            std::memcpy(&z, logits + v, size_t(V - v) * sizeof(T));
        for (int j = 0; j < lanes<T>; j++) lane[j] = T(j);
        z = z * inverse_temperature - max;
        return lane < T(V - v) ? z : splat(std::numeric_limits<T>::lowest() / 4);
    }

    // f(r, v, z) for every register r of every vector of the row, z being that of logits v, v + 1, ...
    template <class F>
    void each(const T* logits, int V, bool padded, F&& f) const {
        constexpr int L = register_lanes<T>;
        const Reg<T> scale = splat_register(inverse_temperature), shift = splat_register(max);
        int v = 0;
        for (; v + lanes<T> <= V; v += lanes<T>)
            unroll<registers<T>>(
                [&](auto r) { f(r, v + r * L, load_register(logits + v + r * L) * scale - shift); });
        if (v == V) return;
        T tail[lanes<T>];
        store(tail, z(logits, v, V, padded));
        unroll<registers<T>>([&](auto r) { f(r, v + r * L, load_register(tail + r * L)); });
    }
};

template <class T>
SoftmaxRow<T> softmax_row(const T* logits /*(V)*/, int V, double temperature, bool padded = false) {
    constexpr int R = registers<T>;
    T lane[lanes<T>];
    auto gathered = [&](const Reg<T>* x) {
        unroll<R>([&](auto r) { store_register(lane + r * register_lanes<T>, x[r]); });
        return load(lane);
    };
    SoftmaxRow<T> row;
    row.inverse_temperature = T(1 / temperature);
    Reg<T> max[R], sum[R], weighted[R];
    unroll<R>([&](auto r) {
        max[r] = splat_register(-std::numeric_limits<T>::infinity());
        sum[r] = weighted[r] = Reg<T>{};
    });
    row.each(logits, V, padded, [&](auto r, int, Reg<T> z) { max[r] = z > max[r] ? z : max[r]; });
    row.max = max_lane(gathered(max));
    row.each(logits, V, padded, [&](auto r, int, Reg<T> z) {
        const Reg<T> e = exp(z);
        sum[r] += e;
        weighted[r] = fma(e, z, weighted[r]);
    });
    const T total = sum_lanes(gathered(sum));
    row.log_sum = std::log(total);
    row.inverse_sum = 1 / total;
    row.entropy = row.log_sum - sum_lanes(gathered(weighted)) * row.inverse_sum;
    return row;
}

namespace token_loss {

// A padded row of logits becomes the gradient of the loss by it. dentropy: of the loss by -H.
template <class T>
void gradient_row(T* logits, int V, const SoftmaxRow<T>& row, int target, T dlogp, T dentropy) {
    const T a = -dlogp * row.inverse_temperature, b = dentropy * row.inverse_temperature;
    const Reg<T> constant = splat_register(a), slope = splat_register(b);
    row.each(logits, V, true, [&](auto, int v, Reg<T> z) {
        const Reg<T> p = exp(z) * row.inverse_sum;
        store_register(logits + v, b == 0 ? p * a : p * fma(slope, z - row.log_sum + row.entropy, constant));
    });
    logits[target] -= a;
}

}  // namespace token_loss

// Log-probabilities, entropies, ..., and with dx or dw the gradients. Throws for a target outside 0..V-1.
template <class T>
TokenLossSum token_loss_forward_backward(CpuDevice<T>& device, TokenLossWorkspace<CpuDevice<T>>& workspace,
                                         const TokenLoss<T>& t) {
    TokenLossSum result;
    const size_t D = size_t(t.D), V = size_t(t.V);
    T *logits = workspace.logits.data(), *x = workspace.x.data(), *dx = workspace.dx.data();
    int* tokens = workspace.tokens.data();
    double* terms = workspace.terms.data();
    for (int next = 0; next < t.N;) {
        int count = 0;
        for (; next < t.N && count < workspace.chunk; next++) {
            const int target = t.targets[next];
            token_loss::check_target(target, t.V);
            if (target >= 0) {
                std::copy_n(t.x + next * D, D, x + count * D);
                tokens[count++] = next;
                continue;
            }
            token_loss::no_target(t, next);
            if (t.dx) std::fill_n(t.dx + next * D, D, T(0));
        }
        matmul_forward<T>(device, logits, x, t.w, nullptr, count, t.V, t.D, workspace.row);
#pragma omp parallel for schedule(static) if (count * V > (1 << 13))
        for (int i = 0; i < count; i++) {
            const int n = tokens[i], target = t.targets[n];
            T* z = logits + i * size_t(workspace.row);
            const SoftmaxRow<T> row = softmax_row(z, t.V, t.temperature, true);
            const T logp = row.logp(z[target]);
            const token_loss::Term term = token_loss::term(t, token_loss::given(t, n), logp, row.entropy);
            terms[i] = term.loss;
            if (t.ratio && t.old_logp) t.ratio[n] = T(term.ratio);
            if (t.logp) t.logp[n] = logp;
            if (t.entropy) t.entropy[n] = row.entropy;
            if (t.argmax) t.argmax[n] = int(std::find_if(z, z + V, [&](T v) { return row.z(v) == 0; }) - z);
            if (t.dx || t.dw) token_loss::gradient_row(z, t.V, row, target, T(term.dlogp), T(term.dentropy));
        }
        for (int i = 0; i < count; i++) result.loss += terms[i];
        result.targets += count;
        if (t.dx || t.dw)
            matmul_backward<T>(device, t.dx ? dx : nullptr, t.dw, nullptr, logits, x, t.w, count, t.V, t.D,
                               false, workspace.row);
        if (t.dx)
            for (int i = 0; i < count; i++) std::copy_n(dx + i * D, D, t.dx + tokens[i] * D);
    }
    return result;
}

// Rows of logits, for sampling: few rows only, the result is N x V.
template <class T>
void head_logits(CpuDevice<T>& device, T* logits /*(N, V)*/, const T* x /*(N, D)*/, Weight<T> w /*(V, D)*/,
                 int N, int D, int V) {
    matmul_forward<T>(device, logits, x, w, nullptr, N, V, D);
}

// ---- CUDA -----------------------------------------------------------------------------------------------

#ifdef SWARR_CUDA
namespace token_loss {

struct Result {
    double loss;
    float logp, entropy, ratio;
    int argmax;
};

}  // namespace token_loss

template <class T>
struct TokenLossWorkspace<CudaDevice<T>> {
    // A buffer of logits of at most this size: 2048 rows of Qwen's vocabulary, enough work for every product,
    // and dWv is read and written rarely.
    static constexpr size_t logits_bytes = size_t(5) << 28;

    int capacity, chunk, row;                          // tokens of a call; rows of logits, and their length
    Buffer<float, CudaDevice<T>> logits;               // (chunk, row)
    Buffer<T, CudaDevice<T>> x, dx;                    // (chunk, D)
    Buffer<token_loss::Given, CudaDevice<T>> given;    // (capacity)
    Buffer<token_loss::Result, CudaDevice<T>> result;  // (capacity)
    TokenLossWorkspace(CudaDevice<T>& device, int max_tokens, int D, int V)
        : capacity(max_tokens),
          chunk(chunk_of(max_tokens, V)),
          row(row_of(V)),
          logits(device, size_t(chunk) * row, Memory::workspace),
          x(device, size_t(chunk) * D, Memory::workspace),
          dx(device, size_t(chunk) * D, Memory::workspace),
          given(device, size_t(max_tokens), Memory::workspace),
          result(device, size_t(max_tokens), Memory::workspace) {}

    static size_t bytes(int max_tokens, int D, int V) {
        return size_t(chunk_of(max_tokens, V)) *
                   (size_t(row_of(V)) * sizeof(float) + 2 * size_t(D) * sizeof(T)) +
               size_t(max_tokens) * (sizeof(token_loss::Given) + sizeof(token_loss::Result));
    }
    static int row_of(int V) { return (V + 7) / 8 * 8; }
    static int chunk_of(int max_tokens, int V) {
        const size_t rows = logits_bytes / (size_t(row_of(V)) * sizeof(float));
        return int(std::min(size_t(max_tokens), std::max<size_t>(256, rows / 256 * 256)));
    }
};

// As on the CPU; D is a multiple of 8. Nothing waits until the results are fetched, after the last launch.
// Errors: also more targets than the workspace is for.
template <class T>
TokenLossSum token_loss_forward_backward(CudaDevice<T>& device, TokenLossWorkspace<CudaDevice<T>>& workspace,
                                         const TokenLoss<T, float>& t);
template <class T>
void head_logits(CudaDevice<T>& device, float* logits /*(N, V)*/, const T* x /*(N, D)*/,
                 Weight<T> w /*(V, D)*/, int N, int D, int V);
#endif

#ifdef __CUDACC__
#include <cfloat>

#include "../cuda_kernel.cuh"

namespace token_loss {

// A block has one row. It takes tiles of the row in turn, of which a thread has `packs` times four logits
// that lie next to each other.
constexpr int block = 512, packs = 2, tile = block * packs * 4;

// Logits v, .., v + 3 over the temperature; past the end -inf. `aligned`: rows start at multiples of 16
// bytes. Rounded as on the CPU, so that z of the largest is exactly 0.
__device__ inline void load_four(float* y, const float* logits, int v, int V, bool aligned,
                                 float inverse_temperature) {
    if (aligned && v + 4 <= V) {
        const Pack<float> pack = load_pack(logits + v);
        for (int j = 0; j < 4; j++) y[j] = __fmul_rn(pack.x[j], inverse_temperature);
    } else {
        for (int j = 0; j < 4; j++)
            y[j] = v + j < V ? __fmul_rn(logits[v + j], inverse_temperature) : -INFINITY;
    }
}
__device__ inline float z_of(const SoftmaxRow<float>& row, float logit) {
    return __fsub_rn(__fmul_rn(logit, row.inverse_temperature), row.max);
}

struct Shared {
    float sum[32];
    int argmax;
};

// Of one row of logits, by a whole block, reading it once: each thread keeps a running maximum and scales its
// sums when that rises. argmax: the first of equals. What is not finite shows in log_sum. Sampling uses this
// too, so that both get the same bits from the same logits.
__device__ inline SoftmaxRow<float> softmax(const float* logits, int V, float inverse_temperature,
                                            int& argmax, Shared& shared) {
    constexpr float lowest = -FLT_MAX;
    const bool aligned = reinterpret_cast<uintptr_t>(logits) % 16 == 0;
    // exp of a difference to a new maximum; below -200 it is 0, and 0 times the difference must be too.
    auto fall = [](float from, float to) { return fmaxf(from - to, -200.0f); };
    float max = lowest, sum = 0, weighted = 0;
    int first = V;
    if (threadIdx.x == 0) shared.argmax = V;
    for (int start = 0; start < V; start += tile) {
        float y[packs][4];
        float top = lowest;
        for (int p = 0; p < packs; p++) {
            load_four(y[p], logits, start + (p * block + threadIdx.x) * 4, V, aligned, inverse_temperature);
            for (int j = 0; j < 4; j++) top = fmaxf(top, y[p][j]);
        }
        if (top > max) {
            const float d = fall(max, top), f = expf(d);
            weighted = f * (weighted + d * sum);
            sum *= f;
            max = top;
            for (int p = packs - 1; p >= 0; p--)
                for (int j = 3; j >= 0; j--)
                    if (y[p][j] == top) first = start + (p * block + threadIdx.x) * 4 + j;
        }
        for (int p = 0; p < packs; p++)
            for (int j = 0; j < 4; j++) {
                const float z = __fsub_rn(y[p][j], max), e = expf(z);
                sum += e;
                weighted = fmaf(e, fmaxf(z, lowest), weighted);  // 0 for -inf
            }
    }
    SoftmaxRow<float> row;
    row.inverse_temperature = inverse_temperature;
    row.max = block_max(max, shared.sum);
    if (max == row.max) atomicMin(&shared.argmax, first);
    const float d = fall(max, row.max), f = expf(d);
    weighted = block_sum(f * (weighted + d * sum), shared.sum);
    sum = block_sum(f * sum, shared.sum);
    argmax = shared.argmax;
    row.log_sum = logf(sum);
    row.inverse_sum = 1 / sum;
    row.entropy = row.log_sum - weighted * row.inverse_sum;
    return row;
}

// One row of logits a block: results, and the gradient of the loss by the logits in their place, in T. For
// bfloat16 it fills the first half of the row while the second is still to be read: a tile is written when
// everybody has read it and the next.
template <class T>
__global__ void __launch_bounds__(block, 2)
    loss_rows(TokenLoss<T, float> t, float* logits, int row_length, const Given* given, Result* result) {
    __shared__ Shared shared;
    __shared__ float dlogp, dentropy;
    float* z = logits + size_t(blockIdx.x) * row_length;
    int argmax;
    const SoftmaxRow<float> row = softmax(z, t.V, float(1 / t.temperature), argmax, shared);
    const int target = given[blockIdx.x].target;
    if (threadIdx.x == 0) {
        const float logp = z_of(row, z[target]) - row.log_sum;
        const Term x = term(t, given[blockIdx.x], logp, row.entropy);
        result[blockIdx.x] = {x.loss, logp, row.entropy, float(x.ratio), argmax};
        dlogp = float(x.dlogp), dentropy = float(x.dentropy);
    }
    if (!t.dx && !t.dw) return;
    __syncthreads();
    const float a = -dlogp * row.inverse_temperature, b = dentropy * row.inverse_temperature;
    T* gradient = reinterpret_cast<T*>(z);
    float next[packs][4];
    auto load = [&](int start) {
        for (int p = 0; p < packs; p++)
            load_four(next[p], z, start + (p * block + threadIdx.x) * 4, t.V, true, row.inverse_temperature);
    };
    load(0);
    for (int start = 0; start < t.V; start += tile) {
        alignas(4 * sizeof(T)) T out[packs][4];
        for (int p = 0; p < packs; p++) {
            const int v = start + (p * block + threadIdx.x) * 4;
            for (int j = 0; j < 4; j++) {
                const float x = __fsub_rn(next[p][j], row.max), share = expf(x) * row.inverse_sum;
                float g = share * (b == 0 ? a : fmaf(b, x - row.log_sum + row.entropy, a));
                if (v + j == target) g -= a;
                out[p][j] = from_float<T>(g);
            }
        }
        if (start + tile < t.V) load(start + tile);
        if (sizeof(T) < sizeof(float)) __syncthreads();
        for (int p = 0; p < packs; p++) {
            const int v = start + (p * block + threadIdx.x) * 4;
            using Four = std::conditional_t<sizeof(T) == 2, uint2, uint4>;
            if (v + 4 <= t.V)
                *reinterpret_cast<Four*>(gradient + v) = *reinterpret_cast<const Four*>(out[p]);
            else
                for (int j = 0; j < 4; j++)
                    if (v + j < t.V) gradient[v + j] = out[p][j];
        }
    }
}

// Rows of `all` (N, D) of the tokens in `given` to or from `chosen` (count, D).
template <bool Scatter, class T>
__global__ void move_rows(std::conditional_t<Scatter, T, const T>* all,
                          std::conditional_t<Scatter, const T, T>* chosen, const Given* given, int count,
                          int D) {
    const int packs = D / Pack<T>::size;
    const size_t at = size_t(blockIdx.x) * block + threadIdx.x;
    if (at >= size_t(count) * packs) return;
    const size_t i = at / packs, d = at % packs * Pack<T>::size;
    const size_t there = size_t(given[i].token) * D + d, here = i * D + d;
    if constexpr (Scatter)
        store_pack(all + there, load_pack(chosen + here));
    else
        store_pack(chosen + here, load_pack(all + there));
}

}  // namespace token_loss

template <class T>
TokenLossSum token_loss_forward_backward(CudaDevice<T>& device, TokenLossWorkspace<CudaDevice<T>>& workspace,
                                         const TokenLoss<T, float>& t) {
    using namespace token_loss;
    std::vector<Given> chosen;
    for (int n = 0; n < t.N; n++) {
        check_target(t.targets[n], t.V);
        if (t.targets[n] >= 0)
            chosen.push_back(token_loss::given(t, n));
        else
            no_target(t, n);
    }
    const int count = int(chosen.size());
    if (count > workspace.capacity)
        fail(format("%d targets in a pass that was prepared for %d", count, workspace.capacity),
             "raise --max-tokens-per-pass");
    if (t.dx && count < t.N) device.zero(t.dx, size_t(t.N) * t.D * sizeof(T));
    device.upload(workspace.given.data(), chosen.data(), size_t(count) * sizeof(Given));
    for (int first = 0; first < count; first += workspace.chunk) {
        const int rows = std::min(workspace.chunk, count - first);
        const Given* given = workspace.given.data() + first;
        T *x = workspace.x.data(), *dx = workspace.dx.data();
        float* logits = workspace.logits.data();
        const unsigned blocks = blocks_for(size_t(rows) * t.D / Pack<T>::size, block);
        launch(device, move_rows<false, T>, blocks, block, 0, t.x, x, given, rows, t.D);
        matmul_forward(device, logits, x, t.w, static_cast<const T*>(nullptr), rows, t.V, t.D, workspace.row);
        launch(device, loss_rows<T>, unsigned(rows), block, 0, t, logits, workspace.row, given,
               workspace.result.data() + first);
        if (!t.dx && !t.dw) continue;
        matmul_backward<T>(device, t.dx ? dx : nullptr, t.dw, nullptr, reinterpret_cast<const T*>(logits), x,
                           t.w, rows, t.V, t.D, false, workspace.row * int(sizeof(float) / sizeof(T)));
        if (t.dx) launch(device, move_rows<true, T>, blocks, block, 0, t.dx, dx, given, rows, t.D);
    }
    std::vector<Result> results(static_cast<size_t>(count));
    device.download(results.data(), workspace.result.data(), size_t(count) * sizeof(Result));
    TokenLossSum sum;
    sum.targets = count;
    for (int i = 0; i < count; i++) {
        const int n = chosen[i].token;
        sum.loss += results[i].loss;
        if (t.logp) t.logp[n] = results[i].logp;
        if (t.entropy) t.entropy[n] = results[i].entropy;
        if (t.ratio && t.old_logp) t.ratio[n] = results[i].ratio;
        if (t.argmax) t.argmax[n] = results[i].argmax;
    }
    return sum;
}
template <class T>
void head_logits(CudaDevice<T>& device, float* logits, const T* x, Weight<T> w, int N, int D, int V) {
    matmul_forward(device, logits, x, w, static_cast<const T*>(nullptr), N, V, D);
}
template TokenLossSum token_loss_forward_backward(CudaDevice<bf16>&, TokenLossWorkspace<CudaDevice<bf16>>&,
                                                  const TokenLoss<bf16, float>&);
template TokenLossSum token_loss_forward_backward(CudaDevice<float>&, TokenLossWorkspace<CudaDevice<float>>&,
                                                  const TokenLoss<float, float>&);
template void head_logits(CudaDevice<bf16>&, float*, const bf16*, Weight<bf16>, int, int, int);
template void head_logits(CudaDevice<float>&, float*, const float*, Weight<float>, int, int, int);
#endif
