// Drives ./eval: a whole evaluation on a tiny model, resumed after a kill, compared, turned into training
// data; one prompt; logits; the self-test; errors and exit codes; the trained models and problem sets of the
// reference data where they are there.
#include <signal.h>

#include "check.h"
#include "evaluate.h"
#include "generate.cuh"
#include "program.h"
#include "trainer.cuh"

namespace {

// The miniature's tokenizer: one token a character, 0 ends a text, no template.
void put_model(const ScratchFolder& dir, const std::string& folder, uint64_t seed, int vocab = 40,
               int positions = 96) {
    make_folders(dir / folder);
    for (const char* file : {"tokenizer.json", "tokenizer_config.json"})
        copy_whole("data/ledger/" + std::string(file), dir / (folder + "/" + file));
    ModelConfig c;
    c.architecture = "qwen2";
    c.layers = 2, c.hidden = 16, c.heads = 2, c.kv_heads = 1, c.head_dim = 8, c.ff = 24, c.vocab = vocab;
    c.max_positions = positions;
    c.tied = true;
    c.window = {9, 9};
    c.eos = {0};
    Cpu dev;
    Model<Cpu> m(dev, c);
    m.initialize(seed);
    for (size_t i = 0; i < m.layout.matrices; i++) m.params()[i] *= 12;  // texts that are not all alike
    write_model_folder(m, m.params(), dir / folder, dir / folder);
}

void put_problems(const ScratchFolder& dir, const std::string& name, int n) {
    std::string lines;
    for (int i = 0; i < n; i++)
        lines += Json({{"id", "p" + std::to_string(i)},
                       {"problem", "a" + std::to_string(i % 10) + "b" + std::to_string(i / 10) + "="},
                       {"answer", std::to_string(i % 10)},
                       {"answer_format", "ledger"}})
                     .dump() +
                 "\n";
    dir.put(name, lines);
}

const std::string usual = "--model m --data set.jsonl --samples 3 --max-new-tokens 30 ";

}  // namespace

TEST_CASE("eval: a whole evaluation, resumed, compared, as training data", "[program]") {
    ScratchFolder dir;
    put_model(dir, "m", 1);
    put_problems(dir, "set.jsonl", 12);
    auto eval = [&](const std::string& arguments) { return run_in(dir.path, "eval", arguments); };

    ProgramResult r = eval(usual + "--out a");
    INFO(r.out << r.err);
    REQUIRE(r.code == 0);
    REQUIRE(r.out.find("layers 0-1: window 9 keys incl. self") != std::string::npos);
    REQUIRE(r.out.find("stops at: 0 <eos>") != std::string::npos);
    REQUIRE(r.out.find("set: 12 problems x 3 samples") != std::string::npos);
    REQUIRE(r.out.find("next: ./eval --compare a OTHER") != std::string::npos);
    Json summary = read_json(dir / "a/set/summary.json");
    REQUIRE(summary["problems"] == 12);
    REQUIRE(summary["incomplete"] == 0);
    Json settings = read_json(dir / "a/set/settings.json");
    Samples samples = read_samples(dir / "a/set/samples.jsonl");
    REQUIRE(summarize(settings, samples) == summary);
    REQUIRE(samples.size() == 12);
    for (auto& [id, rows] : samples)
        for (auto& [k, row] : rows) REQUIRE(row.truncated == (row.ids.back() != 0));

    // Slots, threads, passes and order change no line.
    const std::vector<std::string> lines = sorted_lines(dir / "a/set/samples.jsonl");
    REQUIRE(eval(usual + "--out b --slots 2 --threads 1 --max-tokens-per-pass 5").code == 0);
    REQUIRE(sorted_lines(dir / "b/set/samples.jsonl") == lines);
    REQUIRE(bytes_of_file(dir / "b/set/summary.json") == bytes_of_file(dir / "a/set/summary.json"));

    // A kill at any moment: whole lines and a cut one. Then the same command.
    std::string half = bytes_of_file(dir / "a/set/samples.jsonl");
    dir.put("b/set/samples.jsonl", half.substr(0, half.size() / 2));
    std::filesystem::remove(dir / "b/set/summary.json");
    r = eval(usual + "--out b --slots 5");
    REQUIRE(r.code == 0);
    REQUIRE(r.out.find("going on: ") != std::string::npos);
    REQUIRE(sorted_lines(dir / "b/set/samples.jsonl") == lines);
    REQUIRE(bytes_of_file(dir / "b/set/summary.json") == bytes_of_file(dir / "a/set/summary.json"));

    // Fewer problems and samples first, then more: the same lines in the end.
    REQUIRE(eval("--model m --data set.jsonl --samples 2 --max-new-tokens 30 --limit 5 --out c").code == 0);
    REQUIRE(eval(usual + "--out c").code == 0);
    REQUIRE(sorted_lines(dir / "c/set/samples.jsonl") == lines);

    // Complete: nothing is drawn again. Other settings: refused by name.
    r = eval(usual + "--out a --write-sft sft.jsonl --contamination set.jsonl");
    REQUIRE(r.code == 0);
    REQUIRE(r.out.find("every sample is there already") != std::string::npos);
    REQUIRE(r.out.find("correct samples as fine-tuning data") != std::string::npos);
    REQUIRE(std::filesystem::exists(dir / "sft.jsonl"));
    REQUIRE(std::filesystem::exists(dir / "a/set/contamination.json"));
    r = eval(usual + "--out a --seed 2 --temperature 0.5");
    REQUIRE(r.code == 1);
    REQUIRE(
        r.err.find("error: eval: a/set: holds samples drawn with other settings: temperature 1.0 there, 0.5 "
                   "now; seed 1 there, 2 now\nhint: choose another --out") != std::string::npos);

    // Another seed gives other texts; the comparison is paired.
    REQUIRE(eval(usual + "--out d --seed 2").code == 0);
    REQUIRE(sorted_lines(dir / "d/set/samples.jsonl") != lines);
    r = eval("--compare a d");
    REQUIRE(r.code == 0);
    REQUIRE(r.out.find("set, 12 common problems") == 0);
    REQUIRE(r.out.find("note: seed differs") != std::string::npos);
    r = eval("--compare a a/set");
    REQUIRE(r.out.find("b - a  +0.0 points, 95% [+0.0, +0.0]: within noise (better on 0, worse on 0)") !=
            std::string::npos);

    // A window given on the command line counts.
    r = eval(usual + "--out w --window 4 --full-layers 1");
    REQUIRE(r.code == 0);
    REQUIRE(r.out.find("layer 0: window 4 keys incl. self; layer 1: full attention") != std::string::npos);
    REQUIRE(sorted_lines(dir / "w/set/samples.jsonl") != lines);
}

