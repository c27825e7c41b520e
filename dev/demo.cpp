// demo.cpp: the paper in miniature, on data/ledger. Drives the built programs through the whole recipe: a
// base model, its conversion to windows, SFT, RL, SFT on other models' answers, evaluation, locality; prints
// one table and writes a page of curves.
//
//   make demo            make demo SEED=2            build/demo/demo --smoke
//   build/demo/demo --summarize build/demo/seed_1 build/demo/seed_2 ...
//
// Every number follows from the seed: no wall-clock time enters a table. "Equal cost" therefore counts
// floating-point operations (perf/flops: rollouts and updates, only the keys that a window shows), not
// seconds. A stage whose command, program and inputs are what they were is not run again.
#include <sys/wait.h>
#include <unistd.h>

#include "evaluate.h"
#include "locality.h"
#include "report.h"
#include "source.h"

struct Options {
    uint64_t seed = 1;
    std::string bin = ".", out, device = "cpu";
    std::vector<std::string> summarize;
    bool smoke = false, tiny = false;

    void add_to(Cli& cli) {
        cli.option("--seed", seed, "of everything random");
        cli.option("--bin", bin, "folder of the built programs");
        cli.option("--out", out, "folder of the results; default: build/demo/seed_N");
        cli.option("--device", device, "cpu, or cuda (in fp32): other digits, the same findings")
            ->check(CLI::IsMember({"cpu", "cuda"}));
        cli.option("--smoke", smoke, "a small form with loose bounds, for a quick check");
        cli.option("--tiny", tiny, "every stage in a handful of steps; finds nothing");
        cli.option("--summarize", summarize, "print one table of several finished demos");
    }
};

// What the two forms of the experiment differ in.
struct Scale {
    std::vector<int> windows = {0, 48, 32, 16};  // 0: full attention, which comes first
    int64_t base_steps = 2000, base_limit = 4000, sft_steps = 400, rl_steps = 100, every = 10, problems = 0;
    int64_t batch = 64, prompts = 16,
            answered = 0;  // of SFT; of a step of RL; problems for cross-SFT, 0: all
    int64_t samples = 4, texts = 128;
    std::vector<int> locality = {8, 12, 16, 24, 32, 48};
};
Scale smoke_scale() {
    Scale s;
    s.windows = {0, 16};
    s.base_steps = 0, s.sft_steps = 120, s.rl_steps = 30, s.problems = 100, s.samples = 2, s.texts = 24;
    s.locality = {8, 16};
    return s;
}

Scale tiny_scale() {
    Scale s = smoke_scale();
    s.sft_steps = s.rl_steps = s.every = 2, s.batch = 4, s.prompts = 2;
    s.problems = s.answered = 8, s.samples = 1, s.texts = 2;
    return s;
}

// ---------------------------------------------------------------------------------------------------------
// Stages: one program each, run once

class Stages {
  public:
    Stages(const std::string& root, const std::string& bin, const std::string& device)
        : root_(root), bin_(bin), device_(device) {
        make_folders(root + "/stages");
    }

    // Runs bin/program with the arguments; `inputs` are the files and model folders it reads, `output` what
    // it leaves, which is removed first. Errors: it fails.
    void run(const std::string& name, const std::string& program, std::vector<std::string> arguments,
             const std::vector<std::string>& inputs, const std::string& output) {
        const std::string path = bin_ + "/" + program, done = root_ + "/stages/" + name;
        arguments.insert(arguments.end(), {"--device", device_, "--precision", "fp32"});
        std::string key = program;
        for (const std::string& a : arguments) key += " " + a;
        key += format("\n%016llx", (unsigned long long)text_hash(read_file(path)));
        for (const std::string& input : inputs)
            key += " " + (std::filesystem::is_directory(input)
                              ? weights_hash(input)
                              : format("%016llx", (unsigned long long)text_hash(read_file(input))));
        std::error_code none;
        if (std::filesystem::exists(output, none) && std::filesystem::exists(done + ".done", none) &&
            read_file(done + ".done") == key) {
            std::printf("%-24s there already\n", name.c_str());
            return;
        }
        std::filesystem::remove_all(done + ".done", none);
        std::filesystem::remove_all(output, none);
        std::printf("%-24s ", name.c_str());
        std::fflush(stdout);
        Timer timer;
        execute(name, path, std::move(arguments), done + ".log");
        write_whole(done + ".done", key);
        std::printf("%6.1f s\n", timer.seconds());
    }

