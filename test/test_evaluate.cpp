// Statistics on worked examples and by simulation; problems, rewards, samples.jsonl, summary, comparison, SFT
// data, contamination; every error's text.
#include "check.h"
#include "evaluate.h"
#include "overlap.h"
#include "scratch.h"

namespace {

SampleRow row(const std::string& id, int sample, Outcome outcome, const std::string& vote = "",
              int tokens = 3) {
    SampleRow r;
    r.id = id, r.sample = sample, r.outcome = r.lenient = outcome;
    r.vote = r.answer = vote;
    r.text = "text " + vote;
    r.logprob = -1.5;
    r.ids.assign(size_t(tokens), 7);
    return r;
}

Json settings(int problems, int samples) {
    return {{"set", "toy"}, {"model", "m"},       {"model_hash", "1"}, {"temperature", 0.6},
            {"seed", 1},    {"samples", samples}, {"limit", 0},        {"problems", problems}};
}

Samples toy_samples() {
    Samples all;
    auto add = [&](const std::string& id, std::vector<std::pair<Outcome, std::string>> rows) {
        for (size_t k = 0; k < rows.size(); k++)
            add_sample(all, row(id, int(k), rows[k].first, rows[k].second), "t");
    };
    const Outcome right = Outcome::right, wrong = Outcome::wrong, none = Outcome::unparsed;
    add("a", {{right, "1/2"}, {right, "0.5"}, {wrong, "3"}, {wrong, "4"}});
    add("b", {{wrong, "7"}, {none, ""}, {wrong, "7"}, {right, "8"}});
    add("c", {{none, ""}, {none, ""}, {none, ""}, {none, ""}});
    add("d", {{right, "5"}, {wrong, "6"}, {right, "5"}, {wrong, "6"}});
    return all;
}

}  // namespace

TEST_CASE("statistics: pass@k by counting subsets", "[evaluate]") {
    REQUIRE(pass_at_k(4, 1, 1) == Approx(0.25));
    REQUIRE(pass_at_k(4, 1, 2) == Approx(0.5));
    REQUIRE(pass_at_k(4, 2, 2) == Approx(5.0 / 6));
    REQUIRE(pass_at_k(4, 0, 4) == 0);
    REQUIRE(pass_at_k(4, 4, 1) == 1);
    REQUIRE(pass_at_k(1000, 3, 100) == Approx(1 - 900.0 * 899 * 898 / (1000.0 * 999 * 998)));
    for (int n = 1; n <= 6; n++)
        for (int right = 0; right <= n; right++)
            for (int k = 1; k <= n; k++) {
                int subsets = 0, hit = 0;
                for (int mask = 0; mask < 1 << n; mask++) {
                    if (__builtin_popcount(unsigned(mask)) != k) continue;
                    subsets++;
                    hit += (mask & ((1 << right) - 1)) != 0;
                }
                REQUIRE(pass_at_k(n, right, k) == Approx(double(hit) / subsets));
            }
    REQUIRE(error_of([] { pass_at_k(4, 1, 8); }) ==
            "pass@8 needs at least 8 samples per problem (there are 4)");
    REQUIRE(power_ladder(6) == std::vector<int>{1, 2, 4, 6});
    REQUIRE(power_ladder(1) == std::vector<int>{1});
    REQUIRE(power_ladder(32) == std::vector<int>{1, 2, 4, 8, 16, 32});
}

TEST_CASE("statistics: majority and its ties", "[evaluate]") {
    REQUIRE(majority({0, 0, 1}, {true, false}) == 1);
    REQUIRE(majority({0, 1, 1}, {true, false}) == 0);
    REQUIRE(majority({0, 1}, {true, false}) == Approx(0.5));
    REQUIRE(majority({0, 1, 2, -1, -1, -1}, {false, true, false}) == Approx(1.0 / 3));
    REQUIRE(majority({-1, -1}, {}) == 0);
    REQUIRE(majority({}, {}) == 0);
}