TEST_CASE("eval: Ctrl-C keeps what is done; kill -9 too", "[program]") {
    ScratchFolder dir;
    put_model(dir, "m", 1, 40, 4096);
    put_problems(dir, "set.jsonl", 50);
    const std::string slow =
        "--model m --data set.jsonl --samples 12 --max-new-tokens 400 --slots 4 --threads 1 ";
    REQUIRE(run_in(dir.path, "eval", slow + "--out whole").code == 0);
    const std::vector<std::string> lines = sorted_lines(dir / "whole/set/samples.jsonl");
    for (int signal : {SIGINT, SIGKILL}) {
        const std::string folder = signal == SIGINT ? "int" : "kill";
        std::string command = "{ cd '" + dir.path + "' && '" + program_path("eval") + "' " + slow + "--out " +
                              folder +
                              " >out.txt 2>err.txt & pid=$!; for i in $(seq 200); do sleep 0.02; "
                              "[ $(cat '" +
                              (dir / folder) +
                              "/set/samples.jsonl' 2>/dev/null | wc -l) -gt 5 ] && break; done; "
                              "kill -" +
                              std::to_string(signal) + " $pid; wait $pid; } 2>/dev/null";
        int status = std::system(command.c_str());
        const std::string out = bytes_of_file(dir / "out.txt");
        INFO(out << bytes_of_file(dir / "err.txt"));
        if (signal == SIGINT) {
            REQUIRE(WEXITSTATUS(status) == 0);
            bool stopped = out.find("stopped; the same command goes on here: int/set") != std::string::npos;
            REQUIRE((stopped || out.find("next: ") != std::string::npos));  // it may have been done already
        }
        REQUIRE(run_in(dir.path, "eval", slow + "--out " + folder).code == 0);
        REQUIRE(sorted_lines(dir / (folder + "/set/samples.jsonl")) == lines);
        REQUIRE(bytes_of_file(dir / (folder + "/set/summary.json")) ==
                bytes_of_file(dir / "whole/set/summary.json"));
    }
}

