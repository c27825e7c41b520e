// highprec.h: real and complex numbers of 64*N bits that know their own error.
//
// A Real is a ball: value m * 2^(exp - 64N) with m in [2^(64N-1), 2^64N), off by at most its radius. Every
// operation bounds the error it adds, so "these two differ" is a proof, and "these two agree" means agreement
// to the last digit that was kept; the caller confirms it with a second N. The exponent is 64 bits wide:
// 1/2004! and 1/2006! are ordinary numbers here. What has no value (1/0, a tower of powers) is `bad`, and
// stays bad.
//
// Series follow R. Brent and P. Zimmermann, Modern Computer Arithmetic, chapter 4 (argument reduction,
// Taylor).
#pragma once
#include <cmath>
#include <cstdint>
#include <utility>

#include "bigint.h"

namespace verifier {

// An error bound m * 2^e, m = 0 or in [2^31, 2^32), rounded up by every operation.
struct Radius {
    uint32_t m = 0;
    int64_t e = 0;

    static Radius make(uint64_t v, int64_t e) {
        if (!v) return {};
        int up = __builtin_clzll(v);
        if (up >= 32) return {uint32_t(v << (up - 32)), e - (up - 32)};
        int down = 32 - up;
        uint64_t m = (v >> down) + ((v & ((uint64_t(1) << down) - 1)) != 0);
        if (m >> 32) m >>= 1, down++;
        return {uint32_t(m), e + down};
    }
    bool zero() const { return !m; }
    int64_t top() const { return m ? e + 32 : INT64_MIN / 4; }  // the bound is below 2^top
    friend Radius operator+(Radius a, Radius b) {
        if (!b.m) return a;
        if (!a.m) return b;
        if (a.e < b.e) std::swap(a, b);
        int64_t shift = a.e - b.e;
        return make(uint64_t(a.m) + (shift >= 32 ? 1 : (b.m >> shift) + (shift > 0)), a.e);
    }
    friend Radius operator*(Radius a, Radius b) { return make(uint64_t(a.m) * b.m, a.e + b.e); }
};

template <int N>
struct Real {
    static constexpr int64_t widest = int64_t(1) << 56;  // exponents beyond this are bad
    bool negative = false, bad = false;
    int64_t exp = 0;
    Radius err;
    uint64_t m[N] = {};

    Real() {}
    Real(int64_t value) {
        if (!value) return;
        negative = value < 0;
        m[N - 1] = negative ? 0 - uint64_t(value) : uint64_t(value);
        exp = 64;
        normalise();
    }
    static Real make_bad() {
        Real out;
        out.bad = true;
        return out;
    }
    static Real from_double(double value) {
        Real out;
        if (value == 0) return out;
        if (!std::isfinite(value)) return make_bad();
        int e;
        double f = std::frexp(std::fabs(value), &e);
        out.negative = value < 0, out.exp = e, out.m[N - 1] = uint64_t(std::ldexp(f, 64));
        return out;
    }
    static Real from(const BigInt& value) {
        if (value.is_small()) return Real(value.small());
        std::vector<uint32_t> words = value.words();
        Real out;
        out.negative = value.negative(), out.exp = 64 * N;
        size_t top = words.size();
        for (int i = 0; i < 2 * N && top > size_t(i); i++)
            out.m[N - 1 - i / 2] |= uint64_t(words[top - 1 - i]) << (i % 2 ? 0 : 32);
        out.exp = int64_t(top) * 32;
        if (top > 2 * N) out.err = Radius::make(1, out.exp - 64 * N);
        out.normalise();
        return out;
    }

