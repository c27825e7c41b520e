// module.h: what the parser makes of PTX text: modules, functions, and bodies that are parsed when first
// needed.
//
// Names in a body are resolved by scope ({ ... } blocks nest, inner declarations hide outer ones), so that
// inline assembly with its own registers and labels needs no renaming.
#pragma once
#include <map>
#include <memory>
#include <string>
#include <unordered_map>
#include <vector>

#include "lexer.h"

namespace cusim {

enum class Type : u8 {
    None,
    Pred,
    B8,
    B16,
    B32,
    B64,
    B128,
    U8,
    U16,
    U32,
    U64,
    S8,
    S16,
    S32,
    S64,
    F16,
    F16x2,
    BF16,
    BF16x2,
    TF32,
    F32,
    F64,
    U16x2,
    S16x2,
};

int type_bytes(Type type);               // 4 for F16x2; 4 for Pred (a mask of lanes)
bool type_is_signed(Type type);          // S8..S64
bool type_is_float(Type type);           // F16..F64
Type parse_type(std::string_view name);  // "f32" -> F32; None if it is no type
const char* type_name(Type type);

enum class Space : u8 { None, Reg, Generic, Global, Shared, Local, Const, Param };

// A part of an initialiser: bytes, or the address of a symbol plus an offset.
struct Initialiser {
    std::string symbol;  // empty: a number
    s64 value = 0;       // the number's bits, or the offset
    int shift = 0;       // mask form 0xFF00(symbol): which byte of the address
    int bytes = 0;       // 0: the element size
};

struct Variable {
    std::string name;
    Space space = Space::None;
    Type type = Type::None;
    int vector = 1;  // elements of a .v2/.v4 declaration
    u64 count = 1;   // array length; 0 for extern arrays
    int align = 0;   // bytes
    bool external = false;
    bool range = false;  // a register family %r<count>
    std::vector<Initialiser> init;
    u64 bytes() const { return u64(type_bytes(type)) * vector * count; }
};

struct Operand {
    enum Kind {
        Name,     // register, special register, variable, function or label
        Integer,  // value
        Float32,  // value holds the bits
        Float64,  // value holds the bits
        Address,  // [name + value] or [value]
        Vector,   // {parts}
        Pair,     // parts[0] | parts[1]
        Sink,     // _
    };
    Kind kind = Name;
    bool negated = false;  // !%p
    std::string_view name;
    s64 value = 0;
    std::vector<Operand> parts;
};

// A place in the CUDA source: file index of the module's .file table, line; 0 when unknown. For an inlined
// function also the place in the kernel that (through others perhaps) called it.
struct Location {
    int file = 0, line = 0;
    int caller_file = 0, caller_line = 0;
};

struct Instruction {
    std::string_view opcode;  // with all its modifiers
    std::string_view guard;   // predicate name, empty if none
    bool guard_negated = false;
    std::vector<Operand> operands;
    int scope = 0;
    int ptx_line = 0;
    Location source;
};

struct Scope {
    int parent = -1;
    std::unordered_map<std::string_view, int> variables;  // index into Body::variables
    std::unordered_map<std::string_view, int> labels;     // index into Body::code
    std::unordered_map<std::string_view, std::vector<std::string_view>> branch_targets;
};

struct Body {
    std::vector<Scope> scopes;
    std::vector<Variable> variables;
    std::vector<Instruction> code;
    std::vector<std::unique_ptr<std::string>> names;  // what the scopes' keys view
};

struct Function {
    std::string name;
    bool entry = false;
    std::vector<Variable> results, params;
    std::string_view text;  // of the body, empty if only declared
    int text_line = 0;
    std::unique_ptr<Body> body;  // after parse_body
    u32 max_threads = 1024;      // per block: __launch_bounds__
};

struct Module {
    std::string text;  // owned; everything above views it
    int version_major = 0, version_minor = 0;
    int target = 0;  // 80 for sm_80
    std::map<int, std::string> files;
    std::map<std::string, Variable, std::less<>> variables;
    std::map<std::string, Function, std::less<>> functions;
    std::vector<std::string> variable_order;  // as declared
};

// Throws PtxError. Function bodies are only delimited, see parse_body.
std::unique_ptr<Module> parse_module(std::string text);
// Parses the body if that has not been done; throws PtxError.
const Body& parse_body(const Module& module, Function& function);

}  // namespace cusim
