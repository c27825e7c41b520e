// The verifier around its tables: extraction, grading, properties, hostile inputs, the files of pairs, and
// the measured rates on the shared data where it is at hand.
#include <cstdlib>
#include <ctime>
#include <fstream>
#include <map>
#include <set>
#include <string>
#include <thread>

#include "../swarr/verifier/verify_file.h"
#include "catch.h"

using verifier::Grade;
using verifier::Mode;
using verifier::Verdict;

namespace {

std::string answer(const std::string& completion, Mode mode = Mode::rl) {
    return verifier::grade(completion, {"gold"}, mode).answer;
}
bool counts(const std::string& completion, const std::string& gold, Mode mode = Mode::rl) {
    return verifier::grade(completion, {gold}, mode).verdict == Verdict::equal;
}
bool equal(const std::string& gold, const std::string& pred) {
    return verifier::compare(gold, pred) == Verdict::equal;
}
std::string repeated(const std::string& s, size_t n) {
    std::string out;
    for (size_t i = 0; i < n; i++) out += s;
    return out;
}
double cpu_seconds() {
    return double(std::clock()) / CLOCKS_PER_SEC;
}

// Files beside the repository; empty where they are absent.
std::string shared(const std::string& name) {
    const char* folder = std::getenv("SWARR_SHARED");
    std::string path = std::string(folder ? folder : "../shared") + "/" + name;
    if (std::ifstream(path)) return path;
    WARN("skipped: " << path << " is not there (set SWARR_SHARED)");
    return "";
}

}  // namespace

TEST_CASE("verifier extraction: the last closed box") {
    CHECK(answer("so \\boxed{42}.") == "42");
    CHECK(answer("\\fbox{7}") == "7");
    CHECK(answer("\\boxed{\\frac{1}{\\sqrt{2}}}") == "\\frac{1}{\\sqrt{2}}");
    CHECK(answer("\\boxed{\\{1,2\\}}") == "\\{1,2\\}");
    CHECK(answer("$\\boxed 2$.") == "2");
    CHECK(answer("\\boxed\\frac12$") == "\\frac12");
    CHECK(answer("\\boxed{1} no, recheck: \\boxed{3}") == "3");
    CHECK(answer("\\boxed{840}, as said: \\boxed{840}") == "840");
    CHECK(answer("\\boxed{1} and \\boxed{2}") == "1, 2");
    CHECK(answer("$\\boxed{2}$ or $\\boxed{2}$") == "2");
    CHECK(answer("$y_1 = \\boxed{5}$ and $y_2 = \\boxed{6}$") == "5, 6");
    CHECK(answer("\\boxed{3} \\boxed{never closes") == "3");
    CHECK(answer("\\boxed{a \\boxed{5}") == "5");
    CHECK(answer("\\boxed{a \\boxed{5}}") == "a \\boxed{5}");
    CHECK(answer("\\boxed{never closes").empty());
    CHECK(answer("boxed{5}").empty());
    CHECK(answer("the answer is 5").empty());
    CHECK(answer("#### 5").empty());
    CHECK(answer("\\boxedx{5}").empty());
}

TEST_CASE("verifier extraction: thinking and turns") {
    CHECK(answer("<think>\\boxed{1}</think> \\boxed{2}") == "2");
    CHECK(answer("\\boxed{1}</think> \\boxed{2}") == "2");
    CHECK(answer("<think>\\boxed{1}").empty());
    CHECK(answer("<think>a</think> <think> \\boxed{1}").empty());
    CHECK(answer("<thinking>\\boxed{1}</thinking> \\boxed{2}") == "2");
    CHECK(answer("<thinking>\\boxed{1}").empty());
    CHECK(answer("[THINK]\\boxed{1}[/THINK] no box").empty());
    CHECK(answer("<|begin_of_thought|> \\boxed{1}").empty());
    CHECK(answer("</think> no box, \\boxed").empty());
    CHECK(answer("\\boxed{2}<|im_end|>\n<|im_start|>user\n\\boxed{3}") == "2");
    CHECK(answer("<|im_start|>assistant\n\\boxed{2}") == "2");
    CHECK(verifier::grade("<think>5", {"5"}, Mode::lenient).verdict == Verdict::unparsed);
}

