// problems.h: questions with a known answer, from JSONL, for evaluation and reinforcement learning.
//
// One object a line. What users have is read: the question under "problem", "question" or "prompt" (a string
// or a list of messages) or "messages"; the answer under "answer", "label", "ground_truth",
// "reward_model.ground_truth", or as the last \boxed{} of "solution". --input-key and --label-key name
// others. An answer in GSM8K's form ("... #### 72") is what follows "####". Ids must be unique; a row without
// one is called FILE/LINE.
#pragma once
#include <cstdint>
#include <string>
#include <string_view>
#include <unordered_map>
#include <vector>

#include "files.h"
#include "json_lines.h"
#include "reward.h"

struct Problem {
    std::string id;
    Json messages;                  // [{"role", "content"}], the last one the user's
    std::vector<std::string> gold;  // any of them is right
    AnswerFormat format = AnswerFormat::boxed;
};

// FNV-1a. Keys the random numbers of a problem by its id, so that neither order nor --limit matters.
inline uint64_t text_hash(std::string_view text, uint64_t hash = 0xcbf29ce484222325ull) {
    for (unsigned char c : text) hash = (hash ^ c) * 0x100000001b3ull;
    return hash;
}
inline uint32_t problem_key(const std::string& id) {
    uint64_t h = text_hash(id);
    return uint32_t(h ^ (h >> 32));
}

// data/val.jsonl -> val
inline std::string set_name(const std::string& path) {
    size_t slash = path.find_last_of('/');
    std::string name = slash == std::string::npos ? path : path.substr(slash + 1);
    size_t dot = name.rfind('.');
    return dot == std::string::npos || dot == 0 ? name : name.substr(0, dot);
}

struct ProblemKeys {
    std::string input, label;  // empty: the usual names
    AnswerFormat format = AnswerFormat::boxed;
};

namespace problems_detail {

// A string, or a number as it is written in the file.
inline bool scalar_text(const Json& value, std::string& out) {
    if (value.is_string())
        out = value.get<std::string>();
    else if (value.is_number())
        out = value.dump();
    else
        return false;
    return true;
}

inline std::string trimmed(const std::string& s) {
    size_t a = s.find_first_not_of(" \t\r\n"), b = s.find_last_not_of(" \t\r\n");
    return a == std::string::npos ? "" : s.substr(a, b - a + 1);
}

// The value under the first of `names` that is there; "a.b" looks into objects.
inline const Json* find(const Json& row, const std::vector<std::string>& names, std::string& found) {
    for (const std::string& name : names) {
        const Json* at = &row;
        for (size_t from = 0, dot; at && from <= name.size(); from = dot + 1) {
            dot = std::min(name.find('.', from), name.size());
            auto it = at->is_object() ? at->find(name.substr(from, dot - from)) : at->end();
            at = at->is_object() && it != at->end() && !it->is_null() ? &*it : nullptr;
        }
        if (at) {
            found = name;
            return at;
        }
    }
    return nullptr;
}

inline Json messages(const Json& list, const std::string& where, const std::string& key) {
    Json out = list;
    auto role = [](const Json& m) { return m.is_object() ? m.value("role", Json()) : Json(); };
    // What the data's own assistant said at the end is the answer, not the question.
    while (!out.empty() && role(out.back()) == "assistant") out.erase(out.size() - 1);
    for (const Json& m : out)
        if (!role(m).is_string() || !m.value("content", Json()).is_string())
            fail(where + ": key " + quoted(key) + ": not a list of messages",
                 "write [{\"role\": \"user\", \"content\": \"...\"}]");
    if (out.empty()) fail(where + ": key " + quoted(key) + ": no user message", "add one");
    return out;
}

inline std::string gold_text(std::string text) {
    size_t mark = text.rfind("####");
    return trimmed(mark == std::string::npos ? text : text.substr(mark + 4));
}

}  // namespace problems_detail

// Errors: a row without question or answer (naming the keys found), with one of a wrong type, or empty; two
// rows with one id; no rows at all. `limit` 0: all rows.
inline std::vector<Problem> read_problems(const std::string& path, const ProblemKeys& keys = {},
                                          int64_t limit = 0) {
    using namespace problems_detail;
    std::vector<Problem> out;
    std::unordered_map<std::string, int64_t> seen;
    JsonLines in(path);
    Json row;
    while ((limit == 0 || int64_t(out.size()) < limit) && in.next(row)) {
        const std::string where = in.where();
        Problem p;
        std::string key, text;
        const Json* at = find(row, {"id"}, key);
        if (!at)
            p.id = set_name(path) + "/" + std::to_string(in.line());
        else if (!scalar_text(*at, p.id) || p.id.empty())
            fail(where + ": key \"id\": neither a string nor a number", "mend or remove it");

        at = find(row,
                  keys.input.empty() ? std::vector<std::string>{"problem", "question", "prompt", "messages"}
                                     : std::vector<std::string>{keys.input},
                  key);
        if (!at)
            fail(where + ": no key " +
                     (keys.input.empty() ? "\"problem\", \"question\", \"prompt\" or \"messages\""
                                         : quoted(keys.input)) +
                     " (found: " + keys_found(row) + ")",
                 "name the question's key with --input-key");
        if (at->is_array())
            p.messages = messages(*at, where, key);
        else if (!at->is_string() || trimmed(at->get<std::string>()).empty())
            fail(where + ": key " + quoted(key) + ": neither a text nor a list of messages",
                 "mend it, or name another key with --input-key");
        else
            p.messages = Json::array({{{"role", "user"}, {"content", *at}}});

        at = find(row,
                  keys.label.empty() ? std::vector<std::string>{"answer", "label", "ground_truth",
                                                                "reward_model.ground_truth", "solution"}
                                     : std::vector<std::string>{keys.label},
                  key);
        if (!at)
            fail(where + ": no key " +
                     (keys.label.empty() ? "\"answer\", \"label\", \"ground_truth\" or \"solution\""
                                         : quoted(keys.label)) +
                     " (found: " + keys_found(row) + ")",
                 "name the answer's key with --label-key");
        for (const Json& gold : at->is_array() ? *at : Json::array({*at})) {
            if (!scalar_text(gold, text) || trimmed(text).empty())
                fail(where + ": key " + quoted(key) + ": " +
                         quoted(gold.dump(-1, ' ', false, Json::error_handler_t::replace)) +
                         " is not an answer",
                     "an answer is a string or a number; several are a list");
            if (key == "solution") {
                verifier::Extraction boxed = verifier::extract(text, verifier::Mode::rl);
                if (boxed.candidates.empty())
                    fail(where + ": key \"solution\": holds no \\boxed{} answer",
                         "add a key \"answer\", or name it with --label-key");
                text = boxed.candidates.front();
            }
            p.gold.push_back(gold_text(text));
        }
        if (p.gold.empty()) fail(where + ": key " + quoted(key) + ": an empty list", "give an answer");

        p.format = keys.format;
        at = find(row, {"answer_format"}, key);
        if (at)
            p.format = answer_format(at->is_string() ? at->get<std::string>() : at->dump(),
                                     where + ": key \"answer_format\"");
        auto [first, fresh] = seen.emplace(p.id, in.line());
        if (!fresh)
            fail(where + ": id " + quoted(p.id) + " was already on line " + std::to_string(first->second),
                 "ids must be unique: samples are filed under them");
        out.push_back(std::move(p));
    }
    if (out.empty()) fail(path + ": holds no problems", "one JSON object a line: {\"problem\", \"answer\"}");
    return out;
}
