// Pairs of answers and what they are worth, by kind. "= gold ~~ pred" must be equal, "! gold ~~ pred" must
// not. Every pair is tried both ways round unless its line starts with ">" (a rule that looks at the gold's
// form).
#include <sstream>
#include <string>

#include "../swarr/verifier/compare.h"
#include "catch.h"

namespace {

struct Pair {
    bool equal, both_ways;
    std::string gold, pred;
};

std::vector<Pair> pairs(const char* table) {
    std::vector<Pair> out;
    std::istringstream in(table);
    for (std::string line; std::getline(in, line);) {
        size_t mark = line.find_first_of("=!>"), cut = line.find(" ~~ ");
        if (line.empty()) continue;
        REQUIRE(mark != std::string::npos);
        REQUIRE(cut != std::string::npos);
        bool one_way = line[mark] == '>';
        if (one_way) mark += 2;
        out.push_back(
            {line[mark] == '=', !one_way, line.substr(mark + 2, cut - mark - 2), line.substr(cut + 4)});
    }
    return out;
}

void check(const char* table) {
    verifier::Options options = verifier::options_for(verifier::Mode::lenient);
    for (const Pair& p : pairs(table)) {
        INFO(p.gold << "  ~~  " << p.pred);
        CHECK((verifier::compare(p.gold, p.pred, options) == verifier::Verdict::equal) == p.equal);
        if (p.both_ways)
            CHECK((verifier::compare(p.pred, p.gold, options) == verifier::Verdict::equal) == p.equal);
    }
}

}  // namespace

TEST_CASE("verifier: numbers") {
    check(R"(
= 5 ~~ 5.0
= -\frac{1}{2} ~~ \frac{-1}{2}
= -\frac{1}{2} ~~ \frac{1}{-2}
= \frac{3}{4} ~~ .75
= \frac{2}{3} ~~ \frac{4}{6}
= 1,000,000 ~~ 1000000
= 1{,}234 ~~ 1234
= 12\,345 ~~ 12345
= 12\,345 ~~ 12 345
! 1,234 ~~ 1,235
! 10000 ~~ 9999
! 10000 ~~ 10000.1
= 1e3 ~~ 1000
= 3.83e35 ~~ 3.83 \times 10^{35}
= 3.83e35 ~~ 3.83 \cdot 10^{35}
= 1e-5 ~~ 10^{-5}
= 1e-5 ~~ 0.00001
! 1e-5 ~~ 1e-6
= 2^{10} ~~ 1024
= 2^{100} ~~ 1267650600228229401496703205376
! 2^{100} ~~ 1267650600228229401496703205377
! \frac{1}{2^{99}} ~~ \frac{1}{2^{98}}
! \frac{1}{1998!} ~~ \frac{1}{2000!}
! \frac{2^{3001}+1}{3 \cdot 2^{3002}} ~~ \frac{1}{3 \cdot 2^{3002}}
! 2^{100000}+1 ~~ 2^{100000}
= 2^{100001} ~~ 2 \cdot 2^{100000}
= \frac{100!}{98!} ~~ 9900
= 0.\overline{3} ~~ \frac{1}{3}
= 0.1\overline{6} ~~ \frac16
= 0.\overline{142857} ~~ \frac{1}{7}
= -\frac{5}{-7} ~~ \frac57
= \frac 12 ~~ \frac{1}{2}
= \frac1{72} ~~ \frac{1}{72}
= \frac{27}4 ~~ 27/4
= 007 ~~ 7
= 7 ~~ +7
= −5 ~~ - 5
= ½ ~~ 0.5
= 42 ~~ forty-two
= 12 ~~ twelve
= 5000000 ~~ 5 million
= 2.5 million ~~ 2500000
= 5\!000 ~~ 5000
= 6.02x10^23 ~~ 6.02 \times 10^{23}
= approximately 5 ~~ 5
! 0.5 ~~ 0.05
! 3.14 ~~ 3.15
! 18 ~~ 1800
= 2345 ~~ two thousand three hundred forty-five
= 205 ~~ two hundred and five
= 1200000 ~~ one million two hundred thousand
= -7 ~~ negative seven
= one and two ~~ 1, 2
! one thousand ~~ 1001
= one thousand and two thousand ~~ 2000, 1000
= \frac{2}{3} ~~ two thirds
= 0.5 ~~ one half
! third ~~ \frac13
= 0.1666... ~~ \frac16
= 0.(3) ~~ \frac13
! 1.23... ~~ 1.23
= \num{1000} ~~ 1000
= 10⁻³ ~~ 0.001
= 2⅓ ~~ \frac73
= \nicefrac{1}{2} ~~ \frac12
)");
}

