// overlap.h: are the problems of a test set in the training data? The usual report: shared runs of 13 words.
//
// Texts become words of letters and digits in lower case; spaces, punctuation and LaTeX's signs do not count,
// so a reformatted copy is found, a paraphrase is not. A problem shorter than 13 words is found where the
// training text holds all of it in a row (from 4 words on; shorter ones say nothing).
#pragma once
#include <algorithm>
#include <string>
#include <unordered_map>
#include <unordered_set>
#include <vector>

#include "problems.h"

namespace overlap_detail {

constexpr size_t run_length = 13, least = 4;

inline std::vector<uint64_t> words(const std::string& text) {
    std::vector<uint64_t> out;
    std::string word;
    for (size_t i = 0; i <= text.size(); i++) {
        unsigned char c = i < text.size() ? text[i] : ' ';
        if (std::isalnum(c) || c >= 0x80)
            word += char(std::tolower(c));
        else if (!word.empty())
            out.push_back(text_hash(word)), word.clear();
    }
    return out;
}

inline uint64_t run_hash(const std::vector<uint64_t>& words, size_t first, size_t n) {
    return text_hash({reinterpret_cast<const char*>(&words[first]), n * sizeof(uint64_t)});
}

// Every text in a row of training data, whatever its form.
inline void texts(const Json& value, std::string& out) {
    if (value.is_string()) out += value.get<std::string>() + "\n";
    if (value.is_structured())
        for (const Json& v : value) texts(v, out);
}

inline std::string question(const Problem& p) {
    return p.messages.back().at("content").get<std::string>();
}

}  // namespace overlap_detail

// {"problems": n, "found": m, "ids": {id: "file:line"}}; .jsonl line by line, other files as one text.
inline Json overlap_report(const std::vector<Problem>& problems, const std::vector<std::string>& training) {
    using namespace overlap_detail;
    // Run length -> hash of a run -> problems that have it.
    std::unordered_map<size_t, std::unordered_map<uint64_t, std::vector<size_t>>> wanted;
    for (size_t i = 0; i < problems.size(); i++) {
        std::vector<uint64_t> w = words(question(problems[i]));
        const size_t n = std::min(run_length, w.size());
        if (n < least) continue;
        for (size_t at = 0; at + n <= w.size(); at++) {
            std::vector<size_t>& list = wanted[n][run_hash(w, at, n)];
            if (list.empty() || list.back() != i) list.push_back(i);
        }
    }
    std::vector<std::string> where(problems.size());
    auto search = [&](const std::string& text, const std::string& place) {
        std::vector<uint64_t> w = words(text);
        for (auto& [n, runs] : wanted)
            for (size_t at = 0; at + n <= w.size(); at++) {
                auto found = runs.find(run_hash(w, at, n));
                if (found == runs.end()) continue;
                for (size_t i : found->second)
                    if (where[i].empty()) where[i] = place;
            }
    };
    for (const std::string& file : training) {
        if (file.size() > 6 && file.compare(file.size() - 6, 6, ".jsonl") == 0) {
            JsonLines lines(file);
            for (Json row; lines.next(row);) {
                std::string text;
                texts(row, text);
                search(text, lines.where());
            }
        } else {
            search(read_file(file, uint64_t(1) << 36), file);
        }
    }
    Json ids = Json::object();
    for (size_t i = 0; i < problems.size(); i++)
        if (!where[i].empty()) ids[problems[i].id] = where[i];
    return {{"schema", 1},
            {"rule", format("%zu words in a row, or all of a shorter problem", run_length)},
            {"training", training},
            {"problems", problems.size()},
            {"found", ids.size()},
            {"ids", ids}};
}

inline std::string overlap_text(const std::string& set, const Json& report) {
    std::string out = format("contamination: %d of %d problems of %s share %s with the training files\n",
                             report.at("found").get<int>(), report.at("problems").get<int>(), set.c_str(),
                             report.at("rule").get<std::string>().c_str());
    int shown = 0;
    for (auto& [id, place] : report.at("ids").items()) {
        if (shown++ == 5) return out + "  ...\n";
        out += "  " + id + "  " + place.get<std::string>() + "\n";
    }
    return out;
}