TEST_CASE("verifier extraction: lenient") {
    const char* good[][2] = {
        {"\\frac12", "The answer is $\\frac{1}{2}$."},
        {"42", "**Answer:** 42"},
        {"42", "So the total is 42 apples."},
        {"16386.20", "Final Answer: 16,386.20"},
        {"5,6", "The answer is 5 or 6"},
        {"5", "The answer is:\n\n$$x=5$$"},
        {"17", "### Answer\n\n17"},
        {"3/4", "The value is 3/4."},
        {"25\\pi", "The area is 25π square units."},
        {"10000", "Answer is $10,000."},
        {"5.5", "The total cost is $5.50."},
        {"1200", "so\n#### 1,200\nand more words"},
        {"73", "The answer is **73** because 70 + 3 is what it is."},
        {"12", "The answer is therefore 12."},
        {"2,3", "Therefore, the solutions are x = 2 and x = 3."},
        {"Evelyn", "The answer is Evelyn."},
        {"(1,2)", "We get that the point is (1, 2)."},
        {"[0,1]", "Thus, $x \\in [0,1]$."},
        {"12", "Simplifying gives $3 \\cdot 4 = 12$."},
        {"x^2-1", "Final Answer: The final answer is $x^2-1$. I hope it is correct."},
        {"14", "<think>15</think><answer> 14 </answer>"},
        {"3", "Answer is 3<|im_end|>"},
        {"7", "A: 7"},
        {"9", "The remainder is $9$ when divided by $10$."},
        {"72", "The answer is 72, which is the total."},
        {"3.5", "Thus it takes 3 1/2 hours."},
        {"2x", "$\\frac{d}{dx}(x^2) = 2x$"},
        {"120", "the number of ways is $5! = 120$."},
        {"16", "boxed{16}"},
        {"200000", "$80,000 (original value) + $120,000 (increase) = $200,000."},
        {"460", "\\boxed{\\text{The answer is 460}}"},
    };
    for (auto& [gold, text] : good) {
        INFO(gold << "  from  " << text);
        CHECK(counts(text, gold, Mode::lenient));
    }
    CHECK(!counts("I have no idea.", "5", Mode::lenient));
    CHECK(!counts("The answer is !!!invalid!!!", "4", Mode::lenient));
    CHECK(!counts("\\boxed{4}, but the answer is 5", "5", Mode::lenient));
    CHECK(!counts("3 * 4 = 13", "12", Mode::lenient));
}

TEST_CASE("verifier grades") {
    CHECK(counts("\\boxed{\\frac{2}{4}}", "0.5"));
    CHECK(verifier::grade("\\boxed{3}", {"1", "2", "3"}, Mode::rl).verdict == Verdict::equal);
    CHECK(verifier::grade("\\boxed{3}", {}, Mode::rl).verdict == Verdict::unparsed);
    CHECK(verifier::grade("\\boxed{}", {""}, Mode::rl).verdict == Verdict::unparsed);
    CHECK(verifier::grade("\\boxed{\\frac{1}{}", {"\\frac{1}{"}, Mode::rl).verdict == Verdict::unparsed);
    CHECK(verifier::grade("\\boxed{5}", {"\\frac{1}{"}, Mode::rl).verdict == Verdict::unparsed);
    CHECK(verifier::grade("nothing", {"5"}, Mode::rl).why == "no closed box");
    // Hedging earns nothing.
    CHECK(!counts("\\boxed{1} or \\boxed{2}", "1"));
    CHECK(!counts("\\boxed{1, 2, 3}", "2"));
    CHECK(!counts("\\boxed{1 \\text{ or } 2}", "2"));
    CHECK(!counts("\\boxed{5 = 6}", "6"));
    CHECK(!counts("\\boxed{x = 5 = 6}", "6"));
    CHECK(!counts("\\boxed{5 \\approx 6}", "6"));
}

TEST_CASE("verifier: rounding to the gold's digits can be switched off") {
    const std::string text = "\\boxed{\\frac{1}{3}}";
    CHECK(grade(text, {"0.333333"}, Mode::rl).verdict == Verdict::equal);
    CHECK(grade(text, {"0.333333"}, Mode::rl, false).verdict == Verdict::different);
    CHECK(grade("\\boxed{0.5}", {"1/2"}, Mode::rl, false).verdict == Verdict::equal);
}

