// comm.h: one typed wrapper around the collectives on arrays of a device: ranks.h on the CPU, NCCL on GPUs.
//
//   comm.reduce_scatter(x, n)  afterwards x[shard(n)] is the sum over ranks; the rest of x is undefined
//   comm.all_gather(x, n)      x[shard(n)] of every rank goes to every rank
//   comm.all_reduce(x, n)      x is the sum over ranks, the same bits on each
//   comm.broadcast(x, n)       rank 0's x
//   comm.finish()              the results of all of these may be used from here on
//
// They begin when the work that the device was given before is done, and run beside what it is given after
// (on the CPU they are simply done). Counts are elements. For one number of ranks the bits of a sum are the
// same in every run. All ranks must make the same calls with the same counts.
#pragma once
#include <algorithm>
#include <type_traits>

#include "device.h"
#include "ranks.h"

// Elements [begin, begin + size) of an array.
struct Shard {
    size_t begin = 0, size = 0;
    size_t end() const { return begin + size; }
};

// Rank r's part of n elements: equal multiples of 64 elements; what remains goes to the last rank.
inline Shard shard_of(size_t n, int rank, int ranks) {
    const size_t base = n / size_t(ranks) / 64 * 64, begin = base * size_t(rank);
    return {begin, rank == ranks - 1 ? n - begin : base};
}

template <class T>
constexpr const char* type_name() {
    if constexpr (std::is_same_v<T, float>) return "float";
    if constexpr (std::is_same_v<T, double>) return "double";
    if constexpr (std::is_same_v<T, int32_t>) return "int32";
    if constexpr (std::is_same_v<T, int64_t>) return "int64";
    return "bfloat16";
}

template <class Device>
class Comm;

template <class Real>
class Comm<CpuDevice<Real>> {
  public:
    Comm(CpuDevice<Real>&, Ranks& ranks) : ranks(ranks) {}
    Ranks& ranks;

    Shard shard(size_t n) const { return shard_of(n, ranks.rank(), ranks.size()); }

    template <class T>
    void reduce_scatter(T* x, size_t n) {
        const Shard mine = shard(n);
        std::vector<T> sum;
        in_turns<T>("reduce_scatter", n, [&](const std::string& what, size_t from, size_t to) {
            std::vector<std::string_view> parts;
            for (int r = 0; r < ranks.size(); r++) parts.push_back(part(x, n, r, from, to));
            ranks.exchange(what, parts, from_);
            const size_t own = parts[size_t(ranks.rank())].size() / sizeof(T);
            T* target = x + mine.begin + from;
            sum.assign(own, T(0));
            for (int r = 0; r < ranks.size(); r++) {
                const T* add = r == ranks.rank() ? target : reinterpret_cast<const T*>(received<T>(r, own));
                for (size_t i = 0; i < own; i++) sum[i] = r ? sum[i] + add[i] : add[i];
            }
            std::copy(sum.begin(), sum.end(), target);
        });
    }
    template <class T>
    void all_gather(T* x, size_t n) {
        in_turns<T>("all_gather", n, [&](const std::string& what, size_t from, size_t to) {
            std::vector<std::string_view> parts(size_t(ranks.size()), part(x, n, ranks.rank(), from, to));
            ranks.exchange(what, parts, from_);
            for (int r = 0; r < ranks.size(); r++) {
                if (r == ranks.rank()) continue;
                const std::string_view place = part(x, n, r, from, to);
                std::memcpy(const_cast<char*>(place.data()), received<T>(r, place.size() / sizeof(T)),
                            place.size());
            }
        });
    }
    template <class T>
    void all_reduce(T* x, size_t n) {
        reduce_scatter(x, n);
        all_gather(x, n);
    }
    template <class T>
    void broadcast(T* x, size_t n) {
        if (ranks.size() == 1) return;
        for (size_t at = 0; at < n; at += turn<T>()) {
            const size_t size = std::min(turn<T>(), n - at);
            std::vector<std::string_view> parts(static_cast<size_t>(ranks.size()));
            if (ranks.first())
                parts.assign(parts.size(), {reinterpret_cast<const char*>(x + at), size * sizeof(T)});
            ranks.exchange(describe<T>("broadcast", n), parts, from_);
            if (!ranks.first()) std::memcpy(x + at, received<T>(0, size), size * sizeof(T));
        }
    }
    void finish() {}

  private:
    // Elements of a shard that travel at once; bounds the memory of the exchange.
    template <class T>
    static constexpr size_t turn() {
        return (size_t(1) << 20) / sizeof(T);
    }
    template <class T>
    static std::string describe(const char* operation, size_t n) {
        return format("%s of %zu %s", operation, n, type_name<T>());
    }
    // Calls step(what, from, to) for elements [from, to) of every shard in turn.
    template <class T, class Step>
    void in_turns(const char* operation, size_t n, Step step) {
        if (ranks.size() == 1) return;
        const size_t longest = shard_of(n, ranks.size() - 1, ranks.size()).size;
        for (size_t from = 0; from < longest; from += turn<T>())
            step(describe<T>(operation, n), from, std::min(from + turn<T>(), longest));
    }
    // Elements [from, to) of rank r's shard of x, or as many as there are.
    template <class T>
    std::string_view part(const T* x, size_t n, int r, size_t from, size_t to) const {
        const Shard s = shard_of(n, r, ranks.size());
        const size_t a = std::min(from, s.size), b = std::min(to, s.size);
        return {reinterpret_cast<const char*>(x + s.begin + a), (b - a) * sizeof(T)};
    }
    template <class T>
    const char* received(int r, size_t elements) const {
        const std::string& bytes = from_[size_t(r)];
        if (bytes.size() != elements * sizeof(T))
            fail(format("rank %d sent %zu bytes where %zu were expected", r, bytes.size(),
                        elements * sizeof(T)),
                 "all ranks must be the same program with the same options and data");
        return bytes.data();
    }
    std::vector<std::string> from_;
};

#ifdef SWARR_CUDA
#include "cuda_comm.h"
#endif
