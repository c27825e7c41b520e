// chat.h: chat templates (ChatML as Qwen writes it), masks of what is trained, and the ids that end an
// answer.
//
// A model folder carries its template as a Jinja program. There is no Jinja here: the known programs are
// recognised by their text and written out as C++, an unknown one is refused. The Qwen2.5 family is one
// program with different default system prompts; the prompt is taken from the folder's own template.
#pragma once
#include <sys/stat.h>

#include <charconv>
#include <cmath>
#include <string>
#include <vector>

#include "json_lines.h"
#include "tokenizer.h"

struct ChatOptions {
    bool add_generation_prompt = false;
    // Qwen3's enable_thinking. False also puts the empty think block behind the generation prompt.
    bool thinking = true;
    // Control tokens that a message spells out stay text, so that a problem cannot end its own turn. Off is
    // what Hugging Face does.
    bool literal_content = true;
};

struct ChatText {
    MarkedText marked;
    std::vector<MarkedText::Range> trained;  // the assistant's own text with its end-of-turn token

    const std::string& text() const { return marked.text; }
};

struct TrainingText {
    std::vector<int> ids;
    std::vector<uint8_t> trained;  // one flag per id: it is a target of the loss
};

// ---- JSON -----------------------------------------------------------------------------------------------
// As Python's json.dumps(ensure_ascii=False) writes it, which is Jinja's tojson in transformers.

inline std::string python_float(double x) {
    if (std::isnan(x)) return "NaN";
    if (std::isinf(x)) return x < 0 ? "-Infinity" : "Infinity";
    char buffer[64];
    // The shortest digits that read back as x; Python switches to an exponent at 1e16 and below 1e-4.
    char* end = std::to_chars(buffer, buffer + sizeof buffer, x, std::chars_format::scientific).ptr;
    std::string digits(buffer, end);
    int exponent = std::stoi(digits.substr(digits.find('e') + 1));
    if (x != 0 && (exponent < -4 || exponent >= 16)) return digits;
    end = std::to_chars(buffer, buffer + sizeof buffer, x, std::chars_format::fixed).ptr;
    std::string out(buffer, end);
    return out.find('.') == std::string::npos ? out + ".0" : out;
}

inline std::string python_json(const Json& value) {
    if (value.is_number_float()) return python_float(value.get<double>());
    if (!value.is_structured()) return value.dump(-1, ' ', false, Json::error_handler_t::replace);
    std::string out;
    for (auto it = value.begin(); it != value.end(); ++it) {
        if (!out.empty()) out += ", ";
        if (value.is_object()) out += Json(it.key()).dump() + ": ";
        out += python_json(*it);
    }
    return value.is_object() ? "{" + out + "}" : "[" + out + "]";
}

// The text under a key; "" where there is none or it is no text.
inline std::string string_at(const Json& object, const char* key) {
    auto it = object.find(key);
    return it != object.end() && it->is_string() ? it->get<std::string>() : "";
}

// A token of tokenizer_config.json: "<s>" or {"content": "<s>", ...}.
inline std::string token_at(const Json& config, const char* key) {
    auto it = config.find(key);
    return it != config.end() && it->is_object() ? string_at(*it, "content") : string_at(config, key);
}

// ---- templates ------------------------------------------------------------------------------------------

class ChatTemplate {
  public:
    // `forced`: a name of names(), or empty for what the folder says: its chat_template.jinja, else the
    // chat_template of tokenizer_config.json, else plain. Errors: an unknown name; an unknown template.
    static ChatTemplate from_folder(const std::string& folder, const std::string& forced = "") {
        Json config = Json::object();
        struct stat info;
        std::string config_file = folder + "/tokenizer_config.json",
                    jinja_file = folder + "/chat_template.jinja";
        if (stat(config_file.c_str(), &info) == 0) config = read_json(config_file);
        std::string source, where;
        if (!forced.empty()) {
            ChatTemplate chosen = named(forced);
            if (chosen.kind_ == Kind::plain) chosen.read_plain(config);
            return chosen;
        }
        if (stat(jinja_file.c_str(), &info) == 0) {
            source = read_file(jinja_file, 1 << 20);
            where = jinja_file;
        } else {
            source = template_of(config);
            where = config_file + ": chat_template";
        }
        if (source.empty()) {
            ChatTemplate plain;
            plain.read_plain(config);
            return plain;
        }
        ChatTemplate known;
        if (!known.recognise(source))
            fail(where + ": an unknown chat template that starts " + ::quoted(source, 80),
                 "choose the one it is closest to with --template " + names());
        return known;
    }

