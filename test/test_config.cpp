// config.json: windows exactly as transformers reads them, contradictions refused, and what other engines
// would do.
#include "config.h"

#include "catch.h"
#include "scratch.h"

namespace {

// Qwen2.5-Math-1.5B as shipped, small enough to read.
Json math_config() {
    return Json::parse(R"({
        "architectures": ["Qwen2ForCausalLM"], "attention_dropout": 0.0, "bos_token_id": 151643,
        "eos_token_id": 151643, "hidden_act": "silu", "hidden_size": 1536, "initializer_range": 0.02,
        "intermediate_size": 8960, "max_position_embeddings": 4096, "max_window_layers": 21,
        "model_type": "qwen2", "num_attention_heads": 12, "num_hidden_layers": 28, "num_key_value_heads": 2,
        "rms_norm_eps": 1e-06, "rope_theta": 10000, "sliding_window": 4096, "tie_word_embeddings": true,
        "torch_dtype": "bfloat16", "use_cache": true, "use_mrope": false, "use_sliding_window": false,
        "vocab_size": 151936})");
}

Json layer_types(int full, int sliding, int full_after = 0) {
    Json out = Json::array();
    for (int i = 0; i < full; i++) out.push_back("full_attention");
    for (int i = 0; i < sliding; i++) out.push_back("sliding_attention");
    for (int i = 0; i < full_after; i++) out.push_back("full_attention");
    return out;
}

Json with(Json base, std::initializer_list<std::pair<const char*, Json>> fields) {
    for (const auto& [key, value] : fields) base[key] = value;
    return base;
}
Json without(Json base, std::initializer_list<const char*> keys) {
    for (const char* key : keys) base.erase(key);
    return base;
}

ModelConfig parsed(const Json& j) {
    return parse_config(j, "config.json");
}
std::string parse_error(const Json& j) {
    return error_of([&] { parsed(j); });
}

ModelConfig tiny(const std::string& architecture) {
    ModelConfig c;
    c.architecture = architecture;
    c.qkv_bias = architecture == "qwen2";
    c.qk_norm = architecture == "qwen3";
    c.layers = 4, c.hidden = 12, c.heads = 4, c.kv_heads = 2, c.head_dim = 6, c.ff = 20, c.vocab = 32;
    c.max_positions = 64;
    c.rope_theta = 5000;
    set_window(c, 0);
    return c;
}

const char* const full28 = "layers 0-27: full attention";
const char* const slide28 = "layers 0-27: window 4096 keys incl. self";
const char* const slide28_lmdeploy =
    "layers 0-27: window 4097 keys incl. self (one key more than here: for it write sliding_window 4095)";
const char* const full28_sglang = "layers 0-27: full attention (it ignores the window of Qwen)";

}  // namespace

