// bigint.h: exact integers and fractions of bounded size, for comparing answers exactly.
//
// Values that fit int64_t stay there and allocate nothing; larger ones are 32-bit limbs up to max_bits,
// beyond which an operation gives up (returns false) and the caller compares by residues and high precision
// instead. Work is counted in limb products against a Budget, so that no input can take long.
#pragma once
#include <algorithm>
#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

namespace verifier {

// Steps that one comparison may still take. Deterministic, unlike a timer: the same input gives the same
// verdict on a slow machine.
struct Budget {
    int64_t left;
    bool spend(int64_t steps) { return (left -= steps) >= 0; }
};

constexpr int max_bits = 4096;

class BigInt {
  public:
    BigInt(int64_t value = 0) : small_(value) {}

    // Decimal digits (nothing else); false beyond max_bits.
    static bool from_digits(std::string_view digits, BigInt& out) {
        while (digits.size() > 1 && digits[0] == '0') digits.remove_prefix(1);
        if (digits.size() > max_bits * 3 / 10) return false;
        std::vector<uint32_t> limbs;
        for (size_t i = 0; i < digits.size();) {
            uint32_t chunk = 0, scale = 1;
            for (; i < digits.size() && scale < 1000000000; i++)
                chunk = chunk * 10 + uint32_t(digits[i] - '0'), scale *= 10;
            uint64_t carry = chunk;
            for (uint32_t& limb : limbs)
                carry += uint64_t(limb) * scale, limb = uint32_t(carry), carry >>= 32;
            if (carry) limbs.push_back(uint32_t(carry));
        }
        out.set(limbs, false);
        return true;
    }

    bool is_small() const { return limbs_.empty(); }
    int64_t small() const { return small_; }
    bool negative() const { return is_small() ? small_ < 0 : negative_; }
    bool zero() const { return is_small() && small_ == 0; }
    bool one() const { return is_small() && small_ == 1; }
    bool even() const { return is_small() ? !(small_ & 1) : !(limbs_[0] & 1); }
    int bits() const {
        if (is_small()) {
            uint64_t m = magnitude(small_);
            return m ? 64 - __builtin_clzll(m) : 0;
        }
        return int(limbs_.size()) * 32 - __builtin_clz(limbs_.back());
    }
    BigInt negated() const {
        BigInt out = *this;
        if (is_small() && small_ != INT64_MIN) {
            out.small_ = -small_;
        } else {
            out.set(words(), !negative());
        }
        return out;
    }
    BigInt abs() const { return negative() ? negated() : *this; }