TEST_CASE("verifier: votes count equal answers together") {
    const char* groups[][4] = {{"\\frac{1}{2}", "0.5", "\\frac{2}{4}", "x = 1/2"},
                               {"2\\sqrt{2}", "\\sqrt{8}", "\\sqrt2 \\cdot 2", "2^{3/2}"},
                               {"1,2", "2, 1", "\\{2,1\\}", "x=1 \\text{ or } x=2"},
                               {"(x-1)(x+1)", "x^2-1", "-1+x^2", "x \\cdot x - 1"},
                               {"x>0", "(0,\\infty)", "0 < x", "x \\in (0, \\infty)"},
                               {"50\\%", "50", "50 percent", "50.0"}};
    std::set<std::string> all;
    for (auto& group : groups) {
        std::set<std::string> texts;
        for (const char* a : group) texts.insert(verifier::grade_answer(a, {"0"}, Mode::rl).canonical);
        INFO(group[0] << " -> " << *texts.begin() << " ... " << *texts.rbegin());
        CHECK(texts.size() == 1);
        all.insert(texts.begin(), texts.end());
    }
    CHECK(all.size() == 6);
}

// Random expressions, written in several ways that must not matter.
TEST_CASE("verifier: properties") {
    uint64_t state = 1;
    auto next = [&](uint64_t n) { return (state = verifier::mix(state)) % n; };
    struct Written {
        std::string plain, other;
    };
    auto expression = [&](auto& self, int depth) -> Written {
        switch (depth ? next(8) : next(3)) {
            case 0: {
                std::string n = std::to_string(next(90) + 1);
                return {n, n};
            }
            case 1: {
                std::string s(1, "xyn"[next(3)]);
                return {s, "{" + s + "}"};
            }
            case 2:
                return {"\\pi", " \\pi "};
            case 3: {
                Written a = self(self, depth - 1), b = self(self, depth - 1);
                return {a.plain + " + " + b.plain, b.other + "+" + a.other};
            }
            case 4: {
                Written a = self(self, depth - 1), b = self(self, depth - 1);
                return {"(" + a.plain + ")(" + b.plain + ")",
                        "\\left(" + b.other + "\\right) \\cdot \\left(" + a.other + "\\right)"};
            }
            case 5: {
                Written a = self(self, depth - 1), b = self(self, depth - 1);
                return {"\\frac{" + a.plain + "}{" + b.plain + "}",
                        "\\dfrac {" + a.other + "} {" + b.other + "}"};
            }
            case 6: {
                Written a = self(self, depth - 1);
                return {"\\sqrt{" + a.plain + "}", "\\sqrt { " + a.other + " }"};
            }
            default: {
                Written a = self(self, depth - 1);
                return {"(" + a.plain + ")^2", "\\left( " + a.other + "\\,\\right)^{2}"};
            }
        }
    };
    for (int i = 0; i < 400; i++) {
        Written w = expression(expression, 3);
        INFO(w.plain << "  ~~  " << w.other);
        CHECK(equal(w.plain, w.plain));
        CHECK(equal(w.plain, w.other));
        CHECK(equal(w.other, w.plain));
        CHECK(!equal(w.plain, w.other + " + \\frac{1}{7}"));
        CHECK(!equal("2(" + w.plain + ")", "3 \\left(" + w.other + "\\right)"));
        CHECK(equal("(" + w.plain + ", 5)", "\\left(" + w.other + " , 5 \\right)"));
        CHECK(equal("[1, 2), " + w.plain, w.other + ", [1,2)"));
    }
}

TEST_CASE("verifier: verdicts are the same on every thread") {
    std::vector<int> verdicts(4, 0);
    std::vector<std::thread> threads;
    for (int t = 0; t < 4; t++)
        threads.emplace_back([&verdicts, t] {
            for (int i = 0; i < 50; i++)
                verdicts[size_t(t)] +=
                    equal("\\sqrt{3+2\\sqrt{2}}", "1+\\sqrt{2}") + 10 * equal("\\sin 1", "\\sin 2");
        });
    for (std::thread& t : threads) t.join();
    CHECK(verdicts == std::vector<int>(4, 50));
}