TEST_CASE("eval: the miniature's base model knows its task", "[program]") {
    ScratchFolder dir;
    ProgramResult r = run_in(".", "eval",
                             "--model data/ledger/base --data data/ledger/val.jsonl --temperature 0 "
                             "--max-new-tokens 80 --threads 1 --out '" +
                                 dir.path + "'");
    INFO(r.out << r.err);
    REQUIRE(r.code == 0);
    Json summary = read_json(dir / "val/summary.json");
    REQUIRE(summary["problems"] == 300);
    REQUIRE(summary["avg@1"].get<double>() >= 0.95);
}

// A file-size limit stands in for a full disk.
TEST_CASE("eval: a full disk loses nothing", "[program]") {
    ScratchFolder dir;
    put_model(dir, "m", 1);
    put_problems(dir, "set.jsonl", 12);
    REQUIRE(run_in(dir.path, "eval", usual + "--out whole").code == 0);
    std::string command = "cd '" + dir.path + "' && trap '' XFSZ && ulimit -f 4 && '" + program_path("eval") +
                          "' " + usual + "--out full >out.txt 2>err.txt";
    int status = std::system(("bash -c \"" + command + "\"").c_str());
    const std::string error = bytes_of_file(dir / "err.txt");
    INFO(error);
    REQUIRE(WEXITSTATUS(status) == 1);
    REQUIRE(
        error.find(
            "error: eval: full/set/samples.jsonl: cannot write: File too large\nhint: is the disk full?") !=
        std::string::npos);
    REQUIRE(run_in(dir.path, "eval", usual + "--out full").code == 0);
    REQUIRE(sorted_lines(dir / "full/set/samples.jsonl") == sorted_lines(dir / "whole/set/samples.jsonl"));
}

TEST_CASE("eval: one text, logits, self-test, dry run", "[program]") {
    ScratchFolder dir;
    put_model(dir, "m", 1);
    put_problems(dir, "set.jsonl", 4);
    auto eval = [&](const std::string& arguments) { return run_in(dir.path, "eval", arguments); };

    // Greedy on stdout, and nothing else there.
    ProgramResult a = eval("--model m --prompt a1b2= --max-new-tokens 20"),
                  b = eval("--model m --raw --prompt a1b2= --max-new-tokens 20");
    REQUIRE(a.code == 0);
    REQUIRE(a.out == b.out);
    REQUIRE(a.out.size() <= 21);
    REQUIRE(a.err.find("ended by") != std::string::npos);
    REQUIRE(
        eval("--model m --raw --prompt '<eos>a1' --logits").out.find("{\"ids\": [0,12,3], \"logits\": [") ==
        0);
    REQUIRE(eval("--model m --raw --prompt a1 --logits").out == eval("--model m --ids 12,3 --logits").out);
    // Samples of --prompt are those of an evaluation with the same id... a stream of its own otherwise.
    REQUIRE(eval("--model m --prompt a1b2= --temperature 1 --seed 3").out ==
            eval("--model m --prompt a1b2= --temperature 1 --seed 3").out);

    ProgramResult r = eval("--model m --self-test");
    INFO(r.out << r.err);
    REQUIRE(r.code == 0);
    REQUIRE(r.out.find("the key at i-W has no effect, the key at i-W+1 has") != std::string::npos);
    REQUIRE(r.out.find("WRONG") == std::string::npos);
    REQUIRE(eval("--model m --window 1 --full-layers 0 --self-test").code == 0);

    r = eval(usual + "--dry-run --out a");
    REQUIRE(r.code == 0);
    REQUIRE(r.out.find("--- p2: 5 tokens, gold [\"2\"]\na2b0=") != std::string::npos);
    REQUIRE(r.out.find("memory: weights") != std::string::npos);
    REQUIRE(r.out.find("dry run: all is well; nothing was written") != std::string::npos);
    REQUIRE_FALSE(std::filesystem::exists(dir / "a"));
    REQUIRE_FALSE(std::filesystem::exists(dir / "runs"));
}