TEST_CASE("verifier: mixed numbers") {
    check(R"(
= 3\frac{1}{2} ~~ 3.5
= 3\frac12 ~~ \frac72
= -3\frac{1}{2} ~~ -3.5
= 3 1/2 ~~ 7/2
= 8\frac47 ~~ \frac{60}{7}
! 3\frac{1}{2} ~~ 1.5
! 10000 ~~ 9999 \frac{6}{7}
= 3\frac{7}{2} ~~ 10.5
= 2\frac{x}{3} ~~ \frac{2x}{3}
= 2\frac{1}{x} ~~ \frac{2}{x}
= 33\frac{1}{3}\% ~~ \frac13
= 33 1/3 % ~~ 33\frac13
! 33\frac{1}{3}\% ~~ 33
= 12\frac{1}{2}^\circ ~~ 12.5
)");
}

TEST_CASE("verifier: percent, degrees, units, currency") {
    check(R"(
= 50\% ~~ 50
= 50\% ~~ 50 %
= 50\% ~~ 50 percent
= 50\% ~~ \frac{1}{2}
= 13.20\% ~~ 13.2
! 50\% ~~ 0.005
! 50 ~~ 0.5
! 50 ~~ 5000
! 50\% ~~ 5000
= 45^\circ ~~ 45
= 45^{\circ} ~~ 45 degrees
= 45° ~~ 45\text{ degrees}
= 45^\circ ~~ \frac{\pi}{4}
! \frac{\pi}{4} ~~ 45
! 45^\circ ~~ 46
! 45^\circ ~~ 45\%
! 5 ~~ 5 squared
! 5 ~~ 5 more than x
= 15\mbox{ cm}^2 ~~ 15
= 15 \text{ cm}^2 ~~ 15\text{ cm}^{2}
= 864 \mbox{ inches}^2 ~~ 864 \text{ square inches}
= 5.4 \text{ cents} ~~ 5.4
= \$32,\!348 ~~ 32348
= \$18.90 ~~ 18.9 dollars
= €29 ~~ 29
= 1.85\ \text{USD} ~~ \$1.85
= 20 km/h ~~ 20
= 20 \text{ km/h} ~~ 20 \text{ kilometers per hour}
= 9.8 m/s^2 ~~ 9.8 \text{ m/s}^2
! 10 cm ~~ 10 km
! 10 meters ~~ 10 cm
! 5 hours ~~ 5 minutes
! 10 \text{ cm}^2 ~~ 10 \text{ m}^2
! 20 km/h ~~ 20 m/s
= 20 km/h ~~ 20 kph
= 8 minutes in total ~~ 8 min
= 5 m ~~ 5 meters
= 5 \frac{\text{m}}{\text{s}} ~~ 5 m/s
= 6.02 \times 10^{23} \text{ mol}^{-1} ~~ 6.02 \times 10^{23}
= 20^\circ C ~~ 20
! 20^\circ C ~~ 20^\circ F
= US\$10 ~~ Rs. 10
= ₹500 ~~ 500
= 10 \text{ meters} ~~ 10 \text{ m}
= 16\text{ ft} ~~ 16 feet
= 7\text{ hours}. ~~ 7
= \frac{270}7\text{ degrees} ~~ \frac{270}{7}
= 3 apples ~~ 3
= 12 \text{ (units)} ~~ 12
= 5 min ~~ 5 minutes
= 6\sqrt{2}\text{ cm} ~~ 6\sqrt2
)");
}

