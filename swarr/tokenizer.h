// tokenizer.h: text to token ids and back, identical to Hugging Face's `tokenizers` on every input.
//
//   Tokenizer tok = Tokenizer::load("Qwen2.5-Math-1.5B");     // a folder or a tokenizer.json
//   std::vector<int> ids = tok.encode("x = 1", Specials::recognise);
//   std::string text = tok.decode(ids, /*skip_special=*/true);
//
// Reads byte-level BPE of the GPT-2, Qwen2, Qwen3 and Llama 3 kind. What the file asks for and this code does
// not do is refused by name; nothing is approximated. Encoding adds no tokens: begin_ids() and end_ids() are
// what the file's post-processor would put around a text.
#pragma once
#include <sys/stat.h>

#include <atomic>
#include <memory>
#include <optional>
#include <string>
#include <string_view>
#include <unordered_map>
#include <vector>

#include "added_tokens.h"
#include "bpe.h"
#include "json_lines.h"
#include "json_scan.h"
#include "split.h"
#include "unicode.h"

class Tokenizer {
  public:
    // Errors: no such file; not JSON; a part of the format that is not supported, by name.
    static Tokenizer load(const std::string& folder_or_file) {
        struct stat info;
        std::string file = folder_or_file;
        if (stat(file.c_str(), &info) == 0 && S_ISDIR(info.st_mode)) file += "/tokenizer.json";
        if (stat(file.c_str(), &info) != 0)
            fail(file + ": no such file",
                 "pass a model folder that has a tokenizer.json, or the file itself");
        return parse(read_file(file, uint64_t(1) << 28), file);
    }

    // `json` is the text of a tokenizer.json; `where` names it in errors.
    static Tokenizer parse(const std::string& json, const std::string& where);

    // Errors: text of 1 GiB or more. Ill-formed UTF-8 is read as U+FFFD.
    std::vector<int> encode(std::string_view text, Specials specials = Specials::recognise) const {
        std::vector<int> out;
        std::string replaced;
        if (!utf8_valid(text)) text = replaced = utf8_replace_invalid(text);
        std::vector<MarkedText::Range> literal;
        if (specials == Specials::literal && !text.empty()) literal.push_back({0, text.size()});
        encode_marked(text, literal, out);
        return out;
    }
    std::vector<int> encode(const MarkedText& marked) const {
        std::vector<int> out;
        encode_marked(marked.text, marked.literal, out);
        return out;
    }

    // Ids without a token vanish, as in the reference; ill-formed UTF-8 becomes U+FFFD.
    std::string decode(const std::vector<int>& ids, bool skip_special = false) const {
        std::string out;
        out.reserve(ids.size() * 4);
        for (int id : ids)
            if (!(skip_special && is_special(id))) out += bytes(id);
        return utf8_valid(out) ? out : utf8_replace_invalid(out);
    }

    // One more than the largest id. A model may have more rows than that (padding).
    int vocab_size() const { return model_.id_end(); }

    // The bytes a token stands for; they need not be whole characters. Empty for an id without a token.
    std::string_view bytes(int id) const { return model_.has(id) ? model_.bytes(id) : std::string_view(); }

    // The token with this content: an added token ("<|im_end|>"), or one spelled so in the vocabulary
    // ("Ġthe").
    std::optional<int> id_of(std::string_view token) const {
        for (const AddedToken& added : added_)
            if (added.content == token) return added.id;
        int id = model_.find_spelled(token);
        return id < 0 ? std::nullopt : std::optional<int>(id);
    }

    // Whether decoding with skip_special leaves it out.
    bool is_special(int id) const { return id >= 0 && id < int(special_.size()) && special_[id]; }
    const std::vector<AddedToken>& added_tokens() const { return added_; }
    const BpeModel& model() const { return model_; }

    // What the post-processor puts around a text (Llama 3: <|begin_of_text|>); Qwen has none.
    const std::vector<int>& begin_ids() const { return begin_ids_; }
    const std::vector<int>& end_ids() const { return end_ids_; }

  private:
    // Pieces repeat: a direct-mapped table of what short ones encode to. One per thread, for the tokenizer
    // last used there. 32 bytes an entry, 2 MiB in all.
    struct CachedPiece {
        uint64_t low, high;  // the piece's bytes, zeros behind
        int id[3];
        uint8_t length, count;
    };
    static constexpr size_t cache_bits = 16, longest_cached = 16;
    struct Work {
        std::unique_ptr<CachedPiece[]> cache{new CachedPiece[size_t(1) << cache_bits]()};
        uint64_t owner = 0;
        std::string padded;
    };

