// extract.h: finds the answer in a model's output. It never looks at a prompt, and it does not parse.
//
// rl: the last balanced \boxed{} or \fbox{} after the last closing think tag, and nothing else; a short guess
//     in running text, an unclosed box or unclosed thinking earns nothing. Neighbouring boxes joined by
//     "and", "or", a comma or \quad are one list; a box after other words replaces those before it (a
//     retraction).
// lenient: for evaluation, reported apart. Where there is no box: <answer> tags, "####", "answer is", "A:", then
//     the last formula or number. Several readings of the found sentence are offered, most complete first;
//     the caller takes the first that can be read, without looking at the gold.
//
// Every scan is linear in the text. Nothing here throws but bad_alloc.
#pragma once
#include <algorithm>
#include <cstring>
#include <string>
#include <string_view>
#include <vector>

namespace verifier {

enum class Mode { rl, lenient };

// Longer outputs are not searched: a million-digit answer fits, and every output is done within milliseconds.
// Where there is no box, the lenient search looks at the last longest_search bytes.
constexpr size_t max_text = 1 << 20, longest_search = 1 << 17;

struct Extraction {
    std::vector<std::string> candidates;  // in order of preference; empty: no answer
    bool boxed = false;                   // from a box: an equation chain must hold as a whole
    const char* why = "";                 // where it was found, or why nothing was
};

namespace detail {

inline bool is_space(char c) {
    return c == ' ' || (c >= '\t' && c <= '\r');
}
inline bool is_digit(char c) {
    return c >= '0' && c <= '9';
}
inline bool is_letter(char c) {
    return (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z');
}
inline char lower(char c) {
    return c >= 'A' && c <= 'Z' ? char(c + 32) : c;
}
inline bool starts(std::string_view s, std::string_view prefix) {
    return s.substr(0, prefix.size()) == prefix;
}

inline std::string_view trim(std::string_view s) {
    while (!s.empty() && is_space(s.front())) s.remove_prefix(1);
    while (!s.empty() && is_space(s.back())) s.remove_suffix(1);
    return s;
}

// What the model wrote as its answer: after its thinking, up to its end-of-turn token.
// Returns false for thinking that never ends.
inline bool answer_part(std::string_view& text) {
    // The tags that models think in; the last one of any kind decides.
    static constexpr std::string_view thinking[][2] = {{"<think>", "</think>"},
                                                       {"<thinking>", "</thinking>"},
                                                       {"[THINK]", "[/THINK]"},
                                                       {"<|begin_of_thought|>", "<|end_of_thought|>"}};
    bool open = false;
    size_t last = 0;
    for (char first : {'<', '['})
        for (size_t at = text.find(first); at != std::string_view::npos; at = text.find(first, at + 1))
            for (auto& tag : thinking)
                for (int closing : {0, 1})
                    if (tag[closing][0] == first && at >= last && starts(text.substr(at), tag[closing]))
                        open = !closing, last = at + tag[closing].size();
    if (open) return false;
    text.remove_prefix(last);
    static constexpr std::string_view ends[] = {"<|im_end|>",
                                                "<|im_start|>",
                                                "<|endoftext|>",
                                                "<|eot_id|>",
                                                "<|end_of_text|>",
                                                "</s>",
                                                "<eos>",
                                                "<end_of_turn>",
                                                "<\xef\xbd\x9c"
                                                "end\xe2\x96\x81of\xe2\x96\x81sentence\xef\xbd\x9c>"};
    size_t end = text.size();
    for (size_t at = text.find('<'); at < end; at = text.find('<', at + 1)) {
        bool turn_ends = false;
        if (at + 1 == text.size() || !std::strchr("|/e\xef", text[at + 1])) continue;
        for (std::string_view token : ends) turn_ends |= starts(text.substr(at), token);
        if (turn_ends && !trim(text.substr(0, at)).empty()) end = at;
    }
    text = text.substr(0, end);
    return true;
}

struct Box {
    size_t open, begin, end,
        close;  // "\boxed{" starts at open; content [begin, end); close is past the brace
};

// \boxed 2 and \boxed\frac12: up to a blank, a formula's end or the text's.
inline Box bare_box(std::string_view text, size_t open, size_t begin) {
    size_t at = begin;
    int depth = 0;
    for (; at < text.size(); at++) {
        char c = text[at];
        if (c == '{') depth++;
        if (c == '}' && --depth < 0) break;
        if (c == '$' || c == '\n' || (depth == 0 && is_space(c))) break;
        if (c == '\\' && at + 1 < text.size() && (text[at + 1] == ')' || text[at + 1] == ']')) break;
    }
    return {open, begin, at, at};
}

// The closed boxes of a text, outermost only, the last 64 of them. `bare` also takes a box that lost its
// backslash ("boxed{16}", or with \b turned into a backspace).
inline std::vector<Box> find_boxes(std::string_view text, bool bare) {
    struct Open {
        size_t depth, open, begin;
    };
    std::vector<Open> open;
    std::vector<Box> closed;
    auto add = [&](Box box) {
        while (!closed.empty() && closed.back().open > box.open) closed.pop_back();
        if (closed.size() == 128) closed.erase(closed.begin(), closed.begin() + 64);
        closed.push_back(box);
    };
    size_t depth = 0;
    for (size_t at = 0; at < text.size(); at++) {
        char c = text[at];
        if (c == '{') {
            depth++;
        } else if (c == '}') {
            if (depth) depth--;
            while (!open.empty() && open.back().depth > depth) open.pop_back();
            if (!open.empty() && open.back().depth == depth) {
                add({open.back().open, open.back().begin, at, at + 1});
                open.pop_back();
            }
        } else if (c == '\\' || c == '\b' || (bare && c == 'b' && (!at || !is_letter(text[at - 1])))) {
            std::string_view rest = text.substr(at + (c == '\\'));
            size_t length = starts(rest, "boxed") || (c == '\b' && starts(rest.substr(1), "oxed")) ? 5
                            : c == '\\' && starts(rest, "fbox")                                    ? 4
                                                                                                   : 0;
            if (!length || (c == '\b' && !bare)) {
                if (c == '\\') at++;  // an escaped brace is text
                continue;
            }
            size_t begin = at + (c == '\\') + length;
            if (begin < text.size() && is_letter(text[begin])) continue;
            while (begin < text.size() && is_space(text[begin])) begin++;
            if (begin < text.size() && text[begin] == '{') {
                open.push_back({depth, at, begin + 1});
                depth++;
                at = begin;
            } else if (c == '\\') {
                Box box = bare_box(text, at, begin);
                if (box.end > box.begin) add(box);
            }
        }
    }
    return closed;
}

// Whether the text between two boxes only joins them: blanks, formula signs, "and", "or", a comma, \quad, and
// perhaps the next one's name ("y_2 =").
inline bool joins(std::string_view gap) {
    if (gap.size() > 80) return false;
    bool joined = false;
    while (!(gap = trim(gap)).empty()) {
        static constexpr std::string_view skip[] = {"$",   "\\(", "\\)", "\\[", "\\]",
                                                    "\\,", "\\;", "\\ ", "\\!"};
        static constexpr std::string_view join[] = {"\\text{and}",
                                                    "\\text{ and }",
                                                    "\\text{or}",
                                                    "\\text{ or }",
                                                    "\\qquad",
                                                    "\\quad",
                                                    "and",
                                                    "or",
                                                    ",",
                                                    ";",
                                                    "&"};
        bool used = false;
        for (std::string_view s : skip)
            if (!used && starts(gap, s)) gap.remove_prefix(s.size()), used = true;
        for (std::string_view s : join)
            if (!used && starts(gap, s)) gap.remove_prefix(s.size()), used = joined = true;
        if (used) continue;
        size_t equals = gap.find('=');
        if (!joined || equals == std::string_view::npos || equals == 0 || equals > 24) return false;
        for (char c : gap.substr(0, equals))
            if (!is_letter(c) && !is_digit(c) && !std::strchr("\\_{}() ", c)) return false;
        gap.remove_prefix(equals + 1);
    }
    return joined;
}

// Strips what encloses an answer: blanks, bold (also where only one end was cut off), quotes, a closing full
// stop or comma. Formula signs stay; the lexer drops them.
inline std::string_view unwrap(std::string_view s) {
    for (size_t before = s.size() + 1; before != s.size();) {
        before = s.size();
        s = trim(s);
        if (!s.empty() && s.front() == ':') s.remove_prefix(1);
        bool thin_space = s.size() > 1 && s[s.size() - 2] == '\\';  // "\," is no comma
        bool dots = s.size() > 1 && s[s.size() - 2] == '.';         // 1.23... is not 1.23
        if (!s.empty() && (s.back() == '.' || s.back() == ',') && !thin_space && !dots) s.remove_suffix(1);
        for (std::string_view mark : {"**", "__", "\"", "`"}) {
            bool front = starts(s, mark),
                 back = s.size() >= 2 * mark.size() && s.substr(s.size() - mark.size()) == mark;
            if (!front && !back) continue;
            bool alone = s.find(mark) == s.rfind(mark);
            if (front && (back || alone)) s.remove_prefix(mark.size());
            if (back && (front || alone)) s.remove_suffix(mark.size());
        }
    }
    return s;
}

// The last formula $..$, $$..$$, \(..\) or \[..\] of a text as [begin, end) of its content. A dollar sign
// that is money ("$80,000 and $120") does not open one: blanks must match on both sides, no digit may follow.
inline bool last_formula(std::string_view text, size_t& begin, size_t& end) {
    bool found = false, unclosed[2] = {false, false};
    for (size_t at = 0; at < text.size(); at++) {
        if (text[at] == '\\' && at + 1 < text.size()) {
            char c = text[at + 1];
            bool square = c == '[';
            if ((c == '(' || square) && !unclosed[square]) {
                size_t close = text.find(square ? "\\]" : "\\)", at + 2);
                unclosed[square] = close == std::string_view::npos;
                if (!unclosed[square]) begin = at + 2, end = close, found = true, at = close;
            }
            at++;
        } else if (text[at] == '$') {
            bool two = at + 1 < text.size() && text[at + 1] == '$';
            size_t from = at + 1 + two, close = from;
            for (; close < text.size() && text[close] != '$'; close++)
                if (text[close] == '\\') close++;
            if (close >= text.size() || close == from) {
                at = from - 1;
                continue;
            }
            bool digit_after = close + 1 < text.size() && is_digit(text[close + 1]);
            if (!two && (is_space(text[from]) != is_space(text[close - 1]) || digit_after)) continue;
            begin = from, end = close, found = true, at = close + (two && close + 1 < text.size());
        }
    }
    return found;
}

// The last number of a text, with sign, thousands commas, a slash fraction, currency in front and % behind.
inline bool last_number(std::string_view text, size_t& begin, size_t& end) {
    size_t at = text.size();
    while (at && !is_digit(text[at - 1])) at--;
    if (!at) return false;
    end = begin = at;
    auto part = [&](size_t i) {
        char c = text[i];
        if (is_digit(c)) return true;
        bool digit_before = i && is_digit(text[i - 1]),
             digit_after = i + 1 < text.size() && is_digit(text[i + 1]);
        if (c == '.') return digit_after;
        return (c == ',' || c == '/') && digit_before && digit_after;
    };
    while (begin && part(begin - 1)) begin--;
    size_t whole = begin;  // 3 1/2
    while (whole && text[whole - 1] == ' ') whole--;
    bool mixed = whole < begin && whole && is_digit(text[whole - 1]) &&
                 text.substr(begin, end - begin).find('/') != std::string_view::npos;
    if (mixed)
        for (begin = whole; begin && is_digit(text[begin - 1]);) begin--;
    if (begin && text[begin - 1] == '$') begin--;
    bool unary = begin && text[begin - 1] == '-' &&
                 (begin < 2 || !(is_digit(text[begin - 2]) || is_letter(text[begin - 2])));
    if (unary) begin--;
    size_t sign = end;
    while (sign < text.size() && (text[sign] == ' ' || text[sign] == '\\')) sign++;
    if (sign < text.size() && text[sign] == '%')
        end = sign + 1;
    else if (starts(text.substr(sign), "\xcf\x80") || starts(text.substr(sign), "pi"))
        end = sign + 2;
    return true;
}

// Where the sentence that starts at `text` ends: at a line's end, or a full stop before a blank, outside
// formulas.
inline std::string_view sentence(std::string_view text) {
    while (!text.empty() && (is_space(text.front()) || text.front() == ':')) text.remove_prefix(1);
    bool display = starts(text, "\\[") || starts(text, "$$");
    size_t at = display ? text.find(text[0] == '$' ? "$$" : "\\]", 2) : 0;
    if (at == std::string_view::npos) at = 0;
    bool formula = false;
    for (; at < text.size(); at++) {
        char c = text[at];
        if (c == '\\') {
            at++;
            continue;
        }
        if (c == '$') formula = !formula;
        if (c == '\n') break;
        if (c == '.' && at + 1 < text.size() && is_space(text[at + 1]) && !formula) break;
        if (c == '<' && at + 1 < text.size() && (text[at + 1] == '/' || text[at + 1] == '|')) break;
    }
    return text.substr(0, std::min({at, text.size(), size_t(20000)}));
}

// The readings of a sentence that may state the answer, most complete first. `states` says that it does ("the
// answer is ..."): then it counts as a whole, and may be words; otherwise only what follows its verb, with a
// sign of mathematics in it.
inline void offer(std::string_view s, bool states, std::vector<std::string>& out) {
    auto add = [&](std::string_view candidate) {
        candidate = unwrap(candidate);
        if (candidate.empty() || candidate.size() > 20000 || (!out.empty() && out.back() == candidate))
            return;
        if (states || candidate.find_first_of("0123456789\\=<>^") != std::string_view::npos)
            out.emplace_back(candidate);
    };
    s = unwrap(s);
    if (states) add(s);
    size_t bold = s.rfind("**"),
           bold_open = bold == std::string_view::npos || !bold ? bold : s.rfind("**", bold - 1);
    if (bold_open != std::string_view::npos && bold_open < bold)
        add(s.substr(bold_open + 2, bold - bold_open - 2));
    size_t verb = std::string_view::npos;
    for (std::string_view word : {" is ", " are ", " equals ", ": "}) {
        size_t at = s.rfind(word);
        if (at != std::string_view::npos && (verb == std::string_view::npos || at + word.size() > verb))
            verb = at + word.size();
    }
    size_t clause = s.find(", ");  // "72, which is the total"
    if (states && verb != std::string_view::npos && clause < verb) add(s.substr(0, clause));
    if (verb != std::string_view::npos) add(s.substr(verb));
    if (verb != std::string_view::npos) {  // "is $9$ when divided by $10$"
        std::string_view rest = trim(s.substr(verb));
        size_t close = starts(rest, "$")     ? rest.find('$', 1)
                       : starts(rest, "\\(") ? rest.find("\\)", 2)
                                             : std::string_view::npos;
        bool money = starts(rest, "$") && close != std::string_view::npos && close + 1 < rest.size() &&
                     is_digit(rest[close + 1]);
        if (close != std::string_view::npos && !money) add(rest.substr(0, close + (rest[0] == '$' ? 1 : 2)));
    }
    size_t comma = s.find(", ", verb == std::string_view::npos ? 0 : verb);
    if (comma != std::string_view::npos && (states || verb != std::string_view::npos))
        add(verb == std::string_view::npos ? s.substr(0, comma) : s.substr(verb, comma - verb));
    size_t begin = 0, end = 0, number = 0, number_end = 0;
    bool formula = last_formula(s, begin, end), digits = last_number(s, number, number_end);
    if (formula && (!digits || number < end)) add(s.substr(begin, end - begin));
    if (digits) add(s.substr(number, number_end - number));
}

// The last sentence of a text, at most its last 4000 bytes.
inline std::string_view last_sentence(std::string_view text) {
    text = trim(text);
    if (text.size() > 4000) text.remove_prefix(text.size() - 4000);
    size_t line = text.rfind('\n');
    if (line != std::string_view::npos) text = trim(text.substr(line + 1));
    for (size_t at = text.size() > 2 ? text.size() - 2 : 0; at; at--) {
        if (text[at] != ' ') continue;
        size_t stop = at;  // ". ", ".$$ ", ".\] "
        while (stop && text[stop - 1] && std::strchr("$])\\", text[stop - 1])) stop--;
        if (stop && text[stop - 1] == '.') return text.substr(at + 1);
    }
    return text;
}

// Past "answer" at `at`: the start of what is stated, or npos where nothing is ("to answer this").
inline size_t stated(std::string_view text, const std::string& small, size_t at) {
    bool final = at >= 6 && small.compare(at - 6, 6, "final ") == 0, sign = false;
    size_t i = at + 6;
    for (bool moved = true; moved && i < text.size();) {
        moved = false;
        std::string_view rest = std::string_view(small).substr(i);
        bool closes = rest.size() > 2 && (starts(rest, "**") || starts(rest, "__")) &&
                      is_space(rest[2]);  // "**Answer:** 42"
        if (closes)
            i += 2, moved = true;
        else if (is_space(rest[0]) || (!sign && (rest[0] == '*' || rest[0] == '_')))
            i++, moved = true;
        if (rest[0] == ':' || rest[0] == '=') i++, moved = sign = true;
        if (starts(rest, "is ") || starts(rest, "is:")) i += 2, moved = sign = true;
        if (starts(rest, "are ")) i += 3, moved = sign = true;
        if (rest[0] == '\n' && final) sign = true;
    }
    if (i >= text.size()) return std::string_view::npos;
    bool formula = text[i] == '$' ||
                   (text[i] == '\\' && i + 1 < text.size() && (text[i + 1] == '[' || text[i + 1] == '('));
    return sign || formula ? i : std::string_view::npos;
}

inline void extract_lenient(std::string_view text, Extraction& out) {
    if (text.size() > longest_search) text.remove_prefix(text.size() - longest_search);
    std::string small(text);
    for (char& c : small) c = lower(c);
    size_t best = std::string_view::npos, start = 0;
    auto offer_start = [&](size_t at, size_t content, const char* why) {
        if (at == std::string_view::npos || (best != std::string_view::npos && at < best)) return;
        best = at, start = content, out.why = why;
    };
    size_t tag = small.rfind("<answer>");
    if (tag != std::string::npos) offer_start(tag, tag + 8, "answer tag");
    size_t hashes = small.rfind("####");
    if (hashes != std::string::npos && !trim(text.substr(hashes + 4)).empty())
        offer_start(hashes, hashes + 4, "after ####");
    size_t a = small.rfind("\na:");
    if (a != std::string::npos) offer_start(a, a + 3, "after A:");
    if (starts(small, "a:")) offer_start(0, 2, "after A:");
    size_t at = small.rfind("answer");
    for (int tries = 0; at != std::string::npos && tries < 64; tries++) {
        size_t content = at && small[at - 1] == '<' ? std::string::npos : stated(text, small, at);
        if (content != std::string::npos && !trim(text.substr(content)).empty()) {
            offer_start(at, content, "answer statement");
            break;
        }
        at = at ? small.rfind("answer", at - 1) : std::string::npos;
    }
    if (best != std::string_view::npos) {
        offer(sentence(text.substr(start)), true, out.candidates);
        if (!out.candidates.empty()) return;
    }
    std::string_view all = trim(text);
    if (all.size() <= 200 && all.find('\n') == std::string_view::npos) {
        bool prose =
            all.find(" is ") != std::string_view::npos || all.find(" are ") != std::string_view::npos;
        if (!prose) out.candidates.emplace_back(unwrap(all));
    }
    offer(last_sentence(text), false, out.candidates);
    size_t begin = 0, end = 0, number = 0, number_end = 0;
    bool formula = last_formula(text, begin, end), digits = last_number(text, number, number_end);
    if (formula && end - begin < 20000 && (!digits || number < end))
        out.candidates.emplace_back(unwrap(text.substr(begin, end - begin)));
    if (digits) out.candidates.emplace_back(text.substr(number, number_end - number));
    out.why = "last formula or number";
}

}  // namespace detail

// The answer of a completion, as text. An empty list of candidates means there is none; `why` says so.
inline Extraction extract(const std::string& completion, Mode mode) {
    Extraction out;
    std::string_view text = completion;
    if (text.size() > max_text) {
        out.why = "output too long";
        return out;
    }
    if (!detail::answer_part(text)) {
        out.why = "thinking never ended";
        return out;
    }
    std::vector<detail::Box> boxes = detail::find_boxes(text, mode == Mode::lenient);
    if (!boxes.empty()) {
        size_t first = boxes.size() - 1;
        while (first &&
               detail::joins(text.substr(boxes[first - 1].close, boxes[first].open - boxes[first - 1].close)))
            first--;
        std::string answer;
        for (size_t i = first; i < boxes.size(); i++) {
            std::string_view content =
                detail::trim(text.substr(boxes[i].begin, boxes[i].end - boxes[i].begin));
            if (i > first && content == answer) continue;
            if (i > first) answer += ", ";
            answer += content;
        }
        out.candidates.push_back(answer);
        out.boxed = true;
        out.why = boxes.size() - first > 1 ? "neighbouring boxes" : "box";
        return out;
    }
    if (mode == Mode::rl) {
        out.why = "no closed box";
        return out;
    }
    detail::extract_lenient(text, out);
    out.candidates.erase(std::remove(out.candidates.begin(), out.candidates.end(), std::string()),
                         out.candidates.end());
    if (out.candidates.empty()) out.why = "no answer found";
    return out;
}

}  // namespace verifier