    static ChatTemplate named(const std::string& name) {
        ChatTemplate out;
        out.name_ = name;
        if (name == "plain") return out;
        out.kind_ = name == "qwen3" ? Kind::qwen3 : Kind::qwen25;
        out.end_of_turn_ = "<|im_end|>";
        for (const Known& known : known_prompts())
            if (name == known.name) out.system_ = known.system;
        if (out.kind_ == Kind::qwen25 && out.system_.empty())
            throw UsageError("--template " + ::quoted(name) + " is unknown", "known are " + names());
        return out;
    }

    static std::string names() { return "qwen2.5, qwen2.5-base, qwen2.5-math, qwen3, plain"; }

    const std::string& name() const { return name_; }
    // Inserted where the first message is no system message; empty: nothing is.
    const std::string& default_system() const { return system_; }
    // The token that ends an answer; empty where the folder names none.
    const std::string& end_of_turn() const { return end_of_turn_; }
    // Text only: prompt and answer in a row, no roles.
    bool is_plain() const { return kind_ == Kind::plain; }

    // `messages`: [{"role", "content", "tool_calls"?}]; `tools`: null or a list.
    // Errors: no messages, a role or a content that the template has no place for.
    ChatText render(const Json& messages, const Json& tools = Json(), const ChatOptions& options = {}) const {
        check(messages);
        if (!tools.is_null() && !tools.is_array())
            fail(std::string("\"tools\" is ") + tools.type_name() + ", not a list",
                 "it must be like [{\"type\": \"function\", \"function\": {...}}]");
        ChatText out;
        Writer write{out, options.literal_content ? Specials::literal : Specials::recognise};
        switch (kind_) {
            case Kind::plain:
                render_plain(messages, write);
                break;
            case Kind::qwen25:
                render_qwen25(messages, tools, write);
                break;
            case Kind::qwen3:
                render_qwen3(messages, tools, options, write);
                break;
        }
        if (options.add_generation_prompt) write.own(generation_prompt(options));
        return out;
    }

    std::string generation_prompt(const ChatOptions& options = {}) const {
        if (kind_ == Kind::plain) return "";
        std::string out = "<|im_start|>assistant\n";
        if (kind_ == Kind::qwen3 && !options.thinking) out += "<think>\n\n</think>\n\n";
        return out;
    }

    // The prompt of a rollout: the ids of messages and generation prompt.
    std::vector<int> encode(const Tokenizer& tok, const Json& messages, const Json& tools = Json(),
                            const ChatOptions& options = {}) const {
        return with_begin(tok, tok.encode(render(messages, tools, options).marked));
    }

    // A conversation for training. It is cut where the assistant begins to write and encoded part by part, so
    // that the ids before an answer are exactly those of the prompt that a rollout gets.
    TrainingText encode_for_training(const Tokenizer& tok, const Json& messages, const Json& tools = Json(),
                                     ChatOptions options = {}) const {
        options.add_generation_prompt = false;
        ChatText chat = render(messages, tools, options);
        TrainingText out;
        out.ids = with_begin(tok, {});
        size_t from = 0;
        auto add = [&](size_t to, bool trained) {
            std::vector<int> part = tok.encode(chat.marked.part(from, to));
            out.trained.resize(out.ids.size(), 0);
            out.ids.insert(out.ids.end(), part.begin(), part.end());
            out.trained.resize(out.ids.size(), trained);
            from = to;
        };
        for (const MarkedText::Range& range : chat.trained) {
            add(range.begin, false);
            add(range.end, true);
        }
        add(chat.text().size(), false);
        return out;
    }

