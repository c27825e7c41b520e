// standin.h: what libcudart.so offers the stand-ins of cuBLAS and NCCL.
#pragma once
#include <cuda_runtime_api.h>

#include <functional>

#define CUSIM_EXPORT __attribute__((visibility("default")))

namespace cusim {

// Runs `work` in stream order (or records it into the graph being captured).
CUSIM_EXPORT void standin_enqueue(cudaStream_t stream, const char* name, std::function<void()> work);
// The bytes behind a device pointer. Ends the program with a message naming `call` and `argument` if they are
// not all inside one live allocation; `write` marks them as written.
CUSIM_EXPORT void* standin_bytes(const void* device, size_t bytes, bool write, const char* call,
                                 const char* argument);
// Ends the program: "cusim: error: MESSAGE".
[[noreturn]] CUSIM_EXPORT void standin_stop(const char* message);

}  // namespace cusim
