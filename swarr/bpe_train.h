// bpe_train.h: learns byte-pair merges from text and writes them as a tokenizer.json.
//
// The most frequent pair of neighbours becomes a token, again and again. Ties go to the pair with the smaller
// ids, so the result depends on the text alone; it is the one that Hugging Face's BpeTrainer finds with its
// byte alphabet. Texts are cut into pieces first and equal pieces counted once; a merge visits only the
// pieces that hold its pair.
#pragma once
#include <algorithm>
#include <queue>
#include <string>
#include <string_view>
#include <unordered_map>
#include <vector>

#include "added_tokens.h"
#include "bpe.h"
#include "json_lines.h"
#include "split.h"
#include "unicode.h"

class BpeTrainer {
  public:
    // Special tokens in the text are cut out of it and get the ids behind the vocabulary.
    explicit BpeTrainer(Split split, std::vector<std::string> special = {})
        : split_(split), special_(std::move(special)) {
        for (size_t i = 0; i < special_.size(); i++) {
            const std::string& token = special_[i];
            if (token.empty()) fail("an empty special token", "give it a name such as <|endoftext|>");
            if (!utf8_valid(token))
                fail("special token " + ::quoted(token) + ": not UTF-8", "type it in UTF-8");
            if (std::find(special_.begin(), special_.begin() + int64_t(i), token) !=
                special_.begin() + int64_t(i))
                fail("special token " + ::quoted(token) + " is given twice", "name it once");
            matcher_.add(special_[i], int(i));
        }
    }

    // Counts the pieces of one text. Nothing is learnt across two texts.
    void add(std::string_view text) {
        std::string replaced;
        if (!utf8_valid(text)) text = replaced = utf8_replace_invalid(text);
        size_t from = 0;
        AddedTokenMatcher::Match match;
        while (!matcher_.empty() && matcher_.find(text, from, match)) {
            add_plain(text.substr(from, match.begin - from));
            from = match.end;
        }
        add_plain(text.substr(from));
    }

    size_t distinct_pieces() const { return counts_.size(); }

    // Learns until there are `vocab_size` tokens, bytes and special tokens included; fewer where every piece
    // has become one token. Errors: a size below that of bytes and special tokens, or too large; a special
    // token that is spelled like an ordinary one, so that a file could not tell them apart.
    void train(int vocab_size) {
        int tokens = vocab_size - int(special_.size());
        if (tokens < 256 || vocab_size > max_token_id)
            fail("a vocabulary of " + std::to_string(vocab_size) + " tokens",
                 "choose " + std::to_string(256 + special_.size()) +
                     " (256 bytes and the special tokens) to " + std::to_string(max_token_id));
        start();
        while (int(token_.size()) < tokens && !queue_.empty()) {
            Candidate top = queue_.top();
            queue_.pop();
            int64_t now = pair_count_[top.pair];
            if (now != top.count) {  // it lost occurrences since it was queued
                if (now > 0) queue_.push({now, top.pair, top.places});
                continue;
            }
            apply(top);
        }
        for (const std::string& token : special_) {
            std::string bytes;
            if (spelled_bytes(token, bytes) && id_of_.count(bytes))
                fail("special token " + ::quoted(token) + " is also the name of an ordinary token",
                     "choose a name that no text holds, such as <|endoftext|>");
        }
    }

    // Bytes of each token, without the special ones; (left, right) ids of each merge.
    const std::vector<std::string>& tokens() const { return token_; }
    const std::vector<std::pair<int, int>>& merges() const { return merge_; }

    // The file in Hugging Face's format.
    std::string tokenizer_json() const {
        Json root;
        root["version"] = "1.0";
        root["truncation"] = root["padding"] = nullptr;
        root["added_tokens"] = Json::array();
        for (size_t i = 0; i < special_.size(); i++)
            root["added_tokens"].push_back({{"id", token_.size() + i},
                                            {"content", special_[i]},
                                            {"single_word", false},
                                            {"lstrip", false},
                                            {"rstrip", false},
                                            {"normalized", false},
                                            {"special", true}});
        root["normalizer"] = {{"type", "NFC"}};
        Json bytes = {{"type", "ByteLevel"},
                      {"add_prefix_space", false},
                      {"trim_offsets", false},
                      {"use_regex", false}};
        Json cut = {{"type", "Split"},
                    {"pattern", {{"Regex", split_regex(split_)}}},
                    {"behavior", "Isolated"},
                    {"invert", false}};
        root["pre_tokenizer"] = {{"type", "Sequence"}, {"pretokenizers", Json::array({cut, bytes})}};
        root["post_processor"] = nullptr;
        root["decoder"] = bytes;
        Json& model = root["model"];
        model = {{"type", "BPE"},
                 {"dropout", nullptr},
                 {"unk_token", nullptr},
                 {"continuing_subword_prefix", ""},
                 {"end_of_word_suffix", ""},
                 {"fuse_unk", false},
                 {"byte_fallback", false},
                 {"ignore_merges", false}};
        // ordered_json finds keys by walking; a plain list of lines is linear.
        std::string vocab, merges;
        for (size_t id = 0; id < token_.size(); id++)
            vocab += (id ? ",\n      " : "\n      ") + Json(spelling(token_[id])).dump() + ": " +
                     std::to_string(id);
        for (size_t rank = 0; rank < merge_.size(); rank++) {
            auto [left, right] = merge_[rank];
            merges += (rank ? ",\n      " : "\n      ") +
                      Json(spelling(token_[size_t(left)]) + " " + spelling(token_[size_t(right)])).dump();
        }
        std::string text = root.dump(2);
        size_t end = text.rfind("\n  }\n}");
        return text.substr(0, end) + ",\n    \"vocab\": {" + vocab + "\n    },\n    \"merges\": [" + merges +
               (merges.empty() ? "]" : "\n    ]") + text.substr(end) + "\n";
    }

