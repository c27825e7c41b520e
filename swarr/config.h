// config.h: a model's shape and the window of every layer, from and to Hugging Face's config.json.
//
// The window rule is transformers': W keys, the query's own included. Which layers slide: `layer_types` if it
// is there; else layer i slides iff `use_sliding_window` and i >= `max_window_layers`. Fields that contradict
// each other are refused, because engines resolve them differently; engine_notes() says how each of them
// would. Reads Qwen2/2.5, Qwen3, Llama, and Mistral, which is Llama with a window; anything a decoder of that
// kind may have besides (scaled RoPE, other biases, quantization) is refused by name. Keys not known here
// survive writing.
#pragma once
#include <algorithm>
#include <cmath>
#include <string>
#include <vector>

#include "base.h"
#include "fields.h"
#include "files.h"
#include "json_lines.h"
#include "safetensors.h"

struct ModelConfig {
    std::string architecture = "qwen2";  // qwen2: bias on q, k, v; qwen3: norm on q, k; llama: neither
    int layers = 0, hidden = 0, heads = 0, kv_heads = 0, head_dim = 0, ff = 0, vocab = 0, max_positions = 0;
    double rope_theta = 10000, rms_eps = 1e-6;
    bool tied = false, qkv_bias = true, qk_norm = false;
    std::vector<int> window;               // (layers) keys each query sees, itself included; 0 = all of them
    int sink_tokens = 0;                   // first tokens of the document that a sliding layer sees as well
    int bos = -1;                          // -1: none
    std::vector<int> eos, generation_eos;  // of config.json, of generation_config.json
    std::string dtype = "float32";         // float32, bfloat16 or float16: what the weights are stored in
    std::vector<std::string> warnings;     // found while reading; for the user's eyes
    Json original = Json::object();        // config.json as it was read
};

// ---------------------------------------------------------------------------------------------------------
// Windows

// (layers) -> "layers 0-20: full attention; layers 21-27: window 4096 keys incl. self"
inline std::string window_runs(const std::vector<int>& window, int sink_tokens = 0) {
    std::string out;
    for (size_t from = 0, to; from < window.size(); from = to) {
        for (to = from; to < window.size() && window[to] == window[from]; to++) continue;
        out += out.empty() ? "" : "; ";
        out += to - from == 1 ? format("layer %zu: ", from) : format("layers %zu-%zu: ", from, to - 1);
        if (window[from] == 0) {
            out += "full attention";
        } else {
            out += format("window %d %s incl. self", window[from], window[from] == 1 ? "key" : "keys");
            if (sink_tokens) out += format(" and the first %d", sink_tokens);
        }
    }
    return out;
}
inline std::string window_runs(const ModelConfig& c) {
    return window_runs(c.window, c.sink_tokens);
}

inline const int largest_window = 1 << 30;

// Every layer gets window `keys` (0: full attention) except those of `full_layers`.
// Errors: a negative or absurd number, a layer that does not exist, sink tokens where no layer slides.
inline void set_window(ModelConfig& c, int64_t keys, const std::vector<int>& full_layers = {},
                       int64_t sink_tokens = 0) {
    if (keys < 0 || keys > largest_window)
        fail("window " + std::to_string(keys) + " is not a number of keys",
             "--window W: each query sees W keys, itself included; 0 is full attention");
    if (sink_tokens < 0 || sink_tokens > largest_window)
        fail("sink tokens " + std::to_string(sink_tokens) + " is not a number of tokens",
             "--sink-tokens S: the first S tokens stay visible; 0 is none");
    c.window.assign(size_t(c.layers), int(keys));
    for (int layer : full_layers) {
        if (layer < 0 || layer >= c.layers)
            fail("full layer " + std::to_string(layer) + " does not exist",
                 format("this model has layers 0 to %d", c.layers - 1));
        c.window[size_t(layer)] = 0;
    }
    bool slides = std::any_of(c.window.begin(), c.window.end(), [](int w) { return w != 0; });
    if (sink_tokens && !slides)
        fail("sink tokens " + std::to_string(sink_tokens) + " without a sliding layer",
             "full attention sees every token anyway: leave --sink-tokens away, or give --window");
    c.sink_tokens = int(sink_tokens);
}