  private:
    static void execute(const std::string& name, const std::string& path, std::vector<std::string> arguments,
                        const std::string& log) {
        std::vector<char*> argv = {const_cast<char*>(path.c_str())};
        for (std::string& a : arguments) argv.push_back(&a[0]);
        argv.push_back(nullptr);
        const pid_t child = fork();
        if (child < 0) fail(std::string("cannot start a process: ") + std::strerror(errno), "try again");
        if (child == 0) {
            const int fd = ::open(log.c_str(), O_WRONLY | O_CREAT | O_TRUNC, 0666);
            if (fd >= 0) dup2(fd, 1), dup2(fd, 2);
            execv(argv[0], argv.data());
            _exit(127);
        }
        int status = 0;
        while (waitpid(child, &status, 0) < 0 && errno == EINTR) continue;
        if (WIFEXITED(status) && WEXITSTATUS(status) == 0) return;
        std::printf("failed\n");
        std::string text = read_file(log);
        std::fprintf(stderr, "%s", text.substr(text.size() > 1500 ? text.size() - 1500 : 0).c_str());
        fail(name + ": " + path + " failed, see " + log,
             "make builds the programs; the same command goes on from here");
    }

    std::string root_, bin_, device_;
};

// ---------------------------------------------------------------------------------------------------------
// The experiment

class Experiment {
  public:
    Experiment(const Options& o, const Scale& scale)
        : seed_(std::to_string(o.seed)), root_(o.out), scale_(scale), stages_(o.out, o.bin, o.device) {
        result_ = {{"schema", 1}, {"seed", o.seed}, {"smoke", o.smoke}, {"arms", Json::array()}};
    }

    // Every stage, and what came out as one JSON object: root/results.json.
    Json run() {
        base();
        for (int window : scale_.windows) arm(window);
        equal_cost();
        cross_sft();
        locality();
        write_whole(root_ + "/results.json", result_.dump(1) + "\n");
        return result_;
    }

    const std::string& base_folder() const { return base_; }
    std::string evaluation(const std::string& name) const { return root_ + "/eval/" + name + "/val"; }

  private:
    using Arguments = std::vector<std::string>;

    static std::string name_of(int window) { return window ? "swa" + std::to_string(window) : "sa"; }

    // {mean, low, high} of the answers to data's problems, sampled at `temperature`.
    Json evaluate(const std::string& name, const std::string& model, const std::string& data,
                  double temperature, const Arguments& more = {}) {
        const std::string out = root_ + "/eval/" + name,
                          samples = std::to_string(temperature > 0 ? scale_.samples : 1);
        Arguments arguments = {"--model",         model,
                               "--data",          data,
                               "--answer-format", "ledger",
                               "--temperature",   temperature > 0 ? "1" : "0",
                               "--samples",       samples,
                               "--slots",         "128",
                               "--limit",         std::to_string(scale_.problems),
                               "--seed",          seed_,
                               "--out",           out};
        arguments.insert(arguments.end(), {"--max-new-tokens", "80"});
        arguments.insert(arguments.end(), more.begin(), more.end());
        stages_.run("eval-" + name, "eval", arguments, {model_folder(model), data}, out);
        const Json summary = read_json(out + "/" + set_name(data) + "/summary.json");
        const Json& interval = summary.at("avg@" + samples + "/interval");
        return {{"mean", summary.at("avg@" + samples)}, {"low", interval[0]}, {"high", interval[1]}};
    }

    // The validation problems, or the first of them.
    std::string validation() const {
        const std::string all = "data/ledger/val.jsonl", path = root_ + "/val.jsonl";
        if (scale_.problems == 0) return all;
        std::string lines;
        JsonLines in(all);
        Json row;
        for (int64_t i = 0; i < scale_.problems && in.next(row); i++) lines += row.dump() + "\n";
        write_whole(path, lines);
        return path;
    }

