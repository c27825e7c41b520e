// lexer.cpp: see lexer.h.
#include "lexer.h"

namespace cusim {

namespace {

bool is_digit(char c) {
    return c >= '0' && c <= '9';
}
bool is_word_start(char c) {
    return (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z') || c == '_' || c == '$' || c == '%' || c == '.';
}
bool is_word(char c) {
    return is_word_start(c) || is_digit(c);
}

}  // namespace

void Lexer::skip_blanks() {
    while (at_ < text_.size()) {
        char c = text_[at_];
        if (c == '\n') {
            line_++;
            at_++;
        } else if (c == ' ' || c == '\t' || c == '\r') {
            at_++;
        } else if (c == '/' && at_ + 1 < text_.size() && text_[at_ + 1] == '/') {
            while (at_ < text_.size() && text_[at_] != '\n') at_++;
        } else if (c == '/' && at_ + 1 < text_.size() && text_[at_ + 1] == '*') {
            size_t end = text_.find("*/", at_ + 2);
            if (end == std::string_view::npos) throw PtxError("comment without an end", line_);
            for (; at_ < end + 2; at_++) line_ += text_[at_] == '\n';
        } else {
            return;
        }
    }
}

void Lexer::advance() {
    skip_blanks();
    begin_ = at_;
    token_ = {Token::End, {}, line_};
    if (at_ >= text_.size()) return;
    char c = text_[at_];
    size_t end = at_ + 1;
    if (is_digit(c) || (c == '.' && end < text_.size() && is_digit(text_[end]))) {
        token_.kind = Token::Number;
        // Letters belong to the number (0x1F, 0f.., 12U, 1e5); a sign does only after a decimal exponent.
        while (end < text_.size() && (is_word(text_[end]) && text_[end] != '%' && text_[end] != '$')) end++;
    } else if (is_word_start(c)) {
        token_.kind = Token::Word;
        // A directive ends at the next dot: .reg.b16 is two words, add.s32 is one.
        while (end < text_.size() && !(c == '.' && text_[end] == '.')) {
            if (is_word(text_[end])) {
                end++;
            } else if (text_[end] == ':' && end + 2 < text_.size() && text_[end + 1] == ':' &&
                       is_word(text_[end + 2])) {
                end += 2;
            } else {
                break;
            }
        }
    } else if (c == '"') {
        size_t close = text_.find('"', end);
        if (close == std::string_view::npos) throw PtxError("string without an end", line_);
        token_ = {Token::String, text_.substr(end, close - end), line_};
        for (char s : token_.text) line_ += s == '\n';
        at_ = close + 1;
        return;
    } else {
        token_.kind = Token::Punct;
    }
    token_.text = text_.substr(at_, end - at_);
    at_ = end;
}

Token Lexer::next() {
    Token now = token_;
    advance();
    return now;
}

bool Lexer::take(char c) {
    if (!token_.is(c)) return false;
    advance();
    return true;
}

bool Lexer::take(std::string_view word) {
    if (!token_.is(word)) return false;
    advance();
    return true;
}

void Lexer::fail(const std::string& what) const {
    std::string found =
        token_.kind == Token::End ? "the end" : "'" + std::string(token_.text.substr(0, 60)) + "'";
    throw PtxError(what + ", found " + found, token_.line);
}

void Lexer::expect(char c) {
    if (!take(c)) fail(std::string("expected '") + c + "'");
}

Token Lexer::expect_word(const char* what) {
    if (token_.kind != Token::Word) fail(std::string("expected ") + what);
    return next();
}

std::string_view Lexer::skip_body(int& body_line) {
    // The current token is the first one inside; braces in strings and comments do not count.
    size_t start = begin_;
    body_line = token_.line;
    for (int depth = 1;;) {
        if (token_.kind == Token::End) fail("expected '}'");
        if (token_.is('{')) depth++;
        if (token_.is('}') && --depth == 0) break;
        advance();
    }
    std::string_view body = text_.substr(start, begin_ - start);
    advance();
    return body;
}

}  // namespace cusim
