// scratch.h: for tests: a folder that goes away, the text of an error, the reference data outside the
// repository.
#pragma once
#include <unistd.h>

#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <functional>
#include <iterator>
#include <string>

#include "base.h"

struct ScratchFolder {
    std::string path;
    ScratchFolder() {
        // In memory where that is possible: a disk takes milliseconds for each fsync.
        std::string root =
            ::access("/dev/shm", W_OK) == 0 ? "/dev/shm" : std::filesystem::temp_directory_path();
        std::string name = root + "/swarr-test-XXXXXX";
        if (!mkdtemp(&name[0])) throw std::runtime_error("cannot make a temporary folder");
        path = name;
    }
    ~ScratchFolder() {
        std::error_code ignored;
        std::filesystem::remove_all(path, ignored);
    }
    ScratchFolder(const ScratchFolder&) = delete;
    ScratchFolder& operator=(const ScratchFolder&) = delete;

    std::string operator/(const std::string& name) const { return path + "/" + name; }
    std::string put(const std::string& name, const std::string& bytes) const {
        std::ofstream(path + "/" + name, std::ios::binary) << bytes;
        return path + "/" + name;
    }
    // `text` with this folder's path written as DIR.
    std::string plain(std::string text) const {
        for (size_t at; (at = text.find(path)) != std::string::npos;) text.replace(at, path.size(), "DIR");
        return text;
    }
};

inline std::string bytes_of_file(const std::string& path) {
    std::ifstream in(path, std::ios::binary);
    return {std::istreambuf_iterator<char>(in), {}};
}

// What `body` complains about; the hint must not be empty.
inline std::string error_of(const std::function<void()>& body) {
    try {
        body();
    } catch (const Error& e) {
        return e.hint.empty() ? std::string("no hint for: ") + e.what() : e.what();
    }
    return "no error";
}
inline std::string hint_of(const std::function<void()>& body) {
    try {
        body();
    } catch (const Error& e) {
        return e.hint;
    }
    return "no error";
}

// A path under the reference data; empty (and a line on the terminal) where it is absent.
inline std::string shared_path(const std::string& name) {
    const char* root = std::getenv("SWARR_SHARED");
    std::string path = std::string(root ? root : "../shared") + "/" + name;
    if (std::filesystem::exists(path)) return path;
    std::printf("skipped: %s is absent\n", path.c_str());
    return "";
}
