// eval.cu: samples k answers to each problem, judges them, and says how good the model is, with intervals.
//
//   ./eval                                                     the newest run on the built-in miniature
//   ./eval --model runs/sft --data math500.jsonl --samples 4   avg@4, pass@1..4, maj@4
//   ./eval --model runs/sft --prompt "What is 2+2?"            one answer, streamed
//   ./eval --compare runs/a/eval/step_400 runs/b/eval/step_400 paired difference with its interval
//   ./eval ... --write-sft correct.jsonl                       the correct samples as training data
//   ./eval --model DIR --self-test                             does it see exactly its window?
//
// Samples are appended to OUT/SET/samples.jsonl as they finish; the same command goes on after a kill. A
// sample depends on the model, the prompt, the seed and the sampling options alone.
#include "evaluation.cuh"
#include "overlap.h"
#include "self_test.cuh"
#include "verifier/verify_file.h"

struct Options : EvaluationOptions {
    ModelOptions model;
    std::vector<std::string> data, compare, contamination;
    std::string out, template_name, write_sft, prompt, verify_only, mode = "rl";
    DeviceOptions device;
    std::vector<int> ids;
    int sft_per_problem = 4;
    bool raw = false, logits = false, self_test = false, dry_run = false;

    void add_to(Cli& cli) {
        model.add_to(cli);
        cli.option("--data", data, "JSONL with problem and answer; several: a.jsonl,b.jsonl", "Data")
            ->delimiter(',');
        cli.option("--limit", limit, "only the first problems of each set; 0 = all", "Data")
            ->check(CLI::NonNegativeNumber);
        cli.option("--input-key", input_key, "key of the question; default: the usual names", "Data");
        cli.option("--label-key", label_key, "key of the answer; default: the usual names", "Data");
        cli.option("--answer-format", answer_format,
                   "boxed (\\boxed{} by the verifier) or ledger (\":N\" at the end); a row's "
                   "\"answer_format\" goes first",
                   "Data");
        cli.option("--template", template_name, "chat template; default: the model folder's", "Data");
        cli.option("--system", system, "system prompt, for problems that bring none", "Data");
        cli.option("--contamination", contamination, "training files to search for the problems' texts",
                   "Data")
            ->delimiter(',');
        cli.option("--samples", samples, "answers per problem", "Sampling")->check(CLI::Range(1, 100000));
        cli.option("--temperature", sampling.temperature, "0 = greedy", "Sampling");
        cli.option("--top-p", sampling.top_p, "keep the likeliest tokens of this total share", "Sampling");
        cli.option("--top-k", sampling.top_k, "keep this many likeliest tokens; 0 = all", "Sampling");
        cli.option("--max-new-tokens", max_new_tokens, "longest answer", "Sampling")
            ->check(CLI::Range(1, 1 << 24));
        cli.option("--seed", seed, "of the samples", "Sampling");
        cli.option("--slots", slots, "answers written at once; changes speed and memory only", "Speed")
            ->check(CLI::Range(1, 65536));
        cli.option("--max-tokens-per-pass", max_tokens, "prompt tokens read at once", "Speed")
            ->check(CLI::Range(1, 1 << 26));
        device.add_to(cli, "Speed");
        cli.option("--out", out, "folder of the results; default: beside the model", "Results");
        cli.option("--compare", compare, "two folders of results: the paired difference", "Results")
            ->expected(2);
        cli.option("--write-sft", write_sft, "write the correct samples as fine-tuning data", "Results");
        cli.option("--sft-per-problem", sft_per_problem, "at most so many of one problem; 0 = all", "Results")
            ->check(CLI::NonNegativeNumber);
        cli.option("--prompt", prompt, "answer this one question on stdout", "One text");
        cli.option("--raw", raw, "--prompt is plain text; special tokens such as <s> in it count",
                   "One text");
        cli.option("--ids", ids, "token ids in place of --prompt", "One text")->delimiter(',');
        cli.option("--logits", logits, "print the logits of --prompt or --ids as JSON", "One text");
        cli.option("--self-test", self_test, "check the window on this model, 1-2 seconds", "Checks");
        cli.option("--verify-only", verify_only, "grade a JSONL file of gold and pred or completion",
                   "Checks");
        cli.option("--mode", mode, "of --verify-only: rl or lenient", "Checks")
            ->check(CLI::IsMember({"rl", "lenient"}));
        cli.option("--dry-run", dry_run, "check everything, show prompts and memory, write nothing",
                   "Checks");
    }
};

