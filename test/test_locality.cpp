// Locality: against two plain forward passes per token, the strided and masked forms, a kept prompt, a
// planted copy, intervals; and the program on the miniature.
#include "check.h"
#include "locality.h"
#include "program.h"
#include "report.h"
#include "source.h"

namespace {

struct Setting {
    Threads one{1};
    Cpu device;
    ModelSource source{"data/ledger/base", ModelOptions{}};
    LocalityScorer<Cpu> scorer{device, source.config, source.folder};
    Model<Cpu> model{device, source.config};
    TokenLossWorkspace<CpuDevice<float>> workspace{device, 256, source.config.hidden, source.config.vocab};

    Setting() { model.load(source.folder); }
    LocalityText text(const std::string& prompt, const std::string& answer) {
        LocalityText t;
        t.id = prompt;
        t.ids = source.tokenizer.encode(prompt + answer);
        t.prompt = int(prompt.size());
        return t;
    }
    // p(id | context) by one forward pass of `context`.
    double p(const std::vector<int>& context, int id) {
        Batch batch;
        batch.add(context.data(), int(context.size()));
        std::vector<int> target(context.size(), -1);
        target.at(context.size() - 1) = id;
        std::vector<float> logp(context.size());
        TokenLoss<float> args;
        args.targets = target.data();
        args.logp = logp.data();
        loss_pass(model, workspace, batch, args);
        return std::exp(double(logp.back()));
    }
};

const char* far_prompt = "a3b5c2d7=";
const char* far_answer = "Fa3pqrstu;b8pqrstu;c0pqrstu;d7pqrstu;:7";
const char* local_answer = "La3+b5c2d7;b8+c2d7;c0+d7;d7;:7";

}  // namespace

TEST_CASE("locality: equal to two forward passes for every token", "[locality]") {
    Setting s;
    const std::vector<LocalityText> texts = {s.text(far_prompt, far_answer), s.text("a1b1c1=", "Fa1pq"),
                                             s.text(far_prompt, local_answer)};
    LocalityOptions o;
    o.windows = {1, 5, 16, 30, 47, 48, 100};
    for (bool keep : {false, true}) {
        o.keep_prompt = keep;
        o.max_tokens_per_pass = keep ? 64 : 8192;
        const std::vector<TextLocality> scores = s.scorer.score(texts, o);
        for (size_t d = 0; d < texts.size(); d++) {
            const std::vector<int>& ids = texts[d].ids;
            REQUIRE(scores[d].first == texts[d].prompt);
            REQUIRE(scores[d].full.size() == ids.size() - size_t(texts[d].prompt));
            for (size_t i = 0; i < scores[d].full.size(); i += 3) {
                const int t = texts[d].prompt + int(i);
                REQUIRE(scores[d].full[i] ==
                        Approx(s.p({ids.begin(), ids.begin() + t}, ids[size_t(t)])).margin(1e-6));
                for (size_t w = 0; w < o.windows.size(); w++) {
                    const int from = std::max(0, t - o.windows[w]);
                    std::vector<int> context;
                    if (keep) context.assign(ids.begin(), ids.begin() + std::min(from, texts[d].prompt));
                    context.insert(context.end(), ids.begin() + from, ids.begin() + t);
                    INFO("text " << d << " token " << t << " window " << o.windows[w] << " keep " << keep);
                    REQUIRE(scores[d].cut[w][i] == Approx(s.p(context, ids[size_t(t)])).margin(1e-6));
                    if (t <= o.windows[w]) REQUIRE(scores[d].cut[w][i] == scores[d].full[i]);
                    REQUIRE(scores[d].kl[w][i] >= 0);
                }
            }
        }
        // A window as long as the text: nothing is lost, exactly.
        const WindowScore whole = window_score(texts, scores, o, o.windows.size() - 1);
        REQUIRE(whole.L.mean == 1);
        REQUIRE(whole.tokens == 0);
        REQUIRE(whole.needs_more == 0);
        REQUIRE(whole.response_tokens ==
                int64_t(scores[0].full.size() + scores[1].full.size() + scores[2].full.size()));
    }
}

