// lex.h: an answer in LaTeX or plain notation -> tokens; all spelling variants of a sign become one token
// here.
//
// Dropped: spacing (\, \! \quad ~), \left \right \big, \displaystyle, styles (\mathbf, \mathrm around one
// letter), formula signs, currency. Repaired: doubled backslashes, a form feed that was \f, unknown commands
// that run into a letter ("\quadx"). Numbers carry their digits as written, thousands separators removed.
//
// Linear in the text; at most max_tokens tokens, beyond which the answer is not read.
#pragma once
#include <cstdint>
#include <cstring>
#include <string>
#include <string_view>
#include <vector>

#include "extract.h"
#include "number_words.h"

namespace verifier {

constexpr size_t max_tokens = 6000;
constexpr size_t longest_formula = 1 << 16;  // bytes; only a number may be longer

namespace detail {

// Brings unicode, control characters and doubled backslashes to plain LaTeX. Usually nothing is to be done.
inline std::string repair(std::string_view s) {
    bool doubled = s.find("\\\\begin") != std::string_view::npos;
    bool environment = s.find("\\begin") != std::string_view::npos;
    std::string out;
    out.reserve(s.size() + 8);
    for (size_t i = 0; i < s.size(); i++) {
        unsigned char c = s[i];
        if (c == '\\' && i + 1 < s.size() && s[i + 1] == '\\') {
            if (doubled && i + 3 < s.size() && s[i + 2] == '\\' && s[i + 3] == '\\') {
                out += "\\\\", i += 3;  // \\\\ in doubled text is a row's end
            } else if (i + 2 < s.size() && (doubled || !environment) &&
                       (is_letter(s[i + 2]) || std::strchr("{}[]()%$,;!", s[i + 2]))) {
                out += '\\', i++;
            } else {
                out += "\\\\", i++;
            }
        } else if (c >= 0x80) {
            size_t length = 1, more = 1;
            if (const char* latex = unicode_latex(s.substr(i), length)) {
                char script = *latex == '^' || *latex == '_' ? *latex : '\0';
                if (!script) out += latex;
                if (script) out += script, out += '{';  // one exponent, not a power of a power
                while (script) {
                    out += latex[1];
                    const char* next =
                        i + length < s.size() ? unicode_latex(s.substr(i + length), more) : nullptr;
                    if (!next || *next != script) break;
                    latex = next, length += more;
                }
                if (script) out += '}';
                i += length - 1;
            } else {
                out += char(c);
            }
        } else if (c == '\f') {
            out += "\\f";
        } else if (c == '\b') {
            out += "\\b";
        } else {
            out += c < 32 || c == 127 ? ' ' : char(c);
        }
    }
    return out;
}

class Lexer {
  public:
    Lexer(std::string_view text, bool commas_separate) : s_(text), commas_separate_(commas_separate) {}

    bool run(std::vector<Token>& out) {
        while (at_ < s_.size()) {
            if (out.size() >= max_tokens) return false;
            step(out);
        }
        return true;
    }

  private:
    std::string_view s_;
    size_t at_ = 0;
    bool commas_separate_, space_ = false;
    int brackets_ = 0;             // open ( [ \{ and |: a comma there separates
    std::vector<int> text_depth_;  // brace depths at which a \text{ opened
    int depth_ = 0;

    char peek(size_t k = 0) const { return at_ + k < s_.size() ? s_[at_ + k] : '\0'; }
    std::string_view rest() const { return s_.substr(at_); }
    bool in_text() const { return !text_depth_.empty(); }

    Token& push(std::vector<Token>& out, Tok kind, uint8_t id = 0, std::string_view name = {}) {
        out.emplace_back();
        Token& t = out.back();
        t.kind = kind, t.id = id, t.space = space_, t.text = in_text(), t.s = name;
        space_ = false;
        return t;
    }
    void push(std::vector<Token>& out, const Entry& e) { push(out, e.kind, e.id, e.name ? e.name : ""); }

    void step(std::vector<Token>& out) {
        char c = peek();
        if (is_space(c) || c == '~') {
            at_++, space_ = true;
        } else if (is_digit(c) || (c == '.' && is_digit(peek(1)))) {
            number(out);
        } else if (is_letter(c)) {
            letters(out);
        } else if (c == '\\') {
            command(out);
        } else {
            sign(out, c);
        }
    }