    // Validation problems that dictate the style: its first symbol is part of the prompt.
    std::string styled_problems(const std::string& style, const std::string& name) const {
        std::string lines;
        JsonLines in("data/ledger/val.jsonl");
        for (Json row; in.next(row);) {
            row["problem"] = row["problem"].get<std::string>() + style;
            lines += row.dump() + "\n";
        }
        const std::string path = root_ + "/" + name + ".jsonl";
        write_whole(path, lines);
        return path;
    }

    // Trains until both styles are known; a base that lacks one leaves nothing to find.
    void base() {
        base_ = "data/ledger/base";
        const std::string local = styled_problems("L", "local"), far = styled_problems("F", "far");
        for (int64_t steps = scale_.base_steps;; steps += scale_.base_steps / 2) {
            const std::string name = "base-" + std::to_string(steps);
            if (scale_.base_steps > 0) {
                base_ = root_ + "/" + name;
                stages_.run(name, "train_gpt_swa",
                            {"--steps", std::to_string(steps), "--seed", seed_, "--out", base_},
                            {"data/ledger/pretrain.jsonl", "data/ledger/config.json"}, base_);
                base_ = model_folder(base_);
            }
            const Json l = evaluate(name + "-local", base_, local, 0),
                       f = evaluate(name + "-far", base_, far, 0);
            result_["base"] = {{"steps", steps}, {"local", l}, {"far", f}};
            const bool knows = l["mean"] >= 0.99 && f["mean"] >= 0.99;
            if (knows || scale_.base_steps == 0) return;
            if (steps + scale_.base_steps / 2 > scale_.base_limit)
                fail(format("after %lld steps the base solves %s of the local and %s of the far problems",
                            (long long)steps, percent(l["mean"]).c_str(), percent(f["mean"]).c_str()),
                     "this seed needs a longer base training than the demo allows; try another --seed");
        }
    }

    std::string sft(const std::string& name, int window, const std::string& data) {
        const std::string out = root_ + "/" + name, steps = std::to_string(scale_.sft_steps);
        stages_.run(name, "sft", {"--model",      base_,
                                  "--data",       data,
                                  "--window",     std::to_string(window),
                                  "--batch-size", std::to_string(scale_.batch),
                                  "--steps",      steps,
                                  "--lr",         "5e-4",
                                  "--min-lr",     "5e-5",
                                  "--warmup",     "20",
                                  "--seed",       seed_,
                                  "--out",        out},
                    {base_, data}, out);
        return model_folder(out);
    }

    // Conversion, SFT and RL at one window.
    void arm(int window) {
        const std::string name = name_of(window), val = validation(), rl = root_ + "/rl-" + name;
        Json a = {{"name", window ? "SWA " + std::to_string(window) : "SA"}, {"window", window}};
        const ModelConfig config = read_config(base_);
        a["receptive"] = window ? config.layers * (window - 1) + 1 : 0;
        a["converted"] = evaluate("converted-" + name, base_, val, 1, {"--window", std::to_string(window)});
        const std::string tuned = sft("sft-" + name, window, "data/ledger/sft.jsonl");
        a["sft"] = evaluate("sft-" + name, tuned, val, 1);
        stages_.run("rl-" + name, "rl_cispo",
                    {"--model",
                     tuned,
                     "--data",
                     "data/ledger/rl.jsonl",
                     "--val-data",
                     val,
                     "--val-samples",
                     "1",
                     "--answer-format",
                     "ledger",
                     "--max-new-tokens",
                     "80",
                     "--slots",
                     "128",
                     "--prompts-per-step",
                     std::to_string(scale_.prompts),
                     "--group-size",
                     "8",
                     "--minibatch",
                     "64",
                     "--steps",
                     std::to_string(scale_.rl_steps),
                     "--warmup",
                     "5",
                     "--lr",
                     "3e-4",
                     "--cispo-weight-max",
                     "2",
                     "--eval-every",
                     std::to_string(scale_.every),
                     "--save-every",
                     std::to_string(scale_.every),
                     "--keep-every",
                     std::to_string(scale_.every),
                     "--seed",
                     seed_,
                     "--out",
                     rl},
                    {tuned, "data/ledger/rl.jsonl", val}, rl);
        a["rl"] = evaluate("rl-" + name, model_folder(rl), val, 1);
        a["local_sft"] = local_share("sft-" + name), a["local_rl"] = local_share("rl-" + name);
        a["curve"] = curve(rl);
        result_["arms"].push_back(a);
    }

