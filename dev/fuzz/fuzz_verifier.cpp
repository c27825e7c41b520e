// fuzz_verifier.cpp: mutated LaTeX against the verifier (libFuzzer, clang
// -fsanitize=fuzzer,address,undefined).
//
//   clang++ -std=c++17 -O1 -g -fsanitize=fuzzer,address,undefined dev/fuzz/fuzz_verifier.cpp -o fuzz_verifier
//   ./fuzz_verifier -max_total_time=60 -max_len=4096
//
// An input is "gold <newline> completion". Besides crashes and leaks it looks for answers that differ from
// themselves, verdicts that change when asked again, and slow inputs: 50 ms a pair, times 20 for the
// sanitizers.
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <ctime>

#include "../../swarr/verifier/compare.h"

extern "C" size_t LLVMFuzzerMutate(uint8_t* data, size_t size, size_t max_size);

namespace {

constexpr double slowest_seconds = 0.050 * 20;

const char* const seeds[] = {"\\frac{1}{2}",
                             "\\frac12",
                             "\\sqrt[3]{x}",
                             "x^{2}",
                             "x_{1}",
                             "(1,2]",
                             "[0,\\infty)",
                             "\\{1,2\\}",
                             "\\cup",
                             "\\pm",
                             "\\le",
                             "<",
                             "=",
                             "\\in",
                             "\\begin{pmatrix}1&2\\\\3&4\\end{pmatrix}",
                             "\\begin{vmatrix}",
                             "\\end{vmatrix}",
                             "\\text{ cm}",
                             "\\%",
                             "^\\circ",
                             "\\pi",
                             "e^{i\\pi}",
                             "\\log_{2}",
                             "\\sin",
                             "\\binom{n}{k}",
                             "n!",
                             "\\lfloor",
                             "\\rfloor",
                             "|x|",
                             "\\left|",
                             "\\right|",
                             "\\sum_{k=1}^{n}",
                             "\\ldots",
                             "1,234",
                             "0.\\overline{3}",
                             "2\\frac{1}{2}",
                             "52_{8}",
                             "3:4",
                             "4:30 p.m.",
                             " and ",
                             " or ",
                             "\\boxed{",
                             "}",
                             "{",
                             "$",
                             "\\(",
                             "</think>",
                             "The answer is ",
                             "#### ",
                             "\\\\",
                             "**",
                             "1e9",
                             "\\bmod",
                             "\\mathbb{R}",
                             "\\setminus",
                             "f(x)",
                             "\\vec{v}",
                             "'",
                             "\\exp",
                             "9^{9^{9}}",
                             "\\int_0^1",
                             "million",
                             "percent",
                             "π",
                             "\xe2\x88\x92"};

double cpu_seconds() {
    return double(std::clock()) / CLOCKS_PER_SEC;
}

void check(bool holds, const char* what) {
    if (holds) return;
    std::fprintf(stderr, "fuzz_verifier: %s\n", what);
    std::abort();
}

}  // namespace

// Inserts or overwrites with a piece of LaTeX half of the time, else mutates bytes.
extern "C" size_t LLVMFuzzerCustomMutator(uint8_t* data, size_t size, size_t max_size, unsigned int seed) {
    if (seed % 2) return LLVMFuzzerMutate(data, size, max_size);
    uint64_t random = verifier::mix(seed);
    const char* piece = seeds[random % (sizeof seeds / sizeof *seeds)];
    size_t length = std::strlen(piece), at = size ? (random >> 20) % (size + 1) : 0;
    if (size + length > max_size) return LLVMFuzzerMutate(data, size, max_size);
    std::memmove(data + at + length, data + at, size - at);
    std::memcpy(data + at, piece, length);
    return size + length;
}

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
    std::string text(reinterpret_cast<const char*>(data), size), gold = text.substr(0, text.find('\n'));
    std::string completion = gold.size() < text.size() ? text.substr(gold.size() + 1) : text;
    double start = cpu_seconds();
    verifier::Verdict bare = verifier::compare(gold, completion);
    verifier::Grade rl = verifier::grade("\\boxed{" + completion + "}", {gold}, verifier::Mode::rl);
    verifier::Grade lenient = verifier::grade(completion, {gold}, verifier::Mode::lenient);
    check(cpu_seconds() - start < 3 * slowest_seconds, "slow input");
    check(bare == verifier::compare(gold, completion), "another verdict the second time");
    bool blank = gold.find_first_not_of(" \t\r\v\f.,:*_\"`") == std::string::npos;
    check(blank || gold.size() > 4000 || verifier::compare(gold, gold) == verifier::Verdict::equal,
          "an answer differs from itself");
    check(rl.answer.size() <= size + 8 && lenient.answer.size() <= size, "an answer longer than the text");
    return 0;
}
