// json_scan.h: walks through a big JSON text without building a tree.
//
// For tokenizer.json, 7 MB of short strings: nlohmann-json would allocate every one of them. The few small
// parts are cut out with value() and given to nlohmann-json; the two long ones are read here.
#pragma once
#include <string>
#include <string_view>

#include "base.h"
#include "unicode.h"

class JsonScan {
  public:
    // `text` must outlive the scanner; `where` is its file's name.
    JsonScan(std::string_view text, std::string where)
        : start_(text.data()), p_(start_), end_(start_ + text.size()), where_(std::move(where)) {}

    // for (bool more = scan.open('{'); more; more = scan.more('}')) { scan.string(key); scan.expect(':'); ...
    // }
    bool open(char bracket) {
        expect(bracket);
        if (peek() != (bracket == '{' ? '}' : ']')) return true;
        p_++;
        return false;
    }
    bool more(char bracket) {
        char c = peek();
        if (c != ',' && c != bracket) wrong(std::string("expected , or ") + bracket);
        p_++;
        return c == ',';
    }

    char peek() {
        while (p_ < end_ && (*p_ == ' ' || *p_ == '\n' || *p_ == '\r' || *p_ == '\t')) p_++;
        if (p_ == end_) wrong("unexpected end");
        return *p_;
    }

    void expect(char c) {
        if (peek() != c) wrong(std::string("expected ") + c);
        p_++;
    }

    void string(std::string& out) {
        out.clear();
        expect('"');
        while (true) {
            const char* run = p_;
            while (p_ < end_ && *p_ != '"' && *p_ != '\\' && uint8_t(*p_) >= 0x20) p_++;
            out.append(run, size_t(p_ - run));
            if (p_ == end_) wrong("a string without end");
            char c = *p_++;
            if (c == '"') return;
            if (c != '\\') wrong("a control character in a string");
            escape(out);
        }
    }

    int64_t integer() {
        peek();
        const char* digits = p_;
        int64_t n = 0;
        while (p_ < end_ && *p_ >= '0' && *p_ <= '9' && p_ - digits < 18) n = n * 10 + (*p_++ - '0');
        if (p_ == digits || (p_ < end_ && std::strchr("0123456789.eE", *p_)))
            wrong("expected a whole number >= 0");
        return n;
    }

    // The text of the next value, whatever it is; brackets are counted, the inside is not checked.
    std::string_view value() {
        peek();
        const char* begin = p_;
        int depth = 0;
        do {
            char c = peek();
            if (c == '"') {
                skip_string();
            } else if (c == '{' || c == '[') {
                depth++, p_++;
            } else if (c == '}' || c == ']') {
                if (--depth < 0) wrong("expected a value");
                p_++;
            } else if (depth > 0 && (c == ',' || c == ':')) {
                p_++;
            } else {
                const char* word = p_;
                while (p_ < end_ && !std::strchr(" \t\r\n,:]}[{\"", *p_)) p_++;
                if (p_ == word) wrong("expected a value");
            }
        } while (depth > 0);
        return {begin, size_t(p_ - begin)};
    }

    // From here on errors start with this instead.
    void where(const std::string& where) { where_ = where; }

    void finish() {
        while (p_ < end_ && (*p_ == ' ' || *p_ == '\n' || *p_ == '\r' || *p_ == '\t')) p_++;
        if (p_ != end_) wrong("text after the end");
    }

    [[noreturn]] void wrong(const std::string& what) {
        fail(where_ + ": byte " + std::to_string(p_ - start_) + ": " + what,
             "the file is not JSON or was cut off; copy or download it again");
    }

  private:
    void skip_string() {
        for (p_++; p_ < end_ && *p_ != '"'; p_++)
            if (*p_ == '\\') p_++;
        if (p_ >= end_) p_ = end_, wrong("a string without end");
        p_++;
    }

    void escape(std::string& out) {
        if (p_ == end_) wrong("a string without end");
        char c = *p_++;
        static const char from[] = "\"\\/bfnrt", to[] = "\"\\/\b\f\n\r\t";
        if (const char* at = c ? std::strchr(from, c) : nullptr) {
            out += to[at - from];
            return;
        }
        if (c != 'u') wrong("an unknown escape");
        uint32_t code = hex4();
        if (code >= 0xd800 && code < 0xdc00 && end_ - p_ >= 6 && p_[0] == '\\' && p_[1] == 'u') {
            p_ += 2;
            uint32_t low = hex4();
            if (low < 0xdc00 || low > 0xdfff) wrong("half of a surrogate pair");
            code = 0x10000 + ((code - 0xd800) << 10) + (low - 0xdc00);
        } else if (code >= 0xd800 && code < 0xe000) {
            wrong("half of a surrogate pair");
        }
        utf8_append(out, code);
    }

    uint32_t hex4() {
        if (end_ - p_ < 4) wrong("a string without end");
        uint32_t code = 0;
        for (int i = 0; i < 4; i++) {
            char c = *p_++;
            int digit = c >= '0' && c <= '9'   ? c - '0'
                        : c >= 'a' && c <= 'f' ? c - 'a' + 10
                        : c >= 'A' && c <= 'F' ? c - 'A' + 10
                                               : -1;
            if (digit < 0) wrong("an unknown escape");
            code = code << 4 | uint32_t(digit);
        }
        return code;
    }

    const char *start_, *p_, *end_;
    std::string where_;
};