    static bool add(const BigInt& a, const BigInt& b, BigInt& out) {
        int64_t sum;
        if (a.is_small() && b.is_small() && !__builtin_add_overflow(a.small_, b.small_, &sum))
            return out = BigInt(sum), true;
        std::vector<uint32_t> x = a.words(), y = b.words();
        if (a.negative() == b.negative()) {
            if (x.size() < y.size()) x.swap(y);
            uint64_t carry = 0;
            for (size_t i = 0; i < x.size(); i++) {
                carry += uint64_t(x[i]) + (i < y.size() ? y[i] : 0);
                x[i] = uint32_t(carry), carry >>= 32;
            }
            if (carry) x.push_back(uint32_t(carry));
            out.set(x, a.negative());
        } else {
            bool swap = compare_words(x, y) < 0;
            if (swap) x.swap(y);
            int64_t borrow = 0;
            for (size_t i = 0; i < x.size(); i++) {
                int64_t d = int64_t(x[i]) - (i < y.size() ? y[i] : 0) + borrow;
                x[i] = uint32_t(d), borrow = d >> 32;
            }
            out.set(x, swap ? b.negative() : a.negative());
        }
        return out.bits() <= max_bits;
    }
    static bool multiply(const BigInt& a, const BigInt& b, BigInt& out, Budget& budget) {
        int64_t product;
        if (a.is_small() && b.is_small() && !__builtin_mul_overflow(a.small_, b.small_, &product))
            return out = BigInt(product), true;
        if (a.bits() + b.bits() > max_bits + 1) return false;
        std::vector<uint32_t> x = a.words(), y = b.words(), z(x.size() + y.size(), 0);
        if (!budget.spend(int64_t(x.size() * y.size()))) return false;
        for (size_t i = 0; i < x.size(); i++) {
            uint64_t carry = 0;
            for (size_t j = 0; j < y.size() || carry; j++) {
                carry += z[i + j] + uint64_t(x[i]) * (j < y.size() ? y[j] : 0);
                z[i + j] = uint32_t(carry), carry >>= 32;
            }
        }
        out.set(z, a.negative() != b.negative());
        return true;
    }
    // Quotient and remainder, rounded towards zero; b is not zero. (Knuth, The Art of Computer Programming,
    // volume 2, 4.3.1, algorithm D.)
    static bool divide(const BigInt& a, const BigInt& b, BigInt& quotient, BigInt& remainder,
                       Budget& budget) {
        if (a.is_small() && b.is_small() && !(a.small_ == INT64_MIN && b.small_ == -1)) {
            BigInt q(a.small_ / b.small_), r(a.small_ % b.small_);
            quotient = q, remainder = r;
            return true;
        }
        std::vector<uint32_t> x = a.words(), y = b.words();
        bool sign = a.negative() != b.negative(), a_sign = a.negative();
        if (compare_words(x, y) < 0) return remainder = a, quotient = BigInt(0), true;
        size_t n = y.size(), m = x.size() - n;
        if (!budget.spend(int64_t((m + 1) * n))) return false;
        std::vector<uint32_t> q(m + 1, 0);
        if (n == 1) {
            uint64_t rest = 0;
            for (size_t i = x.size(); i-- > 0;) {
                rest = rest << 32 | x[i];
                q[i] = uint32_t(rest / y[0]), rest %= y[0];
            }
            x.assign(1, uint32_t(rest));
        } else {
            int shift = __builtin_clz(y.back());
            shift_left(y, shift), y.resize(n);
            shift_left(x, shift);
            for (size_t j = m + 1; j-- > 0;) {
                uint64_t top = uint64_t(x[j + n]) << 32 | x[j + n - 1];
                uint64_t guess = top / y[n - 1], rest = top % y[n - 1];
                while (guess >> 32 || guess * y[n - 2] > (rest << 32 | x[j + n - 2])) {
                    guess--, rest += y[n - 1];
                    if (rest >> 32) break;
                }
                int64_t borrow = 0;
                uint64_t carry = 0;
                for (size_t i = 0; i <= n; i++) {
                    carry += i < n ? guess * y[i] : 0;
                    int64_t d = int64_t(x[i + j]) - int64_t(uint32_t(carry)) + borrow;
                    x[i + j] = uint32_t(d), borrow = d >> 32, carry >>= 32;
                }
                if (borrow < 0) {
                    guess--;
                    uint64_t back = 0;
                    for (size_t i = 0; i <= n; i++) {
                        back += uint64_t(x[i + j]) + (i < n ? y[i] : 0);
                        x[i + j] = uint32_t(back), back >>= 32;
                    }
                }
                q[j] = uint32_t(guess);
            }
            for (size_t i = 0; i < n; i++)
                x[i] = x[i] >> shift | (shift ? uint32_t(uint64_t(x[i + 1]) << (32 - shift)) : 0);
            x.resize(n);
        }
        quotient.set(q, sign), remainder.set(x, a_sign);
        return true;
    }
    static bool gcd(BigInt a, BigInt b, BigInt& out, Budget& budget) {
        BigInt quotient, rest;
        while (!b.zero()) {
            if (a.is_small() && b.is_small()) {
                uint64_t x = magnitude(a.small_), y = magnitude(b.small_);
                while (y) x %= y, std::swap(x, y);
                if (x > uint64_t(INT64_MAX)) break;  // 2^63 alone: left to the general step
                return out = BigInt(int64_t(x)), true;
            }
            if (!divide(a, b, quotient, rest, budget)) return false;
            a = b, b = rest;
        }
        out = a.abs();
        return true;
    }
    static int compare(const BigInt& a, const BigInt& b) {
        if (a.is_small() && b.is_small()) return a.small_ < b.small_ ? -1 : a.small_ > b.small_;
        if (a.negative() != b.negative()) return a.negative() ? -1 : 1;
        int order = compare_words(a.words(), b.words());
        return a.negative() ? -order : order;
    }
    bool operator==(const BigInt& o) const { return compare(*this, o) == 0; }

    // The value modulo a prime p < 2^63.
    uint64_t residue(uint64_t p) const {
        uint64_t r = 0;
        if (is_small()) {
            r = magnitude(small_) % p;
        } else {
            for (size_t i = limbs_.size(); i-- > 0;)
                r = uint64_t(((unsigned __int128)r << 32 | limbs_[i]) % p);
        }
        return negative() && r ? p - r : r;
    }
    std::string text() const {
        if (is_small()) return std::to_string(small_);
        std::vector<uint32_t> x = limbs_;
        std::string out;
        while (!x.empty()) {
            uint64_t rest = 0;
            for (size_t i = x.size(); i-- > 0;) {
                rest = rest << 32 | x[i];
                x[i] = uint32_t(rest / 1000000000), rest %= 1000000000;
            }
            while (!x.empty() && !x.back()) x.pop_back();
            for (int i = 0; i < 9 && (rest || !x.empty()); i++) out += char('0' + rest % 10), rest /= 10;
        }
        if (negative_) out += '-';
        return std::string(out.rbegin(), out.rend());
    }
    // The magnitude, least significant word first.
    std::vector<uint32_t> words() const {
        if (!is_small()) return limbs_;
        uint64_t m = magnitude(small_);
        std::vector<uint32_t> out;
        for (; m; m >>= 32) out.push_back(uint32_t(m));
        return out;
    }

