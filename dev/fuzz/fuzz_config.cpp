// fuzz_config: any text as config.json: an Error, or a configuration that can be written and reads back the
// same.
//
//   clang++ -std=c++17 -O1 -g -fsanitize=fuzzer,address,undefined -I. -Iswarr dev/fuzz/fuzz_config.cpp -o
//   fuzz mkdir corpus && cp some/config.json corpus && ./fuzz -max_len=2000 -max_total_time=60 corpus
#include <cstdlib>
#include <string>

#include "swarr/config.h"

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
    try {
        Json j = parse_json(std::string(reinterpret_cast<const char*>(data), size), "fuzz");
        ModelConfig c = parse_config(j, "fuzz");
        engine_notes(j);
        if (parameter_count(c) <= 0) std::abort();
        Json written = write_config(c);
        ModelConfig again = parse_config(written, "written");
        if (again.window != c.window || again.sink_tokens != c.sink_tokens ||
            again.rope_theta != c.rope_theta)
            std::abort();
        if (write_config(again) != written) std::abort();
        for (const EngineNote& note : engine_notes(written))
            if (note.engine == "transformers" &&
                note.text.compare(0, window_runs(c.window).size(), window_runs(c.window)))
                std::abort();
    } catch (const Error&) {
    }
    return 0;
}