    // A separator between groups of three digits at `p`: its length, or 0.
    size_t separator(size_t p, size_t digits_so_far, bool first, char kind) const {
        auto three = [&](size_t q) {
            for (size_t k = 0; k < 3; k++)
                if (q + k >= s_.size() || !is_digit(s_[q + k])) return false;
            return q + 3 >= s_.size() || !is_digit(s_[q + 3]);
        };
        if (first ? digits_so_far > 3 || !digits_so_far : digits_so_far != 3) return 0;
        static constexpr std::string_view forms[] = {"{,}",   "\\!,\\!", ",\\!", "\\,", "{,}\\!",
                                                     ", \\!", "{ ,}",    "{, }", "\\ ", "{,}\\,",
                                                     " {, }", "\\!",     "\\;",  "\\:", "~"};
        for (std::string_view f : forms) {
            if (!starts(s_.substr(p), f)) continue;
            size_t q = p + f.size();
            while (q < s_.size() && s_[q] == ' ' && f.find(',') != std::string_view::npos) q++;
            if (three(q)) return q - p;
        }
        char c = p < s_.size() ? s_[p] : '\0';
        if (c == ',' && !commas_separate_ && !brackets_ && three(p + 1) && (first || kind == ',')) return 1;
        if (c == ' ' && !in_text() && three(p + 1) && (first || kind == ' ')) return 1;
        return 0;
    }

    // The length of "\overline{" before digits and a closing brace, or of the bracket of 0.(3), or 0.
    size_t repeating(bool after_point) const {
        for (std::string_view f : {"\\overline{", "\\bar{", "\\dot{", "("}) {
            if (!starts(rest(), f) || (f == "(" && !after_point)) continue;
            size_t p = f.size();
            while (is_digit(peek(p))) p++;
            if (p > f.size() && peek(p) == (f == "(" ? ')' : '}')) return f.size();
        }
        return 0;
    }
    // 0.1666... becomes 0.1r6.
    void repeat_last_digit(std::string& digits) {
        std::string_view dots;
        for (std::string_view d : {"...", "\\ldots", "\\dots", "\\cdots"})
            if (starts(rest(), d)) dots = d;
        if (dots.empty()) return;
        char last = digits.back();
        size_t point = digits.find('.'), first = digits.find_last_not_of(last);
        if (point == std::string::npos || first < point || digits.size() - first < 4) return;
        digits.resize(first + 1);
        digits += 'r', digits += last;
        at_ += dots.size();
    }

    void number(std::vector<Token>& out) {
        std::string digits;
        size_t group = 0;
        bool first = true, separated = false;
        char kind = 0;
        while (at_ < s_.size()) {
            if (is_digit(peek())) {
                digits += peek(), at_++, group++;
            } else if (size_t length = separator(at_, group, first, kind)) {
                kind = peek(), separated |= kind == ',';
                at_ += length, group = 0, first = false;
            } else {
                break;
            }
        }
        if (starts(rest(), "{,}") && is_digit(peek(3))) {  // a decimal comma
            at_ += 3, digits += '.';
            while (is_digit(peek())) digits += peek(), at_++;
        } else if (peek() == '.' && peek(1) != '.') {
            at_++;  // also the end of "5." and "1./3"
            bool after_point = !is_digit(peek());
            if (!after_point || repeating(true)) digits += '.';
            while (is_digit(peek())) digits += peek(), at_++;
            repeat_last_digit(digits);
            if (size_t open = repeating(after_point)) {  // 0.1\overline{6} becomes 0.1r6
                digits += 'r';
                for (at_ += open; is_digit(peek()); at_++) digits += peek();
                at_++;
            }
        }
        // 4.5e33; not 2e or 2e^x.
        if ((peek() == 'e' || peek() == 'E') &&
            (is_digit(peek(1)) || ((peek(1) == '-' || peek(1) == '+') && is_digit(peek(2))))) {
            size_t p = at_ + 1 + !is_digit(peek(1));
            while (p < s_.size() && is_digit(s_[p])) p++;
            if (p >= s_.size() || !is_letter(s_[p])) {
                digits += 'e';
                if (peek(1) == '-') digits += '-';
                digits += s_.substr(at_ + 1 + !is_digit(peek(1)), p - at_ - 1 - !is_digit(peek(1)));
                at_ = p;
            }
        }
        if (digits[0] == '.') digits = "0" + digits;
        push(out, Tok::number, 0, digits).separators = separated;
        if (starts(rest(), "x10^") || starts(rest(), " x 10^")) {  // 6.02x10^23
            at_ += peek() == ' ' ? 3 : 1;
            push(out, Tok::times);
        }
    }