TEST_CASE("statistics: Student's quantile against tables", "[evaluate]") {
    REQUIRE(student_quantile(0.95, 1) == Approx(12.7062).epsilon(1e-5));
    REQUIRE(student_quantile(0.95, 2) == Approx(4.30265).epsilon(1e-5));
    REQUIRE(student_quantile(0.95, 10) == Approx(2.22814).epsilon(1e-5));
    REQUIRE(student_quantile(0.95, 29) == Approx(2.04523).epsilon(1e-5));
    REQUIRE(student_quantile(0.95, 499) == Approx(1.96473).epsilon(1e-5));
    REQUIRE(student_quantile(0.99, 5) == Approx(4.03214).epsilon(1e-5));
    REQUIRE(student_quantile(0.95, 1e7) == Approx(1.95996).epsilon(1e-5));
}

TEST_CASE("statistics: intervals on worked examples", "[evaluate]") {
    // x = 0, .5, .5, 1: m = .5, s^2 = 1/6, variance 1/24, n_eff = 6, t(3) = 3.18245
    Estimate e = share_estimate({0, 0.5, 0.5, 1}, 2);
    const double t = 3.18245, z = t * t / 6;
    REQUIRE(e.mean == Approx(0.5));
    REQUIRE(e.error == Approx(std::sqrt(1.0 / 24)));
    REQUIRE(e.high - e.low == Approx(2 * t / (1 + z) * std::sqrt(0.25 / 6 + z / 24)).epsilon(1e-4));
    // Samples of one problem say less than as many problems.
    REQUIRE(share_estimate({0, 1, 0, 1}, 8).high > share_estimate({0.5, 0.5, 0.5, 0.5}, 8).high);
    // All right: not certain.
    e = share_estimate(std::vector<double>(30, 1.0), 4);
    REQUIRE(e.high == 1);
    REQUIRE(e.low == Approx(1 / (1 + 2.04523 * 2.04523 / 30)).epsilon(1e-4));
    // One problem says nothing about others.
    e = share_estimate({1}, 100);
    REQUIRE((e.low == 0 && e.high == 1));
    e = difference_estimate({0.5, -0.5, 0.5, 0.5});
    REQUIRE(e.mean == Approx(0.25));
    REQUIRE(e.high - e.low == Approx(2 * 3.18245 * 0.25).epsilon(1e-4));
    REQUIRE(quantile({4, 1, 3, 2}, 0.5) == Approx(2.5));
    REQUIRE(quantile({4, 1, 3, 2}, 1) == 4);
    REQUIRE(quantile({}, 0.5) == 0);
}

// Problems of random difficulty, k samples each; the interval must hold the true mean in 95% of the cases.
TEST_CASE("statistics: simulated coverage is 95% +- 2", "[evaluate]") {
    Rng rng(11, Stream::test, 3);
    auto sample_share = [&](double p, int k) {
        int right = 0;
        for (int i = 0; i < k; i++) right += double(rng.uniform()) < p;
        return double(right) / k;
    };
    // Difficulty: u^a is a Beta(1/a, 1) variable with mean 1 / (1 + a).
    struct Case {
        int problems, samples;
        double a;
    };
    double plain = 0, paired = 0;
    int cases = 0;
    for (Case c : {Case{30, 4, 1}, Case{30, 16, 2}, Case{100, 1, 1}, Case{100, 4, 4}, Case{300, 4, 0.3}}) {
        const int runs = 1000;
        int hit = 0, hit_difference = 0;
        const double truth = 1 / (1 + c.a), better = 1 / (1 + 0.7 * c.a);
        for (int r = 0; r < runs; r++) {
            std::vector<double> x, d;
            for (int i = 0; i < c.problems; i++) {
                double u = double(rng.uniform());
                x.push_back(sample_share(std::pow(u, c.a), c.samples));
                d.push_back(sample_share(std::pow(u, 0.7 * c.a), c.samples) - x.back());
            }
            Estimate e = share_estimate(x, c.samples), f = difference_estimate(d);
            hit += e.low <= truth && truth <= e.high;
            hit_difference += f.low <= better - truth && better - truth <= f.high;
        }
        INFO(c.problems << " problems, " << c.samples << " samples, a " << c.a);
        REQUIRE(double(hit) / runs == Approx(0.95).margin(0.02));
        REQUIRE(double(hit_difference) / runs == Approx(0.95).margin(0.02));
        plain += double(hit) / runs, paired += double(hit_difference) / runs, cases++;
    }
    REQUIRE(plain / cases == Approx(0.95).margin(0.01));
    REQUIRE(paired / cases == Approx(0.95).margin(0.01));
}

