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
// Readings that a choice had to be made for: 2\frac12 and 7 3/4 are mixed numbers where the fraction is proper and
// all parts are integers; 1/2x is (1/2)x but a/bc is a/(bc); sin 2x y takes 2xy; x(x+1) is a product and f(x+1) a
// call only for f, g and h; a run of up to three letters is a product, a longer one a word.
//
// An unread tail fails the whole: never a shorter number. Depth is bounded by max_depth, nodes by max_nodes.
#pragma once
#include "build.h"

namespace verifier {
namespace detail {

class Parser {
  public:
    Parser(std::vector<Token> tokens, Tree& tree) : tree_(tree) {
        split_words(tokens);
        tokens_.emplace_back();  // Tok::end
    }
    void run() {
        int root = list();
        tree_.read = root >= 0 && is(Tok::end);
        tree_.root = root;
    }

  private:
    std::vector<Token> tokens_;
    Tree& tree_;
    size_t at_ = 0;
    int depth_ = 0, bars_ = 0;
    bool matrix_ = false;   // between matrix cells, where & separates; elsewhere it aligns
    bool builder_ = false;  // inside \{ | \}: a bar or colon ends the expression

    const Token& look(size_t k = 0) const { return tokens_[std::min(at_ + k, tokens_.size() - 1)]; }
    bool is(Tok kind, size_t k = 0) const { return look(k).kind == kind; }
    bool take(Tok kind) {
        if (!is(kind)) return false;
        at_++;
        return true;
    }
    struct Deeper {
        int& depth;
        explicit Deeper(int& d) : depth(++d) {}
        ~Deeper() { depth--; }
    };
    bool too_deep() const { return depth_ > max_depth || tree_.nodes.size() > max_nodes; }

    // Words of up to three letters (and "abcd") that are no unit after a number are products of letters.
    void split_words(std::vector<Token>& in) {
        for (size_t i = 0; i < in.size(); i++) {
            Token& t = in[i];
            bool split = t.kind == Tok::word && !t.text;
            if (split) {
                bool ascending = true;
                for (size_t k = 1; k < t.s.size(); k++) ascending &= t.s[k - 1] < t.s[k];
                bool neighbour = (i && in[i - 1].kind == Tok::word) || (i + 1 < in.size() && in[i + 1].kind == Tok::word);
                bool value_before = i && (in[i - 1].kind == Tok::number || in[i - 1].kind == Tok::brace_close ||
                                          in[i - 1].kind == Tok::close || in[i - 1].kind == Tok::constant);
                split = (t.s.size() <= 3 || ascending) && !neighbour && !(value_before && known_unit(t.s));
            }
            if (!split) {
                tokens_.push_back(std::move(t));
                continue;
            }
            for (size_t k = 0; k < t.s.size(); k++) {
                Token letter = t;
                letter.space = t.space && k == 0;
                letter.s = t.s.substr(k, 1);
                char c = letter.s[0];
                letter.kind = c == 'e' || c == 'i' ? Tok::constant : Tok::symbol;
                letter.id = uint8_t(c == 'e' ? Const::e : Const::i);
                tokens_.push_back(letter);
            }
        }
    }

    // ---- lists, relations, sets ------------------------------------------------------------------------------

