// parse_body.cpp: the inside of a function: declarations, labels, source locations, instructions.
#include <cstdlib>

#include "parse.h"

namespace cusim {

namespace {

class BodyParser {
  public:
    BodyParser(const Module& module, const Function& f)
        : module_(module), in_(f.text, f.text_line), body_(std::make_unique<Body>()) {
        body_->scopes.emplace_back();
    }

    std::unique_ptr<Body> run() {
        while (in_.peek().kind != Token::End) statement();
        if (scope_ != 0) in_.fail("expected '}'");
        return std::move(body_);
    }

  private:
    Scope& scope() { return body_->scopes[scope_]; }

    void statement() {
        if (in_.take(';')) return;
        if (in_.take('{')) {
            Scope inner;
            inner.parent = scope_;
            scope_ = int(body_->scopes.size());
            body_->scopes.push_back(std::move(inner));
            if (body_->scopes.size() > 100000) in_.fail("too many blocks");
            return;
        }
        if (in_.take('}')) {
            if (scope().parent < 0) in_.fail("'}' without '{'");
            scope_ = scope().parent;
            return;
        }
        if (in_.peek().is('@')) return instruction();
        Token word = in_.expect_word("an instruction");
        if (word.text[0] == '.') return directive(word);
        if (in_.take(':')) return label(word);
        instruction(word);
    }

    void label(const Token& name) {
        scope().labels[name.text] = int(body_->code.size());
        if (in_.take(".branchtargets")) {
            auto& targets = scope().branch_targets[name.text];
            do targets.push_back(in_.expect_word("a label").text);
            while (in_.take(','));
            in_.expect(';');
        } else if (in_.peek().is(".callprototype") || in_.peek().is(".calltargets")) {
            skip_to_semicolon();
        }
    }

    void skip_to_semicolon() {
        while (!in_.take(';')) {
            if (in_.peek().kind == Token::End) in_.fail("expected ';'");
            in_.next();
        }
    }

    void directive(const Token& word) {
        std::string_view w = word.text;
        Space space = w == ".reg"      ? Space::Reg
                      : w == ".local"  ? Space::Local
                      : w == ".shared" ? Space::Shared
                      : w == ".param"  ? Space::Param
                      : w == ".global" ? Space::Global
                      : w == ".const"  ? Space::Const
                                       : Space::None;
        if (space != Space::None) {
            declare(parse_variable(in_, space, false));
            while (space == Space::Reg && in_.take(',')) {  // .reg .b32 a, b, %r<4>;
                Variable more = body_->variables.back();
                more.name = in_.expect_word("a name").text;
                parse_register_count(in_, more);
                declare(std::move(more));
            }
            in_.expect(';');
        } else if (w == ".loc") {
            location();
        } else if (w == ".pragma") {
            skip_to_semicolon();
        } else {
            throw PtxError("unknown directive '" + std::string(w.substr(0, 60)) + "'", word.line);
        }
    }

    void declare(Variable v) {
        // Views into the scope's map need a string that lives as long as the body.
        body_->names.push_back(std::make_unique<std::string>(v.range ? v.name + '<' : v.name));
        body_->variables.push_back(std::move(v));
        scope().variables[*body_->names.back()] = int(body_->variables.size()) - 1;
    }

    static u64 place(s64 file, s64 line, s64 column) {
        return u64(file) << 48 ^ u64(line) << 20 ^ u64(column);
    }

    bool in_toolkit(int file) const {
        auto it = module_.files.find(file);
        return it != module_.files.end() && (it->second.find("linux/include/") != std::string::npos ||
                                             it->second.find("cuda/include/") != std::string::npos);
    }