  private:
    enum class Kind { plain, qwen25, qwen3 };
    struct Known {
        const char *name, *system;
    };
    static const std::vector<Known>& known_prompts() {
        static const std::vector<Known> prompts = {
            {"qwen2.5", "You are Qwen, created by Alibaba Cloud. You are a helpful assistant."},
            {"qwen2.5-base", "You are a helpful assistant."},
            {"qwen2.5-math", "Please reason step by step, and put your final answer within \\boxed{}."}};
        return prompts;
    }

    // Adds text of the template (own) and of the conversation (theirs), and notes what is trained.
    struct Writer {
        ChatText& out;
        Specials content;
        void own(const std::string& text) { out.marked.add(text, Specials::recognise); }
        void theirs(const std::string& text) { out.marked.add(text, content); }
        void train_from(size_t begin) { out.trained.push_back({begin, out.marked.text.size()}); }
        size_t position() const { return out.marked.text.size(); }
    };

    // ---- recognising ----

    static uint64_t fingerprint(std::string_view text) {  // FNV-1a
        uint64_t h = 0xcbf29ce484222325;
        for (char c : text) h = (h ^ uint8_t(c)) * 0x100000001b3;
        return h;
    }

    // The template itself, or the "default" one of several; what is neither goes through to be refused.
    static std::string template_of(const Json& config) {
        auto it = config.find("chat_template");
        if (it == config.end() || it->is_null()) return "";
        if (it->is_array())
            for (const Json& entry : *it)
                if (string_at(entry, "name") == "default") return string_at(entry, "template");
        return it->is_string() ? it->get<std::string>() : it->dump();
    }

    bool recognise(std::string source) {
        if (!source.empty() && source.back() == '\n') source.pop_back();  // Jinja drops it as well
        if (fingerprint(source) == 0x2bfdb7aa9754484e) {
            *this = named("qwen3");
            return true;
        }
        // Take out the default system prompt, which stands in two places as a Jinja string.
        const std::string before = "<|im_start|>system\\n", after = "<|im_end|>";
        size_t begin = source.rfind(before);
        if (begin == std::string::npos) return false;
        begin += before.size();
        size_t end = source.find(after, begin);
        if (end == std::string::npos) return false;
        std::string prompt = source.substr(begin, end - begin), first = "{{- '" + prompt + "' }}";
        source.erase(begin, prompt.size());
        size_t other = source.find(first);
        if (other == std::string::npos) return false;
        source.erase(other, first.size());
        if (fingerprint(source) != 0x59783af778a10592 || !unescape(prompt, system_)) return false;
        kind_ = Kind::qwen25;
        end_of_turn_ = "<|im_end|>";
        name_ = "qwen2.5 with its own system prompt";
        for (const Known& known : known_prompts())
            if (system_ == known.system) name_ = known.name;
        return true;
    }

    static bool unescape(const std::string& literal, std::string& out) {
        out.clear();
        for (size_t i = 0; i < literal.size(); i++) {
            if (literal[i] != '\\') {
                out += literal[i];
                continue;
            }
            char c = ++i < literal.size() ? literal[i] : '\0';
            if (c == 'n')
                out += '\n';
            else if (c == '\\' || c == '\'' || c == '"')
                out += c;
            else
                return false;
        }
        return true;
    }

    void read_plain(const Json& config) {
        auto add_bos = config.find("add_bos_token");
        if (add_bos != config.end() && *add_bos == true) begin_ = token_at(config, "bos_token");
        end_of_turn_ = token_at(config, "eos_token");
    }

    std::vector<int> with_begin(const Tokenizer& tok, std::vector<int> ids) const {
        if (kind_ == Kind::plain && begin_.empty())
            ids.insert(ids.begin(), tok.begin_ids().begin(), tok.begin_ids().end());
        return ids;
    }

    // ---- rendering ----

    static std::string role(const Json& message) { return string_at(message, "role"); }
    static std::string content(const Json& message) { return string_at(message, "content"); }
    static bool has_calls(const Json& message) {
        auto it = message.find("tool_calls");
        return it != message.end() && it->is_array() && !it->empty();
    }

