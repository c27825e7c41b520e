// shared_area.cpp: see shared_area.h.
#include "shared_area.h"

#include <fcntl.h>
#include <sched.h>
#include <signal.h>
#include <sys/mman.h>
#include <time.h>
#include <unistd.h>

#include <cerrno>
#include <cstdlib>
#include <cstring>
#include <fstream>

#include "../rt/standin.h"

namespace cusim {

namespace {

double timeout_seconds() {
    const char* v = std::getenv("CUSIM_NCCL_TIMEOUT");
    double s = v ? std::atof(v) : 60;
    return s > 0 ? s : 60;
}

// Also true for a process that has ended but was not yet waited for by its parent.
bool process_ended(int pid) {
    if (pid <= 0) return false;
    if (kill(pid, 0) != 0 && errno == ESRCH) return true;
    std::ifstream stat("/proc/" + std::to_string(pid) + "/stat");
    std::string line;
    if (!std::getline(stat, line)) return false;
    size_t name_end = line.rfind(')');
    return name_end != std::string::npos && name_end + 2 < line.size() &&
           (line[name_end + 2] == 'Z' || line[name_end + 2] == 'X');
}

}  // namespace

double SharedArea::now() {
    timespec t;
    clock_gettime(CLOCK_MONOTONIC, &t);
    return double(t.tv_sec) + 1e-9 * double(t.tv_nsec);
}

SharedArea::SharedArea(const std::string& name, int rank, int ranks) : rank_(rank), ranks_(ranks) {
    size_t header = (sizeof(RankState) * kMaxRanks + sizeof(Channel) * size_t(ranks) * size_t(ranks) + 4095) /
                    4096 * 4096;
    bytes_ = header + kSlotBytes * size_t(ranks) + chunk_bytes() * size_t(ranks) * size_t(ranks);
    int fd = shm_open(name.c_str(), O_CREAT | O_RDWR, 0600);
    if (fd < 0 || ftruncate(fd, off_t(bytes_)) != 0)
        standin_stop(("nccl: cannot create shared memory " + name + ": " + std::strerror(errno)).c_str());
    void* at = mmap(nullptr, bytes_, PROT_READ | PROT_WRITE, MAP_SHARED, fd, 0);
    close(fd);
    if (at == MAP_FAILED) standin_stop("nccl: cannot map shared memory");
    base_ = static_cast<char*>(at);
    state_ = reinterpret_cast<RankState*>(base_);
    channels_ = reinterpret_cast<Channel*>(base_ + sizeof(RankState) * kMaxRanks);
    slots_ = base_ + header;
    channel_data_ = slots_ + kSlotBytes * size_t(ranks);
    if (state_[rank].pid.exchange(getpid()) != 0)
        standin_stop(("ncclCommInitRank: rank " + std::to_string(rank) + " joined twice").c_str());
    barrier("ncclCommInitRank");
    if (rank == 0) shm_unlink(name.c_str());
}

SharedArea::~SharedArea() {
    if (state_[rank_].left == kPresent) state_[rank_].left = kFinished;
    munmap(base_, bytes_);
}

void SharedArea::abort() {
    state_[rank_].left = kAborted;
}

bool SharedArea::gone(int rank) const {
    return state_[rank].left != kPresent || process_ended(state_[rank].pid);
}

void SharedArea::give_up(const std::string& missing, const char* what, bool dead) const {
    std::string message =
        "rank " + std::to_string(rank_) + " of " + std::to_string(ranks_) + ": " + what + ": ";
    if (dead)
        message += "rank " + missing + " has ended";
    else
        message += "waited " + std::to_string(int(timeout_seconds())) + " s for rank " + missing +
                   " (CUSIM_NCCL_TIMEOUT)";
    standin_stop(message.c_str());
}

bool SharedArea::pause(int partner, double start, const char* what) const {
    static int pauses = 0;
    if (++pauses % 200 == 0 && gone(partner)) return true;
    if (now() - start > timeout_seconds()) give_up(std::to_string(partner), what, false);
    usleep(20);
    return false;
}

int SharedArea::lost_rank() const {
    for (int r = 0; r < ranks_; r++)
        if (r != rank_ && state_[r].left != kFinished && gone(r)) return r;
    return -1;
}

void SharedArea::barrier(const char* what) {
    uint64_t mine = ++barriers_;
    state_[rank_].arrived = mine;
    double start = now();
    for (int tries = 0;; tries++) {
        bool look = tries % 200 == 199;  // whether the missing are alive
        std::string missing;
        bool dead = false;
        for (int r = 0; r < ranks_; r++) {
            if (state_[r].arrived >= mine) continue;
            missing += (missing.empty() ? "" : ", ") + std::to_string(r);
            // It may have arrived and left since the look at `arrived`.
            dead |= look && gone(r) && state_[r].arrived < mine;
        }
        if (missing.empty()) return;
        if (dead || now() - start > timeout_seconds()) give_up(missing, what, dead);
        if (tries > 50)
            usleep(50);
        else
            sched_yield();
    }
}

void SharedArea::agree(const Call& call, const char* what) {
    state_[rank_].call = call;
    barrier(what);
    for (int r = 0; r < ranks_; r++) {
        const Call& other = state_[r].call;
        if (other == call) continue;
        std::string message =
            "rank " + std::to_string(rank_) + ": " + what + " with " + std::to_string(call.count) +
            " elements of type " + std::to_string(call.type) + ", but rank " + std::to_string(r) +
            (other.kind == call.kind ? " passes " : " calls another collective, with ") +
            std::to_string(other.count) + " elements of type " + std::to_string(other.type) + ", op " +
            std::to_string(other.op) + ", root " + std::to_string(other.root);
        standin_stop(message.c_str());
    }
    barrier(what);
}

bool SharedArea::try_send(int to, const void* data, size_t bytes) {
    Channel& c = channel(rank_, to);
    if (c.written != c.read) return false;
    std::memcpy(channel_data(rank_, to), data, bytes);
    c.written++;
    return true;
}

bool SharedArea::try_receive(int from, void* data, size_t bytes) {
    Channel& c = channel(from, rank_);
    if (c.written == c.read) return false;
    std::memcpy(data, channel_data(from, rank_), bytes);
    c.read++;
    return true;
}

}  // namespace cusim
