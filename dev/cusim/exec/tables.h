// tables.h: each file of instruction families adds its builders here.
#pragma once
#include <string_view>
#include <unordered_map>

#include "../ptx/decode.h"

namespace cusim {

using BuilderTable = std::unordered_map<std::string_view, Builder>;

void add_integer(BuilderTable& t);
void add_bits(BuilderTable& t);
void add_float(BuilderTable& t);
void add_compare(BuilderTable& t);
void add_convert(BuilderTable& t);
void add_move(BuilderTable& t);
void add_memory(BuilderTable& t);
void add_atomic(BuilderTable& t);
void add_collective(BuilderTable& t);
void add_control(BuilderTable& t);
void add_tensor(BuilderTable& t);
void add_matrix_move(BuilderTable& t);
void add_async_copy(BuilderTable& t);

// Half-precision forms of add, mul, fma ... (half.cpp), called by the float builders; false if `type` is none
// of theirs.
bool build_half(Decoder& d, Form& f, std::string_view op, Type type, int sources);

// Shared by loads, atomics and copies (loads.cpp): the state space, and the hints and scopes that change
// nothing here.
Space take_space(Form& f);
void skip_memory_hints(Form& f);

}  // namespace cusim
