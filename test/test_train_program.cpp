// Drives ./sft and ./train_gpt_swa: conversion, exact resume at every step, kills, signals, a dry run that
// writes nothing, and every error's text; and the data they read: which tokens are learned.
#include <fcntl.h>
#include <signal.h>

#include <thread>

#include "check.h"
#include "data.h"
#include "program.h"
#include "trainer.cuh"

namespace {

const char* ledger = "data/ledger";

// A tiny model with the miniature's tokenizer.
void put_model(const std::string& folder) {
    make_folders(folder);
    for (const char* file : {"tokenizer.json", "tokenizer_config.json", "generation_config.json"})
        copy_whole(std::string(ledger) + "/" + file, folder + "/" + file);
    ModelConfig c;
    c.architecture = "qwen2";
    c.layers = 2, c.hidden = 16, c.heads = 2, c.kv_heads = 1, c.head_dim = 8, c.ff = 24, c.vocab = 40;
    c.max_positions = 96;
    c.tied = true;
    c.window = {0, 0};
    c.eos = {0};
    Cpu dev;
    Model<Cpu> m(dev, c);
    m.initialize(5);
    write_model_folder(m, m.params(), folder, folder);
}

void put_data(const ScratchFolder& dir, int lines = 10) {
    std::string text;
    for (int i = 0; i < lines; i++)
        text +=
            Json({{"prompt", format("a%db%d=", i, (i * 7) % 10)}, {"completion", format("F%d;:%d", i, i)}})
                .dump() +
            "\n";
    dir.put("data.jsonl", text);
}

const std::string usual = "--model m --data data.jsonl --window 4 --batch-size 4 --epochs 2 --lr 1e-2 ";

std::string weights(const ScratchFolder& dir, const std::string& run, int step) {
    return bytes_of_file(dir / (run + "/ckpt/" + step_name(step) + "/model.safetensors")) +
           bytes_of_file(dir / (run + "/ckpt/" + step_name(step) + "/optimizer.safetensors"));
}

// The log without what depends on the clock.
std::string steady_log(const std::string& path) {
    std::string out;
    JsonLines lines(path);
    for (Json row; lines.next(row);) {
        row.erase("time");
        row.erase("perf/tokens_per_s");
        out += row.dump() + "\n";
    }
    return out;
}

}  // namespace

TEST_CASE("data: the learned tokens, counted by hand", "[data]") {
    Tokenizer tokenizer = Tokenizer::load(ledger);
    ChatTemplate chat = ChatTemplate::from_folder(ledger);
    ScratchFolder dir;
    // prompt a 1 = (3 tokens), answer L 1 (2), <eos>: learned are L, 1 and <eos>, predicted at =, L and 1
    std::string file = dir.put("d.jsonl", "{\"prompt\":\"a1=\",\"completion\":\"L1\"}\n");
    Dataset data = load_conversations({file}, tokenizer, chat, 100, false);
    REQUIRE(data.sequences.size() == 1);
    const Sequence& s = data.sequences[0];
    auto id = [&](const char* text) { return *tokenizer.id_of(text); };
    CHECK(s.token == std::vector<int>{id("a"), id("1"), id("="), id("L"), id("1"), id("<eos>")});
    CHECK(s.target == std::vector<int>{-1, -1, id("L"), id("1"), id("<eos>"), -1});
    // all tokens but the first, which nothing predicts
    CHECK(load_conversations({file}, tokenizer, chat, 100, true).sequences[0].targets() == 5);
    // cut inside the answer: what is left is learned; cut before it: dropped and counted
    CHECK(load_conversations({file}, tokenizer, chat, 4, false).sequences[0].targets() == 1);
    std::string two =
        dir.put("two.jsonl",
                "{\"prompt\":\"a1b2=\",\"completion\":\"L1\"}\n{\"prompt\":\"a=\",\"completion\":\"L\"}\n");
    Dataset cut = load_conversations({two}, tokenizer, chat, 4, false);
    CHECK(cut.sequences.size() == 1);
    CHECK(cut.dropped == 1);
    CHECK(cut.cut == 1);
    // pretraining pieces: every token but the first is learned exactly once
    std::string text = dir.put("t.jsonl", "{\"text\":\"a1b2c3d4\"}\n");
    Dataset pieces = load_documents({text}, tokenizer, chat, 3, 40, 0, true);
    CHECK(pieces.sequences.size() == 3);
    CHECK(pieces.targets == 8);
    CHECK(pieces.sequences[2].target.back() == 0);
    // chat markup: the assistant's turns with their ends
    std::string messages =
        dir.put("m.jsonl", R"({"messages":[{"role":"user","content":"a"},{"role":"assistant","content":"b"},)"
                           R"({"role":"user","content":"c"},{"role":"assistant","content":"d"}]})"
                           "\n");
    CHECK(load_conversations({messages}, tokenizer, chat, 100, false).targets == 4);
}

