// build.h: makes the nodes the parser asks for: numbers from their digits, sums, products and determinants of
// matrices (worked out entry by entry), units; and tells words from products of letters.
#pragma once
#include <algorithm>

#include "expr.h"

namespace verifier {
namespace detail {

// Digits as the lexer wrote them: 12, 12.50, 0.1r6 (repeating), 4.5e-33. False: no bounded exact value.
inline bool exact_number(const std::string& s, Number& out) {
    Budget budget{1 << 20};
    std::string digits, repeat;
    int point = -1, exponent = 0;
    bool repeats = false;
    for (size_t i = 0; i < s.size(); i++) {
        if (s[i] == '.') {
            point = 0;
        } else if (s[i] == 'r') {
            repeats = true;
        } else if (s[i] == 'e') {
            if (s.size() - i > 6) return false;
            exponent = std::atoi(s.c_str() + i + 1);
            break;
        } else if (repeats) {
            repeat += s[i];
        } else {
            digits += s[i];
            if (point >= 0) point++;
        }
    }
    bool decimal = point >= 0 || exponent < 0;
    if (point < 0) point = 0;
    int scale = exponent - point;
    if (scale > 1200 || scale < -1200 || digits.size() + repeat.size() > 1200) return false;
    BigInt value;
    Rational ten{10, 1}, power;
    if (!BigInt::from_digits(digits, value) || !Rational::power(ten, scale, power, budget)) return false;
    if (!Rational::multiply(Rational{value, 1}, power, out.value, budget)) return false;
    if (repeats) {  // r repeating digits after p others are worth digits / ((10^r - 1) 10^p)
        Rational nines, tail, shifted;
        BigInt again;
        if (!BigInt::from_digits(repeat, again) ||
            !Rational::power(ten, int64_t(repeat.size()), nines, budget))
            return false;
        if (!Rational::add(nines, Rational{-1, 1}, nines, budget) ||
            !Rational::divide(Rational{again, 1}, nines, tail, budget))
            return false;
        if (!Rational::multiply(tail, power, shifted, budget) ||
            !Rational::add(out.value, shifted, out.value, budget))
            return false;
    } else if (decimal) {
        size_t lead = digits.find_first_not_of('0');
        out.digits = lead == std::string::npos ? 1 : int(digits.size() - lead);
        out.after_point = std::max(0, -scale);
    }
    return true;
}

struct UnitName {
    const char* word;
    const char* unit;
};
// Units with a common short form; "unit" is what two spellings share. Other words are units too, but only
// these may contradict each other, and only these are read as units in plain text of two or three letters.
inline const char* known_unit(std::string_view word) {
    static constexpr UnitName table[] = {{"cm", "cm"},
                                         {"centimeter", "cm"},
                                         {"centimeters", "cm"},
                                         {"centimetre", "cm"},
                                         {"centimetres", "cm"},
                                         {"mm", "mm"},
                                         {"millimeter", "mm"},
                                         {"millimeters", "mm"},
                                         {"km", "km"},
                                         {"kilometer", "km"},
                                         {"kilometers", "km"},
                                         {"meter", "m"},
                                         {"meters", "m"},
                                         {"metre", "m"},
                                         {"metres", "m"},
                                         {"ft", "ft"},
                                         {"foot", "ft"},
                                         {"feet", "ft"},
                                         {"in", "in"},
                                         {"inch", "in"},
                                         {"inches", "in"},
                                         {"yd", "yd"},
                                         {"yard", "yd"},
                                         {"yards", "yd"},
                                         {"mi", "mi"},
                                         {"mile", "mi"},
                                         {"miles", "mi"},
                                         {"kg", "kg"},
                                         {"kilogram", "kg"},
                                         {"kilograms", "kg"},
                                         {"mg", "mg"},
                                         {"gram", "g"},
                                         {"grams", "g"},
                                         {"lb", "lb"},
                                         {"lbs", "lb"},
                                         {"pound", "lb"},
                                         {"pounds", "lb"},
                                         {"oz", "oz"},
                                         {"ounce", "oz"},
                                         {"ounces", "oz"},
                                         {"ml", "ml"},
                                         {"mL", "ml"},
                                         {"liter", "l"},
                                         {"liters", "l"},
                                         {"gal", "gal"},
                                         {"gallon", "gal"},
                                         {"gallons", "gal"},
                                         {"sec", "s"},
                                         {"secs", "s"},
                                         {"second", "s"},
                                         {"seconds", "s"},
                                         {"min", "min"},
                                         {"mins", "min"},
                                         {"minute", "min"},
                                         {"minutes", "min"},
                                         {"hr", "h"},
                                         {"hrs", "h"},
                                         {"hour", "h"},
                                         {"hours", "h"},
                                         {"day", "day"},
                                         {"days", "day"},
                                         {"week", "week"},
                                         {"weeks", "week"},
                                         {"month", "month"},
                                         {"months", "month"},
                                         {"year", "year"},
                                         {"years", "year"},
                                         {"yr", "year"},
                                         {"yrs", "year"},
                                         {"mph", "mi h"},
                                         {"kph", "km h"},
                                         {"cent", "cent"},
                                         {"cents", "cent"},
                                         {"usd", "dollar"},
                                         {"USD", "dollar"},
                                         {"dollar", "dollar"},
                                         {"dollars", "dollar"},
                                         {"sq", ""},
                                         {"cu", ""},
                                         {"Hz", "Hz"},
                                         {"kHz", "kHz"},
                                         {"MHz", "MHz"},
                                         {"kJ", "kJ"},
                                         {"eV", "eV"},
                                         {"keV", "keV"},
                                         {"MeV", "MeV"},
                                         {"Pa", "Pa"},
                                         {"kPa", "kPa"},
                                         {"rad", "rad"},
                                         {"nm", "nm"},
                                         {"pts", ""},
                                         {"m", "m"},
                                         {"s", "s"},
                                         {"g", "g"},
                                         {"h", "h"},
                                         {"l", "l"},
                                         {"L", "l"},
                                         {"C", "C"},
                                         {"F", "F"},
                                         {"am", ""},
                                         {"pm", ""}};
    for (const UnitName& u : table)
        if (word == u.word) return u.unit;
    return nullptr;
}

// Letters that are a unit rather than a variable where the gold has no symbol at all: "10 m", "1,000.99m^2".
inline bool unit_letter(std::string_view s) {
    return s.size() == 1 && std::string_view("mgsNJWVALhKCF").find(s[0]) != std::string_view::npos;
}

// a * b, with matrices multiplied out. -1: the shapes do not fit.
inline int multiply(Tree& t, int a, int b) {
    bool am = t[a].kind == Kind::matrix, bm = t[b].kind == Kind::matrix;
    if (!am && !bm) return t.binary(Kind::mul, a, b);
    std::vector<int> cells;
    if (am && bm) {
        int inner = t[a].op, columns = t[b].op;
        if (!inner || !columns || t[b].count != inner * columns) return -1;
        int rows = t[a].count / inner;
        if (rows * columns * inner > 512) return -1;
        for (int r = 0; r < rows; r++)
            for (int c = 0; c < columns; c++) {
                std::vector<int> terms;
                for (int k = 0; k < inner; k++)
                    terms.push_back(t.binary(Kind::mul, t.kid(a, r * inner + k), t.kid(b, k * columns + c)));
                cells.push_back(t.make(Kind::add, terms));
            }
        return t.make(Kind::matrix, cells, uint8_t(columns));
    }
    int matrix = am ? a : b, scalar = am ? b : a;
    for (int k = 0; k < t[matrix].count; k++) cells.push_back(t.binary(Kind::mul, scalar, t.kid(matrix, k)));
    return t.make(Kind::matrix, cells, t[matrix].op);
}
inline int add(Tree& t, const std::vector<int>& terms) {
    if (terms.size() == 1) return terms[0];
    size_t matrices = 0;
    for (int n : terms) matrices += t[n].kind == Kind::matrix;
    if (!matrices) return t.make(Kind::add, terms);
    for (int n : terms)
        if (t[n].kind != Kind::matrix || t[n].op != t[terms[0]].op || t[n].count != t[terms[0]].count)
            return -1;
    std::vector<int> cells;
    for (int k = 0; k < t[terms[0]].count; k++) {
        std::vector<int> column;
        for (int n : terms) column.push_back(t.kid(n, k));
        cells.push_back(t.make(Kind::add, column));
    }
    return t.make(Kind::matrix, cells, t[terms[0]].op);
}
inline int negate(Tree& t, int a) {
    if (t[a].kind != Kind::matrix) return t.unary(Kind::negate, a);
    std::vector<int> cells;
    for (int k = 0; k < t[a].count; k++) cells.push_back(t.unary(Kind::negate, t.kid(a, k)));
    return t.make(Kind::matrix, cells, t[a].op);
}
// The determinant as a sum over permutations, up to 4 by 4. -1: not square, or larger.
inline int determinant(Tree& t, int matrix) {
    int n = t[matrix].op;
    if (n < 1 || n > 4 || t[matrix].count != n * n) return -1;
    std::vector<int> order(size_t(n), 0), terms;
    for (int i = 0; i < n; i++) order[size_t(i)] = i;
    do {
        bool odd = false;
        std::vector<int> factors;
        for (int i = 0; i < n; i++) {
            factors.push_back(t.kid(matrix, i * n + order[size_t(i)]));
            for (int j = 0; j < i; j++) odd ^= order[size_t(j)] > order[size_t(i)];
        }
        int product = t.make(Kind::mul, factors);
        terms.push_back(odd ? t.unary(Kind::negate, product) : product);
    } while (std::next_permutation(order.begin(), order.end()));
    return t.make(Kind::add, terms);
}

// Words of up to three letters (and "abcd") that are no unit after a number are products of letters, unless they
// are English, stand among longer words, or alone as a name ("Bob").
inline void split_words(std::vector<Token>& in, std::vector<Token>& out) {
    auto kind = [&](size_t i) { return i < in.size() ? in[i].kind : Tok::end; };
    auto separates = [](Tok k) {
        return k == Tok::end || k == Tok::comma || k == Tok::semicolon || k == Tok::conj_and ||
               k == Tok::conj_or || k == Tok::relation || k == Tok::colon;
    };
    auto english = [](std::string_view s) {
        for (std::string_view w : {"the", "for", "but", "yes", "Yes", "any", "all", "was", "ans", "Ans"})
            if (s == w) return true;
        return false;
    };
    std::vector<bool> long_word(in.size() + 3);
    for (size_t i = 0; i < in.size(); i++) long_word[i] = in[i].kind == Tok::word && in[i].s.size() > 3;
    for (size_t i = 0; i < in.size(); i++) {
        Token& t = in[i];
        bool split = t.kind == Tok::word && !t.text;
        if (split) {
            const std::string& s = t.s;
            bool ascending = true;
            for (size_t k = 1; k < s.size(); k++) ascending &= s[k - 1] < s[k];
            Tok before = i ? kind(i - 1) : Tok::end, after = kind(i + 1);
            bool neighbour = before == Tok::word || after == Tok::word ||
                             (separates(before) && i > 1 && long_word[i - 2]) ||
                             (separates(after) && long_word[i + 2]) ||
                             (s == "to" && before == Tok::number && after == Tok::number);
            bool name = s.size() == 3 && s[0] <= 'Z' && std::strchr("aeiou", s[1]) && s[2] >= 'a' &&
                        separates(before) && separates(after);
            bool value_before = before == Tok::number || before == Tok::brace_close || before == Tok::close ||
                                before == Tok::constant;
            split = (s.size() <= 3 || ascending) && !neighbour && !name && !english(s) &&
                    !(value_before && known_unit(s));
        }
        if (!split) {
            out.push_back(std::move(t));
            continue;
        }
        for (size_t k = 0; k < t.s.size(); k++) {
            Token letter = t;
            letter.space = t.space && k == 0;
            letter.s = t.s.substr(k, 1);
            char c = letter.s[0];
            letter.kind = c == 'e' || c == 'i' ? Tok::constant : Tok::symbol;
            letter.id = uint8_t(c == 'e' ? Const::e : Const::i);
            out.push_back(letter);
        }
    }
}

}  // namespace detail
}  // namespace verifier