TEST_CASE("evaluate: summary of a worked example", "[evaluate]") {
    Json s = summarize(settings(5, 4), toy_samples());
    REQUIRE(s["problems"] == 4);
    REQUIRE(s["incomplete"] == 1);
    REQUIRE(s["avg@4"].get<double>() == Approx((0.5 + 0.25 + 0 + 0.5) / 4));
    REQUIRE(s["pass@1"].get<double>() == Approx(s["avg@4"].get<double>()));
    REQUIRE(s["pass@2"].get<double>() == Approx((5.0 / 6 + 0.5 + 0 + 5.0 / 6) / 4));
    REQUIRE(s["pass@4"].get<double>() == Approx(0.75));
    // a: the two right answers are one vote of weight 2; b: 7 wins; c: nobody votes; d: a tie of two.
    REQUIRE(s["maj@4"].get<double>() == Approx((1 + 0 + 0 + 0.5) / 4));
    REQUIRE(s["unparsed"].get<double>() == Approx(5.0 / 16));
    REQUIRE(s["truncated"].get<double>() == 0);
    REQUIRE(s["response_length/mean"].get<double>() == 3);
    REQUIRE(s["logprob_per_token"].get<double>() == Approx(-0.5));

    // Truncated and unparsed are counted apart.
    Samples samples = toy_samples();
    samples["c"][0].truncated = samples["a"][0].truncated = true;
    s = summarize(settings(4, 4), samples);
    REQUIRE(s["unparsed"].get<double>() == Approx(4.0 / 16));
    REQUIRE(s["truncated"].get<double>() == Approx(2.0 / 16));
    REQUIRE(s["truncated_right"].get<double>() == Approx(1.0 / 16));
    std::string text = summary_text(s);
    REQUIRE(text.find("toy: 4 problems x 4 samples\n") == 0);
    REQUIRE(text.find("  avg@4              31.2%  [") != std::string::npos);
    REQUIRE(text.find("@2 54.2%  @4 75.0%") != std::string::npos);

    // Unparsed answers do not vote, not even where they are most.
    Samples silent;
    for (int k = 0; k < 4; k++)
        add_sample(silent, k ? row("e", k, Outcome::unparsed) : row("e", k, Outcome::right, "5"), "t");
    REQUIRE(summarize(settings(1, 4), silent)["maj@4"].get<double>() == 1);

    // Nothing complete: no number is made up.
    s = summarize(settings(4, 8), toy_samples());
    REQUIRE(s["problems"] == 0);
    REQUIRE(s["avg@8"].is_null());
    REQUIRE(summary_text(s).find("avg@8              -") != std::string::npos);
    REQUIRE(summarize(settings(1, 1), {})["maj@1"].is_null());
}

TEST_CASE("evaluate: an interrupted folder goes on where it stopped", "[evaluate]") {
    ScratchFolder dir;
    const std::string folder = dir / "set";
    Samples all = toy_samples();
    {
        EvaluationFolder out(folder, settings(4, 4));
        for (auto& [id, rows] : all)
            for (auto& [k, r] : rows) out.append(r);
        REQUIRE(out.samples().size() == 4);
        REQUIRE(error_of([&] { EvaluationFolder second(folder, settings(4, 4)); }) ==
                folder + ": another evaluation is writing here");
        REQUIRE(error_of([&] { out.append(all["a"][0]); }) ==
                folder + "/samples.jsonl: sample 0 of \"a\" is there twice");
        // What is on disk is complete already, as after a kill.
        REQUIRE(summarize(settings(4, 4), read_samples(folder + "/samples.jsonl")).dump() ==
                summarize(settings(4, 4), all).dump());
    }
    const std::string whole = bytes_of_file(folder + "/samples.jsonl");
    // Cut at every byte of the last two lines: reading goes on, and only whole lines count.
    size_t from = whole.rfind('\n', whole.rfind('\n', whole.size() - 2) - 1) + 1;
    for (size_t cut = from; cut <= whole.size(); cut++) {
        dir.put("set/samples.jsonl", whole.substr(0, cut));
        EvaluationFolder out(folder, settings(4, 4));
        size_t lines = size_t(std::count(whole.begin(), whole.begin() + int64_t(cut), '\n'));
        size_t rows = 0;
        for (auto& [id, r] : out.samples()) rows += r.size();
        REQUIRE(rows == lines);
        if (out.find("d", 2) == nullptr) out.append(all["d"][2]);
        if (out.find("d", 3) == nullptr) out.append(all["d"][3]);
        REQUIRE(bytes_of_file(folder + "/samples.jsonl") == whole);
    }
    std::vector<Problem> problems(1);
    problems[0].id = "d";
    EvaluationFolder out(folder, settings(4, 4));
    REQUIRE_FALSE(out.missing(problems, 4));
    REQUIRE(out.missing(problems, 5));
}