TEST_CASE("data: the order of a run is a permutation per pass, and needs no state", "[data]") {
    Order a(7, 1), b(7, 1);
    std::vector<int> seen(7);
    for (int64_t i = 0; i < 7; i++) seen[a.at(i)]++;
    CHECK(seen == std::vector<int>(7, 1));
    CHECK(a.at(9) == b.at(9));
    std::vector<size_t> first, second;
    for (int64_t i = 0; i < 7; i++) first.push_back(a.at(i)), second.push_back(a.at(7 + i));
    CHECK(first != second);
}

TEST_CASE("data: every error names file, line and what was found", "[data]") {
    Tokenizer tokenizer = Tokenizer::load(ledger);
    ChatTemplate chat = ChatTemplate::from_folder(ledger);
    ScratchFolder dir;
    auto error = [&](const std::string& text) {
        std::string file = dir.put("d.jsonl", text);
        return dir.plain(error_of([&] { load_conversations({file}, tokenizer, chat, 100, false); }));
    };
    CHECK(error("{\"text\":\"a\"}\n") ==
          "DIR/d.jsonl:1: no key \"completion\" or \"messages\" (found: \"text\")");
    CHECK(error("{\"prompt\":\"a\",\"completion\":\"L\"}\n{\"prompt\":3,\"completion\":\"L\"}\n") ==
          "DIR/d.jsonl:2: \"prompt\" is number, not text");
    CHECK(error("{\"messages\":{}}\n") == "DIR/d.jsonl:1: \"messages\" is object, not a list");
    CHECK(error("{\"messages\":[]}\n").find("DIR/d.jsonl:1: ") == 0);
    CHECK(error("[1]\n") == "DIR/d.jsonl:1: a line must be a JSON object (found: a array, not an object)");
    CHECK(error("{\"prompt\"").find("DIR/d.jsonl:1: not JSON") == 0);
    CHECK(error("") == "DIR/d.jsonl: nothing to learn from (0 lines, 0 dropped)");
    CHECK(error("PAR1xxxx").find("this is a Parquet file") != std::string::npos);

    std::string header(1024, '\0');
    auto shard = [&](uint32_t magic, uint32_t n, const std::string& body) {
        std::memcpy(&header[0], &magic, 4);
        std::memcpy(&header[8], &n, 4);
        std::string file = dir.put("s.bin", header + body);
        return dir.plain(error_of([&] { read_token_shard(file, 40); }));
    };
    CHECK(shard(1, 0, "") == "DIR/s.bin: not a token shard (magic 1)");
    CHECK(shard(20240520, 3, "ab") == "DIR/s.bin: header says 3 tokens, the file holds 1");
    CHECK(shard(20240520, 1, std::string("\x28\0", 2)) == "DIR/s.bin: token 0 is 40, the vocabulary has 40");
    CHECK(shard(20240801, 1, std::string("\x27\0\0\0", 4)) == "no error");
}

