// shared_area.h: the memory the ranks of a communicator share, and waiting in it.
//
// Every rank is a process; the area is a POSIX shared-memory file named by the unique id, unlinked once all
// have joined. A wait that lasts too long (CUSIM_NCCL_TIMEOUT seconds, default 60), or a partner whose
// process has ended, ends the program with a message that names the missing ranks.
#pragma once
#include <atomic>
#include <cstddef>
#include <cstdint>
#include <string>

namespace cusim {

constexpr int kMaxRanks = 64;
constexpr size_t kSlotBytes = size_t(1) << 20;

// What a rank is about to do, so that mismatched calls are found.
struct Call {
    int32_t kind = 0, type = 0, op = 0, root = 0;
    uint64_t count = 0;
    bool operator==(const Call& o) const {
        return kind == o.kind && type == o.type && op == o.op && root == o.root && count == o.count;
    }
};

// How a rank left its communicator: destroyed it with everything done, or aborted it.
enum Departure { kPresent, kFinished, kAborted };

struct RankState {
    std::atomic<uint64_t> arrived;  // barriers this rank has reached
    std::atomic<int32_t> pid;       // 0: has not joined
    std::atomic<int32_t> left;      // a Departure
    Call call;
};

// A one-way channel from one rank to another.
struct Channel {
    std::atomic<uint64_t> written, read;  // chunks
};

class SharedArea {
  public:
    SharedArea(const std::string& name, int rank, int ranks);
    ~SharedArea();

    char* slot(int rank) const { return slots_ + size_t(rank) * kSlotBytes; }
    // All ranks meet. `what` for messages.
    void barrier(const char* what);
    // As barrier, and ends the program if the ranks' calls differ.
    void agree(const Call& call, const char* what);
    // Sends or receives one chunk of at most chunk_bytes().
    size_t chunk_bytes() const { return kSlotBytes / 4; }
    bool try_send(int to, const void* data, size_t bytes);
    bool try_receive(int from, void* data, size_t bytes);
    // Waits a little; true if `partner` is gone. Ends the program if the time since `start` is up.
    bool pause(int partner, double start, const char* what) const;
    [[noreturn]] void give_up(const std::string& missing, const char* what, bool dead) const;
    // A rank that aborted, or whose process ended without leaving the communicator; or -1.
    int lost_rank() const;
    void abort();
    static double now();

  private:
    Channel& channel(int from, int to) const { return channels_[from * ranks_ + to]; }
    char* channel_data(int from, int to) const {
        return channel_data_ + (size_t(from) * size_t(ranks_) + size_t(to)) * chunk_bytes();
    }
    bool gone(int rank) const;

    int rank_, ranks_;
    size_t bytes_;
    char* base_;
    RankState* state_;
    Channel* channels_;
    char *slots_, *channel_data_;
    uint64_t barriers_ = 0;
};

}  // namespace cusim
