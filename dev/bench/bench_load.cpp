// bench_load: how fast a 1 GB model folder is loaded, against what this machine reads from a warm cache.
//
//   bench_load [FOLDER]   the temporary folder; default /tmp
//
// Ceilings, same threads, same run: read() into a buffer that stays in the cache, and the sum of a fresh
// mapping. Loading = open, check the header, convert to float and look for NaN and Inf, into memory that is
// there already.
#include <omp.h>

#include <cstdio>
#include <filesystem>
#include <memory>
#include <string>
#include <vector>

#include "ceilings.h"
#include "swarr/safetensors.h"

namespace {

const int64_t matrix = 1 << 24;  // numbers: 32 MiB in BF16
// `to`: memory of the file's size, or null for a buffer that stays in the cache.
void read_calls(const std::string& path, size_t size, char* to) {
#pragma omp parallel
    {
        int fd = ::open(path.c_str(), O_RDONLY);
        std::vector<char> buffer(1 << 18);
#pragma omp for schedule(dynamic, 1)
        for (size_t at = 0; at < size; at += buffer.size())
            if (::pread(fd, to ? to + at : buffer.data(), std::min(buffer.size(), size - at), off_t(at)) <= 0)
                std::abort();
        ::close(fd);
    }
}

uint64_t sum_of_mapping(const std::string& path) {
    MappedFile file(path);
    const int64_t n = int64_t(file.size() / 8);
    const uint64_t* x = reinterpret_cast<const uint64_t*>(file.data());
    uint64_t sum = 0;
#pragma omp parallel for simd reduction(+ : sum) schedule(static)
    for (int64_t i = 0; i < n; i++) sum += x[i];
    return sum;
}

void bench(const std::string& folder, Dtype dtype) {
    const int tensors = int((1 << 30) / (matrix * dtype_bytes(dtype)));
    std::vector<float> source(size_t(matrix), 0.0f);
    for (size_t i = 0; i < source.size(); i++) source[i] = float(i % 1000) * 1e-3f;
    SafetensorsWriter writer;
    for (int i = 0; i < tensors; i++) writer.add("t" + std::to_string(i), dtype, {matrix}, source.data());
    Timer timer;
    writer.write_model(folder);
    double write_seconds = timer.seconds();
    const std::string path = folder + "/model.safetensors";
    const size_t size = std::filesystem::file_size(path);

    // A little longer than the numbers, for the header that read() copies too.
    std::unique_ptr<float[]> weights(new float[size_t(matrix) * size_t(tensors) + 4096]());
    double load = best_seconds([&] {
        SafetensorsReader reader = SafetensorsReader::open(folder);
        std::vector<SafetensorsReader::Target<float>> targets;
        float* to = weights.get();
        for (const TensorInfo& t : reader.tensors()) {
            targets.push_back({&t, to});
            to += t.count();
        }
        reader.read_all(targets);
    });
    double copied = best_seconds([&] { read_calls(path, size, reinterpret_cast<char*>(weights.get())); });
    double read = best_seconds([&] { read_calls(path, size, nullptr); });
    volatile uint64_t sink = 0;
    double mapped = best_seconds([&] { sink = sum_of_mapping(path); });
    double gb = double(size) * 1e-9;
    std::printf(
        "%-4s load %.1f GB/s | read() into memory %.1f (%.0f%%), into a buffer %.1f (%.0f%%), mapping %.1f "
        "(%.0f%%) | write and fsync %.2f\n",
        dtype_name(dtype), gb / load, gb / copied, 100 * copied / load, gb / read, 100 * read / load,
        gb / mapped, 100 * mapped / load, gb / write_seconds);
    std::filesystem::remove(path);
}

}  // namespace

int main(int argc, char** argv) {
    return run_program("bench_load", [&] {
        std::string folder = std::string(argc > 1 ? argv[1] : "/tmp") + "/swarr-bench-load";
        make_folders(folder);
        Ceilings ceilings;
        ceilings.measure();
        ceilings.print();
        std::printf("1 GiB from the file cache, %d threads\n", omp_get_max_threads());
        for (Dtype dtype : {Dtype::BF16, Dtype::F32}) bench(folder, dtype);
        std::filesystem::remove_all(folder);
        return 0;
    });
}