TEST_CASE("verifier: roots, constants, functions") {
    check(R"(
= \sqrt{8} ~~ 2\sqrt{2}
= \sqrt8 ~~ 2\sqrt2
= \sqrt{4} ~~ 2
= \sqrt19 ~~ \sqrt{19}
= \frac{1}{\sqrt{2}} ~~ \frac{\sqrt{2}}{2}
= \sqrt[3]{16} ~~ 2\sqrt[3]{2}
= 2^{1/3} ~~ \sqrt[3]{2}
= \sqrt[3]{-8} ~~ -2
= \sqrt{3+2\sqrt{2}} ~~ 1+\sqrt{2}
= \sqrt{2}\cdot\sqrt{3} ~~ \sqrt{6}
! \sqrt{2}+\sqrt{3} ~~ \sqrt{5}
! 4 ~~ 4\sqrt(2)
! \sqrt{2} ~~ 1.41
! \pi ~~ 3.14
! \pi ~~ 22/7
= 2\pi ~~ pi * 2
= 2π ~~ 2\pi
= \frac{\pi}{6} ~~ pi/6
= e^2 ~~ exp(2)
= \ln 8 ~~ 3 \ln 2
= \log_2 8 ~~ 3
= \log_{10} 100 ~~ 2
= \log 100 ~~ 2
= \ln(e) ~~ 1
= \frac{\log 2}{\log 3} ~~ \log_3 2
= -\log_{10} 250 ~~ -\log 250
= \sin(\pi/6) ~~ 1/2
= \sin 30^\circ ~~ 0.5
= \tan^{-1}(1) ~~ \frac{\pi}{4}
= \arctan 1 ~~ pi/4
= \cos\frac{\pi}{3} ~~ \frac12
= \arcsin 2 ~~ \arcsin(2)
= \sqrt{-4} ~~ 2i
= 3+4i ~~ 4i+3
= \frac{1}{i} ~~ -i
= \operatorname{Re}(3+4i) ~~ 3
= e^{i\pi} ~~ -1
= (1+i)^2 ~~ 2i
! 3+4i ~~ 3-4i
= \binom{5}{2} ~~ 10
= {5 \choose 2} ~~ 10
= 5! ~~ 120
= \lfloor 3.7 \rfloor ~~ 3
= \lceil 3.2 \rceil ~~ 4
= |-5| ~~ 5
= \left|3-5\right| ~~ 2
= \gcd(12, 18) ~~ 6
= \max(2, \sqrt{5}) ~~ \sqrt5
= 17 \bmod 5 ~~ 2
= \sum_{k=1}^{10} k^2 ~~ 385
= 1-\frac{1}{e} ~~ \frac{e-1}{e}
! 1-\frac{1}{e} ~~ 1+\frac{1}{e}
= 10^{100} ~~ 1e100
= 5!! ~~ 15
! 5!! ~~ (5!)!
= C(5,2) ~~ 10
! C(5,2) ~~ 12
= log2(8) ~~ 3
= log_10(1000) ~~ 3
= ∛8 ~~ 2
! x¹² ~~ x^2
= x₁₂ ~~ x_{12}
! x₁₂ ~~ x_1
= \sum_{i=1}^{3} i^2 ~~ 14
= 3i + \sum_{k=1}^2 k ~~ 3+3i
! e^{\pi\sqrt{163}} ~~ 262537412640768744
)");
}

