// run.h: a program's run: its folder, its options in config.json, its log, its checkpoints, and how it is
// resumed.
//
//   RUN/config.json            every option after defaults, where each came from, the command line
//   RUN/log.jsonl              one line a step
//   RUN/ckpt/step_000100/      a model folder + optimizer.safetensors + trainer.json + DONE
//
// --resume RUN takes every option from RUN/config.json and the newest checkpoint with a DONE; an option that
// would change what is computed cannot be given another value then.
#pragma once
#include <unistd.h>

#include <filesystem>
#include <set>
#include <string>
#include <vector>

#include "checkpoint.h"
#include "choose_device.h"
#include "cli.h"
#include "config.h"
#include "device.h"
#include "log.h"
#include "memory_plan.h"
#include "signals.h"

struct RunOptions {
    std::string out, resume;
    DeviceOptions device;
    uint64_t seed = 1;
    int64_t save_every = 0, keep_last = 2, keep_every = 0, eval_every = 0, log_every = 1;
    double max_time = 0;
    bool dry_run = false;
    std::string save_dtype = "f32";

    void add_to(Cli& cli) {
        cli.option("--out", out, "folder of the run; default: runs/NAME, the next free one", "Run");
        cli.option("--resume", resume, "go on with this run's newest checkpoint; auto = the newest run",
                   "Run");
        device.add_to(cli, "Run");
        cli.option("--seed", seed, "of everything random", "Run");
        cli.option("--save-every", save_every, "steps between checkpoints; 0 = at the end only", "Run")
            ->check(CLI::NonNegativeNumber);
        cli.option("--keep-last", keep_last, "newest checkpoints that are kept", "Run")
            ->check(CLI::PositiveNumber);
        cli.option("--keep-every", keep_every, "also keep every checkpoint at a multiple of this", "Run")
            ->check(CLI::NonNegativeNumber);
        cli.option("--eval-every", eval_every, "steps between validations; 0 = at the end only", "Run")
            ->check(CLI::NonNegativeNumber);
        cli.option("--log-every", log_every, "steps between lines of log.jsonl", "Run")
            ->check(CLI::PositiveNumber);
        cli.option("--max-time", max_time,
                   "stop and save after this many seconds, earlier parts included; 0 = never", "Run")
            ->check(CLI::NonNegativeNumber);
        cli.option("--dry-run", dry_run, "check everything, show samples and memory, change nothing", "Run");
    }
};

// Which model, and what is changed about its attention.
struct ModelOptions {
    std::string model;
    int64_t window = -1;
    int sink_tokens = 0;
    std::vector<int> full_layers;
    double rope_theta = 0;

    void add_to(Cli& cli) {
        cli.option("--model", model, "model folder, or a run's folder (its newest checkpoint)", "Model");
        cli.option("--window", window,
                   "keys each query sees, itself included; 0 = full attention; -1 = as the model has it",
                   "Model")
            ->check(CLI::Range(int64_t(-1), int64_t(1) << 30));
        cli.option("--sink-tokens", sink_tokens,
                   "first tokens of a document that stay visible (with --window)", "Model")
            ->check(CLI::NonNegativeNumber);
        cli.option("--full-layers", full_layers, "layers that keep full attention, for example 0,7,15",
                   "Model")
            ->delimiter(',');
        cli.option("--rope-theta", rope_theta, "base of the rotary angles; 0 = as the model has it", "Model")
            ->check(CLI::NonNegativeNumber);
    }
    // Converts: every weight is kept, only who sees whom (and the rotary base) changes.
    void apply(ModelConfig& config) const {
        if (window >= 0)
            set_window(config, window, full_layers, sink_tokens);
        else if (!full_layers.empty() || sink_tokens)
            throw UsageError("--full-layers and --sink-tokens need --window",
                             "for example --window 4096 --full-layers 0,14");
        if (rope_theta != 0 && !(rope_theta >= 1 && rope_theta <= 1e12))
            throw UsageError(format("--rope-theta %g is not 0 or from 1 to 1e12", rope_theta),
                             "usual are 10000 to 1000000");
        if (rope_theta > 0) config.rope_theta = rope_theta;
    }
};

// Options that may differ between a run and its continuation: none of them changes what was computed so far.
// (--steps moves the end of a linear or cosine schedule: a run that is lengthened differs from a long one.)
inline const std::set<std::string>& free_options() {
    static const std::set<std::string> names = {
        "--resume",   "--device",  "--threads", "--save-every", "--keep-last", "--keep-every",  "--log-every",
        "--max-time", "--dry-run", "--steps",   "--eval-every", "--out",       "--rank-timeout"};
    return names;
}

// Where a flag stands on the command line, before it is parsed: "--name X" or "--name=X".
inline std::string argument(int argc, const char* const* argv, const std::string& name) {
    std::string found;
    for (int i = 1; i < argc; i++) {
        std::string a = argv[i];
        if (a == name && i + 1 < argc) found = argv[i + 1];
        if (a.compare(0, name.size() + 1, name + "=") == 0) found = a.substr(name.size() + 1);
    }
    return found;
}