TEST_CASE("evaluate: other settings are refused by name; more may be asked for", "[evaluate]") {
    ScratchFolder dir;
    const std::string folder = dir / "set";
    { EvaluationFolder(folder, settings(4, 4)).append(row("a", 0, Outcome::right)); }
    auto with = [&](const char* key, const Json& value) {
        Json s = settings(4, 4);
        s[key] = value;
        return error_of([&] { EvaluationFolder out(folder, s); });
    };
    const std::string start = folder + ": holds samples drawn with other settings: ";
    REQUIRE(with("temperature", 1.0) == start + "temperature 0.6 there, 1.0 now");
    REQUIRE(with("seed", 2) == start + "seed 1 there, 2 now");
    REQUIRE(with("model_hash", "2") == start + "model_hash \"1\" there, \"2\" now");
    REQUIRE(with("samples", 2) == start + "samples 4 there, 2 now");
    REQUIRE(with("limit", 3) == start + "limit 0 there, 3 now");
    REQUIRE(with("new_option", true) == start + "new_option null there, true now");
    REQUIRE(with("model", "moved") == "no error");
    REQUIRE(with("samples", 8) == "no error");
    REQUIRE(with("samples", 4) == start + "samples 8 there, 4 now");
    // Without samples nothing is bound.
    dir.put("set/samples.jsonl", "");
    REQUIRE(with("seed", 3) == "no error");
}

TEST_CASE("evaluate: damaged samples", "[evaluate]") {
    ScratchFolder dir;
    auto error = [&](const std::string& line) {
        std::string path = dir.put("samples.jsonl", line + "\n");
        return dir.plain(error_of([&] { read_samples(path); }));
    };
    REQUIRE(error("{\"id\": 3}").find("DIR/samples.jsonl:1: not a line of samples (keys found: \"id\")") ==
            0);
    REQUIRE(error("{").find("DIR/samples.jsonl:1: not JSON") == 0);
    Json j = to_json(row("a", 0, Outcome::right));
    REQUIRE(error(j.dump()) == "no error");
    j["outcome"] = "fine";
    REQUIRE(error(j.dump()).find("DIR/samples.jsonl:1: no outcome is called") == 0);
    j = to_json(row("a", 0, Outcome::wrong, "\xff\xfe"));
    REQUIRE(evaluate_detail::line(j).find("\xef\xbf\xbd") != std::string::npos);  // written all the same
    REQUIRE(error_of([&] { evaluation_sets(dir / "none"); }).find("no samples.jsonl here") !=
            std::string::npos);
}

TEST_CASE("evaluate: comparison is paired by problem", "[evaluate]") {
    ScratchFolder dir;
    auto write = [&](const std::string& name, Samples samples, const Json& s) {
        EvaluationFolder out(dir / name, s);
        for (auto& [id, rows] : samples)
            for (auto& [k, r] : rows) out.append(r);
    };
    Samples a = toy_samples(), b = toy_samples();
    b.erase("d");
    for (auto& [k, r] : b["c"]) r.outcome = Outcome::right;  // 0 -> 1
    b["a"][0].outcome = Outcome::wrong;                      // 0.5 -> 0.25
    Json other = settings(4, 4);
    other["temperature"] = 1.0;
    write("a/toy", a, settings(4, 4));
    write("b/toy", b, other);
    REQUIRE(evaluation_sets(dir / "a").at("toy") == dir / "a/toy");
    REQUIRE(evaluation_sets(dir / "a/toy").count("toy") == 1);
    Json c = compare(dir / "a/toy", dir / "b/toy");
    REQUIRE(c["problems"] == 3);
    REQUIRE(c["only_a"] == 1);
    REQUIRE(c["only_b"] == 0);
    REQUIRE(c["difference"].get<double>() == Approx((1 - 0.25) / 3));
    REQUIRE(c["better"] == 1);
    REQUIRE(c["worse"] == 1);
    REQUIRE(c["settings_that_differ"].size() == 1);
    std::string text = compare_text(c);
    REQUIRE(text.find("b - a  +25.0 points") != std::string::npos);
    REQUIRE(text.find("within noise") != std::string::npos);
    REQUIRE(text.find("temperature differs") != std::string::npos);
    for (std::string id : {"a", "b", "c"}) b.erase(id);
    add_sample(b, row("z", 0, Outcome::right), "t");
    write("z/toy", b, other);
    REQUIRE(error_of([&] { compare(dir / "a/toy", dir / "z/toy"); }).find("have no problem in common") !=
            std::string::npos);
}

