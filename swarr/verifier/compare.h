// compare.h: the verdict on an answer. (First stage: clean-up and exact rational comparison.)
#pragma once
#include <cstdint>
#include <string>
#include <vector>

#include "extract.h"

namespace verifier {

enum class Verdict { equal, different, unparsed };

struct Grade {
    Verdict verdict = Verdict::unparsed;
    std::string answer;     // as extracted
    std::string canonical;  // equal answers map to the same text as far as possible (for majority votes)
    std::string why;
};

struct Options {};

namespace detail {

inline std::string clean(const std::string& s) {
    std::string out;
    for (size_t i = 0; i < s.size(); i++) {
        if (is_space(s[i]) || s[i] == '$') continue;
        bool skipped = false;
        for (const char* drop : {"\\left", "\\right", "\\!", "\\,", "\\;", "\\%", "^\\circ", "^{\\circ}"})
            if (!skipped && s.compare(i, std::strlen(drop), drop) == 0) i += std::strlen(drop) - 1, skipped = true;
        if (skipped) continue;
        if (s.compare(i, 6, "\\dfrac") == 0 || s.compare(i, 6, "\\tfrac") == 0) out += "\\", i++;
        else if (s[i] == ',' && i && is_digit(s[i - 1]) && i + 1 < s.size() && is_digit(s[i + 1])) continue;
        else out += s[i];
    }
    return out;
}

inline bool rational(std::string s, int64_t& num, int64_t& den) {
    bool negative = !s.empty() && s[0] == '-';
    if (negative) s.erase(0, 1);
    if (s.compare(0, 6, "\\frac{") == 0 && s.back() == '}') {
        size_t middle = s.find("}{");
        if (middle == std::string::npos) return false;
        s = s.substr(6, middle - 6) + "/" + s.substr(middle + 2, s.size() - middle - 3);
    }
    num = 0, den = 1;
    size_t i = 0, digits = 0;
    for (; i < s.size() && is_digit(s[i]) && digits < 17; i++, digits++) num = num * 10 + (s[i] - '0');
    if (!digits) return false;
    if (i < s.size() && s[i] == '.')
        for (i++; i < s.size() && is_digit(s[i]) && digits < 17; i++, digits++) num = num * 10 + (s[i] - '0'), den *= 10;
    else if (i < s.size() && s[i] == '/')
        for (i++, den = 0; i < s.size() && is_digit(s[i]) && den < 100000000; i++) den = den * 10 + (s[i] - '0');
    if (i != s.size() || !den) return false;
    if (negative) num = -num;
    int64_t a = num < 0 ? -num : num, b = den;
    while (b) a %= b, std::swap(a, b);
    num /= a, den /= a;
    return true;
}

inline std::string canonical(const std::string& s) {
    std::string text = clean(s);
    int64_t num, den;
    if (!rational(text, num, den)) return text;
    return den == 1 ? std::to_string(num) : std::to_string(num) + "/" + std::to_string(den);
}

}  // namespace detail

inline Verdict compare(const std::string& gold, const std::string& pred, Options = {}) {
    return detail::canonical(gold) == detail::canonical(pred) ? Verdict::equal : Verdict::different;
}

inline Grade grade(const std::string& completion, const std::vector<std::string>& golds, Mode mode) {
    Grade out;
    Extraction found = extract(completion, mode);
    out.why = found.why;
    if (found.candidates.empty()) return out;
    out.answer = found.candidates.back();
    out.canonical = detail::canonical(out.answer);
    out.verdict = Verdict::different;
    for (const std::string& gold : golds)
        if (compare(gold, out.answer) == Verdict::equal) out.verdict = Verdict::equal;
    return out;
}

}  // namespace verifier
