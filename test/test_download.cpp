// dev/download.sh against a local server that answers like the hub: resuming, hashes, mirrors, refusals.
#include <signal.h>
#include <sys/wait.h>
#include <unistd.h>

#include "catch.h"
#include "safetensors.h"
#include "scratch.h"

namespace {

struct Result {
    int code;
    std::string output;  // standard output and error
};

Result run_command(const std::string& command) {
    FILE* pipe = popen((command + " 2>&1").c_str(), "r");
    Result result{-1, ""};
    char buffer[4096];
    while (size_t n = fread(buffer, 1, sizeof buffer, pipe)) result.output.append(buffer, n);
    result.code = WEXITSTATUS(pclose(pipe));
    return result;
}

bool tools_present() {
    if (run_command("command -v curl && command -v sha256sum && python3 --version").code == 0) return true;
    std::printf("skipped: curl, sha256sum or python3 is absent\n");
    return false;
}

// A server process for the folder `hub`; its log of requests is hub.log.
class Server {
  public:
    Server(const ScratchFolder& hub, const std::string& faults = "") : log_(hub / "requests.log") {
        std::remove(log_.c_str());
        pid_ = fork();
        if (pid_ == 0) {
            std::string command = "exec python3 test/hub_server.py " + hub.path + " " + faults + " > " + log_;
            execl("/bin/sh", "sh", "-c", command.c_str(), nullptr);
            _exit(127);
        }
        for (int i = 0; i < 1000 && port_.find('\n') == std::string::npos; i++) {
            usleep(10000);
            port_ = bytes_of_file(log_);
        }
        port_ = port_.substr(0, port_.find('\n'));
    }
    ~Server() {
        kill(pid_, SIGTERM);
        waitpid(pid_, nullptr, 0);
    }
    Result download(const std::string& arguments, const std::string& environment = "") const {
        return run_command("HF_ENDPOINT=http://127.0.0.1:" + port_ + "/ " + environment +
                           " dev/download.sh " + arguments);
    }
    std::string requests() const { return bytes_of_file(log_); }
    std::string plain(std::string text) const {
        for (size_t at; (at = text.find("127.0.0.1:" + port_)) != std::string::npos;)
            text.replace(at, 10 + port_.size(), "HUB");
        return text;
    }

  private:
    std::string log_, port_;
    pid_t pid_;
};

// Two models, one in shards, and a data set. Returns the bytes of the single weights file.
void fill(const ScratchFolder& hub) {
    std::vector<float> x(2000, 0.25f);
    x[7] = 3;
    SafetensorsWriter writer;
    for (const char* name : {"a", "b", "c"}) writer.add(name, Dtype::F32, {2000}, x.data());
    for (const char* name : {"me/one", "me/many", "new/one", "gated/one", "me/data", "me/empty", "me/holes"})
        make_folders(hub / name);
    for (const char* name : {"me/one", "new/one", "gated/one"}) {
        writer.write_model(hub / name);
        hub.put(std::string(name) + "/config.json", "{\"model_type\": \"qwen2\"}");
    }
    hub.put("me/one/tokenizer.json", std::string(5000, 't'));
    hub.put("me/one/merges.txt", "");
    hub.put("me/one/README.md", "not wanted");
    writer.write_model(hub / "me/many", 8000);
    hub.put("me/many/config.json", "{}");
    hub.put("me/holes/config.json", "{}");
    hub.put("me/holes/model.safetensors.index.json", "{\"weight_map\": {\"a\": \"model-1.safetensors\"}}");
    hub.put("me/data/test.jsonl", std::string(3000, 'd'));
    hub.put("me/data/test.parquet", "PAR1");
    hub.put("me/empty/README.md", "");
}

bool same_files(const std::string& a, const std::string& b, std::initializer_list<const char*> names) {
    for (const char* name : names)
        if (bytes_of_file(a + "/" + name) != bytes_of_file(b + "/" + name)) return false;
    return true;
}

}  // namespace

