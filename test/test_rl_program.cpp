// Drives ./rl_cispo on the miniature: kill and resume at every step, on-policy weights, texts equal to
// ./eval's, damaged weights, refill, the random-reward control, refusals.
#include <signal.h>

#include "check.h"
#include "checkpoint.h"
#include "evaluate.h"
#include "program.h"

namespace {

const std::string base = std::filesystem::absolute("data/ledger/base"),
                  data = std::filesystem::absolute("data/ledger/rl.jsonl"),
                  val = std::filesystem::absolute("data/ledger/val.jsonl");

// A small step: 4 problems, 4 answers each, 2 updates, window 16.
const std::string usual =
    "--model " + base + " --window 16 --data " + data +
    " --answer-format ledger --max-new-tokens 60 --prompts-per-step 4 --group-size 4 --minibatch 8 --lr 1e-3 "
    "--threads 1 ";

ProgramResult rl(const ScratchFolder& dir, const std::string& arguments) {
    return run_in(dir.path, "rl_cispo", arguments);
}

// Everything in log lines but the clock's numbers.
std::vector<Json> log_of(const std::string& run) {
    std::vector<Json> out;
    JsonLines in(run + "/log.jsonl");
    for (Json row; in.next(row);) {
        Json kept = Json::object();
        for (auto& [key, value] : row.items())
            if (key.compare(0, 4, "time") != 0 && key.find("per_s") == std::string::npos) kept[key] = value;
        out.push_back(kept);
    }
    return out;
}

std::string weights(const std::string& run, int64_t step) {
    return bytes_of_file(run + "/ckpt/" + step_name(step) + "/model.safetensors") +
           bytes_of_file(run + "/ckpt/" + step_name(step) + "/optimizer.safetensors");
}

}  // namespace

TEST_CASE("rl_cispo: resumed after any step, equal to a run that never stopped; on-policy numbers",
          "[program][rl]") {
    ScratchFolder dir;
    ProgramResult r = rl(dir, usual + "--steps 5 --save-every 1 --keep-last 10 --out whole");
    INFO(r.out << r.err);
    REQUIRE(r.code == 0);
    const std::vector<Json> whole = log_of(dir / "whole");
    REQUIRE(whole.size() == 5);
    for (const Json& row : whole) {
        REQUIRE(row["mismatch/logprob_abs_diff/max"] == 0);
        REQUIRE(row["mismatch/weight_not_one_frac"] == 0);
        REQUIRE(row["perf/flops"] > 1e6);
    }
    const std::string end = weights(dir / "whole", 5);
    for (int stop = 1; stop < 5; stop++) {
        const std::string run = "stop" + std::to_string(stop);
        REQUIRE(rl(dir, usual + format("--steps %d --save-every 1 --out ", stop) + run).code == 0);
        // Killed while it writes: what follows the last DONE does not count.
        make_folders(dir / (run + "/ckpt/.tmp_" + step_name(stop + 1)));
        std::ofstream(dir / (run + "/log.jsonl"), std::ios::app) << "{\"step\":99,\"lo";
        r = rl(dir, "--resume " + run + " --steps 5");
        INFO(r.out << r.err);
        REQUIRE(r.code == 0);
        REQUIRE((weights(dir / run, 5) == end));
        REQUIRE(log_of(dir / run) == whole);
        for (int step = 1; step <= 5; step++)
            REQUIRE((bytes_of_file(dir / (run + "/rollouts/" + step_name(step) + ".jsonl")) ==
                     bytes_of_file(dir / ("whole/rollouts/" + step_name(step) + ".jsonl"))));
    }

    // A resumed run keeps its options.
    r = rl(dir, "--resume stop1 --group-size 8");
    REQUIRE(r.code == 1);
    REQUIRE(r.err.find("--resume: --group-size is 8 here and 4 in stop1/config.json") != std::string::npos);

    // Two threads, other slots: the same bits.
    r = rl(dir, usual + "--steps 2 --out other --threads 2 --slots 3");
    REQUIRE(r.code == 0);
    REQUIRE((weights(dir / "other", 2) == weights(dir / "whole", 2)));
}

