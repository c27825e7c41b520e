// transpose.cu: transposition through shared memory; a row of 33 words instead of 32 avoids bank conflicts.
#include "example.h"

constexpr int kTile = 32, kRows = 8;

// out (columns, rows) = in (rows, columns) transposed
template <int kPitch>
__global__ void transpose(float* out, const float* in, int rows, int columns) {
    __shared__ float tile[kTile][kPitch];
    int column = blockIdx.x * kTile + threadIdx.x, row0 = blockIdx.y * kTile;
    for (int r = threadIdx.y; r < kTile; r += kRows)
        if (row0 + r < rows && column < columns) tile[r][threadIdx.x] = in[(row0 + r) * columns + column];
    __syncthreads();
    int out_column = row0 + threadIdx.x, out_row0 = blockIdx.x * kTile;
    for (int r = threadIdx.y; r < kTile; r += kRows)
        if (out_row0 + r < columns && out_column < rows)
            out[(out_row0 + r) * rows + out_column] = tile[threadIdx.x][r];
}

int main(int argc, char** argv) {
    const int rows = 199, columns = 321;
    std::vector<float> in(rows * columns);
    for (float& v : in) v = random_value();
    DeviceArray<float> x(in), y(in.size());
    dim3 grid((columns + kTile - 1) / kTile, (rows + kTile - 1) / kTile), block(kTile, kRows);
    double error = 0;
    for (int pitch : {kTile + 1, kTile}) {
        if (pitch == kTile)
            transpose<kTile><<<grid, block>>>(y.data, x.data, rows, columns);
        else
            transpose<kTile + 1><<<grid, block>>>(y.data, x.data, rows, columns);
        std::vector<float> out = y.host();
        for (int r = 0; r < rows; r++)
            for (int c = 0; c < columns; c++)
                error = std::fmax(error, std::fabs(out[c * rows + r] - in[r * columns + c]));
    }
    time_launches(argc, argv, "transpose", rows * columns, "element",
                  [&] { transpose<kTile + 1><<<grid, block>>>(y.data, x.data, rows, columns); });
    return verdict("transpose", error, 0);
}