TEST_CASE("locality: what lies d tokens back is missed below d, and not above", "[locality]") {
    // In the far style the running total needs an operand of the prompt. "d7" is computed at token t; its
    // operand, the 7 of the prompt, stands at index 7: it is among the last w tokens iff w >= t - 7.
    Setting s;
    const LocalityText text = s.text(far_prompt, far_answer);
    const int t = int(std::string(far_prompt).size() + std::string(far_answer).rfind("d7")) + 1,
              needed = t - 7;
    LocalityOptions o;
    for (int w = 1; w < int(text.ids.size()); w++) o.windows.push_back(w);
    const TextLocality score = s.scorer.score({text}, o)[0];
    const size_t i = size_t(t - score.first);
    REQUIRE(score.full[i] > 0.98);
    for (int w = 8; w < needed; w++) {
        INFO("window " << w << ", needed " << needed);
        REQUIRE(score.full[i] - score.cut[size_t(w - 1)][i] > 0.3);
    }
    // One more token brings the letter that names the operand.
    for (int w = needed + 1; w < int(text.ids.size()); w++) {
        INFO("window " << w << ", needed " << needed);
        REQUIRE(std::fabs(score.full[i] - score.cut[size_t(w - 1)][i]) < 0.1);
    }

    // The local style finds everything within 16 tokens, the far style does not.
    o.windows = {16};
    const std::vector<LocalityText>
        local = {s.text("a3b5c2d7e1f4=", "La3+b5c2d7e1f4;b8+c2d7e1f4;c0+d7e1f4;d7+e1f4;e8+f4;f2;:2")},
        far = {s.text("a3b5c2d7e1f4=", "Fa3pqrstu;b8pqrstu;c0pqrstu;d7pqrstu;e8pqrstu;f2pqrstu;:2")};
    const double l = window_score(local, s.scorer.score(local, o), o, 0).L.mean,
                 f = window_score(far, s.scorer.score(far, o), o, 0).L.mean;
    REQUIRE(l > f);
    REQUIRE(l > 0.98);
    REQUIRE(f < 0.97);
}

TEST_CASE("locality: strided and masked forms", "[locality]") {
    Setting s;
    const std::vector<LocalityText> texts = {s.text(far_prompt, far_answer),
                                             s.text(far_prompt, local_answer)};
    LocalityOptions o;
    o.windows = {12, 20};
    const std::vector<TextLocality> exact = s.scorer.score(texts, o);
    LocalityOptions strided = o;
    strided.stride = 4;
    LocalityOptions wider = o;
    wider.windows = {15, 23};
    const std::vector<TextLocality> four = s.scorer.score(texts, strided),
                                    more = s.scorer.score(texts, wider);
    for (size_t d = 0; d < texts.size(); d++)
        for (size_t w = 0; w < 2; w++)
            for (size_t i = 0; i < exact[d].full.size(); i++) {
                // The first of a stride sees exactly w tokens, the last exactly w + stride - 1.
                if (i % 4 == 0) REQUIRE(four[d].cut[w][i] == Approx(exact[d].cut[w][i]).margin(1e-6));
                if (i % 4 == 3) REQUIRE(four[d].cut[w][i] == Approx(more[d].cut[w][i]).margin(1e-6));
            }

    // Masked is what a sliding-window copy of the scorer computes.
    o.truncation = Truncation::masked;
    const std::vector<TextLocality> masked = s.scorer.score(texts, o);
    for (size_t w = 0; w < 2; w++) {
        ModelConfig config = s.source.config;
        set_window(config, o.windows[w], {}, 0);
        Model<Cpu> narrow(s.device, config);
        narrow.load(s.source.folder);
        for (size_t d = 0; d < texts.size(); d++) {
            const std::vector<int>& ids = texts[d].ids;
            Batch batch;
            batch.add(ids.data(), int(ids.size()) - 1);
            std::vector<int> target(ids.begin() + 1, ids.end());
            std::vector<float> logp(target.size());
            TokenLoss<float> args;
            args.targets = target.data();
            args.logp = logp.data();
            loss_pass(narrow, s.workspace, batch, args);
            for (size_t i = 0; i < masked[d].full.size(); i++)
                REQUIRE(masked[d].cut[w][i] ==
                        Approx(std::exp(double(logp[i + size_t(texts[d].prompt) - 1]))).margin(1e-6));
        }
    }
    o.keep_prompt = true;  // sinks: the far style loses nothing that a prompt in sight gives
    REQUIRE(s.scorer.score(texts, o)[0].cut[0].size() == masked[0].cut[0].size());
}