    bool zero_value() const { return m[N - 1] == 0; }
    bool exact_zero() const { return !bad && zero_value() && err.zero(); }
    // Whether the ball contains zero.
    bool may_be_zero() const { return zero_value() || err.top() >= exp - 1; }
    double to_double() const {
        if (zero_value()) return 0;
        double v = std::ldexp(double(m[N - 1]), exp > 4000 ? 4000 : exp < -4000 ? -4000 : int(exp) - 64);
        return negative ? -v : v;
    }
    Real operator-() const {
        Real out = *this;
        out.negative = !negative;
        return out;
    }
    Real scaled(int64_t power) const {  // times 2^power
        Real out = *this;
        if (!zero_value()) out.exp += power;
        out.err.e += power;
        return out.checked();
    }
    Real with_error(Radius more) const {
        Real out = *this;
        out.err = err + more;
        return out;
    }
    // An upper bound of the magnitude.
    Radius size() const { return zero_value() ? Radius() : Radius::make((m[N - 1] >> 32) + 1, exp - 32); }

    friend Real operator+(const Real& a, const Real& b) {
        if (a.bad || b.bad) return make_bad();
        Radius err = a.err + b.err;
        if (b.zero_value() || a.zero_value()) {
            Real out = a.zero_value() ? b : a;
            out.err = err;
            return out;
        }
        const Real &x = magnitude_less(a, b) ? b : a, &y = magnitude_less(a, b) ? a : b;
        Real out = x;
        out.err = err;
        int64_t shift = x.exp - y.exp;
        if (shift >= 64 * N) return out.with_error(y.size()).checked();
        uint64_t moved[N];
        bool lost = y.shifted_right(int(shift), moved);
        if (x.negative == y.negative) {
            unsigned __int128 carry = 0;
            for (int i = 0; i < N; i++)
                carry += (unsigned __int128)x.m[i] + moved[i], out.m[i] = uint64_t(carry), carry >>= 64;
            if (carry) {
                lost |= out.m[0] & 1;
                for (int i = 0; i < N; i++)
                    out.m[i] = out.m[i] >> 1 | (i + 1 < N ? out.m[i + 1] << 63 : uint64_t(1) << 63);
                out.exp++;
            }
        } else {
            uint64_t borrow = 0;
            for (int i = 0; i < N; i++) {
                unsigned __int128 d = (unsigned __int128)x.m[i] - moved[i] - borrow;
                out.m[i] = uint64_t(d), borrow = uint64_t(d >> 64) & 1;
            }
            int64_t unit = out.exp - 64 * N;
            out.normalise();
            if (lost) out = out.with_error(Radius::make(1, unit));
            return out.checked();
        }
        return lost ? out.rounded() : out.checked();
    }
    friend Real operator-(const Real& a, const Real& b) { return a + (-b); }

