// The programs with several ranks: as with one, to rounding where gradients are summed, bit for bit where texts
// are written; what one rank saved another number goes on with; a rank that is killed.
#include "check.h"
#include "checkpoint.h"
#include "launch.h"
#include "program.h"

namespace {

const std::string base = std::filesystem::absolute("data/ledger/base"),
                  ledger = std::filesystem::absolute("data/ledger");

void near(const std::vector<double>& a, const std::vector<double>& b, size_t n) {
    REQUIRE(a.size() == n);
    REQUIRE(b.size() == n);
    for (size_t i = 0; i < n; i++) CHECK(a[i] == Approx(b[i]).epsilon(2e-5));
}

// Runs a program with that many ranks, by MPI where it is there.
void run_ranks(int ranks, const std::string& name, const std::string& arguments, bool by_mpi = false) {
    ScratchFolder dir;
    const std::string command = "'" + program_path(name) + "' " + arguments;
    const Launched l =
        by_mpi && have_mpi() ? launch_by_mpi(ranks, command) : launch_by_file(dir, ranks, command);
    INFO(command << "\n" << l.all_err());
    for (int code : l.code) REQUIRE(code == 0);
    for (size_t r = 1; r < l.err.size(); r++) CHECK(l.err[r] == "");  // the first one speaks for all
}
void run_one(const std::string& name, const std::string& arguments) {
    const ProgramResult r = run_in(".", name, arguments);
    INFO(r.out << r.err);
    REQUIRE(r.code == 0);
}

}  // namespace

TEST_CASE("ranks: sft agrees with one rank in every step, and goes on with another number",
          "[program][ranks]") {
    ScratchFolder dir;
    const std::string usual = "--model " + base + " --data " + ledger + "/sft.jsonl --val-data " + ledger +
                              "/sft.jsonl --limit 30 --window 16 --batch-size 7 --max-tokens-per-pass 200 "
                              "--steps 10 --save-every 5 --keep-last 9 --threads 1 --lr 1e-4 --out ";
    run_one("sft", usual + (dir / "one"));
    run_ranks(2, "sft", usual + (dir / "two"));
    run_ranks(3, "sft", usual + (dir / "three"), true);
    for (const char* key : {"loss", "grad_norm", "tokens", "target_tokens"}) {
        INFO(key);
        near(logged(dir / "two", key), logged(dir / "one", key), 10);
        near(logged(dir / "three", key), logged(dir / "one", key), 10);
    }
    near(logged(dir / "two", "val/loss"), logged(dir / "one", "val/loss"), 1);
    auto files = [&](const std::string& run, int step) {
        const std::string folder = dir / (run + "/ckpt/" + step_name(step));
        return std::vector<std::string>{folder + "/model.safetensors", folder + "/optimizer.safetensors"};
    };
    for (int i = 0; i < 2; i++)
        CHECK(std::filesystem::file_size(files("one", 10)[size_t(i)]) ==
              std::filesystem::file_size(files("two", 10)[size_t(i)]));

    // Two ranks go on from what three have saved, and one from what two have.
    for (const char* run : {"two", "three"})
        std::filesystem::remove_all(dir / (std::string(run) + "/ckpt/step_000010"));
    run_ranks(2, "sft", "--resume " + (dir / "three"));
    run_one("sft", "--resume " + (dir / "two"));
    for (const char* run : {"two", "three"})
        for (const char* key : {"loss", "grad_norm"})
            near(logged(dir / run, key), logged(dir / "one", key), 10);
    // The same number of ranks: the same bits as a run that never stopped.
    run_ranks(2, "sft", usual + (dir / "again"));
    const std::string whole = bytes_of_file(files("again", 10)[0]) + bytes_of_file(files("again", 10)[1]);
    std::filesystem::remove_all(dir / "again/ckpt/step_000010");
    run_ranks(2, "sft", "--resume " + (dir / "again"));
    CHECK((whole == bytes_of_file(files("again", 10)[0]) + bytes_of_file(files("again", 10)[1])));
}

TEST_CASE("ranks: more ranks than sequences", "[program][ranks]") {
    ScratchFolder dir;
    const std::string usual = "--model " + base + " --data " + ledger +
                              "/sft.jsonl --limit 5 --batch-size 1 --steps 2 --threads 1 --out ";
    run_one("sft", usual + (dir / "one"));
    run_ranks(2, "sft", usual + (dir / "two"));
    near(logged(dir / "two", "loss"), logged(dir / "one", "loss"), 2);
}

