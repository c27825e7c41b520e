// evaluate.h: the value of an expression in three kinds of number.
//
//   Exact     fractions; stops at roots, pi, symbols, and beyond max_bits
//   Residues  modulo two primes near 2^61: fractions of any size, and symbols at fixed pseudo-random points;
//             equal values of different expressions have probability 2^-120
//   Ball<N>   complex numbers of 64 N bits with an error bound: everything else
//
// Symbols take the same value on both sides of a comparison, chosen by their name and the number of the
// point. An expression without a value there (1/0, a tower of powers, a matrix inside a sum) is not ok.
#pragma once
#include <algorithm>
#include <vector>

#include "field.h"

namespace verifier {

// The evaluation of one expression in field F.
template <class F>
class Evaluator {
  public:
    using Value = typename F::Value;
    bool left_reals = false;  // a root, logarithm or power of a negative number was taken on the way

    Evaluator(const Reading& reading, Budget& budget) : r_(reading), t_(*reading.tree), budget_(budget) {}

    Value operator()(int n) {
        if (!budget_.spend(F::numeric ? 30 : 8)) return bad();
        const Node& node = t_[n];
        switch (node.kind) {
            case Kind::number:
                return from(t_.number_of(n).value);
            case Kind::long_number:
                return from_digits(t_.name(n));
            case Kind::symbol:
                return symbol(t_.name(n));
            case Kind::constant:
                return constant(Const(node.op));
            case Kind::add: {
                Value sum = (*this)(t_.kid(n, 0));
                for (int k = 1; k < node.count && ok(sum); k++) sum = add(sum, (*this)(t_.kid(n, k)));
                return sum;
            }
            case Kind::mul: {
                Value product = (*this)(t_.kid(n, 0));
                for (int k = 1; k < node.count && ok(product); k++)
                    product = multiply(product, (*this)(t_.kid(n, k)));
                return product;
            }
            case Kind::divide:
                return divide((*this)(t_.kid(n, 0)), (*this)(t_.kid(n, 1)));
            case Kind::negate:
                return negated((*this)(t_.kid(n, 0)));
            case Kind::plus_minus: {
                Value v = (*this)(t_.kid(n, 0));
                return (node.op == 1) != r_.minus ? negated(v) : v;
            }
            case Kind::power:
                return power(t_.kid(n, 0), t_.kid(n, 1));
            case Kind::root:
                return root((*this)(t_.kid(n, 0)), t_.kid(n, 1));
            case Kind::function:
                return function(n);
            case Kind::factorial:
                return factorial((*this)(t_.kid(n, 0)), node.op == double_factorial ? 2 : 1);
            case Kind::binomial:
                return binomial((*this)(t_.kid(n, 0)), (*this)(t_.kid(n, 1)));
            case Kind::modulo:
                return modulo((*this)(t_.kid(n, 0)), (*this)(t_.kid(n, 1)));
            case Kind::percent: {
                Value v = (*this)(t_.kid(n, 0));
                return r_.drop_marks ? v : divide(v, integer(100));
            }
            case Kind::degree: {
                Value v = (*this)(t_.kid(n, 0));
                return r_.drop_marks ? v : divide(multiply(v, constant(Const::pi)), integer(180));
            }
            case Kind::unit:
                return (*this)(t_.kid(n, 0));
            case Kind::text:
                return symbol(t_.name(n));
            case Kind::opaque:
                if (node.op == as_binomial) return binomial((*this)(t_.kid(n, 0)), (*this)(t_.kid(n, 1)));
                return opaque(n);
            case Kind::big_sum:
                return big_sum(n);
            default:
                return bad();
        }
    }

    static bool ok(const Value& v) {
        if constexpr (F::numeric)
            return !v.bad();
        else
            return v.ok;
    }
    static Value bad() {
        if constexpr (F::numeric) {
            return Value::make_bad();
        } else {
            Value v;
            v.ok = false;
            return v;
        }
    }
    void bind(std::string_view name, int64_t value) { bound_.emplace_back(name, value); }
    // An exact rational exponent or index, if it is one.
    bool exact(int n, Rational& out) {
        Reading at = r_;
        Evaluator<Exact> e(at, budget_);
        e.bound_ = bound_;
        auto v = e(n);
        out = v.v;
        return v.ok;
    }