    void check(const Json& messages) const {
        if (!messages.is_array() || messages.empty())
            fail("\"messages\" is " + std::string(messages.is_array() ? "empty" : "not a list"),
                 "it must be like [{\"role\": \"user\", \"content\": \"...\"}]");
        for (size_t i = 0; i < messages.size(); i++) {
            const Json& message = messages[i];
            std::string place = "messages[" + std::to_string(i) + "]";
            auto found = message.is_object() ? message.find("role") : message.end();
            if (!message.is_object() || found == message.end() || !found->is_string())
                fail(place + ": no text \"role\" (found: " + keys_found(message) + ")",
                     "a message is {\"role\": \"user\", \"content\": \"...\"}");
            std::string r = role(message);
            bool tool_role = r == "tool" && !is_plain();
            if (r != "user" && r != "assistant" && r != "system" && !tool_role)
                fail(place + ": role " + ::quoted(r) + " has no place in the template " + name_,
                     "roles are user, assistant, system" + std::string(is_plain() ? "" : ", tool"));
            auto text = message.find("content");
            bool missing = text == message.end() || text->is_null();
            if (auto calls = message.find("tool_calls");
                calls != message.end() && !calls->is_null() && !calls->is_array())
                fail(place + ": \"tool_calls\" is " + calls->type_name() + ", not a list",
                     "it must be like [{\"name\": \"f\", \"arguments\": {...}}]");
            bool calls_only = r == "assistant" && has_calls(message);
            if (missing ? !calls_only : !text->is_string())
                fail(place + ": \"content\" is " + (missing ? "missing" : text->type_name()) + ", not text",
                     "parts and images are not supported; put the text itself there");
            if (has_calls(message) && is_plain())
                fail(place + ": the plain template has no tool calls", "use --template qwen2.5 or qwen3");
            auto reasoning = message.find("reasoning_content");
            if (reasoning != message.end() && !reasoning->is_null() && !reasoning->is_string())
                fail(place + ": \"reasoning_content\" is not text", "put the text itself there");
        }
    }

    // {"function": {"name", "arguments"}} or the inner object itself.
    static const Json& call_of(const Json& call) {
        const Json& inner = call.is_object() && call.contains("function") ? call["function"] : call;
        if (!inner.is_object() || !inner.contains("name") || !inner["name"].is_string() ||
            !inner.contains("arguments"))
            fail("a tool call without name and arguments (found: " + keys_found(inner) + ")",
                 "a tool call is {\"name\": \"f\", \"arguments\": {...}}");
        return inner;
    }

    void render_plain(const Json& messages, Writer& write) const {
        write.own(begin_);
        for (const Json& message : messages) {
            size_t begin = write.position();
            write.theirs(content(message));
            if (role(message) != "assistant") continue;
            write.own(end_of_turn_);
            write.train_from(begin);
        }
    }

    void render_tools(const Json& tools, Writer& write) const {
        write.own(
            "# Tools\n\nYou may call one or more functions to assist with the user query.\n\nYou are "
            "provided with "
            "function signatures within <tools></tools> XML tags:\n<tools>");
        for (const Json& tool : tools) {
            write.own("\n");
            write.theirs(python_json(tool));
        }
        write.own(
            "\n</tools>\n\nFor each function call, return a json object with function name and arguments "
            "within "
            "<tool_call></tool_call> XML tags:\n<tool_call>\n{\"name\": <function-name>, \"arguments\": "
            "<args-json-object>}\n</tool_call><|im_end|>\n");
    }

    static void turn(const std::string& role, const std::string& content, Writer& write) {
        write.own("<|im_start|>" + role + "\n");
        write.theirs(content);
        write.own("<|im_end|>\n");
    }

    // Answers of tools in a row share one user turn.
    static void tool_answer(const Json& messages, size_t i, Writer& write) {
        if (i == 0 || role(messages[i - 1]) != "tool") write.own("<|im_start|>user");
        write.own("\n<tool_response>\n");
        write.theirs(content(messages[i]));
        write.own("\n</tool_response>");
        if (i + 1 == messages.size() || role(messages[i + 1]) != "tool") write.own("<|im_end|>\n");
    }