// The newest folder below runs/ that holds a finished checkpoint (of `program`, if named), or "".
inline std::string newest_run(const std::string& program = "") {
    namespace fs = std::filesystem;
    std::string best;
    fs::file_time_type best_time{};
    std::error_code ignored;
    for (const auto& entry : fs::directory_iterator("runs", ignored)) {
        std::string folder = entry.path();
        try {
            std::string checkpoint = newest_checkpoint(folder);
            const std::string file = folder + "/config.json";
            if (checkpoint.empty() || !fs::exists(file)) continue;
            if (!program.empty() && Fields(read_json(file), file).text("program", "") != program) continue;
            auto time = fs::last_write_time(checkpoint + "/DONE", ignored);
            if (best.empty() || time > best_time) best = folder, best_time = time;
        } catch (const Error& e) {  // one damaged run does not hide the others
            std::fprintf(stderr, "warning: passed over: %s\n", e.what());
        }
    }
    return best;
}

// A model folder: the path itself, or the newest finished checkpoint of the run at this path.
inline std::string model_folder(const std::string& path) {
    namespace fs = std::filesystem;
    std::error_code ignored;
    std::string checkpoint = newest_checkpoint(path);
    if (!checkpoint.empty()) return checkpoint;
    if (fs::exists(path + "/config.json", ignored)) return path;
    if (!fs::is_directory(path, ignored))
        fail(path + ": no such folder", "pass a model folder (with config.json) or a run's folder");
    fail(path + ": neither a model folder (no config.json) nor a run with a finished checkpoint",
         "pass a model folder, or wait until the run has saved once");
}

// Values of the built-in miniature for the options that were not given.
class Miniature {
  public:
    explicit Miniature(Cli& cli) : cli_(cli) {}
    template <class T>
    void set(const std::string& name, T& variable, const T& value) {
        if (cli_.source(name) != "default") return;
        variable = value;
        cli_.chosen(name, "miniature");
    }

  private:
    Cli& cli_;
};

// What every rank would print, the first one prints; errors are everyone's.
inline void only_first_prints(const Ranks& ranks) {
    if (ranks.first()) return;
    shows_progress = false;
    if (!std::freopen("/dev/null", "w", stdout)) fail("cannot open /dev/null", "is /dev there?");
}

class Run {
  public:
    // Call after Cli::option(), before anything is read. Parses the command line (with the options of a
    // resumed run as defaults) and meets the other ranks. `name` is that of the default folder. Returns through
    // ok() whether to go on: --help says no.
    Run(Cli& cli, RunOptions& options, Ranks& ranks, const std::string& program, int argc,
        const char* const* argv)
        : cli_(cli), options_(options), ranks_(ranks), program_(program) {
        only_first_prints(ranks);
        std::string resume = argument(argc, argv, "--resume");
        Json before;
        if (!resume.empty()) {
            if (resume == "auto") resume = newest_run(program);
            if (resume.empty())
                fail("--resume auto: no run of " + program + " with a checkpoint below runs/",
                     "name its folder");
            before = read_json(resume + "/config.json");
            const std::string of = Fields(before, resume + "/config.json").text("program", "?");
            if (of != program)
                fail(resume + "/config.json: a run of " + quoted(of) + ", not of " + program,
                     "resume it with that program");
            cli.load(before, resume + "/config.json");
        }
        for (int i = 0; i < argc; i++) command_ += std::string(i ? " " : "") + argv[i];
        ok_ = cli.parse(argc, argv);
        if (!ok_) return;
        ranks.join(options.device.rank_timeout);
        if (!resume.empty()) {
            std::error_code ignored;
            if (cli.given("--out") && options.out != resume &&
                !std::filesystem::equivalent(options.out, resume, ignored))
                throw UsageError("--out " + options.out + " with --resume " + resume +
                                     ": a resumed run goes on in its own folder",
                                 "leave --out away, or start a new run with --model " + resume);
            options.resume = resume;
            options.out = resume;
            Json now = cli.config();
            for (auto it = now.begin(); it != now.end(); ++it) {
                std::string name = "--" + it.key();
                if (!free_options().count(name) && cli.given(name) && before.contains(it.key()) &&
                    before[it.key()] != *it)
                    fail("--resume: " + name + " is " + it->dump() + " here and " + before[it.key()].dump() +
                             " in " + resume + "/config.json",
                         "a resumed run keeps its options; start a new one with --model " + resume +
                             " to change them");
            }
            // Before the checkpoint is chosen: one that another process is about to delete is none.
            if (!options.dry_run && ranks.first()) log_.lock(resume + "/log.jsonl");
            if (ranks.first()) checkpoint_ = newest_checkpoint(resume);
            checkpoint_ = ranks.broadcast("the checkpoint", checkpoint_);
            if (checkpoint_.empty())
                fail(resume + ": no finished checkpoint to resume from",
                     "delete this folder and start again without --resume");
            const std::string file = checkpoint_ + "/trainer.json";
            state_ = read_json(file);
            Fields fields(state_, file);
            const std::string of = fields.text("program");
            if (of != program)
                fail(file + ": \"program\" is " + quoted(of) + ", the run is one of " + program,
                     "is the checkpoint of another run here? put the run's own back");
            step_ = fields.integer("step", 0, int64_t(1) << 60);
            if (step_ != step_of_name(checkpoint_))
                fail(format("%s: \"step\" is %lld, the folder is called %s", file.c_str(), (long long)step_,
                            checkpoint_.substr(checkpoint_.find_last_of('/') + 1).c_str()),
                     "give the folder its own name back, or delete it to go back to the checkpoint before");
            before_ = fields.number("time", 0, 1e12);
        }
        if (options.out.empty()) {
            choose_folder([](const std::string& folder) { return !std::filesystem::exists(folder); });
            cli.chosen("--out", "next free");
        }
    }