TEST_CASE("verifier: hostile inputs end with a verdict") {
    std::vector<std::string> inputs = {repeated("{", 10000000), repeated("\\boxed{", 1400000),
                                       std::string(1000000, '\0'), std::string(1000000, '\xff')};
    for (const char* unit : {"{",          "}",  "\\boxed{", "\\boxed{1}", "\\boxed{1} and ",
                             "\\boxed 2 ", "$",  "$a ",      "\\(",        "answer: ",
                             "#### ",      "<",  "<think>",  "9",          "1,",
                             " ",          "**", "\"",       "π",          ". ",
                             "\\"})
        inputs.push_back(repeated(unit, 300000 / std::string(unit).size()));
    auto box = [&](const std::string& s) { inputs.push_back("\\boxed{" + s + "}"); };
    auto nest = [&](const char* open, const char* close, int n) {
        box(repeated(open, size_t(n)) + "1" + repeated(close, size_t(n)));
    };
    box(repeated("7", 1000000));
    box("0." + repeated("0", 900000) + "1");
    nest("(", ")", 20000), nest("9^{", "}", 100), nest("x^{", "}", 100), nest("\\frac{1}{1+", "}", 90),
        nest("\\sqrt{2+", "}", 100);
    nest("\\log(", ")", 100), nest("\\left|", "\\right|", 100), nest("\\{", "\\}", 3000);
    box("5^{5^{5^{5^5}}}"), box("10^{(5^{5^{5^{5^{5}}} \\cdot \\log_{10}(5)} - 4)}"),
        box("2003^{2002^{2001}}"), box("(20000!)!"), box("\\binom{20000}{10000}");
    for (const char* unit : {"19999!+",
                             "\\binom{20000}{9999}+",
                             "\\sin 1+",
                             "\\sin ",
                             "\\sum_{k=1}^{1000} ",
                             "1,",
                             "\\sqrt{2},",
                             "1/",
                             "1+",
                             "-",
                             "|",
                             "x_{a}",
                             "x^2",
                             "x<",
                             "x=",
                             "(1,2)\\cup",
                             "x<1 or ",
                             "word ",
                             "\\pm 1 ",
                             "x!",
                             "'",
                             "1e1000,",
                             "\\begin{pmatrix}1&1\\\\1&1\\end{pmatrix}",
                             "\\frac{1}{77777777777777777777777777777777777777}+"})
        box(repeated(unit, 3000) + "1"), box(repeated(unit, 300) + "1");
    double slowest = 0;
    std::string which;
    for (const std::string& text : inputs)
        for (Mode mode : {Mode::rl, Mode::lenient}) {
            double start = cpu_seconds();
            Grade g = verifier::grade(text, {"\\sin x + 12345"}, mode);
            double seconds = cpu_seconds() - start;
            INFO(text.substr(0, 40));
            CHECK(g.verdict != Verdict::equal);
            if (seconds > slowest) slowest = seconds, which = text.substr(0, 30);
        }
    WARN("slowest hostile input: " << slowest * 1e3 << " ms of CPU time (" << quoted(which) << ")");
}

TEST_CASE("verifier: time grows with the input's length, not its square") {
    for (const char* unit :
         {"{", "\\boxed{", "\\( x ", "$ x", "answer: x, ", "x. ", "\"", "<|im_", "\\boxed{1} and "}) {
        auto seconds = [&](size_t bytes) {
            std::string text = repeated(unit, bytes / std::string(unit).size());
            double best = 1e9;
            for (int i = 0; i < 5; i++) {
                double start = cpu_seconds();
                verifier::grade(text, {"5"}, Mode::lenient);
                best = std::min(best, cpu_seconds() - start);
            }
            return best;
        };
        // A square would be a factor of 64; the floor keeps clock ticks out of the ratio.
        double small = std::max(seconds(12000), 2e-4), large = seconds(96000);
        INFO(unit << ": " << small << " s, 8 times longer: " << large << " s");
        CHECK(large / small < 30);
    }
}