    void encode_marked(std::string_view text, const std::vector<MarkedText::Range>& literal,
                       std::vector<int>& out) const;
    void encode_between(std::string_view text, bool literal, std::vector<int>& out) const;
    void encode_plain(std::string_view text, std::vector<int>& out) const;

    template <class Gap>
    void split_added(const AddedTokenMatcher& matcher, std::string_view text,
                     const std::vector<MarkedText::Range>& literal, std::vector<int>& out, Gap gap) const;

    friend class TokenizerReader;
    BpeModel model_;
    std::vector<AddedToken> added_;
    AddedTokenMatcher raw_, after_nfc_;  // token = index in added_
    std::vector<uint8_t> special_;       // by id
    bool nfc_ = false, prefix_space_ = false;
    Split split_ = Split::none;
    std::vector<int> begin_ids_, end_ids_;
    uint64_t serial_ = 0;
};

// Turns ids into text one at a time and holds back the bytes of an unfinished character. The pieces together
// are decode() of all ids.
class StreamDecoder {
  public:
    explicit StreamDecoder(const Tokenizer& tok, bool skip_special = false)
        : tok_(tok), skip_special_(skip_special) {}

    std::string push(int id) {
        if (skip_special_ && tok_.is_special(id)) return "";
        held_ += tok_.bytes(id);
        // Only the last three bytes can be the start of a character that is not complete yet.
        size_t keep = held_.size();
        for (size_t back = 1; back <= 3 && back <= held_.size(); back++) {
            const char* p = held_.data() + held_.size() - back;
            if ((*p & 0xc0) == 0x80) continue;
            Utf8Step step = utf8_step(p, p + back);
            if (step.cut_off && size_t(step.length) == back) keep -= back;
            break;
        }
        std::string out = utf8_replace_invalid({held_.data(), keep});
        held_.erase(0, keep);
        return out;
    }

    // The end of the stream: a character that never became complete.
    std::string finish() {
        std::string out = utf8_replace_invalid(held_);
        held_.clear();
        return out;
    }

  private:
    const Tokenizer& tok_;
    bool skip_special_;
    std::string held_;
};

// ---- encoding -------------------------------------------------------------------------------------------

// Calls gap(begin, end) for the text between added tokens and appends their ids. A special token that touches
// a literal range is text; as in the reference, the search goes on behind it.
template <class Gap>
void Tokenizer::split_added(const AddedTokenMatcher& matcher, std::string_view text,
                            const std::vector<MarkedText::Range>& literal, std::vector<int>& out,
                            Gap gap) const {
    size_t done = 0, range = 0, from = 0;
    size_t space_begin = 0, space_end = 0;  // whitespace that is known already, so that no run is read twice
    for (AddedTokenMatcher::Match match; !matcher.empty() && matcher.find(text, from, match);) {
        from = match.end;
        const AddedToken& token = added_[size_t(match.token)];
        while (range < literal.size() && literal[range].end <= match.begin) range++;
        if (token.special && range < literal.size() && literal[range].begin < match.end) {
            from = std::min(match.end, literal[range].end);  // a template's own token may start there
            continue;
        }
        size_t begin = match.begin, end = match.end;
        const uint8_t* flags = char_flags();
        if (token.strip_left) {
            while (begin > done) {
                size_t before = begin - 1;
                while (before > done && (text[before] & 0xc0) == 0x80) before--;
                const char* p = text.data() + before;
                if (!(flags[utf8_take(p)] & char_space)) break;
                begin = before;
            }
            begin = std::max(begin, done);
        }
        if (token.strip_right) {
            if (end < space_begin || end > space_end) {
                space_begin = space_end = end;
                for (const char *p = text.data() + end, *stop = text.data() + text.size(); p < stop;) {
                    if (!(flags[utf8_take(p)] & char_space)) break;
                    space_end = size_t(p - text.data());
                }
            }
            end = space_end;
        }
        if (done < begin) gap(done, begin);
        // Whitespace that an earlier token took leaves nothing of a token that is made of it.
        if (begin < end) out.push_back(token.id);
        done = end;
    }
    if (done < text.size()) gap(done, text.size());
}