    bool ok() const { return ok_; }
    bool resumed() const { return !checkpoint_.empty(); }
    const std::string& folder() const { return options_.out; }
    const std::string& checkpoint() const { return checkpoint_; }  // resumed from
    const Json& state() const { return state_; }                   // its trainer.json
    int64_t step() const { return step_; }                         // done before this process
    // A whole number of trainer.json. Errors: it is missing or none.
    int64_t state_integer(const char* key) const {
        return Fields(state_, checkpoint_ + "/trainer.json").integer(key, 0, int64_t(1) << 60);
    }

    // A text of trainer.json. Errors: as above.
    std::string state_text(const char* key) const {
        return Fields(state_, checkpoint_ + "/trainer.json").text(key);
    }

    // Creates the folder and writes config.json; opens the log, cut back to the checkpoint's step when
    // resumed. Errors: a new run into a folder that already holds one.
    void start() {
        if (ranks_.first()) create();
        options_.out = ranks_.broadcast("the folder", folder());
        catch_signals();
    }

    double seconds() const { return before_ + timer_.seconds(); }
    // A signal, or the end of --max-time, on any rank. All ranks ask at the same places.
    bool must_stop() {
        const bool late = options_.max_time > 0 && seconds() >= options_.max_time;
        return ranks_.any("whether to stop", stop_requested() || late);
    }

    void log(const Metrics& metrics) {
        if (ranks_.first()) log_.append(metrics_json(metrics));
    }

    // Writes RUN/ckpt/step_N: `write(folder, state)` puts the files and adds to trainer.json; DONE comes
    // last. Every rank calls write; only on the first is there a folder to write to.
    template <class Write>
    void save(int64_t step, Write write) {
        saved_ = step;
        if (ranks_.first()) {
            log_.sync();
            save_checkpoint(folder(), step, {options_.keep_last, options_.keep_every},
                            [&](const std::string& to) {
                                Json state = {{"program", program_}, {"step", step}, {"time", seconds()}};
                                write(to, state);
                                write_whole(to + "/trainer.json", state.dump(2) + "\n");
                            });
        } else {
            Json nothing;
            write("", nothing);
        }
        ranks_.barrier("the end of saving");
    }
    int64_t saved() const { return saved_; }  // step of the last save, -1 before

  private:
    void create() {
        namespace fs = std::filesystem;
        if (cli_.source("--out") == "next free") {  // creating it decides between runs that start at once
            const std::string printed = folder();
            make_folders("runs");
            choose_folder(create_folder);
            if (folder() != printed)
                std::printf("out: %s, since %s was taken meanwhile\n", folder().c_str(), printed.c_str());
        }
        make_folders(folder());
        if (!resumed()) log_.lock(folder() + "/log.jsonl");
        if (!resumed() && fs::exists(folder() + "/config.json"))
            fail(folder() + ": there is a run in this folder already",
                 newest_checkpoint(folder()).empty()
                     ? "it has saved nothing yet: delete it, or choose another --out"
                     : "--resume " + folder() + " to go on with it, or another --out");
        if (!resumed()) {
            Json config = {{"program", program_}, {"command", command_}};
            config.update(cli_.config());
            config["sources"] = cli_.sources();
            write_whole(folder() + "/config.json", config.dump(2) + "\n");
        }
        log_.open(folder() + "/log.jsonl", resumed() ? step() : -1);
    }

    // The first of runs/NAME, runs/NAME-2, ... that take(folder) accepts.
    template <class Take>
    void choose_folder(Take take) {
        options_.out = "runs/" + program_;
        for (int n = 2; !take(options_.out); n++) options_.out = "runs/" + program_ + "-" + std::to_string(n);
    }

    Cli& cli_;
    RunOptions& options_;
    Ranks& ranks_;
    std::string program_, command_, checkpoint_;
    Json state_;
    bool ok_ = false;
    double before_ = 0;
    int64_t step_ = 0, saved_ = -1;
    Timer timer_;
    JsonlLog log_;
};