TEST_CASE("verifier: expressions with symbols") {
    check(R"(
= x^2-1 ~~ (x-1)(x+1)
! (x+1)^2 ~~ x^2+x+1
= 9a+11 ~~ 11+9a
= \frac{a+b}{2} ~~ \frac{a}{2}+\frac{b}{2}
= \frac{1}{2}bh ~~ \frac{bh}{2}
= ab ~~ ba
! ab ~~ a+b
= a*a ~~ a^2
= 2^{n+1} ~~ 2 \cdot 2^n
= \frac{n(n+1)}{2} ~~ \binom{n+1}{2}
= n! ~~ n \cdot (n-1)!
= \binom{2n}{n} ~~ \frac{(2n)!}{n!^2}
= \sin 2x ~~ 2 \sin x \cos x
= \cos^2 x ~~ 1-\sin^2 x
= \sqrt{x^2} ~~ |x|
! \sqrt{x^2} ~~ x
! |x| ~~ x
= e^{2t} ~~ (e^t)^2
= \ln x^2 ~~ 2\ln x
= a_n ~~ a_{n}
! x_1 ~~ x_2
! x ~~ y
= \lfloor \log_2 n \rfloor + 1 ~~ 1+\left\lfloor\log_{2} n\right\rfloor
= \lceil n/2 \rceil ~~ \left\lfloor \frac{n+1}{2} \right\rfloor
= (-1)^n ~~ (-1)^{n+2}
= \frac{2}{x} ~~ 2x^{-1}
= x(x-1) ~~ x^2-x
! f(x+1) ~~ f(x)+1
= f(1+x) ~~ f(x+1)
= 30p\sqrt{p} ~~ 30p^{3/2}
= \frac{d !}{2 k(d-k) !} ~~ \frac{d!}{2k(d-k)!}
= v^2_0 ~~ v_0^2
= \sqrt{\frac{1}{n}} ~~ \frac{1}{\sqrt{n}}
= \frac{1}{2} m v^2 ~~ \frac{m v^{2}}{2}
= \sum_{k=1}^{n} k ~~ \frac{n(n+1)}{2}
= \int_0^1 f(x) dx ~~ \int_{0}^{1} f(x)\,dx
! x^{1000} ~~ x^{1001}
! \frac{x+1}{x+2} ~~ \frac{1}{2}
= x^{2/3} ~~ \sqrt[3]{x^2}
= \overline{CD} + \bar{x} ~~ \bar x + \overline{CD}
= 3 \sec \frac{1}{2} \theta ~~ \frac{3}{\cos(\theta/2)}
= 5 sec ~~ 5 seconds
! 5 ~~ 5 is wrong
= \cot x ~~ \frac{1}{\tan x}
= C e^{x} ~~ Ce^x
= xe^{x} ~~ x \cdot e^x
= \frac{1}{2}\ln|x|+C ~~ C + \frac{\ln |x|}{2}
= \log_28 ~~ 3
= \sin^2x ~~ (\sin x)^2
= 3\mathbf{i} - \mathbf{j} ~~ -\mathbf{j} + 3\mathbf{i}
= n \equiv 3 \pmod{7} ~~ 3 \pmod 7
= np.arcsin(10/13) ~~ \arcsin{\frac{10}{13}}
= I_{\max} ~~ I_{max}
= f^{\prime}(x) ~~ f'(x)
= \varphi ~~ ϕ
! n \equiv 3 \pmod{7} ~~ n \equiv 3 \pmod 5
= n \equiv 3 \pmod{7} ~~ n \equiv 10 \pmod 7
)");
}

TEST_CASE("verifier: lists and sets") {
    check(R"(
= 1,2,3 ~~ 3, 2, and 1
= 1,2,3 ~~ \{1,2,3\}
! 1,2,3 ~~ 1,2
! 1,2,3 ~~ 1,2,4
! 1,1,2 ~~ 1,2,2
! 1,2 ~~ 1
= \pm 1 ~~ 1, -1
! \pm 2021 ~~ 2021
= 1 \pm \sqrt{19} ~~ 1-\sqrt{19}, 1+\sqrt{19}
! 1 \pm \sqrt{19} ~~ 1+\sqrt{19}
= \{1\pm\sqrt{5},-2\} ~~ -2, 1+\sqrt5, 1-\sqrt5
= (\pm 1, 0) ~~ (1, 0), (-1, 0)
= x = 1 \text{ or } x = 2 ~~ 1, 2
= x = 1 \text{ or } x = 2 ~~ x=2,1
= x=1,2 ~~ 2,1
! n=2,3,4 ~~ n=1,2,3
= y = \pm 3 ~~ 3, -3
= 2 and 3 ~~ 3 or 2
= 1;2 ~~ 1,2
= \text{1 and 2} ~~ 1,2
= 2, 4, \dots, 2n ~~ 2,4,\ldots,2n
! 2, 4, \dots, 2n ~~ 2, 4, \ldots, n
= \{1,1,2\} ~~ \{1,2\}
! \{1,2\},\{3\} ~~ \{1\},\{2,3\}
= \{1,2\},\{3\} ~~ \{3\},\{2,1\}
= 100,200 ~~ 200, 100
= (1,2),(3,4) ~~ (3,4),(1,2)
! (1,2),(3,4) ~~ (2,1),(3,4)
= $69$,$84$ ~~ 69, 84
= 60^\circ, 120^\circ ~~ 120, 60
= a=4,b=5 ~~ b=5, a=4
! a=4,b=5 ~~ a=5,b=4
= a=4,b=5 ~~ 4, 5
= x_1 = 2 \text{ and } x_2 = 3 ~~ 2, 3
= x_1 = 2, x_2 = 3 ~~ x = 2 \text{ or } x = 3
= x = 2, x = 3 ~~ x = 3, 2
! a_1 = 2, a_2 = 3 ~~ a_1 = 3, a_2 = 2
! a_1 = 2, a_2 = 3 ~~ b_1 = 2, b_2 = 3
= (x,y) = (1,2) \text{ or } (x,y) = (3,4) ~~ (1,2), (3,4)
= x \in \{1, 2\} ~~ 2, 1
= \{(1,2)\} ~~ (1,2)
= both 1 and 2 ~~ 1, 2
= y = \pm 2x ~~ y=2x, y=-2x
! y = \pm 2x ~~ y=2x, y=-3x
! 1,2,... ~~ 1,2
= Tom, Bob ~~ Bob, Tom
= red, blue ~~ blue, red
> = \frac{3}{4} ~~ \frac{3}{4} \text{ or } 0.75
> ! \frac{3}{4} ~~ \frac{3}{4} \text{ or } 0.7
)");
}

