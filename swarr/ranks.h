// ranks.h: the processes of one run: who they are, how they exchange bytes, and how none waits for ever.
//
// A plain ./sft is one rank: every function here then returns at once, and MPI is not initialised. Several are
// started by `mpirun -n N ./sft ...`, or without MPI one by one, with these variables set for each:
//
//   SWARR_RANKS=N  SWARR_RANK=0 ... N-1  SWARR_RENDEZVOUS=FILE    (a new file, on a disk that all can see)
//
// One primitive carries everything: exchange(), in which each rank sends bytes to each. All ranks must come to
// the same exchanges in the same order. One that does not come within --rank-timeout, or whose process has
// ended, is named in the error of every other; one that comes to another exchange is named too.
//
// These are the small things of the host. Arrays on the device are comm.h's business.
#pragma once
#include <sched.h>
#include <unistd.h>

#include <cmath>
#include <cstdlib>
#include <cstring>
#include <fstream>
#include <memory>
#include <random>
#include <sstream>
#include <string>
#include <string_view>
#include <vector>
#ifdef SWARR_MPI
#include <mpi.h>
#endif

#include "base.h"
#include "files.h"

namespace ranks_detail {

inline std::string variable(const char* name) {
    const char* value = std::getenv(name);
    return value ? value : "";
}

// An environment variable that must be a whole number from `low` to `high`.
inline int variable(const char* name, int low, int high) {
    const std::string text = variable(name);
    char* end = nullptr;
    const long value = std::strtol(text.c_str(), &end, 10);
    if (text.empty() || *end || value < low || value > high)
        fail(format("%s is %s, not a number from %d to %d", name, quoted(text).c_str(), low, high),
             "set SWARR_RANKS, SWARR_RANK and SWARR_RENDEZVOUS for every rank, or use mpirun");
    return int(value);
}

// What stands before the bytes of a message.
struct Header {
    uint64_t sequence = 0, bytes = 0;
    char what[48] = {};
    Header() = default;
    Header(uint64_t sequence, const std::string& name) : sequence(sequence) {
        name.copy(what, sizeof what - 1);
    }
};

// How the messages of one exchange travel. Nothing here waits; Ranks does.
class Link {
  public:
    Link(int rank, int ranks) : rank(rank), ranks(ranks) {}
    virtual ~Link() = default;
    // Finds the other ranks; called until it returns true. `done[r]`: rank r is found.
    virtual bool meet(std::vector<bool>& done) = 0;
    // Begins to send to[r] to every rank r; these bytes must stay until receive() has returned true.
    virtual void send(const Header& header, const std::vector<std::string_view>& to) = 0;
    // Called until it returns true. `done[r]`: the message from r is in from[r], its header in headers[r].
    virtual bool receive(std::vector<Header>& headers, std::vector<std::string>& from,
                         std::vector<bool>& done) = 0;
    // The last call. The first rank has received the last exchange; so have all, if messages travel by MPI.
    virtual void leave() = 0;

    const int rank, ranks;