TEST_CASE("sft: converts, falls, and stop-and-resume at every step gives the same bits", "[program]") {
    ScratchFolder dir;
    put_model(dir / "m");
    put_data(dir);
    ProgramResult whole = run_in(dir.path, "sft", usual + "--out whole --save-every 1 --keep-last 9");
    INFO(whole.err);
    REQUIRE(whole.code == 0);
    CHECK(whole.out.find("layers 0-1: window 4 keys incl. self") != std::string::npos);
    CHECK(whole.out.find("LMDeploy      layers 0-1: window 5 keys") != std::string::npos);
    ModelConfig c = read_config(dir / "whole/ckpt/step_000005");
    CHECK(c.window == std::vector<int>{4, 4});
    std::vector<double> loss;
    JsonLines log(dir / "whole/log.jsonl");
    for (Json row; log.next(row);) loss.push_back(row["loss"]);
    REQUIRE(loss.size() == 5);
    CHECK(loss.back() < loss.front());

    for (int stop = 1; stop < 5; stop++) {
        std::string run = "run" + std::to_string(stop);
        REQUIRE(run_in(dir.path, "sft", usual + "--out " + run + " --save-every 1 --keep-last 9").code == 0);
        // as if it had been killed after step `stop`: later checkpoints gone, the log still long, another
        // thread count
        for (int s = stop + 1; s <= 5; s++)
            std::filesystem::remove_all(dir / (run + "/ckpt/" + step_name(s)));
        ProgramResult r =
            run_in(dir.path, "sft", "--resume " + run + " --threads " + std::to_string(1 + stop % 2));
        INFO(r.err);
        REQUIRE(r.code == 0);
        CHECK(weights(dir, run, 5) == weights(dir, "whole", 5));
        CHECK(steady_log(dir / (run + "/log.jsonl")) == steady_log(dir / "whole/log.jsonl"));
    }
}

TEST_CASE("sft: kill -9 at any moment loses at most the steps since the last checkpoint", "[program]") {
    ScratchFolder dir;
    put_model(dir / "m");
    put_data(dir, 40);
    const std::string arguments =
        "--model m --data data.jsonl --window 4 --batch-size 4 --steps 60 --save-every 1 --out run";
    REQUIRE(run_in(dir.path, "sft",
                   "--model m --data data.jsonl --window 4 --batch-size 4 --steps 60 --out whole")
                .code == 0);
    int resumed = 0;
    for (int round = 0; round < 6; round++) {
        bool before = !newest_checkpoint(dir / "run").empty();
        if (before) resumed++;
        pid_t child = fork();
        if (child == 0) {
            if (chdir(dir.path.c_str()) != 0) _exit(9);
            int null = open("/dev/null", O_WRONLY);
            dup2(null, 1);
            dup2(null, 2);
            std::string program = program_path("sft");
            if (before)
                execl(program.c_str(), "sft", "--resume", "run", nullptr);
            else
                execl("/bin/sh", "sh", "-c", ("exec '" + program + "' " + arguments).c_str(), nullptr);
            _exit(9);
        }
        std::this_thread::sleep_for(std::chrono::milliseconds(60 + 45 * round));
        kill(child, SIGKILL);
        int status;
        waitpid(child, &status, 0);
        if (!std::filesystem::exists(dir / "run/config.json") || newest_checkpoint(dir / "run").empty())
            std::filesystem::remove_all(dir / "run");  // killed before anything was saved
    }
    bool any = !newest_checkpoint(dir / "run").empty();
    ProgramResult last = run_in(dir.path, "sft", any ? "--resume run" : arguments);
    INFO(last.err << resumed);
    REQUIRE(last.code == 0);
    CHECK(weights(dir, "run", 60) == weights(dir, "whole", 60));
}

