// locality_sets.h: the texts whose locality is measured: results of ./eval, rollouts of ./rl_cispo, fine-tuning
// data, or one plain text.
#pragma once
#include <algorithm>
#include <map>
#include <string>
#include <vector>

#include "data.h"
#include "evaluate.h"
#include "locality.h"
#include "source.h"

struct TextSet {
    std::string name, path;
    std::vector<LocalityText> texts;
};

// Results of ./eval: the prompts come from the data that settings.json names.
inline void read_evaluation(TextSet& set, const std::string& folder, const ModelSource& source) {
    Json settings = read_json(folder + "/settings.json");
    ProblemKeys keys;
    keys.input = settings.value("input_key", ""), keys.label = settings.value("label_key", "");
    keys.format = answer_format(settings.value("answer_format", "boxed"), folder + "/settings.json");
    std::map<std::string, std::vector<int>> prompts;
    for (const Problem& p : read_problems(settings.at("data").get<std::string>(), keys))
        prompts[p.id] = source.encode(p.messages, settings.value("system", ""));
    for (auto& [id, rows] : read_samples(folder + "/samples.jsonl")) {
        if (!prompts.count(id))
            fail(
                folder + "/samples.jsonl: problem " + quoted(id) + " is not in " + settings.at("data").dump(),
                "restore the data file of that evaluation");
        for (auto& [number, row] : rows) {
            LocalityText text;
            text.id = id + "/" + std::to_string(number);
            text.ids = prompts[id];
            text.prompt = int(text.ids.size());
            text.ids.insert(text.ids.end(), row.ids.begin(), row.ids.end());
            text.outcome = outcome_name(row.outcome);
            set.texts.push_back(std::move(text));
        }
    }
}

// Lines of ./rl_cispo's rollouts (ids as they were drawn), or of fine-tuning data.
inline void read_lines(TextSet& set, const std::string& path, const ModelSource& source, int64_t limit) {
    JsonLines lines(path);
    for (Json row; (!limit || int64_t(set.texts.size()) < limit) && lines.next(row);) {
        LocalityText text;
        if (row.contains("prompt_ids") && row.contains("ids")) {
            text.id = row.value("id", "") + "/" + std::to_string(row.value("sample", 0));
            text.ids = row["prompt_ids"].get<std::vector<int>>();
            text.prompt = int(text.ids.size());
            for (int id : row["ids"].get<std::vector<int>>()) text.ids.push_back(id);
            text.outcome = row.value("outcome", "");
        } else {
            TrainingText learned = conversation_tokens(row, lines.where(), source.tokenizer, source.chat);
            text.id = lines.where();
            text.ids = learned.ids;
            while (text.prompt < int(text.ids.size()) && !learned.trained[size_t(text.prompt)]) text.prompt++;
        }
        if (int(text.ids.size()) > std::max(1, text.prompt)) set.texts.push_back(std::move(text));
    }
}

// `given`: NAME=PATH or PATH. `only`: all, right or wrong; `limit`: texts at most, 0 = all.
// Errors: what the readers find; no text is left.
inline TextSet read_text_set(const std::string& given, const ModelSource& source, const std::string& only,
                             int64_t limit) {
    namespace fs = std::filesystem;
    const size_t equals = given.find('=');
    TextSet set;
    set.name = equals == std::string::npos ? set_name(given) : given.substr(0, equals);
    set.path = equals == std::string::npos ? given : given.substr(equals + 1);
    if (fs::is_directory(set.path)) {
        read_evaluation(set, set.path, source);
    } else if (fs::path(set.path).extension() == ".jsonl") {
        read_lines(set, set.path, source, only == "all" ? limit : 0);
    } else {
        LocalityText text;
        text.id = set.path;
        text.ids = source.tokenizer.encode(read_file(set.path));
        set.texts.push_back(std::move(text));
    }
    if (only != "all")
        set.texts.erase(std::remove_if(set.texts.begin(), set.texts.end(),
                                       [&](const LocalityText& t) { return t.outcome != only; }),
                        set.texts.end());
    if (limit && int64_t(set.texts.size()) > limit) set.texts.resize(size_t(limit));
    if (set.texts.empty())
        fail(set.path + ": no texts" + (only == "all" ? "" : " that are " + only),
             "is this the set you meant?");
    return set;
}