    friend Real operator*(const Real& a, const Real& b) {
        if (a.bad || b.bad) return make_bad();
        if (a.exact_zero() || b.exact_zero()) return Real();
        Real out;
        out.negative = a.negative != b.negative;
        out.err = a.size() * b.err + b.size() * a.err + a.err * b.err;
        if (a.zero_value() || b.zero_value()) return out.checked();
        uint64_t wide[2 * N] = {};
        for (int i = 0; i < N; i++) {
            if (!a.m[i]) continue;
            uint64_t carry = 0;
            for (int j = 0; j < N; j++) {
                unsigned __int128 t = (unsigned __int128)a.m[i] * b.m[j] + wide[i + j] + carry;
                wide[i + j] = uint64_t(t), carry = uint64_t(t >> 64);
            }
            wide[i + N] = carry;
        }
        int top = wide[2 * N - 1] >> 63 ? 0 : 1;
        uint64_t rest = 0;
        for (int i = 0; i < N; i++) {
            out.m[i] = top ? wide[N + i] << 1 | wide[N + i - 1] >> 63 : wide[N + i];
            rest |= i < N - 1 ? wide[i] : top ? wide[i] << 1 : wide[i];
        }
        out.exp = a.exp + b.exp - top;
        return rest ? out.rounded() : out.checked();
    }
    // Division by a small integer, as the series need it.
    Real over(uint64_t divisor) const {
        if (bad || !divisor) return make_bad();
        Real out = *this;
        if (zero_value()) return out;
        unsigned __int128 rest = 0;
        for (int i = N; i-- > 0;) {
            rest = rest << 64 | m[i];
            out.m[i] = uint64_t(rest / divisor), rest %= divisor;
        }
        // The bits that normalising uncovers are taken from the remainder.
        int lead = out.m[N - 1] ? __builtin_clzll(out.m[N - 1]) : 64;
        uint64_t below = uint64_t((rest << 64) / divisor);
        bool more = (rest << 64) % divisor != 0;
        if (lead == 64) {
            for (int i = N; i-- > 1;) out.m[i] = out.m[i - 1];
            out.m[0] = below, out.exp -= 64, below = 0;
            more = rest != 0;
            lead = out.m[N - 1] ? __builtin_clzll(out.m[N - 1]) : 63;
        }
        if (lead) {
            for (int i = N; i-- > 0;) out.m[i] = out.m[i] << lead | (i ? out.m[i - 1] : below) >> (64 - lead);
            out.exp -= lead;
            more |= (below << lead) != 0;
        } else {
            more |= below != 0;
        }
        return more ? out.rounded() : out.checked();
    }
    friend Real operator/(const Real& a, const Real& b) {
        if (a.bad || b.bad || b.may_be_zero()) return make_bad();
        if (a.exact_zero()) return a;
        // Newton: y += y * (1 - d*y) doubles the bits of y = 1/d, d in [1/2, 1).
        Real d = b;
        d.negative = false, d.exp = 0, d.err = {};
        Real y = from_double(1 / d.to_double());
        for (int bits = 50; bits < 64 * N; bits *= 2) y = (y + y * (Real(1) - d * y)).without_error();
        y.negative = b.negative, y.exp -= b.exp;
        y.err = Radius::make(16, y.exp - 64 * N) +
                y.size() * y.size() * b.err * slack(b);  // |1/b - 1/b'| = |b - b'| / |b b'|
        return a * y;
    }
    friend Real sqrt(const Real& a) {
        if (a.bad) return a;
        if (a.may_be_zero()) {
            Real out;
            if (!a.exact_zero()) out.err = Radius::make(1, ((a.size() + a.err).top() + 2) / 2 + 1);
            return out;
        }
        if (a.negative) return make_bad();
        int64_t half = a.exp >= 0 ? a.exp / 2 : -((1 - a.exp) / 2);
        Real d = a;
        d.exp -= 2 * half, d.err = {};  // in [1/2, 2)
        Real y = from_double(1 / std::sqrt(d.to_double()));
        for (int bits = 50; bits < 64 * N; bits *= 2)
            y = (y + (y * (Real(1) - d * y * y)).scaled(-1)).without_error();
        Real out = d * y;
        out = out + (y * (d - out * out)).scaled(-1);
        out.exp += half;
        out.err = Radius::make(16, out.exp - 64 * N) + a.err * Radius::make(1, -out.exp) * slack(a);
        return out;
    }
    Real without_error() const {
        Real out = *this;
        out.err = {};
        return out;
    }
    // The nearest integer, for |value| < 2^62.
    int64_t nearest() const {
        if (zero_value() || exp < 0) return 0;
        if (exp > 62) return negative ? INT64_MIN : INT64_MAX;
        uint64_t twice = exp == 0 ? 1 : (m[N - 1] >> (63 - exp));
        int64_t v = int64_t((twice + 1) / 2);
        return negative ? -v : v;
    }
    // The greatest integer not above; a ball around an integer is that integer.
    Real floor() const {
        if (bad || exp >= 64 * N) return err.top() > 0 ? make_bad() : *this;
        Real whole = *this;
        bool fraction = false;
        for (int bit = 0; bit < 64 * N - (exp < 0 ? 0 : int(exp)); bit += 64) {
            int low =
                64 * N - (exp < 0 ? 0 : int(exp)) - bit;  // bits of this word and above that are fraction
            uint64_t mask = low >= 64 ? ~uint64_t(0) : (uint64_t(1) << low) - 1;
            fraction |= (whole.m[bit / 64] & mask) != 0;
            whole.m[bit / 64] &= ~mask;
        }
        whole.err = {};
        if (!whole.m[N - 1]) whole = Real();
        if (err.top() > -8) return make_bad();
        if (negative && fraction) whole = whole + Real(-1);
        Real next = whole + Real(1);
        return (next - *this).may_be_zero() ? next : whole;
    }
    // -1, 0 (the balls overlap) or 1.
    static int compare(const Real& a, const Real& b) {
        Real d = a - b;
        return d.may_be_zero() ? 0 : d.negative ? -1 : 1;
    }

