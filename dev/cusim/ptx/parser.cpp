// parser.cpp: module level of PTX: directives, variables with initialisers, function signatures.
#include <algorithm>
#include <cstring>

#include "parse.h"

namespace cusim {

s64 parse_integer(Lexer& in, const Token& number) {
    std::string digits(number.text);
    while (!digits.empty() && (digits.back() == 'U' || digits.back() == 'u')) digits.pop_back();
    int base = 10;
    const char* begin = digits.c_str();
    if (digits.size() > 1 && digits[0] == '0') {
        char kind = digits[1];
        base = kind == 'x' || kind == 'X' ? 16 : kind == 'b' || kind == 'B' ? 2 : 8;
        if (base == 2) begin += 2;
    }
    char* end;
    u64 value = std::strtoull(begin, &end, base);
    if (end == begin || *end)
        throw PtxError("not a number: '" + std::string(number.text.substr(0, 40)) + "'", number.line);
    (void)in;
    return s64(value);
}

s64 parse_signed_integer(Lexer& in) {
    bool minus = in.take('-');
    if (in.peek().kind != Token::Number) in.fail("expected a number");
    s64 value = parse_integer(in, in.next());
    return minus ? s64(-u64(value)) : value;
}

namespace {

// Larger objects than this are refused: a corrupt size must not allocate the machine away.
constexpr u64 kLargestVariable = u64(1) << 32;
constexpr int kLargestRange = 1 << 20;

u64 float_bits(std::string_view text, int line) {
    char* end;
    std::string digits(text.substr(2));
    u64 bits = std::strtoull(digits.c_str(), &end, 16);
    if (digits.empty() || *end)
        throw PtxError("not a float constant: '" + std::string(text.substr(0, 40)) + "'", line);
    return bits;
}

// One element of { ... }: number, float, symbol, generic(symbol), symbol+offset, 0xFF00(symbol).
Initialiser parse_initialiser(Lexer& in, Type type) {
    Initialiser out;
    bool minus = in.take('-');
    Token t = in.next();
    if (t.kind == Token::Word) {
        if (t.text == "generic") {
            in.expect('(');
            t = in.expect_word("a symbol");
            out.symbol = t.text;
            if (in.take('+')) out.value = parse_signed_integer(in);
            in.expect(')');
        } else {
            out.symbol = t.text;
            if (in.take('+')) out.value = parse_signed_integer(in);
        }
        return out;
    }
    if (t.kind != Token::Number) throw PtxError("expected an initial value", t.line);
    Operand constant = parse_constant(in, t, minus);
    if (in.take('(')) {  // mask form: one byte of an address
        u64 mask = u64(constant.value);
        while (mask > 0xff) mask >>= 8, out.shift += 8;
        bool generic = in.take("generic");
        if (generic) in.expect('(');
        out.symbol = in.expect_word("a symbol").text;
        if (in.take('+')) out.value = parse_signed_integer(in);
        if (generic) in.expect(')');
        in.expect(')');
        out.bytes = 1;
        return out;
    }
    out.value = s64(constant_bits(constant, type));
    return out;
}

void parse_initialisers(Lexer& in, Variable& v) {
    if (in.take('{')) {
        while (!in.take('}')) {
            parse_initialisers(in, v);
            if (!in.take(',') && !in.peek().is('}')) in.fail("expected ',' or '}'");
        }
        return;
    }
    v.init.push_back(parse_initialiser(in, v.type));
    if (v.init.size() > v.count * v.vector) in.fail("more initial values than elements");
}

}  // namespace

Operand parse_constant(Lexer& in, const Token& t, bool minus) {
    Operand o;
    std::string_view s = t.text;
    if (s.size() > 2 && s[0] == '0' && (s[1] == 'f' || s[1] == 'F')) {
        o.kind = Operand::Float32;
        o.value = s64(float_bits(s, t.line) ^ (minus ? u64(1) << 31 : 0));
    } else if (s.size() > 2 && s[0] == '0' && (s[1] == 'd' || s[1] == 'D')) {
        o.kind = Operand::Float64;
        o.value = s64(float_bits(s, t.line) ^ (minus ? u64(1) << 63 : 0));
    } else if (s.find('.') != s.npos ||
               (s.substr(0, 2) != "0x" && s.substr(0, 2) != "0X" && s.find_first_of("eE") != s.npos)) {
        std::string digits(s);
        if (digits.back() == 'e' || digits.back() == 'E') {  // the lexer stops at the exponent's sign
            bool negative = in.take('-');
            if (!negative) in.take('+');
            digits += (negative ? "-" : "+") + std::string(in.next().text);
        }
        char* end;
        double value = std::strtod(digits.c_str(), &end);
        if (*end) throw PtxError("not a number: '" + digits.substr(0, 40) + "'", t.line);
        if (minus) value = -value;
        o.kind = Operand::Float64;
        std::memcpy(&o.value, &value, 8);
    } else {
        o.kind = Operand::Integer;
        u64 value = u64(parse_integer(in, t));
        o.value = s64(minus ? -value : value);
    }
    return o;
}

u64 constant_bits(const Operand& o, Type type) {
    if (o.kind == Operand::Integer) {
        // An integer constant where a float is expected is that number (PTX converts), except for f16/bf16
        // bits.
        if (type == Type::F32) {
            float f = float(o.value);
            u32 bits;
            std::memcpy(&bits, &f, 4);
            return bits;
        }
        if (type == Type::F64) {
            double d = double(o.value);
            u64 bits;
            std::memcpy(&bits, &d, 8);
            return bits;
        }
        return u64(o.value);
    }
    bool wants64 = type == Type::F64 || type == Type::B64 || type == Type::U64 || type == Type::S64;
    if (o.kind == Operand::Float32 && wants64) {
        u32 bits = u32(o.value);
        float f;
        std::memcpy(&f, &bits, 4);
        double d = f;
        u64 out;
        std::memcpy(&out, &d, 8);
        return out;
    }
    if (o.kind == Operand::Float64 && !wants64) {
        double d;
        std::memcpy(&d, &o.value, 8);
        float f = float(d);
        u32 bits;
        std::memcpy(&bits, &f, 4);
        return bits;
    }
    return u64(o.value);
}

void parse_register_count(Lexer& in, Variable& v) {
    v.range = in.take('<');
    v.count = 1;
    if (!v.range) return;
    s64 n = parse_signed_integer(in);
    if (n < 0 || n > kLargestRange) in.fail("bad register count");
    v.count = u64(n);
    in.expect('>');
}

Variable parse_variable(Lexer& in, Space space, bool external) {
    Variable v;
    v.space = space;
    v.external = external;
    for (;;) {
        Token t = in.expect_word("a type");
        std::string_view w = t.text;
        if (w == ".align") {
            v.align = int(parse_signed_integer(in));
            if (v.align < 1 || v.align > 4096 || (v.align & (v.align - 1))) in.fail("bad alignment");
        } else if (w == ".ptr") {  // .param .u64 .ptr .global .align 4 name: only a hint
            while (in.peek().kind == Token::Word && in.peek().text[0] == '.' && in.peek().text != ".align")
                in.next();
            if (in.take(".align")) parse_signed_integer(in);
            v.name = in.expect_word("a name").text;
            break;
        } else if (w == ".v2" || w == ".v4" || w == ".v8") {
            v.vector = w[2] - '0';
        } else if (w == ".attribute") {
            in.expect('(');
            while (!in.take(')')) {
                if (in.peek().kind == Token::End) in.fail("expected ')'");
                in.next();
            }
        } else if (w[0] == '.') {
            v.type = parse_type(w.substr(1));
            if (v.type == Type::None)
                throw PtxError("unknown type or directive '" + std::string(w) + "'", t.line);
        } else {
            v.name = w;
            break;
        }
    }
    if (v.type == Type::None) in.fail("variable '" + v.name + "' without a type");
    if (!v.align) v.align = type_bytes(v.type) * v.vector;
    if (space == Space::Reg) parse_register_count(in, v);
    bool array = false;
    while (in.take('[')) {
        u64 n = 0;
        if (!in.peek().is(']')) n = u64(parse_signed_integer(in));
        v.count = array || n == 0 ? v.count * n : n;
        if (!array && n == 0) v.count = 0;
        array = true;
        in.expect(']');
        if (n > kLargestVariable || v.count > kLargestVariable || v.bytes() > kLargestVariable)
            in.fail("variable too large");
    }
    if (in.take('=')) parse_initialisers(in, v);
    return v;
}

namespace {

std::vector<Variable> parse_params(Lexer& in) {
    std::vector<Variable> out;
    in.expect('(');
    while (!in.take(')')) {
        if (!in.take(".param") && !in.take(".reg")) in.fail("expected .param");
        out.push_back(parse_variable(in, Space::Param, false));
        if (!in.take(',') && !in.peek().is(')')) in.fail("expected ',' or ')'");
    }
    return out;
}

void parse_function(Lexer& in, Module& m, bool entry) {
    Function f;
    f.entry = entry;
    if (!entry && in.peek().is('(')) f.results = parse_params(in);
    f.name = in.expect_word("a function name").text;
    if (in.peek().is('(')) f.params = parse_params(in);
    // Launch bounds and attributes: .maxntid 256, 1, 1  .noreturn ...
    while (!in.peek().is('{') && !in.peek().is(';')) {
        if (in.peek().kind == Token::End) in.fail("expected '{' or ';'");
        Token t = in.next();
        if (!t.is(".maxntid") && !t.is(".reqntid")) continue;
        u64 threads = 1;
        do threads *= u64(parse_signed_integer(in)) & 0xffff;
        while (in.take(','));
        f.max_threads = u32(std::min<u64>(threads, 1024));
    }
    if (in.take('{')) {
        f.text = in.skip_body(f.text_line);
    } else {
        in.expect(';');
        if (m.functions.count(f.name)) return;  // a declaration after the definition
    }
    m.functions[f.name] = std::move(f);
}

void parse_file(Lexer& in, Module& m) {
    if (in.peek().kind != Token::Number) in.fail("expected a file number");
    int index = int(parse_signed_integer(in));
    if (in.peek().kind != Token::String) in.fail("expected a file name");
    m.files[index] = std::string(in.next().text);
    while (in.take(',')) in.next();
}

}  // namespace

std::unique_ptr<Module> parse_module(std::string text) {
    auto m = std::make_unique<Module>();
    m->text = std::move(text);
    Lexer in(m->text);
    bool external = false;
    while (in.peek().kind != Token::End) {
        Token t = in.next();
        if (t.is(';')) continue;
        if (t.is('{')) {  // contents of a .section
            int line;
            in.skip_body(line);
            continue;
        }
        if (t.kind != Token::Word) throw PtxError("unexpected '" + std::string(t.text) + "'", t.line);
        std::string_view w = t.text;
        if (w == ".version") {
            std::string number(in.next().text);
            if (std::sscanf(number.c_str(), "%d.%d", &m->version_major, &m->version_minor) < 1)
                in.fail("bad .version");
        } else if (w == ".target") {
            std::string name(in.expect_word("a target").text);
            if (std::sscanf(name.c_str(), "sm_%d", &m->target) != 1) in.fail("bad .target");
            while (in.take(',')) in.next();
        } else if (w == ".address_size") {
            if (parse_signed_integer(in) != 64) in.fail("only 64-bit addresses are supported");
        } else if (w == ".extern") {
            external = true;
        } else if (w == ".visible" || w == ".weak" || w == ".common") {
        } else if (w == ".entry" || w == ".func") {
            parse_function(in, *m, w == ".entry");
            external = false;
        } else if (w == ".global" || w == ".const" || w == ".shared") {
            Space space = w == ".global" ? Space::Global : w == ".const" ? Space::Const : Space::Shared;
            Variable v = parse_variable(in, space, external);
            in.expect(';');
            external = false;
            m->variable_order.push_back(v.name);
            std::string name = v.name;
            m->variables[name] = std::move(v);
        } else if (w == ".file") {
            parse_file(in, *m);
        } else if (w == ".section") {
            in.next();
        } else if (w == ".pragma" || w == ".alias") {
            while (!in.take(';')) {
                if (in.peek().kind == Token::End) in.fail("expected ';'");
                in.next();
            }
        } else {
            throw PtxError("unknown directive '" + std::string(w.substr(0, 60)) + "'", t.line);
        }
    }
    return m;
}

}  // namespace cusim