TEST_CASE("download: whole folders, shards, data sets, of one commit") {
    if (!tools_present()) return;
    ScratchFolder hub, to;
    fill(hub);
    Server server(hub);
    Result r = server.download("model me/one " + (to / "one"));
    CAPTURE(r.output);
    REQUIRE(r.code == 0);
    CHECK(server.plain(r.output) ==
          "http://HUB/me/one at 0123456789abcdef0123456789abcdef01234567: 4 files, 29255 bytes\n"
          "          23  config.json  (size and hash right)\n"
          "        5000  tokenizer.json  (size and hash right)\n"
          "           0  merges.txt  (size and hash right)\n"
          "       24232  model.safetensors  (size and hash right)\n");
    CHECK(same_files(hub / "me/one", to / "one",
                     {"config.json", "tokenizer.json", "merges.txt", "model.safetensors"}));
    CHECK_FALSE(std::filesystem::exists(to / "one/README.md"));
    // Only the first question is about "main".
    CHECK(server.requests().find("GET /me/one/resolve/main") == std::string::npos);
    CHECK(server.requests().find("HEAD /me/one/resolve/main/tokenizer.json") == std::string::npos);

    to.put("one/config.json", "{\"model_type\": \"qwen3\"}");  // same size, other bytes
    r = server.download("model me/one " + (to / "one"));
    CHECK(r.code == 0);
    CHECK(r.output.find("       24232  model.safetensors  (already there)\n") != std::string::npos);
    CHECK(r.output.find("          23  config.json  (size and hash right)\n") != std::string::npos);
    CHECK(same_files(hub / "me/one", to / "one", {"config.json"}));

    r = server.download("model me/many " + (to / "many"), "LIST=1");
    CHECK(r.code == 0);
    CHECK(r.output.find("  model-00002-of-00003.safetensors\n") != std::string::npos);
    CHECK_FALSE(std::filesystem::exists(to / "many"));
    r = server.download("model me/many " + (to / "many"));
    CHECK(r.code == 0);
    CHECK(SafetensorsReader::open(to / "many").tensors().size() == 3);

    r = server.download("dataset me/data " + (to / "data") + " test.jsonl test.parquet");
    CHECK(r.code == 0);
    CHECK(same_files(hub / "me/data", to / "data", {"test.jsonl", "test.parquet"}));
    CHECK(r.output.find("to JSONL: python3 -c \"import pandas; pandas.read_parquet('" +
                        (to / "data/test.parquet")) != std::string::npos);
    CHECK(server.requests().find("GET /datasets/me/data/resolve/0123456789abcdef") != std::string::npos);

    CHECK(server.download("model old/one " + (to / "renamed")).code == 0);
    CHECK(same_files(hub / "new/one", to / "renamed", {"config.json", "model.safetensors"}));
    CHECK(server.download("model gated/one " + (to / "gated"), "HF_TOKEN=secret").code == 0);
    CHECK(same_files(hub / "gated/one", to / "gated", {"config.json", "model.safetensors"}));
}

TEST_CASE("download: broken connections, servers without ranges, wrong bytes") {
    if (!tools_present()) return;
    ScratchFolder hub;
    fill(hub);
    // One file is asked for as if it were a data set: a model folder asks for ten more.
    std::filesystem::copy(hub / "me/one/model.safetensors", hub / "me/data/model.safetensors");
    const std::string weights = "dataset me/data ";
    {
        ScratchFolder to;
        Server server(hub, "cut");
        Result r = server.download(weights + to.path + " model.safetensors");
        CAPTURE(r.output);
        CHECK(r.code == 0);
        CHECK(same_files(hub / "me/one", to.path, {"model.safetensors"}));
        CHECK(server.requests().find("model.safetensors bytes=20000-") != std::string::npos);
    }
    {
        // What an earlier, killed download left is used; here it has a wrong byte, which the hash finds.
        ScratchFolder to;
        Server server(hub);
        std::string part = bytes_of_file(hub / "me/one/model.safetensors").substr(0, 20000);
        to.put("model.safetensors.part", part);
        CHECK(server.download(weights + to.path + " model.safetensors").code == 0);
        CHECK(server.requests().find("model.safetensors bytes=20000-") != std::string::npos);
        CHECK(same_files(hub / "me/one", to.path, {"model.safetensors"}));
        std::filesystem::remove(to / "model.safetensors");
        part[19999] = char(part[19999] ^ 1);
        to.put("model.safetensors.part", part);
        Result r = server.download(weights + to.path + " model.safetensors");
        CHECK(r.code == 0);
        CHECK(r.output.find("model.safetensors: hash is wrong, once more from the start") !=
              std::string::npos);
        CHECK(same_files(hub / "me/one", to.path, {"model.safetensors"}));
        std::filesystem::remove(to / "model.safetensors");
        to.put("model.safetensors.part", std::string(30000, 'x'));  // longer than the file
        CHECK(server.download(weights + to.path + " model.safetensors").code == 0);
        CHECK(same_files(hub / "me/one", to.path, {"model.safetensors"}));
        CHECK_FALSE(std::filesystem::exists(to / "model.safetensors.part"));
    }
    {
        ScratchFolder to;
        Server server(hub, "norange");
        to.put("model.safetensors.part", "12345");
        Result r = server.download(weights + to.path + " model.safetensors");
        CAPTURE(r.output);
        CHECK(r.code == 0);
        CHECK(same_files(hub / "me/one", to.path, {"model.safetensors"}));
    }
    {
        ScratchFolder to;
        Server server(hub, "flip");
        Result r = server.download(weights + to.path + " model.safetensors");
        CHECK(r.code == 0);
        CHECK(same_files(hub / "me/one", to.path, {"model.safetensors"}));
    }
    {
        ScratchFolder to;
        Server server(hub, "lie");
        Result r = server.download(weights + to.path + " model.safetensors");
        CHECK(r.code == 1);
        CHECK(r.output.find("error: download: model.safetensors: hash is wrong twice (should be ") !=
              std::string::npos);
        CHECK_FALSE(std::filesystem::exists(to / "model.safetensors"));
    }
}

