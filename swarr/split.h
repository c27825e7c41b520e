// split.h: cuts text into the pieces inside which byte pairs are merged ("pre-tokenization").
//
// The patterns of GPT-2, Qwen and Llama 3 are regular expressions. A backtracking engine is slow on them and
// overflows its stack on long input; here each is a scanner that looks at every character once or twice.
// With L = letter, N = number, S = whitespace (see unicode.h for which Unicode):
//
//   Qwen    (?i:'s|'t|'re|'ve|'m|'ll|'d)|[^\r\n L N]?L+|N| ?[^S L N]+[\r\n]*|S*[\r\n]+|S+(?!\S)|S+
//   Llama 3 the same with N{1,3}
//   GPT-2   's|'t|'re|'ve|'m|'ll|'d| ?L+| ?N+| ?[^S L N]+|S+(?!\S)|S+
//
// All scanners read up to 8 bytes past the end of the text: the caller pads it with zeros.
#pragma once
#include <cstdint>
#include <cstring>
#include <string_view>

#include "unicode.h"

enum class Split { none, gpt2, qwen, llama3 };

constexpr size_t split_padding = 8;

// The regular expression of a split as tokenizer.json has it; "" for none.
inline const char* split_regex(Split split) {
    switch (split) {
        case Split::gpt2:
            return R"('s|'t|'re|'ve|'m|'ll|'d| ?\p{L}+| ?\p{N}+| ?[^\s\p{L}\p{N}]+|\s+(?!\S)|\s+)";
        case Split::qwen:
            return R"((?i:'s|'t|'re|'ve|'m|'ll|'d)|[^\r\n\p{L}\p{N}]?\p{L}+|\p{N}| ?[^\s\p{L}\p{N}]+[\r\n]*|\s*[\r\n]+|\s+(?!\S)|\s+)";
        case Split::llama3:
            return R"((?i:'s|'t|'re|'ve|'m|'ll|'d)|[^\r\n\p{L}\p{N}]?\p{L}+|\p{N}{1,3}| ?[^\s\p{L}\p{N}]+[\r\n]*|\s*[\r\n]+|\s+(?!\S)|\s+)";
        case Split::none:
            break;
    }
    return "";
}

// Split::none for an unknown pattern.
inline Split split_from_regex(std::string_view regex) {
    for (Split split : {Split::gpt2, Split::qwen, Split::llama3})
        if (regex == split_regex(split)) return split;
    // GPT-2's authors also wrote it so.
    if (regex == R"('(?:[sdmt]|ll|ve|re)| ?\p{L}+| ?\p{N}+| ?[^\s\p{L}\p{N}]+|\s+(?!\S)|\s+)")
        return Split::gpt2;
    return Split::none;
}

class Splitter {
  public:
    // Cuts [p, end); `text` is well-formed UTF-8 with split_padding zero bytes behind it.
    Splitter(Split split, std::string_view text)
        : split_(split), flags_(char_flags()), p_(text.data()), end_(p_ + text.size()) {}

    // False at the end. Pieces are never empty and together are the whole text.
    bool next(std::string_view& piece) {
        if (p_ == end_) return false;
        const char* start = p_;
        switch (split_) {
            case Split::none:
                p_ = end_;
                break;
            case Split::gpt2:
                p_ = gpt2_end(p_);
                break;
            case Split::qwen:
                p_ = qwen_end<1>(p_);
                break;
            case Split::llama3:
                p_ = qwen_end<3>(p_);
                break;
        }
        piece = {start, size_t(p_ - start)};
        return true;
    }

  private:
    static constexpr uint8_t word = char_letter | char_number, not_other = word | char_space;

    // The flags of the character at p, which moves behind it.
    uint8_t take(const char*& p) const { return *p & 0x80 ? flags_[utf8_take(p)] : flags_[uint8_t(*p++)]; }
    uint8_t flags(const char* p) const { return p == end_ ? uint8_t(0) : take(p); }

