// Tokenizer and training: equality with Hugging Face's engine on the golden file
// (dev/oracle/tokenizer_golden.py) and, where it is there, on the whole reference collection; and what needs
// no reference: errors, long input, streams.
#include "tokenizer.h"

#include <map>
#include <thread>

#include "bpe_train.h"
#include "catch.h"
#include "rng.h"
#include "scratch.h"

namespace {

const Json& golden() {
    static const Json file = read_json("test/golden/tokenizer.json");
    return file;
}

Json variant_file(const Json& variant) {
    Json file = golden()["base"];
    for (auto& [key, value] : variant["root"].items()) file[key] = value;
    for (auto& [key, value] : variant["model"].items()) file["model"][key] = value;
    return file;
}

Tokenizer base() {
    return Tokenizer::parse(golden()["base"].dump(), "base");
}

std::string streamed(const Tokenizer& tok, const std::vector<int>& ids, bool skip_special) {
    StreamDecoder stream(tok, skip_special);
    std::string out;
    for (int id : ids) {
        std::string piece = stream.push(id);
        CHECK(utf8_valid(piece));
        out += piece;
    }
    return out + stream.finish();
}

// The definition of byte-pair merging, word for word: join the pair whose merge stands first, leftmost first.
std::vector<int> merged_by_definition(const BpeModel& model,
                                      const std::map<std::pair<int, int>, std::pair<int, int>>& merges,
                                      const std::string& piece) {
    std::vector<int> ids;
    for (char b : piece) ids.push_back(model.find({&b, 1}));
    while (true) {
        auto best = merges.end();
        size_t at = 0;
        for (size_t i = 0; i + 1 < ids.size(); i++) {
            auto it = merges.find({ids[i], ids[i + 1]});
            if (it != merges.end() && (best == merges.end() || it->second.first < best->second.first))
                best = it, at = i;
        }
        if (best == merges.end()) return ids;
        ids[at] = best->second.second;
        ids.erase(ids.begin() + int64_t(at) + 1);
    }
}

std::string refused(const Json& file) {
    return error_of([&] { Tokenizer::parse(file.dump(), "t.json"); });
}

void contains(const std::string& text, const std::string& part) {
    INFO(text);
    CHECK(text.find(part) != std::string::npos);
}

// Random pieces of `letters`, most of them short enough for the scan, some for the lists by rank.
void check_merges(const Json& file, const std::string& letters, uint32_t seed, int pieces) {
    Tokenizer tok = Tokenizer::parse(file.dump(), "t");
    const BpeModel& m = tok.model();
    std::map<std::pair<int, int>, std::pair<int, int>> merges;
    int rank = 0;
    for (std::string merge : file["model"]["merges"]) {
        size_t space = merge.find(' ');
        std::string left = merge.substr(0, space), right = merge.substr(space + 1);
        merges[{m.find_spelled(left), m.find_spelled(right)}] = {rank++, m.find_spelled(left + right)};
    }
    Rng rng(seed, Stream::test);
    for (int i = 0; i < pieces; i++) {
        std::string piece;
        for (uint32_t n = 1 + uint32_t(rng.below(i % 10 ? 60 : 400)); n > 0; n--)
            piece += letters[size_t(rng.below(uint32_t(letters.size())))];
        std::vector<int> ids;
        m.encode(piece, ids);
        REQUIRE(ids == merged_by_definition(m, merges, piece));
    }
}

}  // namespace

TEST_CASE("golden encodings and decodings of every kind of tokenizer.json") {
    for (const Json& variant : golden()["variants"]) {
        Tokenizer tok = Tokenizer::parse(variant_file(variant).dump(), variant["name"]);
        for (const Json& c : variant["cases"]) {
            std::string text = c["text"];
            INFO(variant["name"] << ": " << c.dump());
            std::vector<int> ids = tok.encode(text);
            CHECK(Json(ids) == c["ids"]);
            CHECK(Json(tok.encode(text, Specials::literal)) == c.value("literal", c["ids"]));
            CHECK(tok.decode(ids, true) == c.value("decoded", text));
            CHECK(streamed(tok, ids, true) == c.value("decoded", text));
        }
        CHECK(tok.model().missing_bytes() == (variant["name"] == "symbols" ? 256 - 25 : 0));
    }
}