inline void Tokenizer::encode_marked(std::string_view text, const std::vector<MarkedText::Range>& literal,
                                     std::vector<int>& out) const {
    if (text.size() >= size_t(1) << 30)
        fail("a text of " + bytes_text(double(text.size())),
             "encode it in parts; one text must be under 1 GiB");
    split_added(raw_, text, literal, out, [&](size_t begin, size_t end) {
        bool touches = false;
        if (!after_nfc_.empty())
            for (const MarkedText::Range& range : literal)
                touches = touches || (range.begin < end && begin < range.end);
        encode_between(text.substr(begin, end - begin), touches, out);
    });
}

// Text without added tokens of the raw kind. Normalization moves bytes, so one literal byte makes all of it
// literal.
inline void Tokenizer::encode_between(std::string_view text, bool literal, std::vector<int>& out) const {
    std::string normalized;
    if (nfc_ && !surely_nfc(text)) text = normalized = normalize_nfc(text);
    std::vector<MarkedText::Range> ranges;
    if (literal) ranges.push_back({0, text.size()});
    split_added(after_nfc_, text, ranges, out,
                [&](size_t begin, size_t end) { encode_plain(text.substr(begin, end - begin), out); });
}

inline void Tokenizer::encode_plain(std::string_view text, std::vector<int>& out) const {
    static thread_local Work work;
    if (work.owner != serial_) {
        std::memset(static_cast<void*>(work.cache.get()), 0, sizeof(CachedPiece) << cache_bits);
        work.owner = serial_;
    }
    constexpr size_t padding = std::max(split_padding, longest_cached);
    std::string& padded = work.padded;
    padded.clear();
    if (prefix_space_ && text[0] != ' ') padded += ' ';
    padded += text;
    size_t size = padded.size();
    padded.append(padding, '\0');

    // Ids of known pieces are collected here: three are written at once, the count says how many of them are
    // meant.
    int stage[256];
    int staged = 0;
    auto flush = [&] {
        out.insert(out.end(), stage, stage + staged);
        staged = 0;
    };
    Splitter splitter(split_, {padded.data(), size});
    std::string_view piece;
    while (splitter.next(piece)) {
        if (piece.size() > longest_cached) {
            flush();
            model_.encode(piece, out);
            continue;
        }
        uint64_t low, high;
        std::memcpy(&low, piece.data(), 8);
        std::memcpy(&high, piece.data() + 8, 8);
        size_t length = piece.size();
        low &= length < 8 ? (uint64_t(1) << 8 * length) - 1 : ~uint64_t(0);
        high &= length <= 8 ? 0 : length < 16 ? (uint64_t(1) << 8 * (length - 8)) - 1 : ~uint64_t(0);
        uint64_t hash = (low ^ (high * 0xff51afd7ed558ccd) ^ length) * 0x9e3779b97f4a7c15;
        CachedPiece& entry = work.cache[(hash ^ hash >> 29) * 0xc4ceb9fe1a85ec53 >> (64 - cache_bits)];
        if (entry.low == low && entry.high == high && entry.length == length) {
            std::memcpy(stage + staged, entry.id, sizeof entry.id);
            staged += entry.count;
            if (staged > 256 - 3) flush();
            continue;
        }
        flush();
        size_t before = out.size();
        model_.encode(piece, out);
        size_t count = out.size() - before;
        if (count > 3) continue;
        entry = {low, high, {}, uint8_t(length), uint8_t(count)};
        std::copy_n(out.data() + before, count, entry.id);
    }
    flush();
    if (padded.capacity() > size_t(1) << 24) std::string().swap(padded);
}

// ---- reading tokenizer.json -----------------------------------------------------------------------------

class TokenizerReader {
  public:
    TokenizerReader(const std::string& where) : where_(where) {}

