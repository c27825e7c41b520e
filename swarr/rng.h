// rng.h: a counter-based generator, Philox4x32-10 (Salmon et al., "Parallel random numbers: as easy as 1, 2,
// 3", SC 2011). A number depends only on (seed, stream, index): not on how many were drawn before, on the
// batch, or on the thread. Test vectors: the authors' Random123 known-answer file.
#pragma once
#include <cmath>
#include <cstdint>
#include <utility>

#ifdef __CUDACC__
#define SWARR_HOST_DEVICE __host__ __device__
#else
#define SWARR_HOST_DEVICE
#endif

struct Philox {
    uint32_t v[4];
};

// counter (4 words), key (2 words) -> 4 words
SWARR_HOST_DEVICE inline Philox philox(uint32_t c0, uint32_t c1, uint32_t c2, uint32_t c3, uint64_t key) {
    uint32_t k0 = uint32_t(key), k1 = uint32_t(key >> 32);
    for (int round = 0; round < 10; round++) {
        uint64_t p0 = uint64_t(0xD2511F53u) * c0, p1 = uint64_t(0xCD9E8D57u) * c2;
        uint32_t n0 = uint32_t(p1 >> 32) ^ c1 ^ k0, n2 = uint32_t(p0 >> 32) ^ c3 ^ k1;
        c1 = uint32_t(p1), c3 = uint32_t(p0), c0 = n0, c2 = n2;
        k0 += 0x9E3779B9u, k1 += 0xBB67AE85u;
    }
    return {{c0, c1, c2, c3}};
}

// What a number is for; keeps the streams of one seed apart.
enum class Stream : uint32_t { init = 1, shuffle = 2, sample = 3, test = 4 };

// Uniform in [0, 1) with 24 bits, from the upper bits of a word.
SWARR_HOST_DEVICE inline float uniform01(uint32_t word) {
    return float(word >> 8) * (1.0f / 16777216.0f);
}

// The uniform that decides token number `position` of sample `sample` of problem `problem`.
SWARR_HOST_DEVICE inline float sample_uniform(uint64_t seed, uint32_t problem, uint32_t sample,
                                              uint32_t position) {
    return uniform01(philox(position, sample, problem, uint32_t(Stream::sample), seed).v[0]);
}

// Standard normal number `index` of stream (a, b) by Box-Muller. In double, rounded once: the same
// everywhere.
inline double normal_at(uint64_t seed, Stream stream, uint32_t a, uint64_t index) {
    Philox r = philox(uint32_t(index), uint32_t(index >> 32), a, uint32_t(stream), seed);
    double u = (r.v[0] + 1.0) / 4294967296.0, w = r.v[1] / 4294967296.0;
    return std::sqrt(-2 * std::log(u)) * std::cos(6.283185307179586 * w);
}

// A sequential reader of one stream, for shuffles and generators.
class Rng {
  public:
    Rng(uint64_t seed, Stream stream, uint32_t a = 0) : seed_(seed), stream_(stream), a_(a) {}
    uint32_t next() {
        if (used_ == 4) {
            block_ = philox(uint32_t(index_), uint32_t(index_ >> 32), a_, uint32_t(stream_), seed_);
            index_++, used_ = 0;
        }
        return block_.v[used_++];
    }
    float uniform() { return uniform01(next()); }
    // Unbiased integer in [0, n), n > 0 (Lemire's multiply and reject).
    uint32_t below(uint32_t n) {
        uint64_t m = uint64_t(next()) * n;
        if (uint32_t(m) < n)
            for (uint32_t floor = uint32_t(-n) % n; uint32_t(m) < floor;) m = uint64_t(next()) * n;
        return uint32_t(m >> 32);
    }
    // Fisher-Yates
    template <class Vector>
    void shuffle(Vector& items) {
        for (size_t i = items.size(); i > 1; i--) std::swap(items[i - 1], items[below(uint32_t(i))]);
    }

  private:
    uint64_t seed_, index_ = 0;
    Stream stream_;
    uint32_t a_;
    Philox block_{};
    int used_ = 4;
};
