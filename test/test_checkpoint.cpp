// Checkpoints: killed at any moment, nothing that was DONE is lost; rotation; a log that never repeats a
// step.
#include "checkpoint.h"

#include <signal.h>
#include <sys/ptrace.h>
#include <sys/wait.h>

#include <set>

#include "catch.h"
#include "scratch.h"

namespace {

// A checkpoint whose files all tell its step, so that a mixture of two would show.
void write_files(const std::string& folder, int64_t step, const std::string& mark) {
    for (int i = 0; i < 3; i++)
        write_whole(folder + "/part" + std::to_string(i),
                    mark + std::to_string(step) + std::string(size_t(1000 * (i + 1)), char('a' + step % 26)));
}

std::string save(const std::string& run, int64_t step, Keep keep = {}, const std::string& mark = "") {
    return save_checkpoint(run, step, keep, [&](const std::string& to) { write_files(to, step, mark); });
}

bool whole(const Checkpoint& c, const std::string& mark = "") {
    ScratchFolder expected;
    write_files(expected.path, c.step, mark);
    for (int i = 0; i < 3; i++) {
        std::string name = "part" + std::to_string(i);
        if (bytes_of_file(c.folder + "/" + name) != bytes_of_file(expected / name)) return false;
    }
    return true;
}

std::vector<int64_t> steps(const std::string& run) {
    std::vector<int64_t> out;
    for (const Checkpoint& c : done_checkpoints(run)) out.push_back(c.step);
    return out;
}

std::set<std::string> names_in(const std::string& folder) {
    std::set<std::string> out;
    for (const auto& entry : std::filesystem::directory_iterator(folder)) out.insert(entry.path().filename());
    return out;
}

}  // namespace

TEST_CASE("checkpoint: saved, found, rotated") {
    ScratchFolder run;
    CHECK(newest_checkpoint(run.path).empty());
    CHECK(done_checkpoints(run / "no").empty());
    for (int64_t step : {10, 20, 30, 40, 50, 60, 70}) {
        std::string folder = save(run.path, step, {2, 30});
        CHECK(folder == run / "ckpt/" + step_name(step));
        CHECK(newest_checkpoint(run.path) == folder);
    }
    CHECK(steps(run.path) == std::vector<int64_t>{30, 60, 70});
    for (const Checkpoint& c : done_checkpoints(run.path)) CHECK(whole(c));
    CHECK(names_in(run / "ckpt") == std::set<std::string>{"step_000030", "step_000060", "step_000070"});
    // Never the newest, whatever was asked for.
    rotate_checkpoints(run.path, {0, 0});
    CHECK(steps(run.path) == std::vector<int64_t>{70});
    save(run.path, 80, {-5, 0});
    CHECK(steps(run.path) == std::vector<int64_t>{80});
    CHECK(names_in(run / "ckpt/step_000080") == std::set<std::string>{"DONE", "part0", "part1", "part2"});
    CHECK(step_name(12345678) == "step_12345678");

    // Folders without DONE, files, and other names are no checkpoints and are left alone.
    make_folders(run / "ckpt/step_000090");
    make_folders(run / "ckpt/step_9x");
    make_folders(run / "ckpt/mine");
    for (const char* name : {"ckpt/step_9x/DONE", "ckpt/mine/DONE", "ckpt/step_"}) run.put(name, "");
    save(run.path, 85, {1, 0});
    CHECK(steps(run.path) == std::vector<int64_t>{85});
    CHECK(names_in(run / "ckpt") ==
          std::set<std::string>{"mine", "step_", "step_000085", "step_000090", "step_9x"});
}

