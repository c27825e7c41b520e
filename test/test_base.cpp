// The committed base model of the miniature: it knows both styles of solution, greedily and sampled.
#include "check.h"
#include "rollout.cuh"

namespace {

// Share of right answers to the first `count` validation problems, in the style that starts with `style`.
double share_right(Model<Cpu>& model, const ModelSource& source, const std::string& style, double temperature,
                   int64_t count, int samples) {
    ProblemKeys keys;
    keys.format = AnswerFormat::ledger;
    std::vector<EncodedProblem> problems =
        encode_problems({"data/ledger/val.jsonl"}, source, keys, "", count);
    std::vector<const EncodedProblem*> all;
    for (EncodedProblem& p : problems) {
        p.ids.push_back(source.tokenizer.encode(style).at(0));
        all.push_back(&p);
    }
    RolloutOptions o;
    o.sampling.temperature = temperature;
    o.max_new_tokens = 80;
    o.slots = 128;
    auto groups =
        generate_groups(model, o, source.stop.ids(), all, std::vector<int64_t>(all.size(), 0), samples);
    StepRollouts marked;
    for (size_t i = 0; i < groups.size(); i++) add_group(marked, o, source, *all[i], groups[i], false);
    return marked.statistics.right / double(marked.rows.size());
}

}  // namespace

TEST_CASE("the miniature's base model knows both styles") {
    Threads one(1);
    const ModelSource source("data/ledger/base", ModelOptions{});
    REQUIRE(source.config.window == std::vector<int>{0, 0});
    Cpu device;
    Model<Cpu> model(device, source.config);
    model.load(source.folder);
    for (const char* style : {"L", "F"}) {
        INFO("style " << style);
        REQUIRE(share_right(model, source, style, 0, 300, 1) >= 0.99);
        REQUIRE(share_right(model, source, style, 1, 300, 2) >= 0.98);
    }

    // Seen through a window of 16 keys it is lost: that is what the miniature starts from.
    ModelConfig narrow = source.config;
    set_window(narrow, 16, {}, 0);
    Model<Cpu> cut(device, narrow);
    cut.load(source.folder);
    REQUIRE(share_right(cut, source, "F", 0, 100, 1) < 0.25);
}
