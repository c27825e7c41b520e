// base.h: what every file needs: errors that carry a hint, a timer, sizes in words.
//
// An Error says what is wrong, where, and with which value; its hint says what to do. Programs print
//   error: sft: data/train.jsonl:17: no key "completion" or "messages" (found: "text")
//   hint: each line must be {"messages": [...]} or {"prompt": ..., "completion": ...}
// and exit with 1, or with 2 for a wrong command line. Library code never prints and never exits: it throws.
#pragma once
#include <chrono>
#include <cstdint>
#include <cstdio>
#include <exception>
#include <new>
#include <stdexcept>
#include <string>

struct Error : std::runtime_error {
    std::string hint;
    Error(const std::string& what, const std::string& hint) : std::runtime_error(what), hint(hint) {}
};

// A wrong command line (exit code 2); everything else is exit code 1.
struct UsageError : Error {
    using Error::Error;
};

[[noreturn]] inline void fail(const std::string& what, const std::string& hint) {
    throw Error(what, hint);
}

// Text that comes from a file, made safe and short enough to stand in an error message.
inline std::string quoted(const std::string& text, size_t longest = 60) {
    std::string out = "\"";
    for (size_t i = 0; i < text.size(); i++) {
        if (i == longest) return out + "...\"";
        unsigned char c = text[i];
        if (c == '"' || c == '\\') {
            out += '\\';
            out += char(c);
        } else if (c < 32 || c == 127) {
            char hex[8];
            std::snprintf(hex, sizeof hex, "\\x%02x", c);
            out += hex;
        } else {
            out += char(c);
        }
    }
    return out + "\"";
}

// For a string that is not const, the compiler would otherwise prefer std::quoted, found through its
// argument.
inline std::string quoted(std::string& text, size_t longest = 60) {
    return quoted(static_cast<const std::string&>(text), longest);
}

// printf into a string.
template <class... Args>
std::string format(const char* pattern, Args... args) {
    int size = std::snprintf(nullptr, 0, pattern, args...);
    std::string out(size_t(size > 0 ? size : 0), '\0');
    std::snprintf(&out[0], out.size() + 1, pattern, args...);
    return out;
}
inline std::string format(const char* text) {
    return text;
}

// 1536 -> "1.50 KiB"
inline std::string bytes_text(double bytes) {
    const char* unit[] = {"B", "KiB", "MiB", "GiB", "TiB"};
    int u = 0;
    while (bytes >= 1024 && u < 4) bytes /= 1024, u++;
    return format(u ? "%.2f %s" : "%.0f %s", bytes, unit[u]);
}

// 1234567 -> "1,234,567"
inline std::string count_text(int64_t n) {
    std::string digits = std::to_string(n < 0 ? -n : n), out;
    for (size_t i = 0; i < digits.size(); i++) {
        if (i && (digits.size() - i) % 3 == 0) out += ',';
        out += digits[i];
    }
    return n < 0 ? "-" + out : out;
}

// 3700 s -> "1h01m"
inline std::string duration_text(double seconds) {
    int64_t s = seconds > 0 && seconds < 1e12 ? int64_t(seconds + 0.5) : 0;
    if (s < 60) return format("%ds", int(s));
    if (s < 3600) return format("%dm%02ds", int(s / 60), int(s % 60));
    return format("%lldh%02dm", (long long)(s / 3600), int(s % 3600 / 60));
}

struct Timer {
    std::chrono::steady_clock::time_point start = std::chrono::steady_clock::now();
    double seconds() const {
        return std::chrono::duration<double>(std::chrono::steady_clock::now() - start).count();
    }
};

// Runs a program's body and turns exceptions into the two lines above and an exit code.
template <class Body>
int run_program(const char* name, Body body) {
    try {
        return body();
    } catch (const UsageError& e) {
        std::fflush(stdout);
        std::fprintf(stderr, "error: %s: %s\nhint: %s\n", name, e.what(), e.hint.c_str());
        return 2;
    } catch (const Error& e) {
        std::fflush(stdout);
        std::fprintf(stderr, "error: %s: %s\nhint: %s\n", name, e.what(), e.hint.c_str());
    } catch (const std::bad_alloc&) {
        std::fflush(stdout);
        std::fprintf(stderr, "error: %s: out of memory\nhint: lower --max-tokens-per-pass or --slots\n",
                     name);
    } catch (const std::exception& e) {
        std::fflush(stdout);
        std::fprintf(stderr, "error: %s: %s\nhint: this is a fault of the program; please report it\n", name,
                     e.what());
    }
    return 1;
}