TEST_CASE("a space before the text, but none before nothing: between added tokens of either kind") {
    Json file = golden()["base"];
    for (const Json& variant : golden()["variants"]) {
        if (variant["name"] == "normalized") file["added_tokens"] = variant["root"]["added_tokens"];
        if (variant["name"] == "gpt2") file["pre_tokenizer"] = variant["root"]["pre_tokenizer"];
    }
    REQUIRE(file["pre_tokenizer"]["add_prefix_space"] == true);
    Tokenizer tok = Tokenizer::parse(file.dump(), "t");
    for (const AddedToken& added : tok.added_tokens()) {  // some are sought after normalization
        const std::string token = added.content;
        const int id = added.id;
        INFO(token);
        CHECK(tok.encode(token + token) == std::vector<int>{id, id});
    }
    CHECK(tok.decode(tok.encode("<|im_end|>a<|im_end|>")) == "<|im_end|> a<|im_end|>");
    CHECK(tok.encode("") == std::vector<int>{});
}

TEST_CASE("merges as pairs are merges as text") {
    Json file = golden()["base"];
    for (Json& merge : file["model"]["merges"]) {
        std::string text = merge;
        size_t space = text.find(' ');
        merge = Json::array({text.substr(0, space), text.substr(space + 1)});
    }
    Tokenizer pairs = Tokenizer::parse(file.dump(), "pairs"), lines = base();
    for (const Json& c : golden()["variants"][0]["cases"])
        CHECK(pairs.encode(c["text"].get<std::string>()) == lines.encode(c["text"].get<std::string>()));
}

TEST_CASE("other spellings of the same file: escapes, matches kept instead of cut at") {
    Json file = golden()["base"];
    file["pre_tokenizer"]["pretokenizers"][0]["behavior"] = "Removed";
    file["pre_tokenizer"]["pretokenizers"][0]["invert"] = true;
    Tokenizer other = Tokenizer::parse(file.dump(1, '\t', true), "escaped"), tok = base();
    for (const Json& c : golden()["variants"][0]["cases"])
        CHECK(other.encode(c["text"].get<std::string>()) == tok.encode(c["text"].get<std::string>()));
    file["added_tokens"] = Json::array();
    file["model"]["vocab"]["\U0001f600"] = 480;  // in the file: \ud83d\ude00
    CHECK(Tokenizer::parse(file.dump(-1, ' ', true), "pair").id_of("\U0001f600") == 480);
}

TEST_CASE("short and long pieces are merged by definition, whatever the order of the merges") {
    for (const Json& variant : golden()["variants"])
        if (variant["name"] == "base" || variant["name"] == "merges_shuffled")
            check_merges(variant_file(variant), " theraxbn.\xe4\xb8\xad=\n", 1, 400);
    // Merges of two letters in any order: one often makes a pair that stands before it.
    for (uint32_t seed = 0; seed < 40; seed++) {
        Rng rng(seed, Stream::test, 1);
        std::vector<std::string> tokens = {"a", "b"}, merges;
        while (merges.size() < 12) {
            const std::string left = tokens[rng.below(uint32_t(tokens.size()))],
                              right = tokens[rng.below(uint32_t(tokens.size()))];
            if (std::count(tokens.begin(), tokens.end(), left + right)) continue;
            tokens.push_back(left + right);
            merges.push_back(left + " " + right);
        }
        for (size_t i = merges.size(); i > 1; i--) std::swap(merges[i - 1], merges[rng.below(uint32_t(i))]);
        Json file = golden()["base"];
        file["added_tokens"] = Json::array();
        file["model"]["merges"] = merges;
        int id = 1000;
        for (const std::string& token : tokens)
            if (!file["model"]["vocab"].contains(token)) file["model"]["vocab"][token] = id++;
        check_merges(file, "ab", seed, 60);
    }
}

