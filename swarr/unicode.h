// unicode.h: UTF-8, the character classes \p{L} \p{N} \s, and NFC, as the reference tokenizer engine has
// them.
//
// Two Unicode versions on purpose: the engine's regular expressions follow 16.0, its normalizer is frozen at
// 9.0. A system library would have one newer version for both and differ on thousands of code points.
// Ill-formed UTF-8 becomes one U+FFFD per maximal ill-formed part (the rule of WHATWG, Python and Rust).
#pragma once
#include <algorithm>
#include <cstdint>
#include <cstring>
#include <string>
#include <string_view>
#include <vector>

#include "unicode_tables.h"

constexpr uint32_t unicode_end = 0x110000;

// ---- UTF-8 ----------------------------------------------------------------------------------------------

struct Utf8Step {
    int length;  // bytes of the character, or of the maximal ill-formed part
    bool well_formed;
    bool cut_off;  // ill-formed only because the text ends here
};

// The step at p < end. Byte ranges: Unicode standard, table 3-7.
inline Utf8Step utf8_step(const char* p, const char* end) {
    auto byte = [&](int i) { return uint8_t(p[i]); };
    uint8_t lead = byte(0);
    if (lead < 0x80) return {1, true, false};
    if (lead < 0xc2 || lead > 0xf4) return {1, false, false};
    int length = lead < 0xe0 ? 2 : lead < 0xf0 ? 3 : 4;
    uint8_t low = lead == 0xe0 ? 0xa0 : lead == 0xf0 ? 0x90 : 0x80;
    uint8_t high = lead == 0xed ? 0x9f : lead == 0xf4 ? 0x8f : 0xbf;
    for (int i = 1; i < length; i++, low = 0x80, high = 0xbf) {
        if (p + i == end) return {i, false, true};
        if (byte(i) < low || byte(i) > high) return {i, false, false};
    }
    return {length, true, false};
}

// Bytes of ASCII at the start of [p, end).
inline size_t ascii_prefix(const char* p, const char* end) {
    const char* start = p;
    for (uint64_t x; end - p >= 8; p += 8) {
        std::memcpy(&x, p, 8);
        if (x & 0x8080808080808080) break;
    }
    while (p < end && !(*p & 0x80)) p++;
    return size_t(p - start);
}

// Bytes of well-formed UTF-8 at the start of `text`.
inline size_t utf8_valid_prefix(std::string_view text) {
    const char *p = text.data(), *end = p + text.size();
    while (p += ascii_prefix(p, end), p < end) {
        Utf8Step step = utf8_step(p, end);
        if (!step.well_formed) break;
        p += step.length;
    }
    return size_t(p - text.data());
}

inline bool utf8_valid(std::string_view text) {
    return utf8_valid_prefix(text) == text.size();
}

// The character at p, which must be well-formed; p moves behind it.
inline uint32_t utf8_take(const char*& p) {
    auto byte = [&](int i) { return uint32_t(uint8_t(p[i])); };
    uint32_t lead = byte(0);
    if (lead < 0x80) return p++, lead;
    if (lead < 0xe0) return p += 2, (lead & 0x1f) << 6 | (byte(-1) & 0x3f);
    if (lead < 0xf0) return p += 3, (lead & 0x0f) << 12 | (byte(-2) & 0x3f) << 6 | (byte(-1) & 0x3f);
    return p += 4, (lead & 0x07) << 18 | (byte(-3) & 0x3f) << 12 | (byte(-2) & 0x3f) << 6 | (byte(-1) & 0x3f);
}

inline void utf8_append(std::string& out, uint32_t c) {
    if (c < 0x80) {
        out += char(c);
    } else if (c < 0x800) {
        out += {char(0xc0 | c >> 6), char(0x80 | (c & 0x3f))};
    } else if (c < 0x10000) {
        out += {char(0xe0 | c >> 12), char(0x80 | (c >> 6 & 0x3f)), char(0x80 | (c & 0x3f))};
    } else {
        out += {char(0xf0 | c >> 18), char(0x80 | (c >> 12 & 0x3f)), char(0x80 | (c >> 6 & 0x3f)),
                char(0x80 | (c & 0x3f))};
    }
}

