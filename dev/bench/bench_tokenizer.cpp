// bench_tokenizer.cpp: speed of loading, encoding, decoding and training on one thread.
//
//   build/bench/bench_tokenizer [TEXTS.jsonl ...]
//
// Texts: every string of each line's "text", else of its "problem" and "solution". Default: the reference
// data beside the repository; without it the golden tokenizer and its texts, which only shows that the
// program runs. The ceiling printed beside is this machine's memory copy. dev/bench/bench_tokenizer.py adds
// the peers.
#include <sys/stat.h>

#include <algorithm>
#include <cstdlib>
#include <ctime>

#include "bpe_train.h"
#include "tokenizer.h"

namespace {

// Processor seconds of the fastest of several runs: other programs on the machine only make it longer.
template <class Work>
double best_seconds(Work work) {
    double best = 1e300, total = 0;
    for (int i = 0; i < 50 && (i < 3 || total < 1.5); i++) {
        clock_t start = clock();
        work();
        double seconds = double(clock() - start) / CLOCKS_PER_SEC;
        total += seconds;
        best = std::min(best, seconds);
    }
    return best;
}

void row(const char* what, double bytes, double seconds) {
    std::printf("  %-24s %9.2f ms %9.1f MB/s\n", what, seconds * 1e3, bytes / 1e6 / seconds);
}

bool exists(const std::string& path) {
    struct stat info;
    return stat(path.c_str(), &info) == 0;
}

std::vector<std::string> texts_of(const std::string& path) {
    std::vector<std::string> out;
    Json json;
    for (JsonLines in(path); in.next(json);) {
        std::string text = json.value("text", "");
        if (text.empty()) text = json.value("problem", "") + "\n" + json.value("solution", "");
        out.push_back(text);
    }
    return out;
}

void bench(const Tokenizer& tok, const std::string& name, const std::vector<std::string>& texts) {
    double bytes = 0;
    std::string all;
    for (const std::string& text : texts) bytes += double(text.size()), all += text;
    std::vector<std::vector<int>> ids(texts.size());
    size_t tokens = 0;
    for (size_t i = 0; i < texts.size(); i++) ids[i] = tok.encode(texts[i]), tokens += ids[i].size();
    std::printf("%s: %zu texts, %.0f bytes, %zu tokens\n", name.c_str(), texts.size(), bytes, tokens);
    std::string copy = all;
    row("memory copy", bytes, best_seconds([&] { std::memcpy(&copy[0], all.data(), all.size()); }));
    row("encode", bytes, best_seconds([&] {
            for (const std::string& text : texts) tok.encode(text);
        }));
    row("encode as one text", bytes, best_seconds([&] { tok.encode(all); }));
    row("decode", bytes, best_seconds([&] {
            for (const std::vector<int>& row : ids) tok.decode(row);
        }));
    row("train 8192 tokens", bytes, best_seconds([&] {
            BpeTrainer trainer(Split::qwen);
            for (const std::string& text : texts) trainer.add(text);
            trainer.train(8192);
        }));
}

}  // namespace

int main(int argc, char** argv) {
    return run_program("bench_tokenizer", [&] {
        const char* given = std::getenv("SWARR_SHARED");
        std::string shared = given ? given : "../shared", folder = shared + "/qwen2.5-tokenizer";
        if (!exists(folder)) {
            std::printf("no %s: golden tokenizer and texts\n", folder.c_str());
            Json golden = read_json("test/golden/tokenizer.json");
            std::vector<std::string> texts;
            for (const Json& c : golden["variants"][0]["cases"]) texts.push_back(c["text"]);
            bench(Tokenizer::parse(golden["base"].dump(), "golden"), "golden", texts);
            return 0;
        }
        double size = double(read_file(folder + "/tokenizer.json").size());
        row("load tokenizer.json", size, best_seconds([&] { Tokenizer::load(folder); }));
        Tokenizer tok = Tokenizer::load(folder);
        std::vector<std::string> files(argv + 1, argv + argc);
        if (files.empty()) files = {shared + "/data/math_train.jsonl", shared + "/tokenizer/encodings.jsonl"};
        for (const std::string& file : files) bench(tok, file, texts_of(file));
        for (const char* part : {"a", "_", " ", "\xe4\xb8\xad"}) {
            std::string text;
            while (text.size() < 1000000) text += part;
            row(("1 MB of \"" + std::string(part) + "\"").c_str(), double(text.size()),
                best_seconds([&] { tok.encode(text); }));
        }
        return 0;
    });
}
