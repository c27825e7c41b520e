// compare.h: the verdict on an answer, and the policies behind it.
//
// Mathematics decides wherever it can; these are the points where graders disagree, and what we do:
//
//   policy             rule                                                     reason
//   percent            25% is 25 and is 1/4; 25 is not 1/4                      golds leave the sign out or
//   in; never x for 100x degrees            90^\circ is 90 and is \pi/2                              the same
//   units, currency    dropped; two different known units differ               golds leave them out; 10 cm is
//   not 10 m mixed numbers      2\frac12, 7 3/4 are sums if proper and all integers      how MATH writes
//   them; else a product comma lists        any order, every element, none twice                     sets of
//   solutions have no order tuples             in order; (a,b) is not [a,b) is not a,b is not \{a,b\} points
//   and intervals, not sets several boxes      joined by "and", "or", a comma: one list; else the last  a
//   retraction is no list; 1 and 2 is not 2 names              x = 5 is 5; x = 5 is not y = 5; f(n) = n is
//   f(x) = x     the name is in the question base suffix        52_8 is 52_8 and 52; never 42, never 52_9 the
//   base is in the question letter case        words: free; single letters: significant                 Even
//   is even, but R is not r thousands commas   1,234 at top level; in brackets, or else two numbers (1,234)
//   is a point; both readings are tried decimal comma      only {,} without three digits after it 3,14 is a
//   list of two decimals           exact; an exact form may meet a decimal of 4 or more     see
//   Options::round_decimals
//                      digits by rounding; never two decimals, never integers
//   domain             symbols are real; a value counts where both sides have   sqrt(x^2) is |x|, not x
//                      one; integers in n!, floor, binomials, sums
//   log                natural or to base 10, whichever makes both sides agree  golds write \log for either
//   unread             an answer or gold that cannot be read is equal only to   never a shorter number, never
//   a reward
//                      the same text
//
// Nothing here throws (but bad_alloc), waits, or keeps state; work is counted, not timed (Budget), so any
// input ends within 50 ms and every verdict is repeatable. Thread-safe.
#pragma once
#include "canonical.h"
#include "parse.h"

namespace verifier {

enum class Verdict { equal, different, unparsed };

inline const char* verdict_name(Verdict v) {
    return v == Verdict::equal ? "equal" : v == Verdict::different ? "different" : "unparsed";
}

struct Grade {
    Verdict verdict = Verdict::unparsed;
    std::string answer;     // as extracted
    std::string canonical;  // equal answers have equal text, as far as possible (for majority votes)
    std::string why;
};

namespace detail {

constexpr int64_t steps_per_answer = 2000000;

// An answer, read once.
struct Answer {
    std::string_view raw;
    std::vector<Token> tokens;
    Tree tree, list_tree;  // list_tree: with commas between digits read as separators, where that is a choice
    bool lexed = false;

