// checkpoint.h: folders that are complete or absent, and a log that goes back to where the checkpoint was.
//
//   RUN/ckpt/step_000100/   a model folder + optimizer.safetensors + trainer.json + DONE
//
// A checkpoint is written to RUN/ckpt/.tmp_step_000100 and synced; DONE, with the size of every file, comes
// last; then it is renamed. So a process killed at any moment, or a full disk, loses nothing that was DONE
// before. Left out: what lies in the files; a program's trainer.json is its own business (fields.h reads it).
#pragma once
#include <sys/file.h>

#include <algorithm>
#include <string>
#include <vector>

#include "base.h"
#include "fields.h"
#include "files.h"
#include "json_lines.h"

// ---------------------------------------------------------------------------------------------------------
// Finding checkpoints

struct Checkpoint {
    int64_t step = 0;
    std::string folder;
};

inline std::string step_name(int64_t step) {
    return format("step_%06lld", (long long)step);
}

// The step that a folder is called after; -1 for another name. .old_: what a save of the same step was about to
// replace when it was killed.
inline int64_t step_of_name(const std::string& folder) {
    std::string digits = folder.substr(folder.find_last_of('/') + 1);
    if (digits.compare(0, 5, ".old_") == 0) digits = digits.substr(5);
    if (digits.compare(0, 5, "step_") != 0) return -1;
    digits = digits.substr(5);
    bool number =
        !digits.empty() && digits.size() <= 15 && digits.find_first_not_of("0123456789") == std::string::npos;
    return number ? std::stoll(digits) : -1;
}

// The folders of RUN/ckpt that have a DONE, oldest first; none if there is no such folder.
inline std::vector<Checkpoint> done_checkpoints(const std::string& run) {
    namespace fs = std::filesystem;
    std::vector<Checkpoint> out;
    std::error_code ignored;
    for (const auto& entry : fs::directory_iterator(run + "/ckpt", ignored)) {
        std::string name = entry.path().filename();
        const int64_t step = step_of_name(name);
        if (step < 0 || !fs::exists(entry.path() / "DONE", ignored)) continue;
        bool old = name.compare(0, 5, ".old_") == 0;
        if (old && fs::exists(run + "/ckpt/" + name.substr(5) + "/DONE", ignored)) continue;
        out.push_back({step, entry.path()});
    }
    std::sort(out.begin(), out.end(),
              [](const Checkpoint& a, const Checkpoint& b) { return a.step < b.step; });
    return out;
}

// Errors: a file that DONE lists is missing or of another size, as after a copy that was cut off.
inline void check_done(const std::string& folder) {
    std::string text = read_file(folder + "/DONE", 1 << 20);
    if (text.find_first_not_of(" \n") == std::string::npos) return;  // made by hand: nothing to compare with
    const char* hint = "copy the checkpoint again, or delete this folder to go back to the one before";
    Json files = parse_json(text, folder + "/DONE");
    if (!files.is_object()) fail(folder + "/DONE: must be empty, or say every file's size", hint);
    for (auto it = files.begin(); it != files.end(); ++it) {
        std::error_code error;
        uint64_t size = std::filesystem::file_size(folder + "/" + it.key(), error);
        if (error) fail(folder + "/" + it.key() + ": missing; DONE lists it", hint);
        if (*it != size)
            fail(folder + "/" + it.key() + ": " + std::to_string(size) + " bytes, DONE says " + it->dump(),
                 hint);
    }
}

// The newest complete checkpoint's folder, or "" if RUN has none.
inline std::string newest_checkpoint(const std::string& run) {
    std::vector<Checkpoint> done = done_checkpoints(run);
    if (done.empty()) return "";
    check_done(done.back().folder);
    return done.back().folder;
}

// ---------------------------------------------------------------------------------------------------------
// Writing them

// Which checkpoints stay: the `last` newest (at least one), and every step that is a multiple of `every` (0:
// none).
struct Keep {
    int64_t last = 2, every = 0;
};