TEST_CASE("eval: errors, their hints and exit codes", "[program]") {
    ScratchFolder dir;
    put_model(dir, "m", 1);
    put_problems(dir, "set.jsonl", 4);
    dir.put("empty.jsonl", "");
    dir.put("broken.jsonl", "{\"problem\": \"a\", \"answer\": \"1\"}\n{\"problem\"");
    dir.put("long.jsonl",
            "{\"id\": \"x\", \"problem\": \"" + std::string(100, 'a') + "\", \"answer\": \"1\"}\n");
    make_folders(dir / "other");
    dir.put("other/set.jsonl", "{\"problem\": \"a\", \"answer\": \"1\"}\n");
    auto expect = [&](const std::string& arguments, int code, const std::string& error) {
        ProgramResult r = run_in(dir.path, "eval", arguments);
        INFO(arguments << "\n" << r.out << r.err);
        REQUIRE(r.code == code);
        REQUIRE(r.err.find("error: eval: " + error) != std::string::npos);
        REQUIRE(r.err.find("\nhint: ") != std::string::npos);
    };
    expect("--no-such-flag", 2, "");
    expect("--samples 0", 2, "");
    for (const char* name : {"--slots", "--samples", "--max-tokens-per-pass", "--max-new-tokens"})
        expect(std::string(name) + " 1000000000000", 2,
               std::string(name) + ": Value 1000000000000 not in range");
    expect("--seed -1", 2, "--seed: Value -1 is not a whole number");
    expect("--slots none", 2, "");
    expect("--compare a", 2, "");
    expect("--model nowhere --data set.jsonl", 1, "nowhere: no such folder");
    expect("--model m --data nowhere.jsonl", 1, "nowhere.jsonl: cannot open");
    expect("--model m --data empty.jsonl", 1, "empty.jsonl: holds no problems");
    expect("--model m --data broken.jsonl", 1, "broken.jsonl:2: not JSON");
    expect("--model m --data long.jsonl", 1,
           "long.jsonl: the prompt of \"x\" has 100 tokens, the model has 96 positions");
    expect("--model m --data set.jsonl,other/set.jsonl", 2, "--data: two sets are called \"set\"");
    expect("--model m --data set.jsonl --temperature -1", 2, "--temperature -1 is not between 0 and 100");
    expect("--model m --data set.jsonl --top-p 0", 2, "--top-p 0 is not in (0, 1]");
    expect("--model m --data set.jsonl --slots 0", 2, "--slots: Value 0 not in range");
    expect("--model m --data set.jsonl --temperature 0 --samples 4", 2,
           "--samples 4 at --temperature 0 would all be equal");
    expect("--model m --data set.jsonl --answer-format box", 1,
           "--answer-format: no answer format is called \"box\"");
    expect("--model m --data set.jsonl --template chatty", 2, "--template \"chatty\" is unknown");
    expect("--model m --data set.jsonl --device cuda", 1, "--device cuda");
    expect("--model m --data set.jsonl --full-layers 0", 2, "--full-layers and --sink-tokens need --window");
    expect("--model m --data set.jsonl --window 5 --full-layers 9", 1, "full layer 9 does not exist");
    expect("--model m --data set.jsonl --out /proc/none", 1, "/proc/none");
    expect("--model m --data set.jsonl --max-new-tokens 3 --write-sft no/such/folder.jsonl", 1,
           "no/such/folder.jsonl: cannot create");
    expect("--model m --ids 1,99 --logits", 2, "--ids: 99 is outside the vocabulary of 40");
    expect("--model m --raw --prompt '" + std::string(100, 'a') + "'", 1,
           "a prompt of 100 tokens leaves no room");
    expect("--compare m m", 1, "m: no samples.jsonl here or one level below");
    expect("", 1, "data/ledger/base: no such folder");  // bare, where there is no miniature and no run
    // A damaged model.
    std::string weights = bytes_of_file(dir / "m/model.safetensors");
    dir.put("m/model.safetensors", weights.substr(0, weights.size() - 10));
    expect("--model m --data set.jsonl", 1, "m/model.safetensors");
    REQUIRE(run_in(dir.path, "eval", "--help").code == 0);
}

