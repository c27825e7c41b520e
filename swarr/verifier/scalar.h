// scalar.h: whether two expressions have the same value.
//
// Exact fractions decide where both sides are fractions of bounded size; residues modulo two primes where
// they are larger or have symbols; otherwise both are evaluated to 256 bits with an error bound, must agree
// to the last digit kept, and again with 384 bits. There is no tolerance. Symbols take the same values on
// both sides at several points, and must be the same symbols.
#pragma once
#include "evaluate.h"

namespace verifier {

// A part of an answer: a node and how it is read.
struct Part {
    const Tree* tree = nullptr;
    int node = -1;
    bool minus = false;            // \pm is minus here
    std::string_view renamed, to;  // see Reading

    const Node& operator*() const { return (*tree)[node]; }
    Kind kind() const { return (*tree)[node].kind; }
    int count() const { return (*tree)[node].count; }
    Part kid(int k) const {
        Part out = *this;
        out.node = tree->kid(node, k);
        return out;
    }
    const std::string& name() const { return tree->name(node); }
};

struct Options {
    // A decimal of the gold with at least four significant digits is also met by an exact form (a fraction, a
    // root, pi) that rounds to it; and an exact gold by a decimal that is its correct rounding to at least
    // `least_decimals` digits after the point. Never between two decimals, and never for an integer.
    bool round_decimals = true;
    int least_decimals = 6;
    // An equation chain counts by its last side (running text); otherwise all its sides must agree (a box).
    bool last_side = false;
};

namespace detail {

// The sign of an infinite expression, 0 for others.
inline int infinite(const Part& p) {
    switch (p.kind()) {
        case Kind::constant:
            return (*p).op == uint8_t(Const::infinity);
        case Kind::negate:
            return -infinite(p.kid(0));
        case Kind::plus_minus:
            return ((*p).op == 1) != p.minus ? -infinite(p.kid(0)) : infinite(p.kid(0));
        default:
            return 0;
    }
}

inline Reading reading(const Part& p, bool drop_marks, bool log_ten, int point = 0) {
    Reading r;
    r.tree = p.tree, r.minus = p.minus, r.drop_marks = drop_marks, r.log_ten = log_ten, r.point = point;
    r.renamed = p.renamed, r.to = p.to;
    return r;
}
inline std::vector<std::string_view> symbols(const Part& p) {
    std::vector<std::string_view> out = symbols_of(*p.tree, p.node);
    if (p.renamed.empty()) return out;
    for (std::string_view& s : out)
        if (s == p.renamed) s = p.to;
    std::sort(out.begin(), out.end());
    return out;
}

template <int N>
bool agree(const Complex<N>& a, const Complex<N>& b) {
    auto close = [](const Real<N>& x, const Real<N>& y, int64_t size) {
        Real<N> d = x - y;
        return !d.bad && d.may_be_zero() && d.err.top() < size - 24 * N;
    };
    int64_t size = INT64_MIN / 2;
    for (const Real<N>* x : {&a.re, &a.im, &b.re, &b.im})
        if (!x->may_be_zero() && x->exp > size) size = x->exp;
    if (size == INT64_MIN / 2) size = 0;  // both are zero, to within their error
    return close(a.re, b.re, size) && close(a.im, b.im, size);
}

// Kinds that ask for integers: a symbol in them is taken to be one.
inline bool wants_integers(const Part& p) {
    return any_node(*p.tree, p.node, [](const Node& n) {
        return n.kind == Kind::factorial || n.kind == Kind::binomial || n.kind == Kind::modulo ||
               n.kind == Kind::big_sum || (n.kind == Kind::opaque && n.op == as_binomial) ||
               (n.kind == Kind::function && (n.op == uint8_t(Fn::floor) || n.op == uint8_t(Fn::ceil)));
    });
}

struct Scalars {
    Budget& budget;

