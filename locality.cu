// locality.cu: how much does a text lean on far-away tokens? Scores each token of a set of answers under a
// fixed model with its whole context and with the last w tokens only, for a grid of windows (locality.h
// states g_t(w) and L(w)).
//
//   ./locality                                              compares the runs of the built-in miniature
//   ./locality --scorer Qwen2.5-Math-1.5B --set before=runs/sft/eval/step_000400/math500
//       --set after=runs/rl/eval/step_000200/math500 --windows 512,1024,2048,4096
//   ./locality --scorer DIR --set data=train.jsonl          how many training tokens need more than W?
//
// Writes locality.json and a page, locality.html, that shades every token by its gap.
#include "locality_page.h"
#include "locality_sets.h"

struct Options {
    std::string scorer, out, truncation = "exact", only = "all", template_name;
    DeviceOptions device;
    std::vector<std::string> sets;
    std::vector<int> windows;
    int stride = 1, max_tokens = 8192, examples = 6;
    int64_t limit = 0;
    bool keep_prompt = false;
    double threshold = 0.01;

    void add_to(Cli& cli) {
        cli.option("--scorer", scorer, "the model that judges: a model folder or a run; one for all sets",
                   "Input");
        cli.option("--set", sets,
                   "NAME=PATH: results of ./eval, rollouts/step_N.jsonl of ./rl_cispo, fine-tuning data "
                   "(.jsonl) or .txt",
                   "Input");
        cli.option("--only", only, "all answers, right ones or wrong ones, where the set knows", "Input")
            ->check(CLI::IsMember({"all", "right", "wrong"}));
        cli.option("--limit", limit, "texts of each set; 0 = all", "Input")->check(CLI::NonNegativeNumber);
        cli.option("--template", template_name, "chat template for fine-tuning data; default: the scorer's",
                   "Input");
        cli.option("--windows", windows,
                   "for example 256,512,1024; default: powers of two up to the longest text", "Measure")
            ->delimiter(',');
        cli.option("--truncation", truncation, "exact (the last w tokens alone) or masked (a band mask)",
                   "Measure")
            ->check(CLI::IsMember({"exact", "masked"}));
        cli.option("--stride", stride,
                   "exact only: score so many tokens per cut text; 1 = exactly w tokens each", "Measure")
            ->check(CLI::Range(1, 1 << 20));
        cli.option("--keep-prompt", keep_prompt, "the prompt stays in sight", "Measure");
        cli.option("--threshold", threshold, "a larger gap counts as needing more than w", "Measure")
            ->check(CLI::NonNegativeNumber);
        cli.option("--examples", examples, "texts of each set that the page shows", "Output")
            ->check(CLI::Range(0, 1000));
        cli.option("--out", out, "folder for locality.json and locality.html; default: runs/locality",
                   "Output");
        cli.option("--max-tokens-per-pass", max_tokens, "tokens of one pass", "Speed")
            ->check(CLI::Range(1, 1 << 26));
        device.add_to(cli, "Speed");
    }
};

// Without --scorer and --set: the miniature's base judges its training data and every run below runs/.
void choose_miniature(Cli& cli, Options& o) {
    if (!o.scorer.empty() || !o.sets.empty()) return;
    namespace fs = std::filesystem;
    Miniature mini(cli);
    mini.set("--scorer", o.scorer, std::string("data/ledger/base"));
    std::vector<std::string> sets = {"sft data=data/ledger/sft.jsonl"};
    std::error_code none;
    std::vector<std::string> runs;
    for (const auto& entry : fs::directory_iterator("runs", none)) runs.push_back(entry.path());
    std::sort(runs.begin(), runs.end());
    for (const std::string& run : runs) {
        std::vector<std::string> rollouts;
        for (const auto& entry : fs::directory_iterator(run + "/rollouts", none))
            rollouts.push_back(entry.path());
        std::sort(rollouts.begin(), rollouts.end());
        if (rollouts.empty()) continue;
        std::string name = fs::path(run).filename();
        sets.push_back(name + " first step=" + rollouts.front());
        if (rollouts.size() > 1) sets.push_back(name + " last step=" + rollouts.back());
    }
    mini.set("--set", o.sets, sets);
    mini.set("--limit", o.limit, int64_t(128));
    mini.set("--windows", o.windows, {8, 12, 16, 24, 32, 48, 64});
    std::printf(
        "no --scorer and no --set: the built-in miniature; data/ledger/base judges %zu sets\n"
        "choose others with --scorer DIR --set NAME=PATH\n\n",
        sets.size());
}

