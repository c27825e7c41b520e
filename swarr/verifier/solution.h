// solution.h: sets of real numbers as sorted intervals, from interval notation, unions, inequalities in one
// variable, set builders and x != a; so that all of them can be compared with each other.
#pragma once
#include "scalar.h"

namespace verifier {
namespace detail {

struct End {
    int infinite = 0;  // -1, 1
    Real<4> v;
    static int compare(const End& a, const End& b) {
        if (a.infinite || b.infinite) return a.infinite - b.infinite;
        return Real<4>::compare(a.v, b.v);
    }
};
struct Interval {
    End low, high;
    bool low_closed = false, high_closed = false;
    bool empty() const {
        int order = End::compare(low, high);
        return order > 0 || (order == 0 && !(low_closed && high_closed));
    }
};
using Intervals = std::vector<Interval>;

inline Interval everything() {
    Interval out;
    out.low.infinite = -1, out.high.infinite = 1;
    return out;
}
// Sorted, overlaps merged, empty ones dropped.
inline Intervals merged(Intervals in) {
    in.erase(std::remove_if(in.begin(), in.end(), [](const Interval& i) { return i.empty(); }), in.end());
    std::stable_sort(in.begin(), in.end(), [](const Interval& a, const Interval& b) {
        int order = End::compare(a.low, b.low);
        return order < 0 || (order == 0 && a.low_closed && !b.low_closed);
    });
    Intervals out;
    for (const Interval& i : in) {
        int gap = out.empty() ? 1 : End::compare(i.low, out.back().high);
        if (gap > 0 || (gap == 0 && !i.low_closed && !out.back().high_closed)) {
            out.push_back(i);
            continue;
        }
        int order = End::compare(i.high, out.back().high);
        if (order > 0) out.back().high = i.high, out.back().high_closed = i.high_closed;
        if (order == 0) out.back().high_closed |= i.high_closed;
    }
    return out;
}
inline Intervals intersected(const Intervals& a, const Intervals& b) {
    Intervals out;
    for (const Interval& x : a)
        for (const Interval& y : b) {
            Interval z;
            int low = End::compare(x.low, y.low), high = End::compare(x.high, y.high);
            z.low = low >= 0 ? x.low : y.low, z.high = high <= 0 ? x.high : y.high;
            z.low_closed = low > 0 ? x.low_closed : low < 0 ? y.low_closed : x.low_closed && y.low_closed;
            z.high_closed = high < 0   ? x.high_closed
                            : high > 0 ? y.high_closed
                                       : x.high_closed && y.high_closed;
            out.push_back(z);
        }
    return merged(out);
}
inline Intervals complement(const Intervals& a) {
    Intervals out;
    Interval next = everything();
    for (const Interval& i : a) {
        next.high = i.low, next.high_closed = !i.low_closed && !i.low.infinite;
        out.push_back(next);
        next = everything();
        next.low = i.high, next.low_closed = !i.high_closed && !i.high.infinite;
    }
    if (a.empty() || !a.back().high.infinite) out.push_back(next);
    return merged(out);
}
inline bool same(const Intervals& a, const Intervals& b) {
    if (a.size() != b.size()) return false;
    for (size_t i = 0; i < a.size(); i++)
        if (End::compare(a[i].low, b[i].low) || End::compare(a[i].high, b[i].high) ||
            a[i].low_closed != b[i].low_closed || a[i].high_closed != b[i].high_closed)
            return false;
    return true;
}

// Reads solution sets. `variable` is the one symbol (or f(x)) the inequalities are about; empty for
// intervals.
struct Solutions {
    Budget& budget;
    std::string variable;

    static constexpr size_t most = 64;

    bool read(const Part& p, Intervals& out) {
        if (!pieces(p, out) || out.size() > most) return false;
        out = merged(out);
        return true;
    }

    static bool is_reals(const Part& p) {
        if (p.kind() == Kind::symbol) return p.name() == "mathbb R";
        if (p.kind() != Kind::text) return false;
        const std::string& n = p.name();
        return n == "all real numbers" || n == "all reals" || n == "all real" || n == "real numbers" ||
               n == "reals";
    }