namespace config_detail {

inline std::string text_of(const Json& j, const char* key) {
    return j.contains(key) ? j[key].dump() : "missing";
}

// layer_types -> true where a layer slides. Errors: length, entries.
inline std::vector<bool> sliding_of_list(const Json& list, int layers, const std::string& where) {
    if (!list.is_array())
        fail(where + ": key \"layer_types\" is not a list", "delete it, or give one entry a layer");
    if (list.size() != size_t(layers))
        fail(where + format(": layer_types has %zu entries, num_hidden_layers is %d", list.size(), layers),
             format(
                 "for a model of %d layers delete layer_types (use_sliding_window and max_window_layers then "
                 "decide) or give it %d entries; for one of %zu set num_hidden_layers to %zu",
                 layers, layers, list.size(), list.size()));
    std::vector<bool> out;
    for (size_t i = 0; i < list.size(); i++) {
        if (list[i] != "full_attention" && list[i] != "sliding_attention")
            fail(where + format(": layer_types[%zu]: ", i) + list[i].dump() + " is not supported",
                 "only \"full_attention\" and \"sliding_attention\" are");
        out.push_back(list[i] == "sliding_attention");
    }
    return out;
}

inline std::vector<int> windows(const std::vector<bool>& sliding, int keys) {
    std::vector<int> out;
    for (bool s : sliding) out.push_back(s ? keys : 0);
    return out;
}

// Qwen2 and Qwen3: the four fields of transformers' Qwen2Config, its defaults where one is missing.
inline void read_qwen_windows(ModelConfig& c, const Json& j, const Fields& f) {
    const std::string& where = f.where();
    bool use = f.flag("use_sliding_window", false);
    int64_t first = f.integer("max_window_layers", 0, largest_window, 28);
    bool null_window = j.contains("sliding_window") && j["sliding_window"].is_null();
    bool has_list = f.has("layer_types");
    std::vector<bool> list;
    if (has_list) list = sliding_of_list(j["layer_types"], c.layers, where);
    if (use && null_window)
        fail(where +
                 ": use_sliding_window is true but sliding_window is null: reading 1 (use_sliding_window): a "
                 "window "
                 "of unknown size; reading 2 (sliding_window): layers 0-" +
                 std::to_string(c.layers - 1) + ": full attention",
             "for a window set sliding_window to its number of keys; for full attention set "
             "use_sliding_window to "
             "false");
    // With the flag off transformers drops sliding_window, whatever it is.
    int keys = use ? int(f.integer("sliding_window", 1, largest_window, 4096)) : 0;
    std::vector<bool> rule(size_t(c.layers), false);
    for (int i = 0; i < c.layers; i++) rule[size_t(i)] = use && i >= first;
    bool any_rule = std::count(rule.begin(), rule.end(), true) > 0;
    if (!has_list) {
        c.window = windows(rule, keys);
    } else {
        bool any_list = std::count(list.begin(), list.end(), true) > 0;
        int64_t first_of_list = std::find(list.begin(), list.end(), true) - list.begin();
        // A list with full layers above sliding ones cannot be said with max_window_layers; then that field
        // must be missing, or name the first sliding layer, which is what write_config() does.
        bool agree =
            list == rule || (use && any_list && (!f.has("max_window_layers") || first == first_of_list));
        if (!agree) {
            int shown = keys ? keys : int(f.integer("sliding_window", 1, largest_window, 4096));
            if (null_window) shown = 4096;
            std::string flags = format("use_sliding_window %s, max_window_layers ", use ? "true" : "false") +
                                text_of(j, "max_window_layers");
            std::string follow_list =
                any_list
                    ? format("use_sliding_window to true and max_window_layers to %d", int(first_of_list))
                    : "use_sliding_window to false";
            fail(where + ": window fields contradict each other: reading 1 (layer_types): " +
                     window_runs(windows(list, shown)) + "; reading 2 (" + flags +
                     "): " + window_runs(windows(rule, shown)),
                 "for reading 1 set " + follow_list + "; for reading 2 delete layer_types");
        }
        c.window = windows(list, keys);
    }
    bool any = std::any_of(c.window.begin(), c.window.end(), [](int w) { return w != 0; });
    if (use && !any && !any_rule)
        c.warnings.push_back(
            where + format(": use_sliding_window is true, but max_window_layers %d leaves no layer of "
                           "%d to slide: full attention, as transformers reads it; vLLM and LMDeploy "
                           "would let every layer slide",
                           int(first), c.layers));
}

// Mistral: sliding_window alone decides, for all layers; transformers ignores the other three fields.
inline void read_mistral_windows(ModelConfig& c, const Json& j, const Fields& f) {
    bool null_window = j.contains("sliding_window") && j["sliding_window"].is_null();
    int keys = null_window ? 0 : int(f.integer("sliding_window", 1, largest_window, 4096));
    std::vector<bool> all(size_t(c.layers), keys != 0);
    bool other_list = f.has("layer_types") && sliding_of_list(j["layer_types"], c.layers, f.where()) != all;
    bool other_flag = keys && !f.flag("use_sliding_window", true);
    if (other_list || other_flag)
        fail(f.where() + ": window fields contradict each other: reading 1 (sliding_window): " +
                 window_runs(windows(all, keys)) + "; reading 2 (" +
                 (other_list ? "layer_types" : "use_sliding_window false") + "): another",
             "for reading 1, which is transformers', delete layer_types and use_sliding_window; for full "
             "attention set "
             "sliding_window to null");
    c.window = windows(all, keys);
}

// Llama: no window in transformers, so one in the file is a contradiction.
inline void read_llama_windows(ModelConfig& c, const Json& j, const Fields& f) {
    c.window.assign(size_t(c.layers), 0);
    bool listed = false;
    if (f.has("layer_types")) {
        std::vector<bool> list = sliding_of_list(j["layer_types"], c.layers, f.where());
        listed = std::count(list.begin(), list.end(), true) > 0;
    }
    if (listed || (f.has("sliding_window") && f.flag("use_sliding_window", true)))
        fail(f.where() + ": a window in a Llama folder: reading 1 (transformers, which ignores it): " +
                 window_runs(c.window) + "; reading 2 (" + (listed ? "layer_types" : "sliding_window") +
                 "): sliding layers",
             "for reading 1 delete the window fields; for reading 2 set model_type to \"mistral\" and "
             "architectures to "
             "[\"MistralForCausalLM\"], which is Llama with a window in every layer");
}

// The one base, wherever it is written: rope_theta (older files), rope_parameters or rope_scaling (newer
// ones).
inline double read_rope_theta(const Json& j, const Fields& f) {
    const double low = 1, high = 1e12, missing = 10000;
    double theta = f.number("rope_theta", low, high, missing);
    bool top = f.has("rope_theta");
    const char* theta_key = "rope_theta";
    for (const char* key : {"rope_parameters", "rope_scaling"}) {
        if (!f.has(key)) continue;
        Fields inner(j[key], f.where() + ": " + key);
        for (const char* type_key : {"rope_type", "type"})
            if (inner.text(type_key, "default") != "default")
                fail(inner.where() + ": RoPE type " + quoted(inner.text(type_key)) + " is not supported",
                     "only plain RoPE is; a folder whose base model was trained without scaling may be used "
                     "by "
                     "deleting the entry");
        for (auto it = j[key].begin(); it != j[key].end(); ++it)
            if (it->is_object())
                fail(inner.where() + ": a RoPE of its own for " + quoted(it.key()) +
                         " layers is not supported",
                     "only one rope_theta for all layers is");
        if (inner.number("partial_rotary_factor", 0, 1, 1) != 1)
            fail(inner.where() + ": partial_rotary_factor is not supported",
                 "only RoPE over the whole head is");
        if (!inner.has("rope_theta")) continue;
        double other = inner.number("rope_theta", low, high);
        if (top && other != theta)
            fail(f.where() +
                     ": two RoPE bases: " + format("%s %g, %s.rope_theta %g", theta_key, theta, key, other),
                 std::string("delete one of them: rope_theta is read by every version of transformers, ") +
                     key + " by newer ones, which prefer it");
        theta = other;
        top = true;
        theta_key = key;
    }
    return theta;
}

inline void refuse_unsupported(const ModelConfig& c, const Json& j, const Fields& f) {
    auto refuse = [&](const std::string& what) {
        fail(f.where() + ": " + what + " is not supported",
             "plain Qwen2, Qwen3, Llama and Mistral decoders in F32, BF16 or F16 are");
    };
    if (f.has("quantization_config")) refuse("quantization_config (quantized weights)");
    if (f.text("hidden_act", "silu") != "silu") refuse("hidden_act " + quoted(f.text("hidden_act")));
    if (c.architecture != "qwen2" && f.flag("attention_bias", false)) refuse("attention_bias");
    if (f.flag("mlp_bias", false)) refuse("mlp_bias");
    if (f.flag("use_mrope", false)) refuse("use_mrope");
    if (f.number("partial_rotary_factor", 0, 1, 1) != 1) refuse("partial_rotary_factor");
    if (f.has("architectures") && j["architectures"].is_array() && !j["architectures"].empty()) {
        std::string name = j["architectures"][0].is_string() ? j["architectures"][0].get<std::string>() : "?";
        if (name.find("ForCausalLM") == std::string::npos) refuse("architecture " + quoted(name));
    }
}

}  // namespace config_detail