TEST_CASE("rl_cispo: kill -9 and Ctrl-C in the middle, then resumed", "[program][rl]") {
    ScratchFolder dir;
    const std::string options = usual + "--steps 12 --save-every 1 --out ";
    REQUIRE(rl(dir, options + "whole").code == 0);
    const std::string end = weights(dir / "whole", 12);
    for (const char* signal : {"KILL", "INT"}) {
        const std::string run = signal;
        dir.put("kill.sh", "cd '" + dir.path + "'\n'" + program_path("rl_cispo") + "' " + options + run +
                               " >log 2>&1 &\n"
                               "for i in $(seq 400); do [ -e " +
                               run + "/ckpt/step_000002/DONE ] && break; sleep 0.02; done\nkill -" + signal +
                               " $!\nwait $!\n");
        const int status = std::system(("sh '" + dir.path + "/kill.sh' 2>/dev/null").c_str());
        if (run == "INT") REQUIRE(WEXITSTATUS(status) == 0);
        ProgramResult r = rl(dir, "--resume " + run);
        INFO(r.out << r.err);
        REQUIRE(r.code == 0);
        REQUIRE((weights(dir / run, 12) == end));
    }
}

TEST_CASE("rl_cispo: its first texts are those of eval", "[program][rl]") {
    ScratchFolder dir;
    REQUIRE(rl(dir, usual + "--steps 1 --seed 7 --out a").code == 0);
    ProgramResult r =
        run_in(dir.path, "eval",
               "--model " + base + " --window 16 --data " + data +
                   " --answer-format ledger --max-new-tokens 60 --samples 4 --seed 7 --threads 1 "
                   "--limit 600 --out e");
    INFO(r.out << r.err);
    REQUIRE(r.code == 0);
    Samples samples = read_samples(dir / "e/rl/samples.jsonl");
    JsonLines in(dir / "a/rollouts/step_000001.jsonl");
    int n = 0;
    for (Json row; in.next(row); n++) {
        const SampleRow& same = samples[row["id"]][row["sample"]];
        REQUIRE(row["text"] == same.text);
        REQUIRE(row["ids"] == Json(same.ids));
        REQUIRE(row["outcome"] == outcome_name(same.outcome));
    }
    REQUIRE(n == 16);
}

TEST_CASE("rl_cispo: damaged weights never train", "[program][rl]") {
    ScratchFolder dir;
    make_folders(dir / "m");
    for (auto& entry : std::filesystem::directory_iterator(base))
        std::filesystem::copy(entry.path(), dir.path + "/m");
    // The last four bytes are one weight: a NaN.
    std::string bytes = bytes_of_file(dir / "m/model.safetensors");
    const unsigned char nan[4] = {0, 0, 0xc0, 0x7f};
    std::copy(nan, nan + 4, bytes.end() - 4);
    dir.put("m/model.safetensors", bytes);
    ProgramResult r =
        rl(dir, "--model m --data " + data + " --answer-format ledger --max-new-tokens 60 --steps 1 --out a");
    INFO(r.out << r.err);
    REQUIRE(r.code == 1);
    REQUIRE(r.err.find("NaN") != std::string::npos);
    REQUIRE(!std::filesystem::exists(dir / "a/ckpt/step_000001"));
}

TEST_CASE("rl_cispo: updates that are not finite", "[program][rl]") {
    ScratchFolder dir;
    // After the first update no number is finite: the second is skipped, and the next rollout says why it stops.
    ProgramResult r = rl(dir, usual + "--lr 1e30 --steps 3 --save-every 1 --out huge");
    INFO(r.out << r.err);
    REQUIRE(r.code == 1);
    REQUIRE(r.err.find("the model's logits are not finite") != std::string::npos);
    REQUIRE(log_of(dir / "huge")[0]["skipped_updates"] == 1);
    REQUIRE(log_of(dir / "huge")[0]["loss"] == "nan");
    REQUIRE(
        newest_checkpoint(dir / "huge").empty());  // weights in trouble are not saved as if they were good

    // Too many in a row, within one step, stop the run.
    r = rl(dir, usual + "--lr 1e30 --minibatch 4 --max-skips 1 --steps 3 --save-every 1 --out many");
    REQUIRE(r.code == 1);
    REQUIRE(r.err.find("2 updates in a row had a loss or gradient that is not finite") != std::string::npos);
    REQUIRE(newest_checkpoint(dir / "many").empty());
}