  protected:
    bool all(const std::vector<bool>& done) const {
        for (int r = 0; r < ranks; r++)
            if (r != rank && !done[size_t(r)]) return false;
        return true;
    }
};

#ifdef SWARR_MPI
// Point to point, not collective, since only that tells who is missing.
class MpiLink : public Link {
  public:
    MpiLink(int rank, int ranks) : Link(rank, ranks), peers_(static_cast<size_t>(ranks)) {}
    bool meet(std::vector<bool>&) override { return true; }  // MPI_Init has done it
    void send(const Header& header, const std::vector<std::string_view>& to) override {
        for (int r = 0; r < ranks; r++) {
            if (r == rank) continue;
            Peer& p = peers_[size_t(r)];
            p.header_came = false;
            p.out = header;
            p.out.bytes = to[size_t(r)].size();
            receive_pieces(p, r, reinterpret_cast<char*>(&p.in), sizeof p.in);
            send_pieces(p, r, reinterpret_cast<const char*>(&p.out), sizeof p.out);
            send_pieces(p, r, to[size_t(r)].data(), to[size_t(r)].size());
        }
    }
    bool receive(std::vector<Header>& headers, std::vector<std::string>& from,
                 std::vector<bool>& done) override {
        for (int r = 0; r < ranks; r++) {
            Peer& p = peers_[size_t(r)];
            if (r == rank || done[size_t(r)]) continue;
            if (complete(p.receives) && !p.header_came) {
                p.header_came = true;
                headers[size_t(r)] = p.in;
                from[size_t(r)].resize(p.in.bytes);
                receive_pieces(p, r, &from[size_t(r)][0], p.in.bytes);
            }
            done[size_t(r)] = p.header_came && complete(p.receives) && complete(p.sends);
        }
        return all(done);
    }
    void leave() override { MPI_Finalize(); }

  private:
    struct Peer {
        Header in, out;
        bool header_came = false;
        std::vector<MPI_Request> sends, receives;
    };
    static constexpr size_t piece = size_t(1) << 30;  // MPI counts in int
    static constexpr int tag = 1;

