// ranks.h and comm.h on the CPU. Test cases with a dot in their tag are what one rank does; the others launch
// ranks by MPI and by environment variables.
#include <csignal>
#include <thread>

#include "check.h"
#include "collectives.h"

namespace {

void every_launcher(int ranks, const std::string& tag, const std::function<void(const Launched&)>& check) {
    ScratchFolder dir;
    INFO("by file");
    check(launch_by_file(dir, ranks, test_case(tag)));
    if (!have_mpi()) return;
    INFO("by MPI");
    check(launch_by_mpi(ranks, test_case(tag)));
}

}  // namespace

TEST_CASE("comm: shards cover everything once, aligned", "[comm]") {
    for (int ranks : {1, 2, 3, 7})
        for (size_t n : {0, 1, 63, 64, 127, 128, 129, 1000, 100000}) {
            size_t at = 0;
            for (int r = 0; r < ranks; r++) {
                const Shard s = shard_of(n, r, ranks);
                REQUIRE(s.begin == at);
                REQUIRE(s.begin % 64 == 0);
                REQUIRE(s.size >= n / size_t(ranks) / 64 * 64);
                REQUIRE(s.size < n / size_t(ranks) / 64 * 64 + 64 * size_t(ranks));
                at = s.end();
            }
            REQUIRE(at == n);
        }
}

TEST_CASE("comm: one rank is alone, without MPI and without waiting", "[comm]") {
    Ranks ranks;
    ranks.join(0);
    REQUIRE(ranks.size() == 1);
    REQUIRE(ranks.first());
    Cpu device;
    Comm<Cpu> comm(device, ranks);
    all_collectives<float>(device, comm, 1000);
    ranks.barrier("nothing");
    REQUIRE(ranks.gather("text", "abc") == std::vector<std::string>{"abc"});
    REQUIRE(ranks.broadcast("text", "abc") == "abc");
    REQUIRE(ranks.sum("number", 3.5) == 3.5);
    REQUIRE(ranks.any("flag", true));
#ifdef SWARR_MPI
    int initialized = 0;
    MPI_Initialized(&initialized);
    REQUIRE(!initialized);
#endif
}

TEST_CASE("rank: collectives", "[.rank-collectives]") {
    const int code = as_program(30, [](Ranks& ranks) {
        Cpu device;
        Comm<Cpu> comm(device, ranks);
        for (size_t n : {0, 1, 63, 64, 65, 128, 1000}) {
            all_collectives<float>(device, comm, n);
            all_collectives<double>(device, comm, n);
            all_collectives<int32_t>(device, comm, n);
            all_collectives<int64_t>(device, comm, n);
        }
        all_collectives<float>(device, comm, 1234567);  // several turns
    });
    REQUIRE(code == 0);
}
TEST_CASE("comm: every collective, every type, 2 and 3 ranks", "[comm]") {
    every_launcher(2, "[.rank-collectives]", all_well);
    every_launcher(3, "[.rank-collectives]", all_well);
}

// Writes what it got to a file, so that the bits of several ranks and runs can be compared.
TEST_CASE("rank: sums", "[.rank-sums]") {
    const int code = as_program(30, [](Ranks& ranks) {
        Cpu device;
        Comm<Cpu> comm(device, ranks);
        std::vector<float> x = random_array<float>(5000, uint32_t(ranks.rank()));
        double y = x[0] * 1e-3;
        comm.all_reduce(x.data(), x.size());
        ranks.sum("numbers", &y, 1);
        std::string bytes(reinterpret_cast<const char*>(x.data()), x.size() * sizeof x[0]);
        bytes.append(reinterpret_cast<const char*>(&y), sizeof y);
        for (const std::string& other : ranks.all_gather("results", bytes)) REQUIRE(other == bytes);
        if (ranks.first()) std::ofstream(std::getenv("SWARR_TEST_OUT"), std::ios::binary) << bytes;
    });
    REQUIRE(code == 0);
}
TEST_CASE("comm: sums have the same bits on every rank, in every run, by MPI and by file", "[comm]") {
    ScratchFolder dir;
    ::setenv("SWARR_TEST_OUT", (dir / "first").c_str(), 1);
    all_well(launch_by_file(dir, 3, test_case("[.rank-sums]")));
    ::setenv("SWARR_TEST_OUT", (dir / "second").c_str(), 1);
    all_well(have_mpi() ? launch_by_mpi(3, test_case("[.rank-sums]"))
                        : launch_by_file(dir, 3, test_case("[.rank-sums]")));
    ::unsetenv("SWARR_TEST_OUT");
    const std::string bytes = bytes_of_file(dir / "first");
    REQUIRE(bytes.size() == 5000 * sizeof(float) + sizeof(double));
    REQUIRE(bytes == bytes_of_file(dir / "second"));
    // The sum in the order of ranks.
    std::vector<float> of_rank[3];
    for (uint32_t r = 0; r < 3; r++) of_rank[r] = random_array<float>(5000, r);
    for (size_t i = 0; i < 5000; i++) {
        float sum;
        std::memcpy(&sum, bytes.data() + i * sizeof sum, sizeof sum);
        REQUIRE(sum == of_rank[0][i] + of_rank[1][i] + of_rank[2][i]);
    }
}