TEST_CASE("evaluate: correct samples become training data, once each", "[evaluate]") {
    ScratchFolder dir;
    std::vector<Problem> problems(3);
    const char* ids[] = {"d", "a", "b"};
    for (size_t i = 0; i < 3; i++) {
        problems[i].id = ids[i];
        problems[i].messages = {{{"role", "user"}, {"content", std::string("question ") + ids[i]}}};
    }
    Samples samples = toy_samples();
    samples["b"][3].truncated = true;
    auto lines = [&](const std::string& system, bool messages, int per_problem) {
        std::string path = dir / "sft.jsonl";
        FileWriter out(path);
        int64_t n = write_sft(out, problems, samples, system, messages, per_problem);
        out.commit();
        std::vector<Json> rows;
        JsonLines in(path);
        for (Json r; in.next(r);) rows.push_back(r);
        REQUIRE(int64_t(rows.size()) == n);
        return rows;
    };
    std::vector<Json> rows = lines("", false, 0);
    REQUIRE(rows.size() == 3);  // d's two right texts are equal; b's was cut off
    REQUIRE(rows[0]["prompt"] == "question d");
    REQUIRE(rows[0]["completion"] == "text 5");
    REQUIRE(rows[1]["id"] == "a");
    REQUIRE(rows[2]["completion"] == "text 0.5");
    REQUIRE(lines("", false, 1).size() == 2);
    rows = lines("be brief", true, 0);
    REQUIRE(rows[0]["messages"].size() == 3);
    REQUIRE(rows[0]["messages"][0]["content"] == "be brief");
    REQUIRE(rows[0]["messages"][2]["role"] == "assistant");
}

TEST_CASE("reward: both answer formats", "[evaluate]") {
    REQUIRE(ledger_answer("L a3;b8;:7") == "7");
    REQUIRE(ledger_answer("x:07 \n") == "7");
    REQUIRE(ledger_answer(":00") == "0");
    for (const char* none : {"", ":", "7", ":7x", "7:", ": 7", ":7;", "a:b"})
        REQUIRE(ledger_answer(none) == "");
    auto outcome = [](AnswerFormat f, const std::string& text, std::vector<std::string> gold) {
        return std::string(outcome_name(judge(f, text, gold).outcome));
    };
    REQUIRE(outcome(AnswerFormat::ledger, "a3;:5", {"5"}) == "right");
    REQUIRE(outcome(AnswerFormat::ledger, "a3;:15", {"5"}) == "wrong");
    REQUIRE(outcome(AnswerFormat::ledger, "5", {"5"}) == "unparsed");
    REQUIRE(outcome(AnswerFormat::boxed, "so \\boxed{1/2}", {"0.5"}) == "right");
    REQUIRE(outcome(AnswerFormat::boxed, "so \\boxed{3}", {"4", "3"}) == "right");
    REQUIRE(outcome(AnswerFormat::boxed, "so \\boxed{3}", {"4"}) == "wrong");
    REQUIRE(outcome(AnswerFormat::boxed, "the answer is 4", {"4"}) == "unparsed");
    REQUIRE(judge(AnswerFormat::boxed, "the answer is 4", {"4"}, verifier::Mode::lenient).outcome ==
            Outcome::right);
    REQUIRE(reward(judge(AnswerFormat::ledger, ":5", {"5"})) == 1);
    REQUIRE(reward(judge(AnswerFormat::ledger, ":6", {"5"})) == 0);
    REQUIRE(error_of([] { answer_format("box", "--answer-format"); }) ==
            "--answer-format: no answer format is called \"box\"");
}

