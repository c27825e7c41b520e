// softmax.cu: softmax over rows, one warp per row, the running maximum and sum of one pass over the input.
#include "example.h"

// in, out: (rows, columns)
__global__ void softmax(float* out, const float* in, int rows, int columns) {
    int row = blockIdx.x * (blockDim.x / 32) + threadIdx.x / 32, lane = threadIdx.x % 32;
    if (row >= rows) return;
    const float* x = in + size_t(row) * columns;
    float most = -INFINITY, sum = 0;
    for (int i = lane; i < columns; i += 32) {
        float higher = fmaxf(most, x[i]);
        sum = sum * __expf(most - higher) + __expf(x[i] - higher);
        most = higher;
    }
    for (int step = 16; step > 0; step /= 2) {
        float other_most = __shfl_xor_sync(0xffffffff, most, step),
              other_sum = __shfl_xor_sync(0xffffffff, sum, step);
        float higher = fmaxf(most, other_most);
        sum = sum * __expf(most - higher) + other_sum * __expf(other_most - higher);
        most = higher;
    }
    for (int i = lane; i < columns; i += 32) out[size_t(row) * columns + i] = __expf(x[i] - most) / sum;
}

int main(int argc, char** argv) {
    const int rows = 203, columns = 513;
    std::vector<float> in(rows * columns);
    for (float& v : in) v = 10 * random_value();
    DeviceArray<float> x(in), y(in.size());
    auto launch = [&] { softmax<<<(rows + 3) / 4, 128>>>(y.data, x.data, rows, columns); };
    launch();
    std::vector<float> out = y.host();
    double error = 0;
    for (int r = 0; r < rows; r++) {
        double most = -INFINITY, sum = 0;
        for (int i = 0; i < columns; i++) most = std::fmax(most, in[r * columns + i]);
        for (int i = 0; i < columns; i++) sum += std::exp(in[r * columns + i] - most);
        for (int i = 0; i < columns; i++)
            error = std::fmax(error,
                              std::fabs(out[r * columns + i] - std::exp(in[r * columns + i] - most) / sum));
    }
    time_launches(argc, argv, "softmax", rows * columns, "element", launch);
    return verdict("softmax", error, 1e-6);
}