TEST_CASE("checkpoint: a failed save changes nothing") {
    ScratchFolder run;
    save(run.path, 1);
    CHECK(error_of([&] {
              save_checkpoint(run.path, 2, {1, 0}, [&](const std::string& to) {
                  write_files(to, 2, "");
                  fail("out of luck", "try again");
              });
          }) == "out of luck");
    CHECK(names_in(run / "ckpt") == std::set<std::string>{"step_000001"});
    std::string error = error_of([&] {
        save_checkpoint(
            run.path, 2, {}, [](const std::string&) { FAIL("must not be called"); }, uint64_t(1) << 60);
    });
    CHECK(run.plain(error).find("DIR/ckpt: not enough disk space: 1048576.00 TiB needed, ") == 0);
    CHECK(names_in(run / "ckpt") == std::set<std::string>{"step_000001"});
    run.put("file", "");
    CHECK(run.plain(error_of([&] { save(run / "file", 1); })) ==
          "DIR/file/ckpt: cannot create: Not a directory");
}

TEST_CASE("checkpoint: DONE knows when a copy is not complete") {
    ScratchFolder run;
    std::string folder = save(run.path, 7);
    run.put("ckpt/step_000007/part1", "short");
    CHECK(run.plain(error_of([&] { newest_checkpoint(run.path); })) ==
          "DIR/ckpt/step_000007/part1: 5 bytes, DONE says 2001");
    std::filesystem::remove(folder + "/part0");
    CHECK(run.plain(error_of([&] { newest_checkpoint(run.path); })) ==
          "DIR/ckpt/step_000007/part0: missing; DONE lists it");
    run.put("ckpt/step_000007/DONE", "[1]");
    CHECK(run.plain(error_of([&] { newest_checkpoint(run.path); })) ==
          "DIR/ckpt/step_000007/DONE: must be empty, or say every file's size");
    run.put("ckpt/step_000007/DONE", "\n");
    CHECK(newest_checkpoint(run.path) == folder);
}

TEST_CASE("checkpoint: the same step again replaces it, and every state in between is sound") {
    ScratchFolder run;
    save(run.path, 5, {}, "first");
    save(run.path, 5, {}, "second");
    CHECK(whole(done_checkpoints(run.path)[0], "second"));
    CHECK(names_in(run / "ckpt") == std::set<std::string>{"step_000005"});
    // Killed between the two renames: the old one counts, and comes back.
    rename_path(run / "ckpt/step_000005", run / "ckpt/.old_step_000005");
    make_folders(run / "ckpt/.tmp_step_000005");
    CHECK(newest_checkpoint(run.path) == run / "ckpt/.old_step_000005");
    save(run.path, 4);
    CHECK(names_in(run / "ckpt") == std::set<std::string>{"step_000004", "step_000005"});
    CHECK(whole(done_checkpoints(run.path)[1], "second"));
    // Killed after them: the new one counts, the old one goes.
    std::filesystem::copy(run / "ckpt/step_000005", run / "ckpt/.old_step_000005");
    CHECK(steps(run.path) == std::vector<int64_t>{4, 5});
    CHECK(newest_checkpoint(run.path) == run / "ckpt/step_000005");
    save(run.path, 6, {3, 0});
    CHECK(names_in(run / "ckpt") == std::set<std::string>{"step_000004", "step_000005", "step_000006"});
}

