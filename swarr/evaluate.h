// evaluate.h: an evaluation as files, and everything that follows from them.
//
//   OUT/SET/settings.json   all that decides a sample: model, window, data, template, sampling, seed
//   OUT/SET/samples.jsonl   one line per problem and sample, appended as they finish
//   OUT/SET/summary.json    a pure function of the two
//
// An evaluation that was killed goes on where it stopped: a half-written last line is cut off, what is there
// is not drawn again, and since a sample depends on its settings alone, the finished files say the same.
// Other settings are refused, by name; more samples or more problems may be asked for.
#pragma once
#include <fcntl.h>
#include <sys/file.h>
#include <unistd.h>

#include <map>
#include <set>
#include <string>
#include <utility>
#include <vector>

#include "files.h"
#include "log.h"
#include "problems.h"
#include "statistics.h"

struct SampleRow {
    std::string id;
    int sample = 0;
    Outcome outcome = Outcome::unparsed, lenient = Outcome::unparsed;
    std::string answer, vote, lenient_answer;
    bool truncated = false;  // the length limit ended it
    double logprob = 0;      // sum over its tokens
    std::string text;
    std::vector<int> ids;  // of the answer, its stop token included
};

namespace evaluate_detail {

inline std::string line(const Json& row) {
    return row.dump(-1, ' ', false, Json::error_handler_t::replace) + "\n";
}
inline Outcome outcome(const Json& name, const std::string& where) {
    for (Outcome o : {Outcome::right, Outcome::wrong, Outcome::unparsed})
        if (name == outcome_name(o)) return o;
    fail(where + ": no outcome is called " + quoted(name.dump()), "known: right, wrong, unparsed");
}

}  // namespace evaluate_detail

inline Json to_json(const SampleRow& r) {
    return {{"id", r.id},
            {"sample", r.sample},
            {"outcome", outcome_name(r.outcome)},
            {"answer", r.answer},
            {"vote", r.vote},
            {"lenient", outcome_name(r.lenient)},
            {"lenient_answer", r.lenient_answer},
            {"stop", r.truncated ? "length" : "token"},
            {"tokens", r.ids.size()},
            {"logprob", finite_or_text(r.logprob)},
            {"text", r.text},
            {"ids", r.ids}};
}
inline SampleRow sample_row(const Json& j, const std::string& where) {
    using evaluate_detail::outcome;
    SampleRow r;
    try {
        r.id = j.at("id").get<std::string>();
        r.sample = j.at("sample").get<int>();
        r.outcome = outcome(j.at("outcome"), where);
        r.lenient = outcome(j.at("lenient"), where);
        r.answer = j.at("answer").get<std::string>();
        r.vote = j.at("vote").get<std::string>();
        r.lenient_answer = j.at("lenient_answer").get<std::string>();
        r.truncated = j.at("stop") == "length";
        r.logprob = j.at("logprob").is_number() ? j.at("logprob").get<double>() : NAN;
        r.text = j.at("text").get<std::string>();
        r.ids = j.at("ids").get<std::vector<int>>();
    } catch (const nlohmann::json::exception&) {
        fail(where + ": not a line of samples (keys found: " + keys_found(j) + ")",
             "remove the line: that sample will be drawn again");
    }
    return r;
}

// Problem id -> sample number -> row. An ordered map: summaries add in one order.
using Samples = std::map<std::string, std::map<int, SampleRow>>;

inline void add_sample(Samples& samples, SampleRow row, const std::string& where) {
    std::string id = row.id;
    int number = row.sample;
    if (!samples[id].emplace(number, std::move(row)).second)
        fail(where + ": sample " + std::to_string(number) + " of " + quoted(id) + " is there twice",
             "remove one of the lines");
}

inline Samples read_samples(const std::string& path) {
    Samples out;
    JsonLines in(path);
    for (Json row; in.next(row);) add_sample(out, sample_row(row, in.where()), in.where());
    return out;
}

// Of all weight files in a folder: their names, sizes, and 256 places of 4 KiB in each, which training
// changes. Reading all of a large model would take as long as loading it. Errors: no weights there.
inline std::string weights_hash(const std::string& folder) {
    std::vector<std::string> names;
    std::error_code error;
    for (auto& entry : std::filesystem::directory_iterator(folder, error))
        if (entry.path().extension() == ".safetensors" && entry.path().filename() != "optimizer.safetensors")
            names.push_back(entry.path().filename().string());
    if (names.empty())
        fail(folder + ": no *.safetensors here", "a model folder has config.json and model.safetensors");
    std::sort(names.begin(), names.end());
    uint64_t hash = text_hash("");
    for (const std::string& name : names) {
        MappedFile file(folder + "/" + name);
        const std::string_view bytes(reinterpret_cast<const char*>(file.data()), file.size());
        hash = text_hash(name + " " + std::to_string(bytes.size()), hash);
        for (size_t i = 0; i < 256; i++) hash = text_hash(bytes.substr(bytes.size() / 256 * i, 4096), hash);
    }
    return format("%016llx", (unsigned long long)hash);
}