    // The calls, one a line, and the end of the turn. Arguments that are text already: Qwen2.5 quotes them
    // again.
    void end_assistant(const Json& message, bool at_line_start, size_t begin, Writer& write) const {
        for (const Json& entry : has_calls(message) ? message["tool_calls"] : Json::array()) {
            const Json& call = call_of(entry);
            const Json& arguments = call["arguments"];
            if (!at_line_start) write.own("\n");
            at_line_start = false;
            write.own("<tool_call>\n{\"name\": \"");
            write.theirs(call["name"].get<std::string>());
            write.own("\", \"arguments\": ");
            bool as_is = kind_ == Kind::qwen3 && arguments.is_string();
            write.theirs(as_is ? arguments.get<std::string>() : python_json(arguments));
            write.own("}\n</tool_call>");
        }
        write.own("<|im_end|>");
        write.train_from(begin);
        write.own("\n");
    }

    void render_qwen25(const Json& messages, const Json& tools, Writer& write) const {
        bool own_system = role(messages[0]) == "system";
        bool with_tools = tools.is_array() && !tools.empty();
        write.own("<|im_start|>system\n");
        if (own_system)
            write.theirs(content(messages[0]));
        else
            write.own(system_);
        if (with_tools) {
            write.own("\n\n");
            render_tools(tools, write);
        } else {
            write.own("<|im_end|>\n");
        }
        for (size_t i = own_system ? 1 : 0; i < messages.size(); i++) {
            const Json& message = messages[i];
            std::string r = role(message);
            if (r == "tool") {
                tool_answer(messages, i, write);
                continue;
            }
            if (r != "assistant") {
                turn(r, content(message), write);
                continue;
            }
            write.own("<|im_start|>assistant\n");
            size_t begin = write.position();
            std::string text = content(message);
            write.theirs(text);
            end_assistant(message, text.empty(), begin, write);
        }
    }

    static std::string strip_newlines(std::string text, bool left, bool right) {
        if (right) text.erase(text.find_last_not_of('\n') + 1);
        if (left) text.erase(0, std::min(text.find_first_not_of('\n'), text.size()));
        return text;
    }

    void render_qwen3(const Json& messages, const Json& tools, const ChatOptions& options,
                      Writer& write) const {
        bool own_system = role(messages[0]) == "system";
        bool with_tools = tools.is_array() && !tools.empty();
        if (own_system || with_tools) {
            write.own("<|im_start|>system\n");
            if (own_system) write.theirs(content(messages[0]));
            if (with_tools) {
                if (own_system) write.own("\n\n");
                render_tools(tools, write);
            } else {
                write.own("<|im_end|>\n");
            }
        }
        // Reasoning is kept only behind the last question that is not a tool's answer.
        size_t last_query = messages.size() - 1;
        for (size_t i = messages.size(); i-- > 0;) {
            std::string text = content(messages[i]);
            const std::string open = "<tool_response>", close = "</tool_response>";
            bool answer = text.compare(0, open.size(), open) == 0 && text.size() >= close.size() &&
                          text.compare(text.size() - close.size(), close.size(), close) == 0;
            if (role(messages[i]) == "user" && !answer) {
                last_query = i;
                break;
            }
        }
        for (size_t i = own_system ? 1 : 0; i < messages.size(); i++) {
            const Json& message = messages[i];
            std::string r = role(message);
            if (r == "tool")
                tool_answer(messages, i, write);
            else if (r == "assistant")
                qwen3_assistant(message, i > last_query, i + 1 == messages.size(), options, write);
            else
                turn(r, content(message), write);
        }
    }

    void qwen3_assistant(const Json& message, bool after_query, bool last, const ChatOptions& options,
                         Writer& write) const {
        const std::string open = "<think>", close = "</think>";
        std::string text = content(message), reasoning;
        if (message.contains("reasoning_content") && !message["reasoning_content"].is_null()) {
            reasoning = string_at(message, "reasoning_content");
        } else if (text.find(close) != std::string::npos) {
            reasoning = strip_newlines(text.substr(0, text.find(close)), false, true);
            if (size_t at = reasoning.rfind(open); at != std::string::npos)
                reasoning = reasoning.substr(at + open.size());
            reasoning = strip_newlines(reasoning, true, false);
            text = strip_newlines(text.substr(text.rfind(close) + close.size()), true, false);
        }
        write.own("<|im_start|>assistant\n");
        size_t begin = write.position();
        if (after_query && (last || !reasoning.empty())) {
            write.own("<think>\n");
            write.theirs(strip_newlines(reasoning, true, true));
            write.own("\n</think>\n\n");
            // Without thinking the empty block belongs to the prompt.
            if (!options.thinking && reasoning.empty()) begin = write.position();
            write.theirs(strip_newlines(text, true, false));
        } else {
            write.theirs(text);
        }
        end_assistant(message, text.empty(), begin, write);
    }

