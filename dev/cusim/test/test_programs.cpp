// Executables made by nvcc, run under cusim: the examples, the runtime API, seeded faults, counters, streams,
// ranks.
#include <regex>

#include "harness.h"

namespace {

const std::string kQuiet = "CUSIM_QUIET=1 ";

// True (with a word) if there is nothing to run.
bool no_programs() {
    if (!program_folder().empty()) return false;
    std::puts("skipped: tests of nvcc programs (no nvcc)");
    return true;
}

// A number of the statistics file: the first "key": N after each of the given words in turn.
double number_after(const std::string& json, const std::vector<std::string>& path) {
    size_t at = 0;
    for (const std::string& word : path) {
        at = json.find("\"" + word, at);
        if (at == std::string::npos) return -1;
        at += word.size() + 1;
    }
    at = json.find(':', at);
    return std::atof(json.c_str() + at + 1);
}

}  // namespace

TEST_CASE("examples give right results with all checks on") {
    if (no_programs()) return;
    for (const char* name : {"vector_add", "reduction", "softmax", "transpose", "matmul", "attention"}) {
        ProgramResult r = run_program(name, "CUSIM_CHECK=all");
        INFO(name << "\n" << r.out << r.err);
        CHECK(r.code == 0);
        CHECK(contains(r.out, ": ok"));
        CHECK(contains(r.err, "cusim: CUDA executes on the CPU"));
        CHECK(run_program(name, kQuiet).err == "");
    }
}

TEST_CASE("the runtime API does what its documentation says, eager and lazy") {
    if (no_programs()) return;
    for (const char* streams : {"eager", "lazy:1", "lazy:2", "lazy:3"}) {
        ProgramResult r = run_program("runtime", std::string("CUSIM_STREAMS=") + streams);
        INFO(streams << "\n" << r.out << r.err);
        CHECK(r.code == 0);
        CHECK(contains(r.out, "\n" + std::string(1000, 'x') + "\n"));  // printed by a kernel
    }
}

TEST_CASE("every seeded fault is reported with its file and line") {
    if (no_programs()) return;
    std::string source = file_text("dev/cusim/test/faults/faults.cu");
    std::regex marker("// FAULT ([a-z_]+)(?: \\[([^\\]]*)\\])?: (.*)");
    std::istringstream lines(source);
    std::string line;
    int number = 0, found = 0;
    while (std::getline(lines, line)) {
        number++;
        std::smatch m;
        if (line.find("//   //") != std::string::npos || !std::regex_search(line, m, marker)) continue;
        found++;
        ProgramResult r = run_program("faults " + m[1].str(), m[2].str());
        INFO(m[1].str() << ", line " << number << "\n" << r.err);
        CHECK(r.code == 99);
        CHECK(contains(r.err, m[3].str()));
        CHECK(contains(r.err, "faults.cu:" + std::to_string(number)));
        if (m[1] == "unknown_instruction") continue;  // found before any thread runs
        CHECK(contains(r.err, "\n  kernel "));
        CHECK(contains(r.err, "thread ("));
    }
    CHECK(found >= 34);
}

TEST_CASE("faults outside kernels") {
    if (no_programs()) return;
    CHECK(contains(run_program("faults host_reads_device").err, "host code touched device memory"));
    CHECK(contains(run_program("faults copy_past_end").err, "invalid device range of 401 bytes"));
    CHECK(contains(run_program("faults unknown_function").err,
                   "cudaDeviceFlushGPUDirectRDMAWrites is not implemented"));
    ProgramResult r = run_program("faults free_twice");
    CHECK(contains(r.out, "cudaErrorInvalidValue"));
    CHECK(contains(r.err, "that was freed"));
}

TEST_CASE("faults can be sticky errors, but the program does not end well") {
    if (no_programs()) return;
    ProgramResult r = run_program("faults write_past_end", "CUSIM_FAULT=sticky");
    CHECK(contains(r.out, "ended with cudaErrorIllegalAddress"));
    CHECK(r.code == 99);
    CHECK(contains(run_program("faults failed_assertion", "CUSIM_FAULT=sticky").out,
                   "ended with cudaErrorAssert"));
}

