// parse.h: the one grammar for LaTeX and plain notation. Tokens in, tree out, or "not read".
//
//   list      element ((, | ; | and | or) element)*
//   element   set (relation set)*                       x = 5, 1 < x <= 3, x \in [0,1]
//   set       ratio ((\cup | \cap | \setminus) ratio)*
//   ratio     sum (: sum)*                              3:2, A:B
//   sum       [sign] product ((+ | - | \pm) product)*   [mod sum]
//   product   factor ((* | / | nothing) factor)* [unit]
//   factor    primary (^ | ! | % | degree | ')*
//
// Readings that a choice had to be made for: 2\frac12 and 7 3/4 are mixed numbers where the fraction is
// proper and all parts are integers; 1/2x is (1/2)x but a/bc is a/(bc); sin 2x y takes 2xy; x(x+1) is a
// product and f(x+1) a call only for f, g and h; a run of up to three letters is a product, a longer one a
// word.
//
// An unread tail fails the whole: never a shorter number. Depth is bounded by max_depth, nodes by max_nodes.
#pragma once
#include "factor.h"

namespace verifier {
namespace detail {

class Parser final : Factors {
  public:
    Parser(std::vector<Token> tokens, Tree& tree) : Factors(std::move(tokens), tree) {}
    void run() {
        int root = list();
        tree_.read = root >= 0 && is(Tok::end) && !tree_.too_large;
        tree_.root = root;
    }

  private:
    // ---- lists, relations, sets

    bool separator(Join& join) {
        bool any = false;
        for (;; at_++) {
            if (is(Tok::conj_or))
                join = Join::conj_or;
            else if (is(Tok::conj_and))
                join = join == Join::comma ? Join::conj_and : join;
            else if (!is(Tok::comma) && !is(Tok::semicolon) && !is(Tok::row))
                return any;
            any = true;
        }
    }
    bool closing() const {
        switch (look().kind) {
            case Tok::end:
            case Tok::close:
            case Tok::bracket_close:
            case Tok::brace_close:
            case Tok::set_close:
            case Tok::angle_close:
            case Tok::end_env:
                return true;
            default:
                return false;
        }
    }
    void skip_alignment() {
        while (!matrix_ && is(Tok::amp)) at_++;
    }
    bool items(std::vector<int>& out, Join& join) override {
        do {
            skip_alignment();
            if (closing()) return !out.empty();
            int e = element();
            if (e < 0) return false;
            out.push_back(e);
            skip_alignment();
        } while (separator(join));
        return true;
    }
    int list() override {
        Deeper deeper(depth_);
        if (too_deep()) return -1;
        std::vector<int> out;
        Join join = Join::comma;
        if (!items(out, join)) return -1;
        return out.size() == 1 ? out[0] : tree_.make(Kind::list, out, uint8_t(join));
    }
    static bool hedge(const std::string& word) {
        for (const char* w : {"approximately", "Approximately", "about", "About", "approx", "roughly",
                              "exactly", "only", "both", "either", "point", "Point"})
            if (word == w) return true;
        return false;
    }
    int element() override {
        while (is(Tok::word) && hedge(look().s) && !is(Tok::end, 1)) at_++;
        while (is(Tok::relation) && (look().id == uint8_t(Rel::eq) || look().id == uint8_t(Rel::approx)))
            at_++;
        std::vector<int> sides{set()};
        std::vector<Rel> signs;
        if (sides[0] < 0) return -1;
        for (;;) {
            skip_alignment();
            bool label = is(Tok::colon) && tree_[sides.back()].kind == Kind::text;  // "Answer: 5"
            if (is(Tok::colon) && look(1).kind == Tok::relation) at_++;             // :=
            if (!is(Tok::relation) && !label) break;
            signs.push_back(label ? Rel::eq : Rel(look().id));
            at_++;
            skip_alignment();
            sides.push_back(set());
            if (sides.back() < 0) return -1;
        }
        if (signs.empty()) return sides[0];
        if (signs.size() > 1 && signs[0] == Rel::eq &&
            tree_[sides[0]].kind == Kind::text)  // "the solution is x != 5"
            signs.erase(signs.begin()), sides.erase(sides.begin());
        int first = int(tree_.relations.size());
        tree_.relations.insert(tree_.relations.end(), signs.begin(), signs.end());
        return tree_.make(Kind::relation, sides, 0, first);
    }
    int set() {
        int left = ratio();
        for (int count = 0; left >= 0 && (is(Tok::cup) || is(Tok::cap) || is(Tok::setminus)); count++) {
            Kind kind = is(Tok::cup) ? Kind::unite : is(Tok::cap) ? Kind::intersect : Kind::minus_set;
            at_++;
            int right = ratio();
            if (right < 0 || count > 60) return -1;
            left = tree_.binary(kind, left, right);
        }
        return left;
    }
    int ratio() {
        if (int t = clock_time(); t >= 0) return t;
        std::vector<int> parts{sum()};
        if (parts[0] < 0) return -1;
        while (is_to() ||
               (is(Tok::colon) && !builder_ && !is(Tok::relation, 1) && tree_[parts[0]].kind != Kind::text)) {
            at_++;
            parts.push_back(is(Tok::dots) ? (at_++, tree_.leaf(Kind::ellipsis)) : sum());
            if (parts.back() < 0) return -1;
        }
        return parts.size() == 1 ? parts[0] : tree_.make(Kind::ratio, parts);
    }
    bool is_to() const {  // 2 to 3
        return is(Tok::word) && look().s == "to" && at_ && tokens_[at_ - 1].kind == Tok::number &&
               is(Tok::number, 1);
    }
    // 3 PM, 3 p.m., but not the product 3pm
    int full_hour() {
        if (!is(Tok::number) || look().s.size() > 2 || look().s.find('.') != std::string::npos) return -1;
        const Token &a = look(1), &b = look(2);
        bool word = a.kind == Tok::word,
             letters = a.kind == Tok::symbol && b.kind == Tok::symbol && b.s.size() == 1;
        bool capital = letters && a.space && b.s == "M";
        if (!word && !(letters && (a.text || b.space || capital))) return -1;
        std::string half = word ? a.s : a.s + b.s;
        for (char& c : half) c = lower(c);
        size_t used = word ? 2 : 3;
        bool ends =
            is(Tok::end, used) || is(Tok::comma, used) || is(Tok::conj_and, used) || is(Tok::conj_or, used);
        if ((half != "am" && half != "pm") || !ends) return -1;
        int hour = std::atoi(look().s.c_str());
        at_ += used;
        return tree_.named(Kind::time, std::to_string(hour) + ":00" + half);
    }
    // 4:30 p.m., 12:05; a ratio such as 3:20 is none of these.
    int clock_time() {
        if (int hour = full_hour(); hour >= 0) return hour;
        if (!is(Tok::number) || !is(Tok::colon, 1) || !is(Tok::number, 2) || is(Tok::colon, 3)) return -1;
        const std::string &h = look().s, &m = look(2).s;
        if (h.size() > 2 || m.size() != 2 || m[0] > '5' || !is_digit(m[1])) return -1;
        std::string half;
        size_t used = 3;
        if (is(Tok::word, 3) &&
            (look(3).s == "am" || look(3).s == "pm" || look(3).s == "AM" || look(3).s == "PM")) {
            half = look(3).s, used = 4;
        } else if (is(Tok::symbol, 3) && is(Tok::symbol, 4)) {
            half = look(3).s + look(4).s, used = 5;
        }
        for (char& c : half) c = lower(c);
        if (used > 3 && half != "am" && half != "pm") return -1;
        if (used == 3 && m[0] != '0') return -1;
        at_ += used;
        return tree_.named(Kind::time, std::to_string(std::atoi(h.c_str())) + ":" + m + half);
    }