    Kind kind_ = Kind::plain;
    std::string name_ = "plain", system_, begin_, end_of_turn_;
};

// ---- stop ids -------------------------------------------------------------------------------------------

// The ids that end an answer: the union of what the folder's files and the template say. The files of base
// models contradict each other, and a model that misses its stop token never stops.
struct StopIds {
    struct Entry {
        int id;
        std::string token;                 // "<|im_end|>"
        std::vector<std::string> sources;  // "generation_config.json", "template"
    };
    std::vector<Entry> entries;
    std::string warning;  // empty, or one line: which files disagree

    std::vector<int> ids() const {
        std::vector<int> out;
        for (const Entry& entry : entries) out.push_back(entry.id);
        return out;
    }
    std::string text() const {
        std::string out;
        for (const Entry& entry : entries) {
            out += (out.empty() ? "" : "; ") + std::to_string(entry.id) + " " + entry.token + " (";
            for (size_t i = 0; i < entry.sources.size(); i++) out += (i ? ", " : "") + entry.sources[i];
            out += ")";
        }
        return out.empty() ? "none" : out;
    }

    void add(int id, const Tokenizer& tok, const std::string& source) {
        auto it =
            std::find_if(entries.begin(), entries.end(), [&](const Entry& entry) { return entry.id == id; });
        if (it == entries.end()) it = entries.insert(it, {id, std::string(tok.bytes(id)), {}});
        if (std::find(it->sources.begin(), it->sources.end(), source) == it->sources.end())
            it->sources.push_back(source);
    }
};

// Errors: an eos_token_id that is no id; an eos_token or end of turn that the tokenizer does not have.
inline StopIds stop_ids(const std::string& folder, const Tokenizer& tok, const ChatTemplate& chat) {
    StopIds out;
    std::vector<std::string> said;
    auto add_token = [&](const std::string& token, const std::string& source) {
        std::optional<int> id = tok.id_of(token);
        if (!id)
            fail(source + ": the end token " + ::quoted(token) + " is not in the tokenizer",
                 "do the files of " + folder + " belong together? --template chooses another end of turn");
        out.add(*id, tok, source);
        said.push_back(source + ": " + std::to_string(*id));
    };
    for (const char* name : {"generation_config.json", "config.json", "tokenizer_config.json"}) {
        std::string file = folder + "/" + name;
        struct stat info;
        if (stat(file.c_str(), &info) != 0) continue;
        Json config = read_json(file);
        if (!config.is_object()) fail(file + ": not an object", "restore the file from the model's source");
        if (auto it = config.find("eos_token_id"); it != config.end() && !it->is_null()) {
            std::string list;
            for (const Json& id : it->is_array() ? *it : Json::array({*it})) {
                if (!id.is_number_unsigned() || id.get<uint64_t>() > uint64_t(max_token_id))
                    fail(file + ": eos_token_id is " + it->dump(), "it must be an id or a list of ids");
                out.add(id.get<int>(), tok, name);
                list += (list.empty() ? "" : "+") + id.dump();
            }
            said.push_back(std::string(name) + ": " + list);
        }
        if (std::string token = token_at(config, "eos_token"); !token.empty()) add_token(token, name);
    }
    if (!chat.is_plain() && !chat.end_of_turn().empty()) add_token(chat.end_of_turn(), "template");
    for (size_t i = 1; i < said.size(); i++) {
        auto ids = [&](size_t k) { return said[k].substr(said[k].find(": ")); };
        if (ids(i) == ids(0)) continue;
        for (const std::string& s : said)
            out.warning += (out.warning.empty() ? "end tokens differ: " : "; ") + s;
        out.warning += "; stopping at any of them";
        break;
    }
    return out;
}