// Three letters and merges in any order: joining two often makes a pair that stands earlier in the list.
TEST_CASE("a merge that makes an earlier pair is interrupted for it, in short and long pieces") {
    uint32_t x = 7;
    auto random = [&](size_t n) { return size_t((x = x * 1664525 + 1013904223) >> 16) % n; };
    int interrupted = 0;
    for (int m = 0; m < 60; m++) {
        std::vector<std::string> token = {"a", "b", "c"};
        std::map<std::pair<int, int>, std::pair<int, int>> merges;
        std::vector<std::pair<std::pair<int, int>, int>> list;
        while (list.size() < 12) {
            std::pair<int, int> pair(int(random(token.size())), int(random(token.size())));
            std::string joined = token[size_t(pair.first)] + token[size_t(pair.second)];
            auto known = std::find(token.begin(), token.end(), joined);
            if (!merges.emplace(pair, std::make_pair(0, 0)).second) continue;
            list.emplace_back(pair, int(known - token.begin()));
            if (known == token.end()) token.push_back(joined);
        }
        for (size_t i = list.size(); i > 1; i--) std::swap(list[i - 1], list[random(i)]);
        BpeModel model;
        for (size_t id = 0; id < token.size(); id++) REQUIRE(model.add(int(id), token[id]));
        for (size_t rank = 0; rank < list.size(); rank++) {
            model.merge(list[rank].first.first, list[rank].first.second, list[rank].second);
            merges[list[rank].first] = {int(rank), list[rank].second};
        }
        model.seal();
        for (size_t length : {5, 39, 40, 41, 42, 80, 200}) {
            std::string piece;
            while (piece.size() < length) piece += char('a' + random(3));
            std::vector<int> ids, swept;
            model.encode(piece, ids);
            REQUIRE(ids == merged_by_definition(model, merges, piece));
            // Each merge once, everywhere, in the order of the list: where that differs, the order mattered.
            for (char b : piece) swept.push_back(b - 'a');
            for (auto& [pair, result] : list)
                for (size_t i = 0; i + 1 < swept.size(); i++)
                    if (swept[i] == pair.first && swept[i + 1] == pair.second)
                        swept[i] = result, swept.erase(swept.begin() + int64_t(i) + 1);
            interrupted += ids != swept;
        }
    }
    CHECK(interrupted > 100);
}

