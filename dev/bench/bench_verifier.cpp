// bench_verifier.cpp: microseconds per pair on a file of pairs, and time against length.
//
//   build/bench/bench_verifier [cases.jsonl] [completions.jsonl]
//
// Process CPU time of one thread; every pair is parsed afresh, as in training.
#include <cstdio>
#include <ctime>
#include <string>
#include <vector>

#include "../../swarr/verifier/verify_file.h"

namespace {

struct Pair {
    std::string gold, text;
    bool extract;
};

double cpu_seconds() {
    return double(std::clock()) / CLOCKS_PER_SEC;
}

std::vector<Pair> load(const std::string& path) {
    std::vector<Pair> out;
    Json row;
    for (JsonLines in(path); in.next(row);) {
        bool completion = row.contains("completion");
        out.push_back({row["gold"], completion ? row["completion"] : row["pred"],
                       completion || row.value("form", "") == "text"});
    }
    return out;
}

void time_pairs(const std::string& path) {
    std::vector<Pair> pairs = load(path);
    size_t bytes = 0, verdicts = 0;
    double best = 1e9, worst = 0;
    std::string slowest;
    for (int round = 0; round < 10; round++) {
        double start = cpu_seconds();
        for (const Pair& p : pairs) {
            double one = round ? 0 : cpu_seconds();
            verifier::Grade g = p.extract ? verifier::grade(p.text, {p.gold}, verifier::Mode::lenient)
                                          : verifier::grade_answer(p.text, {p.gold}, verifier::Mode::lenient);
            verdicts += g.verdict == verifier::Verdict::equal;
            if (round) continue;
            bytes += p.gold.size() + p.text.size();
            one = cpu_seconds() - one;
            if (one > worst) worst = one, slowest = p.gold;
        }
        best = std::min(best, cpu_seconds() - start);
    }
    std::printf("%-14s %5zu pairs, %5zu bytes each: %6.2f us per pair (best of 10); slowest %.2f ms: %s\n",
                path.substr(path.rfind('/') + 1).c_str(), pairs.size(), bytes / pairs.size(),
                best / double(pairs.size()) * 1e6, worst * 1e3, quoted(slowest, 40).c_str());
}

void time_length(const char* name, const char* before, const char* unit, const char* after) {
    std::printf("%-22s", name);
    for (size_t n : {1000, 10000, 100000, 1000000}) {
        std::string text = before;
        while (text.size() < n) text += unit;
        text += after;
        double best = 1e9;
        for (int round = 0; round < 5; round++) {
            double start = cpu_seconds();
            verifier::grade(text, {"12345"}, verifier::Mode::lenient);
            best = std::min(best, cpu_seconds() - start);
        }
        std::printf("  %9.0f", best * 1e6);
    }
    std::printf("\n");
}

}  // namespace

int main(int argc, char** argv) {
    return run_program("bench_verifier", [&] {
        std::vector<std::string> files(argv + 1, argv + argc);
        if (files.empty()) files = {"../shared/verifier/cases.jsonl", "../shared/verifier/completions.jsonl"};
        for (const std::string& file : files) time_pairs(file);
        std::printf("\nus for a text of             1 kB      10 kB     100 kB       1 MB\n");
        time_length("words, then a box", "", "so we add the two. ", "\\boxed{12}");
        time_length("words without a box", "", "so we add the two. ", "");
        time_length("a long number", "\\boxed{", "7", "}");
        time_length("unclosed boxes", "", "\\boxed{", "");
        time_length("unclosed formulas", "", "\\( x $", "");
        time_length("a long sum", "\\boxed{", "\\sin x + ", "1}");
        return 0;
    });
}