    // Share of answers in the local style.
    double local_share(const std::string& name) const {
        double local = 0, n = 0;
        for (const auto& [id, rows] : read_samples(evaluation(name) + "/samples.jsonl"))
            for (const auto& [k, row] : rows) n++, local += row.text.compare(0, 1, "L") == 0;
        return local / n;
    }

    // Per RL step: reward, share of local answers, cost so far; accuracy where it was measured.
    static Json curve(const std::string& run) {
        Json out = {{"step", Json::array()},  {"reward", Json::array()},   {"local", Json::array()},
                    {"flops", Json::array()}, {"val_step", Json::array()}, {"val", Json::array()}};
        double flops = 0;
        JsonLines log(run + "/log.jsonl");
        for (Json row; log.next(row);) {
            if (row.contains("val/val/avg@1"))
                out["val_step"].push_back(row["step"]), out["val"].push_back(row["val/val/avg@1"]);
            const int64_t step = row["step"];
            if (step == 0) continue;
            flops += row["perf/flops"].get<double>();
            double local = 0, n = 0;
            JsonLines rollouts(run + "/rollouts/" + step_name(step) + ".jsonl");
            for (Json r; rollouts.next(r); n++) local += r["text"].get<std::string>().compare(0, 1, "L") == 0;
            out["step"].push_back(step), out["reward"].push_back(row["reward/mean"]);
            out["local"].push_back(local / n), out["flops"].push_back(flops);
        }
        return out;
    }

    // Every arm at the last checkpoint that costs no more than the cheapest arm's whole RL run.
    void equal_cost() {
        double budget = INFINITY;
        for (const Json& a : result_["arms"])
            budget = std::min(budget, a["curve"]["flops"].back().get<double>());
        for (Json& a : result_["arms"]) {
            const std::string name = name_of(a["window"]);
            int64_t step = 0;
            for (size_t i = 0; i < a["curve"]["step"].size(); i++) {
                const int64_t s = a["curve"]["step"][i];
                if (a["curve"]["flops"][i].get<double>() <= budget && s % scale_.every == 0) step = s;
            }
            a["equal_step"] = step;
            const std::string checkpoint = root_ + "/rl-" + name + "/ckpt/" + step_name(step);
            a["equal"] = step == 0                 ? a["sft"]
                         : step == scale_.rl_steps ? a["rl"]
                                                   : evaluate("equal-" + name, checkpoint, validation(), 1);
        }
        result_["budget_flops"] = budget;
    }

    // The small window, freshly converted and fine-tuned on correct answers that RL models wrote.
    void cross_sft() {
        const int small = scale_.windows.back();
        result_["cross"] = Json::array();
        for (int author : {0, small}) {
            const std::string from = name_of(author), data = root_ + "/answers-" + from + ".jsonl",
                              problems = "data/ledger/rl.jsonl", model = model_folder(root_ + "/rl-" + from);
            const std::string samples = root_ + "/eval/answers-" + from;
            stages_.run("answers-" + from, "eval",
                        {"--model",
                         model,
                         "--data",
                         problems,
                         "--answer-format",
                         "ledger",
                         "--samples",
                         "4",
                         "--slots",
                         "128",
                         "--max-new-tokens",
                         "80",
                         "--seed",
                         seed_,
                         "--out",
                         samples,
                         "--write-sft",
                         data,
                         "--sft-per-problem",
                         "1",
                         "--limit",
                         std::to_string(scale_.answered)},
                        {model, problems}, samples);
            JsonLines lines(data);
            int64_t n = 0;
            for (Json row; lines.next(row);) n++;
            const std::string tuned = sft("cross-" + from, small, data);
            result_["cross"].push_back({{"author", from},
                                        {"lines", n},
                                        {"accuracy", evaluate("cross-" + from, tuned, validation(), 1)}});
        }
    }

