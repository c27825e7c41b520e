// vector_add.cu: the simplest kernel: one thread per element, the last block partly idle.
#include "example.h"

__global__ void vector_add(float* c, const float* a, const float* b, int n) {
    int i = blockIdx.x * blockDim.x + threadIdx.x;
    if (i < n) c[i] = a[i] + b[i];
}

int main(int argc, char** argv) {
    const int n = 1 << 17 | 5;
    std::vector<float> a(n), b(n);
    for (int i = 0; i < n; i++) a[i] = random_value(), b[i] = random_value();
    DeviceArray<float> x(a), y(b), z(n);
    auto launch = [&] { vector_add<<<(n + 255) / 256, 256>>>(z.data, x.data, y.data, n); };
    launch();
    CUDA(cudaGetLastError());
    std::vector<float> c = z.host();
    double error = 0;
    for (int i = 0; i < n; i++) error = std::fmax(error, std::fabs(c[i] - (a[i] + b[i])));
    time_launches(argc, argv, "vector_add", n, "element", launch);
    return verdict("vector_add", error, 0);
}