// ---------------------------------------------------------------------------------------------------------
// The folder of one evaluation, open for writing.

class EvaluationFolder {
  public:
    // `settings` must hold "samples" and "problems". Errors: the folder holds samples drawn with other
    // settings (named), another process writes to it, it cannot be written.
    EvaluationFolder(const std::string& folder, const Json& settings) : folder_(folder), settings_(settings) {
        make_folders(folder);
        const std::string path = folder + "/samples.jsonl", settings_path = folder + "/settings.json";
        fd_ = ::open(path.c_str(), O_RDWR | O_CREAT | O_APPEND | O_CLOEXEC, 0666);
        if (fd_ < 0)
            fail(path + ": cannot open: " + std::strerror(errno), "choose a folder you may write to: --out");
        // File systems without locks are taken as they are.
        if (::flock(fd_, LOCK_EX | LOCK_NB) != 0 && errno == EWOULDBLOCK) {
            ::close(fd_);
            fail(folder + ": another evaluation is writing here", "wait for it, or choose another --out");
        }
        try {
            cut_last_line(path);
            samples_ = read_samples(path);
            if (!samples_.empty()) check_settings(settings_path);
            write_whole(settings_path, settings_.dump(2) + "\n");
        } catch (...) {
            ::close(fd_);
            throw;
        }
    }
    ~EvaluationFolder() {
        ::fsync(fd_);
        ::close(fd_);
    }
    EvaluationFolder(const EvaluationFolder&) = delete;
    EvaluationFolder& operator=(const EvaluationFolder&) = delete;

    const std::string& folder() const { return folder_; }
    const Samples& samples() const { return samples_; }
    const Json& settings() const { return settings_; }
    // Null where it is not there.
    const SampleRow* find(const std::string& id, int sample) const {
        auto rows = samples_.find(id);
        if (rows == samples_.end()) return nullptr;
        auto row = rows->second.find(sample);
        return row == rows->second.end() ? nullptr : &row->second;
    }
    bool missing(const std::vector<Problem>& problems, int samples) const {
        for (const Problem& p : problems)
            for (int k = 0; k < samples; k++)
                if (!find(p.id, k)) return true;
        return false;
    }

    // One write, so that a kill leaves whole lines and at most one cut one; synced every few seconds.
    void append(const SampleRow& row) {
        add_sample(samples_, row, folder_ + "/samples.jsonl");
        const std::string text = evaluate_detail::line(to_json(row));
        for (size_t done = 0; done < text.size();) {
            ssize_t n = ::write(fd_, text.data() + done, text.size() - done);
            if (n < 0 && errno == EINTR) continue;
            if (n <= 0)
                fail(folder_ + "/samples.jsonl: cannot write: " + std::strerror(errno),
                     "is the disk full? free some space and run the same command again: it will go on here");
            done += size_t(n);
        }
        if (synced_.seconds() > 5) {
            ::fsync(fd_);
            synced_ = Timer();
        }
    }

  private:
    // A kill in the middle of a write leaves a line without its end.
    void cut_last_line(const std::string& path) {
        std::string text = read_file(path, uint64_t(1) << 40);
        size_t end = text.rfind('\n');
        size_t whole = end == std::string::npos ? 0 : end + 1;
        if (whole != text.size() && ::ftruncate(fd_, off_t(whole)) != 0)
            fail(path + ": cannot cut its half-written last line: " + std::strerror(errno),
                 "is the file system read-only?");
    }
    void check_settings(const std::string& path) {
        Json old = read_json(path);
        std::string differ;
        // Paths may move: hashes tell what they hold. More may be asked for, not less.
        for (auto& [key, value] : settings_.items()) {
            if (key == "data" || key == "model") continue;
            Json before = old.is_object() && old.contains(key) ? old[key] : Json();
            bool grows = key == "samples" || key == "limit" || key == "problems";
            auto count = [](const Json& j) {
                return !j.is_number() ? 0 : j == 0 ? INT64_MAX : j.get<int64_t>();
            };
            if (grows ? count(before) <= count(value) : before == value) continue;
            auto shown = [](const Json& j) {
                std::string s = j.dump(-1, ' ', false, Json::error_handler_t::replace);
                return s.size() > 80 ? s.substr(0, 80) + "..." : s;
            };
            differ +=
                (differ.empty() ? "" : "; ") + key + " " + shown(before) + " there, " + shown(value) + " now";
        }
        if (!differ.empty())
            fail(folder_ + ": holds samples drawn with other settings: " + differ,
                 "choose another --out, or delete the folder to start over");
    }