// ---------------------------------------------------------------------------------------------------------
// Reading

// Sizes: their key in config.json and the largest that is believed. Products of any three fit in 64 bits.
using IntField = int ModelConfig::*;
struct SizeField {
    const char* key;
    IntField field;
    int64_t largest;
};
inline constexpr SizeField size_fields[] = {
    {"num_hidden_layers", &ModelConfig::layers, 1024},
    {"hidden_size", &ModelConfig::hidden, 1 << 16},
    {"intermediate_size", &ModelConfig::ff, 1 << 20},
    {"vocab_size", &ModelConfig::vocab, 1 << 22},
    {"max_position_embeddings", &ModelConfig::max_positions, 1 << 27},
    {"num_attention_heads", &ModelConfig::heads, 1024},
    {"num_key_value_heads", &ModelConfig::kv_heads, 1024},
    {"head_dim", &ModelConfig::head_dim, 1024},
};

// What no file and no command line may ask for. `where` stands before the message.
inline void check_config(const ModelConfig& c, const std::string& where) {
    for (const SizeField& size : size_fields)
        if (c.*size.field < 1 || c.*size.field > size.largest)
            fail(
                where + ": " + size.key + format(" %d is not from 1 to %d", c.*size.field, int(size.largest)),
                "correct it in the file, or get the file again");
    if (c.heads % c.kv_heads != 0)
        fail(where + format(": num_attention_heads %d is not a multiple of num_key_value_heads %d", c.heads,
                            c.kv_heads),
             "every key/value head serves the same number of query heads");
    if (c.head_dim % 2 != 0)
        fail(where + format(": head_dim %d is odd", c.head_dim), "RoPE rotates pairs of numbers");
    if (c.window.size() != size_t(c.layers))
        fail(where + format(": windows for %zu of %d layers", c.window.size(), c.layers),
             "give every layer one");
}