inline std::string utf8_replace_invalid(std::string_view text) {
    std::string out;
    const char *p = text.data(), *end = p + text.size();
    while (p < end) {
        size_t valid = utf8_valid_prefix({p, size_t(end - p)});
        out.append(p, valid);
        p += valid;
        if (p == end) break;
        out += "\xef\xbf\xbd";
        p += utf8_step(p, end).length;
    }
    return out;
}

// ---- character classes ----------------------------------------------------------------------------------

enum : uint8_t {
    char_letter = 1,
    char_number = 2,
    char_space = 4,
    char_line_end = 8,    // CR and LF
    char_unsettled = 16,  // NFC may change it or join it to the character before: see normalize_nfc
};

namespace unicode_detail {

// The numbers of unicode_tables.h: base 32, least significant digit first, 32 added where more follow.
struct Reader {
    const char* p;
    explicit operator bool() const { return *p != 0; }
    uint32_t operator()() {
        uint32_t n = 0;
        for (int shift = 0;; shift += 5) {
            uint32_t digit = uint32_t(*p++ - 35);
            n |= (digit & 31) << shift;
            if (digit < 32) return n;
        }
    }
};

// One byte for each of the 1.1 million code points: the pages that text does not use are never touched again.
struct Tables {
    std::vector<uint8_t> flags = std::vector<uint8_t>(unicode_end);
    std::vector<uint8_t> combining = std::vector<uint8_t>(unicode_end);
    struct Pair {
        uint32_t code, first, second;  // second 0: a singleton
    };
    std::vector<Pair> decompositions;  // by code
    std::vector<Pair> compositions;    // by (first, second)

    Tables() {
        mark(unicode_letters, char_letter);
        mark(unicode_numbers, char_number);
        mark(unicode_spaces, char_space);
        flags['\r'] |= char_line_end;
        flags['\n'] |= char_line_end;
        uint32_t code = 0;
        for (Reader next{unicode_combining_classes}; next;) {
            code += next();
            uint32_t length = next();
            uint8_t combining_class = uint8_t(next());
            for (uint32_t end = code + length; code < end; code++) {
                combining[code] = combining_class;
                flags[code] |= char_unsettled;
            }
        }
        code = 0;
        for (Reader next{unicode_decompositions}; next;) {
            code += next();
            uint32_t kind = next(), first = next(), second = kind ? next() : 0;
            decompositions.push_back({code, first, second});
            if (kind == 1) {
                compositions.push_back(decompositions.back());
                flags[second] |= char_unsettled;
            } else {
                flags[code] |= char_unsettled;
            }
        }
        std::sort(compositions.begin(), compositions.end(), [](const Pair& a, const Pair& b) {
            return a.first != b.first ? a.first < b.first : a.second < b.second;
        });
        for (uint32_t c = 0x1161; c < 0x1176; c++) flags[c] |= char_unsettled;  // Hangul vowels
        for (uint32_t c = 0x11a8; c < 0x11c3; c++) flags[c] |= char_unsettled;  // and final consonants
    }

    void mark(const char* runs, uint8_t flag) {
        uint32_t code = 0;
        for (Reader next{runs}; next;) {
            code += next();
            for (uint32_t end = code + next(); code < end; code++) flags[code] |= flag;
        }
    }
};

inline const Tables& tables() {
    static const Tables shared;
    return shared;
}

}  // namespace unicode_detail

// (unicode_end) flags, indexed by code point.
inline const uint8_t* char_flags() {
    return unicode_detail::tables().flags.data();
}

// ---- NFC ------------------------------------------------------------------------------------------------