    static void send_pieces(Peer& p, int r, const char* data, size_t bytes) {
        for (size_t at = 0; at < bytes; at += piece) {
            p.sends.emplace_back();
            MPI_Isend(data + at, int(std::min(piece, bytes - at)), MPI_BYTE, r, tag, MPI_COMM_WORLD,
                      &p.sends.back());
        }
    }
    static void receive_pieces(Peer& p, int r, char* data, size_t bytes) {
        for (size_t at = 0; at < bytes; at += piece) {
            p.receives.emplace_back();
            MPI_Irecv(data + at, int(std::min(piece, bytes - at)), MPI_BYTE, r, tag, MPI_COMM_WORLD,
                      &p.receives.back());
        }
    }
    static bool complete(std::vector<MPI_Request>& requests) {
        int flag = 1;
        if (!requests.empty()) MPI_Testall(int(requests.size()), requests.data(), &flag, MPI_STATUSES_IGNORE);
        if (flag) requests.clear();
        return flag;
    }
    std::vector<Peer> peers_;
};

// Errors: the launcher is another MPI's, so that each process thinks it is alone.
inline std::unique_ptr<Link> start_mpi(int started) {
    int provided, rank, ranks;
    MPI_Init_thread(nullptr, nullptr, MPI_THREAD_FUNNELED, &provided);
    MPI_Comm_rank(MPI_COMM_WORLD, &rank);
    MPI_Comm_size(MPI_COMM_WORLD, &ranks);
    if (ranks != started)
        fail(format("%d processes were started, but MPI knows of %d", started, ranks),
             "use the mpirun of the MPI that this build is linked with (ldd ./sft)");
    return std::make_unique<MpiLink>(rank, ranks);
}
#else
inline std::unique_ptr<Link> start_mpi(int started) {
    fail(format("%d processes were started, and this build has no MPI: each would work alone", started),
         "install libopenmpi-dev, `make clean` and `make`; or set SWARR_RANKS, SWARR_RANK, SWARR_RENDEZVOUS");
}
#endif

// Mailboxes: each rank writes its messages into FILE.SESSION.RANK.0 and .1 in turn, and the others look there.
// A message may replace the one before the last, since all have read that when they come to the last.
//
// The session's name is random, so that files of an earlier run are never taken for this one's. To learn it,
// rank r puts a random word into FILE.hello_r; rank 0 writes FILE with the session's name and every word it
// finds, again whenever one changes; r believes a FILE that has its own word.
class FileLink : public Link {
  public:
    FileLink(int rank, int ranks, const std::string& file)
        : Link(rank, ranks),
          file_(file),
          word_(random_word()),
          session_(rank == 0 ? word_ : ""),
          words_(static_cast<size_t>(ranks)) {
        put(rank == 0 ? file_ : hello(rank), word_ + "\n");
    }
    bool meet(std::vector<bool>& done) override {
        if (rank > 0) {
            std::istringstream text(get(file_));
            std::string session, word;
            for (std::getline(text, session); std::getline(text, word);)
                if (word == word_) session_ = session, done[0] = true;
            return done[0];
        }
        bool changed = false;
        for (int r = 1; r < ranks; r++) {
            std::string word = get(hello(r));
            if (!word.empty() && word != words_[size_t(r)]) changed = true, words_[size_t(r)] = word;
            done[size_t(r)] = ::access(mailbox(r, 1).c_str(), R_OK) == 0;
        }
        if (changed) {
            std::string text = session_ + "\n";
            for (const std::string& word : words_) text += word;
            put(file_, text);
        }
        return all(done);
    }
    // A mailbox: the header, where the part of each rank lies and ends, the parts.
    void send(const Header& header, const std::vector<std::string_view>& to) override {
        sequence_ = header.sequence;
        std::vector<uint64_t> place;
        std::string parts;
        for (size_t r = 0; r < to.size(); r++) {
            const bool again = r > 0 && to[r].data() == to[r - 1].data() && to[r].size() == to[r - 1].size();
            if (again) {
                place.insert(place.end(), {place[2 * r - 2], place[2 * r - 1]});
                continue;
            }
            place.push_back(sizeof header + 2 * to.size() * sizeof(uint64_t) + parts.size());
            place.push_back(to[r].size());
            parts += to[r];
        }
        put(mailbox(rank, sequence_),
            std::string(reinterpret_cast<const char*>(&header), sizeof header) +
                std::string(reinterpret_cast<const char*>(place.data()), place.size() * sizeof place[0]) +
                parts);
    }
    bool receive(std::vector<Header>& headers, std::vector<std::string>& from,
                 std::vector<bool>& done) override {
        for (int r = 0; r < ranks; r++) {
            if (r == rank || done[size_t(r)]) continue;
            // Opened again each time: only that asks a network file system for what is new.
            std::ifstream in(mailbox(r, sequence_), std::ios::binary);
            Header header;
            uint64_t place[2];
            auto take = [&](void* to, size_t bytes) {
                return bool(in.read(static_cast<char*>(to), std::streamsize(bytes)));
            };
            if (!take(&header, sizeof header) || header.sequence < sequence_) continue;
            in.seekg(std::streamoff(sizeof header + 2 * size_t(rank) * sizeof(uint64_t)));
            if (!take(place, sizeof place)) continue;
            std::string& part = from[size_t(r)];
            part.resize(place[1]);
            in.seekg(std::streamoff(place[0]));
            done[size_t(r)] = take(&part[0], part.size());
            headers[size_t(r)] = header;
        }
        return all(done);
    }
    void leave() override {
        if (rank > 0) return;
        ::unlink(file_.c_str());
        for (int r = 0; r < ranks; r++) {
            ::unlink(hello(r).c_str());
            for (uint64_t i = 0; i < 2; i++) ::unlink(mailbox(r, i).c_str());
        }
    }

  private:
    static std::string random_word() {
        std::random_device random;
        return format("%08x%08x", random(), random());
    }
    std::string hello(int r) const { return file_ + ".hello_" + std::to_string(r); }
    std::string mailbox(int r, uint64_t sequence) const {
        return file_ + "." + session_ + "." + std::to_string(r) + "." + std::to_string(sequence % 2);
    }
    static std::string get(const std::string& path) {
        std::ifstream in(path, std::ios::binary);
        return {std::istreambuf_iterator<char>(in), {}};
    }
    // Whole or absent, as files.h's write_whole(), but nothing has to survive a power cut.
    void put(const std::string& path, const std::string& bytes) const {
        const std::string part = path + ".part";
        std::ofstream out(part, std::ios::binary);
        out.write(bytes.data(), std::streamsize(bytes.size()));
        out.close();
        if (!out || ::rename(part.c_str(), path.c_str()) != 0)
            fail(path + ": cannot write: " + std::strerror(errno),
                 "SWARR_RENDEZVOUS names a file in a folder that every rank can write to");
    }

