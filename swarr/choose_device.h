// choose_device.h: --device, --precision, --threads and --rank-timeout, the lines that say what was chosen and
// why, and the body of a program run on it.
//
//   return on_device(options, ranks, [&](auto& device) {
//       using Device = std::decay_t<decltype(device)>;
//       Model<Device> model(device, config);
//       ...
//   });
#pragma once
#include <omp.h>
#include <unistd.h>

#include <string>

#include "cli.h"
#include "comm.h"

struct DeviceOptions {
    std::string device = "auto", precision = "bf16";
    int threads = 0;
    double rank_timeout = 600;

    void add_to(Cli& cli, const char* group) {
        cli.option("--device", device, "auto, cpu or cuda", group)
            ->check(CLI::IsMember({"auto", "cpu", "cuda"}));
        cli.option("--precision", precision,
                   "on a GPU: bf16, or fp32 for tests and for comparison with the CPU, which is always fp32",
                   group)
            ->check(CLI::IsMember({"bf16", "fp32"}));
        cli.option("--threads", threads, "CPU threads; 0 = OMP_NUM_THREADS or all", group)
            ->check(CLI::Range(0, 4096));
        cli.option("--rank-timeout", rank_timeout,
                   "under mpirun: seconds that a rank may be late before the others give up", group)
            ->check(CLI::PositiveNumber);
    }
};

// Ranks of one machine divide its processors, unless mpirun has given each its own.
inline void choose_threads(const DeviceOptions& o, const Ranks& ranks) {
    if (o.threads)
        omp_set_num_threads(o.threads);
    else if (ranks.local_size() > 1 && !std::getenv("OMP_NUM_THREADS") &&
             omp_get_num_procs() == sysconf(_SC_NPROCESSORS_ONLN))
        omp_set_num_threads(std::max(1, omp_get_num_procs() / ranks.local_size()));
}

#ifdef SWARR_CUDA
// Why there is no usable GPU, or "".
inline std::string no_cuda_reason() {
    int count = 0;
    cudaError_t status = cudaGetDeviceCount(&count);
    cudaGetLastError();
    if (status != cudaSuccess) return std::string("no GPU: ") + cudaGetErrorString(status);
    if (count == 0) return "no GPU";
    cudaDeviceProp card;
    CUDA_CHECK(cudaGetDeviceProperties(&card, 0));
    if (card.major < 8)
        return format("%s has compute capability %d.%d, 8.0 (Ampere) or newer is needed", card.name,
                      card.major, card.minor);
    return "";
}
#else
inline std::string no_cuda_reason() {
    return "this build has no CUDA device";
}
#endif

// Settles the choice: "cpu" or "cuda". Errors: --device cuda without a usable GPU.
inline std::string chosen_device(const DeviceOptions& o) {
    if (o.device == "cpu") return "cpu";
    const std::string reason = no_cuda_reason();
    if (reason.empty()) return "cuda";
    if (o.device == "cuda")
        fail("--device cuda: " + reason, "build with nvcc on a machine with a GPU, or use --device cpu");
    return "cpu";
}

// Prints the device's line (to `line`) and returns body(device). Each rank has a GPU of its own.
template <class Body>
auto on_device(const DeviceOptions& o, const Ranks& ranks, Body body, FILE* line = stdout) {
    choose_threads(o, ranks);
    if (ranks.size() > 1)
        std::fprintf(line, "ranks: %d, %d on this machine\n", ranks.size(), ranks.local_size());
#ifdef SWARR_CUDA
    if (chosen_device(o) == "cuda") {
        auto run = [&](auto&& device) {
            std::fprintf(line, "device: cuda, %s (compute capability %d.%d), %s%s\n", device.properties.name,
                         device.properties.major, device.properties.minor, o.precision.c_str(),
                         o.device == "auto" ? " (auto: a GPU is there)" : "");
            return body(device);
        };
        const int ordinal = pick_device(ranks);
        return o.precision == "bf16" ? run(CudaDevice<bf16>(ordinal)) : run(CudaDevice<float>(ordinal));
    }
#endif
    chosen_device(o);
    Cpu device;
    std::fprintf(line, "device: cpu, %d threads%s\n", omp_get_max_threads(),
                 o.device == "auto" ? (" (auto: " + no_cuda_reason() + ")").c_str() : "");
    return body(device);
}