    bool separator(Join& join) {
        bool any = false;
        for (;; at_++) {
            if (is(Tok::conj_or)) join = Join::conj_or;
            else if (is(Tok::conj_and)) join = join == Join::comma ? Join::conj_and : join;
            else if (!is(Tok::comma) && !is(Tok::semicolon) && !is(Tok::row)) return any;
            any = true;
        }
    }
    bool closing() const {
        switch (look().kind) {
            case Tok::end: case Tok::close: case Tok::bracket_close: case Tok::brace_close: case Tok::set_close:
            case Tok::angle_close: case Tok::end_env: return true;
            default: return false;
        }
    }
    void skip_alignment() {
        while (!matrix_ && is(Tok::amp)) at_++;
    }
    bool items(std::vector<int>& out, Join& join) {
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
    int list() {
        Deeper deeper(depth_);
        if (too_deep()) return -1;
        std::vector<int> out;
        Join join = Join::comma;
        if (!items(out, join)) return -1;
        return out.size() == 1 ? out[0] : tree_.make(Kind::list, out, uint8_t(join));
    }
    int element() {
        while (is(Tok::relation) && (look().id == uint8_t(Rel::eq) || look().id == uint8_t(Rel::approx))) at_++;
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
        if (signs.size() > 1 && signs[0] == Rel::eq && tree_[sides[0]].kind == Kind::text)  // "the solution is x != 5"
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
        while (is(Tok::colon) && !builder_ && !is(Tok::relation, 1) && tree_[parts[0]].kind != Kind::text) {
            at_++;
            parts.push_back(is(Tok::dots) ? (at_++, tree_.leaf(Kind::ellipsis)) : sum());
            if (parts.back() < 0) return -1;
        }
        return parts.size() == 1 ? parts[0] : tree_.make(Kind::ratio, parts);
    }
    // 4:30 p.m., 12:05; a ratio such as 3:20 is none of these.
    int clock_time() {
        if (!is(Tok::number) || !is(Tok::colon, 1) || !is(Tok::number, 2) || is(Tok::colon, 3)) return -1;
        const std::string &h = look().s, &m = look(2).s;
        if (h.size() > 2 || m.size() != 2 || m[0] > '5' || !is_digit(m[1])) return -1;
        std::string half;
        size_t used = 3;
        if (is(Tok::word, 3) && (look(3).s == "am" || look(3).s == "pm" || look(3).s == "AM" || look(3).s == "PM")) {
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

    // ---- sums and products -----------------------------------------------------------------------------------

    int sum() {
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

    // Whether the next token begins a factor that stands beside the last one.
    bool begins_factor(bool after_number) const {
        switch (look().kind) {
            case Tok::number: return !after_number;
            case Tok::symbol: case Tok::constant: case Tok::accent: case Tok::big: case Tok::begin_env: case Tok::open:
            case Tok::brace: case Tok::bar_open: case Tok::floor_open: case Tok::ceil_open: case Tok::frac: case Tok::sqrt:
            case Tok::binom: case Tok::bracket: return !(is(Tok::open) && is(Tok::mod, 1));
            case Tok::function: return true;
            case Tok::bar: return !bars_ && !builder_;
            default: return false;
        }
    }
    bool unit_begins(bool numeric) const {
        if (is(Tok::word) || (numeric && is(Tok::open) && is(Tok::word, 1))) return true;
        bool min_or_sec = is(Tok::function) && (look().id == uint8_t(Fn::min) || look().id == uint8_t(Fn::sec));
        if (min_or_sec && numeric) return !is(Tok::open, 1) && !is(Tok::brace, 1) && !is(Tok::set_open, 1) && !is(Tok::symbol, 1) && !is(Tok::power, 1);
        if (!numeric || !is(Tok::symbol)) return false;
        return look().text || (is(Tok::slash, 1) && unit_letter(look().s) && is(Tok::symbol, 2) && (look(2).s == "s" || look(2).s == "h"));  // m/s
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
    int product() {
        std::vector<int> factors;
        bool numeric = true, bare_number = false;
        int divisions = 0;
        for (bool first = true;; first = false) {
            size_t start = at_;
            bool after_number = bare_number;
            if (first) {
                int f = mixed_number();
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
                bool mixed = fraction && tree_[f].kind == Kind::divide && proper(factors.back(), tree_.kid(f, 0), tree_.kid(f, 1));
                if (mixed) factors.back() = tree_.binary(Kind::add, factors.back(), f);
                else factors.push_back(f);
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
        if (!tree_.is_integer(base) || !(tree_.number_of(base).value.num == BigInt(10)) || !tree_.is_integer(exponent)) return false;
        const BigInt& e = tree_.number_of(exponent).value.num;
        if (!e.is_small() || e.small() > 1000 || e.small() < 0) return false;
        Number& n = tree_.numbers[size_t(tree_[mantissa].value)];
        if (!n.digits) return false;
        int64_t scale = negative ? -e.small() : e.small();
        Budget budget{1 << 20};
        Rational ten;
        if (!Rational::power(Rational{10, 1}, scale, ten, budget) || !Rational::multiply(n.value, ten, n.value, budget)) return false;
        n.after_point = int(std::max<int64_t>(0, n.after_point - scale));
        return true;
    }
    // 7 3/4; -1 where the tokens are no such number (nothing is consumed).
    int mixed_number() {
        if (!is(Tok::number) || !is(Tok::number, 1) || !look(1).space || !is(Tok::slash, 2) || !is(Tok::number, 3)) return -1;
        Number whole, a, b;
        if (!exact_number(look().s, whole) || !exact_number(look(1).s, a) || !exact_number(look(3).s, b)) return -1;
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
        for (size_t start = at_;; at_++) {
            if (at_ - start > 24) return -1;
            if (is(Tok::word) || is(Tok::function) || is(Tok::symbol)) {
                std::string_view known = look().s;
                if (const char* k = known_unit(look().s)) known = k;
                if (!name.empty() && !known.empty()) name += ' ';
                name += known;
                if (is(Tok::function)) name += look().id == uint8_t(Fn::min) ? "min" : "s";
            } else if (is(Tok::power)) {
                bool braces = is(Tok::brace, 1);
                if (!is(Tok::number, 1 + braces)) return -1;
                at_ += 1 + braces;
                name += "^" + look().s;
                at_ += braces;
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
            case Tok::end: case Tok::comma: case Tok::semicolon: case Tok::conj_and: case Tok::conj_or: case Tok::close:
            case Tok::bracket_close: case Tok::brace_close: case Tok::set_close: case Tok::relation: case Tok::plus:
            case Tok::minus: case Tok::amp: case Tok::row: case Tok::end_env: break;
            default: return -1;
        }
        if (brackets) return -1;
        int n = tree_.unary(Kind::unit, value);
        tree_.names.push_back(name);
        tree_.nodes[size_t(n)].value = int(tree_.names.size()) - 1;
        return n;
    }

    // ---- factors ---------------------------------------------------------------------------------------------

    int factor() {
        Deeper deeper(depth_);
        if (too_deep()) return -1;
        int base = primary();
        for (int count = 0; base >= 0; count++) {
            if (count > 12) return -1;
            if (is(Tok::power)) {
                bool braces = is(Tok::brace, 1);
                size_t k = braces ? 2 : 1;
                if ((is(Tok::degree, k) || is(Tok::prime, k)) && (!braces || is(Tok::brace_close, k + 1))) {
                    bool degree = is(Tok::degree, k);
                    at_ += k + 1 + braces;
                    base = degree ? tree_.unary(Kind::degree, base) : primed(base);
                    continue;
                }
                at_++;
                int exponent = operand();
                if (exponent < 0) return -1;
                base = powered(base, exponent);
            } else if (take(Tok::bang)) {
                bool twice = is(Tok::bang) && !look().space;
                if (twice) at_++;
                base = twice ? named_opaque("!!", {base}) : tree_.unary(Kind::factorial, base);
            } else if (take(Tok::percent)) {
                base = tree_.unary(Kind::percent, base);
            } else if (take(Tok::degree)) {
                base = tree_.unary(Kind::degree, base);
            } else if (take(Tok::prime)) {
                base = primed(base);
            } else if (is(Tok::sub)) {
                std::string name = subscript();
                base = name.empty() ? -1 : tree_[base].kind == Kind::number ? -1 : named_opaque("_" + name, {base});
            } else {
                break;
            }
        }
        return base;
    }
    // An exponent or a subscript's value: one primary, with its own power and sign.
    int operand() {
        Deeper deeper(depth_);
        if (too_deep()) return -1;
        if (is(Tok::minus) || is(Tok::plus)) {
            bool minus = is(Tok::minus);
            at_++;
            int value = operand();
            return value < 0 || !minus ? value : tree_.unary(Kind::negate, value);
        }
        int base = primary();
        if (base < 0 || !is(Tok::power)) return base;
        at_++;
        int exponent = operand();
        return exponent < 0 ? -1 : powered(base, exponent);
    }
    int powered(int base, int exponent) {
        if (tree_[base].kind == Kind::matrix) {
            if (tree_[exponent].kind != Kind::symbol || tree_.name(exponent) != "T") return named_opaque("matrix power", {base, exponent});
            int columns = tree_[base].op, rows = columns ? tree_[base].count / columns : 0;
            std::vector<int> cells;
            for (int c = 0; c < columns; c++)
                for (int r = 0; r < rows; r++) cells.push_back(tree_.kid(base, r * columns + c));
            return rows > 255 ? -1 : tree_.make(Kind::matrix, cells, uint8_t(rows));
        }
        return tree_.binary(Kind::power, base, exponent);
    }
    int primed(int base) {
        if (tree_[base].kind == Kind::symbol) return tree_.named(Kind::symbol, tree_.name(base) + "'");
        if (tree_[base].kind == Kind::opaque) {
            std::string name = tree_.name(base) + "'";
            tree_.names.push_back(name);
            tree_.nodes[size_t(base)].value = int(tree_.names.size()) - 1;
            return base;
        }
        return named_opaque("'", {base});
    }
    int named_opaque(std::string name, const std::vector<int>& children) {
        tree_.names.push_back(std::move(name));
        return tree_.make(Kind::opaque, children, 0, int(tree_.names.size()) - 1);
    }
    // The text of _x or _{x y}, blanks removed; empty on failure.
    std::string subscript() {
        at_++;
        if (!is(Tok::brace)) {
            std::string name = spelled(look());
            if (is(Tok::end) || name.empty()) return "";
            at_++;
            return name;
        }
        return group_text();
    }
    std::string group_text() {  // at a brace
        std::string name;
        int depth = 0;
        do {
            if (is(Tok::end)) return "";
            if (is(Tok::brace)) depth++;
            if (is(Tok::brace_close)) depth--;
            else if (!is(Tok::brace)) name += spelled(look());
            at_++;
        } while (depth);
        return name.empty() ? "{}" : name;
    }
    static std::string spelled(const Token& t) {
        if (!t.s.empty()) return t.s;
        return std::string(1, char('\x80' + int(t.kind))) + char('0' + t.id);  // any sign, as long as it is one's own
    }
    int name_after(std::string name) {  // subscripts and primes that belong to a name
        if (is(Tok::sub)) {
            std::string index = subscript();
            if (index.empty()) return -1;
            name += "_" + index;
        } else if (is(Tok::power) && !is(Tok::prime, 1) && is(Tok::sub, 2) && !is(Tok::brace, 1)) {  // v^2_0 is v_0^2
            Token exponent = tokens_[at_ + 1];
            size_t power = at_;
            at_ += 2;
            std::string index = subscript();
            if (index.empty()) return -1;
            name += "_" + index;
            tokens_[at_ - 1] = exponent;  // the consumed subscript's place now holds "^ exponent"
            tokens_[at_ - 2] = tokens_[power];
            at_ -= 2;
        }
        while (is(Tok::prime)) at_++, name += "'";
        bool function = name.size() && (name[0] == 'f' || name[0] == 'g' || name[0] == 'h') && (name.size() == 1 || name[1] == '_' || name[1] == '\'');
        if (function && is(Tok::open)) {
            at_++;
            std::vector<int> arguments;
            Join join = Join::comma;
            if (!items(arguments, join) || !take(Tok::close)) return -1;
            return named_opaque(name, arguments);
        }
        return tree_.named(Kind::symbol, name);
    }

    int primary() {
        Deeper deeper(depth_);
        if (too_deep()) return -1;
        const Token t = look();
        switch (t.kind) {
            case Tok::number: return number();
            case Tok::scale: {
                Number n;
                exact_number(t.s, n);
                at_++;
                return tree_.number(n);
            }
            case Tok::symbol: at_++; return name_after(t.s);
            case Tok::constant:
                at_++;
                if (is(Tok::sub) && t.id != uint8_t(Const::infinity)) return name_after(t.s.empty() ? "pi" : t.s);
                return tree_.leaf(Kind::constant, t.id);
            case Tok::word: return words();
            case Tok::function: at_++; return function(Fn(t.id));
            case Tok::accent: {
                at_++;
                std::string name = is(Tok::brace) ? group_text() : spelled(look());
                if (name.empty() || is(Tok::end)) return -1;
                if (tokens_[at_ - 1].kind == Tok::accent) at_++;
                return name_after(t.s + " " + name);
            }
            case Tok::big: at_++; return big(t.s);
            case Tok::open: case Tok::bracket: return bracketed();
            case Tok::brace: {
                at_++;
                int inner = list();
                if (inner >= 0 && (is(Tok::choose) || is(Tok::over))) {  // {n \choose k}
                    Kind kind = is(Tok::choose) ? Kind::binomial : Kind::divide;
                    at_++;
                    int under = list();
                    if (under < 0) return -1;
                    inner = tree_.binary(kind, inner, under);
                }
                return take(Tok::brace_close) ? inner : -1;
            }
            case Tok::set_open: return braces();
            case Tok::bar: case Tok::bar_open: return absolute();
            case Tok::floor_open: case Tok::ceil_open: {
                at_++;
                int inner = sum();
                bool floor = t.kind == Tok::floor_open;
                if (inner < 0 || !take(floor ? Tok::floor_close : Tok::ceil_close)) return -1;
                return tree_.unary(Kind::function, inner, uint8_t(floor ? Fn::floor : Fn::ceil));
            }
            case Tok::angle_open: {
                at_++;
                std::vector<int> out;
                Join join = Join::comma;
                if (!items(out, join) || !take(Tok::angle_close)) return -1;
                return tree_.make(Kind::tuple, out, angle_brackets);
            }
            case Tok::frac: case Tok::binom: {
                at_++;
                int over = argument(), under = over < 0 ? -1 : argument();
                if (under < 0) return -1;
                if (tree_[over].kind == Kind::matrix || tree_[under].kind == Kind::matrix) return -1;
                return tree_.binary(t.kind == Tok::frac ? Kind::divide : Kind::binomial, over, under);
            }
            case Tok::sqrt: {
                at_++;
                int degree = -1;
                if (take(Tok::bracket)) {
                    degree = sum();
                    if (degree < 0 || !take(Tok::bracket_close)) return -1;
                }
                int inner = primary();  // \sqrt{x}, \sqrt(x), \sqrt19
                if (inner < 0) return -1;
                return tree_.binary(Kind::root, inner, degree < 0 ? tree_.integer(2) : degree);
            }
            case Tok::begin_env: return environment();
            case Tok::empty_set: at_++; return tree_.leaf(Kind::empty_set);
            case Tok::dots: at_++; return tree_.leaf(Kind::ellipsis);
            default: return -1;
        }
    }
    // An argument of \frac: a group, or one digit or sign (\frac12 is 1/2).
    int argument() {
        if (!is(Tok::number)) return primary();
        Token& t = tokens_[at_];
        if (t.s.size() == 1 || t.s.find_first_not_of("0123456789") != std::string::npos) return number();
        std::string digit = t.s.substr(0, 1);
        t.s.erase(0, 1);
        Number n;
        exact_number(digit, n);
        return tree_.number(n);
    }
    int number() {
        const Token t = look();
        at_++;
        std::string digits = t.s;
        bool plain = digits.find_first_not_of("0123456789") == std::string::npos;
        // 152A_{11}
        bool letters = plain && (is(Tok::symbol) || is(Tok::word)) && !look().space && is(Tok::sub, 1);
        if (letters)
            for (char c : look().s) letters &= (c >= 'A' && c <= 'Z') || is_digit(c);
        if (letters && (look().s.size() < 9)) digits += look().s, at_++;
        if (is(Tok::sub)) {
            std::string base = subscript();
            if (auto it = plain_words().find(base); it != plain_words().end() && it->second.kind == Tok::number) base = it->second.name;
            int b = base.size() <= 2 ? std::atoi(base.c_str()) : 0;
            if (!plain || b < 2 || b > 36) return -1;
            return tree_.named(Kind::based, digits, uint8_t(b));
        }
        if (letters) return -1;
        if (t.separators) tree_.ambiguous_commas = true;
        Number n;
        if (exact_number(digits, n)) return tree_.number(n);
        if (digits.find_first_not_of("0123456789.") != std::string::npos) return -1;
        return tree_.named(Kind::long_number, digits);
    }
    int words() {
        std::string name;
        for (; is(Tok::word) || (is(Tok::symbol) && look().text) || (is(Tok::constant) && look().text); at_++) {
            if (name.size() > 4000) return -1;
            if (!name.empty()) name += ' ';
            name += look().s;
        }
        for (char& c : name) c = lower(c);
        if (is(Tok::sub)) {
            std::string index = subscript();
            if (index.empty()) return -1;
            name += "_" + index;
        }
        return tree_.named(Kind::text, name);
    }
    int function(Fn fn) {
        int base = -1, exponent = -1;
        for (int k = 0; k < 2; k++) {
            if (is(Tok::sub) && base < 0) {
                if (fn != Fn::log && fn != Fn::lg) return -1;
                at_++;
                base = operand_without_power();
                if (base < 0) return -1;
            } else if (is(Tok::power) && exponent < 0) {
                at_++;
                exponent = operand();
                if (exponent < 0) return -1;
            }
        }
        std::vector<int> arguments;
        if (is(Tok::open) || is(Tok::bracket) || is(Tok::set_open)) {
            Tok close = is(Tok::open) ? Tok::close : is(Tok::bracket) ? Tok::bracket_close : Tok::set_close;
            at_++;
            Join join = Join::comma;
            if (!items(arguments, join) || !take(close)) return -1;
        } else if (is(Tok::brace)) {
            int inner = primary();
            if (inner < 0) return -1;
            arguments.push_back(inner);
        } else {
            int inner = function_argument();
            if (inner < 0) return -1;
            arguments.push_back(inner);
        }
        if (fn == Fn::lg) fn = Fn::log, base = base < 0 ? tree_.integer(10) : base;
        if (base >= 0 && arguments.size() == 1) arguments.push_back(base);
        bool inverse = exponent >= 0 && fn <= Fn::csc && tree_[exponent].kind == Kind::negate && tree_.is_integer(tree_.kid(exponent, 0)) &&
                       tree_.number_of(tree_.kid(exponent, 0)).value.num.one();
        if (inverse) {
            static constexpr Fn of[] = {Fn::asin, Fn::acos, Fn::atan, Fn::acot, Fn::sec, Fn::csc};
            if (fn > Fn::cot) return -1;
            return tree_.make(Kind::function, arguments, uint8_t(of[int(fn)]));
        }
        int value = tree_.make(Kind::function, arguments, uint8_t(fn));
        return exponent < 0 ? value : tree_.binary(Kind::power, value, exponent);
    }
    int operand_without_power() {
        if (is(Tok::number)) return argument();
        return primary();
    }
    // sin 2\pi x: the factors that stand together, up to a sign, another function or a bracket.
    int function_argument() {
        bool minus = take(Tok::minus);
        std::vector<int> factors{is(Tok::function) ? (at_++, function(Fn(tokens_[at_ - 1].id))) : factor()};
        if (factors[0] < 0) return -1;
        while (begins_factor(false) && !is(Tok::function) && !is(Tok::open) && !is(Tok::bracket) && !is(Tok::big) && factors.size() < 100) {
            factors.push_back(factor());
            if (factors.back() < 0) return -1;
        }
        // \log x / 2 leaves the slash; \sin x/2 too
        int value = factors.size() == 1 ? factors[0] : tree_.make(Kind::mul, factors);
        return minus ? tree_.unary(Kind::negate, value) : value;
    }
    // \sum_{k=1}^{n} body is worked out; integrals, limits and sums of another form are functions of their body
    // about which only their spelling is known.
    int big(const std::string& name) {
        int lower_bound = -1, upper = -1;
        std::string bound, spelling = name;
        for (int k = 0; k < 2; k++) {
            if (is(Tok::sub)) {
                size_t start = at_;
                if (is(Tok::brace, 1) && is(Tok::symbol, 2) && is(Tok::relation, 3) && look(3).id == uint8_t(Rel::eq) && name != "lim") {
                    bound = look(2).s;
                    at_ += 4;
                    lower_bound = sum();
                    if (lower_bound >= 0 && take(Tok::brace_close)) continue;
                    lower_bound = -1, at_ = start;
                }
                bound.clear();
                std::string text = subscript();
                if (text.empty()) return -1;
                spelling += "_" + text;
            } else if (is(Tok::power)) {
                at_++;
                size_t start = at_;
                upper = operand();
                if (upper < 0) return -1;
                for (size_t i = start; i < at_; i++)
                    if (tokens_[i].kind != Tok::brace && tokens_[i].kind != Tok::brace_close) spelling += spelled(tokens_[i]);
            }
        }
        int body = product();
        if (body < 0) return -1;
        if (!bound.empty() && lower_bound >= 0 && upper >= 0 && (name == "sum" || name == "prod")) {
            tree_.names.push_back(bound);
            return tree_.make(Kind::big_sum, {lower_bound, upper, body}, name == "prod", int(tree_.names.size()) - 1);
        }
        if (lower_bound >= 0) return named_opaque(spelling, {lower_bound, body});
        return named_opaque(spelling, {body});
    }
    int bracketed() {
        bool round_open = is(Tok::open);
        at_++;
        std::vector<int> out;
        Join join = Join::comma;
        bool builder = builder_;
        int bars = bars_;
        builder_ = false, bars_ = 0;
        bool ok = items(out, join);
        builder_ = builder, bars_ = bars;
        if (!ok || !(is(Tok::close) || is(Tok::bracket_close))) return -1;
        bool round_close = is(Tok::close);
        at_++;
        if (out.size() == 1) {
            Node& inner = tree_.nodes[size_t(out[0])];
            if (inner.kind == Kind::symbol || inner.kind == Kind::number) inner.op = in_brackets;
            return round_open == round_close ? out[0] : -1;
        }
        if (join != Join::comma) return round_open && round_close ? tree_.make(Kind::list, out, uint8_t(join)) : -1;
        return tree_.make(Kind::tuple, out, uint8_t((round_open ? 0 : closed_left) | (round_close ? 0 : closed_right)));
    }
    int braces() {
        at_++;
        if (take(Tok::set_close)) return tree_.leaf(Kind::empty_set);
        bool outer = builder_;
        builder_ = true;
        std::vector<int> out;
        Join join = Join::comma;
        bool ok = items(out, join);
        builder_ = outer;
        if (!ok) return -1;
        if (out.size() == 1 && (is(Tok::bar) || is(Tok::colon))) {
            at_++;
            int condition = list();
            if (condition < 0 || !take(Tok::set_close)) return -1;
            return tree_.binary(Kind::builder, out[0], condition);
        }
        return take(Tok::set_close) ? tree_.make(Kind::set, out) : -1;
    }
    int absolute() {
        at_++;
        bool builder = builder_;
        builder_ = false;
        bars_++;
        int inner = sum();
        bars_--;
        builder_ = builder;
        if (inner < 0 || !(take(Tok::bar) || take(Tok::bar_close))) return -1;
        if (tree_[inner].kind == Kind::matrix) return determinant(tree_, inner);
        return tree_.unary(Kind::function, inner, uint8_t(Fn::abs));
    }
    int environment() {
        std::string name = look().s;
        at_++;
        if (!name.empty() && name.back() == '*') name.pop_back();
        bool outer = matrix_;
        if (name == "cases" || name == "aligned" || name == "align" || name == "gathered" || name == "split" || name == "equation") {
            matrix_ = false;
            int inner = list();
            matrix_ = outer;
            return take(Tok::end_env) ? inner : -1;
        }
        bool det = name == "vmatrix" || name == "Vmatrix";
        if (!det && name != "pmatrix" && name != "bmatrix" && name != "matrix" && name != "Bmatrix" && name != "smallmatrix" && name != "array" && name != "tabular") return -1;
        matrix_ = true;
        int matrix = cells();
        matrix_ = outer;
        if (matrix < 0 || !take(Tok::end_env)) return -1;
        return det ? determinant(tree_, matrix) : matrix;
    }
    int cells() {
        std::vector<int> cells;
        size_t columns = 0, filled = 0;
        for (;;) {
            if (is(Tok::end_env) && filled == 0) break;
            int cell = element();
            if (cell < 0) return -1;
            cells.push_back(cell), filled++;
            if (take(Tok::amp)) continue;
            if (columns && filled != columns) return -1;
            columns = filled, filled = 0;
            if (!take(Tok::row)) break;
        }
        if (cells.empty() || columns > 255) return -1;
        return tree_.make(Kind::matrix, cells, uint8_t(columns));
    }
};

}  // namespace detail

// Reads an answer. tree.read tells whether it could; nothing is thrown.
inline void parse(std::vector<Token> tokens, Tree& tree) { detail::Parser(std::move(tokens), tree).run(); }

}  // namespace verifier