  private:
    static bool magnitude_less(const Real& a, const Real& b) {
        if (a.exp != b.exp) return a.exp < b.exp;
        for (int i = N; i-- > 0;)
            if (a.m[i] != b.m[i]) return a.m[i] < b.m[i];
        return false;
    }
    bool shifted_right(int shift, uint64_t* out) const {  // returns whether bits were lost
        int words = shift / 64, rest = shift % 64;
        bool lost = false;
        for (int i = 0; i < words; i++) lost |= m[i] != 0;
        if (rest) lost |= (m[words] & ((uint64_t(1) << rest) - 1)) != 0;
        for (int i = 0; i < N; i++) {
            uint64_t low = i + words < N ? m[i + words] : 0, high = i + words + 1 < N ? m[i + words + 1] : 0;
            out[i] = rest ? low >> rest | high << (64 - rest) : low;
        }
        return lost;
    }
    void normalise() {
        int words = 0;
        while (words < N && !m[N - 1 - words]) words++;
        if (words == N) {
            exp = 0, negative = false;
            return;
        }
        int rest = __builtin_clzll(m[N - 1 - words]);
        for (int i = N; i-- > 0;) {
            uint64_t high = i - words >= 0 ? m[i - words] : 0,
                     low = i - words - 1 >= 0 ? m[i - words - 1] : 0;
            m[i] = rest ? high << rest | low >> (64 - rest) : high;
        }
        exp -= words * 64 + rest;
    }
    // How much the error of a nonzero ball can grow by dividing by its other end: 1 + 2^-8, or 2 for a wide
    // ball (may_be_zero() has already kept it below half the value).
    static Radius slack(const Real& a) {
        return a.err.top() < a.exp - 12 ? Radius::make(257, -8) : Radius::make(2, 0);
    }
    // Adds the error of one rounding, a unit in the last place.
    Real rounded() const { return with_error(Radius::make(1, exp - 64 * N)).checked(); }
    Real checked() const { return exp > widest || exp < -widest || err.top() > widest ? make_bad() : *this; }
};

// No series below needs a tenth of this; it only keeps a fault from becoming a hang.
constexpr uint64_t most_terms = 2000;

// pi = 16 atan(1/5) - 4 atan(1/239), ln 2 = 18 atanh(1/26) - 2 atanh(1/4801) + 8 atanh(1/8749).
template <int N>
Real<N> inverse_series(uint64_t n, bool alternate) {
    Real<N> power = Real<N>(1).over(n), sum = power;
    for (uint64_t k = 3; power.exp > -64 * N - 8; k += 2) {
        power = power.over(n * n);
        Real<N> term = power.over(k);
        sum = alternate && k % 4 == 3 ? sum - term : sum + term;
    }
    return sum;
}
template <int N>
const Real<N>& pi() {
    static const Real<N> value =
        Real<N>(16) * inverse_series<N>(5, true) - Real<N>(4) * inverse_series<N>(239, true);
    return value;
}
template <int N>
const Real<N>& ln2() {
    static const Real<N> value = Real<N>(18) * inverse_series<N>(26, false) -
                                 Real<N>(2) * inverse_series<N>(4801, false) +
                                 Real<N>(8) * inverse_series<N>(8749, false);
    return value;
}

template <int N>
Real<N> exp(const Real<N>& x) {
    if (x.bad || x.exp > 60 || x.err.top() > 0) return Real<N>::make_bad();
    if (x.exact_zero()) return Real<N>(1);
    // x = k ln 2 + r; e^r by Taylor at r / 2^halvings, then squared back.
    constexpr int halvings = 14;
    double estimate = x.to_double() / 0.69314718055994531;
    if (std::fabs(estimate) > 3e16) return Real<N>::make_bad();
    int64_t k = std::llround(estimate);
    Real<N> r = (x - Real<N>(k) * ln2<N>()).scaled(-halvings), term = r, sum = r;
    for (uint64_t n = 2; !term.zero_value() && term.exp > sum.exp - 64 * N - 4 && n < most_terms; n++) {
        term = (term * r).over(n);
        sum = sum + term;
    }
    // With s = e^r - 1, e^2r - 1 = s (s + 2) keeps the digits of a small s.
    for (int i = 0; i < halvings; i++) sum = sum * (sum + Real<N>(2));
    return (sum + Real<N>(1)).with_error(Radius::make(16, -64 * N)).scaled(k);
}
template <int N>
Real<N> log(const Real<N>& x) {
    if (x.bad || x.may_be_zero() || x.negative) return Real<N>::make_bad();
    Real<N> f = x;
    f.exp = 0;
    f.err.e -= x.exp;
    int64_t k = x.exp;
    if (f.to_double() < 0.70710678118654752) f.exp++, f.err.e++, k--;
    // log f = y + log1p(f e^-y - 1), with y right to 50 bits.
    Real<N> y = Real<N>::from_double(std::log(f.to_double()));
    Real<N> d = f * exp(-y) - Real<N>(1), power = d, sum = d;
    for (uint64_t n = 2; !power.zero_value() && power.exp > -64 * N - 4 && n < most_terms; n++) {
        power = power * d;
        sum = n % 2 ? sum + power.over(n) : sum - power.over(n);
    }
    return y + sum + Real<N>(k) * ln2<N>();
}
// Both by Taylor on |r| <= pi/4.
template <int N>
void sin_cos(const Real<N>& x, Real<N>& sine, Real<N>& cosine) {
    sine = cosine = Real<N>::make_bad();
    if (x.bad || x.exp > 60 || x.err.top() > 0) return;
    double estimate = x.to_double() / 1.5707963267948966;
    if (std::fabs(estimate) > 3e16) return;
    int64_t k = std::llround(estimate);
    Real<N> r = x - Real<N>(k) * pi<N>().scaled(-1), square = r * r;
    Real<N> s = r, c = Real<N>(1), term = r, even = Real<N>(1);
    for (uint64_t n = 1; !even.zero_value() && even.exp > -64 * N - 4 && n < most_terms; n++) {
        even = (even * square).over((2 * n - 1) * 2 * n);
        c = n % 2 ? c - even : c + even;
        term = (term * square).over(2 * n * (2 * n + 1));
        s = n % 2 ? s - term : s + term;
    }
    s = s.with_error(Radius::make(1, -64 * N)), c = c.with_error(Radius::make(1, -64 * N));
    if (r.exact_zero()) s = Real<N>();
    switch (k & 3) {
        case 0:
            sine = s, cosine = c;
            break;
        case 1:
            sine = c, cosine = -s;
            break;
        case 2:
            sine = -s, cosine = -c;
            break;
        default:
            sine = -c, cosine = s;
    }
}
template <int N>
Real<N> atan(const Real<N>& x) {
    if (x.bad) return x;
    if (x.exact_zero()) return x;
    if (!x.zero_value() && x.exp > 1) {  // |x| >= 2
        Real<N> half = pi<N>().scaled(-1);
        return (x.negative ? -half : half) - atan(Real<N>(1) / x);
    }
    // atan x = y + atan((x - tan y) / (1 + x tan y)), with y right to 50 bits.
    Real<N> y, t = x;
    if (x.exp > -40) {
        y = Real<N>::from_double(std::atan(x.to_double()));
        Real<N> s, c;
        sin_cos(y, s, c);
        t = (x * c - s) / (c + x * s);
    }
    Real<N> square = t * t, power = t, sum = t;
    for (uint64_t n = 3; !power.zero_value() && power.exp > -64 * N - 44 && n < most_terms; n += 2) {
        power = power * square;
        sum = n % 4 == 3 ? sum - power.over(n) : sum + power.over(n);
    }
    return (y + sum).with_error(Radius::make(1, x.exp - 64 * N));
}

template <int N>
struct Complex {
    using R = Real<N>;
    R re, im;