    const std::string file_, word_;
    std::string session_;
    std::vector<std::string> words_;  // of the others, as rank 0 found them
    uint64_t sequence_ = 0;
};

// How many processes a launcher has started of this program; 1 if none did.
inline int launched() {
    for (const char* name : {"OMPI_COMM_WORLD_SIZE", "PMI_SIZE", "SLURM_STEP_NUM_TASKS"})
        if (int n = std::atoi(variable(name).c_str()); n > 1) return n;
    return 1;
}

}  // namespace ranks_detail

class Ranks {
  public:
    // Finds out which rank this is; waits for nobody. Errors: variables that contradict each other; several
    // processes started in a way in which each would think it is alone.
    Ranks() {
        using namespace ranks_detail;
        if (!variable("SWARR_RANKS").empty() || !variable("SWARR_RANK").empty()) {
            size_ = variable("SWARR_RANKS", 1, 1 << 16);
            rank_ = variable("SWARR_RANK", 0, size_ - 1);
            const std::string file = variable("SWARR_RENDEZVOUS");
            if (size_ == 1) return;
            if (file.empty())
                fail("SWARR_RENDEZVOUS is not set", "it names a new file on a disk that every rank can see");
            link_ = std::make_unique<FileLink>(rank_, size_, file);
        } else if (const int started = launched(); started > 1) {
            link_ = start_mpi(started);
            rank_ = link_->rank, size_ = link_->ranks, by_mpi_ = true;
        }
    }
    // One rank, whatever the environment says.
    static Ranks& alone() {
        static Ranks ranks{nullptr};
        return ranks;
    }
    // After an error the other ranks are not waited for: they will find out.
    ~Ranks() {
        if (std::uncaught_exceptions() > 0) return;
        try {
            if (joined_) begin("the end");
            // Nobody needs the first rank's part of the last exchange; so it may remove the files.
            if (joined_ && (by_mpi_ || first())) finish("the end");
            if (link_) link_->leave();
        } catch (const Error& e) {
            std::fprintf(stderr, "warning: %s\n", e.what());
        }
    }
    Ranks(const Ranks&) = delete;
    Ranks& operator=(const Ranks&) = delete;

    int rank() const { return rank_; }
    int size() const { return size_; }
    bool first() const { return rank_ == 0; }
    // Among the ranks of this machine; known after join().
    int local_rank() const { return local_rank_; }
    int local_size() const { return local_size_; }
    // The same for ranks of one machine (and container) only; known after join().
    std::string machine() const { return machine_.empty() ? "" : machine_[size_t(rank_)]; }
    double timeout() const { return timeout_; }

    // Meets the other ranks. From now on a rank that is `timeout` seconds late is an error.
    void join(double timeout) {
        if (size_ == 1 || joined_) return;
        timeout_ = timeout;
        wait("the start", [&](std::vector<bool>& done) { return link_->meet(done); });
        joined_ = true;
        machine_ = all_gather("the start", this_machine());
        process_.resize(size_t(size_));
        for (int r = 0; r < size_; r++) {
            std::string& m = machine_[size_t(r)];
            const size_t space = m.find(' ');
            process_[size_t(r)] = std::atoi(m.c_str());
            m = m.substr(space + 1);
        }
        local_size_ = 0;
        for (int r = 0; r < size_; r++)
            if (machine_[size_t(r)] == machine_[size_t(rank_)]) local_rank_ += r < rank_, local_size_++;
    }