TEST_CASE("sft: Ctrl-C finishes the step and saves; --max-time too; zero steps only convert", "[program]") {
    ScratchFolder dir;
    put_model(dir / "m");
    put_data(dir);
    std::string script =
        "cd '" + dir.path + "'; '" + program_path("sft") +
        "' --model m --data data.jsonl --steps 100000000 --out run >/dev/null 2>&1 & child=$!; "
        "cd '" +
        dir.path +
        "'; while ! [ -s run/log.jsonl ]; do sleep 0.05; done; "
        "kill -INT $child; wait $child";
    CHECK(WEXITSTATUS(std::system(("bash '" + dir.put("script", script) + "'").c_str())) == 0);
    CHECK(!newest_checkpoint(dir / "run").empty());
    CHECK(run_in(dir.path, "sft", "--model m --data data.jsonl --steps 100000000 --max-time 0.2 --out timed")
              .code == 0);
    CHECK(!newest_checkpoint(dir / "timed").empty());
    REQUIRE(run_in(dir.path, "sft", "--model m --data data.jsonl --steps 0 --window 7 --out zero").code == 0);
    CHECK(bytes_of_file(dir / "zero/ckpt/step_000000/model.safetensors") ==
          bytes_of_file(dir / "m/model.safetensors"));
    CHECK(read_config(dir / "zero/ckpt/step_000000").window == std::vector<int>{7, 7});
}

TEST_CASE("sft: a dry run shows the learned tokens and writes nothing", "[program]") {
    ScratchFolder dir;
    put_model(dir / "m");
    put_data(dir);
    ProgramResult r = run_in(dir.path, "sft", usual + "--dry-run");
    INFO(r.err);
    CHECK(r.code == 0);
    CHECK(r.out.find("a0b0=«F0;:0<eos>»") != std::string::npos);
    CHECK(r.out.find("memory: weights") != std::string::npos);
    CHECK(r.out.find("one step on a toy copy") != std::string::npos);
    CHECK(!std::filesystem::exists(dir / "runs"));

    // On a run that is there: not a byte of it changes.
    REQUIRE(run_in(dir.path, "sft", usual + "--out run --steps 2 --save-every 1").code == 0);
    remove_path(dir / "run/ckpt/step_000002");
    remove_path(dir / "run/log.jsonl");
    auto listing = [&] {
        std::string out;
        for (const auto& entry : std::filesystem::recursive_directory_iterator(dir / "run"))
            if (entry.is_regular_file()) out += entry.path().string() + bytes_of_file(entry.path());
        return out;
    };
    const std::string before = listing();
    CHECK(run_in(dir.path, "sft", "--resume run --dry-run").code == 0);
    CHECK((listing() == before));
}

TEST_CASE("sft: runs that start at once never share a folder", "[program]") {
    ScratchFolder dir;
    put_model(dir / "m");
    put_data(dir);
    const std::string program = "'" + program_path("sft") + "' " + usual + "--threads 1 --steps 2 ";
    dir.put("both.sh", "cd '" + dir.path + "'\nfor i in 1 2 3 4; do " + program +
                           ">out$i 2>&1 & done; wait\n" + "for i in 5 6 7; do " + program +
                           "--out named >out$i 2>err$i & done; wait\n");
    REQUIRE(std::system(("bash '" + (dir / "both.sh") + "'").c_str()) == 0);
    std::set<std::string> saved;
    for (const char* out : {"out1", "out2", "out3", "out4"}) {
        const std::string text = bytes_of_file(dir / out);
        INFO(text);
        const size_t at = text.find("saved: ");
        REQUIRE(at != std::string::npos);
        saved.insert(text.substr(at, text.find('\n', at) - at));
    }
    CHECK(saved ==
          std::set<std::string>{"saved: runs/sft/ckpt/step_000002", "saved: runs/sft-2/ckpt/step_000002",
                                "saved: runs/sft-3/ckpt/step_000002", "saved: runs/sft-4/ckpt/step_000002"});
    // Asked for by name, the first alone gets it.
    int done = 0;
    for (const char* i : {"5", "6", "7"}) {
        const std::string error = bytes_of_file(dir / (std::string("err") + i));
        INFO(error);
        const bool refused = error.find("error: sft: named") != std::string::npos;
        CHECK(refused !=
              (bytes_of_file(dir / (std::string("out") + i)).find("saved: ") != std::string::npos));
        done += !refused;
    }
    CHECK(done == 1);
}

