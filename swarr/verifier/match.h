// match.h: whether two read answers mean the same; each structure by its own rule.
//
// The rules (why they are so: the table of policies in compare.h)
//   names        "x =", "x \in", "f(x) =" is dropped when the other side has none; two names must agree
//                (names.h)
//   lists, sets  any order, every element once; a set drops repetitions; \pm is two elements
//   tuples       in order; brackets count for two elements (an interval), not for more; a vector is a tuple
//   intervals    against inequalities and unions, as sets of reals
//   equations    L = R and L' = R' where (L - R) / (L' - R') is one nonzero constant; chains link by link
#pragma once
#include "build.h"
#include "names.h"
#include "solution.h"

namespace verifier {
namespace detail {

class Matcher {
  public:
    Matcher(const Options& options, Budget& budget) : options_(options), budget_(budget), scalars_{budget} {}

    bool match(Part gold, Part pred) {
        if (!budget_.spend(50) || depth_ > 24) return false;
        depth_++;
        bool same = matched(gold, pred);
        depth_--;
        return same;
    }

    // A union, an inequality, a set builder, \mathbb{R}, or a list of such: read as a set of reals.
    static bool is_set_expression(const Part& p) {
        switch (p.kind()) {
            case Kind::unite:
            case Kind::intersect:
            case Kind::minus_set:
            case Kind::builder:
                return true;
            case Kind::relation:
                return is_inequality(p);
            case Kind::symbol:
            case Kind::text:
                return Solutions::is_reals(p);
            case Kind::add:
                return p.kid(0).kind() == Kind::symbol && p.kid(0).name() == "mathbb R";
            case Kind::list:
                for (int k = 0; k < p.count(); k++) {
                    Kind kind = p.kid(k).kind();
                    bool interval =
                        (*p).op == uint8_t(Join::conj_or) && (kind == Kind::tuple || kind == Kind::unite);
                    if (!is_inequality(p.kid(k)) && !interval) return false;
                }
                return true;
            default:
                return false;
        }
    }

  private:
    const Options& options_;
    Budget& budget_;
    Scalars scalars_;
    int depth_ = 0;

    using Parts = std::vector<Part>;

    static bool has_plus_minus(const Part& p) {
        return any_node(*p.tree, p.node, [](const Node& n) { return n.kind == Kind::plus_minus; });
    }
    // One is "x > 1 and x < 3", the other "x > 1 or x < 3".
    static bool joined_otherwise(const Part& a, const Part& b) {
        bool a_or = (*a).op == uint8_t(Join::conj_or), b_or = (*b).op == uint8_t(Join::conj_or);
        bool a_and = (*a).op == uint8_t(Join::conj_and), b_and = (*b).op == uint8_t(Join::conj_and);
        return (a_or && b_and) || (a_and && b_or);
    }
    static bool is_collection(const Part& p) { return p.kind() == Kind::list || p.kind() == Kind::set; }

