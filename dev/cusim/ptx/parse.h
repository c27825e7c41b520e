// parse.h: pieces shared by the module parser and the body parser.
#pragma once
#include "module.h"

namespace cusim {

s64 parse_integer(Lexer& in, const Token& number);
s64 parse_signed_integer(Lexer& in);
// The constant that starts with number token t; `minus` if a '-' stood before it.
Operand parse_constant(Lexer& in, const Token& t, bool minus);
// The bits of a constant as a value of `type`.
u64 constant_bits(const Operand& constant, Type type);
// A declaration after its space: .align 4 .b8 name[16] = {...}
Variable parse_variable(Lexer& in, Space space, bool external);

// The <count> of a register family, if one follows.
void parse_register_count(Lexer& in, Variable& v);

}  // namespace cusim
