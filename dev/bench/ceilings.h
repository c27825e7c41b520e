// ceilings.h: what the machine can do at most, measured in the run of the benchmark itself: fused
// multiply-adds in registers, reading memory once, and the triad a = b + s c. Benchmarks report ratios to
// these.
//
// Machines are shared: every figure is the best of several short repeats, ceilings and candidates alike. On a
// busy machine run a benchmark as root under `chrt --fifo 1`: it then has the processors to itself for each
// repeat and pauses after it, so that others are held up by a fifth at most.
#pragma once
#include <omp.h>
#include <sched.h>
#include <unistd.h>

#include <algorithm>
#include <chrono>
#include <cstdio>
#include <cstdlib>
#include <cstring>

#include "swarr/device.h"
#include "swarr/tile.h"

inline double bench_seconds() {
    return std::chrono::duration<double>(std::chrono::steady_clock::now().time_since_epoch()).count();
}

// Best time of one call of f; short calls are made in series of about 10 ms.
template <class F>
double best_seconds(F&& f, int repeats = 5) {
    const bool alone = sched_getscheduler(0) == SCHED_FIFO;
    double best = 1e30;
    for (int i = 0, series = 1; i < repeats; i++) {
        const double start = bench_seconds();
        for (int j = 0; j < series; j++) f();
        const double seconds = bench_seconds() - start;
        best = std::min(best, seconds / series);
        if (i == 0) series = std::clamp(int(0.01 / seconds), 1, 1000000);
        if (alone) usleep(unsigned(4e6 * seconds));
    }
    return best;
}

template <class V>
inline void keep(const V& v) {
    __asm__ volatile("" ::"m"(v));
}

// All threads read n floats once. On the very memory a candidate reads, this is its ceiling: bandwidth
// depends on how the pages lie.
inline double read_seconds(const float* x, size_t n) {
    const int threads = omp_get_max_threads();
    return best_seconds([&] {
#pragma omp parallel for schedule(static, 1)
        for (int t = 0; t < threads; t++) {
            const float* p = x + n / threads * t;
            Vec<float> sum[4] = {};
            for (size_t i = 0; i + 4 * lanes<float> <= n / threads; i += 4 * lanes<float>)
                unroll<4>([&](auto j) { sum[j] += load(p + i + j * lanes<float>); });
            keep(sum[0] + sum[1] + sum[2] + sum[3]);
        }
    });
}

struct Ceilings {
    double fma = 0;    // GFLOP/s in float, all threads together
    double read = 0;   // GB/s, memory read once
    double triad = 0;  // GB/s, two reads and a write counted

    // Call again between measurements: the best of all calls counts.
    void measure() {
        constexpr int chains = register_bytes == 64 ? 24 : 12, steps = 100000;
        double seconds = best_seconds([&] {
#pragma omp parallel
            {
                Reg<float> acc[chains];
                unroll<chains>([&](auto i) { acc[i] = splat_register(float(i)); });
                Reg<float> a = splat_register(0.999f), b = splat_register(0.001f);
                __asm__ volatile("" : "+m"(a), "+m"(b));
                for (int s = 0; s < steps; s++) unroll<chains>([&](auto i) { acc[i] = ::fma(acc[i], a, b); });
                unroll<chains>([&](auto i) { keep(acc[i]); });
            }
        });
        const int threads = omp_get_max_threads();
        fma = std::max(fma, 2e-9 * register_lanes<float> * chains * steps * threads / seconds);

        const size_t n = size_t(1) << 25;  // floats: 128 MB
        Cpu device;
        Buffer<float, Cpu> x(device, n, Memory::workspace), y(device, n, Memory::workspace),
            z(device, n, Memory::workspace);
        read = std::max(read, 1e-9 * double(n) * sizeof(float) / read_seconds(x.data(), n));
        seconds = best_seconds([&] {
#pragma omp parallel for simd schedule(static)
            for (size_t i = 0; i < n; i++) x[i] = y[i] + 0.5f * z[i];
        });
        triad = std::max(triad, 3e-9 * double(n) * sizeof(float) / seconds);
    }
    void print() const {
        std::printf(
            "ceilings, %d threads: %.0f GFLOP/s fused multiply-add, %.1f GB/s read, %.1f GB/s triad\n",
            omp_get_max_threads(), fma, read, triad);
    }
};
