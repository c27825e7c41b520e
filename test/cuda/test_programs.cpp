// Every program on the CUDA device, end to end on the miniature, in a few steps.
#include <fstream>

#include "../check.h"
#include "../program.h"
#include "cuda_test.h"
#include "json_lines.h"
#include "trainer.cuh"

namespace {

std::vector<double> column(const std::string& log, const std::string& key) {
    std::vector<double> out;
    std::istringstream lines(bytes_of_file(log));
    for (std::string line; std::getline(lines, line);) {
        const Json row = Json::parse(line);
        if (row.contains(key)) out.push_back(row[key].get<double>());
    }
    return out;
}

ProgramResult run(const std::string& name, const std::string& arguments) {
    ProgramResult r = run_in(".", name, arguments);
    INFO(name << " " << arguments << "\n" << r.out << r.err);
    REQUIRE(r.code == 0);
    return r;
}

}  // namespace

TEST_CASE("cuda: sft, rl_cispo, eval and locality on the miniature", "[cuda][program]") {
    ScratchFolder dir;
    const std::string small = " --steps 3 --batch-size 4 ";
    for (const char* precision : {"fp32", "bf16"}) {
        const std::string cuda = std::string(" --device cuda --precision ") + precision,
                          out = dir / precision;
        const double epsilon = precision[0] == 'f' ? 1e-4 : 0.05;
        const ProgramResult sft = run("sft", small + "--out " + out + "-sft" + cuda);
        CHECK(sft.out.find("device: cuda") != std::string::npos);
        run("sft", small + "--device cpu --out " + out + "-cpu");
        const std::vector<double> a = column(out + "-sft/log.jsonl", "loss"),
                                  b = column(out + "-cpu/log.jsonl", "loss");
        REQUIRE(a.size() == 3);
        for (size_t i = 0; i < 3; i++) CHECK(a[i] == Approx(b[i]).epsilon(epsilon));

        run("rl_cispo",
            "--steps 2 --prompts-per-step 2 --group-size 4 --minibatch 4 --max-new-tokens 80 --data "
            "data/ledger/rl.jsonl --answer-format ledger --model " +
                out + "-sft --out " + out + "-rl" + cuda);
        const std::vector<double> gap = column(out + "-rl/log.jsonl", "mismatch/logprob_abs_diff/max");
        REQUIRE(gap.size() >= 2);
        for (double g : gap) CHECK(g < (precision[0] == 'f' ? 1e-5 : 0.2));

        run("eval", "--model " + out +
                        "-rl --data data/ledger/val.jsonl --answer-format ledger --max-new-tokens 80 --limit "
                        "2 --samples 2 --out " +
                        out + "-eval" + cuda);
        run("locality",
            "--scorer data/ledger/base --windows 8,16 --limit 2 --set sft=data/ledger/sft.jsonl "
            "--out " +
                out + "-locality" + cuda);
    }
    // The same scores as the CPU's.
    run("locality",
        "--scorer data/ledger/base --windows 8,16 --limit 2 --set sft=data/ledger/sft.jsonl --device "
        "cpu --out " +
            (dir / "cpu-locality"));
    auto score = [&](const std::string& name) {
        return Json::parse(
                   bytes_of_file(dir / (name + "-locality/locality.json")))["sets"][0]["windows"][0]["L"]
            .get<double>();
    };
    CHECK(score("fp32") == Approx(score("cpu")).epsilon(1e-5));
    CHECK(score("bf16") == Approx(score("cpu")).epsilon(0.02));
}

TEST_CASE("cuda: pretraining writes samples while it trains", "[cuda][program]") {
    ScratchFolder dir;
    const ProgramResult r = run("train_gpt_swa",
                                "--config data/ledger --data data/ledger/pretrain.jsonl --window 16 "
                                "--steps 2 --batch-size 4 --eval-every 1 --sample-prompt 'a1' "
                                "--sample-tokens 5 --device cuda --out " +
                                    (dir / "run"));
    CHECK(r.err.find("step 2: a1") != std::string::npos);
    CHECK(column(dir / "run/log.jsonl", "loss").size() == 2);
}

