// evaluation.cuh: draws the samples of an evaluation: reads and encodes a set of problems, finds what its folder
// (evaluate.h) lacks, and judges and appends each sample as it finishes.
//
// A sample depends on the model, the prompt, the seed and the sampling options alone, so that neither slots nor
// passes, nor what was drawn before a kill, changes a file's lines.
#pragma once
#include <string>
#include <vector>

#include "evaluate.h"
#include "memory_plan.h"
#include "rollout.cuh"

// Which problems, and how they are answered.
struct EvaluationOptions {
    std::string system, input_key, label_key, answer_format = "boxed";
    int64_t limit = 0;  // problems of a set; 0: all
    Sampling sampling;
    uint64_t seed = 1;
    int samples = 4, max_new_tokens = 2048, slots = 32, max_tokens = 4096;  // the last: of a prefill
};

inline GenerateOptions generate_options(const EvaluationOptions& o, const ModelSource& s,
                                        int longest_prompt) {
    GenerateOptions g;
    g.sampling = o.sampling;
    g.seed = o.seed;
    g.slots = o.slots;
    g.max_tokens_per_pass = o.max_tokens;
    g.limit = int(std::min<int64_t>(int64_t(longest_prompt) + o.max_new_tokens, s.config.max_positions));
    g.stop = s.stop.ids();
    return g;
}

struct ProblemSet {
    std::string name, path;
    std::vector<Problem> problems;
    std::vector<std::vector<int>> prompts;  // their ids
    int longest = 0;                        // prompt
};

inline ProblemSet read_set(const EvaluationOptions& o, const ModelSource& s, const std::string& path) {
    ProblemSet set;
    set.name = set_name(path);
    set.path = path;
    ProblemKeys keys;
    keys.input = o.input_key, keys.label = o.label_key;
    keys.format = answer_format(o.answer_format, "--answer-format");
    for (EncodedProblem& e : encode_problems({path}, s, keys, o.system, o.limit)) {
        set.longest = std::max(set.longest, int(e.ids.size()));
        set.problems.push_back(std::move(e.problem));
        set.prompts.push_back(std::move(e.ids));
    }
    return set;
}

// All that decides a sample.
inline Json settings_of(const EvaluationOptions& o, const ModelSource& s, const ProblemSet& set) {
    return {{"schema", 1},
            {"set", set.name},
            {"data", set.path},
            {"data_hash", format("%016llx", (unsigned long long)text_hash(read_file(set.path)))},
            {"model", s.folder},
            {"model_hash", weights_hash(s.folder)},
            {"window", window_runs(s.config)},
            {"rope_theta", s.config.rope_theta},
            {"positions", s.config.max_positions},
            {"template", s.chat.name()},
            {"system", o.system},
            {"first_prompt", s.tokenizer.decode(set.prompts[0])},
            {"stop", s.stop.ids()},
            {"answer_format", o.answer_format},
            {"input_key", o.input_key},
            {"label_key", o.label_key},
            {"temperature", o.sampling.temperature},
            {"top_p", o.sampling.top_p},
            {"top_k", o.sampling.top_k},
            {"max_new_tokens", o.max_new_tokens},
            {"seed", o.seed},
            {"samples", o.samples},
            {"limit", o.limit},
            {"problems", set.problems.size()}};
}

// Errors: weights, cache and passes do not fit into memory; the hint names settings that would.
template <class Device>
void check_memory(const Device& device, const EvaluationOptions& o, const ModelSource& s, int longest) {
    const GenerateOptions g = generate_options(o, s, longest);
    check_memory(
        device.free_memory(), {{"--slots", g.slots, 1}, {"--max-tokens-per-pass", g.max_tokens_per_pass, 1}},
        [&](const std::vector<int64_t>& v) -> MemoryPlan {
            GenerateOptions with = g;
            with.slots = int(v[0]), with.max_tokens_per_pass = int(v[1]);
            auto plan = Generator<Device>::plan(s.config, with, longest);
            return {{"weights", double(plan.weights)},
                    {format("KV cache (%d slots of ", with.slots + 1) + bytes_text(double(plan.slot)) + ")",
                     double(plan.cache)},
                    {"activations", double(plan.activations)},
                    {"logits", double(plan.logits)}};
        });
}

// A text with both readings of its answer, the strict one and the lenient one.
inline SampleRow judged(const ModelSource& s, const Problem& p, Rollout r) {
    SampleRow row;
    row.id = p.id;
    row.sample = r.sample;
    row.truncated = r.stop == Stop::length;
    row.logprob = r.logp_sum();
    row.text = answer_text(s.tokenizer, r);
    row.ids = std::move(r.ids);
    Judgement strict = judge(p.format, row.text, p.gold);
    Judgement lenient = judge(p.format, row.text, p.gold, verifier::Mode::lenient);
    row.outcome = strict.outcome, row.answer = strict.answer, row.vote = strict.vote;
    row.lenient = lenient.outcome, row.lenient_answer = lenient.answer;
    return row;
}

