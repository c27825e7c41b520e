// matmul.cu: C = A B^T on tensor cores. Tiles of 64 x 64, four warps of 16 rows each, the next tiles of A and
// B arriving by cp.async while the present ones are multiplied.
#include "example.h"
#include "tensor_core.cuh"

constexpr int kTile = 64, kThreads = 128;

// Issues the copy of rows [row0, row0 + 64), columns [k0, k0 + 64) of x (rows, k).
__device__ void copy_tile(bf16* to, const bf16* x, int row0, int rows, int k0, int k) {
    for (int chunk = threadIdx.x; chunk < kTile * 8; chunk += kThreads) {
        int row = chunk / 8, column = chunk % 8 * 8;
        bool inside = row0 + row < rows && k0 + column < k;
        copy_async(to + swizzled(row, column), inside ? x + size_t(row0 + row) * k + k0 + column : x, inside);
    }
}

// a (m, k), b (n, k), c (m, n); k a multiple of 8
__global__ void matmul(float* c, const bf16* a, const bf16* b, int m, int n, int k) {
    __shared__ __align__(128) bf16 tile_a[2][kTile * kTile], tile_b[2][kTile * kTile];
    int row0 = blockIdx.y * kTile, column0 = blockIdx.x * kTile, warp = threadIdx.x / 32,
        lane = threadIdx.x % 32;
    float sum[8][4] = {};
    int steps = (k + kTile - 1) / kTile;
    copy_tile(tile_a[0], a, row0, m, 0, k);
    copy_tile(tile_b[0], b, column0, n, 0, k);
    commit_copies();
    for (int s = 0; s < steps; s++) {
        if (s + 1 < steps) {
            copy_tile(tile_a[(s + 1) % 2], a, row0, m, (s + 1) * kTile, k);
            copy_tile(tile_b[(s + 1) % 2], b, column0, n, (s + 1) * kTile, k);
        }
        commit_copies();
        wait_copies<1>();
        __syncthreads();
        const bf16 *ta = tile_a[s % 2], *tb = tile_b[s % 2];
        for (int kk = 0; kk < kTile; kk += 16) {
            uint32_t x[4];
            load_matrices(x, ta + swizzled(warp * 16 + lane % 16, kk + lane / 16 * 8));
            for (int j = 0; j < 8; j += 2) {  // two blocks of 8 columns
                uint32_t y[4];
                load_matrices(y, tb + swizzled(j * 8 + lane / 16 * 8 + lane % 8, kk + lane / 8 % 2 * 8));
                mma(sum[j], x, y[0], y[1]);
                mma(sum[j + 1], x, y[2], y[3]);
            }
        }
        __syncthreads();
    }
    for (int j = 0; j < 8; j++)
        for (int e = 0; e < 4; e++) {
            int row = row0 + warp * 16 + lane / 4 + e / 2 * 8,
                column = column0 + j * 8 + lane % 4 * 2 + e % 2;
            if (row < m && column < n) c[size_t(row) * n + column] = sum[j][e];
        }
}

int main(int argc, char** argv) {
    const int m = 150, n = 200, k = 168;
    std::vector<bf16> a(m * k), b(n * k);
    for (bf16& v : a) v = __float2bfloat16(random_value());
    for (bf16& v : b) v = __float2bfloat16(random_value());
    DeviceArray<bf16> x(a), y(b);
    DeviceArray<float> z(m * n);
    dim3 grid((n + kTile - 1) / kTile, (m + kTile - 1) / kTile);
    auto launch = [&] { matmul<<<grid, kThreads>>>(z.data, x.data, y.data, m, n, k); };
    launch();
    std::vector<float> c = z.host();
    double error = 0;
    for (int i = 0; i < m; i++)
        for (int j = 0; j < n; j++) {
            double sum = 0;
            for (int l = 0; l < k; l++)
                sum += double(__bfloat162float(a[i * k + l])) * __bfloat162float(b[j * k + l]);
            error = std::fmax(error, std::fabs(c[i * n + j] - sum));
        }
    int mmas = int(grid.x * grid.y) * ((k + kTile - 1) / kTile) * 4 * 4 * 8;
    time_launches(argc, argv, "matmul", mmas, "mma (m16n8k16)", launch);
    return verdict("matmul", error, 1e-4);
}
