// factor.h: the lower half of the grammar: one factor, its powers, primes and brackets, and what stands
// inside.
//
//   factor    primary (^ | ! | % | degree | ')*
//   primary   number, name, words, function, \frac, \sqrt, brackets, sets, bars, matrices, sums ...
//
// The upper half (parse.h) is reached through the virtual functions.
#pragma once
#include "build.h"

namespace verifier {
namespace detail {

class Factors {
  protected:
    Factors(std::vector<Token> tokens, Tree& tree) : tree_(tree) {
        split_words(tokens, tokens_);
        tokens_.emplace_back();  // Tok::end
    }
    virtual ~Factors() = default;
    virtual int list() = 0;
    virtual bool items(std::vector<int>& out, Join& join) = 0;
    virtual int element() = 0;
    virtual int sum() = 0;
    virtual int product() = 0;

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
    bool too_deep() const { return depth_ > max_depth || tree_.nodes.size() > max_nodes || tree_.too_large; }

    // Whether the next token begins a factor that stands beside the last one.
    bool begins_factor(bool after_number) const {
        switch (look().kind) {
            case Tok::number:
                return !after_number;
            case Tok::symbol:
            case Tok::constant:
            case Tok::accent:
            case Tok::big:
            case Tok::begin_env:
            case Tok::open:
            case Tok::brace:
            case Tok::bar_open:
            case Tok::floor_open:
            case Tok::ceil_open:
            case Tok::frac:
            case Tok::sqrt:
            case Tok::binom:
            case Tok::bracket:
                return !(is(Tok::open) && is(Tok::mod, 1));
            case Tok::function:
                return true;
            case Tok::bar:
                return !bars_ && !builder_;
            default:
                return false;
        }
    }

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
                    base = degree ? degrees(base) : primed(base);
                    continue;
                }
                if (ordinal_ends(base)) continue;
                at_++;
                int exponent = operand();
                if (exponent < 0) return -1;
                base = powered(base, exponent);
            } else if (take(Tok::bang)) {
                bool twice = is(Tok::bang) && !look().space;
                if (twice) at_++;
                base = tree_.unary(Kind::factorial, base, twice ? double_factorial : 0);
            } else if (take(Tok::percent)) {
                base = tree_.unary(Kind::percent, base);
            } else if (take(Tok::degree)) {
                base = degrees(base);
            } else if (take(Tok::prime)) {
                base = primed(base);
            } else if (is(Tok::sub)) {
                std::string name = subscript();
                base = name.empty()                       ? -1
                       : tree_[base].kind == Kind::number ? -1
                                                          : named_opaque("_" + name, {base});
            } else {
                break;
            }
        }
        return base;
    }
    // Skips the ending of 5^{th}.
    bool ordinal_ends(int base) {
        if (tree_[base].kind != Kind::number || !is(Tok::brace, 1)) return false;
        std::string ending;
        size_t k = 2;
        for (; (is(Tok::word, k) || is(Tok::symbol, k)) && ending.size() < 3; k++) ending += look(k).s;
        bool known = ending == "th" || ending == "st" || ending == "nd" || ending == "rd";
        if (!known || !is(Tok::brace_close, k)) return false;
        at_ += k + 1;
        return true;
    }
    // 90^\circ, 20^\circ C
    int degrees(int base) {
        int value = tree_.unary(Kind::degree, base);
        bool scale =
            is(Tok::symbol) && (look().s == "C" || look().s == "F") && !is(Tok::sub, 1) && !is(Tok::power, 1);
        if (!scale) return value;
        tree_.names.push_back(look().s);
        at_++;
        return tree_.make(Kind::unit, {value}, 0, int(tree_.names.size()) - 1);
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
            if (tree_[exponent].kind != Kind::symbol || tree_.name(exponent) != "T")
                return named_opaque("matrix power", {base, exponent});
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
            if (is(Tok::brace_close))
                depth--;
            else if (!is(Tok::brace))
                name += spelled(look());
            at_++;
        } while (depth);
        return name.empty() ? "{}" : name;
    }
    static std::string spelled(const Token& t) {
        if (!t.s.empty()) return t.s;
        return std::string(1, char('\x80' + int(t.kind))) +
               char('0' + t.id);  // any sign, as long as it is one's own
    }
    int name_after(std::string name) {  // subscripts and primes that belong to a name
        if (is(Tok::sub)) {
            std::string index = subscript();
            if (index.empty()) return -1;
            name += "_" + index;
        } else if (is(Tok::power) && !is(Tok::prime, 1) && is(Tok::sub, 2) &&
                   !is(Tok::brace, 1)) {  // v^2_0 is v_0^2
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
        for (;; name += "'") {
            bool braces = is(Tok::power) && is(Tok::brace, 1);
            bool raised =
                is(Tok::power) && is(Tok::prime, 1 + braces) && (!braces || is(Tok::brace_close, 3));
            if (!raised && !is(Tok::prime)) break;
            at_ += raised ? 2 + 2 * braces : 1;
        }
        bool function = name.size() && (name[0] == 'f' || name[0] == 'g' || name[0] == 'h') &&
                        (name.size() == 1 || name[1] == '_' || name[1] == '\'');
        if (function && is(Tok::open)) {
            at_++;
            std::vector<int> arguments;
            Join join = Join::comma;
            if (!items(arguments, join) || !take(Tok::close)) return -1;
            return named_opaque(name, arguments);
        }
        return tree_.named(Kind::symbol, name);
    }
    // C(5, 2) and P(3, 4): a binomial or a point, by what it is compared with.
    bool call_of_capital(int& out) {
        bool capital = look().s.size() == 1 && look().s[0] >= 'A' && look().s[0] <= 'Z' && is(Tok::open, 1);
        if (!capital) return false;
        size_t start = at_, end = at_ + 2;
        for (int depth = 1; end < tokens_.size() && end < start + 200 && depth; end++) {
            depth += tokens_[end].kind == Tok::open;
            depth -= tokens_[end].kind == Tok::close;
            if (depth == 1 && tokens_[end].kind == Tok::comma) {
                std::string name = look().s;
                at_ += 2;
                std::vector<int> arguments;
                Join join = Join::comma;
                if (!items(arguments, join) || !take(Tok::close)) return out = -1, true;
                out = named_opaque(name, arguments);
                if (name == "C" && arguments.size() == 2) tree_.nodes[size_t(out)].op = as_binomial;
                return true;
            }
        }
        return false;
    }

    int primary() {
        Deeper deeper(depth_);
        if (too_deep()) return -1;
        const Token t = look();
        switch (t.kind) {
            case Tok::number:
                return number();
            case Tok::scale: {
                Number n;
                exact_number(t.s, n);
                at_++;
                return tree_.number(n);
            }
            case Tok::symbol:
                if (int call; call_of_capital(call)) return call;
                at_++;
                return name_after(t.s);
            case Tok::constant:
                at_++;
                if (is(Tok::sub) && t.id != uint8_t(Const::infinity))
                    return name_after(t.s.empty() ? "pi" : t.s);
                return tree_.leaf(Kind::constant, t.id);
            case Tok::word:
                return words();
            case Tok::function:
                at_++;
                return function(Fn(t.id));
            case Tok::accent: {
                at_++;
                std::string name;
                if (is(Tok::brace))
                    name = group_text();
                else
                    name = spelled(look()), at_++;
                if (name.empty() || at_ >= tokens_.size()) return -1;
                return name_after(t.s + " " + name);
            }
            case Tok::big:
                at_++;
                return big(t.s);
            case Tok::open:
            case Tok::bracket:
                return bracketed();
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
            case Tok::set_open:
                return braces();
            case Tok::bar:
            case Tok::bar_open:
                return absolute();
            case Tok::floor_open:
            case Tok::ceil_open: {
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
            case Tok::frac:
            case Tok::binom: {
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
            case Tok::begin_env:
                return environment();
            case Tok::empty_set:
                at_++;
                return tree_.leaf(Kind::empty_set);
            case Tok::dots:
                at_++;
                return tree_.leaf(Kind::ellipsis);
            default:
                return -1;
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
        if (is(Tok::sub)) return based(digits);
        bool in = is(Tok::word) && look().s == "in", word = is(Tok::word, in) && look(in).s == "base";
        if (word && is(Tok::number, 1 + in)) {  // 52 in base 8
            at_ += in;
            return based(digits);
        }
        if (letters) return -1;
        if (t.separators) tree_.ambiguous_commas = true;
        Number n;
        if (exact_number(digits, n)) return tree_.number(n);
        if (digits.find_first_not_of("0123456789.") != std::string::npos) return -1;
        return tree_.named(Kind::long_number, digits);
    }
    // At the sign or word before the base: 52_8, 52_{(8)}, 52 base 8.
    int based(const std::string& digits) {
        Token bracket;
        bracket.kind = Tok::open;
        std::string base = subscript();
        if (auto it = plain_words().find(base); it != plain_words().end() && it->second.kind == Tok::number)
            base = it->second.name;
        const std::string open = spelled(bracket);
        if (base.size() == 2 * open.size() + 1 || base.size() == 2 * open.size() + 2)
            if (base.compare(0, open.size(), open) == 0)
                base = base.substr(open.size(), base.size() - 2 * open.size());
        int b = base.size() <= 2 ? std::atoi(base.c_str()) : 0;
        // er: as the lexer writes 1e5 and 0.1r6
        if (digits.find_first_of("er/-") != std::string::npos || b < 2 || b > 36) return -1;
        return tree_.named(Kind::based, digits, uint8_t(b));
    }
    int words() {
        std::string name;
        for (; is(Tok::word) || (is(Tok::symbol) && look().text) || (is(Tok::constant) && look().text);
             at_++) {
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
                bool ten = is(Tok::number) && look().s == "10";  // not \log_1 0
                base = ten ? (at_++, tree_.integer(10)) : operand_without_power();
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
        if (fn == Fn::det && arguments.size() == 1 && tree_[arguments[0]].kind == Kind::matrix)
            return exponent < 0 ? determinant(tree_, arguments[0]) : -1;
        if (fn == Fn::lg) fn = Fn::log, base = base < 0 ? tree_.integer(10) : base;
        if (base >= 0 && arguments.size() == 1) arguments.push_back(base);
        bool inverse = exponent >= 0 && fn <= Fn::csc && tree_[exponent].kind == Kind::negate &&
                       tree_.is_integer(tree_.kid(exponent, 0)) &&
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
        while (begins_factor(false) && !is(Tok::function) && !is(Tok::open) && !is(Tok::bracket) &&
               !is(Tok::big) && factors.size() < 100) {
            factors.push_back(factor());
            if (factors.back() < 0) return -1;
        }
        // \log x / 2 leaves the slash; \sin x/2 too
        int value = factors.size() == 1 ? factors[0] : tree_.make(Kind::mul, factors);
        return minus ? tree_.unary(Kind::negate, value) : value;
    }
    // \sum_{k=1}^{n} body is worked out; integrals, limits and sums of another form are functions of their
    // body about which only their spelling is known.
    int big(const std::string& name) {
        int lower_bound = -1, upper = -1;
        std::string bound, spelling = name;
        for (int k = 0; k < 2; k++) {
            if (is(Tok::sub)) {
                size_t start = at_;
                bool name_of_index = is(Tok::symbol, 2) || (is(Tok::constant, 2) && !look(2).s.empty());
                if (is(Tok::brace, 1) && name_of_index && is(Tok::relation, 3) &&
                    look(3).id == uint8_t(Rel::eq) && name != "lim") {
                    bound = look(2).s;
                    if (is(Tok::constant, 2))  // the i of a sum over i is no imaginary unit
                        for (size_t i = at_; i < tokens_.size(); i++)
                            if (tokens_[i].kind == Tok::constant && tokens_[i].s == bound)
                                tokens_[i].kind = Tok::symbol, tokens_[i].id = 0;
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
                    if (tokens_[i].kind != Tok::brace && tokens_[i].kind != Tok::brace_close)
                        spelling += spelled(tokens_[i]);
            }
        }
        int body = product();
        if (body < 0) return -1;
        if (!bound.empty() && lower_bound >= 0 && upper >= 0 && (name == "sum" || name == "prod")) {
            tree_.names.push_back(bound);
            return tree_.make(Kind::big_sum, {lower_bound, upper, body}, name == "prod",
                              int(tree_.names.size()) - 1);
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
            if (round_open && round_close && is(Tok::sub) && inner.kind == Kind::number)  // (1010)_2
                return based(tree_.number_of(out[0]).value.text());
            return round_open == round_close ? out[0] : -1;
        }
        if (join != Join::comma)
            return round_open && round_close ? tree_.make(Kind::list, out, uint8_t(join)) : -1;
        return tree_.make(Kind::tuple, out,
                          uint8_t((round_open ? 0 : closed_left) | (round_close ? 0 : closed_right)));
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
        if (name == "cases" || name == "aligned" || name == "align" || name == "gathered" ||
            name == "split" || name == "equation") {
            matrix_ = false;
            int inner = list();
            matrix_ = outer;
            return take(Tok::end_env) ? inner : -1;
        }
        bool det = name == "vmatrix" || name == "Vmatrix";
        if (!det && name != "pmatrix" && name != "bmatrix" && name != "matrix" && name != "Bmatrix" &&
            name != "smallmatrix" && name != "array" && name != "tabular")
            return -1;
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
}  // namespace verifier