TEST_CASE("the reference collection: encodings, decodings, ill-formed bytes, the whole vocabulary") {
    const std::string reference = shared_path("tokenizer");
    if (reference.empty()) return;
    Tokenizer tok = Tokenizer::load(shared_path("qwen2.5-tokenizer"));
    CHECK(tok.vocab_size() == 151665);
    CHECK(tok.id_of("<|im_end|>") == 151645);
    CHECK(tok.is_special(151645));
    CHECK(!tok.is_special(151657));
    Json row;
    int64_t wrong = 0, seen = 0;
    for (JsonLines in(reference + "/encodings.jsonl"); in.next(row); seen++)
        wrong += Json(tok.encode(row["text"].get_ref<const std::string&>())) != row["ids"];
    for (JsonLines in(reference + "/engine_disagreements.jsonl"); in.next(row); seen++)
        wrong += Json(tok.encode(row["text"].get_ref<const std::string&>())) != row["hf_rust"];
    CHECK(seen == 4437 + 429);
    CHECK(wrong == 0);
    for (JsonLines in(reference + "/decode.jsonl"); in.next(row);) {
        std::vector<int> ids = row["ids"];
        CHECK(tok.decode(ids) == row["text"]);
        CHECK(tok.decode(ids, true) == row["text_skip_special"]);
        CHECK(streamed(tok, ids, false) == row["text"]);
        CHECK(streamed(tok, ids, true) == row["text_skip_special"]);
    }
    for (JsonLines in(reference + "/invalid_utf8.jsonl"); in.next(row);) {
        std::string hex = row["bytes_hex"], bytes;
        for (size_t i = 0; i < hex.size(); i += 2) bytes += char(std::stoi(hex.substr(i, 2), nullptr, 16));
        CHECK(utf8_valid(bytes) == row["valid_utf8"].get<bool>());
        CHECK(utf8_replace_invalid(bytes) == row["replaced_text"]);
        CHECK(Json(tok.encode(bytes)) == row["ids"]);
    }
    std::map<int, std::vector<int>> other;
    for (JsonLines in(reference + "/vocab_not_roundtrip.jsonl"); in.next(row);)
        other[row["id"]] = row["ids"].get<std::vector<int>>();
    int64_t round = 0;
    wrong = 0;
    for (int id = 0; id < tok.vocab_size(); id++) {
        std::string text(tok.bytes(id));
        if (!utf8_valid(text)) continue;
        auto it = other.find(id);
        wrong += tok.encode(text) != (it == other.end() ? std::vector<int>{id} : it->second);
        round++;
    }
    CHECK(wrong == 0);
    CHECK(round == 148308 + 1909);
}

TEST_CASE("the exact Unicode tables") {
    const std::string folder = shared_path("tokenizer/unicode");
    if (folder.empty()) return;
    std::vector<uint8_t> want(unicode_end);
    auto read = [&](const std::string& name, uint8_t flag) {
        std::ifstream in(folder + "/" + name);
        in >> std::hex;
        for (uint32_t first, last; in >> first >> last;)
            for (uint32_t c = first; c <= last; c++) want[c] |= flag;
    };
    read("letters_L.txt", char_letter);
    read("numbers_N.txt", char_number);
    read("whitespace_s.txt", char_space);
    int64_t wrong = 0;
    for (uint32_t c = 0; c < unicode_end; c++)
        wrong += (char_flags()[c] & (char_letter | char_number | char_space)) != want[c];
    CHECK(wrong == 0);
}

TEST_CASE("NFC: composition, exclusions, blocked marks, Hangul") {
    auto nfc = [](const std::string& text) { return normalize_nfc(text); };
    CHECK(nfc("e\u0301x\u0301") == "\u00e9x\u0301");
    CHECK(nfc("a\u0307\u0323") == "\u1ea1\u0307");  // marks are ordered by class first
    CHECK(nfc("\u0344") == "\u0308\u0301");         // a composition exclusion
    CHECK(nfc("\u212b\u2126") == "\u00c5\u03a9");   // singletons
    CHECK(nfc("\u1112\u1161\u11ab") == "\ud55c");   // Hangul
    CHECK(nfc("\uac00\u11a8") == "\uac01");
    CHECK(nfc("\u09c7\u09be") == "\u09cb");  // composes although neither is a mark with a class
    CHECK(nfc("\uac00\u11c2") == "\uac1b");  // the last final consonant
    CHECK(nfc("\u0301a") == "\u0301a");      // a mark without a base
    CHECK(nfc("a\u0328\u0301") == "\u0105\u0301");
    CHECK(nfc("\U00011935\U00011930") == "\U00011935\U00011930");  // composes since Unicode 13: not here
    CHECK(nfc("a\u0312\u0301") == "a\u0312\u0301");                // a mark of the same class blocks the next
    CHECK(nfc("") == "");
    std::string marks = "a";
    for (int i = 0; i < 100000; i++) marks += i % 2 ? "\u0323" : "\u0307";
    CHECK(nfc(nfc(marks)) == nfc(marks));
}

