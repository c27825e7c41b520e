// decode.h: turns a parsed function into a Kernel: calls inlined, operands resolved, handlers chosen by the
// tables of exec/, registers packed.
#pragma once
#include <functional>
#include <map>
#include <string_view>
#include <vector>

#include "../exec/kernel.h"

namespace cusim {

// Where module variables live. The runtime answers from its allocations; the fuzzer with a fixed address.
using SymbolAddress = std::function<u64(const Variable&)>;

// An opcode split at its dots: "ld.global.v4.f32" is base "ld" and modifiers global, v4, f32.
class Form {
  public:
    explicit Form(std::string_view opcode);
    std::string_view base() const { return base_; }
    // Consumes a modifier if present.
    bool take(std::string_view modifier);
    // Consumes the first of the given modifiers that is present and returns its index, or -1.
    int take_any(std::initializer_list<std::string_view> modifiers);
    // Consumes the next modifier that is a type, in order; None if there is none.
    Type take_type();
    // All must be consumed in the end; what is left makes the form unknown.
    const std::vector<std::string_view>& rest() const { return modifiers_; }

  private:
    std::string_view base_;
    std::vector<std::string_view> modifiers_;
};

// Builds one kernel. Instruction builders (exec/*.cpp) use the operand functions; every operand must be named
// as read or written, since liveness is computed from that.
class Decoder {
  public:
    Decoder(Module& module, SymbolAddress address) : module_(module), address_(std::move(address)) {}
    Kernel decode(Function& entry);

    // --- for instruction builders
    // -------------------------------------------------------------------------------
    const Instruction& ast() const { return *ast_; }
    size_t operand_count() const { return ast_->operands.size(); }
    const Operand& operand(size_t i) const;
    // The column of operand i, read or written as `type`. Integer constants become constant columns.
    // Registers must have the type's width unless `any_width`, which reports the width found in
    // Inst::register_bytes.
    Column read(const Operand& o, Type type);
    Column write(const Operand& o, Type type);
    Column read(size_t i, Type type) { return read(operand(i), type); }
    Column write(size_t i, Type type) { return write(operand(i), type); }
    Column read_any_width(const Operand& o, Type type, u8& bytes);
    Column write_any_width(const Operand& o, u8& bytes);
    Column constant(u64 bits, int bytes);
    Column special(Special s);
    Column scratch(int bytes);  // written by the instruction, otherwise unused
    // The address operand [x + n]: sets a, immediate, address_bytes and, if the name tells, the space.
    void read_address(const Operand& o, Inst& inst, Space& space);
    // A constant operand's value, or an error.
    s64 immediate(size_t i);
    u64 parameter_bytes() const { return kernel_.param_bytes; }
    int register_width(const Operand& o);  // bytes; 0 if o is not a register; 4 for predicates
    bool is_predicate(const Operand& o);
    // The variable a name stands for; null if it is a register, label or unknown.
    const Variable* variable(const Operand& o);
    u64 address_of(const Operand& o, Space& space);  // of a variable, in its space
    void emit(Inst inst);
    void emit_branch(std::string_view label);
    void emit_index_branch(const Operand& index, std::string_view list);
    void emit_return(bool whole_kernel);
    void call();
    [[noreturn]] void unknown(const std::string& what, const char* file) const;
    [[noreturn]] void error(const std::string& what) const;

  private:
    struct Register {
        int bytes = 0;
        bool predicate = false;
        bool pinned = false;  // a special register: alive throughout
    };
    struct Frame;
    struct Uses {
        std::vector<int> reads, writes;
        bool conditional = false;  // a guarded write leaves the old value alive
    };

    void body(Function& f, Frame& frame);
    int find_register(std::string_view name);
    int find_label(std::string_view name) const;
    Column new_constant(u64 bits, int bytes);
    Column address_constant(const Operand& o, int bytes, Space& space);
    void patch_dynamic_shared();
    u32 shared_offset(const Variable& v);
    u32 local_offset(u64 bytes, int align);
    // pack.cpp: liveness, then columns for virtual registers.
    void pack();
    std::vector<int> color(const std::vector<int>& ids) const;
    std::vector<std::vector<int>> successors() const;

    Module& module_;  // bodies are parsed as they are met
    SymbolAddress address_;
    Kernel kernel_;
    Frame* frame_ = nullptr;
    const Instruction* ast_ = nullptr;
    int depth_ = 0;

    std::vector<Register> registers_;  // virtual; a Column is id * 2 until pack()
    std::map<std::pair<u64, int>, Column> constants_;
    std::map<std::string, u32> shared_;
    std::vector<std::pair<Column, int>> dynamic_constants_;
    int dynamic_align_ = 16;
    std::vector<int> reads_, writes_;  // of the instruction being built
    std::vector<Uses> uses_;           // by instruction
};

// Emits what a call of vprintf, __assertfail ... does; arguments and results are offsets in local memory.
void emit_system_call(Decoder& d, const std::string& name, const std::vector<u32>& args,
                      const std::vector<u32>& results);

using Builder = void (*)(Decoder&, Form&);
// The builder for a base opcode, null if unknown. Tables are assembled once from exec/*.cpp.
Builder find_builder(std::string_view base);

}  // namespace cusim
