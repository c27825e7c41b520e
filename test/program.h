// program.h: for tests: runs one of the built programs and returns what it said.
#pragma once
#include <sys/wait.h>

#include <cstdio>
#include <cstdlib>
#include <string>

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