    // ---- sums and products

    int sum() override {
        Deeper deeper(depth_);
        if (too_deep()) return -1;
        std::vector<int> terms;
        do {
            bool minus = false;
            int plus_minus = -1;
            for (; is(Tok::plus) || is(Tok::minus) || is(Tok::pm) || is(Tok::mp); at_++) {
                if (is(Tok::minus)) minus = !minus;
                if (is(Tok::pm) || is(Tok::mp)) plus_minus = is(Tok::mp);
            }
            int term = product();
            if (term < 0) return -1;
            if (plus_minus >= 0) term = tree_.unary(Kind::plus_minus, term, uint8_t(plus_minus));
            terms.push_back(minus ? negate(tree_, term) : term);
        } while (is(Tok::plus) || is(Tok::minus) || is(Tok::pm) || is(Tok::mp));
        int value = add(tree_, terms);
        bool in_brackets = is(Tok::open) && is(Tok::mod, 1);
        if (value >= 0 && (is(Tok::mod) || in_brackets)) {
            at_ += 1 + in_brackets;
            int modulus = sum();
            if (modulus < 0 || (in_brackets && !take(Tok::close))) return -1;
            value = tree_.binary(Kind::modulo, value, modulus);
        }
        return value;
    }
    bool unit_begins(bool numeric) const {
        if (is(Tok::word)) return !is_to();
        if (numeric && is(Tok::open) && is(Tok::word, 1)) return true;
        if (numeric && is(Tok::frac) && is(Tok::brace, 1)) {  // \frac{\text{m}}{\text{s}}, \frac{m}{s}
            bool letter = is(Tok::symbol, 2) && unit_letter(look(2).s) && is(Tok::brace_close, 3) &&
                          is(Tok::symbol, 5) && (look(5).s == "s" || look(5).s == "h");
            return is(Tok::word, 2) || (is(Tok::symbol, 2) && look(2).text) || letter;
        }
        bool min_or_sec =
            is(Tok::function) && (look().id == uint8_t(Fn::min) || look().id == uint8_t(Fn::sec));
        if (min_or_sec && numeric)
            return is(Tok::end, 1) || is(Tok::comma, 1) || is(Tok::conj_and, 1) || is(Tok::conj_or, 1) ||
                   is(Tok::close, 1) || is(Tok::brace_close, 1) || is(Tok::relation, 1);
        if (!numeric || !is(Tok::symbol)) return false;
        return look().text || (is(Tok::slash, 1) && unit_letter(look().s) && is(Tok::symbol, 2) &&
                               (look(2).s == "s" || look(2).s == "h"));  // m/s
    }
    // a/bc: the denominator takes the letters that touch it; 1/2x does not.
    int denominator() {
        bool minus = false;
        for (; is(Tok::minus) || is(Tok::plus); at_++) minus ^= is(Tok::minus);
        bool number = is(Tok::number);
        std::vector<int> factors{factor()};
        if (factors[0] < 0) return -1;
        while (!number && (is(Tok::symbol) || is(Tok::constant)) && !look().space && !look().text) {
            factors.push_back(factor());
            if (factors.back() < 0) return -1;
        }
        int value = factors.size() == 1 ? factors[0] : tree_.make(Kind::mul, factors);
        return minus ? tree_.unary(Kind::negate, value) : value;
    }
    int close_product(std::vector<int>& factors) {
        int value = factors[0];
        std::vector<int> plain;
        bool matrices = false;
        for (int f : factors) matrices |= tree_[f].kind == Kind::matrix;
        if (factors.size() == 1) return value;
        if (!matrices) return tree_.make(Kind::mul, factors);
        for (size_t i = 1; i < factors.size() && value >= 0; i++) value = multiply(tree_, value, factors[i]);
        return value;
    }
    int product() override {
        std::vector<int> factors;
        bool numeric = true, bare_number = false;
        int divisions = 0;
        for (bool first = true;; first = false) {
            size_t start = at_;
            bool after_number = bare_number;
            if (first) {
                int f = mixed_number();
                if (f >= 0 && take(Tok::percent)) f = tree_.unary(Kind::percent, f);
                if (f < 0) f = factor();
                if (f < 0) return -1;
                factors.push_back(f);
            } else if (take(Tok::times)) {
                bool minus = false;
                for (; is(Tok::minus) || is(Tok::plus); at_++) minus ^= is(Tok::minus);
                int f = factor();
                if (f < 0) return -1;
                if (!minus && scientific(factors.back(), f)) continue;
                factors.push_back(minus ? negate(tree_, f) : f);
            } else if (is(Tok::slash) || is(Tok::divide)) {
                bool slash = take(Tok::slash);
                if (!slash) at_++;
                int over = close_product(factors), under = slash ? denominator() : factor();
                if (over < 0 || under < 0 || ++divisions > 40) return -1;
                factors.assign(1, tree_.binary(Kind::divide, over, under));
                if (tree_[over].kind == Kind::matrix) return -1;
            } else if (is(Tok::scale)) {
                Number n;
                exact_number(look().s, n);
                at_++;
                factors.push_back(tree_.number(n));
            } else if (unit_begins(numeric)) {
                int value = close_product(factors);
                return value < 0 ? -1 : unit(value);
            } else if (begins_factor(after_number)) {
                bool fraction = after_number && is(Tok::frac);
                int f = factor();
                if (f < 0) return -1;
                Kind mark = tree_[f].kind;  // 33\frac13\% is (33 + 1/3)%
                bool marked = mark == Kind::percent || mark == Kind::degree;
                int part = marked ? tree_.kid(f, 0) : f;
                bool mixed = fraction && tree_[part].kind == Kind::divide &&
                             proper(factors.back(), tree_.kid(part, 0), tree_.kid(part, 1));
                if (mixed) factors.back() = tree_.binary(Kind::add, factors.back(), part);
                if (mixed && marked)
                    factors.back() = tree_.unary(mark, factors.back());
                else if (!mixed)
                    factors.push_back(f);
            } else {
                break;
            }
            bare_number = at_ == start + 1 && tokens_[start].kind == Tok::number;
            for (size_t i = start; i < at_ && numeric; i++) numeric = tokens_[i].kind != Tok::symbol;
            if (factors.size() > 2000) return -1;
        }
        return close_product(factors);
    }
    // 2.5 \times 10^{-3} is the decimal 0.0025 with the same digits.
    bool scientific(int mantissa, int power) {
        if (tree_[mantissa].kind != Kind::number || tree_[power].kind != Kind::power) return false;
        int base = tree_.kid(power, 0), exponent = tree_.kid(power, 1);
        bool negative = tree_[exponent].kind == Kind::negate;
        if (negative) exponent = tree_.kid(exponent, 0);
        if (!tree_.is_integer(base) || !(tree_.number_of(base).value.num == BigInt(10)) ||
            !tree_.is_integer(exponent))
            return false;
        const BigInt& e = tree_.number_of(exponent).value.num;
        if (!e.is_small() || e.small() > 1000 || e.small() < 0) return false;
        Number& n = tree_.numbers[size_t(tree_[mantissa].value)];
        if (!n.digits) return false;
        int64_t scale = negative ? -e.small() : e.small();
        Budget budget{1 << 20};
        Rational ten;
        if (!Rational::power(Rational{10, 1}, scale, ten, budget) ||
            !Rational::multiply(n.value, ten, n.value, budget))
            return false;
        n.after_point = int(std::max<int64_t>(0, n.after_point - scale));
        return true;
    }
    // 7 3/4; -1 where the tokens are no such number (nothing is consumed).
    int mixed_number() {
        if (!is(Tok::number) || !is(Tok::number, 1) || !look(1).space || !is(Tok::slash, 2) ||
            !is(Tok::number, 3))
            return -1;
        Number whole, a, b;
        if (!exact_number(look().s, whole) || !exact_number(look(1).s, a) || !exact_number(look(3).s, b))
            return -1;
        int first = tree_.number(whole), over = tree_.number(a), under = tree_.number(b);
        if (!proper(first, over, under)) return -1;
        at_ += 4;
        return tree_.binary(Kind::add, first, tree_.binary(Kind::divide, over, under));
    }
    // Whether whole and over/under make a mixed number.
    bool proper(int whole, int over, int under) const {
        for (int n : {whole, over, under})
            if (!tree_.is_integer(n) || tree_.number_of(n).digits) return false;
        return BigInt::compare(tree_.number_of(over).value.num, tree_.number_of(under).value.num) < 0;
    }
    // "cm", "square inches", "km/h", "cm^2", "(in feet)": to the end of the element or the next sign.
    int unit(int value) {
        std::string name;
        bool brackets = false;
        int fraction = 0;  // 1, 2: in the upper, lower part of \frac
        for (size_t start = at_;; at_++) {
            if (at_ - start > 24) return -1;
            bool arithmetic =
                is(Tok::word) &&
                (look().s == "than" ||
                 (at_ == start && (look().s == "squared" || look().s == "cubed" || look().s == "factorial")));
            if (arithmetic) return -1;
            if (is(Tok::word) || is(Tok::function) || is(Tok::symbol)) {
                std::string_view known = look().s;
                if (const char* k = known_unit(look().s)) known = k;
                if (is(Tok::function)) known = look().id == uint8_t(Fn::min) ? "min" : "s";
                if (!name.empty() && !known.empty()) name += ' ';
                name += known;
            } else if (is(Tok::power)) {
                bool braces = is(Tok::brace, 1), minus = is(Tok::minus, 1 + braces);
                if (!is(Tok::number, 1 + braces + minus)) return -1;
                at_ += 1 + braces + minus;
                name += (minus ? "^-" : "^") + look().s;
                at_ += braces;
            } else if (is(Tok::frac) && is(Tok::brace, 1) && !fraction) {
                fraction = 1, at_++;
            } else if (is(Tok::brace_close) && fraction == 1 && is(Tok::brace, 1)) {
                fraction = 2, at_++, name += " per";
            } else if (is(Tok::brace_close) && fraction == 2) {
                fraction = 0;
            } else if (is(Tok::slash) || is(Tok::times)) {
                name += " per";
            } else if (is(Tok::open) && !brackets) {
                brackets = true;
            } else if (is(Tok::close) && brackets) {
                brackets = false;
            } else if (!(is(Tok::minus) && is(Tok::word, 1) && !look().space)) {
                break;
            }
        }
        switch (look().kind) {
            case Tok::end:
            case Tok::comma:
            case Tok::semicolon:
            case Tok::conj_and:
            case Tok::conj_or:
            case Tok::close:
            case Tok::bracket_close:
            case Tok::brace_close:
            case Tok::set_close:
            case Tok::relation:
            case Tok::plus:
            case Tok::minus:
            case Tok::amp:
            case Tok::row:
            case Tok::end_env:
                break;
            default:
                return -1;
        }
        if (brackets || fraction) return -1;
        int n = tree_.unary(Kind::unit, value);
        tree_.names.push_back(name);
        tree_.nodes[size_t(n)].value = int(tree_.names.size()) - 1;
        return n;
    }
};

}  // namespace detail

// Reads an answer. tree.read tells whether it could; nothing is thrown.
inline void parse(std::vector<Token> tokens, Tree& tree) {
    detail::Parser(std::move(tokens), tree).run();
}

}  // namespace verifier