TEST_CASE("rank: host", "[.rank-host]") {
    const int code = as_program(30, [](Ranks& ranks) {
        const int n = ranks.size(), me = ranks.rank();
        // All are on this machine.
        REQUIRE(ranks.local_rank() == me);
        REQUIRE(ranks.local_size() == n);
        // Lengths differ by much, one is empty, bytes are of any value.
        auto text = [](int r) { return std::string(size_t(r) * 300000, char(r)) + std::string(1, 0); };
        std::vector<std::string> all = ranks.gather("texts", me == 1 ? "" : text(me));
        if (me > 0) REQUIRE(all.empty());
        for (int r = 0; r < n && me == 0; r++) REQUIRE(all[size_t(r)] == (r == 1 ? std::string() : text(r)));
        REQUIRE(ranks.broadcast("seed", me == 0 ? "of the first" : "mine") == "of the first");
        double x[2] = {double(me), -1.5};
        ranks.sum("two", x, 2);
        REQUIRE(x[0] == n * (n - 1) / 2);
        REQUIRE(x[1] == -1.5 * n);
        REQUIRE(ranks.max("largest", -double(me)) == 0);
        REQUIRE(std::isnan(ranks.max("not a number", me == 1 ? NAN : 1.0)));
        REQUIRE(ranks.any("flag", me == n - 1));
        REQUIRE(!ranks.any("no flag", false));
        for (int i = 0; i < 200; i++) ranks.barrier("many");
    });
    REQUIRE(code == 0);
}
TEST_CASE("comm: what the host exchanges", "[comm]") {
    every_launcher(2, "[.rank-host]", all_well);
    every_launcher(3, "[.rank-host]", all_well);
}

// ---------------------------------------------------------------------------------------------------------
// Ranks that do not come

TEST_CASE("rank: sleeps", "[.rank-sleeps]") {
    const int code = as_program(1.5, [](Ranks& ranks) {
        ranks.barrier("a first meeting");
        if (ranks.rank() == 1) std::this_thread::sleep_for(std::chrono::seconds(4));
        Cpu device;
        Comm<Cpu> comm(device, ranks);
        std::vector<float> x(100000);
        comm.all_reduce(x.data(), x.size());
    });
    REQUIRE(code == 0);
}
TEST_CASE("comm: a late rank ends the others within the limit, and is named by each", "[comm]") {
    const std::string named = "rank 1 of 3 has not come to reduce_scatter of 100000 float within 1.5 s";
    every_launcher(3, "[.rank-sleeps]", [&](const Launched& l) {
        INFO(l.all_err());
        for (int code : l.code) CHECK((code != 0 && code != 124));
        REQUIRE(has(l.all_err(), "error: rank: " + named + "\nhint: "));
        if (l.err.size() == 1) return;  // mpirun ends the rest when the first has said it
        CHECK(has(l.err[0], named));
        CHECK(has(l.err[2], named));
    });
}

TEST_CASE("rank: is killed", "[.rank-killed]") {
    const int code = as_program(5, [](Ranks& ranks) {
        ranks.barrier("a first meeting");
        if (ranks.rank() == 1) ::raise(SIGKILL);
        ranks.gather("the samples", "abc");
    });
    REQUIRE(code == 0);
}
TEST_CASE("comm: a killed rank is named at once", "[comm]") {
    ScratchFolder dir;
    const Launched l = launch_by_file(dir, 3, test_case("[.rank-killed]"));
    INFO(l.all_err());
    for (size_t r : {0, 2}) {
        CHECK(has(l.err[r], "error: rank: rank 1 of 3 has ended before the samples\nhint: "));
        CHECK(l.code[r] != 0);
    }
    if (!have_mpi()) return;
    // Here mpirun may be faster; it names the rank as well.
    const Launched m = launch_by_mpi(3, test_case("[.rank-killed]"));
    INFO(m.all_err());
    CHECK((m.code[0] != 0 && m.code[0] != 124));
    CHECK((has(m.all_err(), "rank 1 of 3 has ended") || has(m.all_err(), "process rank 1")));
}

TEST_CASE("rank: fails", "[.rank-fails]") {
    const int code = as_program(5, [](Ranks& ranks) {
        ranks.barrier("a first meeting");
        if (ranks.rank() == 1) fail("data/x.jsonl:3: not JSON", "mend it");
        ranks.barrier("the next step");
    });
    REQUIRE(code == 0);
}
TEST_CASE("comm: a rank with an error ends the others", "[comm]") {
    every_launcher(2, "[.rank-fails]", [&](const Launched& l) {
        INFO(l.all_err());
        for (int code : l.code) CHECK((code != 0 && code != 124));
        CHECK(has(l.all_err(), "error: rank: data/x.jsonl:3: not JSON"));
        if (l.err.size() > 1) CHECK(has(l.err[0], "rank 1 of 2 has ended before the next step"));
    });
}