// `where`: how messages call the file.
inline ModelConfig parse_config(const Json& j, const std::string& where) {
    Fields f(j, where);
    ModelConfig c;
    c.original = j;
    std::string type = f.text("model_type");
    if (type != "qwen2" && type != "qwen3" && type != "llama" && type != "mistral")
        fail(where + ": model_type " + quoted(type) + " is not supported",
             "qwen2 (also Qwen2.5), qwen3, llama and mistral are");
    c.architecture = type == "mistral" ? "llama" : type;
    c.qkv_bias = type == "qwen2";
    c.qk_norm = type == "qwen3";
    config_detail::refuse_unsupported(c, j, f);

    for (const SizeField& size : size_fields) {
        std::string key = size.key;
        int64_t missing = 0;  // 0: the key must be there
        if (key == "num_key_value_heads") missing = c.heads;
        if (key == "head_dim") {
            if (!f.has("head_dim") && type != "qwen3" && c.hidden % c.heads != 0)
                fail(where + format(": hidden_size %d is not a multiple of num_attention_heads %d", c.hidden,
                                    c.heads),
                     "give head_dim if it is meant to be something else");
            missing = type == "qwen3" ? 128 : c.hidden / c.heads;
        }
        c.*size.field = int(missing && !f.has(size.key) ? missing : f.integer(size.key, 1, size.largest));
    }
    c.rms_eps = f.number("rms_norm_eps", 0, 1, 1e-6);
    c.rope_theta = config_detail::read_rope_theta(j, f);
    c.tied = f.flag("tie_word_embeddings", false);
    c.dtype = f.text(f.has("dtype") ? "dtype" : "torch_dtype", "float32");
    if (c.dtype != "float32" && c.dtype != "bfloat16" && c.dtype != "float16")
        fail(where + ": dtype " + quoted(c.dtype) + " is not supported", "float32, bfloat16 and float16 are");
    std::vector<int> bos = f.ids("bos_token_id", c.vocab);
    c.bos = bos.empty() ? -1 : bos[0];
    c.eos = f.ids("eos_token_id", c.vocab);

    if (type == "llama")
        config_detail::read_llama_windows(c, j, f);
    else if (type == "mistral")
        config_detail::read_mistral_windows(c, j, f);
    else
        config_detail::read_qwen_windows(c, j, f);
    c.sink_tokens = int(f.integer("sink_tokens", 0, largest_window, 0));
    if (c.sink_tokens && std::count(c.window.begin(), c.window.end(), 0) == c.layers)
        fail(where + format(": sink_tokens %d, but no layer slides", c.sink_tokens),
             "for full attention delete sink_tokens; for a window set use_sliding_window and sliding_window");
    check_config(c, where);
    return c;
}

