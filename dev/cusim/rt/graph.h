// graph.h: a captured graph is the list of its operations in the order of capture, which respects all
// dependencies.
#pragma once
#include <thread>

#include "stream.h"

struct CUgraph_st {
    std::vector<cusim::Operation> operations;
    cusim::u64 id = 0;
    cudaStreamCaptureMode mode = cudaStreamCaptureModeGlobal;
    std::thread::id thread;
    bool invalid = false;
};

struct CUgraphExec_st {
    std::vector<cusim::Operation> operations;
};

namespace cusim {

// Of the calling thread.
cudaStreamCaptureMode& thread_capture_mode();

}  // namespace cusim
