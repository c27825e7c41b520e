// data.h: training data in: files -> sequences of tokens with the positions that are learned.
//
//   fine-tuning   {"messages": [...]} | {"prompt": text or messages, "completion": text}
//                 | {"instruction", "input", "output", "system"}                           one sequence a
//                 line
//   pretraining   .txt (special tokens in the text are recognised) | .jsonl with "text", or any of the above
//                 | .bin token shards as llm.c writes them (uint16: magic 20240520, uint32: 20240801)
//
// A sequence longer than --max-length is cut at its end in fine-tuning (the cut tokens are lost, and a sample
// whose learned tokens are all lost is dropped and counted), and into pieces in pretraining (nothing is
// lost). Everything is held in memory as token ids; data far larger than memory is not supported.
#pragma once
#include <algorithm>
#include <filesystem>
#include <numeric>
#include <optional>
#include <string>
#include <vector>

#include "chat.h"
#include "files.h"
#include "json_lines.h"
#include "rng.h"
#include "tokenizer.h"

// One packed document and what is learned from it: target[i] is predicted at token i, -1 for nothing.
struct Sequence {
    std::vector<int> token, target;  // (n)
    std::vector<float> coefficient;  // (n), or empty for 1
    int targets() const {
        return int(std::count_if(target.begin(), target.end(), [](int t) { return t >= 0; }));
    }
};

// Trains position i on token i + 1 where learn[i + 1] is set:
//   token = <s> a b c </s>    learn = 0 0 0 1 1    ->    target = - - c </s> -
inline Sequence make_sequence(const std::vector<int>& token, const std::vector<uint8_t>& learn) {
    Sequence s;
    s.token = token;
    s.target.assign(token.size(), -1);
    for (size_t i = 1; i < token.size(); i++)
        if (learn[i]) s.target[i - 1] = token[i];
    return s;
}

struct Dataset {
    std::vector<Sequence> sequences;
    int64_t lines = 0, dropped = 0, cut = 0;  // read; without a learned token; longer than max_length
    int64_t tokens = 0, targets = 0;
    size_t longest = 0;  // before cutting
    void add(Sequence s) {
        tokens += int64_t(s.token.size());
        targets += s.targets();
        sequences.push_back(std::move(s));
    }
    std::string summary() const {
        return count_text(int64_t(sequences.size())) + " sequences, " + count_text(tokens) + " tokens, " +
               count_text(targets) + " learned, longest " + std::to_string(longest) +
               (cut ? ", " + count_text(cut) + " cut" : "") +
               (dropped ? ", " + count_text(dropped) + " dropped (nothing left to learn)" : "");
    }
};

// The conversation of a line as a list of messages, from any of the accepted forms.
// Errors: none of them; a value of the wrong type.
inline Json conversation(const Json& row, const std::string& where) {
    auto message = [&](const char* role, const char* key) -> Json {
        const Json& value = row[key];
        if (!value.is_string())
            fail(where + ": \"" + key + "\" is " + value.type_name() + ", not text",
                 "each line must be {\"messages\": [...]} or {\"prompt\": ..., \"completion\": ...}");
        return {{"role", role}, {"content", value}};
    };
    // A list of messages stands for itself, a text for one message.
    auto add = [&](Json& list, const char* role, const char* key) {
        if (!row[key].is_array())
            list.push_back(message(role, key));
        else
            list.insert(list.end(), row[key].begin(), row[key].end());
    };
    Json list = Json::array();
    if (row.contains("messages")) {
        if (!row["messages"].is_array())
            fail(where + ": \"messages\" is " + row["messages"].type_name() + ", not a list",
                 "it must be like [{\"role\": \"user\", \"content\": \"...\"}]");
        list = row["messages"];
    } else if (row.contains("prompt") && row.contains("completion")) {
        add(list, "user", "prompt");
        add(list, "assistant", "completion");
    } else if ((row.contains("problem") || row.contains("question")) && row.contains("solution")) {
        list.push_back(message("user", row.contains("problem") ? "problem" : "question"));
        list.push_back(message("assistant", "solution"));
    } else if (row.contains("instruction") && row.contains("output")) {
        if (row.contains("system")) list.push_back(message("system", "system"));
        Json ask = message("user", "instruction");
        if (row.contains("input") && row["input"].is_string() && row["input"] != "")
            ask["content"] = ask["content"].get<std::string>() + "\n" + row["input"].get<std::string>();
        list.push_back(ask);
        list.push_back(message("assistant", "output"));
    } else {
        fail(where + ": no key \"completion\" or \"messages\" (found: " + keys_found(row) + ")",
             "each line must be {\"messages\": [...]} or {\"prompt\": ..., \"completion\": ...}");
    }
    return list;
}