TEST_CASE("where text is cut into pieces") {
    auto pieces = [](Split split, std::string text) {
        size_t size = text.size();
        text.append(split_padding, '\0');
        Splitter splitter(split, {text.data(), size});
        std::string out;
        for (std::string_view piece; splitter.next(piece);)
            out += (out.empty() ? "" : "|") + std::string(piece);
        return out;
    };
    CHECK(pieces(Split::qwen, "it'S x'\u017ft o'lL 'r") == "it|'S| x|'\u017f|t| o|'lL| '|r");
    CHECK(pieces(Split::qwen, "x'\u017f") == "x|'\u017f");  // at the very end
    CHECK(pieces(Split::gpt2, "it'S it's x'\u017ft") == "it|'|S| it|'s| x|'|\u017ft");
    CHECK(pieces(Split::qwen, "a1234 \u0663 (x)") == "a|1|2|3|4| |\u0663| (|x|)");
    CHECK(pieces(Split::llama3, "a1234 12") == "a|123|4| |12");
    CHECK(pieces(Split::gpt2, "a1234 12") == "a|1234| 12");
    CHECK(pieces(Split::qwen, "a  b\n\n  c \n") == "a| | b|\n\n| | c| \n");
    CHECK(pieces(Split::gpt2, "a  b\n\n  c \n") == "a| | b|\n\n | c| \n");
    CHECK(pieces(Split::qwen, "x=1;\r\n\ty\u00a0") == "x|=|1|;\r\n|\ty|\u00a0");
    CHECK(pieces(Split::none, "a b") == "a b");
}

TEST_CASE("long and hostile text is read in linear time") {
    Tokenizer tok = base();
    for (size_t n : {1, 2, 3, 7, 8, 9, 16, 17}) {  // zeros are text too, also where known pieces are kept
        std::string zeros(n, '\0');
        CHECK(tok.decode(tok.encode(zeros)) == zeros);
    }
    for (std::string part :
         {"a", " ", "\n", "_", "1", "the", "\u4e2d", "e\u0301", "\u0301", "<|im_", "'s", "<", "\xff"}) {
        std::string text;
        while (text.size() < 300000) text += part;
        std::vector<int> ids = tok.encode(text);  // a quadratic step would take minutes
        CHECK(!ids.empty());
        if (surely_nfc(utf8_replace_invalid(text))) CHECK(tok.decode(ids) == utf8_replace_invalid(text));
    }
}

TEST_CASE("literal ranges: a template's control tokens count, a message's do not") {
    Tokenizer tok = base();
    int start = *tok.id_of("<|im_start|>"), end = *tok.id_of("<|im_end|>"), call = *tok.id_of("<tool_call>");
    MarkedText text;
    text.add("<|im_start|>", Specials::recognise);
    text.add("x<|im_end|><tool_call>\xff", Specials::literal);
    text.add("<|im_end|>", Specials::recognise);
    std::vector<int> ids = tok.encode(text);
    CHECK(std::count(ids.begin(), ids.end(), start) == 1);
    CHECK(std::count(ids.begin(), ids.end(), end) == 1);
    CHECK(std::count(ids.begin(), ids.end(), call) == 1);
    CHECK(ids.back() == end);
    CHECK(tok.decode(ids) == "<|im_start|>x<|im_end|><tool_call>\ufffd<|im_end|>");
    // A control token put together from both sides is not one.
    MarkedText joined;
    joined.add("<|im_", Specials::literal);
    joined.add("end|>", Specials::recognise);
    ids = tok.encode(joined);
    CHECK(std::count(ids.begin(), ids.end(), end) == 0);
    for (size_t cut : {1, 9}) {  // "<|im_end|>": also where only its first or last byte is the message's
        const std::string control = "<|im_end|>";
        for (bool head_is_literal : {false, true}) {
            MarkedText halves;
            halves.add(control.substr(0, cut), head_is_literal ? Specials::literal : Specials::recognise);
            halves.add(control.substr(cut), head_is_literal ? Specials::recognise : Specials::literal);
            ids = tok.encode(halves);
            CHECK(std::count(ids.begin(), ids.end(), end) == 0);
        }
    }
    // A token that is matched after NFC is the template's only where no text of the message is with it.
    Json normalized = golden()["base"];
    Json added = normalized["added_tokens"][0];
    added["id"] = 484, added["content"] = "<n>", added["normalized"] = true;
    normalized["added_tokens"].push_back(added);
    Tokenizer after_nfc = Tokenizer::parse(normalized.dump(), "normalized");
    for (Specials whose : {Specials::literal, Specials::recognise}) {
        MarkedText marked;
        marked.add("<|im_start|>a", Specials::recognise);
        marked.add("<n>", whose);
        ids = after_nfc.encode(marked);
        CHECK(std::count(ids.begin(), ids.end(), 484) == (whose == Specials::recognise));
    }
    // The template's own token may start inside one that is not.
    Json file = golden()["base"];
    Json token = file["added_tokens"][0];
    for (const char* content : {"y<x>", "<x>"}) {
        token["id"] = 480 + file["added_tokens"].size();
        token["content"] = content;
        file["added_tokens"].push_back(token);
    }
    Tokenizer overlapping = Tokenizer::parse(file.dump(), "overlapping");
    MarkedText inside;
    inside.add("y", Specials::literal);
    inside.add("<x>", Specials::recognise);
    CHECK(overlapping.encode("y<x>") == std::vector<int>{*overlapping.id_of("y<x>")});
    CHECK(overlapping.encode(inside) == std::vector<int>{*overlapping.id_of("y"), *overlapping.id_of("<x>")});
}

