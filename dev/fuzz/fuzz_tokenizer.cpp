// fuzz_tokenizer.cpp: libFuzzer target for encoding, decoding, chat rendering and the reading of
// tokenizer.json.
//
//   clang++ -std=c++17 -g -O1 -fsanitize=fuzzer,address,undefined -fno-sanitize-recover=undefined -Iswarr
//       dev/fuzz/fuzz_tokenizer.cpp -o build/fuzz_tokenizer && build/fuzz_tokenizer -max_total_time=60
//
// Run it in the repository's root: the tokenizers come from test/golden/tokenizer.json. The first byte of an
// input says what the rest is. Text must survive encoding and decoding up to NFC; files and conversations may
// only be refused by an Error.
#include "bpe_train.h"
#include "chat.h"
#include "tokenizer.h"

namespace {

void expect(bool condition, const char* what) {
    if (condition) return;
    std::fprintf(stderr, "violated: %s\n", what);
    std::abort();
}

struct Tokenizers {
    Json base;
    std::vector<Tokenizer> all;
    Tokenizers() {
        Json golden = read_json("test/golden/tokenizer.json");
        base = golden["base"];
        // Those that keep every character: the qwen, llama3, gpt2 and unsplit patterns, and shuffled merges.
        for (const Json& variant : golden["variants"]) {
            std::string name = variant["name"];
            if (name != "base" && name != "llama3" && name != "gpt2_split" && name != "no_split" &&
                name != "merges_shuffled")
                continue;
            Json file = base;
            for (auto& [key, value] : variant["root"].items()) file[key] = value;
            for (auto& [key, value] : variant["model"].items()) file["model"][key] = value;
            all.push_back(Tokenizer::parse(file.dump(), name));
        }
    }
};

const Tokenizers& tokenizers() {
    static const Tokenizers shared;
    return shared;
}

void round_trip(const Tokenizer& tok, std::string_view text) {
    std::string valid = utf8_replace_invalid(text), settled = normalize_nfc(valid);
    expect(utf8_valid(valid), "replaced text is well-formed");
    expect(normalize_nfc(settled) == settled, "NFC twice is NFC once");
    for (Specials specials : {Specials::recognise, Specials::literal}) {
        std::vector<int> ids = tok.encode(text, specials);
        std::string decoded = tok.decode(ids);
        expect(normalize_nfc(decoded) == settled, "text survives encoding and decoding up to NFC");
        StreamDecoder stream(tok);
        std::string streamed;
        for (int id : ids) streamed += stream.push(id);
        expect(streamed + stream.finish() == decoded, "streaming gives what decoding at once gives");
        if (specials == Specials::literal)
            for (int id : ids) expect(!tok.is_special(id), "literal text makes no special token");
    }
}

void decode_any(const Tokenizer& tok, std::string_view bytes) {
    std::vector<int> ids;
    for (size_t i = 0; i + 1 < bytes.size(); i += 2)
        ids.push_back(int(int16_t(uint8_t(bytes[i]) | uint8_t(bytes[i + 1]) << 8)) % 600);
    for (bool skip : {false, true}) {
        StreamDecoder stream(tok, skip);
        std::string streamed;
        for (int id : ids) streamed += stream.push(id);
        streamed += stream.finish();
        expect(streamed == tok.decode(ids, skip), "streaming gives what decoding at once gives");
        expect(utf8_valid(streamed), "decoded text is well-formed");
    }
}

// A whole tokenizer.json, or a patch on one that works, so that the fuzzer gets past the first brace.
void read_file_text(std::string_view text, bool patch) {
    try {
        std::string file(text);
        if (patch) {
            Json json = tokenizers().base;
            json.merge_patch(parse_json(file, "patch"));
            file = json.dump();
        }
        Tokenizer tok = Tokenizer::parse(file, "fuzz");
        std::vector<int> ids = tok.encode(
            "It's <|im_end|> 12  \xe4\xb8\xad\n\n e\xcc\x81! <mask> "
            "aaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaa");
        tok.decode(ids, true);
    } catch (const Error&) {
    }
}

void converse(std::string_view text) {
    try {
        Json messages = parse_json(std::string(text), "fuzz");
        for (const char* name : {"qwen2.5", "qwen3", "plain"}) {
            TrainingText t =
                ChatTemplate::named(name).encode_for_training(tokenizers().all[0], messages, messages);
            expect(t.ids.size() == t.trained.size(), "one flag per id");
        }
    } catch (const Error&) {
    }
}

void learn(std::string_view text) {
    BpeTrainer trainer(Split::qwen, {"<s>"});
    trainer.add(text);
    trainer.train(300);
    round_trip(Tokenizer::parse(trainer.tokenizer_json(), "trained"), text);
}

}  // namespace

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
    if (size == 0) return 0;
    std::string_view rest(reinterpret_cast<const char*>(data + 1), size - 1);
    const std::vector<Tokenizer>& all = tokenizers().all;
    int kind = data[0] % 16;
    if (kind < 5)
        round_trip(all[size_t(kind) % all.size()], rest);
    else if (kind < 7)
        decode_any(all[0], rest);
    else if (kind < 9)
        read_file_text(rest, false);
    else if (kind < 12)
        read_file_text(rest, true);
    else if (kind < 15)
        converse(rest);
    else
        learn(rest.substr(0, 2000));
    return 0;
}