    bool bad() const { return re.bad || im.bad; }
    bool real() const { return im.exact_zero(); }
    static Complex make_bad() { return {R::make_bad(), R()}; }

    friend Complex operator+(const Complex& a, const Complex& b) { return {a.re + b.re, a.im + b.im}; }
    friend Complex operator-(const Complex& a, const Complex& b) { return {a.re - b.re, a.im - b.im}; }
    friend Complex operator*(const Complex& a, const Complex& b) {
        if (a.real() && b.real()) return {a.re * b.re, a.bad() || b.bad() ? R::make_bad() : R()};
        return {a.re * b.re - a.im * b.im, a.re * b.im + a.im * b.re};
    }
    friend Complex operator/(const Complex& a, const Complex& b) {
        if (a.real() && b.real()) return {a.re / b.re, R()};
        R norm = b.re * b.re + b.im * b.im;
        return {(a.re * b.re + a.im * b.im) / norm, (a.im * b.re - a.re * b.im) / norm};
    }
    Complex operator-() const { return {-re, real() ? im : -im}; }
    Complex times_i() const { return {-im, re}; }
    bool may_be_zero() const { return re.may_be_zero() && im.may_be_zero(); }

    // A part that may be zero and is known to nearly full precision is zero: decides branch cuts.
    Complex settled() const {
        Complex out = *this;
        if (!im.bad && !im.exact_zero() && im.may_be_zero() && im.err.top() < re.exp - 32 * N) out.im = R();
        if (!re.bad && !re.exact_zero() && re.may_be_zero() && !im.may_be_zero() &&
            re.err.top() < im.exp - 32 * N)
            out.re = R();
        return out;
    }
};

template <int N>
Real<N> magnitude(const Complex<N>& z) {
    if (z.real()) {
        Real<N> out = z.re;
        out.negative = false;
        return out;
    }
    return sqrt(z.re * z.re + z.im * z.im);
}
// The angle in (-pi, pi].
template <int N>
Real<N> angle(const Complex<N>& z) {
    if (z.bad() || z.may_be_zero()) return Real<N>::make_bad();
    if (z.real()) return z.re.negative ? pi<N>() : Real<N>();
    if (z.re.exact_zero()) return z.im.negative ? -pi<N>().scaled(-1) : pi<N>().scaled(-1);
    if (z.re.zero_value() || z.im.exp > z.re.exp) {
        Real<N> half = pi<N>().scaled(-1);
        return (z.im.negative ? -half : half) - atan(z.re / z.im);
    }
    Real<N> a = atan(z.im / z.re);
    if (!z.re.negative) return a;
    return z.im.negative ? a - pi<N>() : a + pi<N>();
}
template <int N>
Complex<N> log(const Complex<N>& w) {
    Complex<N> z = w.settled();
    if (z.real() && !z.re.negative) return {log(z.re), Real<N>()};
    return {log(magnitude(z)), angle(z)};
}
template <int N>
Complex<N> exp(const Complex<N>& z) {
    Real<N> size = exp(z.re);
    if (z.real()) return {size, Real<N>()};
    Real<N> s, c;
    sin_cos(z.im, s, c);
    return {size * c, size * s};
}
template <int N>
Complex<N> sqrt(const Complex<N>& w) {
    Complex<N> z = w.settled();
    if (z.real() && (!z.re.negative || z.re.may_be_zero())) return {sqrt(z.re), Real<N>()};
    if (z.real()) return {Real<N>(), sqrt(-z.re)};
    Real<N> size = magnitude(z);
    if (!z.re.negative) {
        Real<N> a = sqrt((size + z.re).scaled(-1));
        return {a, z.im.scaled(-1) / a};
    }
    Real<N> b = sqrt((size - z.re).scaled(-1));
    Real<N> a = z.im.scaled(-1) / b;
    return z.im.negative ? Complex<N>{-a, -b} : Complex<N>{a, b};
}

}  // namespace verifier
