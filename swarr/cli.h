// cli.h: one table of options. The parser, --help, the printed configuration and config.json all come from
// it, so they cannot drift apart. Parsing itself is CLI11's.
//
//   Cli cli("sft", "convert a model to sliding-window attention and fine-tune it");
//   cli.option("--window", window, "keys each query sees, itself included; 0 = full attention", "Model");
//   if (!cli.parse(argc, argv)) return 0;   // --help was printed
//   cli.print();                            // name, value, where the value came from
//
// Errors: UsageError for an unknown flag or a value that does not parse.
#pragma once
#include <CLI/CLI.hpp>
#include <algorithm>
#include <cerrno>
#include <cmath>
#include <cstdlib>
#include <functional>
#include <limits>
#include <nlohmann/json.hpp>
#include <string>
#include <type_traits>
#include <vector>

#include "base.h"

using Json = nlohmann::ordered_json;

class Cli {
  public:
    Cli(const std::string& program, const std::string& purpose) : app_(purpose, program) {
        app_.set_help_flag("-h,--help", "show this help and exit");
        app_.get_formatter()->column_width(34);
    }

    // `names`: "--window" or "--group-size,--n". The variable's value at this moment is the default.
    // Numbers, strings and std::vector of them; a bool becomes a switch --name / --no-name.
    template <class T>
    CLI::Option* option(const std::string& names, T& value, const std::string& help,
                        const std::string& group = "Options") {
        Row row;
        row.name = names.substr(0, names.find(','));
        row.group = group;
        if constexpr (std::is_same_v<T, bool>) {
            std::string off = "!--no-" + row.name.substr(2);
            row.option = app_.add_flag(names + "," + off, value, help + (value ? " (default: on)" : ""));
        } else {
            row.option = app_.add_option(names, value, help)->capture_default_str();
            if (row.option->get_type_size_max() == 1)
                row.option->multi_option_policy(CLI::MultiOptionPolicy::TakeLast);
        }
        if constexpr (std::is_floating_point_v<T>) row.option->check(wrong_real);
        if constexpr (std::is_same_v<T, uint64_t>) row.option->check(wrong_unsigned);
        row.option->group(group);
        row.get = [&value] { return Json(value); };
        row.set = [&value](const Json& j) { j.get_to(value); };
        rows_.push_back(row);
        return row.option;
    }

    // A positional argument, for commands such as `tokenizer encode`.
    template <class T>
    CLI::Option* positional(const std::string& name, T& value, const std::string& help) {
        return app_.add_option(name, value, help);
    }

    CLI::App& app() { return app_; }

    // Values of an earlier run's config.json, taken as defaults before parse(); keys of other programs'
    // options are ignored. Errors: a value of the wrong type, or one that the command line would refuse.
    void load(const Json& config, const std::string& file) {
        for (Row& row : rows_) {
            auto it = config.find(row.name.substr(2));
            if (it == config.end()) continue;
            try {
                row.set(*it);
            } catch (const nlohmann::json::exception&) {
                fail(file + ": key \"" + row.name.substr(2) + "\": wrong type (" + it->dump() + ")",
                     "restore the file as the run wrote it, or pass " + row.name + " on the command line");
            }
            for (const Json& value : it->is_array() ? *it : Json::array({*it})) check(row, value, file);
            row.source = "file";
        }
    }

    // Returns false when --help was asked for and printed.
    bool parse(int argc, const char* const* argv) {
        try {
            app_.parse(argc, argv);
        } catch (const CLI::CallForHelp&) {
            std::fputs(app_.help().c_str(), stdout);
            return false;
        } catch (const CLI::ParseError& e) {
            throw UsageError(e.what(), "see " + app_.get_name() + " --help");
        }
        for (Row& row : rows_)
            if (row.option->count()) row.source = "flag";
        return true;
    }

    bool given(const std::string& name) const { return find(name).source == "flag"; }
    const std::string& source(const std::string& name) const { return find(name).source; }

    // The value a program chose itself (for example a default that depends on the model).
    void chosen(const std::string& name, const std::string& why) { find(name).source = why; }

    void print(FILE* out = stdout) const {
        size_t name_width = 0, value_width = 0;
        for (const Row& row : rows_) {
            name_width = std::max(name_width, row.name.size() - 2);
            value_width = std::max(value_width, std::min<size_t>(text(row).size(), 40));
        }
        for (const Row& row : rows_)
            std::fprintf(out, "| %-*s | %-*s | %s\n", int(name_width), row.name.c_str() + 2, int(value_width),
                         text(row).c_str(), row.source.c_str());
    }

    Json config() const {
        Json out = Json::object();
        for (const Row& row : rows_) out[row.name.substr(2)] = row.get();
        return out;
    }
    Json sources() const {
        Json out = Json::object();
        for (const Row& row : rows_) out[row.name.substr(2)] = row.source;
        return out;
    }

  private:
    struct Row {
        std::string name, group, source = "default";
        CLI::Option* option = nullptr;
        std::function<Json()> get;
        std::function<void(const Json&)> set;
    };
    // CLI11's ranges let "nan" pass. What is computed is often a 32-bit float, in which 1e300 would be infinite
    // and 1e-60 zero.
    static std::string wrong_real(const std::string& text) {
        errno = 0;
        const double value = std::strtod(text.c_str(), nullptr), size = std::fabs(value);
        if (!std::isfinite(value)) return "Value " + text + " is not a finite number";
        if (errno == ERANGE || size > std::numeric_limits<float>::max() ||
            (size > 0 && size < std::numeric_limits<float>::min()))
            return "Value " + text + " is no 32-bit float: give 0, or a size from 1.2e-38 to 3.4e38";
        return "";
    }
    // CLI11 takes -1 for 2^64 - 1, and 010 for 8.
    static std::string wrong_unsigned(const std::string& text) {
        if (std::to_string(std::strtoull(text.c_str(), nullptr, 10)) == text) return "";
        return "Value " + text + " is not a whole number from 0 to 18446744073709551615";
    }
    static std::string text(const Json& value) {
        return value.is_string() ? value.get<std::string>() : value.dump();
    }
    static std::string text(const Row& row) { return text(row.get()); }

    // What the option's validators say of a value that did not come from the command line.
    static void check(const Row& row, const Json& value, const std::string& file) {
        const std::string shown = text(value);
        for (int i = 0;; i++) {
            const CLI::Validator* validator = nullptr;
            try {
                validator = row.option->get_validator(i);
            } catch (const CLI::OptionNotFound&) {
                return;  // CLI11 has no other way to say that this was the last
            }
            std::string wrong = (*validator)(shown);
            if (!wrong.empty())
                fail(file + ": key \"" + row.name.substr(2) + "\": " + wrong,
                     "restore the file as the run wrote it");
        }
    }
    const Row& find(const std::string& name) const {
        for (const Row& row : rows_)
            if (row.name == name) return row;
        throw std::logic_error("no option " + name);
    }
    Row& find(const std::string& name) { return const_cast<Row&>(std::as_const(*this).find(name)); }

    CLI::App app_;
    std::vector<Row> rows_;
};
