// tokenizer.cpp: text to ids and back on the command line, chat templates, and training of a vocabulary.
//
//   tokenizer encode --tokenizer DIR < text              ids, one line
//   tokenizer encode --tokenizer DIR --show < text       the text with its token borders
//   tokenizer encode --tokenizer DIR --jsonl FILE --field text     {"ids":[...]} a line
//   tokenizer decode --tokenizer DIR < ids               text, as it comes
//   tokenizer count  --tokenizer DIR FILE...             bytes, characters, tokens, speed
//   tokenizer chat   --tokenizer DIR --jsonl FILE        {"text":...,"ids":[...]} a line
//   tokenizer train  --out DIR --vocab-size N FILE...    a new tokenizer.json
//
// A file or standard input is one text. Totals go to standard error, results to standard output.
#include <omp.h>
#include <unistd.h>

#include <atomic>
#include <climits>
#include <exception>
#include <filesystem>
#include <fstream>
#include <mutex>
#include <thread>

#include "bpe_train.h"
#include "chat.h"
#include "cli.h"
#include "files.h"
#include "tokenizer.h"

namespace {

constexpr size_t batch_bytes = 8 << 20;

struct Options {
    std::string tokenizer, jsonl, field, out, chat_template, split = "qwen";
    std::vector<std::string> files, special = {"<|endoftext|>"};
    bool lines = false, literal = false, show = false, skip_special = false, mask = false, quiet = false;
    bool skip_unknown = false;
    int threads = std::max(1, int(std::thread::hardware_concurrency())), vocab_size = 0;

    Specials specials() const { return literal ? Specials::literal : Specials::recognise; }
};

struct Totals {
    std::atomic<int64_t> bytes{0}, tokens{0};
    Timer timer;