TEST_CASE("config: what a file really does, in every engine") {
    // The table of section 1.3 of the requirements, row by row; `ours` is the reading here, or "refused".
    struct Row {
        Json config;
        std::string ours, transformers, vllm, lmdeploy, sglang;
    };
    Json c = math_config();
    Json on = with(c, {{"use_sliding_window", true}});
    const char* top7 = "layers 0-20: full attention; layers 21-27: window 4096 keys incl. self";
    const char* vllm_refuses = "refuses to load: it has no mixed layers for this architecture";
    for (const Row& row : std::vector<Row>{
             {c, full28, full28, full28, full28, full28},
             {on, top7, top7, vllm_refuses, slide28_lmdeploy, full28_sglang},
             {with(on, {{"max_window_layers", 28}}), full28, full28, slide28, slide28_lmdeploy, full28},
             {with(on, {{"max_window_layers", 0}}), slide28, slide28, slide28, slide28_lmdeploy,
              full28_sglang},
             {with(on, {{"max_window_layers", 0}, {"layer_types", layer_types(0, 28)}}), slide28, slide28,
              slide28, slide28_lmdeploy, full28_sglang},
             {with(on, {{"sliding_window", nullptr}, {"layer_types", layer_types(28, 0)}}), "refused", full28,
              full28, full28, full28},
             {with(c, {{"layer_types", layer_types(0, 28)}}), "refused",
              "fails at the first forward pass: sliding layers without a sliding_window", full28, full28,
              full28},
             {with(on, {{"max_window_layers", 28}, {"layer_types", layer_types(14, 14)}}), "refused",
              "layers 0-13: full attention; layers 14-27: window 4096 keys incl. self",
              "layers 0-27: full attention (it has no mixed layers for this architecture)", slide28_lmdeploy,
              full28_sglang},
             // Missing keys take the defaults of Qwen2Config: off, 4096, 28.
             {without(c, {"use_sliding_window", "sliding_window", "max_window_layers"}), full28, full28,
              full28, full28, full28},
             {with(without(on, {"sliding_window"}), {{"max_window_layers", 0}}), slide28, slide28, slide28,
              slide28_lmdeploy, full28_sglang},
             {without(on, {"max_window_layers"}), full28, full28, slide28, slide28_lmdeploy, full28},
             // With the flag off nothing else counts, whatever the number says.
             {with(c, {{"sliding_window", 0}, {"max_window_layers", 0}}), full28, full28, full28, full28,
              full28},
         }) {
        CAPTURE(row.config.dump());
        if (row.ours == "refused")
            CHECK(parse_error(row.config) != "no error");
        else
            CHECK(window_runs(parsed(row.config)) == row.ours);
        std::vector<EngineNote> notes = engine_notes(row.config);
        REQUIRE(notes.size() == 4);
        CHECK(notes[0].engine == "transformers");
        CHECK(notes[0].text == row.transformers);
        CHECK(notes[1].engine == "vLLM");
        CHECK(notes[1].text == row.vllm);
        CHECK(notes[2].engine == "SGLang");
        CHECK(notes[2].text == row.sglang);
        CHECK(notes[3].engine == "LMDeploy");
        CHECK(notes[3].text == row.lmdeploy);
    }
    // The flag is on and nothing slides: read as transformers does, but said aloud.
    std::vector<std::string> warnings = parsed(with(on, {{"max_window_layers", 28}})).warnings;
    REQUIRE(warnings.size() == 1);
    CHECK(warnings[0] ==
          "config.json: use_sliding_window is true, but max_window_layers 28 leaves no layer of 28 to slide: "
          "full "
          "attention, as transformers reads it; vLLM and LMDeploy would let every layer slide");
    CHECK(parsed(c).warnings.empty());
}

