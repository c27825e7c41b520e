// canonical.h: one text for all equal answers, as far as possible, so that a majority can be counted by text.
//
// Fractions print as p/q; other numbers with 18 digits; expressions with symbols as a fingerprint of their
// values at fixed points; lists sorted; names, units, percent and degree signs left out.
#pragma once
#include "match.h"

namespace verifier {
namespace detail {

inline std::string number_text(const Real<4>& x) {
    if (x.bad) return "?";
    if (x.may_be_zero()) return "0";
    int64_t whole = x.nearest();
    if (x.exp < 60 && (x - Real<4>(whole)).may_be_zero()) return std::to_string(whole);
    int64_t ten = int64_t(std::floor(double(x.exp - 1) * 0.30102999566398120));
    Real<4> scaled = x, power(1), base(10);
    int64_t shift = 17 - ten;
    for (int64_t e = shift < 0 ? -shift : shift; e; e >>= 1, base = base * base)
        if (e & 1) power = power * base;
    scaled = shift < 0 ? scaled / power : scaled * power;
    if (scaled.bad || scaled.exp > 62) return "?";
    std::string digits = std::to_string(scaled.nearest());
    size_t sign = digits[0] == '-';
    ten += int64_t(digits.size() - sign) - 18;
    while (digits.size() > sign + 1 && digits.back() == '0') digits.pop_back();
    if (digits.size() > sign + 1) digits.insert(sign + 1, ".");
    return ten ? digits + "e" + std::to_string(ten) : digits;
}

class Canonical {
  public:
    explicit Canonical(Budget& budget) : budget_(budget), scalars_{budget} {}

    std::string text(Part p, bool digits_only = false) {
        if (!budget_.spend(50)) return "?";
        while (p.kind() == Kind::unit) p = p.kid(0);
        switch (p.kind()) {
            case Kind::list:
            case Kind::set: {
                Solutions s{budget_, ""};
                Intervals i;
                if (p.kind() == Kind::list && Matcher::is_set_expression(p) && s.read(p, i))
                    return intervals(i);
                return collection(p);
            }
            case Kind::unite:
            case Kind::intersect:
            case Kind::minus_set:
            case Kind::builder: {
                Solutions s{budget_, ""};
                Intervals i;
                return s.read(p, i) ? intervals(i) : joined(p, "U(", ", ", ")");
            }
            case Kind::tuple: {
                bool angle = (*p).op >= angle_brackets || (p.count() != 2 && (*p).op == 3);
                return joined(p, !angle && (*p).op & closed_left ? "[" : "(", ", ",
                              !angle && (*p).op & closed_right ? "]" : ")");
            }
            case Kind::matrix:
                return (*p).op == 1 || (*p).op == p.count()
                           ? joined(p, "(", ", ", ")")
                           : joined(p, "[" + std::to_string((*p).op) + ": ", ", ", "]");
            case Kind::relation:
                return relation(p);
            case Kind::based:
            case Kind::time:
            case Kind::text:
                return p.name();
            case Kind::ratio:
                return joined(p, "", ":", "");
            case Kind::ellipsis:
                return "...";
            case Kind::empty_set:
                return "{}";
            default:
                return scalar(p, digits_only);
        }
    }

  private:
    Budget& budget_;
    Scalars scalars_;