// Tokens of a line's conversation and which of them are the assistant's. Errors name the line.
inline TrainingText conversation_tokens(const Json& row, const std::string& where, const Tokenizer& tokenizer,
                                        const ChatTemplate& chat) {
    Json messages = conversation(row, where);
    try {
        return chat.encode_for_training(tokenizer, messages, row.value("tools", Json()));
    } catch (const Error& e) {
        fail(where + ": " + e.what(), e.hint);
    }
}

// Fine-tuning data. `all` learns every token, else only the assistant's, each turn's end included.
// Errors: no file, a bad line (named), no sequence left.
inline Dataset load_conversations(const std::vector<std::string>& files, const Tokenizer& tokenizer,
                                  const ChatTemplate& chat, size_t max_length, bool all, int64_t limit = 0) {
    Dataset data;
    for (const std::string& file : files) {
        JsonLines lines(file);
        for (Json row; (!limit || data.lines < limit) && lines.next(row);) {
            data.lines++;
            TrainingText text = conversation_tokens(row, lines.where(), tokenizer, chat);
            std::vector<uint8_t> learn = text.trained;
            if (all) learn.assign(text.ids.size(), 1);
            data.longest = std::max(data.longest, text.ids.size());
            if (text.ids.size() > max_length) {
                data.cut++;
                text.ids.resize(max_length);
                learn.resize(max_length);
            }
            Sequence s = make_sequence(text.ids, learn);
            if (s.targets() == 0)
                data.dropped++;
            else
                data.add(std::move(s));
        }
    }
    if (data.sequences.empty())
        fail((files.empty() ? std::string("--data") : files[0]) + ": nothing to learn from (" +
                 std::to_string(data.lines) + " lines, " + std::to_string(data.dropped) + " dropped)",
             "is the file empty, or --max-length shorter than every prompt?");
    return data;
}

// Cuts a document into pieces of at most max_length. Every token but the first is learned once, or those that
// `learn` marks where it is not empty; a piece without any is left out.
inline void add_document(Dataset& data, const std::vector<int>& ids, size_t max_length,
                         const std::vector<uint8_t>& learn = {}) {
    data.longest = std::max(data.longest, ids.size());
    if (ids.size() > max_length + 1) data.cut++;
    for (size_t from = 0; from + 1 < ids.size(); from += max_length) {
        size_t n = std::min(max_length, ids.size() - 1 - from);
        Sequence s;
        s.token = std::vector<int>(ids.begin() + int64_t(from), ids.begin() + int64_t(from + n));
        s.target = std::vector<int>(ids.begin() + int64_t(from + 1), ids.begin() + int64_t(from + n + 1));
        for (size_t i = 0; i < n && !learn.empty(); i++)
            if (!learn[from + i + 1]) s.target[i] = -1;
        if (s.targets() > 0)
            data.add(std::move(s));
        else
            data.dropped++;
    }
}

