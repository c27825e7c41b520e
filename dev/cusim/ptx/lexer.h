// lexer.h: cuts PTX text into tokens. No copies: a token views the text it came from.
#pragma once
#include <string_view>

#include "../base.h"

namespace cusim {

struct Token {
    enum Kind {
        End,
        Word,  // a name, directive or opcode: fma.rn.f32  %tid.x  .param  $L__BB0_1 ld.global.L1::no_allocate
        Number,  // 12  0x1F  0f3F800000  0d3FF0000000000000  1.5
        String,  // without its quotes
        Punct,   // one character
    };
    Kind kind = End;
    std::string_view text;
    int line = 0;

    bool is(char c) const { return kind == Punct && text[0] == c; }
    bool is(std::string_view word) const { return kind == Word && text == word; }
};

class Lexer {
  public:
    explicit Lexer(std::string_view text, int first_line = 1) : text_(text), line_(first_line) { advance(); }

    const Token& peek() const { return token_; }
    Token next();
    // Where the next token begins, as a position in the text.
    size_t position() const { return begin_; }
    // Consumes the next token if it is this one.
    bool take(char c);
    bool take(std::string_view word);
    // Consumes it or throws PtxError saying what was found.
    void expect(char c);
    Token expect_word(const char* what);
    // Just after a '{': moves past the matching '}' and returns what lies between.
    std::string_view skip_body(int& body_line);
    [[noreturn]] void fail(const std::string& what) const;

  private:
    void advance();
    void skip_blanks();

    std::string_view text_;
    size_t at_ = 0, begin_ = 0;
    int line_;
    Token token_;
};

}  // namespace cusim