    Tokenizer read(const std::string& json) {
        if (!utf8_valid(json))
            fail(where_ + ": byte " + std::to_string(utf8_valid_prefix(json)) + ": not UTF-8",
                 "the file is damaged; copy or download it again");
        std::string_view model;
        Json rest = Json::object();
        JsonScan scan(json, where_);
        std::string key;
        for (bool more = scan.open('{'); more; more = scan.more('}')) {
            scan.string(key);
            scan.expect(':');
            std::string_view value = scan.value();
            if (key == "model")
                model = value;
            else
                rest[key] = parse_json(std::string(value), where_ + ": " + key);
        }
        scan.finish();
        if (model.empty())
            fail(where_ + ": no key \"model\" (found: " + keys_found(rest) + ")", not_a_tokenizer);
        for (const char* name : {"truncation", "padding"})
            if (!get(rest, name).is_null()) refuse(name, get(rest, name).dump());
        read_normalizer(get(rest, "normalizer"));
        read_pre_tokenizer(get(rest, "pre_tokenizer"));
        if (type_of(get(rest, "decoder")) != "ByteLevel") refuse("decoder", get(rest, "decoder").dump());
        read_model(model);
        read_added_tokens(get(rest, "added_tokens"));
        read_post_processor(get(rest, "post_processor"));
        static std::atomic<uint64_t> serial{0};
        tok_.serial_ = ++serial;
        return std::move(tok_);
    }

  private:
    static constexpr const char* not_a_tokenizer = "is this the tokenizer.json of a model folder?";

    [[noreturn]] void refuse(const std::string& part, const std::string& value) {
        fail(where_ + ": " + part + " " + ::quoted(value, 120) + " is not supported",
             "supported is byte-level BPE as GPT-2, Qwen2, Qwen3 and Llama 3 have it");
    }
    [[noreturn]] void wrong(const std::string& part, const std::string& what) {
        fail(where_ + ": " + part + ": " + what, "the file is damaged; copy or download it again");
    }

    static const Json& get(const Json& object, const char* key) {
        static const Json null;
        if (!object.is_object()) return null;
        auto it = object.find(key);
        return it == object.end() ? null : *it;
    }
    static std::string type_of(const Json& object) {
        const Json& type = get(object, "type");
        return type.is_string() ? type.get<std::string>() : "";
    }
    bool flag(const Json& object, const char* key, bool standard, const std::string& part) {
        const Json& value = get(object, key);
        if (value.is_null()) return standard;
        if (!value.is_boolean()) wrong(part, ::quoted(key) + " is " + value.dump() + ", not true or false");
        return value.get<bool>();
    }
    // The members of a "Sequence", or the one part by itself.
    static std::vector<Json> parts(const Json& object, const char* list) {
        if (object.is_null()) return {};
        if (type_of(object) == "Sequence" && get(object, list).is_array())
            return {get(object, list).begin(), get(object, list).end()};
        return {object};
    }

    void read_normalizer(const Json& normalizer) {
        for (const Json& part : parts(normalizer, "normalizers")) {
            if (type_of(part) != "NFC") refuse("normalizer", part.dump());
            tok_.nfc_ = true;
        }
    }

    void read_pre_tokenizer(const Json& pre_tokenizer) {
        bool byte_level = false;
        for (const Json& part : parts(pre_tokenizer, "pretokenizers")) {
            if (type_of(part) == "Split" && !byte_level && tok_.split_ == Split::none) {
                std::string behavior =
                    get(part, "behavior").is_string() ? get(part, "behavior").get<std::string>() : "";
                bool invert = flag(part, "invert", false, "pre_tokenizer");
                const Json& regex = get(get(part, "pattern"), "Regex");
                // The patterns leave no character out, so keeping the matches alone is keeping everything.
                bool pieces = (behavior == "Isolated" && !invert) || (behavior == "Removed" && invert);
                if (!pieces || !regex.is_string()) refuse("pre_tokenizer", part.dump());
                tok_.split_ = split_from_regex(regex.get_ref<const std::string&>());
                if (tok_.split_ == Split::none) refuse("pre_tokenizer pattern", regex.get<std::string>());
            } else if (type_of(part) == "ByteLevel" && !byte_level) {
                byte_level = true;
                tok_.prefix_space_ = flag(part, "add_prefix_space", true, "pre_tokenizer");
                bool regex = flag(part, "use_regex", true, "pre_tokenizer");
                if (tok_.split_ != Split::none && (regex || tok_.prefix_space_))
                    refuse("pre_tokenizer", "a second split or a space before every piece");
                if (regex) tok_.split_ = Split::gpt2;
            } else {
                refuse("pre_tokenizer", part.dump());
            }
        }
        if (!byte_level) refuse("pre_tokenizer", pre_tokenizer.dump());
    }