    std::string folder_;
    Json settings_;
    Samples samples_;
    int fd_ = -1;
    Timer synced_;
};

// ---------------------------------------------------------------------------------------------------------
// What follows from the samples

namespace evaluate_detail {

inline double share_right(const std::map<int, SampleRow>& rows, bool lenient = false) {
    int right = 0;
    for (auto& [number, r] : rows) right += (lenient ? r.lenient : r.outcome) == Outcome::right;
    return double(right) / double(rows.size());
}

// Equal votes are one answer, and so are all right answers, since they equal the gold.
inline double majority_right(const std::map<int, SampleRow>& rows) {
    std::vector<int> vote;
    std::vector<bool> right;
    std::map<std::string, int> number;
    for (auto& [k, r] : rows) {
        if (r.outcome == Outcome::unparsed) {
            vote.push_back(-1);
            continue;
        }
        bool is_right = r.outcome == Outcome::right;
        std::string key = is_right ? "right" : "wrong " + r.vote;
        auto [at, fresh] = number.emplace(key, int(right.size()));
        if (fresh) right.push_back(is_right);
        vote.push_back(at->second);
    }
    return majority(vote, right);
}

}  // namespace evaluate_detail

// Problems that do not have all their samples yet are counted and left out.
inline Json summarize(const Json& settings, const Samples& all) {
    using namespace evaluate_detail;
    const int k = settings.at("samples").get<int>();
    const std::string at_k = "@" + std::to_string(k);
    std::vector<double> avg, maj, lenient, length, length_right, length_wrong;
    std::vector<int> right_count;
    int64_t rows = 0, unparsed = 0, truncated = 0, truncated_right = 0, tokens = 0;
    double logprob = 0;
    for (auto& [id, samples] : all) {
        if (int(samples.size()) < k) continue;
        avg.push_back(share_right(samples));
        lenient.push_back(share_right(samples, true));
        maj.push_back(majority_right(samples));
        int right = 0;
        for (auto& [number, r] : samples) {
            bool is_right = r.outcome == Outcome::right;
            right += is_right;
            rows++;
            truncated += r.truncated;
            truncated_right += r.truncated && is_right;
            unparsed += !r.truncated && r.outcome == Outcome::unparsed;
            length.push_back(double(r.ids.size()));
            (is_right ? length_right : length_wrong).push_back(double(r.ids.size()));
            tokens += int64_t(r.ids.size());
            logprob += r.logprob;
        }
        right_count.push_back(right);
    }
    auto mean = [](const std::vector<double>& x) -> Json {
        if (x.empty()) return nullptr;
        double sum = 0;
        for (double v : x) sum += v;
        return sum / double(x.size());
    };
    auto share = [&](int64_t n) -> Json { return rows ? Json(double(n) / double(rows)) : Json(); };
    const int complete = int(avg.size());
    Json out = {{"schema", 1},
                {"set", settings.at("set")},
                {"problems", complete},
                {"incomplete", settings.at("problems").get<int>() - complete},
                {"samples", k}};
    auto put = [&](const std::string& name, const std::vector<double>& x, int samples) {
        Estimate e = share_estimate(x, samples);
        out[name] = complete ? Json(e.mean) : Json();
        out[name + "/interval"] = {e.low, e.high};
    };
    put("avg" + at_k, avg, k);
    for (int n : power_ladder(k)) {
        std::vector<double> x;
        for (int right : right_count) x.push_back(pass_at_k(k, right, n));
        out["pass@" + std::to_string(n)] = mean(x);
    }
    if (k > 1) put("maj" + at_k, maj, 1);
    out["lenient/avg" + at_k] = mean(lenient);
    out["unparsed"] = share(unparsed);
    out["truncated"] = share(truncated);
    out["truncated_right"] = share(truncated_right);
    out["response_length/mean"] = mean(length);
    out["response_length/median"] = quantile(length, 0.5);
    out["response_length/p90"] = quantile(length, 0.9);
    out["response_length/max"] = quantile(length, 1);
    out["response_length/right"] = mean(length_right);
    out["response_length/wrong"] = mean(length_wrong);
    out["logprob_per_token"] = tokens ? finite_or_text(logprob / double(tokens)) : Json();
    out["meaning"] = {
        {"interval", "95%, problems as units (clustered), Wilson with Student's t"},
        {"pass", "unbiased estimate from all samples"},
        {"maj", "unparsed answers do not vote; a tie of m answers counts 1/m for each"},
        {"unparsed", "ended by itself without an answer"},
        {"truncated", "cut off by the length limit, whatever it says; right ones count as right in avg"}};
    out["settings"] = settings;
    return out;
}