    // L(w) of every arm's answers before and after RL under the base, and over the steps of RL.
    void locality() {
        const int small = scale_.windows.back();
        std::string windows;
        for (int w : scale_.locality) windows += (windows.empty() ? "" : ",") + std::to_string(w);
        Arguments sets = {"--set", "SFT data=data/ledger/sft.jsonl"}, steps;
        Arguments inputs = {base_, "data/ledger/sft.jsonl"}, step_inputs = {base_};
        for (int window : scale_.windows) {
            const std::string name = name_of(window), title = window ? "SWA " + std::to_string(window) : "SA";
            for (const char* stage : {"sft", "rl"}) {
                const std::string folder = evaluation(stage + ("-" + name));
                sets.insert(sets.end(),
                            {"--set", title + (*stage == 's' ? " before RL=" : " after RL=") + folder});
                inputs.push_back(folder + "/samples.jsonl");
            }
            for (int64_t step = 1; step <= scale_.rl_steps;
                 step += step == 1 ? scale_.every - 1 : scale_.every) {
                const std::string file = root_ + "/rl-" + name + "/rollouts/" + step_name(step) + ".jsonl";
                steps.insert(steps.end(), {"--set", name + " " + std::to_string(step) + "=" + file});
                step_inputs.push_back(file);
            }
        }
        Arguments arguments = {"--scorer", base_,     "--windows",
                               windows,    "--limit", std::to_string(scale_.texts)};
        arguments.insert(arguments.end(), sets.begin(), sets.end());
        arguments.insert(arguments.end(), {"--examples", "2", "--out", root_ + "/locality"});
        stages_.run("locality", "locality", arguments, inputs, root_ + "/locality");
        result_["locality"] = Json::array();
        const Json pooled = read_json(root_ + "/locality/locality.json");
        for (const Json& set : pooled["sets"]) {
            Json row = {{"name", set["name"]}, {"L", Json::array()}};
            for (const Json& w : set["windows"])
                row["L"].push_back(
                    {{"window", w["window"]}, {"mean", w["L"]}, {"low", w["low"]}, {"high", w["high"]}});
            result_["locality"].push_back(row);
        }

        arguments = {
            "--scorer", base_, "--windows", std::to_string(small), "--limit", std::to_string(scale_.texts)};
        arguments.insert(arguments.end(), steps.begin(), steps.end());
        arguments.insert(arguments.end(), {"--examples", "0", "--out", root_ + "/locality-steps"});
        stages_.run("locality-steps", "locality", arguments, step_inputs, root_ + "/locality-steps");
        for (Json& a : result_["arms"]) a["curve"].update({{"L_step", Json::array()}, {"L", Json::array()}});
        const Json by_step = read_json(root_ + "/locality-steps/locality.json");
        for (const Json& set : by_step["sets"]) {
            const std::string name = set["name"];
            const size_t blank = name.find(' ');
            for (Json& a : result_["arms"])
                if (name_of(a["window"]) == name.substr(0, blank)) {
                    a["curve"]["L_step"].push_back(std::stoll(name.substr(blank + 1)));
                    a["curve"]["L"].push_back(set["windows"][0]["L"]);
                }
        }
    }

    std::string seed_, root_, base_;
    Scale scale_;
    Stages stages_;
    Json result_;
};

// ---------------------------------------------------------------------------------------------------------
// What the experiment found

double mean_of(const Json& estimate) {
    return estimate["mean"].get<double>();
}
double L_of(const Json& result, const std::string& set, int window) {
    for (const Json& row : result["locality"])
        for (const Json& w : row["L"])
            if (row["name"] == set && w["window"] == window) return w["mean"];
    fail("no L(" + std::to_string(window) + ") of " + quoted(set),
         "the results are not whole: run the demo again");
}