    bool matched(Part gold, Part pred) {
        if (Part bare = gold;
            pred.kind() == Kind::unit && drop_unit_letter(bare) && letter_is_unit(gold, pred))
            return match(bare, pred.kid(0));  // 5 m and 5 meters
        if (gold.kind() == Kind::unit || pred.kind() == Kind::unit) {
            if (contradicting_units(gold, pred)) return false;
            while (gold.kind() == Kind::unit) gold = gold.kid(0);
            while (pred.kind() == Kind::unit) pred = pred.kid(0);
        }
        bool relations = gold.kind() == Kind::relation || pred.kind() == Kind::relation;
        bool sets = is_set_expression(gold) || is_set_expression(pred);
        if (sets && same_solutions(gold, pred)) return true;
        if (relations) return match_relations(gold, pred);
        if (sets && gold.kind() == pred.kind() && gold.count())
            return !(gold.kind() == Kind::list && joined_otherwise(gold, pred)) && match_children(gold, pred);
        bool expand = !gold.minus && !pred.minus && (has_plus_minus(gold) || has_plus_minus(pred));
        if (is_collection(gold) || is_collection(pred) || expand) return match_collections(gold, pred);
        Kind g = gold.kind(), p = pred.kind();
        if (labelled_point(gold) && p == Kind::tuple) return (*pred).op == 0 && match_in_order(gold, pred);
        if (labelled_point(pred) && g == Kind::tuple) return (*gold).op == 0 && match_in_order(gold, pred);
        if (g == Kind::tuple || p == Kind::tuple || g == Kind::matrix || p == Kind::matrix)
            return match_ordered(gold, pred);
        if (g == Kind::based || p == Kind::based) return match_based(gold, pred);
        if (g == Kind::ratio || p == Kind::ratio) return match_ratios(gold, pred);
        if (g == Kind::modulo && p == Kind::modulo && !match(gold.kid(1), pred.kid(1))) return false;
        if ((g == Kind::time && p == Kind::number) || (p == Kind::time && g == Kind::number))
            return g == Kind::time ? full_hour(gold, pred) : full_hour(pred, gold);
        if ((g == Kind::empty_set && p == Kind::text) || (p == Kind::empty_set && g == Kind::text))
            return no_solution(g == Kind::text ? gold.name() : pred.name());
        if (g == Kind::time || p == Kind::time || g == Kind::ellipsis || p == Kind::ellipsis ||
            g == Kind::empty_set || p == Kind::empty_set)
            return g == p && (g != Kind::time || gold.name() == pred.name());
        if (g == Kind::text && p == Kind::text) return gold.name() == pred.name();
        if (p == Kind::mul && symbols(gold).empty())
            if (Part bare = pred; drop_unit_letter(bare)) return match(gold, bare);
        return scalars_.equal(gold, pred) || scalars_.equal_by_rounding(gold, pred, options_);
    }

    // The known units that a unit's name begins with, without "square", "per" and exponents.
    static std::vector<std::string> known_units(const std::string& name) {
        std::vector<std::string> out;
        for (size_t at = 0; at < name.size();) {
            size_t end = std::min(name.find(' ', at), name.size());
            std::string word = name.substr(at, std::min(name.find('^', at), end) - at);
            at = end + 1;
            if (word.empty() || word == "per" || word == "square" || word == "cubic") continue;
            const char* known = known_unit(word);
            if (!known || (word == "in" && !out.empty())) break;  // "hours of work", "hours in total"
            if (*known) out.push_back(known);
        }
        return out;
    }
    // Both have units of the known ones, and one differs: 10 cm is not 10 m, km/h not m/s.
    static bool contradicting_units(const Part& gold, const Part& pred) {
        if (gold.kind() != Kind::unit || pred.kind() != Kind::unit) return false;
        std::vector<std::string> g = known_units(gold.name()), p = known_units(pred.name());
        for (size_t k = 0; k < std::min(g.size(), p.size()); k++)
            if (g[k] != p[k]) return true;
        return false;
    }

    static bool letter_is_unit(const Part& product, const Part& unit) {
        Part letter = product.kid(1);
        if (letter.kind() == Kind::power) letter = letter.kid(0);
        std::vector<std::string> units = known_units(unit.name());
        const char* known = known_unit(letter.name());
        return known && units.size() == 1 && units[0] == known;
    }
    static bool labelled_point(const Part& p) {  // P(3, 4)
        return p.kind() == Kind::opaque && p.count() > 1 && p.name().size() == 1 && p.name()[0] <= 'Z';
    }
    static bool full_hour(const Part& time, const Part& number) {  // 3 PM and 3
        return time.name().compare(0, time.name().find(':') + 3, spelled(number) + ":00") == 0;
    }
    static bool no_solution(const std::string& words) {
        for (const char* w : {"no solution", "no solutions", "no real solution", "no real solutions",
                              "empty set", "the empty set", "empty"})
            if (words == w) return true;
        return false;
    }
    // Turns 10 m and 10 m^2 into 10; false where there is no number, or another symbol.
    static bool drop_unit_letter(Part& p) {
        if (p.kind() != Kind::mul || p.count() != 2) return false;
        Part last = p.kid(1);
        if (last.kind() == Kind::power) last = last.kid(0);
        if (last.kind() != Kind::symbol || !unit_letter(last.name()) || p.kid(0).kind() != Kind::number)
            return false;
        p = p.kid(0);
        return true;
    }