TEST_CASE("rl_cispo: what a step logs", "[program][rl]") {
    ScratchFolder dir;
    // Every metric has its explanation. Answers that the limit cut are not "unparsed" in a validation, as in
    // eval's; masked ones are marked as not trained on.
    dir.put("val.jsonl", [&] {
        std::string lines;
        std::istringstream in(bytes_of_file(val));
        for (std::string line; lines.size() < 800 && std::getline(in, line);) lines += line + "\n";
        return lines;
    }());
    ProgramResult r =
        rl(dir, usual + "--max-new-tokens 30 --truncated mask --kl-coef 0.01 --val-data val.jsonl " +
                    "--val-samples 2 --steps 5 --log-every 2 --eval-every 3 --out a");
    INFO(r.out << r.err);
    REQUIRE(r.code == 0);
    const std::vector<Json> log = log_of(dir / "a");
    std::vector<int> steps;
    for (const Json& row : log) steps.push_back(row["step"]);
    REQUIRE(steps == std::vector<int>{0, 2, 3, 4, 5});  // --log-every, validations, the end
    for (const Json& row : log)
        for (const auto& [name, value] : row.items())
            if (name != "schema") REQUIRE(!explain(name).empty());
    for (const char* name : {"avg@2", "pass@2", "maj@2", "unparsed", "truncated"})
        REQUIRE(log.back().contains(std::string("val/val/") + name));
    REQUIRE(log[0]["val/val/truncated"] > 0.3);
    REQUIRE(log[0]["val/val/unparsed"] == 0);
    int cut = 0;
    JsonLines in(dir / "a/rollouts/step_000001.jsonl");
    for (Json row; in.next(row);) {
        REQUIRE(row["trained"] == (row["stop"] == "token"));
        cut += row["stop"] == "length";
    }
    REQUIRE(cut > 0);

    // A resumed run measures its KL term against the model it started from, though --model went on since.
    REQUIRE(rl(dir, usual + "--steps 1 --out start").code == 0);
    const std::string from_start =
        "--model start --data " + data +
        " --answer-format ledger --max-new-tokens 60 --prompts-per-step 4 --minibatch 8 "
        "--group-size 4 --lr 1e-3 --kl-coef 1 --threads 1 ";
    REQUIRE(rl(dir, from_start + "--steps 2 --out whole").code == 0);
    REQUIRE(rl(dir, from_start + "--steps 1 --out part").code == 0);
    REQUIRE(rl(dir, "--resume start --steps 2").code == 0);
    REQUIRE(rl(dir, "--resume part --steps 2").code == 0);
    REQUIRE((weights(dir / "part", 2) == weights(dir / "whole", 2)));

    // A run whose time is over does no further step.
    REQUIRE(rl(dir, usual + "--steps 1000 --max-time 0.01 --out late").code == 0);
    REQUIRE(log_of(dir / "late").size() == 1);
    r = rl(dir, "--resume late");
    REQUIRE(r.code == 0);
    REQUIRE(r.out.find("stopped early") != std::string::npos);
    REQUIRE(log_of(dir / "late").size() == 1);
}