TEST_CASE("sft, train_gpt_swa: wrong use is one error and one hint", "[program]") {
    ScratchFolder dir;
    put_model(dir / "m");
    put_data(dir);
    dir.put("empty.jsonl", "");
    auto says = [&](const std::string& program, const std::string& arguments, int code,
                    const std::string& text) {
        ProgramResult r = run_in(dir.path, program, arguments);
        INFO(program << " " << arguments << "\n" << r.err);
        CHECK(r.code == code);
        CHECK(r.err.find("error: " + program + ": " + text) != std::string::npos);
        CHECK(r.err.find("\nhint: ") != std::string::npos);
    };
    says("sft", "--windw 4", 2, "The following arguments were not expected: 4 --windw");
    says("sft", "--window four", 2, "--window: Value four not in range");
    says("sft", "--model m", 2, "--model and --data are both needed");
    says("sft", "--model nowhere --data data.jsonl", 1, "nowhere: no such folder");
    says("sft", "--model m --data nowhere.jsonl", 1, "nowhere.jsonl: cannot open: No such file or directory");
    says("sft", "--model m --data empty.jsonl", 1, "empty.jsonl: nothing to learn from");
    says("sft", "--model m --data data.jsonl --full-layers 0", 2,
         "--full-layers and --sink-tokens need --window");
    says("sft", "--model m --data data.jsonl --device cuda", 1, "--device cuda: ");
    says("sft", usual + "--batch-size 1000000000000", 2, "--batch-size: Value 1000000000000 not in range");
    says("sft", usual + "--max-tokens-per-pass 4294967297", 2, "--max-tokens-per-pass: Value 4294967297 not");
    says("sft", usual + "--lr nan", 2, "--lr: Value nan is not a finite number");
    says("sft", usual + "--epochs 1e7", 2, "--epochs: Value 1e7 not in range");
    for (const char* real : {"1e300", "1e-400", "1e-60", "1e39", "-1e300"})
        says("sft", usual + "--eps " + real, 2,
             "--eps: Value " + std::string(real) +
                 " is no 32-bit float: give 0, or a size from 1.2e-38 to 3.4e38");
    for (const char* seed : {"-1", "one", "1e3", "0x10", "010", "18446744073709551616", "1.5"})
        says("sft", usual + "--seed " + seed, 2,
             "--seed: Value " + std::string(seed) + " is not a whole number from 0 to 18446744073709551615");
    says("sft", usual + "--rope-theta 0.5", 2, "--rope-theta 0.5 is not 0 or from 1 to 1e12");
    says("sft", "--resume nowhere", 1, "nowhere/config.json: cannot open");
    says("sft", "--model m --data data.jsonl --template nonsense", 2, "--template \"nonsense\" is unknown");
    REQUIRE(run_in(dir.path, "sft", usual + "--out run --steps 1").code == 0);
    says("sft", usual + "--out run", 1, "run: there is a run in this folder already");
    says("sft", "--resume run --out other", 2,
         "--out other with --resume run: a resumed run goes on in its own folder");
    CHECK(run_in(dir.path, "sft", "--resume run --out ./run/").code == 0);
    CHECK(newest_checkpoint(dir / "run") == dir / "run/ckpt/step_000001");  // --steps 1, not --epochs 2
    says("sft", "--resume run --lr 0.5", 1, "--resume: --lr is 0.5 here and 0.01 in run/config.json");
    says("train_gpt_swa", "--resume run", 1, "run/config.json: a run of \"sft\", not of train_gpt_swa");
    says("train_gpt_swa", "--model m --data data.jsonl --steps 1 --sample-prompt \"\"", 2,
         "--sample-prompt \"\" has no token");
    says("train_gpt_swa", "--data data.jsonl", 2,
         "one of --config (a fresh model) and --model (continue one) is needed");
    const Json config = read_json(dir / "run/config.json");
    auto with = [&](const char* key, const Json& value) {
        Json changed = config;
        changed[key] = value;
        dir.put("run/config.json", changed.dump());
    };
    with("batch-size", -1);
    says("sft", "--resume run", 1, "run/config.json: key \"batch-size\": Value -1 not in range");
    with("log-every", 0);
    says("sft", "--resume run", 1, "run/config.json: key \"log-every\": ");
    with("schedule", "zigzag");
    says("sft", "--resume run", 1, "run/config.json: key \"schedule\": zigzag not in");
    with("program", 5);
    says("sft", "--resume run", 1, "run/config.json: key \"program\": 5 is not a string");
    dir.put("run/config.json", config.dump());
    const Json state = read_json(dir / "run/ckpt/step_000001/trainer.json");
    auto with_state = [&](const char* key, const Json& value) {
        Json changed = state;
        changed[key] = value;
        dir.put("run/ckpt/step_000001/trainer.json", changed.dump());
        dir.put("run/ckpt/step_000001/DONE", "");
    };
    with_state("step", 2);
    says("sft", "--resume run", 1,
         "run/ckpt/step_000001/trainer.json: \"step\" is 2, the folder is called step_000001");
    with_state("program", "rl_cispo");
    says("sft", "--resume run", 1,
         "run/ckpt/step_000001/trainer.json: \"program\" is \"rl_cispo\", the run is one of sft");
    with_state("step", 1);
    {
        JsonlLog other;
        other.lock(dir / "run/log.jsonl");
        says("sft", "--resume run", 1, "run/log.jsonl: another process is writing this run");
    }
    remove_path(dir / "run/ckpt");
    says("sft", "--resume run", 1, "run: no finished checkpoint to resume from");
    ProgramResult again = run_in(dir.path, "sft", usual + "--out run");
    CHECK(again.err.find("hint: it has saved nothing yet: delete it") != std::string::npos);
    dir.put("m/model.safetensors", "short");
    says("sft", usual + "--out other", 1, "m/model.safetensors: 5 bytes are too few for a safetensors file");
    ProgramResult help = run_in(dir.path, "sft", "--help");
    CHECK(help.code == 0);
    CHECK(help.out.find("--window") != std::string::npos);
}