    // Of things that all ranks know, by place in their list: this rank's.
    bool has(size_t place) const { return place % size_t(size_) == size_t(rank_); }
    template <class T>
    std::vector<T> share(const std::vector<T>& of_all) const {
        std::vector<T> mine;
        for (size_t i = size_t(rank_); i < of_all.size(); i += size_t(size_)) mine.push_back(of_all[i]);
        return mine;
    }

    // Sends to[r] to every rank r; from[r] is what r sent here. What a rank sends itself stays where it is.
    // `what` names the exchange: the same on every rank.
    void exchange(const std::string& what, const std::vector<std::string_view>& to,
                  std::vector<std::string>& from) {
        if (size_ == 1) return;
        send(what, to);
        from.resize(size_t(size_));
        finish(what, from);
    }

    void barrier(const std::string& what) { all_gather(what, ""); }
    // What each rank has, by rank.
    std::vector<std::string> all_gather(const std::string& what, std::string_view mine) {
        std::vector<std::string> out(static_cast<size_t>(size_));
        exchange(what, std::vector<std::string_view>(size_t(size_), mine), out);
        out[size_t(rank_)] = mine;
        return out;
    }
    template <class T>
    std::vector<std::vector<T>> all_gather(const std::string& what, const std::vector<T>& mine) {
        std::vector<std::vector<T>> out;
        for (const std::string& bytes :
             all_gather(what, {reinterpret_cast<const char*>(mine.data()), mine.size() * sizeof(T)})) {
            out.emplace_back(bytes.size() / sizeof(T));
            std::memcpy(out.back().data(), bytes.data(), out.back().size() * sizeof(T));
        }
        return out;
    }
    // As all_gather, but only rank 0 gets it; the others get nothing.
    std::vector<std::string> gather(const std::string& what, std::string_view mine) {
        std::vector<std::string> out(static_cast<size_t>(size_));
        std::vector<std::string_view> to(static_cast<size_t>(size_));
        to[0] = mine;
        exchange(what, to, out);
        if (!first()) return {};
        out[0] = mine;
        return out;
    }
    // Rank 0's bytes.
    std::string broadcast(const std::string& what, const std::string& of_first) {
        return all_gather(what, first() ? std::string_view(of_first) : std::string_view())[0];
    }
    // Sums in the order of ranks, so that every rank gets the same bits.
    void sum(const std::string& what, double* x, size_t n) {
        fold(what, x, n, [](double a, double b) { return a + b; });
    }
    void max(const std::string& what, double* x, size_t n) {
        fold(what, x, n, [](double a, double b) { return std::isnan(a) || a > b ? a : b; });
    }
    double sum(const std::string& what, double x) {
        sum(what, &x, 1);
        return x;
    }
    double max(const std::string& what, double x) {
        max(what, &x, 1);
        return x;
    }
    // Whether it is true on any rank.
    bool any(const std::string& what, bool x) { return max(what, double(x)) > 0; }

    // Calls poll(done) until it returns true. Errors: a rank that is not `done` has ended, or is late.
    template <class Poll>
    void wait(const std::string& what, Poll poll) {
        std::vector<bool> done(static_cast<size_t>(size_));
        Timer timer;
        double look = 0.1;  // when to see next whether the missing are alive
        for (int turn = 0; !poll(done); turn++) {
            const double waited = timer.seconds();
            if (waited > timeout_)
                fail(who(done, [](int) { return true; }) + " not come to " + what +
                         format(" within %g s", timeout_),
                     "see what that rank says; if it is only slow, raise --rank-timeout");
            if (waited > look) {
                look = waited + 0.1;
                auto ended = [&](int r) { return !process_.empty() && this->ended(r); };
                const std::string names = who(done, ended);
                // Once more: its last message may have come before it ended.
                if (!names.empty() && !poll(done) && !who(done, ended).empty())
                    fail(names + " ended before " + what, "see what that rank says, or who killed it");
            }
            if (turn < 1000)
                sched_yield();
            else
                usleep(waited < 0.1 ? 20 : 500);
        }
    }