std::vector<int> default_windows(const std::vector<TextSet>& sets) {
    size_t longest = 2;
    for (const TextSet& set : sets)
        for (const LocalityText& text : set.texts) longest = std::max(longest, text.ids.size());
    std::vector<int> windows;
    for (size_t w = 8; w < longest; w *= 2) windows.push_back(int(w));
    return windows.empty() ? std::vector<int>{1} : windows;
}

// One answer for the page: tokens, p under a fine grid of windows, and the tokens it leans on: those whose
// entry into the window raises p most.
template <class Device>
Json example(LocalityScorer<Device>& scorer, const ModelSource& source, const LocalityText& text,
             LocalityOptions options, const std::string& set) {
    const int longest = int(text.ids.size());
    if (longest <= 160 && options.truncation == Truncation::exact) {
        options.windows.clear();
        for (int w = 1; w < longest; w++) options.windows.push_back(w);
    }
    options.stride = 1;
    TextLocality score = scorer.score({text}, options)[0];
    auto short_number = [](double p) { return std::round(p * 1e4) / 1e4; };
    Json tokens = Json::array(), full = Json::array(), cut = Json::array(), leans = Json::array();
    for (int id : text.ids) tokens.push_back(source.tokenizer.decode({id}));
    for (double p : score.full) full.push_back(short_number(p));
    for (const std::vector<double>& row : score.cut) {
        Json values = Json::array();
        for (double p : row) values.push_back(short_number(p));
        cut.push_back(values);
    }
    for (size_t i = 0; i < score.full.size(); i++) {
        const int t = score.first + int(i);
        std::vector<std::pair<double, std::pair<int, int>>> rises;
        double before = 0;
        int entered = t;  // tokens from here on were in the last window
        for (size_t w = 0; w <= options.windows.size(); w++) {
            const bool whole = w == options.windows.size();
            const double p = whole ? score.full[i] : score.cut[w][i];
            const int from = whole ? 0 : first_kept(options, text, t, options.windows[w]);
            if (from < entered) rises.push_back({p - before, {from, entered - 1}});
            before = p, entered = from;
        }
        std::stable_sort(rises.begin(), rises.end(), [](auto& a, auto& b) { return a.first > b.first; });
        Json spans = Json::array();
        for (size_t k = 0; k < std::min<size_t>(3, rises.size()); k++)
            if (rises[k].first > 0.05) spans.push_back({rises[k].second.first, rises[k].second.second});
        leans.push_back(spans);
    }
    return {{"set", set},
            {"id", text.id},
            {"outcome", text.outcome},
            {"prompt", score.first},
            {"tokens", tokens},
            {"full", full},
            {"windows", options.windows},
            {"cut", cut},
            {"leans", leans},
            {"keep_prompt", options.keep_prompt}};
}