    // Code inlined from the toolkit's headers (bf16 arithmetic, shuffles) is reported at the line that used
    // it.
    void location() {
        s64 file = parse_signed_integer(in_), line = parse_signed_integer(in_),
            column = parse_signed_integer(in_);
        Location here{int(file), int(line), 0, 0};
        bool outer_known = false;
        Location outer;
        while (in_.take(',')) {
            if (in_.take("function_name")) {
                in_.next();
                if (in_.take('+')) in_.next();
            } else if (in_.take("inlined_at")) {
                s64 f = parse_signed_integer(in_), l = parse_signed_integer(in_),
                    c = parse_signed_integer(in_);
                auto it = resolved_.find(place(f, l, c));
                outer = it != resolved_.end() ? it->second : Location{int(f), int(l), 0, 0};
                outer_known = true;
            } else {
                in_.fail("unknown .loc attribute");
            }
        }
        if (outer_known && in_toolkit(here.file)) {
            here = outer;
        } else if (outer_known) {
            here.caller_file = outer.caller_line ? outer.caller_file : outer.file;
            here.caller_line = outer.caller_line ? outer.caller_line : outer.line;
        }
        source_ = here;
        resolved_[place(file, line, column)] = source_;
    }

    void instruction() {
        in_.expect('@');
        Instruction i;
        i.guard_negated = in_.take('!');
        i.guard = in_.expect_word("a predicate").text;
        finish(std::move(i), in_.expect_word("an instruction"));
    }

    void instruction(const Token& opcode) { finish(Instruction(), opcode); }

    void finish(Instruction i, const Token& opcode) {
        i.opcode = opcode.text;
        i.ptx_line = opcode.line;
        i.scope = scope_;
        i.source = source_;
        if (!in_.take(';')) {
            do i.operands.push_back(operand());
            while (in_.take(','));
            in_.expect(';');
        }
        body_->code.push_back(std::move(i));
    }

    Operand operand() {
        Operand first = simple_operand();
        if (!in_.take('|')) return first;
        Operand pair;
        pair.kind = Operand::Pair;
        pair.parts = {first, simple_operand()};
        return pair;
    }

    Operand simple_operand() {
        Operand o;
        if (in_.peek().is('{')) return list('{', '}');
        if (in_.peek().is('(')) return list('(', ')');
        if (in_.take('[')) return address();
        o.negated = in_.take('!');
        bool minus = in_.take('-');
        Token t = in_.next();
        if (t.kind == Token::Number) {
            Operand constant = parse_constant(in_, t, minus);
            constant.negated = o.negated;
            return constant;
        }
        if (t.kind != Token::Word || minus) throw PtxError("expected an operand", t.line);
        if (t.text == "_") o.kind = Operand::Sink;
        if (t.text == "WARP_SZ") {
            o.kind = Operand::Integer;
            o.value = kWarp;
        }
        o.name = t.text;
        if (in_.take('+')) {  // mov.u64 %rd, symbol+4
            o.kind = Operand::Address;
            o.value = parse_signed_integer(in_);
        }
        return o;
    }

    Operand list(char open, char close) {
        Operand o;
        o.kind = Operand::Vector;
        if (++depth_ > 20) in_.fail("operands nested too deeply");
        in_.expect(open);
        while (!in_.take(close)) {
            o.parts.push_back(operand());
            if (!in_.take(',') && !in_.peek().is(close)) in_.fail("expected ','");
        }
        depth_--;
        return o;
    }

    Operand address() {
        Operand o;
        o.kind = Operand::Address;
        if (in_.peek().kind == Token::Word) {
            o.name = in_.next().text;
            if (in_.take('+'))
                o.value = parse_signed_integer(in_);
            else if (in_.peek().is('-'))
                o.value = parse_signed_integer(in_);
        } else {
            o.value = parse_signed_integer(in_);
        }
        in_.expect(']');
        return o;
    }

    const Module& module_;
    Lexer in_;
    std::unique_ptr<Body> body_;
    std::unordered_map<u64, Location> resolved_;
    Location source_;
    int scope_ = 0, depth_ = 0;
};

}  // namespace

const Body& parse_body(const Module& module, Function& function) {
    if (!function.body) function.body = BodyParser(module, function).run();
    return *function.body;
}

}  // namespace cusim