// config.json of a model folder, and eos_token_id of its generation_config.json if there is one.
inline ModelConfig read_config(const std::string& folder) {
    std::string path = folder + "/config.json", generation = folder + "/generation_config.json";
    if (::access(path.c_str(), F_OK) != 0)
        fail(path + ": no such file", "a model folder has config.json, model.safetensors and tokenizer.json");
    const uint64_t longest = 1 << 20;
    ModelConfig c = parse_config(parse_json(read_file(path, longest), path), path);
    if (::access(generation.c_str(), F_OK) == 0) {
        Json j = parse_json(read_file(generation, longest), generation);
        c.generation_eos = Fields(j, generation).ids("eos_token_id", c.vocab);
        for (int id : c.eos)
            if (!c.generation_eos.empty() &&
                std::find(c.generation_eos.begin(), c.generation_eos.end(), id) == c.generation_eos.end())
                c.warnings.push_back(format("eos_token_id %d of ", id) + path + " is not in " + generation);
    }
    return c;
}

// ---------------------------------------------------------------------------------------------------------
// Writing

// All four window fields, consistent. Errors: windows of different sizes, or mixed layers on Llama, which no
// Hugging Face configuration can say.
inline Json write_config(const ModelConfig& c) {
    check_config(c, "config.json");
    int keys = 0, first = c.layers;
    Json types = Json::array();
    for (int i = 0; i < c.layers; i++) {
        int w = c.window[size_t(i)];
        types.push_back(w ? "sliding_attention" : "full_attention");
        if (!w) continue;
        if (keys && keys != w)
            fail("config.json: " + window_runs(c) + ": two window sizes in one model",
                 "Hugging Face's configuration has one sliding_window for all sliding layers: use one size");
        keys = w;
        first = std::min(first, i);
    }
    Json j = c.original;
    bool mistral =
        c.architecture == "llama" && (keys || (j.contains("model_type") && j["model_type"] == "mistral"));
    if (mistral && keys && std::count(c.window.begin(), c.window.end(), 0) > 0)
        fail("config.json: " + window_runs(c) + ": Llama with mixed layers",
             "transformers knows Llama without a window and Mistral with one in every layer: leave "
             "--full-layers away");
    std::string type = mistral ? "mistral" : c.architecture;
    const char* name = type == "qwen2"   ? "Qwen2ForCausalLM"
                       : type == "qwen3" ? "Qwen3ForCausalLM"
                       : mistral         ? "MistralForCausalLM"
                                         : "LlamaForCausalLM";
    j["architectures"] = Json::array({name});
    j["model_type"] = type;
    j["hidden_size"] = c.hidden;
    j["intermediate_size"] = c.ff;
    j["num_hidden_layers"] = c.layers;
    j["num_attention_heads"] = c.heads;
    j["num_key_value_heads"] = c.kv_heads;
    // Qwen2 folders carry no head_dim unless it differs; transformers reads it, but some engines divide
    // instead.
    if (c.architecture == "qwen3" || c.head_dim * c.heads != c.hidden || j.contains("head_dim"))
        j["head_dim"] = c.head_dim;
    j["hidden_act"] = "silu";
    j["vocab_size"] = c.vocab;
    j["max_position_embeddings"] = c.max_positions;
    j["rms_norm_eps"] = c.rms_eps;
    j["rope_theta"] = c.rope_theta;
    for (const char* key : {"rope_parameters", "rope_scaling"})
        if (j.contains(key) && j[key].is_object()) j[key]["rope_theta"] = c.rope_theta;
    j["tie_word_embeddings"] = c.tied;
    if (c.architecture != "qwen2") j["attention_bias"] = false;
    if (c.bos >= 0) j["bos_token_id"] = c.bos;
    if (c.eos.size() == 1)
        j["eos_token_id"] = c.eos[0];
    else if (!c.eos.empty())
        j["eos_token_id"] = c.eos;
    for (const char* key : {"dtype", "torch_dtype"})
        if (j.contains(key)) j[key] = c.dtype;
    if (!j.contains("dtype")) j["torch_dtype"] = c.dtype;

    if (c.architecture == "llama") {
        for (const char* key : {"use_sliding_window", "sliding_window", "max_window_layers", "layer_types"})
            j.erase(key);
        if (mistral) j["sliding_window"] = keys ? Json(keys) : Json(nullptr);
    } else {
        j["use_sliding_window"] = keys > 0;
        j["sliding_window"] = keys ? Json(keys) : Json(nullptr);
        j["max_window_layers"] = first;
        j["layer_types"] = types;
    }
    if (c.sink_tokens)
        j["sink_tokens"] = c.sink_tokens;
    else
        j.erase("sink_tokens");
    return j;
}

