// decode.cpp: walks a function and its callees (inlined, so that every call site has its own registers and
// local variables), resolves operands and lets the builders of exec/ emit instructions.
#include "decode.h"

#include <algorithm>
#include <cstring>

#include "parse.h"

namespace cusim {

// ---- Form
// ------------------------------------------------------------------------------------------------------

Form::Form(std::string_view opcode) {
    size_t at = 0;
    bool first = true;
    while (at <= opcode.size()) {
        size_t dot = opcode.find('.', at);
        if (dot == opcode.npos) dot = opcode.size();
        std::string_view part = opcode.substr(at, dot - at);
        if (first)
            base_ = part;
        else
            modifiers_.push_back(part);
        first = false;
        at = dot + 1;
    }
}

bool Form::take(std::string_view modifier) {
    auto it = std::find(modifiers_.begin(), modifiers_.end(), modifier);
    if (it == modifiers_.end()) return false;
    modifiers_.erase(it);
    return true;
}

int Form::take_any(std::initializer_list<std::string_view> modifiers) {
    int index = 0;
    for (std::string_view m : modifiers) {
        if (take(m)) return index;
        index++;
    }
    return -1;
}

Type Form::take_type() {
    for (auto it = modifiers_.begin(); it != modifiers_.end(); ++it) {
        Type type = parse_type(*it);
        if (type == Type::None) continue;
        modifiers_.erase(it);
        return type;
    }
    return Type::None;
}

// ---- names
// -----------------------------------------------------------------------------------------------------

// One instance of a function body: the entry, or a callee inlined at one call.
struct Decoder::Frame {
    Function* function = nullptr;
    const Body* body = nullptr;
    std::vector<int> first_register;  // by variable: id of its first register, -1 before use
    std::vector<s64> place;           // by variable: offset in local or shared memory, -1 before use
    std::vector<int> pc;              // by body instruction
    std::unordered_map<std::string_view, u32> params;  // of a callee: offset in local memory
    struct Fixup {
        size_t at;
        int more;    // index in Inst::more, -1: immediate
        int target;  // body instruction; body size: the function's end
    };
    std::vector<Fixup> fixups;
};

void Decoder::error(const std::string& what) const {
    if (!ast_) throw PtxError(what, 0);
    Inst here;
    here.source = ast_;
    throw PtxError(
        "'" + std::string(ast_->opcode.substr(0, 80)) + "' at " + kernel_.file_of(here) + ": " + what,
        ast_->ptx_line);
}

void Decoder::unknown(const std::string& what, const char* file) const {
    error("unknown " + what + "; to add it, extend dev/cusim/" + (file ? file : "exec"));
}

const Operand& Decoder::operand(size_t i) const {
    if (i >= ast_->operands.size()) error("too few operands");
    return ast_->operands[i];
}

namespace {

constexpr size_t kLongestKernel = 2000000;

// Index of the variable a name stands for in the scope chain; `element` is its number in a register family.
int find_variable(const Body& body, int scope, std::string_view name, u64& element) {
    size_t digits = name.size();
    while (digits > 0 && name[digits - 1] >= '0' && name[digits - 1] <= '9') digits--;
    char family[64];
    bool numbered = digits < name.size() && digits + 1 < sizeof family && name.size() - digits < 9;
    u64 number = 0;
    if (numbered) {
        for (size_t i = digits; i < name.size(); i++) number = number * 10 + u64(name[i] - '0');
        name.copy(family, digits);
        family[digits] = '<';
    }
    for (; scope >= 0; scope = body.scopes[scope].parent) {
        const auto& names = body.scopes[scope].variables;
        if (names.empty()) continue;
        auto it = names.find(name);
        element = 0;
        if (it != names.end()) return it->second;
        if (!numbered) continue;
        it = names.find(std::string_view(family, digits + 1));
        element = number;
        if (it != names.end() && number < body.variables[it->second].count) return it->second;
    }
    return -1;
}

struct SpecialName {
    const char* name;
    Special special;
};
const SpecialName kSpecials[] = {
    {"%tid.x", Special::TidX},
    {"%tid.y", Special::TidY},
    {"%tid.z", Special::TidZ},
    {"%ntid.x", Special::NtidX},
    {"%ntid.y", Special::NtidY},
    {"%ntid.z", Special::NtidZ},
    {"%ctaid.x", Special::CtaidX},
    {"%ctaid.y", Special::CtaidY},
    {"%ctaid.z", Special::CtaidZ},
    {"%nctaid.x", Special::NctaidX},
    {"%nctaid.y", Special::NctaidY},
    {"%nctaid.z", Special::NctaidZ},
    {"%laneid", Special::LaneId},
    {"%warpid", Special::WarpId},
    {"%nwarpid", Special::NWarpId},
    {"%smid", Special::SmId},
    {"%nsmid", Special::NSmId},
    {"%gridid", Special::GridId},
    {"%lanemask_eq", Special::LaneMaskEq},
    {"%lanemask_le", Special::LaneMaskLe},
    {"%lanemask_lt", Special::LaneMaskLt},
    {"%lanemask_ge", Special::LaneMaskGe},
    {"%lanemask_gt", Special::LaneMaskGt},
    {"%dynamic_smem_size", Special::DynamicSharedSize},
    {"%total_smem_size", Special::TotalSharedSize},
    {"%envreg1", Special::EnvReg1},
    {"%envreg2", Special::EnvReg2},
    // Without clusters every block is a cluster of its own.
    {"%clusterid.x", Special::CtaidX},
    {"%clusterid.y", Special::CtaidY},
    {"%clusterid.z", Special::CtaidZ},
    {"%nclusterid.x", Special::NctaidX},
    {"%nclusterid.y", Special::NctaidY},
    {"%nclusterid.z", Special::NctaidZ},
    {"%cluster_ctaid.x", Special::Zero},
    {"%cluster_ctaid.y", Special::Zero},
    {"%cluster_ctaid.z", Special::Zero},
    {"%cluster_nctaid.x", Special::One},
    {"%cluster_nctaid.y", Special::One},
    {"%cluster_nctaid.z", Special::One},
    {"%cluster_ctarank", Special::Zero},
    {"%cluster_nctarank", Special::One},
};

}  // namespace

int Decoder::find_register(std::string_view name) {
    u64 element;
    int v = find_variable(*frame_->body, ast_->scope, name, element);
    if (v < 0 || frame_->body->variables[v].space != Space::Reg) return -1;
    const Variable& var = frame_->body->variables[v];
    int& first = frame_->first_register[v];
    if (first < 0) {
        if (var.vector != 1) error("vector registers are not supported");
        Register r;
        r.predicate = var.type == Type::Pred;
        r.bytes = type_bytes(var.type);
        if (r.bytes == 1) r.bytes = 2;  // .b8 registers are kept in 16 bits
        if (r.bytes > 8) unknown("register type ." + std::string(type_name(var.type)), "ptx/decode.cpp");
        first = int(registers_.size());
        if (registers_.size() + var.count > (1u << 22)) error("too many registers");
        registers_.resize(registers_.size() + var.count, r);
    }
    return first + int(element);
}

int Decoder::register_width(const Operand& o) {
    if (o.kind != Operand::Name) return 0;
    int r = find_register(o.name);
    return r < 0 ? 0 : registers_[r].bytes;
}

bool Decoder::is_predicate(const Operand& o) {
    if (o.kind != Operand::Name) return false;
    int r = find_register(o.name);
    return r >= 0 && registers_[r].predicate;
}

const Variable* Decoder::variable(const Operand& o) {
    if (o.kind != Operand::Name && o.kind != Operand::Address) return nullptr;
    u64 element;
    int v = find_variable(*frame_->body, ast_->scope, o.name, element);
    if (v >= 0) {
        const Variable& var = frame_->body->variables[v];
        return var.space == Space::Reg ? nullptr : &var;
    }
    for (const auto* list : {&frame_->function->params, &frame_->function->results})
        for (const Variable& p : *list)
            if (p.name == o.name) return &p;
    auto it = module_.variables.find(o.name);
    return it == module_.variables.end() ? nullptr : &it->second;
}

u32 Decoder::local_offset(u64 bytes, int align) {
    u64 at = (kernel_.local_bytes + u64(align) - 1) / align * align;
    if (at + bytes > (u64(1) << 20)) error("more than 1 MiB of local memory per thread");
    kernel_.local_bytes = u32(at + bytes);
    return u32(at);
}

u32 Decoder::shared_offset(const Variable& v) {
    auto it = shared_.find(v.name);
    if (it != shared_.end()) return it->second;
    u64 align = u64(std::max(v.align, 1)), at = (kernel_.static_shared + align - 1) / align * align;
    if (at + v.bytes() > (1u << 24)) error("too much shared memory");
    kernel_.static_shared = u32(at + v.bytes());
    return shared_[v.name] = u32(at);
}

u64 Decoder::address_of(const Operand& o, Space& space) {
    const Variable* v = variable(o);
    if (!v) error("unknown name '" + std::string(o.name) + "'");
    space = v->space;
    u64 base = 0;
    switch (v->space) {
        case Space::Param:
            if (frame_->function->entry) {
                size_t p = 0;
                for (; p < frame_->function->params.size(); p++)
                    if (&frame_->function->params[p] == v) break;
                if (p < frame_->function->params.size()) {
                    base = kernel_.params[p].offset;
                    break;
                }
            }
            space = Space::Local;  // arguments of calls live in local memory
            if (auto it = frame_->params.find(v->name); it != frame_->params.end()) {
                base = it->second;
                break;
            }
            [[fallthrough]];
        case Space::Local: {
            u64 element;
            int index = find_variable(*frame_->body, ast_->scope, o.name, element);
            if (index < 0) error("'" + v->name + "' has no place");
            s64& place = frame_->place[index];
            if (place < 0) place = local_offset(v->bytes(), v->align);
            base = u64(place);
            break;
        }
        case Space::Shared:
            base = shared_offset(*v);
            break;
        default:
            base = address_(*v);
    }
    return base + u64(o.value);
}

// ---- operands
// --------------------------------------------------------------------------------------------------

Column Decoder::new_constant(u64 bits, int bytes) {
    std::vector<char>& file = kernel_.constants;
    size_t at = file.size();
    file.resize(at + size_t(bytes) * kWarp);
    for (int l = 0; l < kWarp; l++) std::memcpy(&file[at + size_t(l * bytes)], &bits, size_t(bytes));
    return Column(at) | 1;
}

Column Decoder::constant(u64 bits, int bytes) {
    if (bytes < 8) bits &= (u64(1) << bytes * 8) - 1;
    auto [it, fresh] = constants_.try_emplace({bits, bytes}, kNoColumn);
    if (fresh) it->second = new_constant(bits, bytes);
    return it->second;
}

// Where dynamic shared memory begins is known only when all static variables have been met: patched at the
// end.
Column Decoder::address_constant(const Operand& o, int bytes, Space& space) {
    const Variable* v = variable(o);
    if (!v || v->space != Space::Shared || v->count != 0) return constant(address_of(o, space), bytes);
    space = Space::Shared;
    dynamic_align_ = std::max(dynamic_align_, v->align);
    Column c = new_constant(u64(o.value), bytes);
    dynamic_constants_.push_back({c, bytes});
    return c;
}

void Decoder::patch_dynamic_shared() {
    u32 align = u32(dynamic_align_);
    u32 base = kernel_.dynamic_shared_offset = (kernel_.static_shared + align - 1) / align * align;
    for (auto [column, bytes] : dynamic_constants_)
        for (int l = 0; l < kWarp; l++) {
            char* at = &kernel_.constants[size_t((column & ~1) + l * bytes)];
            u64 value = 0;
            std::memcpy(&value, at, size_t(bytes));
            value += base;
            std::memcpy(at, &value, size_t(bytes));
        }
}

Column Decoder::special(Special s) {
    Column& c = kernel_.special[size_t(s)];
    if (c != kNoColumn) return c;
    if (s <= Special::LaneMaskGt) {
        c = Column(registers_.size()) << 1;
        Register r;
        r.bytes = 4;
        r.pinned = true;
        registers_.push_back(r);
    } else {
        c = Column(kernel_.constants.size()) | 1;
        kernel_.constants.resize(kernel_.constants.size() + 4 * kWarp);
    }
    return c;
}

Column Decoder::scratch(int bytes) {
    Register r;
    r.bytes = bytes;
    writes_.push_back(int(registers_.size()));
    registers_.push_back(r);
    return Column(registers_.size() - 1) << 1;
}

Column Decoder::read_any_width(const Operand& o, Type type, u8& bytes) {
    bytes = u8(std::max(type_bytes(type), 2));
    switch (o.kind) {
        case Operand::Integer:
        case Operand::Float32:
        case Operand::Float64:
            if (type == Type::Pred) return constant(o.value ? ~0u : 0u, 4);
            return constant(constant_bits(o, type), bytes);
        case Operand::Address: {
            Space space;
            return address_constant(o, bytes, space);
        }
        case Operand::Name: {
            int r = find_register(o.name);
            if (r >= 0) {
                if (registers_[r].predicate != (type == Type::Pred))
                    error("predicate and value registers mixed");
                reads_.push_back(r);
                bytes = u8(registers_[r].bytes);
                return Column(r) << 1;
            }
            if (o.name[0] == '%') {
                for (const SpecialName& s : kSpecials)
                    if (o.name == s.name) {
                        if (bytes == 2) error("special registers have 32 bits");
                        bytes = 4;
                        return special(s.special);
                    }
                if (!variable(o)) unknown("register '" + std::string(o.name) + "'", "ptx/decode.cpp");
            }
            Space space;
            return address_constant(o, bytes, space);
        }
        default:
            error("this operand cannot be read");
    }
}

Column Decoder::read(const Operand& o, Type type) {
    if (o.negated) error("'!' is not possible here");
    u8 bytes;
    Column c = read_any_width(o, type, bytes);
    if (bytes != std::max(type_bytes(type), 2))
        error(text("operand '%s' has %d bytes, the instruction's type %d", std::string(o.name).c_str(), bytes,
                   type_bytes(type)));
    return c;
}

Column Decoder::write_any_width(const Operand& o, u8& bytes) {
    int r = o.kind == Operand::Name ? find_register(o.name) : -1;
    if (r < 0) error("the destination must be a register");
    writes_.push_back(r);
    bytes = u8(registers_[r].bytes);
    return Column(r) << 1;
}

Column Decoder::write(const Operand& o, Type type) {
    int expected = std::max(type_bytes(type), 2);
    if (o.kind == Operand::Sink) return scratch(expected);
    u8 bytes;
    Column c = write_any_width(o, bytes);
    if (bytes != expected || registers_[c >> 1].predicate != (type == Type::Pred))
        error(text("destination '%s' has %d bytes, the instruction's type %d", std::string(o.name).c_str(),
                   bytes, expected));
    return c;
}

void Decoder::read_address(const Operand& o, Inst& inst, Space& space) {
    if (o.kind != Operand::Address && o.kind != Operand::Name) error("expected an address");
    int r = o.name.empty() ? -1 : find_register(o.name);
    if (r >= 0) {
        reads_.push_back(r);
        inst.a = Column(r) << 1;
        inst.address_bytes = u8(registers_[r].bytes);
        if (inst.address_bytes < 4 || registers_[r].predicate) error("an address needs 32 or 64 bits");
        inst.immediate = o.value;
        return;
    }
    if (o.name.empty()) {
        inst.a = constant(u64(o.value), 8);
    } else {
        Space found;
        inst.a = address_constant(o, 8, found);
        // ld.param of a call's result and of a callee's own parameters is local memory here.
        if (space == Space::Generic || space == Space::Param) space = found;
    }
    inst.address_bytes = 8;
    inst.immediate = 0;
}

s64 Decoder::immediate(size_t i) {
    if (operand(i).kind != Operand::Integer) error("expected a constant operand");
    return operand(i).value;
}

// ---- code
// ------------------------------------------------------------------------------------------------------

void Decoder::emit(Inst inst) {
    if (kernel_.code.size() >= kLongestKernel) error("the kernel is too long");
    inst.source = ast_;
    if (ast_ && !ast_->guard.empty()) {
        int r = find_register(ast_->guard);
        if (r < 0 || !registers_[r].predicate)
            error("guard '" + std::string(ast_->guard) + "' is no predicate");
        inst.guard = Column(r) << 1;
        inst.guard_negated = ast_->guard_negated;
        reads_.push_back(r);
    }
    uses_.push_back({std::move(reads_), std::move(writes_), inst.guard != kNoColumn});
    reads_.clear();
    writes_.clear();
    kernel_.code.push_back(std::move(inst));
}

int Decoder::find_label(std::string_view name) const {
    for (int s = ast_->scope; s >= 0; s = frame_->body->scopes[s].parent) {
        auto it = frame_->body->scopes[s].labels.find(name);
        if (it != frame_->body->scopes[s].labels.end()) return it->second;
    }
    error("unknown label '" + std::string(name) + "'");
}

void Decoder::emit_branch(std::string_view label) {
    frame_->fixups.push_back({kernel_.code.size(), -1, find_label(label)});
    Inst i;
    i.flow = Flow::Branch;
    emit(std::move(i));
}

void Decoder::emit_index_branch(const Operand& index, std::string_view list) {
    const std::vector<std::string_view>* targets = nullptr;
    for (int s = ast_->scope; s >= 0 && !targets; s = frame_->body->scopes[s].parent) {
        auto it = frame_->body->scopes[s].branch_targets.find(list);
        if (it != frame_->body->scopes[s].branch_targets.end()) targets = &it->second;
    }
    if (!targets) error("unknown list of branch targets '" + std::string(list) + "'");
    Inst i;
    i.flow = Flow::IndexBranch;
    i.a = read(index, Type::U32);
    for (std::string_view label : *targets) {
        frame_->fixups.push_back({kernel_.code.size(), int(i.more.size()), find_label(label)});
        i.more.push_back(0);
    }
    emit(std::move(i));
}

void Decoder::emit_return(bool whole_kernel) {
    Inst i;
    if (whole_kernel || frame_->function->entry) {
        i.flow = Flow::Exit;
    } else {
        i.flow = Flow::Branch;
        frame_->fixups.push_back({kernel_.code.size(), -1, int(frame_->body->code.size())});
    }
    emit(std::move(i));
}

void Decoder::call() {
    size_t at = 0;
    const std::vector<Operand>& ops = ast_->operands;
    const Operand* results = ops.size() > 1 && ops[0].kind == Operand::Vector ? &ops[at++] : nullptr;
    if (at >= ops.size() || ops[at].kind != Operand::Name) error("malformed call");
    std::string_view name = ops[at++].name;
    const Operand* arguments = at < ops.size() && ops[at].kind == Operand::Vector ? &ops[at] : nullptr;
    auto place = [&](const Operand* list, size_t k) {
        Space space;
        u64 offset = address_of(list->parts[k], space);
        if (space != Space::Local) error("only .param variables can be passed");
        return u32(offset);
    };
    if (find_register(name) >= 0) unknown("indirect call", "ptx/decode.cpp (call)");
    auto it = module_.functions.find(name);
    if (it == module_.functions.end()) error("call of unknown function '" + std::string(name) + "'");
    Function& callee = it->second;
    std::vector<u32> args, outs;
    for (size_t k = 0; arguments && k < arguments->parts.size(); k++) args.push_back(place(arguments, k));
    for (size_t k = 0; results && k < results->parts.size(); k++) outs.push_back(place(results, k));
    if (args.size() != callee.params.size() || outs.size() != callee.results.size())
        error("wrong number of arguments for '" + callee.name + "'");
    if (callee.text.empty()) {
        emit_system_call(*this, callee.name, args, outs);
        return;
    }
    if (depth_ >= 24) error("calls nested too deeply: recursion is not supported");

    // A guarded call becomes a branch around the inlined body.
    const Instruction* caller_ast = ast_;
    size_t skip = kernel_.code.size();
    bool guarded = !ast_->guard.empty();
    if (guarded) {
        Inst i;
        i.flow = Flow::Branch;
        emit(std::move(i));
        kernel_.code.back().guard_negated ^= true;
    }
    Frame inner;
    inner.function = &callee;
    for (size_t k = 0; k < args.size(); k++) inner.params[callee.params[k].name] = args[k];
    for (size_t k = 0; k < outs.size(); k++) inner.params[callee.results[k].name] = outs[k];
    Frame* outer = frame_;
    depth_++;
    body(callee, inner);
    depth_--;
    frame_ = outer;
    ast_ = caller_ast;
    if (guarded) kernel_.code[skip].immediate = s64(kernel_.code.size());
}

void Decoder::body(Function& f, Frame& frame) {
    frame.function = &f;
    frame.body = &parse_body(module_, f);
    frame.first_register.assign(frame.body->variables.size(), -1);
    frame.place.assign(frame.body->variables.size(), -1);
    frame_ = &frame;
    for (const Instruction& i : frame.body->code) {
        ast_ = &i;
        frame.pc.push_back(int(kernel_.code.size()));
        Form form(i.opcode);
        Builder build = find_builder(form.base());
        if (!build) unknown("instruction", "exec/table.cpp");
        reads_.clear();
        writes_.clear();
        build(*this, form);
        frame_ = &frame;
        if (!form.rest().empty()) unknown("modifier ." + std::string(form.rest()[0]), "exec");
    }
    frame.pc.push_back(int(kernel_.code.size()));
    if (f.entry) {  // falling off the end is a return
        ast_ = nullptr;
        Inst i;
        i.flow = Flow::Exit;
        emit(std::move(i));
    }
    for (const Frame::Fixup& x : frame.fixups) {
        int target = frame.pc[size_t(x.target)];
        if (x.more < 0)
            kernel_.code[x.at].immediate = target;
        else
            kernel_.code[x.at].more[size_t(x.more)] = target;
    }
}

Kernel Decoder::decode(Function& entry) {
    kernel_ = Kernel();
    kernel_.name = entry.name;
    kernel_.module = &module_;
    kernel_.max_threads = entry.max_threads;
    kernel_.special.assign(size_t(Special::Count), kNoColumn);
    u64 at = 0;
    for (const Variable& p : entry.params) {
        at = (at + u64(p.align) - 1) / p.align * p.align;
        if (at + p.bytes() > 32768) throw PtxError("kernel parameters larger than 32 KiB", entry.text_line);
        kernel_.params.push_back({u32(at), u32(p.bytes())});
        at += p.bytes();
    }
    kernel_.param_bytes = u32(at);
    Frame frame;
    body(entry, frame);
    patch_dynamic_shared();
    kernel_.virtual_registers = int(registers_.size());
    pack();
    return std::move(kernel_);
}

}  // namespace cusim