TEST_CASE("eval: text and logits of the trained models equal their golden values", "[program][shared]") {
    Threads one(1);
    for (std::string name : {"stories260K", "stories260K-qwen-bf16"}) {
        const std::string folder = shared_path("models/" + name);
        if (folder.empty()) continue;
        const std::string model = std::filesystem::absolute(folder).string();
        Json golden = read_json(folder + "/golden.json");
        Cpu dev;
        Model<Cpu> m(dev, read_config(folder));
        m.load(folder);
        const int V = m.config.vocab, D = m.config.hidden;
        auto logits = [&](const std::vector<int>& ids) {
            Batch b;
            b.add(ids.data(), int(ids.size()));
            m.forward(b);
            std::vector<float> out(ids.size() * size_t(V));
            head_logits(dev, out.data(), m.hidden(), m.head(), int(ids.size()), D, V);
            return out;
        };
        auto close = [&](const std::vector<float>& got, size_t at, const Json& wanted) {
            for (size_t v = 0; v < wanted.size(); v++)
                REQUIRE(std::fabs(double(got[at + v]) - wanted[v].get<double>()) < 2e-4);
        };
        for (const Json& c : golden["cases"]) {
            INFO(name << ": " << c["prompt"]);
            std::vector<int> ids = c["ids"].get<std::vector<int>>();
            std::vector<float> got = logits(ids);
            if (c.contains("logits_all"))
                for (size_t t = 0; t < ids.size(); t++) close(got, t * size_t(V), c["logits_all"][t]);
            if (c.contains("logits_last")) close(got, (ids.size() - 1) * size_t(V), c["logits_last"]);

            // Greedy, through the program: BOS by hand and a blank before the text, as the folder's README
            // says.
            std::string prompt = c["prompt"].get<std::string>(), quoted_prompt;
            if (!prompt.empty()) prompt = " " + prompt;
            for (char ch : prompt) quoted_prompt += ch == '\'' ? std::string("'\\''") : std::string(1, ch);
            ProgramResult r = run_in(".", "eval",
                                     "--model '" + model + "' --raw --prompt '<s>" + quoted_prompt +
                                         "' --max-new-tokens 96 --threads 1");
            REQUIRE(r.code == 0);
            std::vector<int> greedy = c["greedy_ids"].get<std::vector<int>>();
            GenerateOptions o;
            o.sampling.temperature = 0, o.stop = {1, 2}, o.slots = 1;
            Generator<Cpu> g(m, o);
            Prompt p;
            p.ids = ids, p.max_new_tokens = int(greedy.size());
            g.add(p);
            Rollout out;
            while (g.step([&](Rollout x) { out = std::move(x); })) continue;
            REQUIRE(out.ids == greedy);
            const std::string text = c["greedy_text"].get<std::string>();
            REQUIRE(text.compare(0, prompt.size(), prompt) == 0);
            REQUIRE(r.out == text.substr(prompt.size()) + "\n");
        }
        // 512 tokens: log-probability of each next one.
        std::vector<int> ids = golden["long"]["ids"].get<std::vector<int>>();
        std::vector<float> got = logits(ids);
        const Json& wanted = golden["long"]["token_logprobs"];
        for (size_t t = 0; t + 1 < ids.size() && t < wanted.size(); t++) {
            SoftmaxRow<float> row = softmax_row(&got[t * size_t(V)], V, 1);
            REQUIRE(std::fabs(double(row.logp(got[t * size_t(V) + size_t(ids[t + 1])])) -
                              wanted[t].get<double>()) < 2e-4);
        }
    }
}

TEST_CASE("eval: real problem sets through the Qwen2.5 template and tokenizer", "[program][shared]") {
    const std::string tokenizer = shared_path("qwen2.5-tokenizer");
    if (tokenizer.empty()) return;
    ScratchFolder dir;
    put_model(dir, "m", 1, 151936, 4096);
    for (const char* file : {"tokenizer.json", "tokenizer_config.json"})
        copy_whole(tokenizer + "/" + file, dir / ("m/" + std::string(file)));
    for (std::string set : {"math500", "gsm8k_test"}) {
        std::string data = shared_path("data/" + set + ".jsonl");
        if (data.empty()) continue;
        data = std::filesystem::absolute(data).string();
        ProgramResult r =
            run_in(dir.path, "eval",
                   "--model m --data '" + data + "' --samples 2 --limit 6 --max-new-tokens 12 --out out");
        INFO(r.out << r.err);
        REQUIRE(r.code == 0);
        Json settings = read_json(dir / ("out/" + set + "/settings.json"));
        REQUIRE(settings["first_prompt"].get<std::string>().find("<|im_start|>system\n") == 0);
        REQUIRE(settings["first_prompt"].get<std::string>().find("<|im_end|>\n<|im_start|>assistant\n") !=
                std::string::npos);
        REQUIRE(read_samples(dir / ("out/" + set + "/samples.jsonl")).size() == 6);
        REQUIRE(read_json(dir / ("out/" + set + "/summary.json"))["truncated"] == 1);
        // All of the set parses and renders.
        r = run_in(dir.path, "eval", "--model m --data '" + data + "' --dry-run");
        REQUIRE(r.code == 0);
        REQUIRE(r.out.find("<|im_start|>user\n") != std::string::npos);
    }
}
