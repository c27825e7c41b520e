// The programs on two devices, one rank on each: as on one.
#include "../check.h"
#include "../collectives.h"
#include "../program.h"

namespace {

const std::string ledger = std::filesystem::absolute("data/ledger");

void on_one(const std::string& name, const std::string& arguments) {
    const ProgramResult r = run_in(".", name, arguments);
    INFO(r.out << r.err);
    REQUIRE(r.code == 0);
}
void on_two(const std::string& name, const std::string& arguments) {
    ScratchFolder dir;
    const Launched l = launch_by_file(dir, 2, "'" + program_path(name) + "' " + arguments,
                                      "export CUSIM_DEVICES=2 CUSIM_NCCL_TIMEOUT=60 OMP_NUM_THREADS=1");
    all_well(l);
    CHECK(has(l.err[0], "ranks: 2, 2 on this machine"));
}
}  // namespace

TEST_CASE("cuda: two ranks agree with one: losses, the same texts, a checkpoint for either",
          "[cuda][program][ranks]") {
    if (!several_devices()) return;
    ScratchFolder dir;
    for (const std::string precision : {"fp32", "bf16"}) {
        INFO(precision);
        const std::string cuda = " --device cuda --precision " + precision, out = dir / precision;
        const double epsilon = precision == "fp32" ? 1e-5 : 1e-3;
        const std::string sft = "--model " + ledger + "/base --data " + ledger +
                                "/sft.jsonl --limit 20 --window 16 --batch-size 3 --max-tokens-per-pass 100 "
                                "--steps 3 --save-every 2 --keep-last 9 --lr 1e-4" +
                                cuda + " --out " + out;
        on_one("sft", sft + "-one");
        on_two("sft", sft + "-two");
        std::filesystem::remove_all(out + "-two/ckpt/step_000003");
        const std::vector<double> one = logged(out + "-one", "loss"), two = logged(out + "-two", "loss");
        REQUIRE(one.size() == 3);
        REQUIRE(two.size() == 3);
        for (size_t i = 0; i < 3; i++) CHECK(two[i] == Approx(one[i]).epsilon(epsilon));
        on_one("sft", "--resume " + out + "-two");
        CHECK(logged(out + "-two", "loss")[2] == Approx(one[2]).epsilon(epsilon));

        const std::string rl = "--model " + ledger + "/base --window 16 --data " + ledger +
                               "/rl.jsonl --answer-format ledger --max-new-tokens 40 --prompts-per-step 3 "
                               "--group-size 2 --steps 1" +
                               cuda + " --out " + out;
        on_one("rl_cispo", rl + "-rl-one");
        on_two("rl_cispo", rl + "-rl-two");
        const std::string rollouts = "/rollouts/step_000001.jsonl";
        CHECK((bytes_of_file(out + "-rl-one" + rollouts) == bytes_of_file(out + "-rl-two" + rollouts)));
        CHECK(!bytes_of_file(out + "-rl-one" + rollouts).empty());

        const std::string eval =
            "--model " + ledger + "/base --data " + ledger +
            "/val.jsonl --answer-format ledger --max-new-tokens 40 --limit 3 --samples 2" + cuda + " --out " +
            out;
        on_one("eval", eval + "-eval-one");
        on_two("eval", eval + "-eval-two");
        CHECK(sorted_lines(out + "-eval-one/val/samples.jsonl").size() == 6);
        CHECK(sorted_lines(out + "-eval-one/val/samples.jsonl") ==
              sorted_lines(out + "-eval-two/val/samples.jsonl"));
    }
}