TEST_CASE("config: contradictions are refused with both readings and both fixes") {
    struct Row {
        Json config;
        std::string error, hint;
    };
    Json c = math_config(), on = with(c, {{"use_sliding_window", true}});
    const std::string start = "config.json: window fields contradict each other: reading 1 (layer_types): ";
    for (
        const Row& row : std::vector<Row>{
            {with(c, {{"layer_types", layer_types(0, 28)}}),
             start + "layers 0-27: window 4096 keys incl. self; reading 2 (use_sliding_window false, "
                     "max_window_layers 21): layers 0-27: full attention",
             "for reading 1 set use_sliding_window to true and max_window_layers to 0; for reading 2 delete "
             "layer_types"},
            {with(on, {{"layer_types", layer_types(28, 0)}}),
             start + "layers 0-27: full attention; reading 2 (use_sliding_window true, max_window_layers "
                     "21): layers "
                     "0-20: full attention; layers 21-27: window 4096 keys incl. self",
             "for reading 1 set use_sliding_window to false; for reading 2 delete layer_types"},
            {with(on, {{"layer_types", layer_types(0, 28)}}),
             start + "layers 0-27: window 4096 keys incl. self; reading 2 (use_sliding_window true, "
                     "max_window_layers "
                     "21): layers 0-20: full attention; layers 21-27: window 4096 keys incl. self",
             "for reading 1 set use_sliding_window to true and max_window_layers to 0; for reading 2 delete "
             "layer_types"},
            {with(on, {{"max_window_layers", 28}, {"layer_types", layer_types(14, 14)}}),
             start + "layers 0-13: full attention; layers 14-27: window 4096 keys incl. self; reading 2 "
                     "(use_sliding_window true, max_window_layers 28): layers 0-27: full attention",
             "for reading 1 set use_sliding_window to true and max_window_layers to 14; for reading 2 delete "
             "layer_types"},
            {with(on, {{"sliding_window", nullptr}}),
             "config.json: use_sliding_window is true but sliding_window is null: reading 1 "
             "(use_sliding_window): a "
             "window of unknown size; reading 2 (sliding_window): layers 0-27: full attention",
             "for a window set sliding_window to its number of keys; for full attention set "
             "use_sliding_window to "
             "false"},
            {with(on, {{"layer_types", layer_types(0, 27)}}),
             "config.json: layer_types has 27 entries, num_hidden_layers is 28",
             "for a model of 28 layers delete layer_types (use_sliding_window and max_window_layers then "
             "decide) or "
             "give it 28 entries; for one of 27 set num_hidden_layers to 27"},
            {with(c, {{"rope_parameters", {{"rope_theta", 1e6}, {"rope_type", "default"}}}}),
             "config.json: two RoPE bases: rope_theta 10000, rope_parameters.rope_theta 1e+06",
             "delete one of them: rope_theta is read by every version of transformers, rope_parameters by "
             "newer ones, "
             "which prefer it"},
            {with(c, {{"model_type", "llama"}, {"use_sliding_window", true}}),
             "config.json: a window in a Llama folder: reading 1 (transformers, which ignores it): layers "
             "0-27: full "
             "attention; reading 2 (sliding_window): sliding layers",
             "for reading 1 delete the window fields; for reading 2 set model_type to \"mistral\" and "
             "architectures to "
             "[\"MistralForCausalLM\"], which is Llama with a window in every layer"},
            {with(c, {{"model_type", "llama"}, {"layer_types", layer_types(27, 1)}}),
             "config.json: a window in a Llama folder: reading 1 (transformers, which ignores it): layers "
             "0-27: full "
             "attention; reading 2 (layer_types): sliding layers",
             "for reading 1 delete the window fields; for reading 2 set model_type to \"mistral\" and "
             "architectures to "
             "[\"MistralForCausalLM\"], which is Llama with a window in every layer"},
            {with(c, {{"model_type", "mistral"}}),
             "config.json: window fields contradict each other: reading 1 (sliding_window): layers 0-27: "
             "window 4096 "
             "keys incl. self; reading 2 (use_sliding_window false): another",
             "for reading 1, which is transformers', delete layer_types and use_sliding_window; for full "
             "attention set "
             "sliding_window to null"},
            {with(c, {{"sink_tokens", 4}}), "config.json: sink_tokens 4, but no layer slides",
             "for full attention delete sink_tokens; for a window set use_sliding_window and sliding_window"},
        }) {
        CHECK(parse_error(row.config) == row.error);
        CHECK(hint_of([&] { parsed(row.config); }) == row.hint);
    }
    // No contradiction: the list says more than the other fields can.
    CHECK(
        window_runs(
            parsed(with(without(on, {"max_window_layers"}), {{"layer_types", layer_types(2, 24, 2)}}))) ==
        "layers 0-1: full attention; layers 2-25: window 4096 keys incl. self; layers 26-27: full attention");
    CHECK(
        window_runs(parsed(with(on, {{"max_window_layers", 2}, {"layer_types", layer_types(2, 24, 2)}}))) ==
        "layers 0-1: full attention; layers 2-25: window 4096 keys incl. self; layers 26-27: full attention");
    CHECK(window_runs(parsed(with(on, {{"max_window_layers", 28}, {"layer_types", layer_types(28, 0)}}))) ==
          full28);
}