TEST_CASE("verifier: tuples, vectors, matrices") {
    check(R"(
= (1,2) ~~ \left( 1, 2 \right)
! (1,2) ~~ (2,1)
! (1,2) ~~ 1,2
! (1,2) ~~ \{1,2\}
= (x,y)=(1,2) ~~ (1,2)
= (x,y)=(1,2) ~~ y=2, x=1
! (x,y)=(1,2) ~~ x=2, y=1
! (x,y)=(1,2) ~~ x=1, x=2
= P(3,4) ~~ (3,4)
! P(3,4) ~~ (4,3)
! P(3,4) ~~ Q(3,4)
! P(3,4) ~~ [3,4]
! P(3,4,5) ~~ (3,4)
= (1,2) ~~ x=1, y=2
= (1,2,3) ~~ \langle 1,2,3 \rangle
= (1,2,3) ~~ \begin{pmatrix}1\\2\\3\end{pmatrix}
= (1;2;3) ~~ (1,2,3)
= (3, \frac{\pi}{2}) ~~ (3, \frac{1}{2}\pi)
= \begin{pmatrix}1&2\\3&4\end{pmatrix} ~~ \begin{bmatrix}1&2\\3&4\end{bmatrix}
= \begin{pmatrix}1&2\\3&4\end{pmatrix} ~~ \left[\begin{array}{cc}1&2\\3&4\end{array}\right]
= \begin{pmatrix}1&2\\3&4\end{pmatrix} ~~ [[1,2],[3,4]]
! \begin{pmatrix}1&2\\3&4\end{pmatrix} ~~ \begin{pmatrix}1&3\\2&4\end{pmatrix}
! \begin{pmatrix}1\\2\end{pmatrix} ~~ \begin{pmatrix}1&2\end{pmatrix}
= \begin{pmatrix}1/2\\1\end{pmatrix} ~~ \frac{1}{2}\begin{pmatrix}1\\2\end{pmatrix}
= \begin{pmatrix}1&1\\0&1\end{pmatrix}\begin{pmatrix}1&1\\0&1\end{pmatrix} ~~ \begin{pmatrix}1&2\\0&1\end{pmatrix}
= \begin{vmatrix}1&2\\3&4\end{vmatrix} ~~ \det\begin{pmatrix}1&2\\3&4\end{pmatrix}
= \begin{pmatrix} -1 & 0 \\ 0 & -1 \end{pmatrix} ~~ -\begin{pmatrix}1&0\\0&1\end{pmatrix}
)");
}

