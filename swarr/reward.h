// reward.h: is this answer right? One function for the reward of reinforcement learning and for evaluation.
//
//   boxed   the last \boxed{} after the thinking, compared with the gold by the verifier; nothing else counts
//   ledger  the miniature's rule: the text ends with ":N", N the gold number
//
// A row of the data may say which rule holds ("answer_format"); else the program's --answer-format does.
// For boxed answers, evaluation also reports the verifier's lenient reading, apart.
#pragma once
#include <string>
#include <vector>

#include "verifier/compare.h"

enum class AnswerFormat { boxed, ledger };

inline const char* answer_format_name(AnswerFormat f) {
    return f == AnswerFormat::boxed ? "boxed" : "ledger";
}
inline AnswerFormat answer_format(const std::string& name, const std::string& where) {
    if (name == "boxed") return AnswerFormat::boxed;
    if (name == "ledger") return AnswerFormat::ledger;
    fail(where + ": no answer format is called " + quoted(name), "known: boxed, ledger");
}

enum class Outcome { right, wrong, unparsed };

inline const char* outcome_name(Outcome o) {
    const char* names[] = {"right", "wrong", "unparsed"};
    return names[int(o)];
}

struct Judgement {
    Outcome outcome = Outcome::unparsed;
    std::string answer;  // as found in the text
    std::string vote;    // equal answers have equal votes, as far as that can be told; empty: no answer
};

// The digits after the last ':' if the text (blanks aside) ends with them; else nothing.
inline std::string ledger_answer(const std::string& text) {
    size_t end = text.find_last_not_of(" \n\r\t");
    if (end == std::string::npos) return "";
    size_t last = text.find_last_not_of("0123456789", end);
    if (last == std::string::npos || last == end || text[last] != ':') return "";
    size_t first = text.find_first_not_of('0', last + 1);
    return first == std::string::npos || first > end ? "0" : text.substr(first, end - first + 1);
}

inline Judgement judge(AnswerFormat format, const std::string& text, const std::vector<std::string>& gold,
                       verifier::Mode mode = verifier::Mode::rl, bool round_decimals = true) {
    Judgement out;
    if (format == AnswerFormat::ledger) {
        out.answer = out.vote = ledger_answer(text);
        if (out.answer.empty()) return out;
        out.outcome = Outcome::wrong;
        for (const std::string& g : gold)
            if (g == out.answer) out.outcome = Outcome::right;
        return out;
    }
    verifier::Grade grade = verifier::grade(text, gold, mode, round_decimals);
    out.answer = grade.answer;
    out.vote = grade.canonical;
    out.outcome = grade.verdict == verifier::Verdict::equal       ? Outcome::right
                  : grade.verdict == verifier::Verdict::different ? Outcome::wrong
                                                                  : Outcome::unparsed;
    return out;
}

// 1 for a right answer, 0 otherwise: the reward.
inline double reward(const Judgement& j) {
    return j.outcome == Outcome::right ? 1 : 0;
}
