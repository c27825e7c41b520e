// verify_file.h: grades a JSONL file of pairs (eval --verify-only FILE).
//
// In:  {"gold": "...", "pred": "..."}                      a bare answer
//      {"gold": "...", "pred": "...", "form": "text"}      an output to extract from
//      {"gold": "...", "completion": "..."}                the same
//      gold may be a list, any of which counts; optional "id"; "equal" or "correct" is the expected verdict
// Out: {"id": ..., "verdict": "equal|different|unparsed", "answer": "...", "why": "..."}, one line each, in
// order, and a summary (counts, error rates where verdicts were expected, time). Lines with "kind": "choice"
// or "disputed": true are graded but kept out of the error rates.
#pragma once
#include <cstdio>
#include <ctime>

#include "../json_lines.h"
#include "compare.h"

namespace verifier {
namespace detail {

// The time this thread has worked; a busy machine does not count.
inline double thread_seconds() {
    timespec t;
    clock_gettime(CLOCK_THREAD_CPUTIME_ID, &t);
    return double(t.tv_sec) + 1e-9 * double(t.tv_nsec);
}
inline std::string text_of(const Json& value, const std::string& where, const char* key) {
    if (value.is_string()) return value.get<std::string>();
    if (value.is_number()) return value.dump();
    fail(where + ": \"" + key + "\" is " + value.type_name() + ", not text",
         "write the answer as a string, for example \"\\\\frac{1}{2}\"");
}
inline std::vector<std::string> golds_of(const Json& row, const std::string& where) {
    if (!row.contains("gold"))
        fail(where + ": no key \"gold\" (found: " + keys_found(row) + ")",
             "each line must be {\"gold\": ..., \"pred\": ...} or {\"gold\": ..., \"completion\": ...}");
    const Json& gold = row["gold"];
    std::vector<std::string> out;
    if (!gold.is_array()) return {text_of(gold, where, "gold")};
    for (const Json& one : gold) out.push_back(text_of(one, where, "gold"));
    if (out.empty()) fail(where + ": \"gold\" is an empty list", "give at least one reference answer");
    return out;
}
// The expected verdict: 1, 0, or -1 where the line has none or does not count.
inline int expected(const Json& row) {
    auto choice = row.find("kind");
    auto disputed = row.find("disputed");
    if (choice != row.end() && *choice == "choice") return -1;
    if (disputed != row.end() && *disputed == true) return -1;
    for (const char* key : {"equal", "correct"})
        if (auto it = row.find(key); it != row.end() && it->is_boolean()) return it->get<bool>();
    return -1;
}

}  // namespace detail

// Grades every line of `path`. Returns 0; bad lines throw Error with file and line.
inline int verify_file(const std::string& path, Mode mode, FILE* out, FILE* err) {
    JsonLines in(path);
    Json row;
    long lines = 0, verdicts[3] = {0, 0, 0}, wanted[2] = {0, 0}, wrong[2] = {0, 0};
    double seconds = 0;
    while (in.next(row)) {
        std::vector<std::string> golds = detail::golds_of(row, in.where());
        bool completion = row.contains("completion");
        if (!completion && !row.contains("pred"))
            fail(in.where() + ": no key \"pred\" or \"completion\" (found: " + keys_found(row) + ")",
                 "\"pred\" is a bare answer, \"completion\" a whole output");
        const char* key = completion ? "completion" : "pred";
        std::string text = detail::text_of(row[key], in.where(), key);
        bool extracted = completion || (row.contains("form") && row["form"] == "text");
        double start = detail::thread_seconds();
        Grade g = extracted ? grade(text, golds, mode) : grade_answer(text, golds, mode);
        seconds += detail::thread_seconds() - start;
        lines++, verdicts[int(g.verdict)]++;
        int want = detail::expected(row);
        if (want >= 0) wanted[want]++, wrong[want] += (g.verdict == Verdict::equal) != (want == 1);
        Json line;
        line["id"] = row.contains("id") ? row["id"] : Json(in.line());
        line["verdict"] = verdict_name(g.verdict);
        line["answer"] = g.answer;
        line["why"] = g.why;
        std::fprintf(out, "%s\n", line.dump(-1, ' ', false, Json::error_handler_t::replace).c_str());
    }
    std::fprintf(err, "%ld pairs (%s): %ld equal, %ld different, %ld unparsed; %.1f us per pair\n", lines,
                 mode == Mode::rl ? "rl" : "lenient", verdicts[0], verdicts[1], verdicts[2],
                 lines ? seconds / double(lines) * 1e6 : 0);
    if (wanted[1])
        std::fprintf(err, "equal expected: %ld, missed %ld (%.2f%%)\n", wanted[1], wrong[1],
                     100.0 * double(wrong[1]) / double(wanted[1]));
    if (wanted[0])
        std::fprintf(err, "different expected: %ld, wrongly accepted %ld (%.2f%%)\n", wanted[0], wrong[0],
                     100.0 * double(wrong[0]) / double(wanted[0]));
    return 0;
}

}  // namespace verifier