TEST_CASE("verifier: intervals and inequalities") {
    check(R"(
= (3,4] ~~ \left(3, 4\right]
! (1,2) ~~ [1,2]
! (1,2) ~~ (1,2]
! (0,9) ~~ [0,9)
= (0,\infty) ~~ x>0
= [0,\infty) ~~ x \ge 0
! [0,\infty) ~~ x>0
= x \geq 0 ~~ 0 \leq x
= 1<x\le 2 ~~ x \in (1,2]
= (-\infty,1)\cup(2,\infty) ~~ x<1 \text{ or } x>2
= (-\infty,1)\cup(2,\infty) ~~ (2,\infty)\cup(-\infty,1)
= (-\infty,\infty) ~~ \mathbb{R}
= \mathbb{R} ~~ all real numbers
= x \ne 2 ~~ (-\infty,2)\cup(2,\infty)
= (-\infty,2)\cup(2,\infty) ~~ \mathbb{R}\setminus\{2\}
= (-\infty,0)\cup\{1\} ~~ \{1\} \cup (-\infty,0)
= \{x \mid x > 2\} ~~ (2,\infty)
= \{x : x > 2\} ~~ x > 2
= |x|<2 ~~ (-2,2)
= |x - 1|\ge 2 ~~ (-\infty,-1]\cup[3,\infty)
= 2x > 4 ~~ x > 2
= -x > -1 ~~ x < 1
= x>1 \text{ and } x<3 ~~ (1,3)
! x>1 \text{ and } x<3 ~~ x>1 \text{ or } x<3
! x<3 ~~ y<3
! x<3 ~~ x\le 3
! x<3 ~~ x>3
= a>b ~~ b<a
! a>b ~~ a<b
= 0<f(x)<1 ~~ (0,1)
= (-1,1)\cup(1,3) ~~ (-1,3) \setminus \{1\}
= [1/2,\infty) ~~ [\frac{1}{2}, +\infty)
= [0,1)\cup[1,2] ~~ [0,2]
= \emptyset ~~ \{\}
= \emptyset ~~ no real solutions
! \emptyset ~~ 0
! \mathbb{R} ~~ \mathbb{Z}
= (-\infty,\infty) ~~ all real numbers
= (0,1) \cup (1,2) ~~ (0,1) U (1,2)
= [x, 1+x] ~~ [x, x+1]
= -\infty < x < 3 ~~ (-\infty, 3)
= x > 2, x \in \mathbb{R} ~~ (2, \infty)
= \{0\} \cup [1,2] ~~ x = 0 \text{ or } 1 \le x \le 2
= \{1\} \cup \{2,3\} ~~ \{1,2,3\}
)");
}

TEST_CASE("verifier: equations and names") {
    check(R"(
= y=2x+3 ~~ 2x-y+3=0
= 2x+4y-3=0 ~~ y=-\frac{x}{2}+\frac34
! x^2+y^2=1 ~~ x^2+y^2=2
! x^2+y^2=1 ~~ x^2-y^2=1
= \frac{x^2}{4}+\frac{y^2}{9}=1 ~~ 9x^2+4y^2=36
! \frac{x^2}{4}+\frac{y^2}{9}=1 ~~ \frac{x^2}{9}+\frac{y^2}{4}=1
= \frac{x}{2}=\frac{y-1}{3}=z ~~ z = \frac{y-1}{3} = \frac{x}{2}
= x=5 ~~ 5
= 5 = x ~~ 5
! x=5 ~~ y=5
! x+1=5 ~~ 4
! a^2+b=0 ~~ 0
! 7 = 11a+c ~~ 11a+c
= y=2x+3 ~~ 2x+3
= f(x)=2x ~~ f(t)=2t
! f(x)=2x ~~ f(x)=3x
= f(n)=n, g(n)=1 ~~ g(n)=1,f(n)=n
= P(A)=\frac{1}{3} ~~ 1/3
= P(X=2)=\frac{1}{3} ~~ 1/3
! P(X=2)=\frac{1}{3} ~~ P(X=3)=\frac{1}{3}
= f^{-1}(x)=\frac{x-3}{2} ~~ \frac{x-3}{2}
= \frac{dy}{dx}=2x ~~ 2x
! \frac{dy}{dx}=2x ~~ \frac{dz}{dx}=2x
= m\angle ABC = 60 ~~ 60^\circ
= AB = 5 ~~ 5
= \angle ABC = 30^\circ ~~ 30
= \text{Area} = 12 ~~ 12
= MR=SRMC ~~ SRMC=MR
= x = \frac{3}{2} = 1.5 ~~ 1.5
= x \approx 1.5 ~~ 1.5
> = \frac{1}{3} ~~ \frac{1}{3} \approx 0.333
> = 7 ~~ 3 + 4 = 7
> ! 7 ~~ 3 + 5 = 7
> ! 5 ~~ x = 5 = 6
! \cos(x)=\frac{1}{2} ~~ \sin(x)=\frac{1}{2}
)");
}