int main(int argc, char** argv) {
    return run_program("locality", [&] {
        Ranks ranks;
        if (ranks.size() > 1) fail("locality is the work of one process", "start it without mpirun");
        Options o;
        Cli cli("locality", "Measure how far back the tokens of a text look, under a fixed model.");
        o.add_to(cli);
        if (!cli.parse(argc, argv)) return 0;
        choose_miniature(cli, o);
        if (o.scorer.empty() || o.sets.empty())
            throw UsageError("--scorer and --set are both needed",
                             "or give neither, for the built-in miniature");
        if (o.stride > 1 && o.truncation == "masked")
            throw UsageError("--stride has no meaning with --truncation masked", "leave one of them out");
        if (o.out.empty()) o.out = "runs/locality";

        const ModelSource source(o.scorer, ModelOptions{}, o.template_name);
        std::vector<TextSet> sets;
        for (const std::string& given : o.sets) sets.push_back(read_text_set(given, source, o.only, o.limit));
        if (o.windows.empty()) o.windows = default_windows(sets);
        std::sort(o.windows.begin(), o.windows.end());
        o.windows.erase(std::unique(o.windows.begin(), o.windows.end()), o.windows.end());
        for (int w : {o.windows[0], o.windows.back()})
            if (w < 1 || w > 1 << 30)
                throw UsageError("--windows: " + std::to_string(w) + " is not a window",
                                 "windows start at 1 and end at 1073741824");
        cli.print();
        source.print();

        LocalityOptions options;
        options.windows = o.windows;
        options.truncation = o.truncation == "masked" ? Truncation::masked : Truncation::exact;
        options.stride = o.stride;
        options.keep_prompt = o.keep_prompt;
        options.max_tokens_per_pass = o.max_tokens;
        options.threshold = o.threshold;
        return on_device(o.device, ranks, [&](auto& device) {
            using Scorer = LocalityScorer<std::decay_t<decltype(device)>>;
            size_t longest = 1, response = 0;
            for (const TextSet& set : sets) {
                size_t tokens = 0;
                for (const LocalityText& text : set.texts)
                    longest = std::max(longest, text.ids.size()),
                    tokens += text.ids.size() - std::min(text.ids.size(), size_t(std::max(1, text.prompt)));
                response = std::max(response, tokens);
            }
            check_memory(device.free_memory(), {{"--max-tokens-per-pass", o.max_tokens, int64_t(longest)}},
                         [&](const std::vector<int64_t>& v) {
                             LocalityOptions with = options;
                             with.max_tokens_per_pass = int(v[0]);
                             return Scorer::memory(source.config, with, int(longest), response);
                         });
            Scorer scorer(device, source.config, source.folder);
            const size_t middle = o.windows.size() / 2;
            Json result = {{"schema", 1},
                           {"scorer", source.folder},
                           {"truncation", o.truncation},
                           {"stride", o.stride},
                           {"keep_prompt", o.keep_prompt},
                           {"only", o.only},
                           {"threshold", o.threshold},
                           {"windows", o.windows},
                           {"histogram_window", o.windows[middle]},
                           {"sets", Json::array()}};
            Json examples = Json::array();
            Progress progress(int64_t(sets.size()));
            for (const TextSet& set : sets) {
                std::vector<TextLocality> scores = scorer.score(set.texts, options);
                Json of_set = {{"name", set.name}, {"path", set.path}, {"texts", set.texts.size()}};
                Json windows = Json::array(), texts = Json::array();
                for (size_t w = 0; w < o.windows.size(); w++) {
                    WindowScore s = window_score(set.texts, scores, options, w);
                    of_set["tokens"] = s.response_tokens;
                    windows.push_back({{"window", s.window},
                                       {"L", s.L.mean},
                                       {"low", s.L.low},
                                       {"high", s.L.high},
                                       {"tokens", s.tokens},
                                       {"log_gap", s.log_gap},
                                       {"ratio", s.ratio},
                                       {"small_gap_frac", s.small},
                                       {"kl", s.kl},
                                       {"needs_more", s.needs_more}});
                }
                for (size_t d = 0; d < set.texts.size(); d++) {
                    Json row = {
                        {"id", set.texts[d].id}, {"outcome", set.texts[d].outcome}, {"L", Json::array()}};
                    for (size_t w = 0; w < o.windows.size(); w++)
                        row["L"].push_back(window_score({set.texts[d]}, {scores[d]}, options, w).L.mean);
                    texts.push_back(row);
                }
                std::vector<int64_t> histogram(20);  // from -1 to 1
                for (const TextLocality& s : scores)
                    for (size_t i = 0; i < s.full.size(); i++)
                        histogram[size_t(
                            std::min(19.0, std::max(0.0, (s.full[i] - s.cut[middle][i] + 1) * 10)))]++;
                of_set["histogram"] = histogram;
                of_set["windows"] = windows;
                of_set["per_text"] = texts;
                result["sets"].push_back(of_set);
                for (size_t i = 0; i < std::min(size_t(o.examples), set.texts.size()); i++)
                    examples.push_back(example(scorer, source, set.texts[i], options, set.name));
                progress.update(int64_t(result["sets"].size()), set.name);
            }

            size_t width = 4;
            for (const TextSet& set : sets) width = std::max(width, set.name.size());
            std::printf("\n%-*s  %6s %8s", int(width), "L(w)", "texts", "tokens");
            for (int w : o.windows) std::printf("  %14s", ("w = " + std::to_string(w)).c_str());
            std::printf("\n");
            for (const Json& set : result["sets"]) {
                std::printf("%-*s  %6d %8d", int(width), set["name"].get<std::string>().c_str(),
                            set["texts"].get<int>(), set["tokens"].get<int>());
                for (const Json& w : set["windows"])
                    std::printf("  %.4f ±%.4f", w["L"].get<double>(),
                                (w["high"].get<double>() - w["low"].get<double>()) / 2);
                std::printf("\n%-*s  %6s %8s", int(width), "", "", "need >w");
                for (const Json& w : set["windows"])
                    std::printf("  %13.1f%%", 100 * w["needs_more"].get<double>());
                std::printf("\n");
            }
            make_folders(o.out);
            write_whole(o.out + "/locality.json", result.dump(1) + "\n");
            write_locality_page(o.out + "/locality.html", result, examples);
            std::printf("\nwritten: %s/locality.json, %s/locality.html (open it in a browser)\n",
                        o.out.c_str(), o.out.c_str());
            return 0;
        });
    });
}