inline void save_config(const ModelConfig& c, const std::string& folder) {
    write_whole(folder + "/config.json", write_config(c).dump(2) + "\n");
}

// ---------------------------------------------------------------------------------------------------------
// What other engines do with a folder

struct EngineNote {
    std::string engine, text;
};

// From the fields as they stand in config.json, contradictions included. The rules were read from the
// engines' sources (transformers 5, vLLM 0.1x, LMDeploy 1263d5c, SGLang main), not tried by running them.
inline std::vector<EngineNote> engine_notes(const Json& j) {
    Fields f(j, "config.json");
    std::string type = f.text("model_type");
    int layers = int(f.integer("num_hidden_layers", 1, 1024));
    bool qwen = type == "qwen2" || type == "qwen3";
    bool on = qwen ? f.flag("use_sliding_window", false) : type == "mistral";
    // A null is not a missing key: transformers puts 4096 only for the latter.
    int missing = j.contains("sliding_window") ? 0 : 4096;
    int keys = on ? int(f.integer("sliding_window", 1, largest_window, missing)) : 0;
    int64_t first = qwen ? f.integer("max_window_layers", 0, largest_window, 28) : 0;
    std::vector<bool> sliding;
    if (qwen && f.has("layer_types"))
        sliding = config_detail::sliding_of_list(j["layer_types"], layers, "config.json");
    else
        for (int i = 0; i < layers; i++) sliding.push_back(keys && i >= first);
    int count = int(std::count(sliding.begin(), sliding.end(), true));
    std::vector<int> none(size_t(layers), 0), all(size_t(layers), keys);

    std::vector<EngineNote> notes;
    if (count && !keys)
        notes.push_back(
            {"transformers", "fails at the first forward pass: sliding layers without a sliding_window"});
    else
        notes.push_back({"transformers", window_runs(config_detail::windows(sliding, keys))});
    if (count == 0 || count == layers)
        notes.push_back({"vLLM", window_runs(all)});
    else if (first == layers)
        notes.push_back({"vLLM", window_runs(none) + " (it has no mixed layers for this architecture)"});
    else
        notes.push_back({"vLLM", "refuses to load: it has no mixed layers for this architecture"});
    if (qwen) {
        notes.push_back(
            {"SGLang", window_runs(none) + (keys && count ? " (it ignores the window of Qwen)" : "")});
        std::vector<int> more(size_t(layers), keys ? keys + 1 : 0);
        std::string text = window_runs(more);
        if (keys)
            text += " (one key more than here" +
                    (keys > 1 ? format(": for it write sliding_window %d)", keys - 1) : std::string(")"));
        notes.push_back({"LMDeploy", text});
    }
    if (j.contains("sink_tokens") && j["sink_tokens"] != 0)
        for (EngineNote& note : notes)
            note.text += "; it does not know sink_tokens: the first tokens leave the window";
    return notes;
}