// What ./eval would say of a model in training, without files: a summary (evaluate.h) of `k` samples of each
// problem, which are the first k of ./eval for that seed.
template <class Device>
Json evaluate_now(Model<Device>& model, const RolloutOptions& o, const ModelSource& s, const std::string& set,
                  const std::vector<EncodedProblem>& problems, int k, Ranks& ranks) {
    std::vector<const EncodedProblem*> all;
    for (const EncodedProblem& p : problems) all.push_back(&p);
    auto groups = generate_groups(model, o, s.stop.ids(), all, std::vector<int64_t>(all.size(), 0), k, ranks);
    Samples samples;
    for (size_t i = 0; i < groups.size(); i++)
        for (Rollout& r : groups[i]) add_sample(samples, judged(s, all[i]->problem, std::move(r)), set);
    return summarize({{"set", set}, {"samples", k}, {"problems", all.size()}}, samples);
}

// What is to be drawn: a character for every problem and sample, 1 where it is missing. The first rank has the
// folder, and all get its answer.
inline std::string missing_samples(const EvaluationOptions& o, const ProblemSet& set,
                                   const EvaluationFolder* folder, Ranks& ranks) {
    std::string missing;
    if (folder)
        for (const Problem& p : set.problems)
            for (int k = 0; k < o.samples; k++) missing += folder->find(p.id, k) ? '0' : '1';
    return ranks.broadcast("what is missing", missing);
}

// Draws what is missing. The ranks divide the problems among them; every few seconds their samples go to the
// first one, which has the folder (the others: nullptr). False if a signal ended it early.
template <class Device>
bool draw_samples(const EvaluationOptions& o, const ModelSource& s, const ProblemSet& set,
                  const std::string& missing, EvaluationFolder* folder, Model<Device>& model, Ranks& ranks) {
    Generator<Device> generator(model, generate_options(o, s, set.longest));
    int64_t done = 0, right = 0, total = int64_t(missing.size());
    auto count = [&](const SampleRow& row) { done++, right += row.outcome == Outcome::right; };
    size_t problems = 0;  // that lack samples
    for (size_t i = 0; i < set.problems.size(); i++) {
        Prompt prompt;
        prompt.samples.clear();
        for (int k = 0; k < o.samples; k++)
            if (missing[i * size_t(o.samples) + size_t(k)] == '1')
                prompt.samples.push_back(k);
            else if (folder)
                count(*folder->find(set.problems[i].id, k));
        if (prompt.samples.empty() || !ranks.has(problems++)) continue;
        prompt.ids = set.prompts[i];
        prompt.key = problem_key(set.problems[i].id);
        prompt.tag = int64_t(i);
        prompt.max_new_tokens = o.max_new_tokens;
        generator.add(std::move(prompt));
    }
    if (done) std::printf("going on: %lld of %lld samples are there\n", (long long)done, (long long)total);
    Progress progress(total);
    Timer timer;
    double tokens = 0;          // of all ranks
    std::string for_the_first;  // lines of this rank's samples
    auto take = [&](const SampleRow& row) {
        count(row);
        folder->append(row);
        progress.update(done, format("%.1f%% right | %d running | %.0f tok/s",
                                     100 * double(right) / double(done), generator.running(),
                                     std::max(tokens, double(generator.tokens())) / timer.seconds()));
    };
    auto finish = [&](Rollout r) {
        const Problem& problem = set.problems[size_t(r.tag)];
        const SampleRow row = judged(s, problem, std::move(r));
        if (folder)
            take(row);
        else
            for_the_first += evaluate_detail::line(to_json(row));
    };
    for (bool work = true, more = true; more;) {
        Timer turn;
        while (work && !stop_requested() && (ranks.size() == 1 || turn.seconds() < 2))
            work = generator.step(finish);
        for (const std::string& lines : ranks.gather("finished samples", std::exchange(for_the_first, ""))) {
            std::istringstream in(lines);
            for (std::string line; std::getline(in, line);)
                take(sample_row(Json::parse(line), "another rank"));
        }
        tokens = ranks.sum("tokens", double(generator.tokens()));
        const bool stop = ranks.any("whether to stop", stop_requested());
        more = ranks.any("whether there is more", work) && !stop;
    }
    if (ranks.any("whether samples are missing", folder && done < total)) return false;
    std::printf("%.0f tokens in %s: %.0f tokens/s\n", tokens, duration_text(timer.seconds()).c_str(),
                tokens / timer.seconds());
    return true;
}

// Three prompts as the model will read them, and a few tokens from a toy copy.
inline void dry_run(const EvaluationOptions& o, const ModelSource& s, const ProblemSet& set) {
    ModelConfig toy = s.config;
    toy.layers = 1, toy.hidden = 32, toy.heads = toy.kv_heads = 2, toy.head_dim = 16, toy.ff = 64;
    toy.window.resize(1);
    Cpu device;
    Model<Cpu> model(device, toy);
    model.initialize(1);
    GenerateOptions g = generate_options(o, s, set.longest);
    g.slots = std::min(g.slots, 4);
    Generator<Cpu> generator(model, g);
    for (size_t i = 0; i < std::min<size_t>(3, set.problems.size()); i++) {
        std::printf("--- %s: %zu tokens, gold %s\n%s\n", set.problems[i].id.c_str(), set.prompts[i].size(),
                    Json(set.problems[i].gold).dump(-1, ' ', false, Json::error_handler_t::replace).c_str(),
                    s.tokenizer.decode(set.prompts[i]).c_str());
        Prompt prompt;
        prompt.ids = set.prompts[i];
        prompt.max_new_tokens = 4;
        generator.add(std::move(prompt));
    }
    while (generator.step([](Rollout) {})) continue;
    std::printf("--- %lld tokens from a toy copy\n", (long long)generator.tokens());
}
