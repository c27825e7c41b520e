// source.h: what a program reads of a model folder before the weights: shape, tokenizer, chat template, stop
// tokens.
#pragma once
#include <string>
#include <vector>

#include "chat.h"
#include "run.h"
#include "tokenizer.h"

struct ModelSource {
    std::string folder;
    ModelConfig config;
    Tokenizer tokenizer;
    ChatTemplate chat;
    StopIds stop;

    // `path`: a model folder or a run's. The window and rotary base of `options` are applied.
    // Errors: whatever the files' readers find; a tokenizer with ids that the model has no row for.
    ModelSource(const std::string& path, const ModelOptions& options, const std::string& template_name = "")
        : folder(model_folder(path)),
          config(read_config(folder)),
          tokenizer(Tokenizer::load(folder)),
          chat(ChatTemplate::from_folder(folder, template_name)),
          stop(stop_ids(folder, tokenizer, chat)) {
        options.apply(config);
        if (tokenizer.vocab_size() > config.vocab)
            fail(folder + ": the tokenizer has ids up to " + std::to_string(tokenizer.vocab_size() - 1) +
                     ", config.json has vocab_size " + std::to_string(config.vocab),
                 "do tokenizer.json and config.json belong together?");
    }

    // A conversation up to where the model answers. `system` goes first unless the messages bring one.
    std::vector<int> encode(Json messages, const std::string& system) const {
        if (!system.empty() && messages[0]["role"] != "system")
            messages.insert(messages.begin(), {{"role", "system"}, {"content", system}});
        ChatOptions options;
        options.add_generation_prompt = true;
        return chat.encode(tokenizer, messages, Json(), options);
    }

    void print() const {
        for (const std::string& warning : config.warnings) std::printf("warning: %s\n", warning.c_str());
        std::printf("model: %s, %s: %s parameters, %d layers, hidden %d, heads %d/%d of %d, vocabulary %d\n",
                    folder.c_str(), config.architecture.c_str(), count_text(parameter_count(config)).c_str(),
                    config.layers, config.hidden, config.heads, config.kv_heads, config.head_dim,
                    config.vocab);
        std::printf("%s\n", window_runs(config).c_str());
        std::printf("template: %s; stops at: %s\n", chat.name().c_str(), stop.text().c_str());
        if (!stop.warning.empty()) std::printf("warning: %s\n", stop.warning.c_str());
    }

    // What other engines will do with a folder of this model.
    void print_engine_notes() const {
        std::printf("other engines read this folder so:\n");
        for (const EngineNote& note : engine_notes(write_config(config)))
            std::printf("  %-12s  %s\n", note.engine.c_str(), note.text.c_str());
    }
};