TEST_CASE("rl_cispo: groups without spread are replaced within a limit; a coin teaches nothing",
          "[program][rl]") {
    ScratchFolder dir;
    ProgramResult r = rl(dir, usual + "--max-new-tokens 3 --refill 3 --steps 1 --out short");
    INFO(r.out << r.err);
    REQUIRE(r.code == 0);
    Json row = log_of(dir / "short")[0];
    REQUIRE(row["cursor"] == 16);
    REQUIRE(row["reward/zero_std_frac"] == 1);
    REQUIRE(row["actor/updates"] == 0);
    REQUIRE(row["actor/empty_minibatches"] == 2);

    // With true rewards a few steps help; with a coin's they do not.
    const std::string learn =
        "--model " + base + " --window 16 --data " + data + " --val-data " + val +
        " --val-samples 1 --answer-format ledger --max-new-tokens 60 --slots 128 --minibatch 64 "
        "--lr 3e-4 --cispo-weight-max 2 --threads 1 --steps 15 --out ";
    REQUIRE(rl(dir, learn + "coin --random-reward").code == 0);
    std::vector<Json> coin = log_of(dir / "coin");
    // The rollouts hold the rewards that were trained on.
    JsonLines in(dir / "coin/rollouts/step_000001.jsonl");
    double heads = 0, n = 0, unlike = 0;
    for (Json row; in.next(row); n++) {
        heads += row["reward"].get<double>();
        unlike += row["reward"] != (row["outcome"] == "right" ? 1 : 0);
    }
    REQUIRE(heads / n == Approx(0.5).margin(0.15));
    REQUIRE(unlike > n / 4);
    REQUIRE(coin.back()["val/val/avg@1"].get<double>() < coin.front()["val/val/avg@1"].get<double>() + 0.1);
}

TEST_CASE("rl_cispo: refused options say why", "[program][rl]") {
    ScratchFolder dir;
    auto refused = [&](const std::string& options, const std::string& text) {
        ProgramResult r = rl(dir, usual + options);
        INFO(options << "\n" << r.err);
        REQUIRE(r.code == 2);
        REQUIRE(r.err.find(text) != std::string::npos);
    };
    refused("--top-p 0.9",
            "error: rl_cispo: --top-p and --top-k cut the distribution that is trained\nhint: leave them "
            "at 1 and 0, or add --force-truncated-sampling");
    refused("--top-k 3", "--top-p and --top-k cut the distribution that is trained");
    refused("--cispo-weight-min 3 --cispo-weight-max 2",
            "--cispo-weight-min 3 is above --cispo-weight-max 2");
    refused("--rollout-weight-max 2", "--rollout-weight-max needs --old-logprobs recompute");
    refused("--truncated maybe", "--truncated");
    for (const char* name : {"--group-size", "--prompts-per-step", "--val-samples", "--minibatch", "--slots",
                             "--overlong-buffer", "--max-new-tokens", "--max-tokens-per-pass"})
        refused(std::string(name) + " 1000000000000",
                std::string(name) + ": Value 1000000000000 not in range");
    refused("--prompts-per-step 1000000 --group-size 1000",
            "--prompts-per-step 1000000 times --group-size 1000 are 1000000000 answers a step");
    REQUIRE(rl(dir, "--model " + base).err.find("--model and --data are both needed") != std::string::npos);
    REQUIRE(rl(dir, "--explain actor/clip_ratio").out.find("actor/clip_ratio: share of tokens") == 0);
    REQUIRE(rl(dir, "--explain nothing").err.find("no metric is called \"nothing\"") != std::string::npos);
    REQUIRE(rl(dir, "").err.find("no run of ./sft below runs/ to start from") != std::string::npos);

    // Forced: allowed, and the weights of the first update are then the kept shares.
    ProgramResult r = rl(dir, usual + "--top-k 2 --force-truncated-sampling --steps 1 --out forced");
    INFO(r.err);
    REQUIRE(r.code == 0);
    Json row = log_of(dir / "forced")[0];
    REQUIRE(row["mismatch/logprob_abs_diff/max"] == 0);
    REQUIRE(row["mismatch/weight_not_one_frac"] > 0.01);
    for (const char* way : {"mask", "soft"})
        REQUIRE(rl(dir, usual + "--steps 1 --truncated " + way + " --out " + way).code == 0);
    REQUIRE(
        rl(dir, usual + "--steps 1 --old-logprobs recompute --rollout-weight-max 2 --kl-coef 0.01 --out kl")
            .code == 0);
    row = log_of(dir / "kl")[0];
    REQUIRE(row["mismatch/weight_not_one_frac"] == 0);
    REQUIRE(row.contains("actor/kl"));
}