TEST_CASE("problems: the forms users have", "[evaluate]") {
    ScratchFolder dir;
    auto one = [&](const std::string& line, const ProblemKeys& keys = {}) {
        return read_problems(dir.put("set.jsonl", line + "\n"), keys)[0];
    };
    auto question = [](const Problem& p) { return p.messages.back()["content"].get<std::string>(); };
    Problem p = one(R"({"id": "m/1", "problem": "1+1?", "answer": "2"})");
    REQUIRE((p.id == "m/1" && question(p) == "1+1?" && p.gold == std::vector<std::string>{"2"}));
    p = one(R"({"question": "1+1?", "answer": "It is 2.\n#### 2"})");
    REQUIRE((p.id == "set/1" && p.gold[0] == "2"));
    p = one(R"({"id": 17, "problem": "1+1?", "solution": "so \\boxed{2}"})");
    REQUIRE((p.id == "17" && p.gold[0] == "2"));
    p = one(
        R"({"prompt": [{"role": "system", "content": "s"}, {"role": "user", "content": "1+1?"}], "label": 2})");
    REQUIRE((p.messages.size() == 2 && question(p) == "1+1?" && p.gold[0] == "2"));
    p = one(R"({"prompt": [{"role": "user", "content": "q"}], "reward_model": {"ground_truth": "7"}})");
    REQUIRE(p.gold[0] == "7");
    p = one(
        R"({"messages": [{"role": "user", "content": "q"}, {"role": "assistant", "content": "7"}], "ground_truth": "7"})");
    REQUIRE((p.messages.size() == 1 && question(p) == "q"));
    p = one(R"({"problem": "q", "answer": ["1", 2.5]})");
    REQUIRE(p.gold == std::vector<std::string>{"1", "2.5"});
    p = one(R"({"text": "q", "a": {"b": "x"}})", {"text", "a.b", AnswerFormat::boxed});
    REQUIRE((question(p) == "q" && p.gold[0] == "x"));
    p = one(R"({"problem": "a3=", "answer": "3", "answer_format": "ledger"})");
    REQUIRE(p.format == AnswerFormat::ledger);
    std::string three =
        "{\"problem\":\"a\",\"answer\":\"1\"}\n\n{\"problem\":\"b\",\"answer\":\"2\"}\n{\"problem\":\"c\","
        "\"answer\":\"3\"}\n";
    REQUIRE(read_problems(dir.put("set.jsonl", three)).size() == 3);
    REQUIRE(read_problems(dir.put("set.jsonl", three), {}, 2)[1].id == "set/3");
    REQUIRE(set_name("a/b.c/val.jsonl") == "val");
    REQUIRE(set_name(".hidden") == ".hidden");
}

TEST_CASE("problems: errors name file, line and keys", "[evaluate]") {
    ScratchFolder dir;
    auto error = [&](const std::string& lines, const ProblemKeys& keys = {}) {
        std::string path = dir.put("p.jsonl", lines);
        return dir.plain(error_of([&] { read_problems(path, keys); }));
    };
    REQUIRE(error("{\"text\": 1}") ==
            "DIR/p.jsonl:1: no key \"problem\", \"question\", \"prompt\" or \"messages\" (found: \"text\")");
    REQUIRE(
        error("{\"problem\": \"q\"}") ==
        "DIR/p.jsonl:1: no key \"answer\", \"label\", \"ground_truth\" or \"solution\" (found: \"problem\")");
    REQUIRE(error("{\"problem\": \"q\"}", {"qq", "", AnswerFormat::boxed}) ==
            "DIR/p.jsonl:1: no key \"qq\" (found: \"problem\")");
    REQUIRE(error("{\"problem\": \"q\"}", {"", "gg", AnswerFormat::boxed}) ==
            "DIR/p.jsonl:1: no key \"gg\" (found: \"problem\")");
    REQUIRE(error("{\"problem\": 5, \"answer\": 1}") ==
            "DIR/p.jsonl:1: key \"problem\": neither a text nor a list of messages");
    REQUIRE(error("{\"problem\": \"  \", \"answer\": 1}") ==
            "DIR/p.jsonl:1: key \"problem\": neither a text nor a list of messages");
    REQUIRE(error("{\"prompt\": [1], \"answer\": 1}") ==
            "DIR/p.jsonl:1: key \"prompt\": not a list of messages");
    REQUIRE(error("{\"prompt\": [], \"answer\": 1}") == "DIR/p.jsonl:1: key \"prompt\": no user message");
    REQUIRE(error("{\"problem\": \"q\", \"answer\": true}") ==
            "DIR/p.jsonl:1: key \"answer\": \"true\" is not an answer");
    REQUIRE(error("{\"problem\": \"q\", \"answer\": []}") == "DIR/p.jsonl:1: key \"answer\": an empty list");
    REQUIRE(error("{\"problem\": \"q\", \"solution\": \"no box\"}") ==
            "DIR/p.jsonl:1: key \"solution\": holds no \\boxed{} answer");
    REQUIRE(error("{\"id\": [], \"problem\": \"q\", \"answer\": 1}") ==
            "DIR/p.jsonl:1: key \"id\": neither a string nor a number");
    REQUIRE(error("{\"problem\": \"q\", \"answer\": 1, \"answer_format\": \"x\"}") ==
            "DIR/p.jsonl:1: key \"answer_format\": no answer format is called \"x\"");
    REQUIRE(error("{\"id\": 1, \"problem\": \"q\", \"answer\": 1}\n{\"id\": \"1\", \"problem\": \"r\", "
                  "\"answer\": 1}") == "DIR/p.jsonl:2: id \"1\" was already on line 1");
    REQUIRE(error("") == "DIR/p.jsonl: holds no problems");
    REQUIRE(error("{").find("DIR/p.jsonl:1: not JSON") == 0);
}

TEST_CASE("overlap: planted copies are found", "[evaluate]") {
    ScratchFolder dir;
    std::vector<Problem> problems(4);
    const char* text[] = {
        "Natalia sold clips to 48 of her friends in April, and then she sold half as many clips in May.",
        "Let $x$ and $y$ be real numbers such that $x + y = 7$ and $xy = 12$; find $x^2 + y^2$ at once.",
        "How many primes are below one hundred?", "1+1?"};
    for (size_t i = 0; i < 4; i++) {
        problems[i].id = std::string("p") + char('0' + char(i));
        problems[i].messages = {{{"role", "user"}, {"content", text[i]}}};
    }
    std::string train =
        dir.put("train.jsonl",
                "{\"prompt\": \"unrelated\", \"completion\": \"text of no interest at all\"}\n"
                "{\"problem\": \"Hm. NATALIA sold   clips to 48 of her\\nfriends in april and then she sold "
                "nothing.\"}\n"
                "{\"messages\": [{\"role\": \"user\", \"content\": \"1+1? how many primes are below one "
                "hundred\"}]}\n");
    std::string book =
        dir.put("book.txt", "let x and y be real numbers such that x + y = 7 and xy = 12, find");
    Json r = overlap_report(problems, {train, book});
    REQUIRE(r["found"] == 3);
    REQUIRE(r["ids"]["p0"] == train + ":2");
    REQUIRE(r["ids"]["p1"] == book);
    REQUIRE(r["ids"]["p2"] == train + ":3");
    REQUIRE(overlap_report(
                problems,
                {dir.put("other.txt", "natalia sold clips to 48 of her friends in may")})["found"] == 0);
    REQUIRE(overlap_text("set", r).find("contamination: 3 of 4 problems of set") == 0);
}

TEST_CASE("evaluate: the hash of a folder's weights", "[evaluate]") {
    ScratchFolder dir;
    std::string bytes(100000, 'x');
    dir.put("model.safetensors", bytes);
    std::string first = weights_hash(dir.path);
    REQUIRE(first == weights_hash(dir.path));
    bytes[50000] = 'y';
    dir.put("model.safetensors", bytes);
    REQUIRE(first != weights_hash(dir.path));
    ScratchFolder empty;
    REQUIRE(empty.plain(error_of([&] { weights_hash(empty.path); })) == "DIR: no *.safetensors here");
}