    template <class F>
    typename F::Value value(const Part& p, bool drop, bool ten, int point, bool* left_reals = nullptr) {
        Evaluator<F> e(reading(p, drop, ten, point), budget);
        auto v = e(p.node);
        if (left_reals) *left_reals |= e.left_reals;
        return v;
    }
    // At 256 bits, and again at 384.
    bool agree_at(const Part& a, const Part& b, bool drop, bool ten, int point) {
        auto x = value<Ball<6>>(a, drop, ten, point), y = value<Ball<6>>(b, drop, ten, point);
        return !x.bad() && !y.bad() && agree(x, y);
    }
    bool same_value(const Part& a, const Part& b, bool drop, bool ten) {
        if (int ia = infinite(a), ib = infinite(b); ia || ib) return ia == ib;
        auto qa = value<Exact>(a, drop, ten, 0), qb = value<Exact>(b, drop, ten, 0);
        if (qa.ok && qb.ok) return qa.v == qb.v;
        std::vector<std::string_view> sa = symbols(a), sb = symbols(b);
        if (sa != sb) return false;
        auto ra = value<Residues>(a, drop, ten, 0), rb = value<Residues>(b, drop, ten, 0);
        if (ra.ok && rb.ok) return ra.v[0] == rb.v[0] && ra.v[1] == rb.v[1];
        if (sa.empty()) {
            auto x = value<Ball<4>>(a, drop, ten, 0), y = value<Ball<4>>(b, drop, ten, 0);
            return !x.bad() && !y.bad() && agree(x, y) && agree_at(a, b, drop, ten, 0);
        }
        bool integers = wants_integers(a) || wants_integers(b);
        int first = integers ? real_points : 0, last = integers ? real_points + integer_points : real_points;
        int met = 0, needed = integers ? 3 : 2, at = -1;
        for (int point = first; point < last; point++) {
            bool left = false;
            auto x = value<Ball<4>>(a, drop, ten, point, &left),
                 y = value<Ball<4>>(b, drop, ten, point, &left);
            if (x.bad() || y.bad()) continue;  // outside the domain of one
            if (agree(x, y)) {
                met++, at = point;
            } else if (!left || point < 3 || integers) {
                return false;
            }
        }
        return met >= needed && agree_at(a, b, drop, ten, at);
    }
    // Readings of marks and of log that both sides may have meant.
    bool equal(const Part& a, const Part& b) {
        auto marks = [](const Node& n) { return n.kind == Kind::percent || n.kind == Kind::degree; };
        auto bare_log = [](const Node& n) {
            return n.kind == Kind::function && n.op == uint8_t(Fn::log) && n.count == 1;
        };
        auto has = [](const Part& p, Kind kind) {
            return any_node(*p.tree, p.node, [kind](const Node& n) { return n.kind == kind; });
        };
        bool marked = any_node(*a.tree, a.node, marks) || any_node(*b.tree, b.node, marks);
        bool other_marks = marked && has(a, Kind::percent) != has(b, Kind::percent) &&
                           has(a, Kind::degree) != has(b, Kind::degree) &&
                           has(a, Kind::percent) != has(a, Kind::degree);
        marked = marked && !other_marks;  // 5% is not 5 degrees
        bool logs = any_node(*a.tree, a.node, bare_log) || any_node(*b.tree, b.node, bare_log);
        for (int ten = 0; ten <= int(logs); ten++)
            for (int drop = 0; drop <= int(marked); drop++)
                if (same_value(a, b, drop, ten)) return true;
        return false;
    }
    // The decimal an expression is written as, under signs, units and marks.
    static const Number* decimal(Part p, bool& negative) {
        negative = false;
        for (;;) {
            if (p.kind() == Kind::negate)
                negative = !negative;
            else if (p.kind() != Kind::unit && p.kind() != Kind::percent && p.kind() != Kind::degree)
                break;
            p = p.kid(0);
        }
        return p.kind() == Kind::number ? &p.tree->number_of(p.node) : nullptr;
    }
    // Whether the exact form rounds to the decimal at the decimal's own digits.
    bool rounds_to(const Part& exact, const Number& decimal, bool negative) {
        auto v = value<Ball<4>>(exact, true, false, 0);
        if (v.bad() || !v.real()) return false;
        using R = Real<4>;
        BigInt scale;
        Rational ten;
        if (!Rational::power(Rational{10, 1}, decimal.after_point, ten, budget)) return false;
        R shown = R::from(decimal.value.num) / R::from(decimal.value.den), unit = R::from(ten.num);
        R off = (v.re - (negative ? -shown : shown)) * unit;
        off.negative = false;
        return R::compare(off, R(1).scaled(-1)) <= 0;
    }
    bool equal_by_rounding(const Part& gold, const Part& pred, const Options& options) {
        if (!options.round_decimals) return false;
        bool gold_minus, pred_minus;
        const Number *g = decimal(gold, gold_minus), *p = decimal(pred, pred_minus);
        bool gold_decimal = g && g->digits, pred_decimal = p && p->digits;
        if (gold_decimal == pred_decimal) return false;
        if (gold_decimal)
            return g->digits >= 4 && g->after_point > 0 && symbols(pred).empty() &&
                   rounds_to(pred, *g, gold_minus);
        if (g && g->value.integer()) return false;
        return p->after_point >= options.least_decimals && symbols(gold).empty() &&
               rounds_to(gold, *p, pred_minus);
    }
};

}  // namespace detail
}  // namespace verifier