  private:
    struct Piece {
        std::vector<int> ids;
        int64_t count;
    };
    // A pair is its left id in the high half and its right id in the low one, so that ties compare as (left,
    // right).
    struct Candidate {
        int64_t count;
        uint64_t pair;
        std::vector<int> places;  // indices of pieces that may hold it
        bool operator<(const Candidate& other) const {
            return count != other.count ? count < other.count : pair > other.pair;
        }
    };
    static uint64_t pair_of(int left, int right) { return uint64_t(left) << 32 | uint32_t(right); }

    void add_plain(std::string_view text) {
        padded_ = surely_nfc(text) ? std::string(text) : normalize_nfc(text);
        size_t size = padded_.size();
        padded_.append(split_padding, '\0');
        Splitter splitter(split_, {padded_.data(), size});
        for (std::string_view piece; splitter.next(piece);) counts_[std::string(piece)]++;
    }

    void start() {
        token_.clear();
        merge_.clear();
        id_of_.clear();
        pieces_.clear();
        pair_count_.clear();
        queue_ = {};
        // Bytes in the order of the characters that spell them, as in every byte-level vocabulary.
        std::vector<int> order(256), id_of_byte(256);
        for (int b = 0; b < 256; b++) order[size_t(b)] = b;
        std::sort(order.begin(), order.end(),
                  [](int a, int b) { return byte_alphabet().character[a] < byte_alphabet().character[b]; });
        for (int b : order) {
            id_of_byte[size_t(b)] = int(token_.size());
            id_of_[std::string(1, char(b))] = int(token_.size());
            token_.push_back(std::string(1, char(b)));
        }
        std::unordered_map<uint64_t, std::vector<int>> places;
        for (auto& [text, count] : counts_) {
            Piece piece{{}, count};
            for (char c : text) piece.ids.push_back(id_of_byte[uint8_t(c)]);
            int index = int(pieces_.size());
            for (size_t i = 0; i + 1 < piece.ids.size(); i++) {
                uint64_t pair = pair_of(piece.ids[i], piece.ids[i + 1]);
                pair_count_[pair] += count;
                note(places[pair], index);
            }
            pieces_.push_back(std::move(piece));
        }
        for (auto& [pair, where] : places) queue_.push({pair_count_[pair], pair, std::move(where)});
    }

    static void note(std::vector<int>& places, int index) {
        if (places.empty() || places.back() != index) places.push_back(index);
    }

    void apply(const Candidate& top) {
        int left = int(top.pair >> 32), right = int(uint32_t(top.pair));
        std::string joined = token_[size_t(left)] + token_[size_t(right)];
        auto [known, is_new] = id_of_.emplace(joined, int(token_.size()));
        int result = known->second;
        if (is_new) token_.push_back(joined);
        merge_.push_back({left, right});
        std::unordered_map<uint64_t, std::vector<int>> grown;
        for (int index : top.places) {
            Piece& piece = pieces_[size_t(index)];
            std::vector<int>& ids = piece.ids;
            size_t kept = 0;
            for (size_t i = 0; i < ids.size(); i++) {
                if (!(i + 1 < ids.size() && ids[i] == left && ids[i + 1] == right)) {
                    ids[kept++] = ids[i];
                    continue;
                }
                auto changed = [&](int a, int b, int64_t by) {
                    uint64_t pair = pair_of(a, b);
                    pair_count_[pair] += by;
                    if (by > 0) note(grown[pair], index);
                };
                if (kept > 0) {
                    changed(ids[kept - 1], left, -piece.count);
                    changed(ids[kept - 1], result, piece.count);
                }
                if (i + 2 < ids.size()) {
                    changed(right, ids[i + 2], -piece.count);
                    changed(result, ids[i + 2], piece.count);
                }
                ids[kept++] = result;
                i++;
            }
            ids.resize(kept);
        }
        for (auto& [pair, places] : grown)
            if (int64_t count = pair_count_[pair]; count > 0) queue_.push({count, pair, std::move(places)});
    }

    Split split_;
    std::vector<std::string> special_;
    AddedTokenMatcher matcher_;
    std::string padded_;
    std::unordered_map<std::string, int64_t> counts_;

    std::vector<std::string> token_;
    std::vector<std::pair<int, int>> merge_;
    std::unordered_map<std::string, int> id_of_;
    std::vector<Piece> pieces_;
    std::unordered_map<uint64_t, int64_t> pair_count_;
    std::priority_queue<Candidate> queue_;
};