    void read_model(std::string_view text) {
        std::string_view vocab, merges;
        std::string key, unknown;
        JsonScan scan(text, where_ + ": model");
        for (bool more = scan.open('{'); more; more = scan.more('}')) {
            scan.string(key);
            scan.expect(':');
            std::string_view value = scan.value();
            if (key == "vocab") {
                vocab = value;
            } else if (key == "merges") {
                merges = value;
            } else {
                Json setting = parse_json(std::string(value), where_ + ": model: " + key);
                bool off = setting.is_null() || setting == false || setting == "" || setting == 0.0;
                if (key == "type" && setting != "BPE") refuse("model type", setting.dump());
                if ((key == "dropout" || key == "continuing_subword_prefix" || key == "end_of_word_suffix" ||
                     key == "byte_fallback") &&
                    !off)
                    refuse("model " + key, setting.dump());
                bool kind = key == "unk_token" ? setting.is_string() : setting.is_boolean();
                if ((key == "unk_token" || key == "fuse_unk" || key == "ignore_merges") &&
                    !(kind || setting.is_null()))
                    refuse("model " + key, setting.dump());
                if (key == "unk_token" && kind) unknown = setting.get<std::string>();
                if (key == "fuse_unk") tok_.model_.fuse_unknown = setting == true;
                if (key == "ignore_merges") tok_.model_.whole_first = setting == true;
            }
        }
        if (vocab.empty() || merges.empty()) wrong("model", "no \"vocab\" or no \"merges\"");
        read_vocab(vocab);
        read_merges(merges);
        if (!unknown.empty()) {
            tok_.model_.unknown_id = tok_.model_.find_spelled(unknown);
            if (tok_.model_.unknown_id < 0)
                wrong("model", "unk_token " + ::quoted(unknown) + " is not in the vocabulary");
        }
    }

    void read_vocab(std::string_view text) {
        JsonScan scan(text, where_ + ": model.vocab");
        std::string token;
        tok_.model_.reserve(text.size() / 24);
        for (bool more = scan.open('{'); more; more = scan.more('}')) {
            scan.string(token);
            scan.expect(':');
            int64_t id = scan.integer();
            if (id > max_token_id)
                wrong("model.vocab", ::quoted(token) + ": id " + std::to_string(id) + " is too large");
            if (tok_.model_.has(int(id))) wrong("model.vocab", "two tokens have id " + std::to_string(id));
            if (!tok_.model_.add(int(id), token)) wrong("model.vocab", "two entries " + ::quoted(token));
            vocab_count_++;
        }
    }

    // "a b" or ["a", "b"].
    void read_merges(std::string_view text) {
        JsonScan scan(text, where_ + ": model.merges");
        std::string left, right, bytes;
        int result = -1;
        BpeModel& model = tok_.model_;
        for (bool more = scan.open('['); more; more = scan.more(']')) {
            if (scan.peek() == '[') {
                scan.expect('[');
                scan.string(left);
                scan.expect(',');
                scan.string(right);
                scan.expect(']');
            } else {
                scan.string(left);
                if (left.compare(0, 8, "#version") == 0) continue;
                size_t space = left.find(' ');
                if (space == std::string::npos || left.find(' ', space + 1) != std::string::npos)
                    wrong("model.merges", ::quoted(left) + " is not two tokens with one blank between");
                right = left.substr(space + 1);
                left.resize(space);
            }
            int a, b, c;
            bytes.clear();
            if (spelled_bytes(left, bytes)) {
                size_t middle = bytes.size();
                bool both = spelled_bytes(right, bytes);
                std::string_view all = bytes;
                a = model.find(all.substr(0, middle));
                b = both ? model.find(all.substr(middle)) : model.find_spelled(right);
                // The results mostly stand in the vocabulary in the order of the merges.
                c = both ? model.find(all, result + 1) : model.find_spelled(left + right);
            } else {
                a = model.find_spelled(left), b = model.find_spelled(right),
                c = model.find_spelled(left + right);
            }
            result = c;
            if (a < 0 || b < 0 || c < 0)
                wrong("model.merges", "entry " + std::to_string(model.merge_count()) + ": " +
                                          ::quoted(a < 0   ? left
                                                   : b < 0 ? right
                                                           : left + right) +
                                          " is not in the vocabulary");
            if (model.merge_count() > size_t(max_token_id)) wrong("model.merges", "too many entries");
            model.merge(a, b, c);
        }
        model.seal();
    }