TEST_CASE("download: what cannot work is said with a hint") {
    if (!tools_present()) return;
    ScratchFolder hub, to;
    fill(hub);
    Server server(hub);
    struct Row {
        const char* arguments;
        int code;
        std::string error;
    };
    const std::string use =
        "hint: dev/download.sh model OWNER/NAME FOLDER, or dev/download.sh dataset OWNER/NAME FOLDER "
        "FILE...\n";
    for (const Row& row : std::vector<Row>{
             {"", 2, "error: download: three arguments are needed, 0 are given\n" + use},
             {"model nobody x", 2, "error: download: \"nobody\" is not OWNER/NAME\n" + use},
             {"thing me/one x", 2, "error: download: \"thing\" is neither model nor dataset\n" + use},
             {"model me/one x y", 2,
              "error: download: a model is downloaded whole; \"y\" is one argument too many\n" + use},
             {"dataset me/data x", 2, "error: download: which files of the data set?\n" + use},
             {"dataset me/data x ../y", 2, "error: download: \"../y\" is not a file name\n" + use},
             {"model me/no x", 1,
              "error: download: http://HUB/me/no: no config.json at revision main\n"
              "hint: check OWNER/NAME and REVISION\n"},
             {"model me/empty x", 1,
              "error: download: http://HUB/me/empty: no config.json at revision main\n"
              "hint: check OWNER/NAME and REVISION\n"},
             {"dataset me/data x no.jsonl", 1,
              "error: download: http://HUB/datasets/me/data: no no.jsonl at revision main\n"
              "hint: look at http://HUB/datasets/me/data/tree/main\n"},
             {"model gated/one x", 1,
              "error: download: http://HUB/gated/one/resolve/main/config.json: not allowed (401)\n"
              "hint: accept the model's terms on the hub and set HF_TOKEN; or is the name wrong?\n"},
             {"model broken/one x", 1,
              "error: download: http://HUB/broken/one/resolve/main/config.json: the hub answers 500\n"
              "hint: try again later, or set HF_ENDPOINT to a mirror\n"},
         }) {
        Result r = server.download(row.arguments);
        CHECK(r.code == row.code);
        CHECK(server.plain(r.output) == row.error);
    }
    Result r = server.download("model me/holes " + (to / "holes"));
    CHECK(r.code == 1);
    CHECK(server.plain(r.output).find(
              "error: download: http://HUB/me/holes: model-1.safetensors is missing, the index "
              "names it\n") != std::string::npos);
    r = run_command("HF_ENDPOINT=http://127.0.0.1:1 dev/download.sh model me/one " + (to / "x"));
    CHECK(r.code == 1);
    CHECK(r.output.find(
              "http://127.0.0.1:1/me/one/resolve/main/config.json: no answer\nhint: is HF_ENDPOINT") !=
          std::string::npos);
}