TEST_CASE("checkpoint: kill -9 at any moment loses nothing that was DONE") {
    ScratchFolder run;
    uint64_t random = 1;
    int64_t promised = 1;
    // Disks differ: the kill comes within three times what one save takes here.
    Timer timer;
    save(run.path, 1);
    double longest = 3e6 * timer.seconds();
    for (int round = 0; round < 40; round++) {
        int pipe_ends[2];
        REQUIRE(pipe(pipe_ends) == 0);
        pid_t child = fork();
        if (child == 0) {
            // Saves, each step twice, and says after each save what is now safe.
            for (int64_t step = promised + 1;; step++)
                for (int twice = 0; twice < 2; twice++) {
                    save(run.path, step, {2, 0});
                    if (::write(pipe_ends[1], &step, sizeof step) != sizeof step) _exit(1);
                }
        }
        ::close(pipe_ends[1]);
        random = random * 6364136223846793005u + 1442695040888963407u;
        usleep(useconds_t(longest * double(random >> 40) / double(1 << 24)));
        kill(child, SIGKILL);
        waitpid(child, nullptr, 0);
        int64_t said;
        while (::read(pipe_ends[0], &said, sizeof said) == sizeof said) promised = said;
        ::close(pipe_ends[0]);
        // The newest is at least what was promised; all are whole; keeping two never left fewer than one.
        std::string newest = newest_checkpoint(run.path);
        std::vector<Checkpoint> done = done_checkpoints(run.path);
        REQUIRE(!done.empty());
        CHECK(newest == done.back().folder);
        CHECK(done.back().step >= promised);
        CHECK(done.size() >= size_t(promised > 1 ? 2 : 1));
        for (const Checkpoint& c : done) CHECK(whole(c));
        promised = done.back().step;
    }
    // The next process sweeps up.
    save(run.path, promised + 1, {2, 0});
    for (const std::string& name : names_in(run / "ckpt")) CHECK(name[0] != '.');
    CHECK(steps(run.path).size() == 2);
}

TEST_CASE("checkpoint: killed at each of its system calls, a save loses nothing") {
    // Replaces step 5, then saves step 6 and rotates step 5 away.
    auto saves = [](const std::string& run) {
        save(run, 5, {1, 0}, "new");
        save(run, 6, {1, 0}, "new");
    };
    bool finished = false;
    // The process stops before and after each call; "after" is as good as "before the next".
    for (int calls = 0; !finished; calls += 2) {
        ScratchFolder run;
        save(run.path, 5, {1, 0}, "old");
        pid_t child = fork();
        if (child == 0) {
            if (ptrace(PTRACE_TRACEME, 0, nullptr, nullptr) != 0) _exit(2);
            raise(SIGSTOP);
            saves(run.path);
            _exit(0);
        }
        int status;
        waitpid(child, &status, 0);
        if (!WIFSTOPPED(status)) {
            std::printf("skipped: ptrace is not allowed here\n");
            return;
        }
        for (int i = 0; i < calls && !finished; i++) {
            ptrace(PTRACE_SYSCALL, child, nullptr, nullptr);
            waitpid(child, &status, 0);
            finished = WIFEXITED(status);
        }
        if (!finished) {
            kill(child, SIGKILL);
            waitpid(child, &status, 0);
        }
        CAPTURE(calls);
        std::vector<Checkpoint> done = done_checkpoints(run.path);
        REQUIRE(!done.empty());
        CHECK(newest_checkpoint(run.path) == done.back().folder);
        for (const Checkpoint& c : done) CHECK((whole(c, "new") || (c.step == 5 && whole(c, "old"))));
        if (finished) CHECK(done.back().step == 6);
        // And the next process can go on.
        save(run.path, 7, {1, 0});
        CHECK(names_in(run / "ckpt") == std::set<std::string>{"step_000007"});
    }
}

TEST_CASE("checkpoint: tokenizer files travel byte for byte; what differs is refused") {
    ScratchFolder from, to;
    std::string odd = std::string("\xff\0\r\n", 4);
    from.put("tokenizer.json", odd);
    from.put("chat_template.jinja", "{{ x }}");
    from.put("merges.txt", "");
    from.put("model.safetensors", "not carried");
    carry_files(from.path, to.path);
    CHECK(names_in(to.path) == std::set<std::string>{"tokenizer.json", "chat_template.jinja", "merges.txt"});
    CHECK(bytes_of_file(to / "tokenizer.json") == odd);
    CHECK(bytes_of_file(to / "merges.txt").empty());
    carry_files(to.path, to.path);
    CHECK(bytes_of_file(to / "tokenizer.json") == odd);

    Json saved = {{"data", "a.jsonl"}, {"ranks", 2}, {"only_saved", 1}};
    refuse_mismatch(saved, {{"data", "a.jsonl"}, {"new_key", 1}}, "trainer.json");
    CHECK(error_of([&] {
              refuse_mismatch(saved, {{"data", "b.jsonl"}}, "trainer.json");
          }) == "trainer.json: \"data\" is \"a.jsonl\" there and \"b.jsonl\" now");
    CHECK(error_of([&] {
              refuse_mismatch(saved, {{"ranks", 1}}, "trainer.json");
          }) == "trainer.json: \"ranks\" is 2 there and 1 now");
}