// The figures in which the finding consists, in points and as L; each with what it must keep to.
struct Finding {
    std::string text;
    double value;
    bool holds;
};
std::vector<Finding> findings(const Json& result) {
    const Json &arms = result["arms"], &full = arms.front(), &small = arms.back();
    const bool smoke = result["smoke"];
    const int window = small["window"];
    const std::string name = small["name"];
    auto gap = [&](const Json& arm, const char* stage) {
        return 100 * (mean_of(full[stage]) - mean_of(arm[stage]));
    };
    auto rise = [&](const std::string& arm) {
        return L_of(result, arm + " after RL", window) - L_of(result, arm + " before RL", window);
    };
    std::vector<Finding> out;
    auto add = [&](const std::string& text, double value, bool holds) {
        out.push_back({text, value, holds});
    };
    const double wide = smoke ? 15 : 40, close = smoke ? 30 : 5, apart = smoke ? 0 : 30;
    add(format("%s behind SA after SFT, points (at least %g)", name.c_str(), wide), gap(small, "sft"),
        gap(small, "sft") >= wide);
    add(format("%s behind SA after RL, points (at most %g)", name.c_str(), close), gap(small, "rl"),
        gap(small, "rl") <= close);
    for (size_t i = 1; i + 1 < arms.size(); i++)
        add(arms[i]["name"].get<std::string>() + " behind SA after SFT, points (less than " + name + ")",
            gap(arms[i], "sft"), gap(arms[i], "sft") < gap(small, "sft"));
    const Json& cross = result["cross"];
    const double better = 100 * (mean_of(cross[1]["accuracy"]) - mean_of(cross[0]["accuracy"]));
    add(format("SFT on its own kind's answers over SFT on SA's, points (at least %g)", apart), better,
        better >= apart);
    add(format("rise of L(%d) by RL, %s (above 0.01)", window, name.c_str()), rise(name), rise(name) > 0.01);
    add(format("rise of L(%d) by RL, SA (at most 0.01)", window), rise("SA"), smoke || rise("SA") <= 0.01);
    return out;
}

using Table = std::vector<std::vector<std::string>>;

// The result as one table in three parts: accuracies and gaps, cross-SFT, locality.
std::vector<std::pair<std::string, Table>> tables(const Json& result) {
    auto share = [](const Json& e) {
        return format("%.1f ±%.1f", 100 * mean_of(e),
                      50 * (e["high"].get<double>() - e["low"].get<double>()));
    };
    Table accuracy = {{"", "keys seen", "receptive field", "converted", "SFT", "gap", "RL", "gap",
                       "equal cost", "gap", "local style"}};
    const Json& full = result["arms"].front();
    for (const Json& a : result["arms"]) {
        const bool windowed = a["window"] != 0;
        auto gap = [&](const char* stage) {
            return windowed ? format("%+.1f", 100 * (mean_of(a[stage]) - mean_of(full[stage])))
                            : std::string("-");
        };
        accuracy.push_back({a["name"], windowed ? a["window"].dump() : "all",
                            windowed ? a["receptive"].dump() : "all", share(a["converted"]), share(a["sft"]),
                            gap("sft"), share(a["rl"]), gap("rl"),
                            share(a["equal"]) + " @" + a["equal_step"].dump(), gap("equal"),
                            format("%.0f%% -> %.0f%%", 100 * a["local_sft"].get<double>(),
                                   100 * a["local_rl"].get<double>())});
    }
    const Json& small = result["arms"].back();
    Table cross = {{"fine-tuned on", "answers", "accuracy"}};
    cross.push_back({"the SFT data", "", share(small["sft"])});
    for (const Json& c : result["cross"])
        cross.push_back({"answers of " +
                             (c["author"] == "sa" ? std::string("SA") : small["name"].get<std::string>()) +
                             " after RL",
                         c["lines"].dump(), share(c["accuracy"])});
    Table locality = {{"L(w) of"}};
    for (const Json& w : result["locality"][0]["L"]) locality[0].push_back("w = " + w["window"].dump());
    for (const Json& set : result["locality"]) {
        std::vector<std::string> row = {set["name"]};
        for (const Json& w : set["L"])
            row.push_back(
                format("%.4f ±%.4f", mean_of(w), (w["high"].get<double>() - w["low"].get<double>()) / 2));
        locality.push_back(row);
    }
    return {{"Accuracy in percent, mean of sampled answers with its 95% interval; gaps to SA in points",
             accuracy},
            {"Cross-SFT: " + small["name"].get<std::string>() + ", freshly converted, fine-tuned on", cross},
            {"Locality under the SA base: 1 = nothing beyond the last w tokens is needed", locality}};
}

