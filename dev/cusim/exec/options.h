// options.h: the switches, read once from the environment.
#pragma once
#include <string>

#include "../base.h"

namespace cusim {

struct Options {
    bool check_race = false;    // CUSIM_CHECK=race
    bool check_init = false;    // CUSIM_CHECK=init
    bool lazy_streams = false;  // CUSIM_STREAMS=lazy[:seed]
    u64 stream_seed = 1;
    std::string stats_path;   // CUSIM_STATS=file.json; %p stands for the process id
    u64 budget = 4000000000;  // CUSIM_BUDGET, warp instructions per launch
    bool sticky = false;  // CUSIM_FAULT=sticky: a fault becomes a CUDA error instead of ending the program
    int capability = 90;  // CUSIM_CC=8.0
    u64 memory_bytes = u64(16) << 30;  // CUSIM_MEMORY, bytes
    int devices = 1;                   // CUSIM_DEVICES
    bool quiet = false;                // CUSIM_QUIET=1: no announcement
};

// Ends the program with a message if a variable has a value it does not understand.
const Options& options();

}  // namespace cusim
