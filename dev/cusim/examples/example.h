// example.h: what the example programs share: error checks, random numbers, a verdict, the time a launch
// takes.
//
// Every example checks its result on the CPU and exits with 1 if it is wrong. With a number as argument it
// launches its kernel that many more times and prints the process time per unit of work.
#pragma once
#include <cuda_runtime.h>

#include <cmath>
#include <cstdio>
#include <cstdlib>
#include <ctime>
#include <vector>

inline void cuda_check(cudaError_t e, const char* what, int line) {
    if (e == cudaSuccess) return;
    std::fprintf(stderr, "line %d: %s: %s\n", line, what, cudaGetErrorString(e));
    std::exit(1);
}
#define CUDA(call) cuda_check(call, #call, __LINE__)

// Device memory that goes with its scope.
template <class T>
struct DeviceArray {
    T* data = nullptr;
    size_t size;
    explicit DeviceArray(size_t n) : size(n) { CUDA(cudaMalloc(&data, n * sizeof(T))); }
    explicit DeviceArray(const std::vector<T>& host) : DeviceArray(host.size()) {
        CUDA(cudaMemcpy(data, host.data(), size * sizeof(T), cudaMemcpyHostToDevice));
    }
    DeviceArray(const DeviceArray&) = delete;
    ~DeviceArray() { cudaFree(data); }
    std::vector<T> host() const {
        std::vector<T> out(size);
        CUDA(cudaMemcpy(out.data(), data, size * sizeof(T), cudaMemcpyDeviceToHost));
        return out;
    }
};

// Uniform in [-1, 1), repeatable.
inline float random_value() {
    static unsigned state = 12345;
    state = state * 1664525u + 1013904223u;
    return float(state >> 8) / (1 << 23) - 1;
}

inline int verdict(const char* name, double error, double limit) {
    bool good = error <= limit;  // false for NaN
    std::printf("%s: largest error %.3g, limit %.3g: %s\n", name, error, limit, good ? "ok" : "WRONG");
    return good ? 0 : 1;
}

// Runs `launch` as often as the first argument says and prints process time per unit.
template <class F>
void time_launches(int argc, char** argv, const char* name, double units, const char* unit, F launch) {
    int repeats = argc > 1 ? std::atoi(argv[1]) : 0;
    if (repeats <= 0) return;
    std::clock_t start = std::clock();
    for (int i = 0; i < repeats; i++) launch();
    CUDA(cudaDeviceSynchronize());
    double seconds = double(std::clock() - start) / CLOCKS_PER_SEC / repeats;
    std::printf("%s: %.3f ms, %.2f ns per %s\n", name, 1e3 * seconds, 1e9 * seconds / units, unit);
}
