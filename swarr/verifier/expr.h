// expr.h: the expression tree of an answer, in one arena; no node owns memory.
//
// A node may have several parents (the entries of a matrix product do), so every node knows how large and how
// deep the tree below it is when written out; a tree beyond max_nodes or max_levels is not read. Hence every
// walk may recurse and visits at most max_nodes nodes.
#pragma once
#include <algorithm>
#include <cstdint>
#include <string>
#include <vector>

#include "bigint.h"
#include "lex.h"

namespace verifier {

constexpr size_t max_nodes = 20000;
constexpr int max_depth = 120;   // of the parser's recursion
constexpr int max_levels = 400;  // of the tree

enum class Kind : uint8_t {
    // scalars
    number,       // value: index into numbers
    long_number,  // an integer or decimal beyond max_bits; value: index into names (digits as written)
    symbol,       // value: name
    constant,     // op: Const
    add,
    mul,        // n children
    divide,     // 2
    negate,     // 1
    power,      // base, exponent
    root,       // radicand, degree
    function,   // op: Fn; arguments (log: argument, base)
    factorial,  // op: double_factorial for n!!
    binomial,
    modulo,
    plus_minus,  // 1; op: 1 for the opposite sign of the others
    percent,
    degree,
    unit,     // 1; value: name of the unit
    opaque,   // value: name; a function nothing is known about, of its children; op: as_binomial
    big_sum,  // op: 0 sum, 1 product; lower, upper, body; value: name of the bound symbol
    // structures
    tuple,     // op: brackets; children in order
    set,       // \{ \}; children in any order
    list,      // a, b and c; op: the word between them (see Join)
    matrix,    // children row by row; op: columns
    relation,  // children e0 r1 e1 r2 e2; value: index into relations, one fewer than children
    unite,
    intersect,
    minus_set,
    based,  // value: name (digits); op: base
    ratio,  // children
    time,   // value: name
    text,   // words; value: name
    ellipsis,
    empty_set,
    builder  // builder: variable or expression, condition...
};

// a < b is b > a.
inline Rel mirrored(Rel r) {
    switch (r) {
        case Rel::lt:
            return Rel::gt;
        case Rel::gt:
            return Rel::lt;
        case Rel::le:
            return Rel::ge;
        case Rel::ge:
            return Rel::le;
        default:
            return r;
    }
}

enum class Join : uint8_t { comma, conj_and, conj_or };

// Brackets of a tuple, by the ends they include: (a,b) = 0, [a,b) = 1, (a,b] = 2, [a,b] = 3; <a,b> = 4.
constexpr uint8_t closed_left = 1, closed_right = 2, angle_brackets = 4;

// op of a symbol or number that stood alone in round brackets: the x of P(x).
constexpr uint8_t in_brackets = 1;

constexpr uint8_t double_factorial = 1, as_binomial = 1;

struct Node {
    Kind kind;
    uint8_t op = 0;
    int value = -1;
    int first = 0, count = 0;  // children: kids[first .. first + count)
    int size = 1, levels = 1;  // of the tree below, written out
};

struct Number {
    Rational value;
    int digits = 0;       // significant digits of a decimal as written; 0 for an integer
    int after_point = 0;  // digits after the point
};

struct Tree {
    std::vector<Node> nodes;
    std::vector<int> kids;
    std::vector<Number> numbers;
    std::vector<std::string> names;
    std::vector<Rel> relations;
    int root = -1;
    bool read = false;              // false: not readable; only its text can be compared
    bool ambiguous_commas = false;  // a comma was read as a thousands separator
    bool too_large = false;

    const Node& operator[](int n) const { return nodes[size_t(n)]; }
    int kid(int n, int k) const { return kids[size_t(nodes[size_t(n)].first + k)]; }
    const std::string& name(int n) const { return names[size_t(nodes[size_t(n)].value)]; }

    int make(Kind kind, const std::vector<int>& children, uint8_t op = 0, int value = -1) {
        return make(kind, children.data(), children.size(), op, value);
    }
    int unary(Kind kind, int a, uint8_t op = 0) { return make(kind, &a, 1, op, -1); }
    int binary(Kind kind, int a, int b, uint8_t op = 0) {
        int children[] = {a, b};
        return make(kind, children, 2, op, -1);
    }
    int make(Kind kind, const int* children, size_t count, uint8_t op, int value) {
        Node node;
        node.kind = kind, node.op = op, node.value = value;
        node.first = int(kids.size()), node.count = int(count);
        for (size_t k = 0; k < count; k++) {
            const Node& kid = nodes[size_t(children[k])];
            node.size = std::min(node.size + kid.size, int(2 * max_nodes));
            node.levels = std::max(node.levels, kid.levels + 1);
            kids.push_back(children[k]);
        }
        too_large |= node.size > int(max_nodes) || node.levels > max_levels;
        nodes.push_back(node);
        return int(nodes.size()) - 1;
    }
    int leaf(Kind kind, uint8_t op = 0, int value = -1) {
        Node node;
        node.kind = kind, node.op = op, node.value = value;
        nodes.push_back(node);
        return int(nodes.size()) - 1;
    }
    int named(Kind kind, std::string name, uint8_t op = 0) {
        names.push_back(std::move(name));
        return leaf(kind, op, int(names.size()) - 1);
    }
    int number(const Number& value) {
        numbers.push_back(value);
        return leaf(Kind::number, 0, int(numbers.size()) - 1);
    }
    int integer(int64_t value) { return number(Number{Rational{value, 1}, 0, 0}); }
    bool is_integer(int n) const {
        return (*this)[n].kind == Kind::number && numbers[size_t((*this)[n].value)].value.integer();
    }
    const Number& number_of(int n) const { return numbers[size_t((*this)[n].value)]; }
};

// The symbols of an expression, sorted, each once; those bound by a sum are left out.
inline void collect_symbols(const Tree& t, int n, std::vector<std::string_view>& out) {
    const Node& node = t[n];
    if (node.kind == Kind::symbol || node.kind == Kind::text) out.push_back(t.name(n));
    size_t before = out.size();
    for (int k = 0; k < node.count; k++) collect_symbols(t, t.kid(n, k), out);
    if (node.kind == Kind::big_sum)
        out.erase(std::remove(out.begin() + long(before), out.end(), std::string_view(t.name(n))), out.end());
}
inline std::vector<std::string_view> symbols_of(const Tree& t, int n) {
    std::vector<std::string_view> out;
    collect_symbols(t, n, out);
    std::sort(out.begin(), out.end());
    out.erase(std::unique(out.begin(), out.end()), out.end());
    return out;
}
// Whether any node below n (itself included) is of one of the kinds.
template <class Test>
bool any_node(const Tree& t, int n, Test test) {
    if (test(t[n])) return true;
    for (int k = 0; k < t[n].count; k++)
        if (any_node(t, t.kid(n, k), test)) return true;
    return false;
}

}  // namespace verifier