TEST_CASE("log: goes back to the checkpoint's step, and to the last whole line") {
    ScratchFolder dir;
    std::string path = dir / "log.jsonl";
    auto row = [](int step) { return "{\"schema\":1,\"step\":" + std::to_string(step) + "}\n"; };
    auto reopened = [&](const std::string& before, int64_t step) {
        dir.put("log.jsonl", before);
        JsonlLog log;
        log.open(path, step);
        return bytes_of_file(path);
    };
    const std::string three = row(1) + row(2) + row(2) + row(3);
    CHECK(reopened(three, 3) == three);
    CHECK(reopened(three, 100) == three);
    CHECK(reopened(three, 2) == row(1) + row(2) + row(2));
    CHECK(reopened(three, 1) == row(1));
    CHECK(reopened(three, 0).empty());
    CHECK(reopened(three, -1).empty());
    CHECK(reopened("", 5).empty());
    CHECK(reopened("\n", 5).empty());
    CHECK(reopened("{\"st", 5).empty());
    for (size_t cut = 0; cut < row(3).size(); cut++)
        CHECK(reopened(row(1) + row(2) + row(3).substr(0, cut), 3) == row(1) + row(2));
    // A power cut can leave zeros, or a line without its start.
    CHECK(reopened(row(1) + row(2) + std::string(50, '\0'), 3) == row(1) + row(2));
    CHECK(reopened(row(1) + "ep\":2}\n" + row(3), 2) == row(1));

    JsonlLog log;
    CHECK(log.open(path, 1) == 0);
    log.append({{"step", 2}, {"text", "a\nb\xff"}});
    log.append({{"step", 3}});
    log.sync();
    CHECK(bytes_of_file(path) == row(1) + "{\"step\":2,\"text\":\"a\\nb\xef\xbf\xbd\"}\n{\"step\":3}\n");
    JsonlLog second;
    CHECK(dir.plain(error_of([&] { second.open(path, 3); })) ==
          "DIR/log.jsonl: another process is writing this run");
    CHECK(dir.plain(error_of([&] { JsonlLog().open(dir / "no/log", -1); })) ==
          "DIR/no/log: cannot open: No such file or directory");
}

TEST_CASE("fields: typed values of trainer.json") {
    Json j = {
        {"step", 12}, {"time", 1.5}, {"best", nullptr}, {"done", true}, {"seed", 18446744073709551615u}};
    Fields f(j, "RUN/trainer.json");
    CHECK(f.integer("step", 0, INT64_MAX) == 12);
    CHECK(f.number("time", 0, 1e18) == 1.5);
    CHECK(f.number("step", 0, 1e18) == 12);
    CHECK(f.flag("done", false));
    CHECK(f.integer("best", 0, 9, 7) == 7);
    CHECK(error_of([&] { f.integer("best", 0, 9); }) ==
          "RUN/trainer.json: no key \"best\" (found: \"step\", \"time\", \"best\", \"done\", \"seed\")");
    CHECK(error_of([&] { f.integer("time", 0, 9); }) ==
          "RUN/trainer.json: key \"time\": 1.5 is not a whole number from 0 to 9");
    CHECK(error_of([&] { f.integer("seed", 0, INT64_MAX); }) ==
          "RUN/trainer.json: key \"seed\": 18446744073709551615 is not a whole number from 0 to "
          "9223372036854775807");
    CHECK(error_of([&] { f.number("done", 0, 1); }) ==
          "RUN/trainer.json: key \"done\": true is not a number from 0 to 1");
    CHECK(error_of([&] { f.text("step"); }) == "RUN/trainer.json: key \"step\": 12 is not a string");
}