  private:
    template <class G>
    friend class Evaluator;
    Reading r_;
    const Tree& t_;
    Budget& budget_;
    std::vector<std::pair<std::string_view, int64_t>> bound_;  // symbols of sums around this place

    Value integer(int64_t v) { return from(Rational{v, 1}); }
    Value from(const Rational& q) {
        if constexpr (F::exact) {
            return {q, true};
        } else if constexpr (F::numeric) {
            auto num = Value::R::from(q.num);
            return {q.integer() ? num : num / Value::R::from(q.den), {}};
        } else {
            Value v;
            for (int k = 0; k < 2; k++) {
                v.v[k] = q.num.residue(F::prime[k]);
                if (!q.integer())
                    v.v[k] = F::times(v.v[k], F::power(q.den.residue(F::prime[k]), F::prime[k] - 2, k), k);
            }
            return v;
        }
    }
    // A number too long for Exact, linear in its length.
    Value from_digits(const std::string& s) {
        size_t point = s.find('.');
        int64_t after = point == std::string::npos ? 0 : int64_t(s.size() - point - 1);
        if constexpr (F::exact) {
            return bad();
        } else if constexpr (F::numeric) {
            size_t lead = s.find_first_not_of("0.");
            if (lead == std::string::npos) return {};
            std::string head;
            size_t i = lead;
            int64_t rest = 0;
            for (; i < s.size(); i++)
                if (s[i] != '.') head.size() < 140 ? (void)(head += s[i]) : (void)rest++;
            BigInt v;
            BigInt::from_digits(head, v);
            Value out{Value::R::from(v), {}};
            if (rest) out.re.err = out.re.err + Radius::make(1, 0);
            int64_t scale = rest - after;
            Value ten = integer(10), shift = int_power(ten, scale < 0 ? -scale : scale);
            return scale < 0 ? out / shift : out * shift;
        } else {
            Value v;
            for (size_t i = 0; i < s.size();) {
                uint64_t chunk = 0, scale = 1;
                for (; i < s.size() && scale < 1000000000000000000u; i++)
                    if (s[i] != '.') chunk = chunk * 10 + uint64_t(s[i] - '0'), scale *= 10;
                for (int k = 0; k < 2; k++) v.v[k] = (F::times(v.v[k], scale, k) + chunk) % F::prime[k];
            }
            for (int k = 0; k < 2 && after; k++)
                v.v[k] = F::times(v.v[k], F::power(F::power(10, uint64_t(after), k), F::prime[k] - 2, k), k);
            return v;
        }
    }
    Value constant(Const c) {
        if constexpr (F::numeric) {
            using R = typename Value::R;
            if (c == Const::pi) return {pi_value(R()), {}};
            if (c == Const::i) return {{}, R(1)};
            if (c == Const::e) return {e_value(R()), {}};
        }
        return bad();
    }
    template <int N>
    static const Real<N>& pi_value(const Real<N>&) {
        return verifier::pi<N>();
    }
    template <int N>
    static const Real<N>& e_value(const Real<N>&) {
        static const Real<N> value = verifier::exp(Real<N>(1));
        return value;
    }
    Value symbol(std::string_view name) {
        if (!r_.renamed.empty() && name == r_.renamed) name = r_.to;
        for (size_t k = bound_.size(); k-- > 0;)
            if (bound_[k].first == name) return integer(bound_[k].second);
        uint64_t h = mix(hash_name(name) + uint64_t(r_.point) * 0x9e3779b97f4a7c15u);
        if constexpr (F::exact) {
            return bad();
        } else if constexpr (F::numeric) {
            double u = double(h >> 20) / double(uint64_t(1) << 44), x;  // u in (0, 1)
            if (r_.point >= real_points)
                x = double(2 + h % 39);
            else if (r_.point == 0)
                x = 0.05 + 0.9 * u;
            else if (r_.point == 1)
                x = 1.05 + 1.9 * u;
            else if (r_.point == 2)
                x = 3 + 97 * u;
            else
                x = 6 * u - 3;
            return {Value::R::from_double(x), {}};
        } else {
            Value v;
            for (int k = 0; k < 2; k++) v.v[k] = mix(h + uint64_t(k)) % F::prime[k];
            return v;
        }
    }
    Value add(const Value& a, const Value& b) {
        if constexpr (F::exact) {
            Value out;
            out.ok = a.ok && b.ok && Rational::add(a.v, b.v, out.v, budget_);
            return out;
        } else if constexpr (F::numeric) {
            return a + b;
        } else {
            Value out;
            out.ok = a.ok && b.ok;
            for (int k = 0; k < 2; k++) out.v[k] = (a.v[k] + b.v[k]) % F::prime[k];
            return out;
        }
    }
    Value negated(const Value& a) {
        if constexpr (F::exact) {
            return {a.v.negated(), a.ok};
        } else if constexpr (F::numeric) {
            return -a;
        } else {
            Value out = a;
            for (int k = 0; k < 2; k++) out.v[k] = a.v[k] ? F::prime[k] - a.v[k] : 0;
            return out;
        }
    }
    Value multiply(const Value& a, const Value& b) {
        if constexpr (F::exact) {
            Value out;
            out.ok = a.ok && b.ok && Rational::multiply(a.v, b.v, out.v, budget_);
            return out;
        } else if constexpr (F::numeric) {
            return a * b;
        } else {
            Value out;
            out.ok = a.ok && b.ok;
            for (int k = 0; k < 2; k++) out.v[k] = F::times(a.v[k], b.v[k], k);
            return out;
        }
    }
    Value divide(const Value& a, const Value& b) {
        if constexpr (F::exact) {
            Value out;
            out.ok = a.ok && b.ok && Rational::divide(a.v, b.v, out.v, budget_);
            return out;
        } else if constexpr (F::numeric) {
            budget_.spend(100);
            return b.may_be_zero() ? bad() : a / b;
        } else {
            Value out;
            out.ok = a.ok && b.ok && b.v[0] && b.v[1];
            for (int k = 0; k < 2; k++) out.v[k] = F::times(a.v[k], F::power(b.v[k], F::prime[k] - 2, k), k);
            return out;
        }
    }
    Value int_power(Value a, int64_t e) {
        if (e < 0) return divide(integer(1), int_power(a, -e));
        Value result = integer(1);
        for (; e && ok(a); e >>= 1) {
            if (e & 1) result = multiply(result, a);
            if (e > 1) a = multiply(a, a);
        }
        return ok(a) ? result : bad();
    }
    Value power(int base_node, int exponent_node) {
        Rational e;
        bool rational = exact(exponent_node, e);
        if constexpr (F::numeric) {
            const Node& b = t_[base_node];
            if (b.kind == Kind::constant && b.op == uint8_t(Const::e))
                return budget_.spend(1500), verifier::exp((*this)(exponent_node));
        }
        Value base = (*this)(base_node);
        if (!ok(base)) return base;
        if (rational && e.integer()) {
            if (!e.num.is_small()) return bad();
            int64_t k = e.num.small();
            if constexpr (F::exact) {
                Value out;
                out.ok = Rational::power(base.v, k, out.v, budget_);
                return out;
            } else if constexpr (F::numeric) {
                if (base.may_be_zero()) return k > 0 ? base : k == 0 ? integer(1) : bad();
                return k > (int64_t(1) << 56) || k < -(int64_t(1) << 56) ? bad() : int_power(base, k);
            } else {
                if (k < 0 && !(base.v[0] && base.v[1])) return bad();
                Value out;
                for (int i = 0; i < 2; i++) {
                    int64_t order = int64_t(F::prime[i]) - 1, reduced = k % order;
                    out.v[i] =
                        k && !base.v[i]
                            ? 0
                            : F::power(base.v[i], uint64_t(reduced < 0 ? reduced + order : reduced), i);
                }
                return out;
            }
        }
        if constexpr (F::exact) {
            // 4^(1/2), 8^(-2/3)
            if (!rational || !e.den.is_small() || !e.num.is_small()) return bad();
            Value r = exact_root(base, e.den.small());
            if (r.ok) r.ok = Rational::power(r.v, e.num.small(), r.v, budget_);
            return r;
        } else if constexpr (F::numeric) {
            budget_.spend(4000);
            if (rational) return rational_power(base, e);
            Value exponent = (*this)(exponent_node);
            if (!ok(exponent)) return exponent;
            if (exponent.real() && exponent.re.err.zero() && exponent.re.exp < 40) {
                int64_t k = exponent.re.nearest();
                if ((exponent.re - typename Value::R(k)).exact_zero()) return int_power(base, k);
            }
            return general_power(base, exponent);
        } else {
            return bad();
        }
    }
    // Numeric only. A real base with an odd root stays real: (-8)^(1/3) = -2, as \sqrt[3]{-8}.
    Value rational_power(const Value& base, const Rational& e) {
        if (base.may_be_zero()) return e.num.negative() ? bad() : base;
        Value exponent = from(e), b = base.settled();
        if (b.real() && b.re.negative && !e.den.even()) {
            Value size = general_power(-b, exponent);
            return e.num.even() ? size : -size;
        }
        return general_power(b, exponent);
    }
    Value general_power(const Value& base, const Value& exponent) {
        if (base.may_be_zero())
            return exponent.real() && !exponent.re.negative && !exponent.re.may_be_zero() ? base : bad();
        Value b = base.settled();
        if (!b.real() || b.re.negative) left_reals = true;
        return verifier::exp(exponent * verifier::log(b));
    }
    // Exact only: the root of a perfect power.
    Value exact_root(const Value& a, int64_t degree) {
        if (!a.ok || degree < 2 || degree > 64 || !a.v.num.is_small() || !a.v.den.is_small()) return bad();
        auto of = [&](int64_t v, int64_t& out) {
            bool negative = v < 0;
            if (negative && degree % 2 == 0) return false;
            double estimate = std::pow(double(negative ? -v : v), 1.0 / double(degree));
            for (int64_t c = std::llround(estimate) - 1; c <= std::llround(estimate) + 1; c++) {
                if (c < 0) continue;
                int64_t p = 1;
                bool fits = true;
                for (int64_t k = 0; k < degree && fits; k++) fits = !__builtin_mul_overflow(p, c, &p);
                if (fits && p == (negative ? -v : v)) return out = negative ? -c : c, true;
            }
            return false;
        };
        int64_t num, den;
        if (!of(a.v.num.small(), num) || !of(a.v.den.small(), den)) return bad();
        return from(Rational{num, den});
    }
    Value root(const Value& a, int degree_node) {
        if (!ok(a)) return a;
        Rational degree;
        bool small =
            exact(degree_node, degree) && degree.integer() && degree.num.is_small() && degree.num.small() > 0;
        if constexpr (F::exact) {
            return small ? exact_root(a, degree.num.small()) : bad();
        } else if constexpr (F::numeric) {
            budget_.spend(600);
            if (small && degree.num.small() == 2) {
                Value b = a.settled();
                if (!b.real() || (b.re.negative && !b.re.may_be_zero())) left_reals = true;
                return verifier::sqrt(b);
            }
            if (small) return budget_.spend(4000), rational_power(a, Rational{1, degree.num});
            Value d = (*this)(degree_node);
            return budget_.spend(4000), general_power(a, divide(integer(1), d));
        } else {
            return bad();
        }
    }
    // The value as an integer in [0, most], or -1.
    int64_t index(const Value& v, int64_t most) {
        if (!ok(v)) return -1;
        if constexpr (F::exact) {
            if (!v.v.integer() || !v.v.num.is_small()) return -1;
            return v.v.num.small() <= most && v.v.num.small() >= 0 ? v.v.num.small() : -1;
        } else if constexpr (F::numeric) {
            if (!v.real() || v.re.exp > 40) return -1;
            int64_t k = v.re.nearest();
            return (v.re - typename Value::R(k)).may_be_zero() && k >= 0 && k <= most ? k : -1;
        } else {
            return v.v[0] == v.v[1] && v.v[0] <= uint64_t(most) ? int64_t(v.v[0]) : -1;
        }
    }
    Value factorial(const Value& a, int64_t step) {
        int64_t n = index(a, 20000);
        if (n < 0 || !budget_.spend(n * (F::exact ? 64 : 16))) return bad();
        Value product = integer(1);
        for (int64_t k = n; k > 1 && ok(product); k -= step) product = multiply(product, integer(k));
        return product;
    }
    // n (n-1) ... (n-k+1) / k!, 0 for k < 0; n may be any number.
    Value binomial(const Value& n, const Value& k) {
        int64_t below = index(k, 20000), above = index(n, 20000);
        if (!ok(n) || below < 0) return bad();
        if (above >= 0 && above < below) return integer(0);
        if (above >= 0) below = std::min(below, above - below);
        if (!budget_.spend(below * (F::exact ? 128 : 200))) return bad();
        Value product = integer(1);
        for (int64_t j = 0; j < below && ok(product); j++)
            product = divide(multiply(product, add(n, integer(-j))), integer(j + 1));
        return product;
    }
    Value modulo(const Value& a, const Value& b) {
        if (!ok(a) || !ok(b)) return bad();
        if constexpr (F::exact) {
            Value q = divide(a, b);
            BigInt whole;
            if (!q.ok || !Rational::floor(q.v, whole, budget_)) return bad();
            return add(a, negated(multiply(Value{Rational{whole, 1}, true}, b)));
        } else if constexpr (F::numeric) {
            if (!a.real() || !b.real() || b.may_be_zero()) return bad();
            return {a.re - b.re * (a.re / b.re).floor(), {}};
        } else {
            return bad();
        }
    }
    // An unknown function: one fixed smooth function per name.
    Value opaque(int n) {
        uint64_t h = hash_name(t_.name(n));
        Value sum = integer(int64_t(h % 1000003) + 2);
        for (int k = 0; k < t_[n].count; k++) {
            Value a = (*this)(t_.kid(n, k));
            if (!ok(a)) return a;
            if constexpr (F::exact) return bad();
            h = mix(h);
            sum = add(sum, divide(integer(int64_t(h % 999983) + 3),
                                  add(a, integer(int64_t(h >> 32 & 0xffff) + 200))));
        }
        if constexpr (F::exact) return bad();
        return sum;
    }
    Value big_sum(int n) {
        int64_t from_index = index((*this)(t_.kid(n, 0)), 1000000),
                to = index((*this)(t_.kid(n, 1)), 1000000);
        if (from_index < 0 || to < 0 || to - from_index > 1000) return bad();
        bool product = t_[n].op == 1;
        Value total = integer(product);
        bound_.emplace_back(t_.name(n), 0);
        for (int64_t k = from_index; k <= to && ok(total); k++) {
            bound_.back().second = k;
            Value term = (*this)(t_.kid(n, 2));
            total = product ? multiply(total, term) : add(total, term);
        }
        bound_.pop_back();
        return total;
    }
    Value function(int n) {
        Fn fn = Fn(t_[n].op);
        std::vector<Value> a;
        for (int k = 0; k < t_[n].count; k++) {
            a.push_back((*this)(t_.kid(n, k)));
            if (!ok(a.back())) return bad();
        }
        if (a.empty()) return bad();
        if constexpr (F::exact)
            return exact_function(fn, a);
        else if constexpr (F::numeric)
            return numeric_function(fn, a);
        else
            return bad();
    }
    Value exact_function(Fn fn, std::vector<Value>& a) {
        Value out = a[0];
        BigInt whole;
        switch (fn) {
            case Fn::abs:
                return out.v.num.negative() ? negated(out) : out;
            case Fn::floor:
            case Fn::ceil: {
                if (fn == Fn::ceil) out = negated(out);
                if (!Rational::floor(out.v, whole, budget_)) return bad();
                out.v = Rational{whole, 1};
                return fn == Fn::ceil ? negated(out) : out;
            }
            case Fn::sqrt:
                return exact_root(out, 2);
            case Fn::cbrt:
                return exact_root(out, 3);
            case Fn::max:
            case Fn::min:
                for (Value& v : a) {
                    Value d = add(v, negated(out));
                    if (!d.ok) return bad();
                    if (!d.v.num.zero() && d.v.num.negative() == (fn == Fn::min)) out = v;
                }
                return out;
            case Fn::gcd:
            case Fn::lcm:
                for (Value& v : a) {
                    BigInt g;
                    if (!v.v.integer() || !BigInt::gcd(out.v.num, v.v.num, g, budget_)) return bad();
                    if (fn == Fn::gcd) {
                        out = Value{Rational{g, 1}, true};
                    } else {
                        if (g.zero()) return bad();
                        out = divide(multiply(out, v), Value{Rational{g, 1}, true});
                    }
                }
                return out;
            default:
                return bad();
        }
    }
    Value numeric_function(Fn fn, std::vector<Value>& a) {
        using R = typename Value::R;
        const Value z = a[0], one = integer(1);
        budget_.spend(4000);
        auto sine = [](const Value& v, bool cosine) -> Value {
            R s, c;
            if (v.real()) {
                sin_cos(v.re, s, c);
                return {cosine ? c : s, {}};
            }
            Value p = verifier::exp(v.times_i()), q = verifier::exp(-v.times_i());
            Value twice = cosine ? p + q : -(p - q).times_i();
            return {twice.re.scaled(-1), twice.im.scaled(-1)};
        };
        auto hyper = [](const Value& v, bool cosine) -> Value {
            Value p = verifier::exp(v), q = verifier::exp(-v), twice = cosine ? p + q : p - q;
            return {twice.re.scaled(-1), twice.im.scaled(-1)};
        };
        switch (fn) {
            case Fn::sin:
                return sine(z, false);
            case Fn::cos:
                return sine(z, true);
            case Fn::tan:
                return divide(sine(z, false), sine(z, true));
            case Fn::cot:
                return divide(sine(z, true), sine(z, false));
            case Fn::sec:
                return divide(one, sine(z, true));
            case Fn::csc:
                return divide(one, sine(z, false));
            case Fn::sinh:
                return hyper(z, false);
            case Fn::cosh:
                return hyper(z, true);
            case Fn::tanh:
                return divide(hyper(z, false), hyper(z, true));
            case Fn::exp:
                return verifier::exp(z);
            case Fn::asin:
            case Fn::acos: {
                Value other = verifier::sqrt(one - z * z);
                if (z.real() && other.real())
                    return {fn == Fn::asin ? angle(Value{other.re, z.re}) : angle(Value{z.re, other.re}), {}};
                left_reals = true;
                Value asin = -verifier::log(z.times_i() + other).times_i();
                return fn == Fn::asin ? asin : Value{pi_value(R()).scaled(-1), {}} - asin;
            }
            case Fn::atan:
            case Fn::acot: {
                Value v;
                if (z.real()) {
                    v.re = verifier::atan(z.re);
                } else {
                    Value i{{}, R(1)}, w = verifier::log(divide(i + z, i - z)).times_i();
                    v = {w.re.scaled(-1), w.im.scaled(-1)};
                }
                return fn == Fn::atan ? v : Value{pi_value(R()).scaled(-1), {}} - v;
            }
            case Fn::asinh:
                return verifier::log(z + verifier::sqrt(z * z + one));
            case Fn::acosh:
                return verifier::log(z + verifier::sqrt(z * z - one));
            case Fn::atanh: {
                Value w = verifier::log(divide(one + z, one - z));
                return {w.re.scaled(-1), w.im.scaled(-1)};
            }
            case Fn::ln:
            case Fn::log:
            case Fn::lg: {
                if (!z.real() || z.re.negative) left_reals = true;
                if (z.may_be_zero()) return bad();
                Value v = verifier::log(z);
                if (a.size() > 1) return divide(v, verifier::log(a[1]));
                return fn != Fn::ln && r_.log_ten ? divide(v, verifier::log(integer(10))) : v;
            }
            case Fn::sqrt:
            case Fn::cbrt:
                return rational_power(z, Rational{1, fn == Fn::sqrt ? 2 : 3});
            case Fn::abs:
                return {magnitude(z), {}};
            case Fn::re:
                return {z.re, {}};
            case Fn::im:
                return {z.im, {}};
            case Fn::arg:
                return {angle(z.settled()), {}};
            case Fn::floor:
                return z.real() ? Value{z.re.floor(), {}} : bad();
            case Fn::ceil:
                return z.real() ? Value{-(-z.re).floor(), {}} : bad();
            case Fn::max:
            case Fn::min: {
                Value best = z;
                for (const Value& v : a) {
                    if (!v.real()) return bad();
                    int order = R::compare(v.re, best.re);
                    if (order && (order < 0) == (fn == Fn::min)) best = v;
                }
                return best;
            }
            default:
                return bad();
        }
    }
};

}  // namespace verifier
