// counters.h: what cusim counts while a hidden test runs.
#pragma once
#include <unistd.h>

#include <cstdlib>
#include <fstream>
#include <string>

#include "../catch.h"
#include "json_lines.h"

// The kernels' counters (dev/cusim/README.md) of the test with this tag; null on a GPU, where nothing counts.
inline Json counters(const std::string& tag) {
    const std::string file = format("/tmp/swarr-counters-%d.json", int(getpid()));
    const std::string command = format("CUSIM_QUIET=1 CUSIM_STATS=%s /proc/%d/exe '%s' >/dev/null",
                                       file.c_str(), int(getpid()), tag.c_str());
    REQUIRE(std::system(command.c_str()) == 0);
    std::ifstream in(file);
    if (!in) return {};
    Json out = Json::parse(in);
    std::remove(file.c_str());
    return out["kernels"];
}