namespace checkpoint_detail {

// A name that starts with a dot is not a checkpoint any more; so a deletion that is interrupted leaves none
// behind that has lost some of its files.
inline void remove_checkpoint(const std::string& folder) {
    std::string hidden = parent_folder(folder) + "/.tmp_gone_" + folder.substr(folder.find_last_of('/') + 1);
    rename_path(folder, hidden);
    remove_path(hidden);
}

// What an earlier process left when it was killed.
inline void clean_leftovers(const std::string& ckpt) {
    namespace fs = std::filesystem;
    std::vector<std::string> names;
    for (const auto& entry : fs::directory_iterator(ckpt)) names.push_back(entry.path().filename());
    for (const std::string& name : names) {
        if (name.compare(0, 5, ".tmp_") == 0) remove_path(ckpt + "/" + name);
        if (name.compare(0, 5, ".old_") != 0) continue;
        std::string place = ckpt + "/" + name.substr(5);
        if (fs::exists(place + "/DONE")) {
            remove_path(ckpt + "/" + name);
        } else {
            remove_path(place);
            rename_path(ckpt + "/" + name, place);
        }
    }
}

// Syncs every file of a flat folder; returns the text of DONE.
inline std::string sync_files(const std::string& folder) {
    Json sizes = Json::object();
    std::vector<std::string> names;
    for (const auto& entry : std::filesystem::directory_iterator(folder))
        names.push_back(entry.path().filename());
    std::sort(names.begin(), names.end());
    for (const std::string& name : names) {
        std::string path = folder + "/" + name;
        int fd = ::open(path.c_str(), O_RDONLY | O_CLOEXEC);
        bool failed = fd < 0 || ::fsync(fd) != 0;
        int error = errno;
        if (fd >= 0) ::close(fd);
        if (failed) fail(path + ": cannot sync: " + std::strerror(error), "is the disk full or failing?");
        sizes[name] = std::filesystem::file_size(path);
    }
    return sizes.dump(2) + "\n";
}

}  // namespace checkpoint_detail

// Deletes what `keep` does not keep; never the newest.
inline void rotate_checkpoints(const std::string& run, Keep keep) {
    std::vector<Checkpoint> done = done_checkpoints(run);
    int64_t stay = std::max<int64_t>(keep.last, 1);
    for (int64_t i = 0; i + stay < int64_t(done.size()); i++)
        if (keep.every <= 0 || done[size_t(i)].step % keep.every != 0)
            checkpoint_detail::remove_checkpoint(done[size_t(i)].folder);
}

// Calls write(folder) to put the files of a checkpoint, makes it RUN/ckpt/step_N, then deletes what `keep`
// does not keep. A checkpoint of the same step is replaced. `bytes`: what it will take, if known, checked
// beforehand. Errors: no space, any file that cannot be written. Then the checkpoints are as they were.
template <class Write>
std::string save_checkpoint(const std::string& run, int64_t step, Keep keep, Write write,
                            uint64_t bytes = 0) {
    namespace fs = std::filesystem;
    const std::string ckpt = run + "/ckpt", name = step_name(step);
    const std::string temporary = ckpt + "/.tmp_" + name, place = ckpt + "/" + name,
                      old = ckpt + "/.old_" + name;
    make_folders(ckpt);
    checkpoint_detail::clean_leftovers(ckpt);
    need_space(ckpt, bytes);
    make_folders(temporary);
    try {
        write(temporary);
        write_whole(temporary + "/DONE", checkpoint_detail::sync_files(temporary));
    } catch (...) {
        std::error_code ignored;
        fs::remove_all(temporary, ignored);
        throw;
    }
    if (fs::exists(place)) rename_path(place, old);
    rename_path(temporary, place);
    sync_folder(ckpt);
    remove_path(old);
    rotate_checkpoints(run, keep);
    return place;
}

// The files beside the weights that make a folder usable elsewhere, byte for byte, where `from` has them.
inline void carry_files(const std::string& from, const std::string& to) {
    for (const char* name :
         {"tokenizer.json", "tokenizer_config.json", "generation_config.json", "chat_template.jinja",
          "special_tokens_map.json", "added_tokens.json", "vocab.json", "merges.txt"})
        if (::access((from + "/" + name).c_str(), F_OK) == 0) copy_whole(from + "/" + name, to + "/" + name);
}