    void letters(std::vector<Token>& out) {
        size_t end = at_;
        while (end < s_.size() && is_letter(s_[end])) end++;
        std::string_view run = s_.substr(at_, end - at_);
        if ((run == "np" || run == "math") && end + 1 < s_.size() && s_[end] == '.' &&
            is_letter(s_[end + 1])) {  // np.arcsin
            at_ = end + 1;
            return;
        }
        std::string small(run.substr(0, 14));
        for (char& c : small) c = lower(c);
        auto word = plain_words().find(run.size() <= 14 ? std::string_view(small) : run);
        if (word == plain_words().end()) word = plain_words().find(run);
        auto function = shared_words().find(run);
        if (run.size() > 1 && word != plain_words().end()) {
            at_ = end;
            push(out, word->second);
            return;
        }
        if (function != shared_words().end()) {
            push(out, function->second), at_ = end;
            bool base = run == "log" && (starts(rest(), "2(") || starts(rest(), "10("));
            if (base) push(out, Tok::sub);
            return;
        }
        if (currency_before_number(run, end)) {
            at_ = end + (end < s_.size() && s_[end] == '.'), space_ = true;
            return;
        }
        // "orW(x)" after a value, "sinx", "pir"
        for (size_t length : {size_t(3), size_t(2)}) {
            if (run.size() <= length) continue;
            std::string_view head = run.substr(0, length);
            bool conjunction =
                (head == "or" || head == "and") && run[length] >= 'A' && run[length] <= 'Z' && !out.empty();
            if (conjunction) {
                push(out, head == "or" ? Tok::conj_or : Tok::conj_and), at_ += length;
                return;
            }
            if (run.size() == length + 1 && !in_text() &&
                (head == "sin" || head == "cos" || head == "tan" || head == "log" || head == "ln" ||
                 head == "pi")) {
                push(out, shared_words().find(head)->second), at_ += length;
                return;
            }
        }
        if (run.size() == 1) {
            letter(out, run, end);
        } else {
            push(out, Tok::word, 0, run);
        }
        at_ = end;
    }
    // "Rs. 500", "US\$10"
    bool currency_before_number(std::string_view run, size_t end) const {
        bool known = false;
        for (std::string_view c : {"Rs", "INR", "USD", "US", "EUR", "GBP"}) known |= run == c;
        while (known && end < s_.size() && (is_space(s_[end]) || std::strchr(".\\$", s_[end]))) end++;
        return known && end < s_.size() && is_digit(s_[end]);
    }
    void letter(std::vector<Token>& out, std::string_view name, size_t end) {
        while (end < s_.size() && is_space(s_[end])) end++;
        bool set_before =
            !out.empty() && (out.back().kind == Tok::close || out.back().kind == Tok::bracket_close ||
                             out.back().kind == Tok::set_close);
        bool set_after =
            end < s_.size() && (s_[end] == '(' || s_[end] == '[' || starts(s_.substr(end), "\\{"));
        if (name == "U" && set_before && set_after) {  // (0,1) U (1,2)
            push(out, Tok::cup);
        } else if (name == "e") {
            push(out, Tok::constant, uint8_t(Const::e), name);
        } else if (name == "i") {
            push(out, Tok::constant, uint8_t(Const::i), name);
        } else {
            push(out, Tok::symbol, 0, name);
        }
    }