TEST_CASE("config: values of the wrong type, out of range or unsupported are refused by name") {
    struct Row {
        Json config;
        std::string error;
    };
    Json c = math_config();
    auto rope = [&](const char* key, const char* type_key, const char* type) {
        return with(without(c, {"rope_theta"}),
                    {{key, {{"rope_theta", 1e6}, {type_key, type}, {"factor", 4.0}}}});
    };
    for (const Row& row : std::vector<Row>{
             {Json::array(), "config.json: must be a JSON object (found: a array, not an object)"},
             {Json::object(), "config.json: no key \"model_type\" (found: none)"},
             {with(c, {{"model_type", "gemma"}}), "config.json: model_type \"gemma\" is not supported"},
             {with(c, {{"model_type", 7}}), "config.json: key \"model_type\": 7 is not a string"},
             {with(c, {{"hidden_size", -4}}),
              "config.json: key \"hidden_size\": -4 is not a whole number from 1 to 65536"},
             {with(c, {{"hidden_size", 1536.0}}),
              "config.json: key \"hidden_size\": 1536.0 is not a whole number from 1 to 65536"},
             {with(c, {{"hidden_size", "big"}}),
              "config.json: key \"hidden_size\": \"big\" is not a whole number from 1 to 65536"},
             {with(c, {{"vocab_size", 18446744073709551615u}}),
              "config.json: key \"vocab_size\": 18446744073709551615 is not a whole number from 1 to "
              "4194304"},
             {with(c, {{"num_hidden_layers", 1 << 20}}),
              "config.json: key \"num_hidden_layers\": 1048576 is not a whole number from 1 to 1024"},
             {with(c, {{"num_attention_heads", 0}}),
              "config.json: key \"num_attention_heads\": 0 is not a whole number from 1 to 1024"},
             {with(c, {{"num_key_value_heads", 5}}),
              "config.json: num_attention_heads 12 is not a multiple of num_key_value_heads 5"},
             {with(c, {{"num_key_value_heads", 24}}),
              "config.json: num_attention_heads 12 is not a multiple of num_key_value_heads 24"},
             {with(c, {{"num_attention_heads", 14}}),
              "config.json: hidden_size 1536 is not a multiple of num_attention_heads 14"},
             {with(c, {{"head_dim", 65}}), "config.json: head_dim 65 is odd"},
             {with(c, {{"rms_norm_eps", 2}}),
              "config.json: key \"rms_norm_eps\": 2 is not a number from 0 to 1"},
             {with(c, {{"rope_theta", "x"}}),
              "config.json: key \"rope_theta\": \"x\" is not a number from 1 to 1e+12"},
             {with(c, {{"rope_theta", 0}}),
              "config.json: key \"rope_theta\": 0 is not a number from 1 to 1e+12"},
             {with(c, {{"tie_word_embeddings", 1}}),
              "config.json: key \"tie_word_embeddings\": 1 is neither true nor false"},
             {with(c, {{"use_sliding_window", "yes"}}),
              "config.json: key \"use_sliding_window\": \"yes\" is neither true nor false"},
             {with(c, {{"use_sliding_window", true}, {"sliding_window", 0}}),
              "config.json: key \"sliding_window\": 0 is not a whole number from 1 to 1073741824"},
             {with(c, {{"use_sliding_window", true}, {"sliding_window", -1}}),
              "config.json: key \"sliding_window\": -1 is not a whole number from 1 to 1073741824"},
             {with(c, {{"layer_types", "all"}}), "config.json: key \"layer_types\" is not a list"},
             {with(c, {{"num_hidden_layers", 1}, {"layer_types", {"chunked_attention"}}}),
              "config.json: layer_types[0]: \"chunked_attention\" is not supported"},
             {with(c, {{"eos_token_id", 151936}}),
              "config.json: key \"eos_token_id\": 151936 is not a token id below vocab_size 151936"},
             {with(c, {{"eos_token_id", {1, "2"}}}),
              "config.json: key \"eos_token_id\": \"2\" is not a token id below vocab_size 151936"},
             {with(c, {{"torch_dtype", "float64"}}), "config.json: dtype \"float64\" is not supported"},
             {with(c, {{"hidden_act", "gelu"}}), "config.json: hidden_act \"gelu\" is not supported"},
             {with(c, {{"use_mrope", true}}), "config.json: use_mrope is not supported"},
             {with(c, {{"partial_rotary_factor", 0.5}}),
              "config.json: partial_rotary_factor is not supported"},
             {with(c, {{"quantization_config", Json::object()}}),
              "config.json: quantization_config (quantized weights) is not supported"},
             {with(c, {{"architectures", {"Qwen2ForSequenceClassification"}}}),
              "config.json: architecture \"Qwen2ForSequenceClassification\" is not supported"},
             {with(c, {{"model_type", "llama"}, {"attention_bias", true}}),
              "config.json: attention_bias is not supported"},
             {with(c, {{"model_type", "qwen3"}, {"attention_bias", true}}),
              "config.json: attention_bias is not supported"},
             {with(c, {{"model_type", "llama"}, {"mlp_bias", true}}),
              "config.json: mlp_bias is not supported"},
             {rope("rope_scaling", "type", "yarn"),
              "config.json: rope_scaling: RoPE type \"yarn\" is not supported"},
             {rope("rope_scaling", "rope_type", "llama3"),
              "config.json: rope_scaling: RoPE type \"llama3\" is not supported"},
             {rope("rope_parameters", "rope_type", "dynamic"),
              "config.json: rope_parameters: RoPE type \"dynamic\" is not supported"},
             {with(without(c, {"rope_theta"}),
                   {{"rope_parameters", {{"full_attention", {{"rope_theta", 1e6}}}}}}),
              "config.json: rope_parameters: a RoPE of its own for \"full_attention\" layers is not "
              "supported"},
             {with(c, {{"rope_parameters", {{"partial_rotary_factor", 0.5}}}}),
              "config.json: rope_parameters: partial_rotary_factor is not supported"},
             {with(c, {{"rope_scaling", "none"}}),
              "config.json: rope_scaling: must be a JSON object (found: a string, not an object)"},
         })
        CHECK(parse_error(row.config) == row.error);
    CHECK(parse_error(without(c, {"vocab_size"}))
              .find("config.json: no key \"vocab_size\" (found: \"architectures\", ") == 0);
}

