// graph.h: a captured graph is the list of its operations in the order of capture, which respects all
// dependencies.
#pragma once
#include "stream.h"

struct CUgraph_st {
    std::vector<cusim::Operation> operations;
    cusim::u64 id = 0;
};

struct CUgraphExec_st {
    std::vector<cusim::Operation> operations;
};
