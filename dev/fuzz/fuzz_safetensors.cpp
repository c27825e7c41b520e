// fuzz_safetensors: any bytes as a safetensors file: an Error or tensors that lie inside it, nothing else.
//
//   clang++ -std=c++17 -O1 -g -fsanitize=fuzzer,address,undefined -I. -Iswarr dev/fuzz/fuzz_safetensors.cpp
//   -o fuzz
//   ./fuzz -max_len=4096 -max_total_time=60
#include <cstdlib>
#include <map>
#include <string>
#include <vector>

#include "swarr/safetensors.h"

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
    // A fuzzer seldom guesses eight bytes of length: two of its bytes choose between the right one and its
    // own.
    std::vector<unsigned char> file(data, data + size);
    if (size > 10 && data[8] == '{') {
        uint64_t header = uint64_t(size) - 8 - data[size - 1] % 64 % (size - 8);
        for (int i = 0; i < 8; i++) file[size_t(i)] = static_cast<unsigned char>(header >> 8 * i);
    }
    std::map<std::string, std::string> metadata;
    try {
        uint64_t at = 0;
        for (const TensorInfo& t : parse_safetensors_header(file.data(), size, "fuzz", metadata)) {
            if (t.offset < at || t.offset + t.bytes > size) std::abort();
            at = t.offset + t.bytes;
            int64_t count = 1;
            for (int64_t n : t.shape) count *= n;
            if (count != t.count() || uint64_t(count) * uint64_t(dtype_bytes(t.dtype)) != t.bytes)
                std::abort();
            if (t.dtype != Dtype::F32 && t.dtype != Dtype::BF16 && t.dtype != Dtype::F16) continue;
            std::vector<float> numbers(size_t(t.count()));
            convert_numbers(t.dtype, file.data() + t.offset, numbers.data(), t.count());
        }
    } catch (const Error&) {
    }
    return 0;
}