  private:
    bool end(const Part& p, End& out) {
        if ((out.infinite = infinite(p))) return true;
        if (!symbols(p).empty()) return false;
        Evaluator<Ball<4>> e(reading(p, false, false), budget);
        auto v = e(p.node);
        out.v = v.re;
        return !v.bad() && v.real();
    }
    bool point(const Part& p, Intervals& out) {
        Interval i;
        if (!end(p, i.low) || i.low.infinite) return false;
        i.high = i.low, i.low_closed = i.high_closed = true;
        out.push_back(i);
        return true;
    }
    bool pieces(const Part& p, Intervals& out) {
        if (!budget.spend(200)) return false;
        switch (p.kind()) {
            case Kind::unit:
                return pieces(p.kid(0), out);
            case Kind::empty_set:
                return true;
            case Kind::symbol:
            case Kind::text:
                if (is_reals(p)) out.push_back(everything());
                return is_reals(p);
            case Kind::tuple: {
                Interval i;
                if (p.count() != 2 || (*p).op >= angle_brackets || !end(p.kid(0), i.low) ||
                    !end(p.kid(1), i.high))
                    return false;
                i.low_closed = (*p).op & closed_left && !i.low.infinite,
                i.high_closed = (*p).op & closed_right && !i.high.infinite;
                out.push_back(i);
                return true;
            }
            case Kind::set:
                for (int k = 0; k < p.count(); k++)
                    if (!point(p.kid(k), out)) return false;
                return true;
            case Kind::unite:
                return pieces(p.kid(0), out) && pieces(p.kid(1), out);
            case Kind::intersect:
            case Kind::minus_set: {
                Intervals a, b;
                if (!read(p.kid(0), a) || !read(p.kid(1), b)) return false;
                out = intersected(a, p.kind() == Kind::intersect ? b : complement(b));
                return true;
            }
            case Kind::add: {  // \mathbb{R} - \{1\}
                if (p.count() != 2 || p.kid(1).kind() != Kind::negate) return false;
                Intervals a, b;
                if (!is_reals(p.kid(0)) || !read(p.kid(1).kid(0), b)) return false;
                out = complement(b);
                return true;
            }
            case Kind::builder: {
                Part head = p.kid(0);
                if (head.kind() == Kind::relation) head = head.kid(0);
                return head.kind() == Kind::symbol && pieces(p.kid(1), out);
            }
            case Kind::list:
                return conditions(p, out);
            case Kind::relation:
                return relation(p, out);
            default:
                return false;
        }
    }
    bool conditions(const Part& p, Intervals& out) {
        Intervals all{everything()}, any;
        bool relations = false;
        for (int k = 0; k < p.count(); k++) {
            Intervals one;
            bool membership = p.kid(k).kind() == Kind::relation;
            relations |= membership;
            if (!membership && (*p).op != uint8_t(Join::conj_or)) return false;
            if (!read(p.kid(k), one)) return false;
            all = intersected(all, one);
            any.insert(any.end(), one.begin(), one.end());
            if (any.size() > most) return false;
        }
        if (!relations && (*p).op != uint8_t(Join::conj_or)) return false;
        // "x > 1 and x < 3"; "x < 1, x > 3" can only be a union
        bool both = (*p).op != uint8_t(Join::conj_or) && !all.empty();
        out = both ? all : merged(any);
        return true;
    }
    // a*v + b = 0 at v = root, with the sign of a; false where the difference of the sides is not linear.
    bool linear(const Part& left, const Part& right, std::string_view v, Real<4>& root, bool& falling) {
        Real<4> at[4];
        static constexpr int64_t x[] = {0, 1, 2, 7};
        for (int k = 0; k < 4; k++) {
            Evaluator<Ball<4>> l(reading(left, false, false), budget),
                r(reading(right, false, false), budget);
            l.bind(v, x[k]), r.bind(v, x[k]);
            auto d = l(left.node) - r(right.node);
            if (d.bad() || !d.real()) return false;
            at[k] = d.re;
        }
        Real<4> slope = at[1] - at[0];
        if (slope.may_be_zero() || Real<4>::compare(at[2], at[1] + slope) ||
            Real<4>::compare(at[3], at[0] + slope * Real<4>(7)))
            return false;
        root = -at[0] / slope;
        falling = slope.negative;
        return !root.bad;
    }
    static bool half_line(Rel r, const End& at, Intervals& out) {
        Interval i = everything();
        switch (r) {
            case Rel::lt:
            case Rel::le:
                i.high = at, i.high_closed = r == Rel::le && !at.infinite;
                break;
            case Rel::gt:
            case Rel::ge:
                i.low = at, i.low_closed = r == Rel::ge && !at.infinite;
                break;
            case Rel::eq:
                i.low = i.high = at, i.low_closed = i.high_closed = true;
                break;
            case Rel::ne:
                i.low = i.high = at, i.low_closed = i.high_closed = true;
                out = complement({i});
                return true;
            default:
                return false;
        }
        out.push_back(i);
        return true;
    }
    // One symbol x, or a call f(x), for which interval and inequality say the same.
    static std::string call_name(const Part& p) {
        if (p.kind() == Kind::symbol) return p.name();
        bool call = p.kind() == Kind::opaque && p.count() == 1 && p.kid(0).kind() == Kind::symbol;
        if (call) return p.name() + "()";
        bool product = p.kind() == Kind::mul && p.count() == 2 && p.kid(0).kind() == Kind::symbol &&
                       p.kid(1).kind() == Kind::symbol && (*p.kid(1)).op == in_brackets;
        return product ? p.kid(0).name() + "()" : "";
    }
    bool about(const std::string& name) {
        if (variable.empty()) variable = name;
        return !name.empty() && variable == name;
    }
    bool relation(const Part& p, Intervals& out) {
        Intervals all{everything()};
        for (int k = 0; k + 1 < p.count(); k++) {
            Intervals one;
            if (!pair(p.kid(k), p.tree->relations[size_t((*p).value + k)], p.kid(k + 1), one)) return false;
            all = intersected(all, merged(one));
        }
        out.insert(out.end(), all.begin(), all.end());
        return true;
    }
    bool pair(const Part& left, Rel r, const Part& right, Intervals& out) {
        if (r == Rel::in) return about(call_name(left)) && pieces(right, out);
        End at;
        bool right_constant = symbols(right).empty(), left_constant = symbols(left).empty();
        if (right_constant == left_constant && right_constant) return false;
        if (left_constant) return pair(right, mirrored(r), left, out);
        if (right_constant && end(right, at)) {
            if (std::string name = call_name(left); !name.empty())
                return about(name) && half_line(r, at, out);
            if (left.kind() == Kind::function && (*left).op == uint8_t(Fn::abs) && !at.infinite)
                return absolute(left.kid(0), r, at, out);
        }
        std::vector<std::string_view> names = symbols(left), more = symbols(right);
        names.insert(names.end(), more.begin(), more.end());
        std::sort(names.begin(), names.end());
        names.erase(std::unique(names.begin(), names.end()), names.end());
        bool falling = false;
        if (names.size() != 1 || !about(std::string(names[0])) ||
            !linear(left, right, names[0], at.v, falling))
            return false;
        at.infinite = 0;
        return half_line(falling ? mirrored(r) : r, at, out);
    }
    // |u| < c and |u| > c, for u linear in one symbol.
    bool absolute(const Part& u, Rel r, const End& c, Intervals& out) {
        std::vector<std::string_view> names = symbols(u);
        if (names.size() != 1 || !about(std::string(names[0]))) return false;
        Real<4> root, unit;
        bool falling;
        Tree zero;
        zero.root = zero.integer(0);
        Part nothing;
        nothing.tree = &zero, nothing.node = zero.root;
        if (!linear(u, nothing, names[0], root, falling)) return false;
        Evaluator<Ball<4>> e0(reading(u, false, false), budget), e1(reading(u, false, false), budget);
        e0.bind(names[0], 0), e1.bind(names[0], 1);
        Real<4> slope = e1(u.node).re - e0(u.node).re, reach = c.v / slope;
        if (reach.bad) return false;
        if (slope.negative) reach = -reach;
        Interval inside;
        inside.low.v = root - reach, inside.high.v = root + reach;
        bool closed = r == Rel::le || r == Rel::gt;  // > is the complement of <=
        inside.low_closed = inside.high_closed = closed;
        switch (r) {
            case Rel::lt:
            case Rel::le:
                out.push_back(inside);
                return true;
            case Rel::gt:
            case Rel::ge:
                out = complement(merged({inside}));
                return true;
            default:
                return false;
        }
    }
};

}  // namespace detail
}  // namespace verifier