    // ---- sets of reals

    static bool is_inequality(const Part& p) {
        if (p.kind() != Kind::relation) return false;
        for (int k = 0; k + 1 < p.count(); k++) {
            Rel r = p.tree->relations[size_t((*p).value + k)];
            if (r == Rel::lt || r == Rel::le || r == Rel::gt || r == Rel::ge || r == Rel::ne || r == Rel::in)
                return true;
        }
        return false;
    }
    bool same_solutions(const Part& gold, const Part& pred) {
        // A union, a builder or an inequality against anything that can be read as a set of reals.
        Solutions g{budget_, ""}, p{budget_, ""};
        Intervals a, b;
        if (!g.read(gold, a) || !p.read(pred, b)) return false;
        if (!g.variable.empty() && !p.variable.empty() && g.variable != p.variable) return false;
        return same(a, b);
    }

    // ---- lists

    void flatten(const Part& p, Parts& out) {
        if (out.size() > 400) return;
        if (is_collection(p)) {
            for (int k = 0; k < p.count(); k++) {
                if (p.kid(k).kind() == Kind::set && p.count() > 1)
                    out.push_back(p.kid(k));  // {1,2}, {3} is not {1}, {2,3}
                else
                    flatten(p.kid(k), out);
            }
        } else if (p.kind() == Kind::unit && is_collection(p.kid(0))) {
            flatten(p.kid(0), out);
        } else if (!p.minus && has_plus_minus(p)) {
            out.push_back(p);
            out.push_back(p);
            out.back().minus = true;
        } else {
            out.push_back(p);
        }
    }
    bool match_collections(const Part& gold, const Part& pred) {
        Parts g, p;
        flatten(gold, g), flatten(pred, p);
        if (g.size() > 400 || p.size() > 400) return false;
        // A signed tuple stays one element per sign: mark the plus ones so that they are not expanded again.
        bool ordered = contains_ellipsis(g) || contains_ellipsis(p);
        std::vector<std::string> names_g = names(g), names_p = names(p);
        bool keyed = names_g.empty() != names_p.empty();  // one side has names, the other none
        // x_1 = 2, x_2 = 3 against x = 2 or x = 3; but a_1 = 2, a_2 = 3 against a_1 = 3, a_2 = 2 keeps its
        // names
        bool one_unknown = !names_g.empty() && names_g != names_p && same_stem(names_g, names_p);
        if (keyed || one_unknown) strip_names(g), strip_names(p);
        // x = 1, y = 2 against the tuple (1, 2)
        if (keyed && (gold.kind() == Kind::tuple || pred.kind() == Kind::tuple)) {
            const Part& tuple = gold.kind() == Kind::tuple ? gold : pred;
            Parts& values = gold.kind() == Kind::tuple ? p : g;
            if (int(values.size()) != tuple.count() || (values.size() == 2 && (*tuple).op % 4 != 0))
                return false;
            for (int k = 0; k < tuple.count(); k++) {
                const Part &a = tuple.kid(k), &b = values[size_t(k)];
                if (!(gold.kind() == Kind::tuple ? match_element(a, b) : match_element(b, a))) return false;
            }
            return true;
        }
        if (gold.kind() == Kind::set || pred.kind() == Kind::set) remove_repeats(g), remove_repeats(p);
        auto either = [](const Part& list) {
            return list.kind() == Kind::list && (*list).op == uint8_t(Join::conj_or);
        };
        if (either(pred)) remove_repeats(p);  // "3/4 or 0.75" is one value
        if (either(gold)) remove_repeats(g);
        if (g.size() != p.size() || (g.size() == 1 && !has_plus_minus(g[0]) && !has_plus_minus(p[0]) &&
                                     !is_collection(gold) && !is_collection(pred)))
            return false;
        std::vector<bool> used(p.size(), false);
        for (size_t i = 0; i < g.size(); i++) {
            bool found = false;
            for (size_t j = ordered ? i : 0; j < (ordered ? i + 1 : p.size()) && !found; j++)
                if (!used[j] && match_element(g[i], p[j])) used[j] = found = true;
            if (!found) return false;
        }
        return true;
    }
    // Elements are already expanded by sign.
    bool match_element(const Part& g, const Part& p) {
        if (g.minus || p.minus || !(has_plus_minus(g) || has_plus_minus(p))) return match(g, p);
        Kind a = g.kind(), b = p.kind();
        if (a == Kind::tuple && b == Kind::tuple) {
            if (g.count() != p.count() || !brackets_agree(*g, *p)) return false;
            for (int k = 0; k < g.count(); k++)
                if (!match_element(g.kid(k), p.kid(k))) return false;
            return true;
        }
        if (a == Kind::relation && b == Kind::relation) return same_links(g, p);
        if (a == Kind::relation || b == Kind::relation) return false;
        return scalars_.equal(g, p);
    }
    void remove_repeats(Parts& parts) {
        Parts out;
        for (const Part& p : parts) {
            bool seen = false;
            for (const Part& o : out) seen = seen || match_element(o, p);
            if (!seen) out.push_back(p);
        }
        parts = out;
    }
    static bool contains_ellipsis(const Parts& parts) {
        for (const Part& p : parts)
            if (p.kind() == Kind::ellipsis) return true;
        return false;
    }