TEST_CASE("locality: intervals treat texts as clusters", "[locality]") {
    const Estimate e = pooled_locality({1, 0, 2, 1}, {10, 10, 10, 10});
    REQUIRE(e.mean == Approx(0.9));
    REQUIRE(e.problems == 4);
    const double error = std::sqrt(4.0 / 3 * 2) / 40;  // deviations 0, -1, 1, 0
    REQUIRE(e.error == Approx(error));
    REQUIRE(e.low == Approx(0.9 - 3.182446 * error).epsilon(1e-5));
    REQUIRE(e.high == Approx(std::min(1.0, 0.9 + 3.182446 * error)).epsilon(1e-5));
    REQUIRE(pooled_locality({0, 0}, {0, 0}).mean == 1);
    const Estimate one = pooled_locality({1}, {4});
    REQUIRE(one.mean == Approx(0.75));
    REQUIRE(one.low == 0);
    REQUIRE(one.high == 1);
}

TEST_CASE("locality: errors", "[locality]") {
    Setting s;
    LocalityOptions o;
    o.windows = {4};
    LocalityText bad = s.text("a1=", "La1;:1");
    bad.ids[4] = 40;
    REQUIRE(error_of([&] { s.scorer.score({bad}, o); }) ==
            "text \"a1=\": token 40 is outside the scorer's vocabulary of 40");
    LocalityText none = s.text("a1=", "");
    REQUIRE(error_of([&] { s.scorer.score({none}, o); }) == "text \"a1=\" has no response token");
}

TEST_CASE("report: axes have round numbers", "[locality]") {
    REQUIRE(HtmlReport::ticks(8, 48) == std::vector<double>{10, 20, 30, 40});
    REQUIRE(HtmlReport::ticks(0, 100) == std::vector<double>{0, 20, 40, 60, 80, 100});
    for (double low : {-0.95, 0.0, 0.719, 3.0})
        for (double width : {1e-6, 0.281, 1.0, 7.7, 1e9}) {
            const std::vector<double> t = HtmlReport::ticks(low, low + width);
            REQUIRE(t.size() >= 2);
            REQUIRE(t.size() <= 7);
            REQUIRE(t.front() >= low - 1e-9 * width);
            REQUIRE(t.back() <= low + width * (1 + 1e-9));
        }
}

TEST_CASE("locality: the program", "[locality][program]") {
    ScratchFolder dir;
    const std::string base = std::filesystem::absolute("data/ledger/base"),
                      data = std::filesystem::absolute("data/ledger/sft.jsonl");
    auto locality = [&](const std::string& arguments) {
        return run_in(dir.path, "locality", "--threads 1 " + arguments);
    };
    ProgramResult r = locality("--scorer " + base + " --set data=" + data +
                               " --limit 6 --windows 16,8,16 --examples 1 --out o");
    INFO(r.out << r.err);
    REQUIRE(r.code == 0);
    const Json result = read_json(dir / "o/locality.json");
    REQUIRE(result["windows"] == Json({8, 16}));
    const Json set = result["sets"][0];
    REQUIRE(set["texts"] == 6);
    REQUIRE(set["per_text"].size() == 6);
    int64_t counted = 0;
    for (const Json& count : set["histogram"]) counted += count.get<int64_t>();
    REQUIRE(counted == set["tokens"]);
    for (const Json& w : set["windows"]) {
        REQUIRE(w["L"] <= 1.0);
        REQUIRE(w["low"] <= w["L"]);
        REQUIRE(w["L"] <= w["high"]);
    }
    const std::string page = bytes_of_file(dir / "o/locality.html");
    REQUIRE(page.find("const examples = ") != std::string::npos);
    for (const char* outside : {"http://", "https://", "src="})
        REQUIRE(page.find(outside) == std::string::npos);

    r = locality("--scorer " + base + " --set data=" + data + " --windows 0");
    REQUIRE(r.code == 2);
    REQUIRE(r.err.find("error: locality: --windows: 0 is not a window\nhint: windows start at 1") !=
            std::string::npos);
    r = locality("--scorer " + base + " --set data=" + data + " --windows 4,2000000000");
    REQUIRE(r.code == 2);
    REQUIRE(r.err.find("--windows: 2000000000 is not a window") != std::string::npos);
    r = locality("--scorer " + base + " --set data=" + data + " --max-tokens-per-pass 100000000");
    REQUIRE(r.code == 2);
    r = locality("--scorer " + base + " --set x=" + data + " --stride 4 --truncation masked");
    REQUIRE(r.code == 2);
    REQUIRE(r.err.find("--stride has no meaning with --truncation masked") != std::string::npos);
    r = locality("--scorer " + base);
    REQUIRE(r.code == 2);
    REQUIRE(r.err.find("--scorer and --set are both needed") != std::string::npos);
    r = locality("--scorer " + base + " --set x=" + data + " --only right");
    REQUIRE(r.code == 1);
    REQUIRE(r.err.find("no texts that are right") != std::string::npos);
}
