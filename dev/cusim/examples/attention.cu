// attention.cu: causal flash attention, forward, head dimension 64: one block of four warps per 64 queries,
// keys and values in tiles of 64, softmax carried along in registers, both products on tensor cores.
#include "example.h"
#include "tensor_core.cuh"

constexpr int kDim = 64, kTile = 64, kThreads = 128;

__device__ void copy_rows(bf16* to, const bf16* x, int row0, int rows) {
    for (int chunk = threadIdx.x; chunk < kTile * 8; chunk += kThreads) {
        int row = chunk / 8, column = chunk % 8 * 8;
        bool inside = row0 + row < rows;
        copy_async(to + swizzled(row, column), inside ? x + size_t(row0 + row) * kDim + column : x, inside);
    }
}

__device__ float over_quad(float x, bool maximum) {
    for (int step = 1; step <= 2; step *= 2) {
        float y = __shfl_xor_sync(0xffffffff, x, step);
        x = maximum ? fmaxf(x, y) : x + y;
    }
    return x;
}

// q, k, v, o: (heads, T, 64), one head per blockIdx.y
__global__ void attention(bf16* o, const bf16* q, const bf16* k, const bf16* v, int T) {
    __shared__ __align__(128) bf16 tile_q[kTile * kDim], tile_k[2][kTile * kDim], tile_v[2][kTile * kDim];
    size_t head = size_t(blockIdx.y) * T * kDim;
    int query0 = blockIdx.x * kTile, warp = threadIdx.x / 32, lane = threadIdx.x % 32;
    int row = query0 + warp * 16 + lane / 4;  // and row + 8
    copy_rows(tile_q, q + head, query0, T);
    copy_rows(tile_k[0], k + head, 0, T);
    copy_rows(tile_v[0], v + head, 0, T);
    commit_copies();
    float out[8][4] = {}, most[2] = {-INFINITY, -INFINITY}, sum[2] = {0, 0};
    const float scale = 0.125f * 1.44269504f;
    int tiles = query0 / kTile + 1;
    for (int t = 0; t < tiles; t++) {
        if (t + 1 < tiles) {
            copy_rows(tile_k[(t + 1) % 2], k + head, (t + 1) * kTile, T);
            copy_rows(tile_v[(t + 1) % 2], v + head, (t + 1) * kTile, T);
        }
        commit_copies();
        wait_copies<1>();
        __syncthreads();
        float s[8][4] = {};
        for (int d = 0; d < kDim; d += 16) {
            uint32_t x[4];
            load_matrices(x, tile_q + swizzled(warp * 16 + lane % 16, d + lane / 16 * 8));
            for (int j = 0; j < 8; j += 2) {
                uint32_t y[4];
                load_matrices(
                    y, tile_k[t % 2] + swizzled(j * 8 + lane / 16 * 8 + lane % 8, d + lane / 8 % 2 * 8));
                mma(s[j], x, y[0], y[1]);
                mma(s[j + 1], x, y[2], y[3]);
            }
        }
        for (int j = 0; j < 8; j++)
            for (int e = 0; e < 4; e++) {
                int key = t * kTile + j * 8 + lane % 4 * 2 + e % 2;
                s[j][e] = key <= row + e / 2 * 8 ? s[j][e] * scale : -INFINITY;
            }
        for (int half = 0; half < 2; half++) {
            float higher = most[half];
            for (int j = 0; j < 8; j++) higher = fmaxf(higher, fmaxf(s[j][2 * half], s[j][2 * half + 1]));
            higher = over_quad(higher, true);
            float shrink = exp2f(most[half] - higher), total = 0;
            for (int j = 0; j < 8; j++)
                for (int e = 2 * half; e < 2 * half + 2; e++) {
                    total += s[j][e] = exp2f(s[j][e] - higher);
                    out[j][e] *= shrink;
                }
            sum[half] = sum[half] * shrink + over_quad(total, false);
            most[half] = higher;
        }
        for (int n = 0; n < kTile; n += 16) {
            int j = n / 8;
            uint32_t p[4] = {pack(s[j][0], s[j][1]), pack(s[j][2], s[j][3]), pack(s[j + 1][0], s[j + 1][1]),
                             pack(s[j + 1][2], s[j + 1][3])};
            for (int d = 0; d < 8; d += 2) {
                uint32_t y[4];
                load_matrices_transposed(y, tile_v[t % 2] + swizzled(n + lane % 16, d * 8 + lane / 16 * 8));
                mma(out[d], p, y[0], y[1]);
                mma(out[d + 1], p, y[2], y[3]);
            }
        }
        __syncthreads();
    }
    for (int half = 0; half < 2; half++) {
        int r = row + half * 8;
        if (r >= T) continue;
        for (int j = 0; j < 8; j++)
            *reinterpret_cast<uint32_t*>(&o[head + size_t(r) * kDim + j * 8 + lane % 4 * 2]) =
                pack(out[j][2 * half] / sum[half], out[j][2 * half + 1] / sum[half]);
    }
}

int main(int argc, char** argv) {
    const int T = 150, heads = 2;
    std::vector<bf16> q(heads * T * kDim), k(q.size()), v(q.size());
    for (auto* x : {&q, &k, &v})
        for (bf16& e : *x) e = __float2bfloat16(2 * random_value());
    DeviceArray<bf16> dq(q), dk(k), dv(v), d_out(q.size());
    dim3 grid((T + kTile - 1) / kTile, heads);
    auto launch = [&] { attention<<<grid, kThreads>>>(d_out.data, dq.data, dk.data, dv.data, T); };
    launch();
    std::vector<bf16> o = d_out.host();
    double error = 0;
    for (int h = 0; h < heads; h++)
        for (int i = 0; i < T; i++) {
            auto at = [&](const std::vector<bf16>& x, int t, int d) {
                return double(__bfloat162float(x[(size_t(h) * T + t) * kDim + d]));
            };
            std::vector<double> p(i + 1);
            double most = -INFINITY, sum = 0;
            for (int j = 0; j <= i; j++) {
                double dot = 0;
                for (int d = 0; d < kDim; d++) dot += at(q, i, d) * at(k, j, d);
                most = std::fmax(most, p[j] = dot / 8);
            }
            for (double& x : p) sum += x = std::exp(x - most);
            for (int d = 0; d < kDim; d++) {
                double expected = 0;
                for (int j = 0; j <= i; j++) expected += p[j] / sum * at(v, j, d);
                error = std::fmax(error, std::fabs(at(o, i, d) - expected));
            }
        }
    int mmas = heads * (1 + 2 + 3) * 4 * 64;  // per head: tiles visited, four warps, 32 + 32 products
    time_launches(argc, argv, "attention", mmas, "mma (m16n8k16)", launch);
    return verdict("attention", error, 0.02);
}
