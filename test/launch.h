// launch.h: for tests: several ranks of a program, or of this test binary running one hidden test case.
#pragma once
#include <sys/wait.h>

#include <cstdlib>
#include <string>
#include <vector>

#include "scratch.h"

struct Launched {
    std::vector<int> code;         // exit status of each rank, or 128 + the signal; of mpirun alone
    std::vector<std::string> err;  // what each rank printed; mpirun alone: all of it
    std::string all_err() const {
        std::string text;
        for (const std::string& e : err) text += e;
        return text;
    }
};

// A command that runs a hidden test case of this binary.
inline std::string test_case(const std::string& tag) {
    return "'" + std::filesystem::read_symlink("/proc/self/exe").string() + "' '" + tag + "'";
}

// Runs a shell command and returns its exit status.
inline int shell(const std::string& command) {
    const int status = std::system(command.c_str());
    return WIFEXITED(status) ? WEXITSTATUS(status) : 128 + WTERMSIG(status);
}

// The command once for each rank, which learns by environment variables who it is; ended after two minutes.
// `setup`: what the shell of each rank does first. Files of an earlier run may lie in `dir`.
inline Launched launch_by_file(const ScratchFolder& dir, int ranks, const std::string& command,
                               const std::string& setup = "true") {
    std::string script;
    for (int r = 0; r < ranks; r++)
        script += format("(export SWARR_RANKS=%d SWARR_RANK=%d SWARR_RENDEZVOUS='%s/meet'; %s; ", ranks, r,
                         dir.path.c_str(), setup.c_str()) +
                  "timeout -k 5 120 " + command + " >'" + dir.path +
                  format("/out%d' 2>'%s/err%d'; echo $? >'%s/code%d') & ", r, dir.path.c_str(), r,
                         dir.path.c_str(), r);
    shell(script + "wait");
    Launched out;
    for (int r = 0; r < ranks; r++) {
        out.code.push_back(std::atoi(bytes_of_file(dir / format("code%d", r)).c_str()));
        out.err.push_back(bytes_of_file(dir / format("out%d", r)) + bytes_of_file(dir / format("err%d", r)));
    }
    return out;
}

// Variables instead of flags, which every MPI names differently.
inline Launched launch_by_mpi(int ranks, const std::string& command) {
    ScratchFolder dir;
    Launched out;
    out.code = {
        shell("OMPI_ALLOW_RUN_AS_ROOT=1 OMPI_ALLOW_RUN_AS_ROOT_CONFIRM=1 "
              "OMPI_MCA_rmaps_base_oversubscribe=1 OMPI_MCA_hwloc_base_binding_policy=none "
              "ASAN_OPTIONS=detect_leaks=0 timeout -k 5 120 mpirun -n " +
              std::to_string(ranks) + " " + command + " >'" + dir.path + "/err' 2>&1")};
    out.err = {bytes_of_file(dir / "err")};
    return out;
}

// Whether MPI is there, to run and in this build; says so where it is not.
inline bool have_mpi() {
#ifdef SWARR_MPI
    if (shell("command -v mpirun >/dev/null") == 0) return true;
#endif
    std::printf("skipped: no MPI here\n");
    return false;
}