inline std::string percent(const Json& share) {
    return share.is_number() ? format("%.1f%%", 100 * share.get<double>()) : "-";
}

// The lines people look for first.
inline std::string summary_text(const Json& s) {
    const std::string at_k = "@" + std::to_string(s.at("samples").get<int>());
    std::string out = format("%s: %d problems x %d samples%s\n", s.at("set").get<std::string>().c_str(),
                             s.at("problems").get<int>(), s.at("samples").get<int>(),
                             s.at("incomplete").get<int>() > 0
                                 ? format(" (%d problems incomplete)", s["incomplete"].get<int>()).c_str()
                                 : "");
    auto line = [&](const std::string& name, const std::string& value) {
        out += format("  %-18s %s\n", name.c_str(), value.c_str());
    };
    auto with_interval = [&](const std::string& name) {
        const Json& i = s.at(name + "/interval");
        line(name, percent(s.at(name)) + "  [" + percent(i[0]) + ", " + percent(i[1]) + "]");
    };
    with_interval("avg" + at_k);
    std::string pass;
    for (int n : power_ladder(s.at("samples").get<int>()))
        if (n > 1)
            pass += format("%s@%d %s", pass.empty() ? "" : "  ", n,
                           percent(s.at("pass@" + std::to_string(n))).c_str());
    if (!pass.empty()) line("pass", pass);
    if (s.contains("maj" + at_k)) with_interval("maj" + at_k);
    line("lenient avg" + at_k, percent(s.at("lenient/avg" + at_k)));
    line("unparsed", percent(s.at("unparsed")));
    line("truncated",
         percent(s.at("truncated")) + " (right all the same: " + percent(s.at("truncated_right")) + ")");
    auto number = [&](const char* key) {
        const Json& v = s.at(key);
        return v.is_number() ? format("%.0f", v.get<double>()) : std::string("-");
    };
    line("response tokens", "mean " + number("response_length/mean") + ", median " +
                                number("response_length/median") + ", p90 " + number("response_length/p90") +
                                ", max " + number("response_length/max"));
    return out;
}

// ---------------------------------------------------------------------------------------------------------
// Two evaluations side by side

// Set -> folder with samples.jsonl: of one evaluation, or of all below an --out. Errors: none there.
inline std::map<std::string, std::string> evaluation_sets(const std::string& folder) {
    std::map<std::string, std::string> out;
    std::error_code error;
    auto is_one = [](const std::string& f) { return ::access((f + "/samples.jsonl").c_str(), R_OK) == 0; };
    if (is_one(folder)) out[read_json(folder + "/settings.json").value("set", "")] = folder;
    for (auto& entry : std::filesystem::directory_iterator(folder, error))
        if (is_one(entry.path().string())) out[entry.path().filename().string()] = entry.path().string();
    if (out.empty())
        fail(folder + ": no samples.jsonl here or one level below",
             "give the folder that ./eval wrote: its --out, or --out and the set's name");
    return out;
}