TEST_CASE("verifier: files of pairs") {
    std::string path = "/tmp/swarr_verifier_" + std::to_string(std::rand()) + ".jsonl";
    std::ofstream(path) << R"({"id": "a", "gold": "\\frac12", "pred": "0.5", "equal": true})"
                        << "\n"
                        << R"({"gold": ["1", "2"], "pred": "so \\boxed{2}", "form": "text", "equal": false})"
                        << "\n"
                        << R"({"id": 7, "gold": 3, "completion": "no box", "correct": false})"
                        << "\n";
    FILE *out = std::tmpfile(), *err = std::tmpfile();
    CHECK(verifier::verify_file(path, Mode::rl, out, err) == 0);
    auto text = [](FILE* f) {
        std::string s(size_t(std::ftell(f)), '\0');
        std::rewind(f);
        size_t got = std::fread(&s[0], 1, s.size(), f);
        std::fclose(f);
        return s.substr(0, got);
    };
    CHECK(text(out) ==
          "{\"id\":\"a\",\"verdict\":\"equal\",\"answer\":\"0.5\",\"why\":\"bare answer, same value\"}\n"
          "{\"id\":2,\"verdict\":\"equal\",\"answer\":\"2\",\"why\":\"box, same text\"}\n"
          "{\"id\":7,\"verdict\":\"unparsed\",\"answer\":\"\",\"why\":\"no closed box\"}\n");
    std::string summary = text(err);
    CHECK(summary.find("3 pairs (rl): 2 equal, 0 different, 1 unparsed") == 0);
    CHECK(summary.find("different expected: 2, wrongly accepted 1 (50.00%)") != std::string::npos);
    for (const char* bad : {"{\"pred\": \"5\"}", "{\"gold\": \"5\"}", "{\"gold\": null, \"pred\": \"5\"}",
                            "{\"gold\": [], \"pred\": \"5\"}", "[]", "{"}) {
        std::ofstream(path) << bad << "\n";
        FILE* sink = std::tmpfile();
        CHECK_THROWS_AS(verifier::verify_file(path, Mode::rl, sink, sink), Error);
        std::fclose(sink);
    }
    std::remove(path.c_str());
}

// The rates that the README states.
TEST_CASE("verifier: rates on the shared pairs and completions") {
    std::string cases = shared("verifier/cases.jsonl"), completions = shared("verifier/completions.jsonl");
    if (cases.empty() || completions.empty()) return;
    std::set<std::pair<std::string, std::string>> held_equal;
    int wanted[2] = {0, 0}, wrong[2] = {0, 0};
    Json row;
    for (JsonLines in(cases); in.next(row);) {
        if (row.contains("kind") && row["kind"] == "choice") continue;
        std::string gold = row["gold"], pred = row["pred"];
        Grade g = row["form"] == "text" ? verifier::grade(pred, {gold}, Mode::lenient)
                                        : verifier::grade_answer(pred, {gold}, Mode::lenient);
        bool want = row["equal"];
        if (want) held_equal.insert({gold, pred});
        wanted[want]++;
        if ((g.verdict == Verdict::equal) != want) wrong[want]++, UNSCOPED_INFO("cases: " << row["id"]);
    }
    CHECK(wrong[1] <= wanted[1] / 100.0);
    CHECK(wrong[0] <= wanted[0] / 200.0);
    // A label that calls a pair different which the pairs above call equal is left out.
    int total = 0, agreed = 0;
    for (JsonLines in(completions); in.next(row);) {
        if (row["disputed"] == true) continue;
        Grade g = verifier::grade(row["completion"], {row["gold"].get<std::string>()}, Mode::lenient);
        if (row["correct"] == false && held_equal.count({row["gold"], g.answer})) continue;
        total++, agreed += (g.verdict == Verdict::equal) == row["correct"].get<bool>();
    }
    INFO(agreed << " of " << total);
    CHECK(agreed >= 0.995 * total);
}

TEST_CASE("verifier: every gold equals itself, and not its neighbour") {
    int rows = 0, unread = 0, neighbours = 0;
    for (const char* name : {"math500", "amc23", "aime24", "aime25", "olympiadbench", "minerva_math",
                             "gsm8k_test", "gsm8k_train", "math_train", "math_test_minus500", "dapo_math_17k",
                             "aime_1983_2023", "omni_math_500", "olymmath_en_easy", "olymmath_en_hard"}) {
        std::string path = shared("data/" + std::string(name) + ".jsonl"), previous;
        if (path.empty()) return;
        Json row;
        for (JsonLines in(path); in.next(row);) {
            std::string gold = row["answer"];
            if (gold.empty()) continue;  // two rows of MATH have an empty box
            rows++;
            Grade g = verifier::grade("Thus $\\boxed{" + gold + "}$.", {gold}, Mode::rl);
            INFO(in.where() << " " << gold);
            REQUIRE(g.verdict == Verdict::equal);
            verifier::Tree tree;
            std::vector<verifier::Token> tokens;
            if (verifier::lex(gold, false, tokens)) verifier::parse(tokens, tree);
            unread += !tree.read;
            if (!previous.empty() && previous != gold && equal(previous, gold)) neighbours++;
            previous = gold;
        }
    }
    INFO(rows << " golds, " << unread << " not read, " << neighbours << " equal to the one before");
    CHECK(unread <= 5);
    CHECK(neighbours <= 12);  // 25\% and 25, x=5 and 5, \frac34 and \frac{3}{4}: all truly equal
}