namespace unicode_detail {

constexpr uint32_t hangul = 0xac00, hangul_lead = 0x1100, hangul_vowel = 0x1161, hangul_tail = 0x11a7;
constexpr uint32_t hangul_leads = 19, hangul_vowels = 21, hangul_tails = 28;
constexpr uint32_t hangul_syllables = hangul_leads * hangul_vowels * hangul_tails;

inline void decompose(const Tables& t, uint32_t c, std::vector<uint32_t>& out) {
    if (c - hangul < hangul_syllables) {
        uint32_t s = c - hangul, tail = s % hangul_tails;
        out.push_back(hangul_lead + s / (hangul_vowels * hangul_tails));
        out.push_back(hangul_vowel + s / hangul_tails % hangul_vowels);
        if (tail) out.push_back(hangul_tail + tail);
        return;
    }
    auto it = std::lower_bound(t.decompositions.begin(), t.decompositions.end(), c,
                               [](const Tables::Pair& pair, uint32_t code) { return pair.code < code; });
    if (it == t.decompositions.end() || it->code != c) return out.push_back(c);
    decompose(t, it->first, out);
    if (it->second) decompose(t, it->second, out);
}

// 0 where the two do not compose.
inline uint32_t compose(const Tables& t, uint32_t first, uint32_t second) {
    if (first - hangul_lead < hangul_leads && second - hangul_vowel < hangul_vowels)
        return hangul + ((first - hangul_lead) * hangul_vowels + second - hangul_vowel) * hangul_tails;
    if (first - hangul < hangul_syllables && (first - hangul) % hangul_tails == 0 &&
        second - hangul_tail - 1 < hangul_tails - 1)
        return first + second - hangul_tail;
    auto it = std::lower_bound(t.compositions.begin(), t.compositions.end(), std::make_pair(first, second),
                               [](const Tables::Pair& pair, const std::pair<uint32_t, uint32_t>& key) {
                                   return std::make_pair(pair.first, pair.second) < key;
                               });
    return it != t.compositions.end() && it->first == first && it->second == second ? it->code : 0;
}

// Decomposes, orders marks by combining class, composes: Unicode standard annex 15. `points` is overwritten.
inline void normalize_points(const Tables& t, std::vector<uint32_t>& points) {
    std::vector<uint32_t> full;
    for (uint32_t c : points) decompose(t, c, full);
    auto by_class = [&](uint32_t a, uint32_t b) { return t.combining[a] < t.combining[b]; };
    for (size_t i = 0; i < full.size();) {
        size_t end = i;
        while (end < full.size() && t.combining[full[end]]) end++;
        std::stable_sort(full.begin() + int64_t(i), full.begin() + int64_t(end), by_class);
        i = end + 1;
    }
    points.clear();
    size_t starter = SIZE_MAX;  // index in `points`
    int last_class = -1;        // of what stands behind the starter; -1: nothing does
    for (uint32_t c : full) {
        int combining_class = t.combining[c];
        if (starter != SIZE_MAX && last_class < combining_class) {
            if (uint32_t composite = compose(t, points[starter], c)) {
                points[starter] = composite;
                continue;
            }
        }
        if (combining_class == 0) starter = points.size();
        last_class = combining_class == 0 ? -1 : combining_class;
        points.push_back(c);
    }
}

}  // namespace unicode_detail

// True for text that NFC certainly leaves as it is. `text` must be well-formed.
inline bool surely_nfc(std::string_view text) {
    const uint8_t* flags = char_flags();
    const char *p = text.data(), *end = p + text.size();
    while (p += ascii_prefix(p, end), p < end)
        if (flags[utf8_take(p)] & char_unsettled) return false;
    return true;
}

// NFC with the data of Unicode 9.0, in linear time. `text` must be well-formed.
// A settled character never changes because of what stands before it, so the text between two of them is
// normalized by itself, and only where an unsettled one follows.
inline std::string normalize_nfc(std::string_view text) {
    const unicode_detail::Tables& t = unicode_detail::tables();
    std::string out;
    out.reserve(text.size() + 16);
    std::vector<uint32_t> points;
    const char *p = text.data(), *end = p + text.size();
    const char* copied = p;   // everything before it is in `out`
    const char* settled = p;  // the last settled character before p
    while (p < end) {
        const char* start = p;
        uint32_t c = utf8_take(p);
        if (!(t.flags[c] & char_unsettled)) {
            settled = start;
            continue;
        }
        out.append(copied, size_t(settled - copied));
        points.clear();
        for (const char* q = settled; q < p;) points.push_back(utf8_take(q));
        for (copied = p; p < end; copied = p) {
            c = utf8_take(p);
            if (!(t.flags[c] & char_unsettled)) break;
            points.push_back(c);
        }
        settled = copied;
        unicode_detail::normalize_points(t, points);
        for (uint32_t point : points) utf8_append(out, point);
    }
    return out.append(copied, size_t(end - copied));
}