    void print(bool quiet) const {
        if (quiet) return;
        double seconds = timer.seconds();
        std::fflush(stdout);
        std::fprintf(stderr, "%s bytes, %s tokens, %.2f bytes a token, %.3f s, %.1f MB/s\n",
                     count_text(bytes).c_str(), count_text(tokens).c_str(),
                     tokens ? double(bytes) / double(tokens) : 0.0, seconds, double(bytes) / 1e6 / seconds);
    }
};

void check_written() {
    if (std::ferror(stdout) || std::fflush(stdout) != 0)
        fail(std::string("cannot write to standard output: ") + std::strerror(errno), "is the disk full?");
}

void print_line(const std::string& text) {
    if (std::fwrite(text.data(), 1, text.size(), stdout) != text.size() || std::fputc('\n', stdout) == EOF)
        check_written();
}

std::string ids_text(const std::vector<int>& ids, const char* between) {
    std::string out;
    for (int id : ids) {
        if (!out.empty()) out += between;
        out += std::to_string(id);
    }
    return out;
}

std::string input(const std::string& path) {
    return read_file(path == "-" ? "/dev/stdin" : path);
}

void check_read(const std::ifstream& in, const std::string& path) {
    if (in.bad())
        fail(path + ": cannot read: " + std::strerror(errno), "is it a folder, or on a failing disk?");
}

const Json& field_of(const Json& row, const std::string& field, const std::string& where) {
    auto it = row.find(field);
    if (it == row.end())
        fail(where + ": no key " + quoted(field) + " (found: " + keys_found(row) + ")",
             "name the key that holds the text with --field");
    return *it;
}

std::string text_field(const Json& row, const std::string& field, const std::string& where) {
    const Json& value = field_of(row, field, where);
    if (!value.is_string())
        fail(where + ": key " + quoted(field) + " is not text", "name another key with --field");
    return value.get<std::string>();
}

std::vector<int> ids_field(const Json& row, const std::string& field, const std::string& where) {
    std::vector<int> out;
    const Json& list = field_of(row, field, where);
    if (!list.is_array())
        fail(where + ": key " + quoted(field) + " is not a list of ids", "name another key with --field");
    for (const Json& id : list) {
        bool fits = id.is_number_unsigned() ? id.get<uint64_t>() <= INT_MAX
                                            : id.is_number_integer() && id.get<int64_t>() >= INT_MIN;
        if (!fits)
            fail(where + ": key " + quoted(field) + ": " + id.dump() + " is no token id",
                 "ids are whole numbers");
        out.push_back(id.get<int>());
    }
    return out;
}

Tokenizer load(const Options& o) {
    Tokenizer tok = Tokenizer::load(o.tokenizer);
    if (int missing = tok.model().missing_bytes(); missing > 0 && !o.quiet)
        std::fprintf(stderr,
                     "warning: %d of the 256 bytes have no token and vanish, as with Hugging Face's engine\n",
                     missing);
    return tok;
}

// Prints work(line, where) for every line, in the order of the lines; the work itself runs on all threads.
template <class Next, class Work>
void each_line(int threads, Next next, Work work) {
    std::vector<std::string> line, where, result;
    bool more = true;
    while (more) {
        line.clear();
        where.clear();
        std::string text, place;
        for (size_t bytes = 0; bytes < batch_bytes && (more = next(text, place)); bytes += text.size() + 1) {
            line.push_back(text);
            where.push_back(place);
        }
        result.assign(line.size(), "");
        std::exception_ptr error;
        size_t error_line = SIZE_MAX;
        std::mutex mutex;
#pragma omp parallel for schedule(dynamic, 8) num_threads(threads)
        for (size_t i = 0; i < line.size(); i++) {
            try {
                result[i] = work(line[i], where[i]);
            } catch (...) {
                std::lock_guard<std::mutex> lock(mutex);
                if (i < error_line) error = std::current_exception(), error_line = i;
            }
        }
        for (size_t i = 0; i < std::min(line.size(), error_line); i++) print_line(result[i]);
        if (error) std::rethrow_exception(error);
    }
}

template <class Work>
void each_row(const Options& o, Work work) {
    JsonLines in(o.jsonl == "-" ? "/dev/stdin" : o.jsonl);
    auto next = [&](std::string& line, std::string& where) {
        if (!in.next_line(line)) return false;
        where = in.where();
        return true;
    };
    each_line(o.threads, next, [&](const std::string& line, const std::string& where) {
        return work(JsonLines::parse_row(line, where), where);
    });
}

// The text with alternating background colours, or with | between tokens where the output is no terminal.
// Bytes that are no whole character are shown in hexadecimal, and so is what would steer the terminal.
std::string borders(const Tokenizer& tok, const std::vector<int>& ids, bool colours) {
    std::string out;
    for (size_t i = 0; i < ids.size(); i++) {
        std::string_view bytes = tok.bytes(ids[i]);
        std::string shown;
        bool whole = utf8_valid(bytes);
        for (char b : bytes) {
            bool control = (uint8_t(b) < ' ' && b != '\n' && b != '\t') || b == 0x7f;
            shown += whole && !control ? std::string(1, b) : format("<%02x>", unsigned(uint8_t(b)));
        }
        if (!colours) {
            out += (i ? "|" : "") + shown;
            continue;
        }
        static const int background[] = {153, 222, 157, 218, 189};
        std::string start =
            format("\033[%s30;48;5;%dm", tok.is_special(ids[i]) ? "1;" : "", background[i % 5]);
        // A line's end would paint the rest of the row.
        std::string line;
        for (char c : shown) line += c == '\n' ? "↵\033[0m\n" + start : std::string(1, c);
        out += start + line + "\033[0m";
    }
    return out;
}

int encode(const Options& o) {
    Tokenizer tok = load(o);
    Totals totals;
    auto ids_of = [&](const std::string& text) {
        std::vector<int> ids = tok.encode(text, o.specials());
        totals.bytes += int64_t(text.size());
        totals.tokens += int64_t(ids.size());
        return ids;
    };
    auto row = [&](const std::string& text) { return "{\"ids\":[" + ids_text(ids_of(text), ",") + "]}"; };
    if (!o.jsonl.empty())
        each_row(o, [&](const Json& json, const std::string& where) {
            return row(text_field(json, o.field, where));
        });
    for (const std::string& file : o.files) {
        if (o.lines) {
            std::ifstream in(file == "-" ? "/dev/stdin" : file, std::ios::binary);
            if (!in)
                fail(file + ": cannot open: " + std::strerror(errno), "check the path and its permissions");
            auto next = [&](std::string& line, std::string&) { return bool(std::getline(in, line)); };
            each_line(o.threads, next,
                      [&](const std::string& line, const std::string&) { return row(line); });
            check_read(in, file);
            continue;
        }
        std::string text = input(file);
        totals.timer = Timer();
        std::vector<int> ids = ids_of(text);
        if (o.show) totals.print(o.quiet);
        print_line(o.show ? borders(tok, ids, isatty(1)) : ids_text(ids, " "));
    }
    if (!o.show) totals.print(o.quiet);
    return 0;
}

int decode(const Options& o) {
    Tokenizer tok = Tokenizer::load(o.tokenizer);
    auto known = [&](int id, const std::string& where, size_t number) {
        if (!o.skip_unknown && !tok.model().has(id))
            fail(format("%s: no token has id %d, number %zu of the ids (the vocabulary ends at %d)",
                        where.c_str(), id, number, tok.vocab_size() - 1),
                 "is this the tokenizer of the model that wrote them? --skip-unknown leaves such ids out");
        return id;
    };
    if (!o.jsonl.empty())
        each_row(o, [&](const Json& json, const std::string& where) {
            std::vector<int> ids = ids_field(json, o.field, where);
            for (size_t i = 0; i < ids.size(); i++) known(ids[i], where, i + 1);
            return Json{{"text", tok.decode(ids, o.skip_special)}}.dump();
        });
    for (const std::string& file : o.files) {
        std::ifstream in(file == "-" ? "/dev/stdin" : file);
        if (!in) fail(file + ": cannot open: " + std::strerror(errno), "check the path and its permissions");
        StreamDecoder stream(tok, o.skip_special);
        std::string word;
        size_t number = 0;
        auto flush = [&] {
            if (word.empty()) return;
            if (word.size() > 9 || word.find_first_not_of("0123456789") != std::string::npos)
                fail(file + ": " + quoted(word) + " is no token id",
                     "ids are whole numbers with blanks or commas between");
            std::string text = stream.push(known(std::stoi(word), file, ++number));
            std::fwrite(text.data(), 1, text.size(), stdout);
            word.clear();
        };
        for (char c; in.get(c);) {
            if (std::strchr(" \t\r\n,[]", c))
                flush();
            else
                word += c;
            if (in.rdbuf()->in_avail() <= 0) std::fflush(stdout);  // whoever writes the ids is not done yet
        }
        check_read(in, file);
        flush();
        std::string rest = stream.finish();
        std::fwrite(rest.data(), 1, rest.size(), stdout);
    }
    return 0;
}

int count(const Options& o) {
    Tokenizer tok = load(o);
    auto characters = [](const std::string& text) {
        return std::count_if(text.begin(), text.end(), [](char c) { return (c & 0xc0) != 0x80; });
    };
    std::printf("%14s %14s %14s %13s %9s  %s\n", "bytes", "characters", "tokens", "bytes/token", "MB/s",
                "file");
    auto row = [&](int64_t bytes, int64_t chars, int64_t tokens, double seconds, const std::string& name) {
        std::printf("%14s %14s %14s %13.3f %9.1f  %s\n", count_text(bytes).c_str(), count_text(chars).c_str(),
                    count_text(tokens).c_str(), tokens ? double(bytes) / double(tokens) : 0.0,
                    double(bytes) / 1e6 / std::max(seconds, 1e-9), name.c_str());
    };
    for (const std::string& file : o.files) {
        std::string text = input(file);
        Timer timer;
        size_t tokens = tok.encode(text, o.specials()).size();
        row(int64_t(text.size()), characters(text), int64_t(tokens), timer.seconds(), file);
    }
    if (o.jsonl.empty()) return 0;
    // Texts are collected first, so that the time is that of encoding and not of reading JSON.
    int64_t bytes = 0, chars = 0, tokens = 0;
    double seconds = 0;
    JsonLines in(o.jsonl == "-" ? "/dev/stdin" : o.jsonl);
    std::vector<std::string> texts;
    Json json;
    for (bool more = true; more;) {
        texts.clear();
        for (size_t size = 0; size < batch_bytes && (more = in.next(json)); size += texts.back().size())
            texts.push_back(text_field(json, o.field, in.where()));
        Timer timer;
        for (const std::string& text : texts) tokens += int64_t(tok.encode(text, o.specials()).size());
        seconds += timer.seconds();
        for (const std::string& text : texts) bytes += int64_t(text.size()), chars += characters(text);
    }
    row(bytes, chars, tokens, seconds, o.jsonl);
    return 0;
}

int chat(const Options& o) {
    Tokenizer tok = load(o);
    std::string folder =
        std::filesystem::is_directory(o.tokenizer) ? o.tokenizer : parent_folder(o.tokenizer);
    // Read only where a line names no template of its own.
    std::once_flag once;
    bool own_used = false;
    ChatTemplate own;
    auto read_own = [&] {
        own = ChatTemplate::from_folder(folder, o.chat_template);
        own_used = true;
    };
    Totals totals;
    each_row(o, [&](const Json& row, const std::string& where) {
        try {
            ChatOptions options;
            options.literal_content = o.literal;
            auto given = [&](const char* key, const Json& standard) {
                auto it = row.find(key);
                return it == row.end() || it->is_null() ? standard : *it;
            };
            options.add_generation_prompt = given("add_generation_prompt", false).get<bool>();
            options.thinking = given("enable_thinking", true) != false;
            std::string name = given("template", "").get<std::string>();
            if (name.empty()) std::call_once(once, read_own);
            ChatTemplate chosen = name.empty() ? own : ChatTemplate::named(name);
            Json tools = row.contains("tools") ? row["tools"] : Json();
            const Json& messages = field_of(row, "messages", where);
            ChatText rendered = chosen.render(messages, tools, options);
            Json out = {{"text", rendered.text()}};
            if (o.mask) {
                TrainingText training = chosen.encode_for_training(tok, messages, tools, options);
                out["ids"] = training.ids;
                out["mask"] = training.trained;
            } else {
                out["ids"] = chosen.encode(tok, messages, tools, options);
            }
            totals.bytes += int64_t(rendered.text().size());
            totals.tokens += int64_t(out["ids"].size());
            return out.dump();
        } catch (const nlohmann::json::exception& e) {
            fail(where + ": a key has the wrong type: " + e.what(), "see tokenizer chat --help");
        } catch (const Error& e) {
            if (std::string(e.what()).compare(0, where.size(), where) == 0) throw;
            fail(where + ": " + e.what(), e.hint);
        }
    });
    if (!o.quiet && own_used) {
        StopIds stop = stop_ids(folder, tok, own);
        std::fprintf(stderr, "template %s, stop ids %s\n", own.name().c_str(), stop.text().c_str());
        if (!stop.warning.empty()) std::fprintf(stderr, "warning: %s\n", stop.warning.c_str());
    }
    totals.print(o.quiet);
    return 0;
}

int train(const Options& o) {
    Split split = o.split == "qwen"     ? Split::qwen
                  : o.split == "llama3" ? Split::llama3
                  : o.split == "gpt2"   ? Split::gpt2
                                        : Split::none;
    if (split == Split::none)
        throw UsageError("--split " + quoted(o.split) + " is unknown", "known are qwen, llama3, gpt2");
    std::string file = o.out + "/tokenizer.json";
    if (std::filesystem::exists(file)) fail(file + ": exists already", "choose a new folder with --out");
    Timer timer;
    BpeTrainer trainer(split, o.special);
    for (const std::string& name : o.files) trainer.add(input(name));
    if (!o.jsonl.empty()) {
        JsonLines in(o.jsonl == "-" ? "/dev/stdin" : o.jsonl);
        for (Json row; in.next(row);) trainer.add(text_field(row, o.field, in.where()));
    }
    double read_seconds = timer.seconds();
    trainer.train(o.vocab_size);
    make_folders(o.out);
    write_whole(file, trainer.tokenizer_json());
    Json config = {{"tokenizer_class", "PreTrainedTokenizerFast"},
                   {"add_bos_token", false},
                   {"clean_up_tokenization_spaces", false}};
    if (!o.special.empty()) config["eos_token"] = o.special[0];
    write_whole(o.out + "/tokenizer_config.json", config.dump(2) + "\n");
    std::fprintf(stderr, "%s distinct pieces read in %.2f s; %s merges learnt in %.2f s; %zu tokens in %s\n",
                 count_text(int64_t(trainer.distinct_pieces())).c_str(), read_seconds,
                 count_text(int64_t(trainer.merges().size())).c_str(), timer.seconds() - read_seconds,
                 trainer.tokens().size() + o.special.size(), file.c_str());
    if (int(trainer.tokens().size() + o.special.size()) < o.vocab_size)
        std::fprintf(stderr, "warning: fewer than --vocab-size %d: the text has no more pairs to join\n",
                     o.vocab_size);
    return 0;
}

struct Command {
    const char *name, *purpose;
    int (*run)(const Options&);
    const char* field;
};
const Command commands[] = {
    {"encode", "print the token ids of a text", encode, "text"},
    {"decode", "print the text of token ids", decode, "ids"},
    {"count", "count bytes, characters and tokens", count, "text"},
    {"chat", "print conversations as a model sees them", chat, "messages"},
    {"train", "learn a byte-level BPE vocabulary", train, "text"},
};

}  // namespace