TEST_CASE("config: RoPE bases where older and newer files keep them") {
    Json c = without(math_config(), {"rope_theta"});
    CHECK(parsed(c).rope_theta == 10000);
    CHECK(parsed(with(c, {{"rope_theta", 1000000}})).rope_theta == 1e6);
    Json newer = with(c, {{"rope_parameters", {{"rope_theta", 1e6}, {"rope_type", "default"}}}});
    CHECK(parsed(newer).rope_theta == 1e6);
    CHECK(parsed(with(c, {{"rope_scaling", {{"rope_theta", 1e6}, {"type", "default"}}}})).rope_theta == 1e6);
    CHECK(parsed(with(c, {{"rope_scaling", nullptr}, {"rope_theta", 5e5}})).rope_theta == 5e5);
    // A changed base is written in every place the file has.
    ModelConfig changed = parsed(newer);
    changed.rope_theta = 2e6;
    Json written = write_config(changed);
    CHECK(written["rope_theta"] == 2e6);
    CHECK(written["rope_parameters"]["rope_theta"] == 2e6);
    CHECK(parsed(written).rope_theta == 2e6);
}

TEST_CASE("config: written files say the same in every field, keep unknown keys and read back equal") {
    ModelConfig c = parsed(with(math_config(), {{"x_note", {{"kept", true}}}}));
    set_window(c, 512);
    Json j = write_config(c);
    CHECK(j["use_sliding_window"] == true);
    CHECK(j["sliding_window"] == 512);
    CHECK(j["max_window_layers"] == 0);
    CHECK(j["layer_types"] == layer_types(0, 28));
    CHECK(j["torch_dtype"] == "bfloat16");
    CHECK(j["x_note"]["kept"] == true);
    CHECK(j["initializer_range"] == 0.02);
    CHECK_FALSE(j.contains("head_dim"));
    CHECK_FALSE(j.contains("sink_tokens"));
    CHECK(write_config(parsed(j)) == j);
    CHECK(engine_notes(j)[0].text == "layers 0-27: window 512 keys incl. self");
    CHECK(engine_notes(j)[1].text == "layers 0-27: window 512 keys incl. self");
    CHECK(
        engine_notes(j)[3].text ==
        "layers 0-27: window 513 keys incl. self (one key more than here: for it write sliding_window 511)");

    set_window(c, 512, {0, 1, 27}, 4);
    j = write_config(c);
    CHECK(j["max_window_layers"] == 2);
    CHECK(j["layer_types"] == layer_types(2, 25, 1));
    CHECK(j["sink_tokens"] == 4);
    CHECK(window_runs(parsed(j)) ==
          "layers 0-1: full attention; layers 2-26: window 512 keys incl. self and the first 4; layer 27: "
          "full attention");
    CHECK(engine_notes(j)[0].text ==
          "layers 0-1: full attention; layers 2-26: window 512 keys incl. self; layer 27: full attention; it "
          "does not "
          "know sink_tokens: the first tokens leave the window");
    CHECK(engine_notes(j)[1].text.find("refuses to load") == 0);

    // Back to full attention: every engine must see no window.
    set_window(c, 0);
    j = write_config(c);
    CHECK(j["use_sliding_window"] == false);
    CHECK(j["sliding_window"] == nullptr);
    CHECK(j["max_window_layers"] == 28);
    CHECK(j["layer_types"] == layer_types(28, 0));
    for (const EngineNote& note : engine_notes(j)) CHECK(note.text == full28);

    set_window(c, 1);
    CHECK(engine_notes(write_config(c))[3].text ==
          "layers 0-27: window 2 keys incl. self (one key more than here)");
    CHECK(window_runs(c) == "layers 0-27: window 1 key incl. self");

    for (const char* architecture : {"qwen2", "qwen3", "llama"})
        for (bool tied : {false, true}) {
            ModelConfig a = tiny(architecture);
            a.tied = tied;
            a.bos = 1;
            a.eos = {2, 3};
            a.window = {5, 5, 5, 5};
            ModelConfig b = parsed(write_config(a));
            CHECK(b.architecture == architecture);
            CHECK(b.window == a.window);
            CHECK(b.tied == tied);
            CHECK(b.head_dim == 6);
            CHECK(b.qkv_bias == a.qkv_bias);
            CHECK(b.qk_norm == a.qk_norm);
            CHECK(b.eos == a.eos);
            CHECK(b.bos == 1);
            CHECK(b.rope_theta == 5000);
            CHECK(b.rms_eps == 1e-6);
            CHECK(b.max_positions == 64);
            CHECK(write_config(b) == write_config(a));
        }
}