    void command(std::vector<Token>& out) {
        char c = peek(1);
        if (!is_letter(c)) {
            at_ += 2;
            switch (c) {
                case '{':
                    push(out, Tok::set_open), brackets_++;
                    break;
                case '}':
                    push(out, Tok::set_close), brackets_ -= brackets_ > 0;
                    break;
                case '|':
                    push(out, Tok::bar);
                    break;
                case '%':
                    push(out, Tok::percent);
                    break;
                case '\\':
                    push(out, Tok::row), skip_row_gap();
                    break;
                case '(':
                case ')':
                case '[':
                case ']':
                    push(out, Tok::formula);
                    break;
                case '\0':
                    at_ = s_.size();
                    break;
                default:
                    space_ = true;  // \, \; \! \: \$ \& \# and a stray backslash
            }
            return;
        }
        size_t end = at_ + 1;
        while (end < s_.size() && is_letter(s_[end])) end++;
        std::string_view name = s_.substr(at_ + 1, end - at_ - 1);
        // "\quadx": the longest beginning that is a command
        for (size_t length = name.size(); length; length--) {
            std::string_view head = name.substr(0, length);
            if (known(head)) {
                at_ += 1 + length;
                run_command(out, head);
                return;
            }
        }
        at_ = end;
        push(out, Tok::symbol, 0, name);
    }
    void skip_row_gap() {  // \\[2pt]
        if (peek() != '[') return;
        size_t close = s_.substr(0, at_ + 10).find(']', at_);
        if (close != std::string_view::npos && close - at_ > 2 &&
            s_.substr(at_, close - at_).find_first_of(",(") == std::string_view::npos &&
            (starts(s_.substr(close - 2), "pt") || starts(s_.substr(close - 2), "em") ||
             starts(s_.substr(close - 2), "ex")))
            at_ = close + 1;
    }
    static bool known(std::string_view c) {
        return commands().count(c) || shared_words().count(c) || is_spacing(c) || is_text_command(c) ||
               is_style(c) || is_greek(c) || is_dropped_with_group(c) || c == "begin" || c == "end" ||
               c == "not" || c == "and" || c == "or" || c == "hline";
    }
    void run_command(std::vector<Token>& out, std::string_view c) {
        if (c == "left" || c == "right" || c == "bigl" || c == "bigr" || c == "Bigl" || c == "Bigr") {
            while (is_space(peek())) at_++;
            bool opens = c != "right" && c.back() != 'r';
            if (peek() == '.') at_++;
            if (peek() == '|') at_++, push(out, opens ? Tok::bar_open : Tok::bar_close);
            if (starts(rest(), "\\|")) at_ += 2, push(out, opens ? Tok::bar_open : Tok::bar_close);
            return;
        }
        if (is_spacing(c)) {
            space_ = true;
            return;
        }
        if (is_dropped_with_group(c)) {
            if (peek() == '*') at_++;
            size_t close = peek() == '{' ? s_.substr(0, at_ + 64).find('}', at_) : std::string_view::npos;
            if (close != std::string_view::npos) at_ = close + 1;
            space_ = true;
            return;
        }
        if (c == "not") {
            while (is_space(peek())) at_++;
            if (peek() == '=') at_++, push(out, rel(Rel::ne));
            return;
        }
        if (c == "operatorname") return operator_name(out);
        if (c == "and" || c == "or")
            return push(out, c == "and" ? plain(Tok::conj_and) : plain(Tok::conj_or));
        if (c == "begin" || c == "end") return environment(out, c == "begin");
        if (is_text_command(c)) {
            while (is_space(peek())) at_++;
            if (peek() == '{') {
                at_++;
                text_depth_.push_back(depth_++);
                space_ = true;
                push(out, Tok::brace).id = 1;  // dropped again when the group closes cleanly: see tokens()
            }
            return;
        }
        if (is_style(c)) {
            while (is_space(peek())) at_++;
            if (c == "mathbb" && (peek() == '{' || is_letter(peek()))) {
                size_t open = peek() == '{';
                std::string name = std::string("mathbb ") + peek(open);
                if (open ? peek(2) == '}' : true) {
                    at_ += open ? 3 : 1;
                    push(out, Tok::symbol, 0, name);
                }
            }
            return;
        }
        if (auto it = shared_words().find(c); it != shared_words().end()) return push(out, it->second);
        if (auto it = commands().find(c); it != commands().end()) return push(out, it->second);
        // \varphi is \phi: nobody uses both in one answer
        push(out, Tok::symbol, 0, starts(c, "var") ? c.substr(3) : c);
    }
    void operator_name(std::vector<Token>& out) {
        if (peek() == '*') at_++;
        while (is_space(peek())) at_++;
        size_t close = peek() == '{' ? s_.substr(0, at_ + 24).find('}', at_) : std::string_view::npos;
        if (close == std::string_view::npos) return;
        std::string_view name = trim(s_.substr(at_ + 1, close - at_ - 1));
        at_ = close + 1;
        if (auto it = shared_words().find(name); it != shared_words().end()) return push(out, it->second);
        if (auto it = plain_words().find(name); it != plain_words().end()) return push(out, it->second);
        if (auto it = commands().find(name); it != commands().end()) return push(out, it->second);  // Re, Im
        push(out, Tok::symbol, 0, name);
    }
    void environment(std::vector<Token>& out, bool begin) {
        while (is_space(peek())) at_++;
        if (peek() != '{') return;
        size_t close = s_.substr(0, at_ + 24).find('}', at_);
        if (close == std::string_view::npos) return;
        std::string_view name = s_.substr(at_ + 1, close - at_ - 1);
        at_ = close + 1;
        push(out, begin ? Tok::begin_env : Tok::end_env, 0, name);
        if (begin && (name == "array" || name == "tabular")) {  // the column letters
            while (is_space(peek())) at_++;
            if (peek() == '{') {
                close = s_.substr(0, at_ + 64).find('}', at_);
                if (close != std::string_view::npos) at_ = close + 1;
            }
        }
    }

