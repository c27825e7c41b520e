// field.h: the three kinds of number that expressions are evaluated in (evaluate.h), and how symbols take values.
#pragma once
#include "expr.h"
#include "highprec.h"

namespace verifier {

// How an expression is to be read, and where.
struct Reading {
    const Tree* tree = nullptr;
    bool minus = false;       // \pm stands for minus (and \mp for plus)
    bool drop_marks = false;  // % and degree signs do not count
    bool log_ten = false;     // log without a base is to base 10, not e
    int point = 0;
    std::string_view renamed,
        to;  // the symbol `renamed` counts as `to`: the x of f(x) is a name of no importance
};

// Points: 0 to 2 positive (below 1, 1 to 3, 3 to 100), 3 and 4 of either sign, from 5 on integers 2 to 40.
constexpr int real_points = 5, integer_points = 12;

inline uint64_t mix(uint64_t x) {  // splitmix64's finisher
    x += 0x9e3779b97f4a7c15u;
    x = (x ^ x >> 30) * 0xbf58476d1ce4e5b9u;
    x = (x ^ x >> 27) * 0x94d049bb133111ebu;
    return x ^ x >> 31;
}
inline uint64_t hash_name(std::string_view name) {
    uint64_t h = 0xcbf29ce484222325u;
    for (char c : name) h = (h ^ uint8_t(c)) * 0x100000001b3u;
    return mix(h);
}

struct Exact {
    struct Value {
        Rational v;
        bool ok = true;
    };
    static constexpr bool exact = true, numeric = false;
};
struct Residues {
    static constexpr uint64_t prime[2] = {2305843009213693951u, 2305843009213693921u};  // 2^61 - 1, 2^61 - 31
    struct Value {
        uint64_t v[2] = {0, 0};
        bool ok = true;
    };
    static constexpr bool exact = false, numeric = false;
    static uint64_t times(uint64_t a, uint64_t b, int k) {
        return uint64_t((unsigned __int128)a * b % prime[k]);
    }
    static uint64_t power(uint64_t a, uint64_t e, int k) {
        uint64_t r = 1;
        for (; e; e >>= 1, a = times(a, a, k))
            if (e & 1) r = times(r, a, k);
        return r;
    }
};
template <int N>
struct Ball {
    using Value = Complex<N>;
    static constexpr bool exact = false, numeric = true;
};

}  // namespace verifier
