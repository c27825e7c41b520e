// runtime.h: the state behind the CUDA runtime API: memory, modules, streams, errors.
//
// Every API function takes the one lock, so programs may call from several threads; work itself runs on the
// calling one.
#pragma once
#include <cuda_runtime_api.h>

#include <deque>
#include <functional>
#include <map>
#include <mutex>
#include <set>
#include <unordered_map>

#include "../exec/memory.h"
#include "../exec/options.h"

#define CUSIM_API extern "C" __attribute__((visibility("default")))

struct CUstream_st;
struct CUevent_st;
struct CUgraph_st;

namespace cusim {

// An executable's embedded PTX. Parsed at the first use of a kernel or symbol.
struct LoadedModule {
    std::vector<std::pair<int, std::string_view>> images;  // target, PTX text
    bool has_machine_code = false, compressed = false;
    std::unique_ptr<Module> module;
    std::map<std::string, u64> symbols;     // device addresses
    std::map<std::string, Kernel> kernels;  // decoded
};

struct KernelEntry {
    LoadedModule* module;
    std::string name;
    Kernel* kernel = nullptr;
    int max_dynamic_shared = 48 * 1024;
};

struct SymbolEntry {
    LoadedModule* module;
    std::string name;
    size_t bytes;
};

class Runtime {
  public:
    static Runtime& get();

    std::recursive_mutex lock;
    Memory memory;
    int device = 0;
    cudaError_t sticky = cudaSuccess;

    std::vector<std::unique_ptr<LoadedModule>> modules;
    std::unordered_map<const void*, KernelEntry> kernels;
    std::unordered_map<const void*, SymbolEntry> symbols;

    // Parses and decodes at first use; ends the program if the PTX cannot be used.
    Kernel& kernel(KernelEntry& entry);
    u64 symbol_address(const SymbolEntry& entry);

  private:
    Runtime();
    Module& parse(LoadedModule& m);
    u64 place_symbol(LoadedModule& m, const Variable& v);
    void initialise_symbols(LoadedModule& m);
};

struct Locked {
    std::lock_guard<std::recursive_mutex> guard{Runtime::get().lock};
};

// Records an error for cudaGetLastError and returns it; a sticky error overrides success.
cudaError_t done(cudaError_t e = cudaSuccess);
cudaError_t& last_error();
// Prints a kernel's fault; ends the program, or makes the error sticky (CUSIM_FAULT=sticky).
void report_fault(const std::string& report, cudaError_t error);

}  // namespace cusim
