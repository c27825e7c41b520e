// names.h: the left side of "x = 5" and "f(n) = n": what it is called, and which sides are values.
//
// Two names must agree, except in the variable of a call: f(n) = n is f(x) = x.
#pragma once
#include "scalar.h"

namespace verifier {
namespace detail {

inline std::string spelled(const Part& p) {
    if (p.kind() == Kind::number) return p.tree->number_of(p.node).value.text();
    return p.kind() == Kind::symbol ? p.name() : "?";
}
// What can stand on the left of "=" without being part of the answer: a symbol, words, AB, f(x), P(A),
// A:B, |AB|, (x, y). The variable of a call is returned apart. Empty: no name.
inline std::string name_of(const Part& p, std::string_view& variable) {
    switch (p.kind()) {
        case Kind::symbol:
        case Kind::text:
            return p.name();
        case Kind::constant:
            return (*p).op == uint8_t(Const::e) ? "e" : "";
        case Kind::opaque:
            if (p.count() == 1 && p.kid(0).kind() == Kind::symbol) variable = p.kid(0).name();
            return p.name()[0] == '_'
                       ? ""
                       : p.name() + "()" + (p.count() == 1 && variable.empty() ? spelled(p.kid(0)) : "");
        case Kind::mul: {
            if (p.count() == 2 && p.kid(0).kind() == Kind::symbol &&
                ((p.kid(1).kind() == Kind::symbol || p.kid(1).kind() == Kind::number) &&
                 (*p.kid(1)).op == in_brackets)) {
                if (p.kid(1).kind() == Kind::symbol) variable = p.kid(1).name();
                return p.kid(0).name() + "()" + (variable.empty() ? spelled(p.kid(1)) : "");
            }
            Part first = p.kid(0), last = p.kid(p.count() - 1);
            bool inverse = p.count() == 2 && first.kind() == Kind::power &&
                           first.kid(0).kind() == Kind::symbol && first.kid(1).kind() == Kind::negate &&
                           last.kind() == Kind::symbol && (*last).op == in_brackets;  // f^{-1}(x)
            if (inverse)
                return variable = last.name(), first.kid(0).name() + "^-" + spelled(first.kid(1).kid(0));
            if (p.count() == 2 && first.kind() == Kind::symbol && last.kind() == Kind::relation)  // P(X = 2)
                return first.name() + "(" + spelled(last.kid(0)) + spelled(last.kid(last.count() - 1)) + ")";
            std::string name;
            for (int k = 0; k < p.count(); k++) {
                if (p.kid(k).kind() == Kind::text) {
                    name += p.kid(k).name();
                    continue;
                }
                if (p.kid(k).kind() != Kind::symbol || p.count() > 4) return "";
                char c = p.kid(k).name()[0];
                bool capital = c >= 'A' && c <= 'Z',
                     measure = k == 0 && p.count() > 1 && c == 'm';  // m\angle A
                if (!capital && !measure) return "";
                name += p.kid(k).name();
            }
            return name;
        }
        case Kind::divide: {  // dy/dx
            Part over = p.kid(0), under = p.kid(1);
            for (const Part& d : {over, under})
                if (d.kind() != Kind::mul || d.count() != 2 || d.kid(0).kind() != Kind::symbol ||
                    d.kid(0).name() != "d" || d.kid(1).kind() != Kind::symbol)
                    return "";
            return "d" + over.kid(1).name() + "/d" + under.kid(1).name();
        }
        case Kind::function:
            return (*p).op == uint8_t(Fn::abs) && p.count() == 1 ? "|" + name_of(p.kid(0), variable) + "|"
                                                                 : "";
        case Kind::ratio:
        case Kind::tuple: {
            std::string name = "(";
            for (int k = 0; k < p.count(); k++) {
                std::string_view inner;
                std::string part = name_of(p.kid(k), inner);
                if (part.empty()) return "";
                name += part + (p.kind() == Kind::ratio ? ":" : ",");
            }
            return name;
        }
        default:
            return "";
    }
}
struct Assignment {
    std::string name;
    std::string_view variable;
    Part relation;
    int first = 0;  // sides from here on are values
};
inline bool assignment(const Part& p, Assignment& out) {
    if (p.kind() != Kind::relation) return false;
    out.relation = p, out.first = 1;
    Rel r = p.tree->relations[size_t((*p).value)];
    if (r != Rel::eq && r != Rel::approx && r != Rel::in && r != Rel::equiv) return false;
    out.name = name_of(p.kid(0), out.variable);
    if (out.name.empty() && p.count() == 2 && r == Rel::eq) {  // 5 = x
        out.name = name_of(p.kid(1), out.variable);
        out.first = 0;
        if (!symbols(p.kid(0)).empty() || p.kid(1).kind() == Kind::text) return false;
    }
    return !out.name.empty() && out.name != "||";
}

}  // namespace detail
}  // namespace verifier