TEST_CASE("ranks: rl_cispo writes the same answers, bit for bit, and learns the same", "[program][ranks]") {
    ScratchFolder dir;
    const std::string usual =
        "--model " + base + " --window 16 --data " + ledger + "/rl.jsonl --val-data " + ledger +
        "/val.jsonl --limit 40 --val-samples 1 --answer-format ledger --max-new-tokens 60 --prompts-per-step "
        "5 "
        "--group-size 4 --minibatch 8 --refill 1 --old-logprobs recompute --kl-coef 0.01 --lr 1e-5 --steps 2 "
        "--threads 1 --eval-every 100 --out ";
    run_one("rl_cispo", usual + (dir / "one"));
    run_ranks(2, "rl_cispo", usual + (dir / "two"), true);
    const std::string first = "/rollouts/step_000001.jsonl";
    CHECK((bytes_of_file(dir / ("one" + first)) == bytes_of_file(dir / ("two" + first))));
    CHECK(!bytes_of_file(dir / ("one" + first)).empty());
    for (const char* key : {"loss", "actor/grad_norm", "actor/entropy", "actor/ratio/mean", "actor/kl",
                            "reward/mean", "response_length/mean", "actor/updates", "cursor"}) {
        INFO(key);
        const std::vector<double> a = logged(dir / "one", key), b = logged(dir / "two", key);
        REQUIRE(a.size() == 2);
        REQUIRE(b.size() == 2);
        for (size_t i = 0; i < 2; i++) CHECK(a[i] == Approx(b[i]).epsilon(1e-4).margin(1e-6));
    }
    for (const char* key : {"mismatch/logprob_abs_diff/max", "mismatch/weight_not_one_frac"})
        CHECK(logged(dir / "two", key) == std::vector<double>(2, 0.0));
    CHECK(logged(dir / "one", "val/val/avg@1").front() == logged(dir / "two", "val/val/avg@1").front());
}

TEST_CASE("ranks: eval draws the same samples, and goes on with what is missing", "[program][ranks]") {
    ScratchFolder dir;
    const std::string usual = "--model " + base + " --data " + ledger +
                              "/val.jsonl --answer-format ledger --max-new-tokens 60 --samples 2 --slots 6 "
                              "--threads 1 ";
    run_one("eval", usual + "--limit 20 --out " + (dir / "one"));
    run_ranks(2, "eval", usual + "--limit 20 --out " + (dir / "two"));
    run_ranks(3, "eval", usual + "--limit 9 --out " + (dir / "three"), true);
    run_ranks(2, "eval", usual + "--limit 20 --out " + (dir / "three"));
    const std::vector<std::string> samples = sorted_lines(dir / "one/val/samples.jsonl");
    CHECK(samples.size() == 40);
    CHECK(samples == sorted_lines(dir / "two/val/samples.jsonl"));
    CHECK(samples == sorted_lines(dir / "three/val/samples.jsonl"));
    CHECK(bytes_of_file(dir / "one/val/summary.json") == bytes_of_file(dir / "two/val/summary.json"));
}

TEST_CASE("ranks: a killed rank ends the others of a training run, which name it", "[program][ranks]") {
    ScratchFolder dir;
    const std::string command =
        "$KILLED '" + program_path("sft") + "' --model " + base + " --data " + ledger +
        "/sft.jsonl --limit 30 --steps 1000000 --threads 1 --rank-timeout 20 --out " + (dir / "run");
    const Launched l =
        launch_by_file(dir, 2, command, "KILLED=; test $SWARR_RANK = 0 || KILLED='timeout -s KILL 2'");
    INFO(l.all_err());
    CHECK(l.code[0] == 1);
    CHECK(l.err[0].find("error: sft: rank 1 of 2 has ended before ") != std::string::npos);
}

TEST_CASE("ranks: errors", "[program][ranks]") {
    ScratchFolder dir;
    for (const std::string& arguments : {std::string("--no-such-option"), "--out " + dir.path + " --lr x"}) {
        const Launched l = launch_by_file(dir, 2, "'" + program_path("sft") + "' " + arguments);
        for (int code : l.code) CHECK(code == 2);
    }
    const Launched help = launch_by_file(dir, 2, "'" + program_path("eval") + "' --help");
    for (int code : help.code) CHECK(code == 0);
    CHECK(help.err[1] == "");
    const Launched alone = launch_by_file(dir, 2, "'" + program_path("locality") + "'");
    CHECK(alone.err[0].find("error: locality: locality is the work of one process") != std::string::npos);
}