TEST_CASE("a switch with a wrong value is refused") {
    if (no_programs()) return;
    for (const char* s : {"CUSIM_CHECK=everything", "CUSIM_STREAMS=later", "CUSIM_STREAMS=lazy:x",
                          "CUSIM_BUDGET=1k", "CUSIM_CC=nine"})
        CHECK(run_program("vector_add", s).code == 99);
}

TEST_CASE("counters: exact traffic of the examples") {
    if (no_programs()) return;
    std::string file = program_folder() + "/stats.json";
    auto stats = [&](const std::string& program) {
        run_program(program, kQuiet + "CUSIM_STATS=" + file);
        return file_text(file);
    };
    std::string json = stats("vector_add");
    double n = (1 << 17) | 5;
    CHECK(number_after(json, {"global", "read", "bytes"}) == 8 * n);
    CHECK(number_after(json, {"global", "write", "bytes"}) == 4 * n);
    CHECK(number_after(json, {"global", "read", "sectors"}) ==
          number_after(json, {"global", "read", "ideal"}));

    json = stats("transpose");  // a pitch of 33 words has no bank conflicts, one of 32 has the worst
    std::string padded = json.substr(json.find("transpose<33>")),
                plain = json.substr(json.find("transpose<32>"));
    CHECK(number_after(padded, {"shared", "read", "wavefronts"}) ==
          number_after(padded, {"shared", "read", "ideal"}));
    CHECK(number_after(plain, {"shared", "read", "wavefronts"}) >
          20 * number_after(plain, {"shared", "read", "ideal"}));

    json = stats("attention");  // the swizzle leaves no conflicts; products as counted by hand
    CHECK(number_after(json, {"shared", "read", "wavefronts"}) ==
          number_after(json, {"shared", "read", "ideal"}));
    CHECK(number_after(json, {"tensor_multiply_adds"}) == 2 * (1 + 2 + 3) * 4 * 64 * 2048.0);
    CHECK(json == stats("attention"));
    std::remove(file.c_str());
}

TEST_CASE("lazy streams: an event orders two streams, a missing one shows under some seed") {
    if (no_programs()) return;
    int wrong = 0;
    for (int seed = 1; seed <= 8; seed++) {
        std::string s = kQuiet + "CUSIM_STREAMS=lazy:" + std::to_string(seed);
        CHECK(run_program("streams", s).out == "42\n");
        wrong += run_program("streams missing", s).out != "42\n";
    }
    CHECK(wrong > 0);
    CHECK(run_program("streams missing", kQuiet).out == "42\n");
}

TEST_CASE("cuBLAS and cuBLASLt stand-ins") {
    if (no_programs()) return;
    ProgramResult r = run_program("blas", "CUSIM_CHECK=all");
    INFO(r.out << r.err);
    CHECK(r.code == 0);
}

TEST_CASE("NCCL stand-in: collectives, and what happens when a rank is missing") {
    if (no_programs()) return;
    ProgramResult r = run_program("ranks");
    INFO(r.out << r.err);
    CHECK(r.code == 0);
    CHECK(run_program("ranks aborts").code == 0);
    CHECK(contains(run_program("ranks missing", "CUSIM_NCCL_TIMEOUT=1").err, "waited 1 s for rank 1"));
    CHECK(contains(run_program("ranks dies").err, "rank 1 has ended"));
    CHECK(contains(run_program("ranks different").err, "but rank 1 calls another collective"));
}

TEST_CASE("conformance program: repeatable, and its comparison notices a changed bit") {
    if (no_programs()) return;
    std::string a = program_folder() + "/conformance-a.txt", b = program_folder() + "/conformance-b.txt";
    CHECK(run_program("conformance dump " + a, kQuiet + "CUSIM_CHECK=all").code == 0);
    CHECK(run_program("conformance dump " + b, kQuiet).code == 0);
    ProgramResult r = run_program("conformance compare " + a + " " + b, kQuiet);
    INFO(r.out << r.err);
    CHECK(r.code == 0);
    std::string text = file_text(b);
    size_t at = text.find("mma.exact 200 ");
    REQUIRE(at != std::string::npos);
    at = text.find('\n', at) - 1;
    text[at] = text[at] == '0' ? '1' : '0';
    std::ofstream(b) << text;
    CHECK(run_program("conformance compare " + a + " " + b, kQuiet).code == 1);
    std::remove(a.c_str());
    std::remove(b.c_str());
}