// Errors: a key of `now` that `saved` (from the file `where`) has with another value.
inline void refuse_mismatch(const Json& saved, const Json& now, const std::string& where) {
    for (auto it = now.begin(); it != now.end(); ++it)
        if (saved.contains(it.key()) && saved[it.key()] != *it)
            fail(where + ": " + quoted(it.key()) + " is " + saved[it.key()].dump() + " there and " +
                     it->dump() + " now",
                 "a run goes on with what it began with: restore that, or start a new run");
}

// ---------------------------------------------------------------------------------------------------------
// The log

// One JSON object a line, each with a "step" that never falls.
class JsonlLog {
  public:
    JsonlLog() = default;
    ~JsonlLog() {
        if (fd_ >= 0) ::close(fd_);
    }
    JsonlLog(const JsonlLog&) = delete;
    JsonlLog& operator=(const JsonlLog&) = delete;

    // Keeps two processes from writing to one run. Errors: another process has this log open.
    void lock(const std::string& path) {
        path_ = path;
        fd_ = ::open(path.c_str(), O_WRONLY | O_CREAT | O_APPEND | O_CLOEXEC, 0666);
        if (fd_ < 0)
            fail(path + ": cannot open: " + std::strerror(errno), "check the path and its permissions");
        // File systems without locks are taken as they are.
        if (::flock(fd_, LOCK_EX | LOCK_NB) != 0 && errno == EWOULDBLOCK)
            fail(path + ": another process is writing this run", "wait for it, or choose another --out");
    }

    // Locks it, if that has not been done. last_step < 0: a new log. Else rows of later steps, and a last
    // line that was cut off, are taken away, so that going on after a crash writes no step twice. Returns how
    // many bytes were taken away. Errors: another process has this log open.
    size_t open(const std::string& path, int64_t last_step = -1) {
        if (fd_ < 0) lock(path);
        size_t size = 0, keep = 0;
        {
            MappedFile file(path);
            size = file.size();
            keep = last_step < 0 ? 0
                                 : end_of_step({reinterpret_cast<const char*>(file.data()), size}, last_step);
        }
        if (keep < size && ::ftruncate(fd_, off_t(keep)) != 0)
            fail(path + ": cannot shorten: " + std::strerror(errno), "check its permissions");
        return size - keep;
    }

    // Written at once, so that a crash loses nothing that was appended.
    void append(const Json& row) {
        // Text that is not UTF-8 must not stop a run: its bad bytes become U+FFFD.
        std::string line = row.dump(-1, ' ', false, Json::error_handler_t::replace) + "\n";
        const char* at = line.data();
        for (size_t left = line.size(); left;) {
            ssize_t n = ::write(fd_, at, left);
            if (n < 0 && errno == EINTR) continue;
            if (n <= 0)
                fail(path_ + ": cannot write: " + std::strerror(n < 0 ? errno : ENOSPC),
                     "is the disk full? --resume goes on from the last checkpoint");
            at += n;
            left -= size_t(n);
        }
    }

    // After this a power cut loses nothing either; before a checkpoint that the log must not fall behind.
    void sync() {
        if (::fsync(fd_) != 0)
            fail(path_ + ": cannot sync: " + std::strerror(errno), "is the disk full or failing?");
    }

  private:
    // Steps never fall, so it is enough to walk back from the end to the first row that stays.
    static size_t end_of_step(std::string_view text, int64_t last_step) {
        size_t end = text.rfind('\n') + 1;  // npos + 1 = 0: no complete line at all
        while (end > 0) {
            size_t start = end > 1 ? text.rfind('\n', end - 2) + 1 : 0;
            Json row = Json::parse(text.substr(start, end - start), nullptr, false);
            if (row.is_object() && row.contains("step") && row["step"].is_number_integer() &&
                row["step"] <= last_step)
                return end;
            end = start;
        }
        return 0;
    }

    std::string path_;
    int fd_ = -1;
};
