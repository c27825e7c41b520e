// fields.h: typed, bounded access to the keys of a JSON object.
//
//   Json j = read_json(path);
//   int64_t step = Fields(j, path).integer("step", 0, INT64_MAX);
//
// A null counts as a missing key. Errors name file, key, value and what was expected.
#pragma once
#include <cstdint>
#include <string>
#include <vector>

#include "base.h"
#include "json_lines.h"

class Fields {
  public:
    Fields(const Json& object, const std::string& where) : object_(object), where_(where) {
        if (!object.is_object())
            fail(where + ": must be a JSON object (found: " + keys_found(object) + ")", "get the file again");
    }
    bool has(const char* key) const {
        auto it = object_.find(key);
        return it != object_.end() && !it->is_null();
    }
    const Json& at(const char* key) const {
        if (!has(key))
            fail(where_ + ": no key " + quoted(key) + " (found: " + keys_found(object_) + ")",
                 "is this really the file it should be, and is it complete?");
        return *object_.find(key);
    }
    int64_t integer(const char* key, int64_t low, int64_t high) const {
        const Json& value = at(key);
        bool fits = value.is_number_integer() &&
                    (value.is_number_unsigned() ? value.get<uint64_t>() <= uint64_t(INT64_MAX) : true);
        if (!fits || value.get<int64_t>() < low || value.get<int64_t>() > high)
            fail(where_ + ": key " + quoted(key) + ": " + shown(value) + " is not a whole number from " +
                     std::to_string(low) + " to " + std::to_string(high),
                 "correct it in the file, or get the file again");
        return value.get<int64_t>();
    }
    int64_t integer(const char* key, int64_t low, int64_t high, int64_t missing) const {
        return has(key) ? integer(key, low, high) : missing;
    }
    double number(const char* key, double low, double high) const {
        const Json& value = at(key);
        if (!value.is_number() || !(value.get<double>() >= low && value.get<double>() <= high))
            fail(where_ + ": key " + quoted(key) + ": " + shown(value) + " is not a number from " +
                     format("%g to %g", low, high),
                 "correct it in the file, or get the file again");
        return value.get<double>();
    }
    double number(const char* key, double low, double high, double missing) const {
        return has(key) ? number(key, low, high) : missing;
    }
    bool flag(const char* key, bool missing) const {
        if (!has(key)) return missing;
        if (!at(key).is_boolean())
            fail(where_ + ": key " + quoted(key) + ": " + shown(at(key)) + " is neither true nor false",
                 "correct it in the file, or get the file again");
        return at(key).get<bool>();
    }
    std::string text(const char* key) const {
        if (!at(key).is_string())
            fail(where_ + ": key " + quoted(key) + ": " + shown(at(key)) + " is not a string",
                 "correct it in the file, or get the file again");
        return at(key).get<std::string>();
    }
    std::string text(const char* key, const std::string& missing) const {
        return has(key) ? text(key) : missing;
    }

    // A token id, a list of them, or null.
    std::vector<int> ids(const char* key, int vocab) const {
        std::vector<int> out;
        if (!has(key)) return out;
        Json list = at(key).is_array() ? at(key) : Json::array({at(key)});
        for (const Json& id : list) {
            if (!id.is_number_integer() || id < 0 || id >= vocab)
                fail(where_ + ": key " + quoted(key) + ": " + shown(id) +
                         " is not a token id below vocab_size " + std::to_string(vocab),
                     "correct it in the file, or get the file again");
            out.push_back(id.get<int>());
        }
        return out;
    }
    const std::string& where() const { return where_; }

  private:
    static std::string shown(const Json& value) {
        std::string text = value.dump(-1, ' ', false, Json::error_handler_t::replace);
        return text.size() > 60 ? text.substr(0, 60) + "..." : text;
    }
    const Json& object_;
    std::string where_;
};