// ---------------------------------------------------------------------------------------------------------
// One text

std::vector<int> prompt_ids(const Options& o, const ModelSource& s) {
    if (!o.ids.empty()) return o.ids;
    if (o.raw) return s.tokenizer.encode(o.prompt, Specials::recognise);
    return s.encode(Json::array({{{"role", "user"}, {"content", o.prompt}}}), o.system);
}

template <class Device>
int answer_one(const Options& o, const ModelSource& s, Device& device) {
    std::vector<int> ids = prompt_ids(o, s);
    Model<Device> model(device, s.config);
    model.load(s.folder);
    GenerateOptions g = generate_options(o, s, int(ids.size()));
    g.slots = 1;
    Generator<Device> generator(model, g);
    Prompt prompt;
    prompt.key = problem_key(o.prompt);
    prompt.max_new_tokens = o.max_new_tokens;
    prompt.ids = std::move(ids);
    Timer timer;
    generator.add(std::move(prompt));
    auto stream = [&](int64_t, int, int id) {
        if (std::find(g.stop.begin(), g.stop.end(), id) != g.stop.end()) return;
        std::string_view bytes = s.tokenizer.bytes(id);
        std::fwrite(bytes.data(), 1, bytes.size(), stdout);
        std::fflush(stdout);
    };
    Rollout out;
    while (!stop_requested() && generator.step([&](Rollout r) { out = std::move(r); }, stream)) continue;
    std::printf("\n");
    std::fprintf(stderr, "%lld prompt tokens, %lld new ones (%.1f tokens/s), ended by %s\n",
                 (long long)generator.prompt_tokens(), (long long)generator.tokens(),
                 double(generator.tokens()) / timer.seconds(),
                 out.ids.empty()           ? "a signal"
                 : out.stop == Stop::token ? "a stop token"
                                           : "the length limit");
    return 0;
}

template <class Device>
int print_logits(const Options& o, const ModelSource& s, Device& device) {
    std::vector<int> ids = prompt_ids(o, s);
    for (int id : ids)
        if (id < 0 || id >= s.config.vocab)
            throw UsageError(format("--ids: %d is outside the vocabulary of %d", id, s.config.vocab),
                             "ids count from 0");
    if (ids.empty()) throw UsageError("--logits needs --prompt or --ids", "for example --ids 1,403,407");
    Model<Device> model(device, s.config);
    model.load(s.folder);
    Batch batch;
    batch.add(ids.data(), int(ids.size()));
    model.forward(batch);
    const int V = s.config.vocab;
    using S = typename Device::stat;
    Buffer<S, Device> logits(device, size_t(V), Memory::workspace);
    std::vector<S> row(static_cast<size_t>(V));
    std::printf("{\"ids\": %s, \"logits\": [", Json(ids).dump().c_str());
    for (size_t t = 0; t < ids.size(); t++) {
        head_logits(device, logits.data(), model.hidden() + t * size_t(s.config.hidden), model.head(), 1,
                    s.config.hidden, V);
        device.download(row.data(), logits.data(), row.size() * sizeof(S));
        for (int v = 0; v < V; v++)
            std::printf("%s%.9g", v ? ", " : t ? "],\n[" : "\n[", double(row[size_t(v)]));
    }
    std::printf("]]}\n");
    return 0;
}

template <class Device>
int self_test(const ModelSource& s, Device& device) {
    Timer timer;
    const ModelConfig shortened = self_test_config(s.config);
    std::printf("%s\n", window_runs(s.config).c_str());
    std::printf("for the test: %s\n", window_runs(shortened).c_str());
    Model<Device> model(device, shortened);
    model.load(s.folder);
    SelfTest test = window_self_test(model);
    for (const std::string& line : test.lines) std::printf("%s\n", line.c_str());
    if (!test.passed)
        fail(s.folder + ": the window self-test failed", "this is a fault of the program; please report it");
    std::printf("all is well (%.1f s)\n", timer.seconds());
    return 0;
}