  private:
    static uint64_t magnitude(int64_t v) { return v < 0 ? 0 - uint64_t(v) : uint64_t(v); }
    static int compare_words(const std::vector<uint32_t>& a, const std::vector<uint32_t>& b) {
        if (a.size() != b.size()) return a.size() < b.size() ? -1 : 1;
        for (size_t i = a.size(); i-- > 0;)
            if (a[i] != b[i]) return a[i] < b[i] ? -1 : 1;
        return 0;
    }
    static void shift_left(std::vector<uint32_t>& x, int shift) {
        uint32_t carry = 0;
        for (uint32_t& limb : x) {
            uint64_t wide = uint64_t(limb) << shift | carry;
            limb = uint32_t(wide), carry = uint32_t(wide >> 32);
        }
        x.push_back(carry);
    }
    void set(std::vector<uint32_t> limbs, bool negative) {
        while (!limbs.empty() && !limbs.back()) limbs.pop_back();
        uint64_t low = 0;
        if (limbs.size() > 0) low = limbs[0];
        if (limbs.size() > 1) low |= uint64_t(limbs[1]) << 32;
        if (limbs.size() <= 2 && low <= uint64_t(INT64_MAX)) {
            small_ = negative ? -int64_t(low) : int64_t(low);
            limbs_.clear(), negative_ = false;
        } else {
            limbs_ = std::move(limbs), negative_ = negative, small_ = 0;
        }
    }

    int64_t small_ = 0;
    bool negative_ = false;
    std::vector<uint32_t> limbs_;  // empty: the value is small_
};

// A fraction in lowest terms, denominator positive.
struct Rational {
    BigInt num, den = 1;

    bool integer() const { return den.one(); }
    bool operator==(const Rational& o) const { return num == o.num && den == o.den; }
    std::string text() const { return integer() ? num.text() : num.text() + "/" + den.text(); }

    static bool make(const BigInt& num, const BigInt& den, Rational& out, Budget& budget) {
        if (den.zero()) return false;
        BigInt g, rest;
        if (den.one()) return out.num = num, out.den = den, true;
        if (!BigInt::gcd(num, den, g, budget)) return false;
        BigInt n = num, d = den;
        if (!g.one() && !(BigInt::divide(num, g, n, rest, budget) && BigInt::divide(den, g, d, rest, budget)))
            return false;
        if (d.negative()) n = n.negated(), d = d.negated();
        out.num = n, out.den = d;
        return true;
    }
    static bool add(const Rational& a, const Rational& b, Rational& out, Budget& budget) {
        BigInt n, x, y, d;
        if (a.integer() && b.integer()) return out.den = 1, BigInt::add(a.num, b.num, out.num);
        return BigInt::multiply(a.num, b.den, x, budget) && BigInt::multiply(b.num, a.den, y, budget) &&
               BigInt::add(x, y, n) && BigInt::multiply(a.den, b.den, d, budget) && make(n, d, out, budget);
    }
    static bool multiply(const Rational& a, const Rational& b, Rational& out, Budget& budget) {
        BigInt n, d;
        return BigInt::multiply(a.num, b.num, n, budget) && BigInt::multiply(a.den, b.den, d, budget) &&
               make(n, d, out, budget);
    }
    static bool divide(const Rational& a, const Rational& b, Rational& out, Budget& budget) {
        if (b.num.zero()) return false;
        BigInt n, d;
        return BigInt::multiply(a.num, b.den, n, budget) && BigInt::multiply(a.den, b.num, d, budget) &&
               make(n, d, out, budget);
    }
    Rational negated() const { return {num.negated(), den}; }
    // a^exponent; false for 0^negative and where the result would pass max_bits.
    static bool power(Rational a, int64_t exponent, Rational& out, Budget& budget) {
        if (exponent < 0) {
            if (a.num.zero() || exponent < -max_bits) return false;
            std::swap(a.num, a.den);
            if (a.den.negative()) a.num = a.num.negated(), a.den = a.den.negated();
            exponent = -exponent;
        }
        bool unit = a.integer() && a.num.is_small() && a.num.small() >= -1 && a.num.small() <= 1;
        if (unit && exponent > 1) exponent = 2 - exponent % 2;  // 0, 1 and -1 to any power
        if (exponent > max_bits) return false;
        Rational result{1, 1};
        for (; exponent; exponent >>= 1) {  // a power of a reduced fraction is reduced
            if (exponent & 1)
                if (!BigInt::multiply(result.num, a.num, result.num, budget) ||
                    !BigInt::multiply(result.den, a.den, result.den, budget))
                    return false;
            if (exponent > 1)
                if (!BigInt::multiply(a.num, a.num, a.num, budget) ||
                    !BigInt::multiply(a.den, a.den, a.den, budget))
                    return false;
        }
        out = result;
        return true;
    }
    // The greatest integer not above the value.
    static bool floor(const Rational& a, BigInt& out, Budget& budget) {
        BigInt rest;
        if (!BigInt::divide(a.num, a.den, out, rest, budget)) return false;
        return !rest.negative() || BigInt::add(out, BigInt(-1), out);
    }
};

}  // namespace verifier