    // Behind the letters at p. Eight ASCII letters are recognised at once; the zeros behind the text end it.
    const char* letters_end(const char* p) const {
        constexpr uint64_t each = 0x0101010101010101, high = 0x80 * each;
        while (true) {
            uint64_t x;
            std::memcpy(&x, p, 8);
            uint64_t lower = (x | 0x20 * each) & ~high;
            uint64_t letter = (lower + (0x80 - 'a') * each) & ~(lower + (0x7f - 'z') * each) & ~x & high;
            if (letter == high) {
                p += 8;
                continue;
            }
            p += __builtin_ctzll(~letter & high) / 8;
            if (!(*p & 0x80) || p >= end_) return p;
            const char* after = p;
            if (!(take(after) & char_letter)) return p;
            p = after;
        }
    }

    // Behind the characters at p that have none of `stop`.
    const char* run_without(uint8_t stop, const char* p) const {
        while (p < end_) {
            const char* after = p;
            if (take(after) & stop) break;
            p = after;
        }
        return p;
    }

    // Behind at most `most` characters that have one of `wanted`.
    const char* run_with(uint8_t wanted, const char* p, int64_t most = INT64_MAX) const {
        while (p < end_ && most-- > 0) {
            const char* after = p;
            if (!(take(after) & wanted)) break;
            p = after;
        }
        return p;
    }

    // 's 't 'm 'd 're 've 'll behind the apostrophe at p, or p. With `fold`, U+017F (long s) is an s.
    const char* contraction_end(const char* p, bool fold) const {
        auto letter = [&](const char* q) {
            return q < end_ ? char(fold && !(*q & 0x80) ? *q | 0x20 : *q) : 0;
        };
        // A control character with 0x20 added is no letter, so folding by that bit is safe.
        char a = letter(p + 1), b = a ? letter(p + 2) : 0;
        if (a == 's' || a == 't' || a == 'm' || a == 'd') return p + 2;
        if ((a == 'r' && b == 'e') || (a == 'v' && b == 'e') || (a == 'l' && b == 'l')) return p + 3;
        if (fold && end_ - p >= 3 && p[1] == '\xc5' && p[2] == '\xbf') return p + 3;
        return p;
    }

    // S+(?!\S)|S+ : a run of whitespace leaves its last character to what follows, unless nothing does.
    const char* space_end(const char* p) const {
        const char *last = p, *q = p;
        while (q < end_) {
            const char* after = q;
            if (!(take(after) & char_space)) break;
            last = q;
            q = after;
        }
        return q == end_ || last == p ? q : last;
    }

    // S*[\r\n]+|S+(?!\S)|S+
    const char* space_or_lines_end(const char* p) const {
        const char *behind_line = nullptr, *last = p, *q = p;
        while (q < end_) {
            const char* after = q;
            uint8_t f = take(after);
            if (!(f & char_space)) break;
            last = q;
            q = after;
            if (f & char_line_end) behind_line = q;
        }
        if (behind_line) return behind_line;
        return q == end_ || last == p ? q : last;
    }

    template <int most_digits>
    const char* qwen_end(const char* p) const {
        const char* second = p;
        uint8_t first = take(second);
        if (first & char_letter) return letters_end(second);
        if (first & char_number)
            return most_digits == 1 ? second : run_with(char_number, second, most_digits - 1);
        if (*p == '\'')
            if (const char* end = contraction_end(p, true); end != p) return end;
        if (!(first & char_line_end) && (flags(second) & char_letter)) return letters_end(second);
        const char* others = *p == ' ' ? second : p;
        const char* others_end = run_without(not_other, others);
        if (others_end != others) return run_with(char_line_end, others_end);
        return space_or_lines_end(p);
    }

    const char* gpt2_end(const char* p) const {
        if (*p == '\'')
            if (const char* end = contraction_end(p, false); end != p) return end;
        const char* body = *p == ' ' && p + 1 < end_ ? p + 1 : p;
        uint8_t kind = flags(body);
        if (kind & char_letter) return letters_end(body);
        if (kind & char_number) return run_with(char_number, body);
        if (!(kind & char_space)) return run_without(not_other, body);
        return space_end(p);
    }

    Split split_;
    const uint8_t* flags_;
    const char *p_, *end_;
};