// ---------------------------------------------------------------------------------------------------------
// Sets of problems

void contamination_report(const Options& o, const ProblemSet& set, const std::string& out) {
    Json report = overlap_report(set.problems, o.contamination);
    std::printf("%s", overlap_text(set.name, report).c_str());
    if (!out.empty()) write_whole(out + "/contamination.json", report.dump(2) + "\n");
}

// Where results go: below a run, or below runs/ for a model folder.
std::string results_folder(const Options& o, const std::string& model, const ModelSource& s) {
    namespace fs = std::filesystem;
    if (!o.out.empty()) return o.out;
    fs::path folder = fs::path(s.folder).lexically_normal();
    if (folder.filename().empty()) folder = folder.parent_path();
    if (!newest_checkpoint(model).empty()) return model + "/eval/" + folder.filename().string();
    return "runs/eval-" + folder.filename().string();
}

// All sets under one model. Returns the results' folder; empty if a signal ended it.
template <class Device>
std::string evaluate(const Options& o, const std::string& model_path, Device& device, Ranks& ranks) {
    ModelSource s(model_path, o.model, o.template_name);
    s.print();
    std::vector<ProblemSet> sets;
    int longest = 0;
    for (const std::string& path : o.data) {
        sets.push_back(read_set(o, s, path));
        longest = std::max(longest, sets.back().longest);
        for (size_t i = 0; i + 1 < sets.size(); i++)
            if (sets[i].name == sets.back().name)
                throw UsageError("--data: two sets are called " + quoted(sets[i].name),
                                 "results are filed under the file's name: rename one");
    }
    const int room = s.config.max_positions - longest;
    if (room < o.max_new_tokens)
        std::printf(
            "note: the model has %d positions: the answer to the longest prompt ends after %d tokens\n",
            s.config.max_positions, room);
    check_memory(device, o, s, longest);
    if (o.dry_run) {
        for (const ProblemSet& set : sets) {
            dry_run(o, s, set);
            if (!o.contamination.empty()) contamination_report(o, set, "");
        }
        std::printf("dry run: all is well; nothing was written\n");
        return "";
    }

    const std::string out = results_folder(o, model_path, s);
    std::unique_ptr<Model<Device>> model;
    std::unique_ptr<FileWriter> sft;
    if (!o.write_sft.empty() && ranks.first()) sft = std::make_unique<FileWriter>(o.write_sft);
    int64_t sft_lines = 0;
    for (const ProblemSet& set : sets) {
        const std::string path = out + "/" + set.name;
        std::unique_ptr<EvaluationFolder> folder;  // the first rank's
        if (ranks.first()) folder = std::make_unique<EvaluationFolder>(path, settings_of(o, s, set));
        const std::string missing = missing_samples(o, set, folder.get(), ranks);
        bool complete = true;
        if (missing.find('1') != std::string::npos) {
            if (!model) {
                model = std::make_unique<Model<Device>>(device, s.config);
                model->load(s.folder);
            }
            complete = draw_samples(o, s, set, missing, folder.get(), *model, ranks);
        } else {
            std::printf("%s: every sample is there already\n", path.c_str());
        }
        if (folder) {
            Json summary = summarize(folder->settings(), folder->samples());
            write_whole(path + "/summary.json", summary.dump(2) + "\n");
            std::printf("%s", summary_text(summary).c_str());
        }
        if (!complete) {
            std::printf("stopped; the same command goes on here: %s\n", path.c_str());
            return "";
        }
        if (!o.contamination.empty() && folder) contamination_report(o, set, path);
        if (sft)
            sft_lines += write_sft(*sft, set.problems, folder->samples(), o.system, !s.chat.is_plain(),
                                   o.sft_per_problem);
    }
    if (sft) {
        sft->commit();
        std::printf("%s: %lld correct samples as fine-tuning data\n", o.write_sft.c_str(),
                    (long long)sft_lines);
    }
    return out;
}

struct Defaults {
    std::string against, next;  // the model to compare with; the command that follows
};

