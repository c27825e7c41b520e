// words.h: the vocabulary of answers: kinds of token, LaTeX commands, words of plain text, signs outside
// ASCII.
#pragma once
#include <cstdint>
#include <string>
#include <string_view>
#include <unordered_map>

namespace verifier {

// clang-format off
enum class Tok : uint8_t {
    end, number, scale, symbol, word, constant, function, accent, big, begin_env, end_env,
    plus, minus, pm, mp, times, divide, slash, power, sub, open, close, bracket, bracket_close, brace, brace_close,
    set_open, set_close, bar, bar_open, bar_close, floor_open, floor_close, ceil_open, ceil_close, angle_open,
    angle_close, relation, cup, cap, setminus, comma, semicolon, colon, conj_and, conj_or, bang, prime, percent,
    degree, amp, row, dots, mod, frac, sqrt, binom, choose, over, empty_set, formula
};
// clang-format on

// The relations, also used by the parser's nodes.
enum class Rel : uint8_t { eq, ne, lt, le, gt, ge, in, approx, equiv };

enum class Const : uint8_t { pi, e, i, infinity };

enum class Fn : uint8_t {
    sin,
    cos,
    tan,
    cot,
    sec,
    csc,
    asin,
    acos,
    atan,
    acot,
    sinh,
    cosh,
    tanh,
    asinh,
    acosh,
    atanh,
    ln,
    log,
    lg,
    exp,
    max,
    min,
    gcd,
    lcm,
    abs,
    floor,
    ceil,
    sqrt,
    cbrt,
    det,
    arg,
    re,
    im,
    sgn
};

constexpr uint8_t word_tens = 1, word_small = 2;  // "twenty" to "ninety", the others below

struct Token {
    Tok kind = Tok::end;
    uint8_t id = 0;           // Rel, Const, Fn; of a number in words: word_tens or word_small
    bool space = false;       // blank before it
    bool text = false;        // inside \text{}
    bool separators = false;  // a number whose commas were read as thousands separators
    std::string s;            // number: digits as written; symbol, word, accent, big, environment: its name
};

namespace detail {

struct Entry {
    Tok kind;
    uint8_t id;
    const char* name;
};

inline Entry fn(Fn f) {
    return {Tok::function, uint8_t(f), nullptr};
}
inline Entry rel(Rel r) {
    return {Tok::relation, uint8_t(r), nullptr};
}
inline Entry constant(Const c) {
    return {Tok::constant, uint8_t(c), nullptr};
}
inline Entry plain(Tok t, const char* name = nullptr) {
    return {t, 0, name};
}

using Table = std::unordered_map<std::string_view, Entry>;

// clang-format off
// Words that mean the same in LaTeX ("\sin") and in plain text ("sin").
inline const Table& shared_words() {
    static const Table table = {
        {"sin", fn(Fn::sin)}, {"cos", fn(Fn::cos)}, {"tan", fn(Fn::tan)}, {"cot", fn(Fn::cot)}, {"sec", fn(Fn::sec)},
        {"csc", fn(Fn::csc)}, {"arcsin", fn(Fn::asin)}, {"arccos", fn(Fn::acos)}, {"arctan", fn(Fn::atan)},
        {"arccot", fn(Fn::acot)}, {"sinh", fn(Fn::sinh)}, {"cosh", fn(Fn::cosh)}, {"tanh", fn(Fn::tanh)},
        {"asin", fn(Fn::asin)}, {"acos", fn(Fn::acos)}, {"atan", fn(Fn::atan)}, {"tg", fn(Fn::tan)}, {"ctg", fn(Fn::cot)},
        {"arctg", fn(Fn::atan)}, {"cosec", fn(Fn::csc)}, {"arcsinh", fn(Fn::asinh)}, {"arccosh", fn(Fn::acosh)},
        {"arctanh", fn(Fn::atanh)}, {"ln", fn(Fn::ln)}, {"log", fn(Fn::log)}, {"lg", fn(Fn::lg)}, {"exp", fn(Fn::exp)},
        {"max", fn(Fn::max)}, {"min", fn(Fn::min)}, {"gcd", fn(Fn::gcd)}, {"lcm", fn(Fn::lcm)}, {"det", fn(Fn::det)},
        {"pi", constant(Const::pi)}, {"mod", plain(Tok::mod)},
    };
    return table;
}

inline const Table& plain_words() {
    static const Table table = {
        {"sqrt", plain(Tok::sqrt)}, {"abs", fn(Fn::abs)}, {"floor", fn(Fn::floor)}, {"ceil", fn(Fn::ceil)},
        {"cbrt", fn(Fn::cbrt)}, {"inf", constant(Const::infinity)}, {"infinity", constant(Const::infinity)},
        {"Infinity", constant(Const::infinity)}, {"infty", constant(Const::infinity)}, {"oo", constant(Const::infinity)},
        {"and", plain(Tok::conj_and)}, {"or", plain(Tok::conj_or)}, {"percent", plain(Tok::percent)},
        {"percentage", plain(Tok::percent)}, {"pct", plain(Tok::percent)}, {"degrees", plain(Tok::degree)},
        {"degree", plain(Tok::degree)}, {"deg", plain(Tok::degree)}, {"equals", rel(Rel::eq)}, {"is", rel(Rel::eq)},
        {"are", rel(Rel::eq)}, {"union", plain(Tok::cup)}, {"zero", {Tok::number, word_small, "0"}}, {"one", {Tok::number, word_small, "1"}},
        {"two", {Tok::number, word_small, "2"}}, {"three", {Tok::number, word_small, "3"}}, {"four", {Tok::number, word_small, "4"}},
        {"five", {Tok::number, word_small, "5"}}, {"six", {Tok::number, word_small, "6"}}, {"seven", {Tok::number, word_small, "7"}},
        {"eight", {Tok::number, word_small, "8"}}, {"nine", {Tok::number, word_small, "9"}}, {"ten", {Tok::number, word_small, "10"}},
        {"eleven", {Tok::number, word_small, "11"}}, {"twelve", {Tok::number, word_small, "12"}}, {"thirteen", {Tok::number, word_small, "13"}},
        {"fourteen", {Tok::number, word_small, "14"}}, {"fifteen", {Tok::number, word_small, "15"}}, {"sixteen", {Tok::number, word_small, "16"}},
        {"seventeen", {Tok::number, word_small, "17"}}, {"eighteen", {Tok::number, word_small, "18"}}, {"nineteen", {Tok::number, word_small, "19"}},
        {"twenty", {Tok::number, word_tens, "20"}}, {"thirty", {Tok::number, word_tens, "30"}}, {"forty", {Tok::number, word_tens, "40"}},
        {"fifty", {Tok::number, word_tens, "50"}}, {"sixty", {Tok::number, word_tens, "60"}}, {"seventy", {Tok::number, word_tens, "70"}},
        {"eighty", {Tok::number, word_tens, "80"}}, {"ninety", {Tok::number, word_tens, "90"}}, {"hundred", plain(Tok::scale, "100")},
        {"thousand", plain(Tok::scale, "1000")}, {"million", plain(Tok::scale, "1000000")},
        {"billion", plain(Tok::scale, "1000000000")}, {"trillion", plain(Tok::scale, "1000000000000")},
    };
    return table;
}

inline const Table& commands() {
    static const Table table = {
        {"frac", plain(Tok::frac)}, {"dfrac", plain(Tok::frac)}, {"tfrac", plain(Tok::frac)}, {"cfrac", plain(Tok::frac)},
        {"nicefrac", plain(Tok::frac)}, {"sfrac", plain(Tok::frac)}, {"surd", plain(Tok::sqrt)}, {"colon", plain(Tok::colon)},
        {"sqrt", plain(Tok::sqrt)}, {"binom", plain(Tok::binom)}, {"dbinom", plain(Tok::binom)}, {"tbinom", plain(Tok::binom)},
        {"choose", plain(Tok::choose)}, {"over", plain(Tok::over)}, {"cdot", plain(Tok::times)}, {"times", plain(Tok::times)},
        {"ast", plain(Tok::times)}, {"div", plain(Tok::divide)}, {"pm", plain(Tok::pm)}, {"mp", plain(Tok::mp)},
        {"le", rel(Rel::le)}, {"leq", rel(Rel::le)}, {"leqslant", rel(Rel::le)}, {"leqq", rel(Rel::le)}, {"lt", rel(Rel::lt)},
        {"ge", rel(Rel::ge)}, {"geq", rel(Rel::ge)}, {"geqslant", rel(Rel::ge)}, {"geqq", rel(Rel::ge)}, {"gt", rel(Rel::gt)},
        {"ne", rel(Rel::ne)}, {"neq", rel(Rel::ne)}, {"in", rel(Rel::in)}, {"approx", rel(Rel::approx)},
        {"thickapprox", rel(Rel::approx)}, {"simeq", rel(Rel::approx)}, {"sim", rel(Rel::approx)}, {"equiv", rel(Rel::equiv)},
        {"cup", plain(Tok::cup)}, {"bigcup", plain(Tok::cup)}, {"cap", plain(Tok::cap)}, {"setminus", plain(Tok::setminus)},
        {"backslash", plain(Tok::setminus)}, {"land", plain(Tok::conj_and)}, {"wedge", plain(Tok::conj_and)},
        {"lor", plain(Tok::conj_or)}, {"vee", plain(Tok::conj_or)}, {"infty", constant(Const::infinity)},
        {"lfloor", plain(Tok::floor_open)}, {"rfloor", plain(Tok::floor_close)}, {"lceil", plain(Tok::ceil_open)},
        {"rceil", plain(Tok::ceil_close)}, {"langle", plain(Tok::angle_open)}, {"rangle", plain(Tok::angle_close)},
        {"lvert", plain(Tok::bar_open)}, {"rvert", plain(Tok::bar_close)}, {"vert", plain(Tok::bar)}, {"mid", plain(Tok::bar)},
        {"lVert", plain(Tok::bar_open)}, {"rVert", plain(Tok::bar_close)}, {"lbrace", plain(Tok::set_open)},
        {"rbrace", plain(Tok::set_close)}, {"lbrack", plain(Tok::bracket)}, {"rbrack", plain(Tok::bracket_close)},
        {"circ", plain(Tok::degree)}, {"degree", plain(Tok::degree)}, {"prime", plain(Tok::prime)}, {"bmod", plain(Tok::mod)},
        {"pmod", plain(Tok::mod)}, {"ldots", plain(Tok::dots)}, {"dots", plain(Tok::dots)}, {"cdots", plain(Tok::dots)},
        {"dotsc", plain(Tok::dots)}, {"dotsb", plain(Tok::dots)}, {"dotsm", plain(Tok::dots)}, {"emptyset", plain(Tok::empty_set)},
        {"varnothing", plain(Tok::empty_set)}, {"sum", plain(Tok::big, "sum")}, {"prod", plain(Tok::big, "prod")},
        {"int", plain(Tok::big, "int")}, {"iint", plain(Tok::big, "iint")}, {"lim", plain(Tok::big, "lim")},
        {"overline", plain(Tok::accent, "bar")}, {"bar", plain(Tok::accent, "bar")}, {"vec", plain(Tok::accent, "vec")},
        {"overrightarrow", plain(Tok::accent, "vec")}, {"hat", plain(Tok::accent, "hat")}, {"widehat", plain(Tok::accent, "hat")},
        {"tilde", plain(Tok::accent, "tilde")}, {"dot", plain(Tok::accent, "dot")}, {"ddot", plain(Tok::accent, "ddot")},
        {"operatorname", plain(Tok::accent)},
        {"Re", fn(Fn::re)}, {"Im", fn(Fn::im)}, {"arg", fn(Fn::arg)},
    };
    return table;
}
// clang-format on

// Commands without meaning for the value.
inline bool is_spacing(std::string_view c) {
    static constexpr std::string_view list[] = {
        "left",     "right",     "big",    "Big",          "bigg",       "Bigg",        "bigl",
        "bigr",     "Bigl",      "Bigr",   "biggl",        "biggr",      "Biggl",       "Biggr",
        "middle",   "quad",      "qquad",  "displaystyle", "textstyle",  "scriptstyle", "limits",
        "nolimits", "thinspace", "hfill",  "enspace",      "medspace",   "thickspace",  "negthinspace",
        "rm",       "bf",        "it",     "angle",        "triangle",   "boxed",       "fbox",
        "Box",      "nonumber",  "pounds", "euro",         "small",      "large",       "bigskip",
        "newline",  "centering", "strut",  "mathstrut",    "normalsize", "Large",       "LARGE",
        "huge",     "Huge",      "tiny",   "checkmark",    "square",     "blacksquare", "qed"};
    for (std::string_view s : list)
        if (s == c) return true;
    return false;
}
inline bool is_text_command(std::string_view c) {
    static constexpr std::string_view list[] = {"text",   "textbf",     "textit", "textrm", "textsf",
                                                "texttt", "textnormal", "textup", "mbox",   "hbox",
                                                "mathrm", "mathsf",     "mathtt", "emph"};
    for (std::string_view s : list)
        if (s == c) return true;
    return false;
}
inline bool is_style(std::string_view c) {
    static constexpr std::string_view list[] = {"mathbf",     "mathit", "mathcal",   "mathscr", "mathfrak",
                                                "boldsymbol", "bm",     "pmb",       "mathbb",  "mathnormal",
                                                "underline",  "num",    "ensuremath"};
    for (std::string_view s : list)
        if (s == c) return true;
    return false;
}
// Commands that are dropped together with the group behind them.
inline bool is_dropped_with_group(std::string_view c) {
    static constexpr std::string_view list[] = {"color",    "textcolor", "hspace", "vspace", "phantom",
                                                "hphantom", "vphantom",  "tag",    "label"};
    for (std::string_view s : list)
        if (s == c) return true;
    return false;
}
inline bool is_greek(std::string_view c) {
    static constexpr std::string_view list[] = {
        "alpha",      "beta",       "gamma",   "delta",    "epsilon", "varepsilon", "zeta",     "eta",
        "theta",      "vartheta",   "iota",    "kappa",    "lambda",  "mu",         "nu",       "xi",
        "rho",        "varrho",     "sigma",   "varsigma", "tau",     "upsilon",    "phi",      "varphi",
        "chi",        "psi",        "omega",   "Gamma",    "Delta",   "Theta",      "Lambda",   "Xi",
        "Pi",         "Sigma",      "Upsilon", "Phi",      "Psi",     "Omega",      "hbar",     "ell",
        "aleph",      "partial",    "nabla",   "odot",     "star",    "forall",     "exists",   "to",
        "rightarrow", "Rightarrow", "implies", "mapsto",   "iff",     "subset",     "subseteq", "cong",
        "perp",       "parallel",   "oplus",   "mho",      "imath",   "jmath",      "propto"};
    for (std::string_view s : list)
        if (s == c) return true;
    return false;
}

// clang-format off
struct Unicode {
    const char* bytes;
    const char* latex;
};
// Signs outside ASCII, as LaTeX. Commands end in a blank so that a letter may follow.
inline const Unicode* unicode_table(size_t& size) {
    static constexpr Unicode table[] = {
        {"\xe2\x88\x92", "-"}, {"\xe2\x80\x93", "-"}, {"\xe2\x80\x94", "-"}, {"\xe2\x80\x90", "-"}, {"\xe2\x80\x91", "-"},
        {"\xc3\x97", "\\times "}, {"\xe2\x8b\x85", "\\cdot "}, {"\xc2\xb7", "\\cdot "}, {"\xe2\x88\x99", "\\cdot "},
        {"\xc3\xb7", "\\div "}, {"\xcf\x80", "\\pi "}, {"\xe2\x88\x9a", "\\sqrt "}, {"\xe2\x88\x9e", "\\infty "},
        {"\xe2\x89\xa4", "\\le "}, {"\xe2\x89\xa5", "\\ge "}, {"\xe2\xa9\xbd", "\\le "}, {"\xe2\xa9\xbe", "\\ge "},
        {"\xe2\x89\xa0", "\\ne "}, {"\xe2\x89\x88", "\\approx "}, {"\xe2\x88\x88", "\\in "}, {"\xe2\x88\xaa", "\\cup "},
        {"\xe2\x88\xa9", "\\cap "}, {"\xe2\x88\x96", "\\setminus "}, {"\xc2\xb1", "\\pm "}, {"\xe2\x88\x93", "\\mp "},
        {"\xc2\xb0", "\\circ "}, {"\xe2\x88\x98", "\\circ "}, {"\xc2\xb2", "^2"}, {"\xc2\xb3", "^3"}, {"\xc2\xb9", "^1"},
        {"\xe2\x81\xb0", "^0"}, {"\xe2\x81\xb4", "^4"}, {"\xe2\x81\xb5", "^5"}, {"\xe2\x81\xb6", "^6"},
        {"\xe2\x81\xb7", "^7"}, {"\xe2\x81\xb8", "^8"}, {"\xe2\x81\xb9", "^9"}, {"\xe2\x81\xbb", "^-"},
        {"\xe2\x81\xba", "^+"}, {"\xe2\x81\xbf", "^n"}, {"\xe2\x82\x99", "_n"}, {"\xe2\x82\x80", "_0"},
        {"\xe2\x82\x81", "_1"}, {"\xe2\x82\x82", "_2"}, {"\xe2\x82\x83", "_3"}, {"\xe2\x82\x84", "_4"},
        {"\xe2\x82\x85", "_5"}, {"\xe2\x82\x86", "_6"}, {"\xe2\x82\x87", "_7"}, {"\xe2\x82\x88", "_8"},
        {"\xe2\x82\x89", "_9"}, {"\xc2\xbd", "\\frac{1}{2}"}, {"\xc2\xbc", "\\frac{1}{4}"}, {"\xc2\xbe", "\\frac{3}{4}"},
        {"\xe2\x85\x93", "\\frac{1}{3}"}, {"\xe2\x85\x94", "\\frac{2}{3}"}, {"\xe2\x85\x95", "\\frac{1}{5}"},
        {"\xe2\x85\x96", "\\frac{2}{5}"}, {"\xe2\x85\x97", "\\frac{3}{5}"}, {"\xe2\x85\x98", "\\frac{4}{5}"},
        {"\xe2\x85\x99", "\\frac{1}{6}"}, {"\xe2\x85\x9a", "\\frac{5}{6}"}, {"\xe2\x85\x9b", "\\frac{1}{8}"},
        {"\xe2\x85\x9c", "\\frac{3}{8}"}, {"\xe2\x85\x9d", "\\frac{5}{8}"}, {"\xe2\x85\x9e", "\\frac{7}{8}"},
        {"\xe2\x88\x9b", "\\sqrt[3]"}, {"\xe2\x81\x84", "/"}, {"\xe2\x88\x95", "/"}, {"\xef\xbc\x85", "\\%"},
        {"\xce\xb5", "\\epsilon "}, {"\xcf\x95", "\\phi "}, {"\xce\xb7", "\\eta "}, {"\xcf\x81", "\\rho "},
        {"\xcf\x84", "\\tau "}, {"\xcf\x88", "\\psi "}, {"\xce\xbe", "\\xi "}, {"\xce\x94", "\\Delta "},
        {"\xce\xa9", "\\Omega "}, {"\xe2\x84\xa6", "\\Omega "}, {"\xe2\x82\xb9", "\\pounds "}, {"\xc2\xa2", "\\text{ cents}"}, {"\xce\xb1", "\\alpha "}, {"\xce\xb2", "\\beta "},
        {"\xce\xb3", "\\gamma "}, {"\xce\xb4", "\\delta "}, {"\xce\xb8", "\\theta "}, {"\xce\xbb", "\\lambda "},
        {"\xce\xbc", "\\mu "}, {"\xcf\x83", "\\sigma "}, {"\xcf\x86", "\\varphi "}, {"\xcf\x89", "\\omega "},
        {"\xe2\x84\x9d", "\\mathbb{R}"}, {"\xe2\x84\xa4", "\\mathbb{Z}"}, {"\xe2\x88\x85", "\\emptyset "},
        {"\xe2\x8c\x8a", "\\lfloor "}, {"\xe2\x8c\x8b", "\\rfloor "}, {"\xe2\x8c\x88", "\\lceil "}, {"\xe2\x8c\x89", "\\rceil "},
        {"\xe2\x9f\xa8", "\\langle "}, {"\xe2\x9f\xa9", "\\rangle "}, {"\xe2\x80\xa6", "\\ldots "}, {"\xe2\x80\xb2", "'"},
        {"\xe2\x82\xac", "\\euro "}, {"\xc2\xa3", "\\pounds "}, {"\xc2\xa5", "\\pounds "}, {"\xc2\xa0", " "},
        {"\xe2\x80\x89", " "}, {"\xe2\x80\xaf", " "}, {"\xe2\x80\x8b", ""}, {"\xef\xbc\x8c", ","}, {"\xe3\x80\x81", ","},
        {"\xef\xbc\x9b", ";"}, {"\xef\xbc\x9a", ":"}, {"\xef\xbc\x88", "("}, {"\xef\xbc\x89", ")"}, {"\xef\xbc\x9d", "="},
        {"\xe3\x80\x82", ""}, {"\xe2\x80\x99", "'"}, {"\xe2\x80\x98", "'"}, {"\xe2\x80\x9c", "\""}, {"\xe2\x80\x9d", "\""}};
    size = sizeof table / sizeof *table;
    return table;
}
// clang-format on
inline const char* unicode_latex(std::string_view at, size_t& length) {
    static const std::unordered_map<std::string_view, const char*> signs = [] {
        std::unordered_map<std::string_view, const char*> out;
        size_t size;
        const Unicode* table = unicode_table(size);
        for (size_t i = 0; i < size; i++) out[table[i].bytes] = table[i].latex;
        return out;
    }();
    length = (at[0] & 0xe0) == 0xc0 ? 2 : (at[0] & 0xf0) == 0xe0 ? 3 : 1;
    auto it = signs.find(at.substr(0, length));
    if (it != signs.end()) return it->second;
    length = 1;
    return nullptr;
}

}  // namespace detail
}  // namespace verifier