int main(int argc, char** argv) {
    return run_program("tokenizer", [&] {
        std::string name = argc > 1 ? argv[1] : "", list;
        const Command* command = nullptr;
        for (const Command& c : commands) {
            if (name == c.name) command = &c;
            list += format("  %-8s %s\n", c.name, c.purpose);
        }
        if (name == "-h" || name == "--help") {
            std::printf("tokenizer COMMAND ...\n%sEach has its own --help.\n", list.c_str());
            return 0;
        }
        if (!command)
            throw UsageError(name.empty() ? "no command" : "unknown command " + quoted(name),
                             "commands:\n" + list);

        Options o;
        o.field = command->field;
        Cli cli("tokenizer " + name, command->purpose);
        bool trains = command->run == train, chats = command->run == chat, encodes = command->run == encode;
        if (!trains) cli.option("--tokenizer", o.tokenizer, "model folder or tokenizer.json")->required();
        cli.option("--jsonl", o.jsonl, "JSON Lines to read instead of text; - is standard input");
        if (!chats) {
            cli.option("--field", o.field, "key of a line that is read");
            cli.positional("files", o.files, "files to read; none or - is standard input");
        }
        if (encodes || chats || command->run == decode)
            cli.option("--threads", o.threads, "threads for lines");
        if (encodes || chats) cli.option("--quiet", o.quiet, "no totals");
        if (encodes || command->run == count)
            cli.option("--literal", o.literal, "special tokens in the text are plain text");
        if (encodes) {
            cli.option("--lines", o.lines, "each line is a text of its own; prints {\"ids\":[...]} a line");
            cli.option("--show", o.show, "print the text with its token borders instead of ids");
        }
        if (command->run == decode) {
            cli.option("--skip-special", o.skip_special, "leave special tokens out");
            cli.option("--skip-unknown", o.skip_unknown, "leave ids without a token out");
        }
        if (chats) {
            cli.option(
                "--template", o.chat_template,
                "template of lines without one: " + ChatTemplate::names() + " (default: the folder's)");
            cli.option("--literal", o.literal, "control tokens in messages are plain text");
            cli.option("--mask", o.mask, "encode for training and add which ids are trained");
        }
        if (trains) {
            cli.option("--out", o.out, "folder to write tokenizer.json and tokenizer_config.json into")
                ->required();
            cli.option("--vocab-size", o.vocab_size, "tokens to end with, special ones included")->required();
            // One value each time, or it would take the names of the files as well.
            cli.option("--special", o.special, "a special token, once for each; the first ends a text")
                ->allow_extra_args(false);
            cli.option("--split", o.split, "how text is cut into pieces: qwen, llama3, gpt2");
        }
        if (!cli.parse(argc - 1, argv + 1)) return 0;
        if (o.threads < 1 || o.threads > 1024)
            throw UsageError("--threads must be 1 to 1024", "try --threads 4");
        if (chats && o.jsonl.empty())
            throw UsageError("chat needs --jsonl FILE", "lines are {\"messages\": [...]}");
        if (o.jsonl.empty() && o.files.empty()) o.files = {"-"};
        int code = command->run(o);
        check_written();
        return code;
    });
}