// ---------------------------------------------------------------------------------------------------------
// Weights

struct TensorShape {
    std::string name;
    std::vector<int64_t> shape;
};

// A model's tensors under their Hugging Face names. D = hidden, E = head_dim, H and G = query and key/value
// heads.
inline std::vector<TensorShape> model_tensors(const ModelConfig& c) {
    int64_t D = c.hidden, E = c.head_dim, H = c.heads, G = c.kv_heads, F = c.ff, V = c.vocab;
    std::vector<TensorShape> out = {{"model.embed_tokens.weight", {V, D}}};
    for (int i = 0; i < c.layers; i++) {
        std::string layer = "model.layers." + std::to_string(i) + ".", attn = layer + "self_attn.";
        out.push_back({layer + "input_layernorm.weight", {D}});
        out.push_back({attn + "q_proj.weight", {H * E, D}});
        if (c.qkv_bias) out.push_back({attn + "q_proj.bias", {H * E}});
        out.push_back({attn + "k_proj.weight", {G * E, D}});
        if (c.qkv_bias) out.push_back({attn + "k_proj.bias", {G * E}});
        out.push_back({attn + "v_proj.weight", {G * E, D}});
        if (c.qkv_bias) out.push_back({attn + "v_proj.bias", {G * E}});
        if (c.qk_norm) out.push_back({attn + "q_norm.weight", {E}});
        if (c.qk_norm) out.push_back({attn + "k_norm.weight", {E}});
        out.push_back({attn + "o_proj.weight", {D, H * E}});
        out.push_back({layer + "post_attention_layernorm.weight", {D}});
        out.push_back({layer + "mlp.gate_proj.weight", {F, D}});
        out.push_back({layer + "mlp.up_proj.weight", {F, D}});
        out.push_back({layer + "mlp.down_proj.weight", {D, F}});
    }
    out.push_back({"model.norm.weight", {D}});
    if (!c.tied) out.push_back({"lm_head.weight", {V, D}});
    return out;
}

inline int64_t parameter_count(const ModelConfig& c) {
    int64_t sum = 0;
    for (const TensorShape& t : model_tensors(c)) {
        int64_t n = 1;
        for (int64_t size : t.shape) n *= size;
        sum += n;
    }
    return sum;
}

// Errors: a tensor missing, of another shape, or unknown; a tied model whose file holds another head.
inline void check_weights(const SafetensorsReader& reader, const ModelConfig& c) {
    size_t found = 0;
    for (const TensorShape& t : model_tensors(c)) {
        if (t.name == "lm_head.weight" && !reader.find(t.name))
            fail(reader.path() +
                     ": no tensor \"lm_head.weight\", but config.json has tie_word_embeddings false",
                 "if the head is the embedding, set tie_word_embeddings to true; else the download is not "
                 "complete");
        reader.expect(t.name, t.shape);
        found++;
    }
    if (const TensorInfo* head = c.tied ? reader.find("lm_head.weight") : nullptr) {
        const TensorInfo& embedding = *reader.find("model.embed_tokens.weight");
        if (head->dtype != embedding.dtype || head->shape != embedding.shape ||
            std::memcmp(reader.data(*head), reader.data(embedding), head->bytes) != 0)
            fail(reader.file_of(*head) +
                     ": tensor \"lm_head.weight\" differs from \"model.embed_tokens.weight\", but "
                     "config.json has tie_word_embeddings true",
                 "to keep both set tie_word_embeddings to false; to keep the embedding alone remove "
                 "lm_head.weight");
        found++;
    }
    if (found == reader.tensors().size()) return;
    std::unordered_set<std::string> known = {"lm_head.weight"};
    for (const TensorShape& t : model_tensors(c)) known.insert(t.name);
    for (const TensorInfo& t : reader.tensors()) {
        // Old Llama files carry RoPE's frequencies, which follow from rope_theta.
        bool frequencies =
            t.name.size() > 20 && t.name.compare(t.name.size() - 20, 20, ".rotary_emb.inv_freq") == 0;
        if (!known.count(t.name) && !frequencies)
            fail(reader.file_of(t) + ": tensor " + quoted(t.name) + " is unknown to a " + c.architecture +
                     " model",
                 "do config.json and the weights belong together?");
    }
}
