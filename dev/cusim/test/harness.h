// harness.h: for tests: runs PTX text in this process, without nvcc, and executables under cusim.
#pragma once
#include <sys/wait.h>

#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <fstream>
#include <map>
#include <sstream>
#include <string>
#include <vector>

#include "../exec/memory.h"
#include "../exec/warp.h"
#include "../ptx/decode.h"
#include "catch.h"

// One kernel "k" whose only parameter is a pointer to the output.
class PtxRun {
  public:
    // `body`: the statements of the kernel, with %out (.b64) holding the pointer to `words` 32-bit words,
    // zeros at first.
    explicit PtxRun(const std::string& body, int threads = 32, size_t words = 64, int blocks = 1) {
        std::string text =
            ".version 9.0\n.target sm_80\n.address_size 64\n.visible .entry k(.param .u64 out)\n{\n"
            ".reg .b64 %out;\nld.param.u64 %out, [out];\n" +
            body + "\n}\n";
        module_ = cusim::parse_module(text);
        cusim::Decoder decoder(*module_, [](const cusim::Variable&) { return cusim::u64(0); });
        kernel_ = decoder.decode(module_->functions.find("k")->second);
        cusim::Allocation* a = memory().allocate(words * 4, cusim::Allocation::Symbol);
        cusim::Launch launch;
        launch.kernel = &kernel_;
        launch.block.x = cusim::u32(threads);
        launch.grid.x = cusim::u32(blocks);
        launch.params.resize(24);
        std::memcpy(launch.params.data(), &a->start, 8);
        launch.memory = &memory();
        launch.budget = 10000000;
        cusim::run_launch(launch);
        out.resize(words);
        std::memcpy(out.data(), a->data, words * 4);
        memory().release(a->start, cusim::Allocation::Symbol);
    }
    std::vector<cusim::u32> out;
    const cusim::Kernel& kernel() const { return kernel_; }

    static cusim::Memory& memory() {
        static cusim::Memory m;
        return m;
    }

  private:
    std::unique_ptr<cusim::Module> module_;
    cusim::Kernel kernel_;
};

struct ProgramResult {
    int code;  // exit status, or 128 + the signal
    std::string out, err;
};

inline std::string file_text(const std::string& path) {
    std::ifstream in(path);
    std::stringstream s;
    s << in.rdbuf();
    return s.str();
}

// Where the nvcc-built programs lie, empty if there is no nvcc.
inline std::string program_folder() {
    const char* folder = std::getenv("CUSIM_TEST_BIN");
    return folder ? folder : "";
}

// Runs `command` ("name arguments") from the folder of test programs under cusim; `switches` like
// "CUSIM_CHECK=race".
inline ProgramResult run_program(const std::string& command, const std::string& switches = "") {
    std::string base = program_folder() + "/run-" + std::to_string(getpid());
    std::string line = "LD_LIBRARY_PATH='" + program_folder() + "/..' " + switches + " '" + program_folder() +
                       "/" + command.substr(0, command.find(' ')) + "'" +
                       (command.find(' ') == std::string::npos ? "" : command.substr(command.find(' '))) +
                       " >" + base + ".out 2>" + base + ".err </dev/null";
    int status = std::system(line.c_str());
    ProgramResult r{WIFEXITED(status) ? WEXITSTATUS(status) : 128 + WTERMSIG(status),
                    file_text(base + ".out"), file_text(base + ".err")};
    std::remove((base + ".out").c_str());
    std::remove((base + ".err").c_str());
    return r;
}

inline bool contains(const std::string& text, const std::string& part) {
    return text.find(part) != std::string::npos;
}