// Paired difference b - a over the problems both have. Errors: no common problem.
inline Json compare(const std::string& folder_a, const std::string& folder_b) {
    using namespace evaluate_detail;
    Samples a = read_samples(folder_a + "/samples.jsonl"), b = read_samples(folder_b + "/samples.jsonl");
    std::vector<double> x, y, difference;
    int better = 0, worse = 0;
    for (auto& [id, rows] : a) {
        auto other = b.find(id);
        if (other == b.end()) continue;
        x.push_back(share_right(rows)), y.push_back(share_right(other->second));
        difference.push_back(y.back() - x.back());
        better += difference.back() > 0, worse += difference.back() < 0;
    }
    if (x.empty())
        fail(folder_a + " and " + folder_b + " have no problem in common", "compare evaluations of one set");
    Json settings_a = read_json(folder_a + "/settings.json"),
         settings_b = read_json(folder_b + "/settings.json");
    Json differ = Json::object();
    for (auto& [key, value] : settings_a.items())
        if (settings_b.contains(key) && settings_b[key] != value) differ[key] = {value, settings_b[key]};
    Estimate d = difference_estimate(difference);
    Estimate mean_a = share_estimate(x, 1), mean_b = share_estimate(y, 1);
    return {{"schema", 1},
            {"a", folder_a},
            {"b", folder_b},
            {"set", settings_a.value("set", "")},
            {"problems", x.size()},
            {"only_a", a.size() - x.size()},
            {"only_b", b.size() - x.size()},
            {"avg_a", mean_a.mean},
            {"avg_b", mean_b.mean},
            {"difference", d.mean},
            {"difference/interval", {d.low, d.high}},
            {"better", better},
            {"worse", worse},
            {"settings_that_differ", differ}};
}

inline std::string compare_text(const Json& c) {
    auto signed_percent = [](const Json& v) { return format("%+.1f", 100 * v.get<double>()); };
    const Json& i = c.at("difference/interval");
    bool excludes_zero = i[0].get<double>() > 0 || i[1].get<double>() < 0;
    std::string out = format("%s, %d common problems (only in a: %d, only in b: %d)\n",
                             c.at("set").get<std::string>().c_str(), c.at("problems").get<int>(),
                             c.at("only_a").get<int>(), c.at("only_b").get<int>());
    out += "  a  " + percent(c.at("avg_a")) + "  " + c.at("a").get<std::string>() + "\n";
    out += "  b  " + percent(c.at("avg_b")) + "  " + c.at("b").get<std::string>() + "\n";
    out += "  b - a  " + signed_percent(c.at("difference")) + " points, 95% [" + signed_percent(i[0]) + ", " +
           signed_percent(i[1]) + "]: " + (excludes_zero ? "a difference" : "within noise") +
           format(" (better on %d, worse on %d)\n", c.at("better").get<int>(), c.at("worse").get<int>());
    auto shown = [](const Json& value) {
        std::string text = value.is_string() ? value.get<std::string>() : value.dump();
        return text.size() > 60 ? text.substr(0, 60) + "..." : text;
    };
    for (auto& [key, pair] : c.at("settings_that_differ").items())
        if (key != "model" && key != "model_hash" && key != "data")
            out += "  note: " + key + " differs: " + shown(pair[0]) + " | " + shown(pair[1]) + "\n";
    return out;
}

// The comparison of every set that both evaluations hold, in words. Errors: there is none.
inline std::string comparison_text(const std::string& a, const std::string& b) {
    const auto sets_a = evaluation_sets(a), sets_b = evaluation_sets(b);
    std::string out;
    for (auto& [name, folder] : sets_a)
        if (auto other = sets_b.find(name); other != sets_b.end())
            out += compare_text(compare(folder, other->second));
    if (out.empty()) fail(a + " and " + b + " have no set in common", "compare evaluations of one set");
    return out;
}

// ---------------------------------------------------------------------------------------------------------
// Cross-SFT: the correct samples as training data

// In the order of `problems`, then of samples; texts that repeat within a problem are written once; samples
// cut by the length limit never. `per_problem` 0: all. `system` empty: none. Returns the lines written.
inline int64_t write_sft(FileWriter& out, const std::vector<Problem>& problems, const Samples& samples,
                         const std::string& system, bool as_messages, int per_problem) {
    int64_t lines = 0;
    for (const Problem& p : problems) {
        auto found = samples.find(p.id);
        if (found == samples.end()) continue;
        std::set<std::string> texts;
        for (auto& [number, r] : found->second) {
            if (r.outcome != Outcome::right || r.truncated ||
                (per_problem && int(texts.size()) >= per_problem))
                continue;
            if (!texts.insert(r.text).second) continue;
            Json row = {{"id", p.id}, {"sample", number}};
            if (as_messages || p.messages.size() > 1) {
                Json messages = Json::array();
                if (!system.empty() && p.messages[0].at("role") != "system")
                    messages.push_back({{"role", "system"}, {"content", system}});
                for (const Json& m : p.messages) messages.push_back(m);
                messages.push_back({{"role", "assistant"}, {"content", r.text}});
                row["messages"] = messages;
            } else {
                row["prompt"] = p.messages[0].at("content");
                row["completion"] = r.text;
            }
            out.write(evaluate_detail::line(row));
            lines++;
        }
    }
    return lines;
}