// Columns as wide as their widest cell; ± counts as one.
std::string text_of(const Table& table) {
    auto width = [](const std::string& s) {
        return std::count_if(s.begin(), s.end(), [](char c) { return (c & 0xc0) != 0x80; });
    };
    std::vector<long> widest(table[0].size(), 0);
    for (const auto& row : table)
        for (size_t c = 0; c < row.size(); c++) widest[c] = std::max(widest[c], long(width(row[c])));
    std::string out;
    for (const auto& row : table) {
        for (size_t c = 0; c < row.size(); c++) {
            const std::string pad(size_t(widest[c] - width(row[c])), ' ');
            out += (c ? "  " + pad + row[c] : row[c] + pad);
        }
        out += "\n";
    }
    return out;
}

std::string text_of(const std::vector<Finding>& list) {
    std::string out;
    for (const Finding& f : list)
        out += format("%-9s %8.3f  %s\n", f.holds ? "holds" : "DOES NOT", f.value, f.text.c_str());
    return out;
}

// ---------------------------------------------------------------------------------------------------------
// The page

// One answer, every token shaded by its gap at window w under the scorer.
std::string shaded(LocalityScorer<Cpu>& scorer, const ModelSource& source, const Problem& problem,
                   const SampleRow& row, int window) {
    LocalityText text;
    text.id = problem.id;
    text.ids = source.encode(problem.messages, "");
    text.prompt = int(text.ids.size());
    text.ids.insert(text.ids.end(), row.ids.begin(), row.ids.end());
    LocalityOptions options;
    options.windows = {window};
    const TextLocality score = scorer.score({text}, options)[0];
    std::string out = "<div class=text>";
    for (size_t t = 0; t < text.ids.size(); t++) {
        const std::string token = html_escape(source.tokenizer.decode({text.ids[t]}));
        if (int(t) < score.first) {
            out += "<span class=prompt>" + token + "</span>";
            continue;
        }
        const size_t i = t - size_t(score.first);
        const double full = score.full[i], cut = score.cut[0][i];
        out += format(
                   "<span style='background:rgba(214,69,28,%.3f)' title='p %.4f, with the last %d tokens "
                   "only %.4f'>",
                   std::max(0.0, full - cut), full, window, cut) +
               token + "</span>";
    }
    return out + "</div>";
}

// A longest problem that the small window gets wrong before RL and right after it.
void add_example(HtmlReport& page, const Experiment& experiment, const Json& result) {
    const int window = result["arms"].back()["window"];
    const std::string name = "swa" + std::to_string(window);
    Samples before = read_samples(experiment.evaluation("sft-" + name) + "/samples.jsonl"),
            after = read_samples(experiment.evaluation("rl-" + name) + "/samples.jsonl");
    const Problem* chosen = nullptr;
    ProblemKeys keys;
    keys.format = AnswerFormat::ledger;
    const std::vector<Problem> problems = read_problems("data/ledger/val.jsonl", keys);
    auto length = [](const Problem& p) { return p.messages[0]["content"].get<std::string>().size(); };
    for (const Problem& p : problems) {
        if (!before.count(p.id) || !after.count(p.id)) continue;
        const bool shows =
            before[p.id][0].outcome == Outcome::wrong && after[p.id][0].outcome == Outcome::right;
        if (shows && (!chosen || length(p) > length(*chosen))) chosen = &p;
    }
    if (!chosen) return;
    Cpu device;
    const ModelSource source(experiment.base_folder(), ModelOptions{});
    LocalityScorer<Cpu> scorer(device, source.config, source.folder);
    page.html(
        format("<h2>One answer before and after RL (window %d)</h2><p>Shaded: how much probability the base, "
               "with "
               "full attention, loses for a token when it sees the last %d tokens only. Hover for numbers. "
               "Right answer: ",
               window, window) +
        html_escape(chosen->gold.at(0)) + ".</p><p>before RL: wrong</p>" +
        shaded(scorer, source, *chosen, before[chosen->id][0], window) + "<p>after RL: right</p>" +
        shaded(scorer, source, *chosen, after[chosen->id][0], window));
}