    Part part(bool commas) const {
        Part p;
        p.tree = commas ? &list_tree : &tree;
        p.node = p.tree->root;
        return p;
    }
};
inline std::string_view without_open_box(std::string_view s) {
    for (std::string_view box : {"\\\\boxed{", "\\boxed{"})
        if (starts(s, box) && s.size() > box.size() && find_boxes(s, false).empty())
            s.remove_prefix(box.size());
    return s;
}
inline void read(std::string_view text, Answer& out) {
    out.raw = without_open_box(unwrap(text));
    out.lexed = lex(out.raw, false, out.tokens);
    if (!out.lexed) return;
    parse(out.tokens, out.tree);
    if (!out.tree.read || !out.tree.ambiguous_commas) return;
    std::vector<Token> tokens;
    if (lex(out.raw, true, tokens)) parse(std::move(tokens), out.list_tree);
}
// The same but for blanks, styles and spelling variants.
inline bool same_tokens(const Answer& a, const Answer& b) {
    if (a.raw == b.raw) return !a.raw.empty();
    if (!a.lexed || !b.lexed || a.tokens.size() != b.tokens.size()) return false;
    for (size_t i = 0; i < a.tokens.size(); i++) {
        const Token &x = a.tokens[i], &y = b.tokens[i];
        if (x.kind != y.kind || x.id != y.id || x.s.size() != y.s.size()) return false;
        if (x.kind != Tok::word && x.s != y.s) return false;
        for (size_t k = 0; k < x.s.size(); k++)
            if (lower(x.s[k]) != lower(y.s[k])) return false;
    }
    return true;
}
inline Verdict compare(const Answer& gold, const Answer& pred, const Options& options, const char*& why) {
    why = "same text";
    if (same_tokens(gold, pred)) return Verdict::equal;
    why = "answer not read";
    if (!pred.lexed || !pred.tree.read) return Verdict::unparsed;
    why = "gold not read";
    if (!gold.lexed || !gold.tree.read) return Verdict::unparsed;
    Budget budget{steps_per_answer};
    Matcher matcher(options, budget);
    why = "same value";
    for (bool gold_list : {false, true})
        for (bool pred_list : {false, true}) {
            if ((gold_list && !gold.list_tree.read) || (pred_list && !pred.list_tree.read)) continue;
            if (matcher.match(gold.part(gold_list), pred.part(pred_list))) return Verdict::equal;
        }
    why = budget.left < 0 ? "too much work to decide" : "different value";
    return Verdict::different;
}
// Whether a sentence was read as a value: words only as the whole answer, a list of words or the name of a
// relation, not among numbers ("probably 5", "72, which is the total").
inline bool is_value(const Tree& t) {
    if (!t.read) return false;
    auto wordless = [&](int n) {
        return !any_node(t, n, [](const Node& node) { return node.kind == Kind::text; });
    };
    auto one = [&](int n) {
        if (t[n].kind != Kind::relation) return wordless(n);
        for (int k = 1; k < t[n].count; k++)
            if (!wordless(t.kid(n, k))) return false;
        return t[t.kid(n, 0)].kind == Kind::text || wordless(t.kid(n, 0));
    };
    if (t[t.root].kind == Kind::text) return true;
    if (t[t.root].kind != Kind::list) return one(t.root);
    int words = 0, values = 0;
    for (int k = 0; k < t[t.root].count; k++) {
        int n = t.kid(t.root, k);
        words += t[n].kind == Kind::text;
        values += one(n);
    }
    return words == t[t.root].count || values == t[t.root].count;
}
inline std::string canonical(const Answer& a) {
    std::string out;
    if (a.lexed && a.tree.read) {
        Budget budget{steps_per_answer / 2};
        out = Canonical(budget).text(a.part(false));
    }
    if (!out.empty()) return out;
    if (a.lexed && a.tokens.size() < 200) {
        for (const Token& t : a.tokens)
            out += t.s.empty() ? std::string(1, char('A' + int(t.kind) % 26)) + char('0' + t.id) : t.s,
                out += ' ';
    } else {
        out = std::string(a.raw.substr(0, 200));
    }
    return out;
}

}  // namespace detail

// Whether `pred`, a bare answer, is the answer `gold`.
inline Verdict compare(const std::string& gold, const std::string& pred, const Options& options = {}) {
    detail::Answer g, p;
    detail::read(gold, g), detail::read(pred, p);
    const char* why;
    return detail::compare(g, p, options, why);
}

inline Options options_for(Mode mode) {
    Options out;
    out.least_decimals = mode == Mode::rl ? 6 : 4;
    return out;
}

namespace detail {

inline void grade(const Answer& answer, const std::vector<std::string>& golds, const Options& options,
                  const char* found, Grade& out) {
    out.answer = std::string(answer.raw);
    if (answer.raw.empty()) {
        out.why = "empty answer";
        return;
    }
    out.canonical = canonical(answer);
    for (const std::string& text : golds) {
        Answer gold;
        read(text, gold);
        const char* why;
        Verdict v = compare(gold, answer, options, why);
        if (v == Verdict::equal || out.verdict == Verdict::unparsed)
            out.verdict = v, out.why = std::string(found) + ", " + why;
        if (v == Verdict::equal) return;
    }
}

}  // namespace detail

// Grades a completion (never a prompt) against golds, any of which counts. In rl mode only a closed box
// counts.
inline Grade grade(const std::string& completion, const std::vector<std::string>& golds, Mode mode) {
    Grade out;
    Extraction found = extract(completion, mode);
    out.why = found.why;
    if (found.candidates.empty()) return out;
    detail::Answer answer;
    bool chosen = false;
    for (const std::string& candidate : found.candidates) {
        detail::Answer a;
        detail::read(candidate, a);
        if (found.boxed || detail::is_value(a.tree)) {
            answer = std::move(a), chosen = true;
            break;
        }
    }
    if (!chosen) detail::read(found.candidates[0], answer);
    Options options = options_for(mode);
    options.last_side = !found.boxed;
    detail::grade(answer, golds, options, found.why, out);
    return out;
}

// Grades a bare answer: nothing is searched for.
inline Grade grade_answer(const std::string& text, const std::vector<std::string>& golds, Mode mode) {
    Grade out;
    detail::Answer answer;
    detail::read(text, answer);
    detail::grade(answer, golds, options_for(mode), "bare answer", out);
    return out;
}

}  // namespace verifier