TEST_CASE("sft: a full disk ends the run with a clear error and keeps the last checkpoint", "[program]") {
    if (geteuid() != 0) {
        std::printf("skipped: mounting a small file system needs root\n");
        return;
    }
    ScratchFolder dir;
    put_model(dir / "m");
    put_data(dir);
    make_folders(dir / "small");
    if (std::system(("mount -t tmpfs -o size=140k none '" + (dir / "small") + "' 2>/dev/null").c_str()) !=
        0) {
        std::printf("skipped: no file system can be mounted here\n");
        return;
    }
    ProgramResult r =
        run_in(dir.path, "sft", usual + "--steps 8 --save-every 1 --keep-last 9 --out small/run");
    std::string last = newest_checkpoint(dir / "small/run");
    bool resumes = !last.empty();
    (void)std::system(("umount '" + (dir / "small") + "'").c_str());
    INFO(r.err);
    CHECK(r.code == 1);
    CHECK((r.err.find("not enough disk space") != std::string::npos ||
           r.err.find("No space left") != std::string::npos));
    CHECK(resumes);
}

TEST_CASE("train_gpt_swa: fresh mixed model from text; continued; samples", "[program]") {
    ScratchFolder dir;
    put_model(dir / "m");
    put_data(dir);
    dir.put("corpus.txt", "a1b2=La1;:3<eos>a2b2=La2;:4<eos>a3b2=La3;:5<eos>a1b2c3=La1;b3;:6");
    ProgramResult r = run_in(
        dir.path, "train_gpt_swa",
        "--config m --data corpus.txt --window 5 --full-layers 1 --steps 3 --batch-size 2 --max-length 16 "
        "--sample-prompt a1b2= --sample-tokens 5 --out run");
    INFO(r.err);
    REQUIRE(r.code == 0);
    CHECK(r.out.find("layer 0: window 5 keys incl. self; layer 1: full attention") != std::string::npos);
    CHECK(r.err.find("step 3: a1b2=") != std::string::npos);
    CHECK(read_config(dir / "run/ckpt/step_000003").window == std::vector<int>{5, 0});
    r = run_in(dir.path, "train_gpt_swa",
               "--model run --data data.jsonl --loss-on answer --steps 2 --out more");
    INFO(r.err);
    CHECK(r.code == 0);
    CHECK(r.out.find("layer 0: window 5 keys incl. self") != std::string::npos);
}
