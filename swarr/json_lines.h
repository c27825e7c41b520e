// json_lines.h: JSON files and JSON Lines, in and out. JSON itself is nlohmann-json's.
//
// Every error names file and line, and for a missing key the keys that were found. Reading streams: one line
// is in memory at a time.
#pragma once
#include <cerrno>
#include <cstring>
#include <fstream>
#include <nlohmann/json.hpp>
#include <string>

#include "base.h"

using Json = nlohmann::ordered_json;

// `where` is "file" or "file:line". Errors: text that is not JSON; nesting deeper than 200 levels.
inline Json parse_json(const std::string& text, const std::string& where) {
    try {
        // The library's parser recurses on destruction; a depth bound keeps hostile files off the stack.
        return Json::parse(text, [](int depth, Json::parse_event_t, Json&) {
            if (depth > 200) throw std::length_error("nested deeper than 200 levels");
            return true;
        });
    } catch (const nlohmann::json::parse_error& e) {
        std::string what = e.what();
        size_t colon = what.find("syntax error");
        fail(where + ": not JSON: " + (colon == std::string::npos ? what : what.substr(colon)),
             "check the file at byte " + std::to_string(e.byte) + " of this text; was it cut off?");
    } catch (const nlohmann::json::out_of_range& e) {
        std::string what = e.what();
        fail(where + ": not usable JSON: " + what.substr(what.find(']') + 2),
             "write the number so that a double holds it");
    } catch (const std::length_error& e) {
        fail(where + ": not usable JSON: " + e.what(), "is this really the file you meant?");
    }
}

// The whole file as bytes. Errors: it does not exist, is a folder, or is larger than `limit`.
inline std::string read_file(const std::string& path, uint64_t limit = uint64_t(1) << 32) {
    std::ifstream in(path, std::ios::binary);
    if (!in) fail(path + ": cannot open: " + std::strerror(errno), "check the path and its permissions");
    std::string out;
    char buffer[1 << 16];
    while (in.read(buffer, sizeof buffer), in.gcount() > 0) {
        out.append(buffer, size_t(in.gcount()));
        if (out.size() > limit)
            fail(path + ": larger than " + bytes_text(double(limit)), "is this really the file you meant?");
    }
    if (in.bad())
        fail(path + ": cannot read: " + std::strerror(errno), "is it a folder, or on a failing disk?");
    return out;
}

inline Json read_json(const std::string& path) {
    return parse_json(read_file(path), path);
}

// The keys of an object, for error messages: "id", "text"
inline std::string keys_found(const Json& object) {
    if (!object.is_object()) return std::string("a ") + object.type_name() + ", not an object";
    std::string out;
    int shown = 0;
    for (auto it = object.begin(); it != object.end(); ++it) {
        if (shown++ == 12) return out + ", ...";
        out += (out.empty() ? "" : ", ") + quoted(it.key(), 30);
    }
    return out.empty() ? "none" : out;
}

// Reads a JSONL file line by line; blank lines are skipped.
//   JsonLines in(path); Json row; while (in.next(row)) ... in.where() is "path:17"
class JsonLines {
  public:
    explicit JsonLines(const std::string& path) : path_(path), in_(path, std::ios::binary) {
        if (!in_) fail(path + ": cannot open: " + std::strerror(errno), "check the path and its permissions");
    }
    bool next(Json& row) {
        std::string line;
        if (!next_line(line)) return false;
        row = parse_row(line, where());
        return true;
    }
    // The same in two steps, for programs that parse lines on several threads.
    bool next_line(std::string& line) {
        while (std::getline(in_, line)) {
            line_++;
            if (line_ == 1 && line.compare(0, 3, "\xef\xbb\xbf") == 0) line.erase(0, 3);
            if (line_ == 1 && line.compare(0, 4, "PAR1") == 0)
                fail(path_ + ": this is a Parquet file, not JSONL",
                     "convert it: python3 -c \"import pandas; pandas.read_parquet('" + path_ +
                         "').to_json('data.jsonl', orient='records', lines=True)\"");
            if (line.find_first_not_of(" \t\r") != std::string::npos) return true;
        }
        if (in_.bad()) fail(where() + ": cannot read: " + std::strerror(errno), "is it a folder?");
        return false;
    }
    static Json parse_row(const std::string& line, const std::string& where) {
        Json row = parse_json(line, where);
        if (!row.is_object())
            fail(where + ": a line must be a JSON object (found: " + keys_found(row) + ")",
                 "one object a line, for example {\"prompt\": \"...\", \"completion\": \"...\"}");
        return row;
    }
    std::string where() const { return path_ + ":" + std::to_string(line_); }
    int64_t line() const { return line_; }

  private:
    std::string path_;
    std::ifstream in_;
    int64_t line_ = 0;
};