TEST_CASE("config: Llama with a window is Mistral") {
    ModelConfig c = tiny("llama");
    CHECK(write_config(c)["model_type"] == "llama");
    CHECK(write_config(c)["architectures"][0] == "LlamaForCausalLM");
    CHECK_FALSE(write_config(c).contains("sliding_window"));
    set_window(c, 3);
    Json j = write_config(c);
    CHECK(j["model_type"] == "mistral");
    CHECK(j["architectures"][0] == "MistralForCausalLM");
    CHECK(j["sliding_window"] == 3);
    CHECK_FALSE(j.contains("layer_types"));
    CHECK(window_runs(parsed(j)) == "layers 0-3: window 3 keys incl. self");
    CHECK(engine_notes(j)[0].text == "layers 0-3: window 3 keys incl. self");
    CHECK(engine_notes(j).size() == 2);
    CHECK(window_runs(parsed(without(j, {"sliding_window"}))) == "layers 0-3: window 4096 keys incl. self");
    c = parsed(j);
    set_window(c, 0);
    CHECK(write_config(c)["model_type"] == "mistral");
    CHECK(write_config(c)["sliding_window"] == nullptr);
    CHECK(window_runs(parsed(write_config(c))) == "layers 0-3: full attention");
    set_window(c, 3, {0});
    CHECK(error_of([&] { write_config(c); }) ==
          "config.json: layer 0: full attention; layers 1-3: window 3 keys incl. self: Llama with mixed "
          "layers");
}

TEST_CASE("config: windows that cannot be are refused") {
    ModelConfig c = tiny("qwen2");
    CHECK(error_of([&] { set_window(c, -1); }) == "window -1 is not a number of keys");
    CHECK(error_of([&] { set_window(c, int64_t(1) << 40); }) ==
          "window 1099511627776 is not a number of keys");
    CHECK(error_of([&] { set_window(c, 4, {4}); }) == "full layer 4 does not exist");
    CHECK(error_of([&] { set_window(c, 4, {-1}); }) == "full layer -1 does not exist");
    CHECK(error_of([&] { set_window(c, 4, {}, -1); }) == "sink tokens -1 is not a number of tokens");
    CHECK(error_of([&] { set_window(c, 0, {}, 4); }) == "sink tokens 4 without a sliding layer");
    CHECK(error_of([&] { set_window(c, 4, {0, 1, 2, 3}, 4); }) == "sink tokens 4 without a sliding layer");
    c.window = {2, 3, 2, 2};
    CHECK(error_of([&] { write_config(c); }).find("config.json: layer 0: window 2 keys incl. self; ") == 0);
    CHECK(error_of([&] { write_config(c); }).find(": two window sizes in one model") != std::string::npos);
    c.window = {2, 2};
    CHECK(error_of([&] { write_config(c); }) == "config.json: windows for 2 of 4 layers");
    c.kv_heads = 0;
    CHECK(error_of([&] { write_config(c); }) == "config.json: num_key_value_heads 0 is not from 1 to 1024");
}