    void sign(std::vector<Token>& out, char c) {
        char n = peek(1);
        at_++;
        switch (c) {
            case '+':
                if (n == '/' && peek(1) == '-')
                    at_ += 2, push(out, Tok::pm);
                else if (n == '-' && in_text())
                    at_++, push(out, Tok::pm);
                else
                    push(out, Tok::plus);
                break;
            case '-':
                push(out, Tok::minus);
                break;
            case '*':
                if (n == '*')
                    at_++, push(out, Tok::power);
                else
                    push(out, Tok::times);
                break;
            case '/':
                push(out, Tok::slash);
                break;
            case '^':
                push(out, Tok::power);
                break;
            case '_':
                push(out, Tok::sub);
                break;
            case '(':
                push(out, Tok::open), brackets_++;
                break;
            case ')':
                push(out, Tok::close), brackets_ -= brackets_ > 0;
                break;
            case '[':
                push(out, Tok::bracket), brackets_++;
                break;
            case ']':
                push(out, Tok::bracket_close), brackets_ -= brackets_ > 0;
                break;
            case '{':
                push(out, Tok::brace), depth_++;
                break;
            case '}':
                depth_ -= depth_ > 0;
                push(out, Tok::brace_close);
                if (in_text() && text_depth_.back() >= depth_) {
                    out.back().id = 1, out.back().text = true;
                    text_depth_.pop_back();
                }
                break;
            case '|':
                push(out, Tok::bar);
                break;
            case '=':
                if (n == '=') at_++;
                if (n == '<')
                    at_++, push(out, rel(Rel::le));
                else
                    push(out, rel(Rel::eq));
                break;
            case '<':
                if (n == '=')
                    at_++, push(out, rel(Rel::le));
                else if (n == '>')
                    at_++, push(out, rel(Rel::ne));
                else
                    push(out, rel(Rel::lt));
                break;
            case '>':
                if (n == '=')
                    at_++, push(out, rel(Rel::ge));
                else
                    push(out, rel(Rel::gt));
                break;
            case '!':
                // "x != 5" but "5!=120"
                if (n == '=' && (space_ || at_ < 2 || is_letter(s_[at_ - 2])))
                    at_++, push(out, rel(Rel::ne));
                else
                    push(out, Tok::bang);
                break;
            case ',':
                push(out, Tok::comma);
                break;
            case ';':
                push(out, Tok::semicolon);
                break;
            case ':':
                push(out, Tok::colon);
                break;
            case '\'':
                push(out, Tok::prime);
                break;
            case '%':
                push(out, Tok::percent);
                break;
            case '&':
                push(out, Tok::amp);
                break;
            case '$':
                push(out, Tok::formula);
                break;
            case '.':
                if (n == '.' && peek(1) == '.')
                    at_ += 2, push(out, Tok::dots);
                else
                    space_ = true;  // a full stop
                break;
            case '"':
            case '`':
            case '#':
                space_ = true;
                break;
            default:
                push(out, Tok::symbol, 0, std::string_view(&s_[at_ - 1], 1));
        }
    }
};

}  // namespace detail

// The tokens of an answer. False: too long, or nothing in it. `commas_separate` reads "1,234" as two numbers.
inline bool lex(std::string_view text, bool commas_separate, std::vector<Token>& out) {
    if (text.size() > max_text) return false;
    if (text.size() > longest_formula && text.find_first_not_of("0123456789.,+- ") != std::string_view::npos)
        return false;
    std::string repaired = detail::repair(text);
    std::vector<Token> raw;
    raw.reserve(32);
    if (!detail::Lexer(repaired, commas_separate).run(raw)) return false;
    // Formula signs and the braces of \text{} only separate.
    bool space = false;
    out.clear();
    out.reserve(raw.size() + 1);
    for (Token& t : raw) {
        if (t.kind == Tok::formula || ((t.kind == Tok::brace || t.kind == Tok::brace_close) && t.id == 1)) {
            space = true;
            continue;
        }
        t.space |= space, space = false;
        out.push_back(std::move(t));
    }
    detail::fold_number_words(out);
    return !out.empty();
}

}  // namespace verifier