    void read_added_tokens(const Json& list) {
        if (list.is_null()) return;
        if (!list.is_array()) wrong("added_tokens", "not a list");
        std::unordered_map<std::string, bool> contents;  // whether each is special
        std::vector<std::string> all_seen;
        int next_id =
            -1;  // the id that the reference would give: it goes by position, not by the file's number
        for (const Json& entry : list) {
            const Json &content = get(entry, "content"), &id = get(entry, "id");
            if (!content.is_string() || !id.is_number_unsigned() ||
                id.get<uint64_t>() > uint64_t(max_token_id))
                wrong("added_tokens",
                      "an entry without content or with a bad id: " + ::quoted(entry.dump(), 120));
            AddedToken token;
            token.content = content.get<std::string>();
            token.id = id.get<int>();
            std::string part = "added token " + ::quoted(token.content);
            auto given = [&](const char* key) {  // the reference has no standard value for these either
                if (get(entry, key).is_null()) wrong(part, "no " + ::quoted(key));
                return flag(entry, key, false, part);
            };
            token.special = given("special");
            token.normalized = given("normalized");
            token.strip_left = given("lstrip");
            token.strip_right = given("rstrip");
            if (given("single_word")) refuse(part, "single_word");
            if (token.content.empty()) continue;
            if (!contents.emplace(token.content, token.special).second)
                wrong("added_tokens", "two entries " + ::quoted(token.content));

            int expected = tok_.model_.find_spelled(token.content);
            bool in_vocabulary = expected >= 0;
            if (!in_vocabulary) expected = next_id < vocab_count_ ? vocab_count_ : next_id;
            if (token.id != expected)
                fail(where_ + ": " + part + ": id " + std::to_string(token.id) + " in the file, but " +
                         std::to_string(expected) + " by its place",
                     "Hugging Face would use the second; give added tokens the ids that follow the "
                     "vocabulary's");
            // A normalized token is matched, and shown, in its normalized form.
            std::string seen = token.normalized && tok_.nfc_ ? normalize_nfc(token.content) : token.content;
            if (!in_vocabulary && tok_.model_.has(token.id))
                wrong("added_tokens", part + ": its id is another token's");
            if (!in_vocabulary || seen != token.content) tok_.model_.add_unlisted(token.id, seen);
            next_id = std::max(next_id, token.id + 1);
            (token.normalized ? tok_.after_nfc_ : tok_.raw_).add(seen, int(tok_.added_.size()));
            all_seen.push_back(std::move(seen));
            tok_.added_.push_back(token);
        }
        // The reference asks whether the token as it is shown is the name of a special one.
        for (size_t i = 0; i < all_seen.size(); i++) {
            auto it = contents.find(all_seen[i]);
            if (it == contents.end() || !it->second) continue;
            size_t id = size_t(tok_.added_[i].id);
            if (id >= tok_.special_.size()) tok_.special_.resize(id + 1, 0);
            tok_.special_[id] = 1;
        }
    }

    void read_post_processor(const Json& post_processor) {
        for (const Json& part : parts(post_processor, "processors")) {
            if (type_of(part) == "ByteLevel") continue;  // concerns offsets only
            if (type_of(part) != "TemplateProcessing" || !get(part, "single").is_array())
                refuse("post_processor", part.dump());
            bool behind = false;
            for (const Json& item : get(part, "single")) {
                if (!get(item, "Sequence").is_null()) {
                    behind = true;
                    continue;
                }
                const Json& name = get(get(item, "SpecialToken"), "id");
                const Json& ids =
                    name.is_string()
                        ? get(get(get(part, "special_tokens"), name.get<std::string>().c_str()), "ids")
                        : name;
                if (!ids.is_array())
                    wrong("post_processor", "a template without ids: " + ::quoted(item.dump(), 120));
                for (const Json& id : ids) {
                    if (!id.is_number_unsigned() || id.get<uint64_t>() > uint64_t(max_token_id) ||
                        !tok_.model_.has(id.get<int>()))
                        wrong("post_processor", "no token with id " + id.dump());
                    (behind ? tok_.end_ids_ : tok_.begin_ids_).push_back(id.get<int>());
                }
            }
        }
    }

    std::string where_;
    Tokenizer tok_;
    int vocab_count_ = 0;
};

inline Tokenizer Tokenizer::parse(const std::string& json, const std::string& where) {
    return TokenizerReader(where).read(json);
}
