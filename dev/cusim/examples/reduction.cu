// reduction.cu: sum of an array: shuffles within a warp, shared memory between warps, one atomic per block.
#include "example.h"

constexpr int kThreads = 256;

__device__ float warp_sum(float x) {
    for (int step = 16; step > 0; step /= 2) x += __shfl_down_sync(0xffffffff, x, step);
    return x;
}

__global__ void sum(float* out, const float* in, int n) {
    __shared__ float partial[kThreads / 32];
    float x = 0;
    for (int i = blockIdx.x * kThreads + threadIdx.x; i < n; i += gridDim.x * kThreads) x += in[i];
    x = warp_sum(x);
    int warp = threadIdx.x / 32, lane = threadIdx.x % 32;
    if (lane == 0) partial[warp] = x;
    __syncthreads();
    if (warp > 0) return;
    x = lane < kThreads / 32 ? partial[lane] : 0;
    x = warp_sum(x);
    if (lane == 0) atomicAdd(out, x);
}

int main(int argc, char** argv) {
    const int n = 100003;
    std::vector<float> in(n);
    double expected = 0;
    for (float& v : in) expected += v = random_value();
    DeviceArray<float> x(in), total(1);
    auto launch = [&] { sum<<<16, kThreads>>>(total.data, x.data, n); };
    CUDA(cudaMemset(total.data, 0, sizeof(float)));
    launch();
    double error = std::fabs(total.host()[0] - expected);
    time_launches(argc, argv, "reduction", n, "element", launch);
    return verdict("reduction", error, 1e-3);
}