TEST_CASE("several threads and several tokenizers at once") {
    Tokenizer first = base(),
              second = Tokenizer::parse(variant_file(golden()["variants"][1]).dump(), "second");
    std::vector<int64_t> wrong(4);
    std::vector<std::thread> threads;
    for (size_t t = 0; t < 4; t++)
        threads.emplace_back([&, t] {
            for (int i = 0; i < 20; i++)
                for (size_t v : {t % 2, 1 - t % 2})
                    for (const Json& c : golden()["variants"][v]["cases"])
                        wrong[t] +=
                            Json((v ? second : first).encode(c["text"].get_ref<const std::string&>())) !=
                            c["ids"];
        });
    for (std::thread& t : threads) t.join();
    CHECK(wrong == std::vector<int64_t>(4, 0));
}

TEST_CASE("what the format allows and this code does not do is refused by name") {
    const Json good = golden()["base"];
    REQUIRE(refused(good) == "no error");
    auto with = [&](const char* pointer, Json value) {
        Json file = good;
        file[Json::json_pointer(pointer)] = std::move(value);
        return refused(file);
    };
    contains(with("/normalizer", {{"type", "Lowercase"}}),
             "t.json: normalizer \"{\\\"type\\\":\\\"Lowercase\\\"}\" is not supported");
    contains(with("/pre_tokenizer", {{"type", "Whitespace"}}), "pre_tokenizer");
    contains(with("/pre_tokenizer", nullptr), "pre_tokenizer");
    contains(with("/pre_tokenizer/pretokenizers/0/pattern/Regex", "\\w+"),
             "pre_tokenizer pattern \"\\\\w+\"");
    contains(with("/pre_tokenizer/pretokenizers/0/behavior", "MergedWithNext"), "pre_tokenizer");
    contains(with("/decoder", {{"type", "WordPiece"}}), "decoder");
    contains(with("/post_processor", {{"type", "BertProcessing"}}), "post_processor");
    contains(with("/model/type", "Unigram"), "model type");
    contains(with("/model/dropout", 0.1), "model dropout");
    contains(with("/model/byte_fallback", true), "model byte_fallback");
    contains(with("/model/continuing_subword_prefix", "##"), "model continuing_subword_prefix");
    contains(with("/model/unk_token", 5), "model unk_token");
    contains(with("/model/fuse_unk", 1), "model fuse_unk");
    contains(with("/model/ignore_merges", "yes"), "model ignore_merges");
    contains(with("/model/unk_token", "nope"), "unk_token \"nope\" is not in the vocabulary");
    contains(with("/truncation", {{"max_length", 5}}), "truncation");
    contains(with("/added_tokens/0/single_word", true), "single_word");
    contains(with("/added_tokens/0/normalized", nullptr), "no \"normalized\"");
    contains(with("/added_tokens/0/lstrip", "yes"), "\"lstrip\" is \"yes\", not true or false");
    contains(with("/added_tokens/0/id", 5), "id 5 in the file, but 480 by its place");
    contains(with("/added_tokens/1/content", "<|endoftext|>"), "two entries");
    contains(with("/model/vocab/zzz", 3), "two tokens have id 3");
    contains(with("/model/vocab/zzz", -1), "expected a whole number");
    contains(with("/model/vocab/zzz", 99999999), "too large");
    contains(with("/model/merges/0", "a b c"), "not two tokens");
    contains(with("/model/merges/0", "a zzz"), "\"zzz\" is not in the vocabulary");
    contains(with("/model/merges/0", Json::array({"a"})), "expected ,");
    contains(refused(Json::array()), "expected {");
    contains(refused(Json::object()), "no key \"model\"");
    CHECK_THROWS_AS(Tokenizer::load("/no/such/folder"), Error);
    std::string text = good.dump();
    for (size_t cut = 0; cut < text.size(); cut += 97)
        CHECK_THROWS_AS(Tokenizer::parse(text.substr(0, cut), "cut"), Error);
}