    // ---- names

    static std::vector<std::string> names(const Parts& parts) {
        std::vector<std::string> out;
        Assignment a;
        for (const Part& p : parts)
            if (assignment(p, a)) out.push_back(a.name);
        std::sort(out.begin(), out.end());
        return out;
    }
    // Whether all are one name, but for an index.
    static bool same_stem(const std::vector<std::string>& a, const std::vector<std::string>& b) {
        auto stem = [](const std::string& name) { return name.substr(0, name.find('_')); };
        for (const auto* all : {&a, &b})
            for (const std::string& name : *all)
                if (stem(name) != stem(a[0])) return false;
        return !b.empty();
    }
    void strip_names(Parts& parts) {
        Assignment a;
        Parts out;
        for (Part& p : parts) {
            if (assignment(p, a) && (p.count() == 2)) {
                Part value = p.kid(a.first ? 1 : 0);
                if (is_collection(value)) {
                    flatten(value, out);
                    continue;
                }
                p = value;
            }
            out.push_back(p);
        }
        parts = out;
    }

    // ---- relations

    bool match_relations(Part gold, Part pred) {
        Assignment g, p;
        bool gold_named = assignment(gold, g), pred_named = assignment(pred, p);
        bool both = gold.kind() == Kind::relation && pred.kind() == Kind::relation;
        if (both) {
            if (same_links(gold, pred)) return true;
            if (gold_named && pred_named && g.name == p.name) {
                Part gv = value(g), pv = value(p);
                if (!g.variable.empty() && !p.variable.empty() && g.variable != p.variable)
                    pv.renamed = p.variable, pv.to = g.variable;
                return chain_values(gold, g.first) && chain_values(pred, p.first) && match(gv, pv);
            }
            return false;
        }
        if (gold.kind() == Kind::relation) {
            if (gold_named) {
                // "a = 4, -8, -10" is a list whose first element has the name: seen by match_collections
                if (is_collection(pred))
                    return match_named(gold, pred, true) || match_collections(gold, pred);
                return match(value(g), pred);
            }
            return constant_chain(gold) && chain_values(gold, 0) && match(gold.kid(gold.count() - 1), pred);
        }
        if (pred_named) {
            if (is_collection(gold)) return match_named(pred, gold, false) || match_collections(gold, pred);
            return chain_values(pred, p.first) && match(gold, value(p));
        }
        if (options_.last_side && last_is_equal(pred)) return match(gold, pred.kid(pred.count() - 1));
        return constant_chain(pred) && chain_values(pred, 0) && match_any_side(gold, pred);
    }
    // (x, y) = (1, 2) against x = 1, y = 2 in any order.
    bool match_named(const Part& tuples, const Part& list, bool tuples_are_gold) {
        if (tuples.count() != 2) return false;
        Part names = tuples.kid(0), values = tuples.kid(1);
        bool fits = names.kind() == Kind::tuple && values.kind() == Kind::tuple &&
                    names.count() == values.count() && names.count() == list.count();
        for (int k = 0; k < list.count() && fits; k++) {
            Assignment a;
            fits = assignment(list.kid(k), a) && list.kid(k).count() == 2;
            std::string_view variable;
            int j = 0;
            while (fits && j < names.count() && name_of(names.kid(j), variable) != a.name) j++;
            fits = fits && j < names.count() &&
                   (tuples_are_gold ? match(values.kid(j), value(a)) : match(value(a), values.kid(j)));
            for (int before = 0; before < k && fits; before++) {
                Assignment b;
                fits = assignment(list.kid(before), b) && b.name != a.name;
            }
        }
        return fits;
    }
    static bool last_is_equal(const Part& p) {
        Rel r = p.tree->relations[size_t((*p).value + p.count() - 2)];
        return r == Rel::eq || r == Rel::approx || r == Rel::equiv;
    }
    static Part value(const Assignment& a) {
        return a.first ? a.relation.kid(a.relation.count() - 1) : a.relation.kid(0);
    }
    static bool constant_chain(const Part& p) {
        for (int k = 0; k + 1 < p.count(); k++) {
            Rel r = p.tree->relations[size_t((*p).value + k)];
            if (r != Rel::eq && r != Rel::approx) return false;
        }
        return symbols(p).empty();
    }
    // Whether the sides from `first` on say one value: 3 + 4 = 7, 1/3 \approx 0.333 (at the decimal's own
    // digits).
    bool chain_values(const Part& p, int first) {
        if (options_.last_side) return true;
        for (int k = first; k + 1 < p.count() && first; k++)
            if (!link_holds(p, k)) return false;
        for (int k = 0; k + 1 < p.count() && !first && constant_chain(p); k++)
            if (!link_holds(p, k)) return false;
        return true;
    }
    bool link_holds(const Part& p, int k) {
        Part a = p.kid(k), b = p.kid(k + 1);
        if (match(a, b)) return true;
        bool negative;
        const Number* d = Scalars::decimal(b, negative);
        return p.tree->relations[size_t((*p).value + k)] == Rel::approx && d &&
               scalars_.rounds_to(a, *d, negative);
    }
    bool match_any_side(const Part& gold, const Part& pred) {
        for (int k = pred.count() - 1; k >= 0; k--)
            if (match(gold, pred.kid(k))) return true;
        return false;
    }
    static bool modulus(const Part& congruence, Part& out) {
        for (int k = 0; k < congruence.count(); k++)
            if (congruence.kid(k).kind() == Kind::modulo) return out = congruence.kid(k).kid(1), true;
        return false;
    }
    // Link by link, forwards or backwards.
    bool same_links(const Part& gold, const Part& pred) {
        if (gold.count() != pred.count()) return false;
        Part gold_modulus, pred_modulus;
        if (modulus(gold, gold_modulus) && modulus(pred, pred_modulus) && !match(gold_modulus, pred_modulus))
            return false;
        int n = gold.count();
        for (bool backwards : {false, true}) {
            bool all = true;
            for (int k = 0; k + 1 < n && all; k++) {
                Rel r = gold.tree->relations[size_t((*gold).value + k)];
                int j = backwards ? n - 2 - k : k;
                Rel s = pred.tree->relations[size_t((*pred).value + j)];
                Part a = gold.kid(k), b = gold.kid(k + 1), c = pred.kid(backwards ? j + 1 : j),
                     d = pred.kid(backwards ? j : j + 1);
                bool ordered = r != Rel::eq && r != Rel::ne && r != Rel::approx && r != Rel::equiv;
                if (backwards && ordered) s = mirrored(s);
                all = r == s && (same_difference(a, b, c, d, ordered) || (match(a, c) && match(b, d)));
            }
            if (all) return true;
        }
        return false;
    }
    // (a - b) / (c - d) is one nonzero constant (positive, for inequalities), and not all is constant.
    bool same_difference(const Part& a, const Part& b, const Part& c, const Part& d, bool positive) {
        std::vector<std::string_view> left = symbols(a), right = symbols(c);
        for (std::string_view s : symbols(b)) left.push_back(s);
        for (std::string_view s : symbols(d)) right.push_back(s);
        for (auto* v : {&left, &right}) {
            std::sort(v->begin(), v->end());
            v->erase(std::unique(v->begin(), v->end()), v->end());
        }
        if (left != right || left.empty()) return false;
        if (!positive) {
            uint64_t first[2][2] = {};
            for (int point = 0; point < 3; point++) {
                auto va = scalars_.value<Residues>(a, true, false, point),
                     vb = scalars_.value<Residues>(b, true, false, point);
                auto vc = scalars_.value<Residues>(c, true, false, point),
                     vd = scalars_.value<Residues>(d, true, false, point);
                if (!va.ok || !vb.ok || !vc.ok || !vd.ok) break;
                for (int k = 0; k < 2; k++) {
                    uint64_t p = Residues::prime[k], x = (va.v[k] + p - vb.v[k]) % p,
                             y = (vc.v[k] + p - vd.v[k]) % p;
                    if (!x || !y) return false;
                    if (point == 0)
                        first[k][0] = x, first[k][1] = y;
                    else if (Residues::times(x, first[k][1], k) != Residues::times(y, first[k][0], k))
                        return false;
                }
                if (point == 2) return true;
            }
        }
        bool integers = wants_integers(a) || wants_integers(b) || wants_integers(c) || wants_integers(d);
        Complex<4> ratio;
        int met = 0;
        for (int point = integers ? real_points : 0;
             point < (integers ? real_points + integer_points : real_points); point++) {
            auto x = scalars_.value<Ball<4>>(a, true, false, point) -
                     scalars_.value<Ball<4>>(b, true, false, point);
            auto y = scalars_.value<Ball<4>>(c, true, false, point) -
                     scalars_.value<Ball<4>>(d, true, false, point);
            if (x.bad() || y.bad()) continue;
            if (x.may_be_zero() || y.may_be_zero()) return false;
            Complex<4> q = x / y;
            if (met++ == 0)
                ratio = q;
            else if (!agree(q, ratio))
                return false;
            if (positive && (!q.real() || q.re.negative)) return false;
        }
        return met >= 3;
    }

