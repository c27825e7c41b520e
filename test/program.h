// program.h: for tests: runs one of the built programs and returns what it said.
#pragma once
#include <sys/wait.h>

#include <algorithm>
#include <cstdio>
#include <cstdlib>
#include <sstream>
#include <string>
#include <vector>

#include "json_lines.h"
#include "scratch.h"

struct ProgramResult {
    int code;              // exit status, or 128 + the signal
    std::string out, err;  // standard output and standard error
};

// The programs lie where $SWARR_BIN says (the Makefile sets it), else in the current folder.
inline std::string program_path(const std::string& name) {
    const char* folder = std::getenv("SWARR_BIN");
    return std::filesystem::absolute(std::string(folder ? folder : ".") + "/" + name).string();
}

// `arguments` as one would type them into a shell, run in folder `where`.
inline ProgramResult run_in(const std::string& where, const std::string& name, const std::string& arguments) {
    ScratchFolder dir;
    std::string command = "cd '" + where + "' && '" + program_path(name) + "' " + arguments + " >'" +
                          (dir / "out") + "' 2>'" + (dir / "err") + "' </dev/null";
    int status = std::system(command.c_str());
    ProgramResult r;
    r.code = WIFEXITED(status) ? WEXITSTATUS(status) : 128 + WTERMSIG(status);
    r.out = bytes_of_file(dir / "out");
    r.err = bytes_of_file(dir / "err");
    return r;
}

// What the steps of a run logged under `key`.
inline std::vector<double> logged(const std::string& run, const std::string& key) {
    std::vector<double> out;
    JsonLines in(run + "/log.jsonl");
    for (Json row; in.next(row);)
        if (row.contains(key)) out.push_back(row[key]);
    return out;
}
inline std::vector<std::string> sorted_lines(const std::string& file) {
    std::vector<std::string> out;
    std::istringstream in(bytes_of_file(file));
    for (std::string line; std::getline(in, line);) out.push_back(line);
    std::sort(out.begin(), out.end());
    return out;
}