TEST_CASE("rank: differs", "[.rank-differs]") {
    const int code = as_program(5, [](Ranks& ranks) {
        Cpu device;
        Comm<Cpu> comm(device, ranks);
        std::vector<float> x(500);
        comm.broadcast(x.data(), ranks.first() ? 100 : 101);
    });
    REQUIRE(code == 0);
}
TEST_CASE("comm: ranks that do different things are told so", "[comm]") {
    every_launcher(2, "[.rank-differs]", [&](const Launched& l) {
        INFO(l.all_err());
        for (int code : l.code) CHECK((code != 0 && code != 124));
        CHECK((has(l.all_err(),
                   "rank 0 is at \"broadcast of 100 float\", rank 1 at \"broadcast of 101 float\"") ||
               has(l.all_err(),
                   "rank 1 is at \"broadcast of 101 float\", rank 0 at \"broadcast of 100 float\"")));
    });
}

// ---------------------------------------------------------------------------------------------------------
// How they are started

TEST_CASE("comm: files of an earlier run are not taken for this one's", "[comm]") {
    ScratchFolder dir;
    all_well(launch_by_file(dir, 2, test_case("[.rank-host]")));
    for (const auto& entry : std::filesystem::directory_iterator(dir.path))
        REQUIRE(!has(entry.path().filename(), "meet"));  // the first rank has cleared up
    // A run that was killed leaves files; the next ones, in either order of starting, must not believe them.
    launch_by_file(dir, 2, test_case("[.rank-killed]"));
    REQUIRE(std::filesystem::exists(dir / "meet"));
    all_well(launch_by_file(dir, 2, test_case("[.rank-host]")));
    launch_by_file(dir, 2, test_case("[.rank-killed]"));
    all_well(launch_by_file(dir, 2, test_case("[.rank-host]"), "test $SWARR_RANK = 1 || sleep 0.5"));
    launch_by_file(dir, 2, test_case("[.rank-killed]"));
    all_well(launch_by_file(dir, 2, test_case("[.rank-host]"), "test $SWARR_RANK = 0 || sleep 0.5"));
}

TEST_CASE("rank: only joins", "[.rank-joins]") {
    const int code = as_program(1, [](Ranks&) {});
    REQUIRE(code == 0);
}
TEST_CASE("comm: a rank that never starts is named", "[comm]") {
    const std::string self = "timeout 30 " + test_case("[.rank-joins]") + " ";
    auto alone = [&](const std::string& setup) {
        ScratchFolder dir;
        INFO(setup);
        CHECK(shell("SWARR_RENDEZVOUS='" + dir.path + "/meet' " + setup + " " + self + ">'" + dir.path +
                    "/err' 2>&1") != 0);
        return bytes_of_file(dir / "err");
    };
    CHECK(has(alone("SWARR_RANKS=3 SWARR_RANK=0"),
              "error: rank: ranks 1, 2 of 3 have not come to the start within 1 s\nhint: "));
    CHECK(has(alone("SWARR_RANKS=2 SWARR_RANK=1"), "rank 0 of 2 has not come to the start within 1 s"));
    CHECK(has(alone("SWARR_RANKS=2"), "SWARR_RANK is \"\", not a number from 0 to 1"));
    CHECK(has(alone("SWARR_RANKS=2 SWARR_RANK=2"), "SWARR_RANK is \"2\", not a number from 0 to 1"));
    CHECK(has(alone("SWARR_RANK=1"), "SWARR_RANKS is \"\", not a number from 1"));
    CHECK(has(alone("SWARR_RANKS=2 SWARR_RANK=0 SWARR_RENDEZVOUS="), "SWARR_RENDEZVOUS is not set"));
    CHECK(has(alone("SWARR_RANKS=2 SWARR_RANK=0 SWARR_RENDEZVOUS=/nowhere/x"), "/nowhere/x: cannot write"));
}

TEST_CASE("comm: several processes that would each think they are alone", "[comm]") {
#ifdef SWARR_MPI
    ScratchFolder dir;
    // As if by the mpirun of another MPI.
    CHECK(shell("PMI_SIZE=2 timeout 30 " + test_case("[.rank-joins]") + " >'" + dir.path + "/err' 2>&1") !=
          0);
    INFO(bytes_of_file(dir / "err"));
    CHECK(has(bytes_of_file(dir / "err"), "2 processes were started, but MPI knows of 1"));
#else
    ::setenv("PMI_SIZE", "2", 1);
    CHECK(error_of([] { Ranks ranks; }) ==
          "2 processes were started, and this build has no MPI: each would work alone");
    ::unsetenv("PMI_SIZE");
#endif
}
