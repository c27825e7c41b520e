// fuzz_ptx.cpp: PTX text of any kind through cusim's parser and decoder: an error, never a crash.
//
// The input is a module; every function in it is parsed, every kernel decoded. Nothing is executed.
#include <cstddef>
#include <cstdint>
#include <string>

#include "../cusim/ptx/decode.h"

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
    if (size > 65536) return 0;
    try {
        auto module = cusim::parse_module(std::string(reinterpret_cast<const char*>(data), size));
        for (auto& [name, function] : module->functions) {
            if (!function.entry) continue;
            try {
                cusim::Decoder decoder(*module, [](const cusim::Variable&) { return cusim::u64(1) << 44; });
                decoder.decode(function);
            } catch (const cusim::PtxError&) {
            }
        }
    } catch (const cusim::PtxError&) {
    }
    return 0;
}