// Without --model: the newest run. Without --data as well: that run against the base it came from, on the
// miniature's validation set.
Defaults choose_defaults(Cli& cli, Options& o, bool one_text) {
    Defaults chosen;
    const std::string newest = newest_run(), base = "data/ledger/base";
    const bool bare = o.model.model.empty() && o.data.empty();
    if (o.model.model.empty()) {
        o.model.model = newest.empty() ? base : newest;
        cli.chosen("--model", newest.empty() ? "miniature" : "newest run");
        // Standard output is the text's alone.
        std::fprintf(one_text ? stderr : stdout, "no --model: %s, %s; choose another with --model DIR\n",
                     o.model.model.c_str(),
                     newest.empty() ? "the miniature's base, since no run below runs/ has a checkpoint"
                                    : "the newest run");
    }
    if (one_text) {
        if (!cli.given("--temperature")) o.sampling.temperature = 0;
        return chosen;
    }
    if (o.data.empty() && !o.self_test) {
        Miniature mini(cli);
        mini.set("--data", o.data, {"data/ledger/val.jsonl"});
        mini.set("--answer-format", o.answer_format, std::string("ledger"));
        mini.set("--max-new-tokens", o.max_new_tokens, 80);
        std::printf(
            "no --data: data/ledger/val.jsonl, the miniature's; choose another with --data FILE.jsonl\n");
    }
    if (o.sampling.temperature == 0 && o.samples > 1) {
        if (cli.given("--samples"))
            throw UsageError(format("--samples %d at --temperature 0 would all be equal", o.samples),
                             "use --samples 1, or a temperature above 0");
        o.samples = 1;
        cli.chosen("--samples", "greedy");
    }
    if (!bare) return chosen;
    if (newest.empty()) {
        chosen.next = "./sft";
    } else {
        const std::string program = read_json(newest + "/config.json").value("program", "");
        if (program == "sft") chosen.next = "./rl_cispo";
        if (program == "rl_cispo") chosen.next = "./locality";
        const bool plain = o.out.empty() && o.write_sft.empty() && !o.dry_run && !cli.given("--window");
        if (plain) chosen.against = base;
    }
    return chosen;
}

int main(int argc, char** argv) {
    return run_program("eval", [&] {
        Ranks ranks;
        only_first_prints(ranks);
        Options o;
        Cli cli("eval", "Sample answers, judge them, report avg@k, pass@k and maj@k with intervals.");
        o.add_to(cli);
        if (!cli.parse(argc, argv)) return 0;
        if (!o.compare.empty()) {
            if (o.compare.size() != 2)
                throw UsageError("--compare takes two folders",
                                 "for example --compare runs/a/eval/x runs/b/eval/x");
            std::printf("%s", comparison_text(o.compare[0], o.compare[1]).c_str());
            return 0;
        }
        if (!o.verify_only.empty())
            return verifier::verify_file(
                o.verify_only, o.mode == "rl" ? verifier::Mode::rl : verifier::Mode::lenient, stdout, stderr);
        catch_signals();
        ranks.join(o.device.rank_timeout);
        const bool one_text = cli.given("--prompt") || cli.given("--ids") || o.logits;
        const Defaults chosen = choose_defaults(cli, o, one_text);
        check_sampling(o.sampling);
        if (o.self_test || one_text) {
            if (!ranks.first()) return 0;
            ModelSource source(o.model.model, o.model, o.template_name);
            auto body = [&](auto& device) {
                return o.self_test ? self_test(source, device)
                       : o.logits  ? print_logits(o, source, device)
                                   : answer_one(o, source, device);
            };
            return on_device(o.device, Ranks::alone(), body, stderr);
        }
        cli.print();
        return on_device(o.device, ranks, [&](auto& device) {
            std::string before;
            if (!chosen.against.empty()) {
                before = evaluate(o, chosen.against, device, ranks);
                if (before.empty()) return 0;
            }
            const std::string results = evaluate(o, o.model.model, device, ranks);
            if (results.empty() || !ranks.first()) return 0;
            if (!before.empty()) std::printf("%s", comparison_text(before, results).c_str());
            std::printf("results: %s\nnext: %s\n", results.c_str(),
                        chosen.next.empty()
                            ? ("./eval --compare " + results + " OTHER    or    ./eval --model " +
                               o.model.model + " --write-sft correct.jsonl")
                                  .c_str()
                            : chosen.next.c_str());
            return 0;
        });
    });
}