    // ---- tuples, matrices, and the rest

    static bool brackets_agree(const Node& a, const Node& b) {
        if (a.op >= angle_brackets || b.op >= angle_brackets) return a.op % 4 == 0 && b.op % 4 == 0;
        if (a.op == b.op) return true;
        bool straight = (a.op == 0 || a.op == 3) && (b.op == 0 || b.op == 3);
        return a.count != 2 && straight;
    }
    bool match_in_order(const Part& gold, const Part& pred) {
        bool same = gold.count() == pred.count();
        for (int k = 0; k < gold.count() && same; k++) same = match(gold.kid(k), pred.kid(k));
        return same;
    }
    bool match_children(const Part& gold, const Part& pred) {
        if (gold.count() != pred.count()) return false;
        bool forwards = true, backwards = gold.count() == 2 && gold.kind() != Kind::minus_set &&
                                          gold.kind() != Kind::builder && gold.kind() != Kind::tuple;
        for (int k = 0; k < gold.count() && forwards; k++) forwards = match(gold.kid(k), pred.kid(k));
        for (int k = 0; k < gold.count() && backwards && !forwards; k++)
            backwards = match(gold.kid(k), pred.kid(1 - k));
        return forwards || backwards;
    }
    // Entries of a vector or matrix, row by row; `columns` 0 for a tuple, which is either way up.
    static bool entries(const Part& p, Parts& out, int& columns) {
        if (p.kind() == Kind::matrix) {
            columns = (*p).op;
            for (int k = 0; k < p.count(); k++) out.push_back(p.kid(k));
            return true;
        }
        if (p.kind() != Kind::tuple || ((*p).op != 0 && (*p).op != 3 && (*p).op != angle_brackets))
            return false;
        columns = 0;
        for (int k = 0; k < p.count(); k++) {  // [[1, 2], [3, 4]]
            Part row = p.kid(k);
            if (row.kind() != Kind::tuple) {
                out.push_back(row);
                continue;
            }
            if (k && columns != row.count()) return false;
            columns = row.count();
            for (int j = 0; j < row.count(); j++) out.push_back(row.kid(j));
        }
        return columns == 0 || int(out.size()) == columns * p.count();
    }
    bool match_ordered(const Part& gold, const Part& pred) {
        if (gold.kind() == Kind::tuple && pred.kind() == Kind::tuple) {
            return gold.count() == pred.count() && brackets_agree(*gold, *pred) && match_children(gold, pred);
        }
        Parts g, p;
        int gold_columns, pred_columns;
        if (!entries(gold, g, gold_columns) || !entries(pred, p, pred_columns) || g.size() != p.size())
            return false;
        bool vector = (gold_columns == 0 && (pred_columns == 1 || pred_columns == int(p.size()))) ||
                      (pred_columns == 0 && (gold_columns == 1 || gold_columns == int(g.size())));
        if (!vector && gold_columns != pred_columns) return false;
        for (size_t k = 0; k < g.size(); k++)
            if (!match(g[k], p[k])) return false;
        return true;
    }
    static std::string digits_of(const Part& p) {
        std::string s;
        if (p.kind() == Kind::based)
            s = p.name();
        else if (p.kind() == Kind::number && p.tree->number_of(p.node).value.integer() &&
                 !p.tree->number_of(p.node).digits)
            s = p.tree->number_of(p.node).value.num.text();
        size_t lead = s.find_first_not_of('0');
        return lead == std::string::npos ? s : s.substr(lead);
    }
    bool match_based(const Part& gold, const Part& pred) {
        if (gold.kind() == Kind::based && pred.kind() == Kind::based && (*gold).op != (*pred).op)
            return false;
        std::string g = digits_of(gold), p = digits_of(pred);
        return !g.empty() && g == p;
    }
    bool match_ratios(const Part& gold, const Part& pred) {
        if (gold.kind() == Kind::ratio && pred.kind() == Kind::ratio) {
            if (gold.count() != pred.count()) return false;
            bool same = true;
            for (int k = 0; k < gold.count() && same; k++) same = match(gold.kid(k), pred.kid(k));
            if (same) return true;
            // proportional: g_k * p_0 = p_k * g_0
            Complex<4> g0 = number(gold.kid(0)), p0 = number(pred.kid(0));
            if (g0.may_be_zero() || p0.may_be_zero()) return false;
            for (int k = 1; k < gold.count(); k++) {
                Complex<4> a = number(gold.kid(k)) * p0, b = number(pred.kid(k)) * g0;
                if (a.bad() || b.bad() || a.may_be_zero() || !agree(a, b)) return false;
            }
            return true;
        }
        const Part &ratio = gold.kind() == Kind::ratio ? gold : pred,
                   &other = gold.kind() == Kind::ratio ? pred : gold;
        if (ratio.count() != 2 || !symbols(ratio).empty() || !symbols(other).empty()) return false;
        Complex<4> a = number(ratio.kid(0)), b = number(ratio.kid(1)), q = number(other);
        if (a.bad() || b.bad() || q.bad() || b.may_be_zero()) return false;
        return agree(a / b, q);
    }
    Complex<4> number(const Part& p) {
        if (!symbols(p).empty()) return Complex<4>::make_bad();
        return scalars_.value<Ball<4>>(p, true, false, 0);
    }
};

}  // namespace detail
}  // namespace verifier
