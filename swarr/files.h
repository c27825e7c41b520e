// files.h: files that are whole or absent, however a program ends.
//
// Writing goes to a temporary name beside the target, then fsync, rename, fsync of the folder: after a crash
// or a full disk the old file is still there, whole. Reading large files is by mmap.
//
// Left out: protection against another process that shortens a file while it is mapped (SIGBUS).
#pragma once
#include <fcntl.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <sys/statvfs.h>
#include <unistd.h>

#include <cerrno>
#include <cstring>
#include <filesystem>
#include <string>
#include <utility>

#include "base.h"

inline std::string parent_folder(const std::string& path) {
    size_t slash = path.find_last_of('/');
    return slash == std::string::npos ? "." : slash == 0 ? "/" : path.substr(0, slash);
}

// A file mapped read-only. Errors: it does not exist, is not a regular file, cannot be mapped.
class MappedFile {
  public:
    explicit MappedFile(const std::string& path) : path_(path) {
        int fd = ::open(path.c_str(), O_RDONLY | O_CLOEXEC);
        if (fd < 0)
            fail(path + ": cannot open: " + std::strerror(errno), "check the path and its permissions");
        struct stat info;
        if (::fstat(fd, &info) != 0 || !S_ISREG(info.st_mode)) {
            ::close(fd);
            fail(path + ": not a regular file", "give the file itself, not a folder or a device");
        }
        size_ = size_t(info.st_size);
        // mmap refuses a length of 0; an empty file is simply no bytes.
        void* map = size_ ? ::mmap(nullptr, size_, PROT_READ, MAP_PRIVATE, fd, 0) : nullptr;
        int error = errno;
        ::close(fd);
        if (map == MAP_FAILED)
            fail(path + ": cannot map: " + std::strerror(error), "is memory (ulimit -v) short?");
        data_ = static_cast<const unsigned char*>(map);
    }
    ~MappedFile() {
        if (data_) ::munmap(const_cast<unsigned char*>(data_), size_);
    }
    MappedFile(MappedFile&& other) noexcept
        : path_(std::move(other.path_)), data_(std::exchange(other.data_, nullptr)), size_(other.size_) {}
    MappedFile& operator=(MappedFile&&) = delete;

    const std::string& path() const { return path_; }
    const unsigned char* data() const { return data_; }
    size_t size() const { return size_; }

  private:
    std::string path_;
    const unsigned char* data_ = nullptr;
    size_t size_ = 0;
};

// Makes names that were created, renamed or removed in `folder` survive a power cut.
inline void sync_folder(const std::string& folder) {
    int fd = ::open(folder.c_str(), O_RDONLY | O_DIRECTORY | O_CLOEXEC);
    if (fd < 0) fail(folder + ": cannot open: " + std::strerror(errno), "check the path and its permissions");
    // Some network file systems cannot sync a folder and say EINVAL; there is nothing more to do there.
    bool failed = ::fsync(fd) != 0 && errno != EINVAL;
    int error = errno;
    ::close(fd);
    if (failed) fail(folder + ": cannot sync: " + std::strerror(error), "is the disk failing?");
}

inline void make_folders(const std::string& folder) {
    std::error_code error;
    std::filesystem::create_directories(folder, error);
    if (error) fail(folder + ": cannot create: " + error.message(), "check the path and its permissions");
}

// One folder; false if something is there already, so that of several processes one alone gets true.
inline bool create_folder(const std::string& folder) {
    if (::mkdir(folder.c_str(), 0777) == 0) return true;
    if (errno != EEXIST)
        fail(folder + ": cannot create: " + std::strerror(errno), "check the path and its permissions");
    return false;
}

// Atomic where both are on one file system, as they are below one folder.
inline void rename_path(const std::string& from, const std::string& to) {
    if (::rename(from.c_str(), to.c_str()) != 0)
        fail(from + ": cannot rename to " + to + ": " + std::strerror(errno),
             "check the folder's permissions");
}

// A file or a whole folder; nothing there is fine.
inline void remove_path(const std::string& path) {
    std::error_code error;
    std::filesystem::remove_all(path, error);
    if (error) fail(path + ": cannot delete: " + error.message(), "check the folder's permissions");
}

// Errors: the file system of `folder` has less than `bytes` free. One that does not tell is not asked.
inline void need_space(const std::string& folder, uint64_t bytes) {
    struct statvfs info;
    if (::statvfs(folder.c_str(), &info) != 0 || info.f_blocks == 0) return;
    uint64_t free = uint64_t(info.f_bavail) * info.f_frsize;
    if (free < bytes)
        fail(folder + ": not enough disk space: " + bytes_text(double(bytes)) + " needed, " +
                 bytes_text(double(free)) + " free",
             "free some space, choose another folder with --out, or keep fewer checkpoints (--keep-last)");
}

// Writes PATH.tmp; commit() makes it PATH. Without commit() the temporary file disappears again.
class FileWriter {
  public:
    explicit FileWriter(const std::string& path) : path_(path), temporary_(path + ".tmp") {
        fd_ = ::open(temporary_.c_str(), O_WRONLY | O_CREAT | O_TRUNC | O_CLOEXEC, 0666);
        if (fd_ < 0)
            fail(path + ": cannot create: " + std::strerror(errno),
                 "does its folder exist, and may you write there?");
    }
    ~FileWriter() {
        if (fd_ < 0) return;
        ::close(fd_);
        ::unlink(temporary_.c_str());
    }
    FileWriter(const FileWriter&) = delete;
    FileWriter& operator=(const FileWriter&) = delete;

    void write(const void* data, size_t bytes) {
        const char* at = static_cast<const char*>(data);
        while (bytes) {
            ssize_t n = ::write(fd_, at, bytes);
            if (n < 0 && errno == EINTR) continue;
            if (n <= 0) fail(path_ + ": cannot write: " + std::strerror(n < 0 ? errno : ENOSPC), hint());
            at += n;
            bytes -= size_t(n);
        }
    }
    void write(const std::string& text) { write(text.data(), text.size()); }

    void commit() {
        if (::fsync(fd_) != 0) fail(path_ + ": cannot write: " + std::strerror(errno), hint());
        int fd = std::exchange(fd_, -1);
        // Network file systems report a full disk as late as here.
        bool failed = ::close(fd) != 0 || ::rename(temporary_.c_str(), path_.c_str()) != 0;
        if (failed) {
            int error = errno;
            ::unlink(temporary_.c_str());
            fail(path_ + ": cannot write: " + std::strerror(error), hint());
        }
        sync_folder(parent_folder(path_));
    }

  private:
    static const char* hint() { return "is the disk full? what was there before is unchanged"; }
    std::string path_, temporary_;
    int fd_ = -1;
};

inline void write_whole(const std::string& path, const std::string& text) {
    FileWriter out(path);
    out.write(text);
    out.commit();
}

inline void copy_whole(const std::string& from, const std::string& to) {
    MappedFile in(from);
    FileWriter out(to);
    out.write(in.data(), in.size());
    out.commit();
}