TEST_CASE("cuda: the memory plan of the 1.5B model at 32k tokens", "[cuda][memory]") {
    ModelConfig c;
    c.architecture = "qwen2", c.tied = c.qkv_bias = true;
    c.layers = 28, c.hidden = 1536, c.heads = 12, c.kv_heads = 2, c.head_dim = 128, c.ff = 8960,
    c.vocab = 151936;
    c.max_positions = 32768, c.window.assign(28, 4096);
    CHECK(total_bytes(training_memory<CudaDevice<bf16>>(c, 32768, 0)) < 110e9);  // of 141
    CHECK(total_bytes(training_memory<CudaDevice<bf16>>(c, 32768, 2)) < 60e9);
}

TEST_CASE("cuda: a run goes on with the bits of one that never stopped", "[cuda][program]") {
    ScratchFolder dir;
    const std::string options = " --batch-size 4 --save-every 1 --keep-last 9 --device cuda ";
    run("sft", "--steps 4 --out " + (dir / "whole") + options);
    run("sft",
        "--steps 4 --max-time 0.000001 --out " + (dir / "cut") + options);  // ends after its first step
    run("sft", "--resume " + (dir / "cut") + " --max-time 0");
    CHECK(bytes_of_file(dir / "whole/ckpt/step_000004/model.safetensors") ==
          bytes_of_file(dir / "cut/ckpt/step_000004/model.safetensors"));
}

TEST_CASE("cuda: what cannot fit is refused with what would", "[cuda][program]") {
    ScratchFolder dir;
    const ProgramResult r =
        run_in(".", "sft", "--max-tokens-per-pass 16000000 --device cuda --out " + (dir / "x"));
    CHECK(r.code == 1);
    CHECK(r.err.find("of memory") != std::string::npos);
    CHECK(r.err.find("it would fit with --max-tokens-per-pass") != std::string::npos);
    CHECK(!std::filesystem::exists(dir / "x"));
}

TEST_CASE("cuda: a card that is too old is named", "[cuda][program][cusim]") {
    ScratchFolder dir;
    setenv("CUSIM_CC", "7.5", 1);
    const ProgramResult cuda = run_in(".", "sft", "--dry-run --device cuda --out " + (dir / "x")),
                        automatic = run_in(".", "sft", "--dry-run --out " + (dir / "x"));
    unsetenv("CUSIM_CC");
    CHECK(cuda.code == 1);
    CHECK(cuda.err.find("cusim has compute capability 7.5, 8.0 (Ampere) or newer is needed") !=
          std::string::npos);
    CHECK(automatic.code == 0);
    CHECK(automatic.out.find("device: cpu") != std::string::npos);
}

TEST_CASE("cuda: sizes without a kernel are refused before training", "[cuda][program]") {
    ScratchFolder dir;
    auto refused = [&](const char* key, int value, const std::string& what) {
        const std::string folder = dir / key + std::to_string(value);
        make_folders(folder);
        std::filesystem::copy("data/ledger/base", folder, std::filesystem::copy_options::recursive);
        Json config = read_json(folder + "/config.json");
        config[key] = value;
        std::ofstream(folder + "/config.json") << config;
        const ProgramResult r = run_in(".", "train_gpt_swa",
                                       "--config " + folder +
                                           " --data data/ledger/pretrain.jsonl "
                                           "--sample-prompt a1 --steps 1 --device cuda --out " +
                                           (dir / "run"));
        INFO(r.out << r.err);
        CHECK(r.code == 1);
        CHECK(r.err.find(what) != std::string::npos);
        CHECK(r.err.find("step") == std::string::npos);
    };
    refused("head_dim", 8, "a head_dim that is a multiple of 16 up to 128, not 8");
    refused("head_dim", 48, "cannot decode with heads of 48 numbers");
    refused("intermediate_size", 100, "an intermediate_size that is a multiple of 8, not 100");
}
