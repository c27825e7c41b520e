// collectives.h: for tests: what every rank of a communicator checks, on any device.
#pragma once
#include "catch.h"
#include "comm.h"
#include "launch.h"

// Another number for every rank and place; small whole numbers, whose sums are exact even in bfloat16.
template <class T>
T value(int rank, size_t i) {
    return T(float(int((i * 7 + size_t(rank) * 13) % 41) - 20));
}

// Whether x[i] is of(i) for `begin` <= i < `end`.
template <class T, class Of>
bool is(const std::vector<T>& x, size_t begin, size_t end, Of of) {
    for (size_t i = begin; i < end; i++)
        if (!(double(x[i]) == double(of(i)))) return false;
    return true;
}

template <class T, class Device>
void all_collectives(Device& device, Comm<Device>& comm, size_t n) {
    const int ranks = comm.ranks.size(), rank = comm.ranks.rank();
    INFO("rank " << rank << " of " << ranks << ", " << n << " " << type_name<T>());
    const Shard mine = comm.shard(n);
    auto sum = [&](size_t i) {
        double s = 0;
        for (int r = 0; r < ranks; r++) s += double(value<T>(r, i));
        return s;
    };
    // Runs an operation on an array that is filled by of(i).
    auto result = [&](auto of, auto operation) {
        std::vector<T> host(n);
        for (size_t i = 0; i < n; i++) host[i] = of(i);
        Buffer<T, Device> x(device, n, Memory::workspace);
        device.upload(x.data(), host.data(), n * sizeof(T));
        operation(x.data());
        comm.finish();
        device.download(host.data(), x.data(), n * sizeof(T));
        return host;
    };
    auto of_rank = [&](size_t i) { return value<T>(rank, i); };
    REQUIRE(is(result(of_rank, [&](T* x) { comm.all_reduce(x, n); }), 0, n, sum));
    REQUIRE(is(result(of_rank, [&](T* x) { comm.reduce_scatter(x, n); }), mine.begin, mine.end(), sum));
    REQUIRE(is(result(of_rank, [&](T* x) { comm.broadcast(x, n); }), 0, n,
               [](size_t i) { return value<T>(0, i); }));
    // Only this rank's shard is right before, everything after.
    auto in_shard = [&](size_t i) { return T(float(i >= mine.begin && i < mine.end() ? sum(i) : 99)); };
    REQUIRE(is(result(in_shard, [&](T* x) { comm.all_gather(x, n); }), 0, n, sum));
}

inline void all_well(const Launched& l) {
    INFO(l.all_err());
    for (int code : l.code) REQUIRE(code == 0);
}
inline bool has(const std::string& text, const std::string& part) {
    return text.find(part) != std::string::npos;
}

// What a program does, in small: joins, works; errors become an exit status.
inline int as_program(double timeout, const std::function<void(Ranks&)>& body) {
    return run_program("rank", [&] {
        Ranks ranks;
        ranks.join(timeout);
        body(ranks);
        return 0;
    });
}

#ifdef SWARR_CUDA
// Under cusim there are as many devices as one likes; on a real machine, as there are.
inline bool several_devices() {
    if (std::getenv("CUSIM_QUIET") || std::getenv("CUSIM_CHECK")) return true;
    int count = 0;
    if (cudaGetDeviceCount(&count) == cudaSuccess && count >= 2) return true;
    std::printf("skipped: one GPU, two are needed\n");
    return false;
}
#endif