TEST_CASE("config: folders, stop tokens, real files") {
    ScratchFolder dir;
    CHECK(dir.plain(error_of([&] { read_config(dir.path); })) == "DIR/config.json: no such file");
    dir.put("config.json", "");
    CHECK(dir.plain(error_of([&] { read_config(dir.path); })).find("DIR/config.json: not JSON: ") == 0);
    dir.put("config.json", "{\"rope_theta\": 1e999}");
    CHECK(dir.plain(error_of([&] { read_config(dir.path); })) ==
          "DIR/config.json: not usable JSON: number overflow parsing '1e999'");
    dir.put("config.json", std::string(2 << 20, ' '));
    CHECK(dir.plain(error_of([&] { read_config(dir.path); })) == "DIR/config.json: larger than 1.00 MiB");
    dir.put("config.json", math_config().dump());
    dir.put("generation_config.json", R"({"eos_token_id": [151645, 151643]})");
    ModelConfig c = read_config(dir.path);
    CHECK(c.eos == std::vector<int>{151643});
    CHECK(c.generation_eos == std::vector<int>{151645, 151643});
    CHECK(c.warnings.empty());
    dir.put("generation_config.json", R"({"eos_token_id": 151645})");
    c = read_config(dir.path);
    REQUIRE(c.warnings.size() == 1);
    CHECK(dir.plain(c.warnings[0]) ==
          "eos_token_id 151643 of DIR/config.json is not in DIR/generation_config.json");
    save_config(c, dir.path);
    CHECK(write_config(read_config(dir.path)) == write_config(c));

    struct Row {
        const char* folder;
        int64_t parameters;
    };
    for (Row row :
         {Row{"qwen2.5-tokenizer/configs/Qwen2.5-0.5B", 494'032'768},
          Row{"qwen2.5-tokenizer/configs/Qwen2.5-Math-1.5B", 1'543'714'304},
          Row{"qwen2.5-tokenizer/configs/Qwen2.5-Math-7B-Instruct", 7'615'616'512},
          Row{"qwen2.5-tokenizer/configs/Qwen3-4B", 4'022'468'096}, Row{"models/stories260K", 260'672}}) {
        std::string folder = shared_path(row.folder);
        if (folder.empty()) continue;
        ModelConfig real = read_config(folder);
        CHECK(parameter_count(real) == row.parameters);
        CHECK(std::count(real.window.begin(), real.window.end(), 0) == real.layers);
        CHECK(window_runs(parsed(write_config(real))) == window_runs(real));
    }
}

TEST_CASE("config: names and shapes of a model's tensors") {
    auto layer_of = [](const std::string& architecture) {
        std::string out;
        for (const TensorShape& t : model_tensors(tiny(architecture)))
            if (t.name.find("layers.3.") != std::string::npos)
                out += t.name.substr(15) + " " + shape_text(t.shape) + "\n";
        return out;
    };
    // D 12, 4 query and 2 key/value heads of 6, F 20
    const std::string norm = "input_layernorm.weight [12]\n";
    const std::string rest =
        "self_attn.o_proj.weight [12, 24]\n"
        "post_attention_layernorm.weight [12]\n"
        "mlp.gate_proj.weight [20, 12]\n"
        "mlp.up_proj.weight [20, 12]\n"
        "mlp.down_proj.weight [12, 20]\n";
    CHECK(layer_of("qwen2") == norm +
                                   "self_attn.q_proj.weight [24, 12]\nself_attn.q_proj.bias [24]\n"
                                   "self_attn.k_proj.weight [12, 12]\nself_attn.k_proj.bias [12]\n"
                                   "self_attn.v_proj.weight [12, 12]\nself_attn.v_proj.bias [12]\n" +
                                   rest);
    CHECK(layer_of("qwen3") ==
          norm +
              "self_attn.q_proj.weight [24, 12]\nself_attn.k_proj.weight [12, 12]\n"
              "self_attn.v_proj.weight [12, 12]\nself_attn.q_norm.weight [6]\nself_attn.k_norm.weight [6]\n" +
              rest);
    CHECK(layer_of("llama") == norm +
                                   "self_attn.q_proj.weight [24, 12]\nself_attn.k_proj.weight [12, 12]\n"
                                   "self_attn.v_proj.weight [12, 12]\n" +
                                   rest);
    std::vector<TensorShape> all = model_tensors(tiny("llama"));
    CHECK(all.front().name + shape_text(all.front().shape) == "model.embed_tokens.weight[32, 12]");
    CHECK(all[all.size() - 2].name + shape_text(all[all.size() - 2].shape) == "model.norm.weight[12]");
    CHECK(all.back().name + shape_text(all.back().shape) == "lm_head.weight[32, 12]");
}

TEST_CASE("config: the weights must be those that config.json describes") {
    std::vector<float> data(12 * 32 + 64);
    for (size_t i = 0; i < data.size(); i++) data[i] = 0.01f * float(i);
    ScratchFolder dir;
    auto write = [&](const std::vector<TensorShape>& tensors, const float* head = nullptr) {
        SafetensorsWriter writer;
        for (const TensorShape& t : tensors)
            writer.add(t.name, Dtype::F32, t.shape, t.name == "lm_head.weight" && head ? head : data.data());
        writer.write(dir / "model.safetensors");
    };
    auto check = [&](const ModelConfig& c) {
        return dir.plain(error_of([&] { check_weights(SafetensorsReader::open(dir.path), c); }));
    };
    for (const char* architecture : {"qwen2", "qwen3", "llama"}) {
        write(model_tensors(tiny(architecture)));
        CHECK(check(tiny(architecture)) == "no error");
    }
    for (const char* model : {"models/stories260K", "models/stories260K-qwen-bf16"}) {
        std::string folder = shared_path(model);
        if (!folder.empty()) check_weights(SafetensorsReader::open(folder), read_config(folder));
    }
    ModelConfig c = tiny("qwen2"), tied = c;
    tied.tied = true;
    write(model_tensors(c));
    CHECK(check(tiny("qwen3")) ==
          "DIR/model.safetensors: no tensor \"model.layers.0.self_attn.q_norm.weight\" (51 "
          "others, for example \"model.layers.2.input_layernorm.weight\")");
    CHECK(
        check(tiny("llama")) ==
        "DIR/model.safetensors: tensor \"model.layers.0.self_attn.q_proj.bias\" is unknown to a llama model");
    // Tied, and the head is in the file as well: only if it is the embedding.
    CHECK(check(tied) == "no error");
    std::vector<float> other = data;
    other[7] = -1;
    write(model_tensors(c), other.data());
    CHECK(check(c) == "no error");
    CHECK(check(tied) ==
          "DIR/model.safetensors: tensor \"lm_head.weight\" differs from \"model.embed_tokens.weight\", "
          "but config.json has tie_word_embeddings true");
    write(model_tensors(tied));
    CHECK(check(tied) == "no error");
    CHECK(
        check(c) ==
        "DIR/model.safetensors: no tensor \"lm_head.weight\", but config.json has tie_word_embeddings false");
    std::vector<TensorShape> tensors = model_tensors(tied);
    tensors[1].shape = {13};
    write(tensors);
    CHECK(check(tied) ==
          "DIR/model.safetensors: tensor \"model.layers.0.input_layernorm.weight\" has shape [13], "
          "config.json asks for [12]");
    tensors = model_tensors(tied);
    tensors.push_back({"model.layers.0.self_attn.rotary_emb.inv_freq", {3}});
    write(tensors);
    CHECK(check(tied) == "no error");
    tensors.push_back({"model.layers.4.mlp.up_proj.weight", {3}});
    write(tensors);
    CHECK(check(tied) ==
          "DIR/model.safetensors: tensor \"model.layers.4.mlp.up_proj.weight\" is unknown to a qwen2 model");
}