  private:
    explicit Ranks(std::nullptr_t) {}
    void begin(const std::string& what) {
        send(what, std::vector<std::string_view>(static_cast<size_t>(size_)));
    }
    void send(const std::string& what, const std::vector<std::string_view>& to) {
        link_->send(ranks_detail::Header(++sequence_, what), to);
    }
    void finish(const std::string& what) {
        std::vector<std::string> from(static_cast<size_t>(size_));
        finish(what, from);
    }
    void finish(const std::string& what, std::vector<std::string>& from) {
        std::vector<ranks_detail::Header> headers(static_cast<size_t>(size_));
        wait(what, [&](std::vector<bool>& done) { return link_->receive(headers, from, done); });
        const ranks_detail::Header mine(sequence_, what);
        for (int r = 0; r < size_; r++)
            if (r != rank_ && std::strcmp(headers[size_t(r)].what, mine.what) != 0)
                fail(format("rank %d is at \"%s\", rank %d at \"%s\"", rank_, mine.what, r,
                            headers[size_t(r)].what),
                     "all ranks must be the same program with the same options and data");
    }
    template <class Fold>
    void fold(const std::string& what, double* x, size_t n, Fold fold) {
        if (size_ == 1) return;
        const std::string_view mine(reinterpret_cast<const char*>(x), n * sizeof *x);
        const std::vector<std::string> all = all_gather(what, mine);
        for (const std::string& other : all)
            if (other.size() != mine.size())
                fail(format("%s: %zu bytes here, %zu on another rank", what.c_str(), mine.size(),
                            other.size()),
                     "all ranks must be the same program with the same options and data");
        std::vector<double> of_rank(n);
        for (int r = 0; r < size_; r++) {
            std::memcpy(of_rank.data(), all[size_t(r)].data(), mine.size());
            for (size_t i = 0; i < n; i++) x[i] = r ? fold(x[i], of_rank[i]) : of_rank[i];
        }
    }

    // "rank 1 of 2 has" or "ranks 1, 3 of 4 have": those that are not done and fulfil `condition`; "" if none.
    template <class Condition>
    std::string who(const std::vector<bool>& done, Condition condition) const {
        std::string names;
        int n = 0;
        for (int r = 0; r < size_; r++)
            if (r != rank_ && !done[size_t(r)] && condition(r))
                names += (n++ ? ", " : "") + std::to_string(r);
        if (n == 0) return "";
        return (n > 1 ? "ranks " : "rank ") + names + format(" of %d ha", size_) + (n > 1 ? "ve" : "s");
    }
    // Process number, and what is common to those that can see each other's: the machine and the container.
    static std::string this_machine() {
        std::ifstream in("/proc/sys/kernel/random/boot_id");
        std::string boot;
        std::getline(in, boot);
        std::error_code ignored;
        return std::to_string(::getpid()) + " " + boot + " " +
               std::filesystem::read_symlink("/proc/self/ns/pid", ignored).string();
    }
    // A process that ended but was not yet waited for counts as ended.
    bool ended(int r) const {
        if (machine_[size_t(r)] != machine_[size_t(rank_)]) return false;
        std::ifstream in(format("/proc/%d/stat", process_[size_t(r)]));
        std::string line;
        if (!std::getline(in, line)) return true;
        const size_t name = line.rfind(')');
        return name != std::string::npos && name + 2 < line.size() &&
               (line[name + 2] == 'Z' || line[name + 2] == 'X');
    }

    int rank_ = 0, size_ = 1, local_rank_ = 0, local_size_ = 1;
    bool by_mpi_ = false, joined_ = false;
    double timeout_ = 600;
    uint64_t sequence_ = 0;
    std::unique_ptr<ranks_detail::Link> link_;
    std::vector<std::string> machine_;  // by rank
    std::vector<int> process_;
};