void write_page(const std::string& path, const Experiment& experiment, const Json& result) {
    HtmlReport page("The paper in miniature",
                    format("data/ledger, seed %d: from full attention (SA) to a sliding window (SWA)",
                           result["seed"].get<int>()));
    page.html(
        "<p>The task is built to isolate one mechanism: every problem can be solved in a style that keeps "
        "what it needs "
        "nearby and in one that looks back into the prompt; the training data hold mostly the second. The "
        "figures show "
        "that supervised fine-tuning keeps copying the data's style where the window cannot carry it, and "
        "that "
        "on-policy learning shifts to the style that fits. They say nothing about how large the effect is "
        "for a large "
        "model on real problems.</p>");
    for (const auto& [caption, table] : tables(result)) page.table(table, caption);
    Table found = {{"", "value", ""}};
    for (const Finding& f : findings(result))
        found.push_back({html_escape(f.text), format("%.3f", f.value), f.holds ? "holds" : "does not hold"});
    page.table(found, "What must come out");
    const int window = result["arms"].back()["window"];
    auto chart = [&](const std::string& title, const std::string& y, const char* x_key, const char* y_key,
                     double high) {
        std::vector<Series> series;
        for (const Json& a : result["arms"]) {
            Series s{a["name"], {}};
            for (size_t i = 0; i < a["curve"][x_key].size(); i++)
                s.points.push_back({a["curve"][x_key][i], a["curve"][y_key][i]});
            series.push_back(s);
        }
        page.line_chart(title, "RL step", y, series, 0, high);
    };
    page.html("<h2>Over the steps of RL</h2>");
    chart("reward of the rollouts", "mean reward", "step", "reward", 1);
    chart("share of answers in the local style", "share", "step", "local", 1);
    chart("accuracy on the validation problems", "avg@1", "val_step", "val", 1);
    chart(format("L(%d) of the rollouts under the base", window), "L", "L_step", "L", 0);
    add_example(page, experiment, result);
    page.write(path);
}

// ---------------------------------------------------------------------------------------------------------

// One line per seed and finding, then the means.
int summarize(const std::vector<std::string>& folders) {
    Table table;
    std::vector<double> sum;
    bool all = true;
    for (const std::string& folder : folders) {
        const Json result = read_json(folder + "/results.json");
        std::vector<Finding> list = findings(result);
        if (table.empty()) {
            table.push_back({"finding"});
            for (const Finding& f : list) table.push_back({f.text});
            sum.assign(list.size(), 0);
        }
        table[0].push_back("seed " + result["seed"].dump());
        for (size_t i = 0; i < list.size(); i++) {
            table[i + 1].push_back(format("%.3f%s", list[i].value, list[i].holds ? "" : " (no)"));
            sum[i] += list[i].value / double(folders.size());
            all = all && list[i].holds;
        }
    }
    table[0].push_back("mean");
    for (size_t i = 0; i < sum.size(); i++) table[i + 1].push_back(format("%.3f", sum[i]));
    std::printf("%s", text_of(table).c_str());
    return all ? 0 : 1;
}

int main(int argc, char** argv) {
    return run_program("demo", [&] {
        Options o;
        Cli cli("demo", "The paper in miniature: SA and SWA through conversion, SFT and RL.");
        o.add_to(cli);
        if (!cli.parse(argc, argv)) return 0;
        if (!o.summarize.empty()) return summarize(o.summarize);
        if (o.out.empty())
            o.out = "build/demo/" +
                    (o.tiny    ? "tiny"
                     : o.smoke ? "smoke"
                               : "seed_" + std::to_string(o.seed)) +
                    (o.device == "cuda" ? "_cuda" : "");
        Timer timer;
        Experiment experiment(o, o.tiny ? tiny_scale() : o.smoke ? smoke_scale() : Scale());
        const Json result = experiment.run();
        std::string text;
        for (const auto& [caption, table] : tables(result)) text += "\n" + caption + "\n" + text_of(table);
        const std::vector<Finding> list = findings(result);
        text += "\n" + text_of(list);
        write_whole(o.out + "/table.txt", text);
        write_page(o.out + "/report.html", experiment, result);
        std::printf("%s\n%s; written: %s/report.html (open it in a browser), table.txt, results.json\n",
                    text.c_str(), duration_text(timer.seconds()).c_str(), o.out.c_str());
        for (const Finding& f : list)
            if (!f.holds && !o.tiny) return 1;
        return 0;
    });
}