    std::string joined(const Part& p, std::string out, const char* between, const char* end) {
        for (int k = 0; k < p.count(); k++) {
            if (k) out += between;
            out += text(p.kid(k), true);
            if (out.size() > 10000) break;
        }
        return out + end;
    }
    void elements(const Part& p, std::vector<std::string>& out) {
        if (out.size() > 400) return;
        if (p.kind() == Kind::list || p.kind() == Kind::set) {
            for (int k = 0; k < p.count(); k++) elements(p.kid(k), out);
        } else {
            out.push_back(text(p));
        }
    }
    std::string collection(const Part& p) {
        std::vector<std::string> all;
        elements(p, all);
        std::sort(all.begin(), all.end());
        if (p.kind() == Kind::set) all.erase(std::unique(all.begin(), all.end()), all.end());
        std::string out;
        for (const std::string& s : all) out += (out.empty() ? "" : ", ") + s;
        return out;
    }
    static std::string intervals(const Intervals& all) {
        std::string out;
        for (const Interval& i : all) {
            if (!out.empty()) out += " U ";
            out += i.low_closed ? "[" : "(";
            out += i.low.infinite ? "-oo" : number_text(i.low.v);
            out += ", " + (i.high.infinite ? std::string("oo") : number_text(i.high.v));
            out += i.high_closed ? "]" : ")";
        }
        return out.empty() ? "{}" : out;
    }
    std::string relation(const Part& p) {
        Rel r = p.tree->relations[size_t((*p).value)];
        if (r == Rel::eq || r == Rel::approx || r == Rel::in || r == Rel::equiv) {
            Part first = p.kid(0);
            bool name = first.kind() == Kind::symbol || first.kind() == Kind::text ||
                        first.kind() == Kind::tuple || first.kind() == Kind::opaque || symbols(p).empty() ||
                        (first.kind() == Kind::mul && first.count() == 2);
            if (name) return text(p.kid(p.count() - 1));
            // (L - R) at one point over (L - R) at another
            std::string out = "equation";
            for (int k = 0; k + 1 < p.count(); k++) {
                auto a0 = scalars_.value<Residues>(p.kid(k), true, false, 0),
                     b0 = scalars_.value<Residues>(p.kid(k + 1), true, false, 0);
                auto a1 = scalars_.value<Residues>(p.kid(k), true, false, 1),
                     b1 = scalars_.value<Residues>(p.kid(k + 1), true, false, 1);
                if (!a0.ok || !b0.ok || !a1.ok || !b1.ok) return joined(p, "equation(", " = ", ")");
                uint64_t m = Residues::prime[0], x = (a0.v[0] + m - b0.v[0]) % m,
                         y = (a1.v[0] + m - b1.v[0]) % m;
                out += " " + std::to_string(y ? Residues::times(x, Residues::power(y, m - 2, 0), 0) : 0);
            }
            return out;
        }
        Solutions s{budget_, ""};
        Intervals i;
        return s.read(p, i) ? intervals(i) : joined(p, "relation(", ", ", ")");
    }
    std::string scalar(const Part& p, bool digits_only) {
        if (int sign = infinite(p)) return sign > 0 ? "oo" : "-oo";
        if (any_node(*p.tree, p.node, [](const Node& n) { return n.kind == Kind::plus_minus; }) && !p.minus) {
            Part other = p;
            other.minus = true;
            std::string a = scalar_once(p, digits_only), b = scalar_once(other, digits_only);
            return a < b ? a + ", " + b : b + ", " + a;
        }
        return scalar_once(p, digits_only);
    }
    std::string scalar_once(const Part& p, bool digits_only) {
        auto q = scalars_.value<Exact>(p, true, false, 0);
        if (q.ok && !(digits_only && !q.v.integer())) return q.v.text();
        bool symbolic = !symbols(p).empty();
        if (symbolic) {
            auto r = scalars_.value<Residues>(p, true, false, 0);
            if (r.ok) return "f" + std::to_string(r.v[0]);
        }
        std::string out = symbolic ? "g" : "";
        int met = 0, first = symbolic && wants_integers(p) ? real_points : 0;
        for (int point = first; point < first + (symbolic ? integer_points : 1) && met < 2; point++) {
            auto v = scalars_.value<Ball<4>>(p, true, false, point);
            if (v.bad()) continue;
            met++;
            out += (met > 1 ? "|" : "") + number_text(v.re);
            if (!v.im.may_be_zero()) out += (v.im.negative ? "" : "+") + number_text(v.im) + "i";
        }
        return met ? out : "";
    }
};

}  // namespace detail
}  // namespace verifier