TEST_CASE("verifier: words, bases, ratios, times") {
    check(R"(
= \text{even} ~~ Even
! east ~~ west
! listen ~~ silent
= \text{(C)} ~~ C
! \text{(C)} ~~ B
= \text{A, B} ~~ A, B
= \text{June 20} ~~ June 20
= \text{no solution} ~~ No solution
= \text{Yes} ~~ \textbf{Yes}
= google\ pixel\ 6 ~~ Google Pixel 6
= 52_8 ~~ 52_{8}
= 52_8 ~~ 52
! 52_8 ~~ 42
! 52_8 ~~ 52_9
= 1101_2 ~~ 1101_{\text{two}}
= 0.0011_2 ~~ 0.0011_{2}
= 152A_{11} ~~ 152A_{11}
= 3:5 ~~ 6:10
= 3:5 ~~ \frac{3}{5}
! 3:5 ~~ 5:3
= 1:2:3 ~~ 1 : 2 : 3
= \text{4:30 p.m.} ~~ 4:30 PM
! 4:30 p.m. ~~ 4:30 a.m.
! 12:00 ~~ 1:00
= 3:00 PM ~~ 3 p.m.
= 3 PM ~~ 3
! 3 PM ~~ 3 AM
! 3:30 PM ~~ 3
= 2 \text{ to } 3 ~~ 2:3
! 2 to 3 ~~ 3 to 2
= (1010)_2 ~~ 1010_{(2)}
= 52_8 ~~ 52 \text{ in base } 8
! 52 base 8 ~~ 52 base 9
)");
}

TEST_CASE("verifier: spelling") {
    check(R"(
= \dfrac{1}{2} ~~ \tfrac12
= \left(\frac{1}{2}\right) ~~ \frac{1}{2}
= \frac{1}{2} ~~ $\frac{1}{2}$
= \frac{1}{2} ~~ \[\frac{1}{2}\]
= \frac{1}{2} ~~ \boxed{\frac{1}{2}}
= \frac{1}{2} ~~ \displaystyle\frac{1}{2}
= \frac{1}{2} ~~ \mathbf{\frac{1}{2}}
= \frac{1}{2} ~~ **\frac{1}{2}**
= \frac{1}{2} ~~ \\frac{1}{2}
= x^{10} ~~ x**10
= x^{10} ~~ x^10
= x² ~~ x^2
= \sqrt{x} ~~ sqrt(x)
= \infty ~~ ∞
= x \le 3 ~~ x <= 3
= \frac{\sqrt{3}}{2} ~~ √3/2
= 12 ~~ 3×4
= {\frac{3}{4}} ~~  \frac{ 3 }{ 4 }\quad
= 42 ~~ \text{ 42 }.
= 5\ ~~ 5
= 5! ~~ 5!=120
= \text{The answer is 460} ~~ 460
= x_{1}=\frac{1}{2},\quadx_{2}=3 ~~ \frac12, 3
= \textcolor{red}{5} ~~ \underline{5}
= \hspace{2cm}5\tag{1} ~~ 5
= 5^{th} ~~ 5^{\text{th}}
= 5^{th} ~~ 5
= ans: 5 ~~ 5 \checkmark
= 2\colon 3 ~~ 2:3
)");
}

TEST_CASE("verifier: decimals meet exact forms by rounding, never each other") {
    check(R"(
> = 0.6667 ~~ \frac{2}{3}
> ! 0.67 ~~ \frac{2}{3}
> ! 0.6666 ~~ \frac{2}{3}
> = 1.4142 ~~ \sqrt{2}
> = \frac{1}{3} ~~ 0.333333
> ! \frac{1}{3} ~~ 0.33
> ! \frac{1}{3} ~~ 0.334
! 0.333 ~~ 0.3333
! 2.23 ~~ 2.232
! 3 ~~ 2.99999999
> = (\frac{3}{5},\frac{8}{3}] ~~ (0.6,2.6667]
)");
    verifier::Options exact;
    exact.round_decimals = false;
    CHECK(verifier::compare("0.6667", "\\frac{2}{3}", exact) == verifier::Verdict::different);
    CHECK(verifier::compare("0.75", "\\frac{3}{4}", exact) == verifier::Verdict::equal);
}

TEST_CASE("verifier: what cannot be read is never equal to anything but itself") {
    for (const char* text : {"\\frac{1}{", "(1,2", "x +", "5 )", "1 2 3/",
                             "\\begin{pmatrix}1&2\\\\3\\end{pmatrix}", "12 34", "\\sqrt", "=", "^"}) {
        INFO(text);
        CHECK(verifier::compare(text, text) == verifier::Verdict::equal);
        CHECK(verifier::compare(text, "5") == verifier::Verdict::unparsed);
        CHECK(verifier::compare("5", text) == verifier::Verdict::unparsed);
    }
    CHECK(verifier::compare("", "") != verifier::Verdict::equal);
}