// What the reference does at these corners (tokenizers 0.23; where it panics nothing is expected).
TEST_CASE("added tokens that take whitespace from each other, and special ones that NFC changes") {
    auto with = [](std::vector<Json> tokens) {
        Json file = golden()["base"];
        int id = 480;
        file["added_tokens"] = Json::array();
        for (const Json& token : tokens) {
            Json whole = {{"id", id++},      {"single_word", false}, {"lstrip", false},
                          {"rstrip", false}, {"normalized", false},  {"special", false}};
            whole.update(token);
            file["added_tokens"].push_back(whole);
        }
        return Tokenizer::parse(file.dump(), "t");
    };
    const Json both = {{"content", "<b>"}, {"lstrip", true}, {"rstrip", true}};
    Json space = {{"content", " "}, {"lstrip", true}, {"rstrip", true}};
    const std::vector<int> x = base().encode("x");
    REQUIRE(x.size() == 1);
    using Ids = std::vector<int>;
    Tokenizer tok = with({both, space});
    CHECK(tok.encode("<b>  x") == Ids{480, x[0]});  // nothing is left of the blanks
    CHECK(tok.encode("x  <b>") == Ids{x[0], 481, 480});
    CHECK(tok.encode("x   x") == Ids{x[0], 481, x[0]});
    space["lstrip"] = space["rstrip"] = false;
    CHECK(with({both, space}).encode("<b> x") == Ids{480, 481, x[0]});  // the blank counts twice
    std::string blanks = "<b>" + std::string(300000, ' ') + "x";
    space["rstrip"] = true;
    CHECK(with({both, space}).encode(blanks).size() == 300002);  // and its run is read once

    // Between two tokens there is no text, so no space before it either.
    Json file = golden()["base"];
    file["pre_tokenizer"] = {{"type", "ByteLevel"}, {"add_prefix_space", true}, {"use_regex", true}};
    for (bool normalized : {false, true}) {
        file["added_tokens"][2]["normalized"] = normalized;
        tok = Tokenizer::parse(file.dump(), "prefix");
        int end = *tok.id_of("<|im_end|>");
        CHECK(tok.encode("<|im_end|><|im_end|>") == Ids{end, end});
        Ids spaced = tok.encode("x");
        CHECK(spaced == base().encode(" x"));
        spaced.insert(spaced.begin(), end);
        CHECK(tok.encode("<|im_end|>x") == spaced);
    }

    tok = with({{{"content", "=\u0338"}, {"normalized", true}, {"special", true}},
                {{"content", "\u2260x"}, {"normalized", true}, {"special", true}}});
    CHECK(tok.encode("=\u0338 \u2260x").front() == 480);
    CHECK(tok.decode({480, 481}, false) == "\u2260\u2260x");
    CHECK(tok.decode({480, 481}, true) == "\u2260");  // shown as \u2260, which is no special token's name
}