// Errors: a wrong header, a size that does not match, a token outside the vocabulary.
inline std::vector<int> read_token_shard(const std::string& file, int vocab) {
    MappedFile in(file);
    uint32_t header[256];
    if (in.size() < sizeof header)
        fail(file + ": too short for a token shard (" + std::to_string(in.size()) + " bytes)",
             "a shard starts with 256 numbers of 4 bytes");
    std::memcpy(header, in.data(), sizeof header);
    size_t width = header[0] == 20240520 ? 2 : header[0] == 20240801 ? 4 : 0;
    if (!width)
        fail(file + ": not a token shard (magic " + std::to_string(header[0]) + ")",
             "expected 20240520 (uint16) or 20240801 (uint32)");
    size_t n = header[2];
    if (in.size() != sizeof header + n * width)
        fail(file + ": header says " + std::to_string(n) + " tokens, the file holds " +
                 std::to_string((in.size() - sizeof header) / width),
             "the file was cut off: get it again");
    std::vector<int> ids(n);
    for (size_t i = 0; i < n; i++) {
        const unsigned char* p = in.data() + sizeof header + i * width;
        uint32_t id = p[0] | uint32_t(p[1]) << 8;
        if (width == 4) id |= uint32_t(p[2]) << 16 | uint32_t(p[3]) << 24;
        if (id >= uint32_t(vocab))
            fail(file + ": token " + std::to_string(i) + " is " + std::to_string(id) +
                     ", the vocabulary has " + std::to_string(vocab),
                 "was the shard made with this model's tokenizer?");
        ids[i] = int(id);
    }
    return ids;
}

// Pretraining data: every token is learned, of conversations only the answers' unless `all`. `end` closes
// each document of text, or -1.
inline Dataset load_documents(const std::vector<std::string>& files, const Tokenizer& tokenizer,
                              const ChatTemplate& chat, size_t max_length, int vocab, int end, bool all) {
    Dataset data;
    for (const std::string& file : files) {
        std::string kind = std::filesystem::path(file).extension();
        if (kind == ".bin") {
            data.lines++;
            std::vector<int> ids = read_token_shard(file, vocab), document;
            for (int id : ids) {  // llm.c's shards put the end token in front of each document
                if (id == end && !document.empty()) {
                    document.push_back(end);
                    add_document(data, document, max_length);
                    document.clear();
                }
                document.push_back(id);
            }
            add_document(data, document, max_length);
        } else if (kind == ".jsonl" || kind == ".json") {
            JsonLines lines(file);
            for (Json row; lines.next(row);) {
                data.lines++;
                std::vector<int> ids;
                std::vector<uint8_t> learn;
                if (row.contains("text") && row["text"].is_string()) {
                    ids = tokenizer.encode(row["text"].get<std::string>(), Specials::literal);
                    if (end >= 0) ids.push_back(end);
                } else {
                    TrainingText text = conversation_tokens(row, lines.where(), tokenizer, chat);
                    ids = text.ids;
                    if (!all) learn = text.trained;
                }
                if (ids.size() < 2)
                    data.dropped++;
                else
                    add_document(data, ids, max_length, learn);
            }
        } else {
            data.lines++;
            std::vector<int> ids = tokenizer.encode(read_file(file), Specials::recognise);
            if (end >= 0) ids.push_back(end);
            add_document(data, ids, max_length);
        }
    }
    if (data.sequences.empty())
        fail((files.empty() ? std::string("--data") : files[0]) + ": nothing to learn from",
             "is the file empty?");
    return data;
}

// Which sequence comes when: a new permutation for every pass over the data. A pure function of (seed,
// cursor), so a resumed run needs no state.
class Order {
  public:
    Order(size_t n, uint64_t seed) : n_(n), seed_(seed) {}
    size_t at(int64_t cursor) {
        int64_t epoch = cursor / int64_t(n_);
        if (epoch != epoch_) {
            permutation_.resize(n_);
            std::iota(permutation_.begin(), permutation_.end(), size_t(0));
            Rng(seed_, Stream::shuffle, uint32_t(epoch)).shuffle(permutation_);
            epoch_ = epoch;
        }
        return permutation_[size_t(cursor % int64_t(n_))];
    }

  private:
    size_t n_;
    uint64_t seed_;
    int64_t epoch_ = -1;
    std::vector<size_t> permutation_;
};
