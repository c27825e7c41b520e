// number_words.h: numbers in words become numbers, in the tokens of an answer.
//
//   two thousand three hundred forty-five -> 2345      negative seven -> -7      two thirds -> (2/3)
#pragma once
#include <algorithm>
#include <string>
#include <vector>

#include "words.h"

namespace verifier {
namespace detail {

// Reads one number in words. The tokens are those of plain_words(): Tok::number with an id, Tok::scale.
class NumberWords {
  public:
    explicit NumberWords(const std::vector<Token>& tokens) : in_(tokens) {}

    // Moves `at` behind the number that starts there; false where none does.
    bool read(size_t& at, int64_t& value) const {
        if (!word(at)) return false;
        int64_t last = INT64_MAX, part;
        value = 0;
        for (size_t next = at; group(next, part);) {
            int64_t s = scale(next);
            if (s >= last) break;  // "one thousand and two thousand" are two numbers
            value += part * (s ? s : 1), at = next + (s > 0);
            if (!s) break;
            last = s, next = at + is_and(at);
        }
        return true;
    }

  private:
    const std::vector<Token>& in_;

    bool is(size_t i, Tok kind) const { return i < in_.size() && in_[i].kind == kind; }
    bool is_and(size_t i) const { return is(i, Tok::conj_and); }
    bool word(size_t i) const { return is(i, Tok::number) && in_[i].id; }
    int64_t scale(size_t i) const { return is(i, Tok::scale) ? std::stoll(in_[i].s) : 0; }
    // One to ninety-nine.
    bool small(size_t& i, int64_t& value) const {
        if (!word(i)) return false;
        bool tens = in_[i].id == word_tens;
        value = std::stoll(in_[i++].s);
        size_t ones = i + is(i, Tok::minus);
        if (tens && word(ones) && in_[ones].s.size() == 1 && in_[ones].s != "0")
            value += std::stoll(in_[ones].s), i = ones + 1;
        return true;
    }
    // "fifteen", "three hundred and forty-five", up to a thousand, million, ...
    bool group(size_t& i, int64_t& value) const {
        if (!small(i, value)) return false;
        if (scale(i) != 100) return true;
        value *= 100, i++;
        size_t next = i + is_and(i);
        int64_t rest;
        if (small(next, rest) && scale(next) != 100) value += rest, i = next;
        return true;
    }
};

// "half", "thirds": 2, 3; otherwise 0.
inline int64_t denominator_word(const Token& t) {
    static constexpr std::string_view names[][3] = {
        {"half", "halves", "half"},      {"third", "thirds", "third"}, {"quarter", "quarters", "fourth"},
        {"fifth", "fifths", "fifth"},    {"sixth", "sixths", "sixth"}, {"seventh", "sevenths", "seventh"},
        {"eighth", "eighths", "eighth"}, {"ninth", "ninths", "ninth"}, {"tenth", "tenths", "tenth"}};
    if (t.kind != Tok::word) return 0;
    std::string small = t.s;
    for (char& c : small) c = c >= 'A' && c <= 'Z' ? char(c + 32) : c;
    if (small == "fourths") return 4;
    for (int64_t n = 0; n < 9; n++)
        for (std::string_view name : names[n])
            if (small == name) return n + 2;
    return 0;
}

inline void fold_number_words(std::vector<Token>& tokens) {
    auto wordy = [](const Token& t) {
        return (t.kind == Tok::number && t.id) ||
               (t.kind == Tok::word && (t.s == "negative" || t.s == "minus" || t.s == "half"));
    };
    if (std::none_of(tokens.begin(), tokens.end(), wordy)) return;
    std::vector<Token> out;
    NumberWords words(tokens);
    auto push = [&](const Token& like, Tok kind, std::string s) {
        Token t = like;
        t.kind = kind, t.id = 0, t.s = std::move(s);
        out.push_back(std::move(t));
    };
    for (size_t i = 0; i < tokens.size();) {
        const Token& first = tokens[i];
        bool sign = first.kind == Tok::word && (first.s == "negative" || first.s == "minus") &&
                    i + 1 < tokens.size() && tokens[i + 1].kind == Tok::number;
        if (sign) {
            push(first, Tok::minus, ""), i++;
            continue;
        }
        int64_t value = 1, under = 0;
        bool number = words.read(i, value);
        size_t next = i + (number && i < tokens.size() && tokens[i].kind == Tok::minus);
        if (next < tokens.size()) under = denominator_word(tokens[next]);
        bool half = !number && under == 2 && (!i || tokens[i - 1].kind != Tok::word);
        if (under && (number || half)) {
            push(first, Tok::open, ""), push(first, Tok::number, std::to_string(value));
            push(first, Tok::slash, ""), push(first, Tok::number, std::to_string(under));
            push(first, Tok::close, ""), i = next + 1;
        } else if (number) {
            push(first, Tok::number, std::to_string(value));
        } else {
            out.push_back(first), i++;
        }
    }
    tokens = std::move(out);
}

}  // namespace detail
}  // namespace verifier