TEST_CASE("begin and end ids come from the post-processor and are not added by encode") {
    Json file = golden()["base"];
    file["post_processor"] = {
        {"type", "TemplateProcessing"},
        {"single", Json::array({{{"SpecialToken", {{"id", "<|endoftext|>"}, {"type_id", 0}}}},
                                {{"Sequence", {{"id", "A"}, {"type_id", 0}}}}})},
        {"special_tokens", {{"<|endoftext|>", {{"id", "<|endoftext|>"}, {"ids", {480}}}}}}};
    Tokenizer tok = Tokenizer::parse(file.dump(), "t");
    CHECK(tok.begin_ids() == std::vector<int>{480});
    CHECK(tok.end_ids().empty());
    CHECK(tok.encode("a") == base().encode("a"));
    Json& single = file["post_processor"]["single"];
    std::swap(single[0], single[1]);
    tok = Tokenizer::parse(file.dump(), "t");
    CHECK(tok.begin_ids().empty());
    CHECK(tok.end_ids() == std::vector<int>{480});
}

TEST_CASE("training finds the reference's merges, twice the same, and its file is read back") {
    const Json& want = golden()["train"];
    BpeTrainer trainer(Split::qwen, {"<|endoftext|>", "<|pad|>"});
    for (std::string text : want["texts"]) trainer.add(text + "<|pad|>");
    trainer.train(want["vocab_size"].get<int>() + 2);
    Json merges = Json::array();
    for (auto [left, right] : trainer.merges())
        merges.push_back(spelling(trainer.tokens()[size_t(left)]) + " " +
                         spelling(trainer.tokens()[size_t(right)]));
    CHECK(merges == want["merges"]);
    std::string file = trainer.tokenizer_json();
    Tokenizer tok = Tokenizer::parse(file, "trained");
    CHECK(tok.vocab_size() == 402);
    CHECK(tok.encode("hello<|pad|>").back() == 401);
    CHECK(tok.decode(tok.encode("any text \u4e2d\U0001f600")) == "any text \u4e2d\U0001f600");
    trainer.train(402);
    CHECK(trainer.tokenizer_json() == file);
    trainer.train(100000);
    CHECK(trainer.tokens().size() < 2000);  // every piece has become one token
    CHECK_THROWS_AS(trainer.train(257), Error);
    CHECK(hint_of([&] { trainer.train(max_token_id + 1); }).find("to " + std::to_string(max_token_id)) !=
          std::string::npos);
}

TEST_CASE("training refuses special tokens that the written file could not hold") {
    auto named = [](std::vector<std::string> special) {
        return error_of([&] {
            BpeTrainer trainer(Split::qwen, special);
            for (int i = 0; i < 9; i++) trainer.add("hello hello");
            trainer.train(300);
            Tokenizer::parse(trainer.tokenizer_json(), "trained");
        });
    };
    CHECK(named({"<a>", "<b>"}) == "no error");
    CHECK(named({"hello"}) == "no error");  // it is cut out of the text, so that no token is called so
    contains(named({"<a>", "<b>", "<a>"}), "\"<a>\" is given twice");
    contains(named({"h"}), "\"h\" is also the name of an ordinary token");
    contains(named({"\u0120hello"}), "is also the name of an ordinary token");  // " hello" is spelled so
    contains(named({"\xff"}), "not UTF-8");
    contains(named({""}), "an empty special token");
}
