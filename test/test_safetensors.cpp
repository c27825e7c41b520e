// Tensors in files: exact round trips, number formats against hand-made tables, and files that lie.
#include <sys/resource.h>
#include <sys/wait.h>

#include <csignal>
#include <limits>

#include "catch.h"
#include "safetensors.h"
#include "scratch.h"

namespace {

std::string with_length(const std::string& header, const std::string& data = "") {
    std::string length(8, '\0');
    for (int i = 0; i < 8; i++) length[size_t(i)] = char(uint64_t(header.size()) >> 8 * i);
    return length + header + data;
}

std::vector<float> ramp(size_t n, float scale = 0.37f) {
    std::vector<float> out(n);
    for (size_t i = 0; i < n; i++) out[i] = scale * (float(i) - float(n) / 2);
    return out;
}

}  // namespace

TEST_CASE("bf16 and f16 round to nearest even") {
    struct Row {
        float x;
        uint16_t bf16, f16;
    };
    const float tiny = 0x1p-24f;
    for (Row r :
         {Row{0, 0, 0}, Row{-0.0f, 0x8000, 0x8000}, Row{1, 0x3f80, 0x3c00}, Row{-2, 0xc000, 0xc000},
          Row{65504, 0x4780, 0x7bff}, Row{65519.99f, 0x4780, 0x7bff}, Row{65520, 0x4780, 0x7c00},
          Row{1e30f, 0x714a, 0x7c00}, Row{tiny, 0x3380, 0x0001}, Row{tiny / 2, 0x3300, 0x0000},
          Row{tiny * 1.5f, 0x33c0, 0x0002}, Row{0x1p-14f, 0x3880, 0x0400}, Row{1 + 0x1p-8f, 0x3f80, 0x3c04},
          Row{1 + 0x3p-8f, 0x3f82, 0x3c0c}, Row{1 + 0x1p-11f, 0x3f80, 0x3c00},
          Row{1 + 0x3p-11f, 0x3f80, 0x3c02}, Row{std::numeric_limits<float>::infinity(), 0x7f80, 0x7c00}}) {
        CAPTURE(r.x);
        CHECK(bf16_from_float(r.x) == r.bf16);
        CHECK(f16_from_float(r.x) == r.f16);
    }
    CHECK(std::isnan(float_from_bf16(bf16_from_float(NAN))));
    CHECK(std::isnan(float_from_f16(f16_from_float(NAN))));
    // Every 16-bit pattern survives the way to float and back, and equals what the format's definition says.
    for (uint32_t h = 0; h < 65536; h++) {
        float b = float_from_bf16(uint16_t(h)), f = float_from_f16(uint16_t(h));
        if (!std::isnan(b) && bf16_from_float(b) != h) FAIL("bf16 " << h);
        if (std::isnan(f)) continue;
        int exponent = int(h >> 10 & 31);
        double mantissa = (h & 1023) / 1024.0;
        double value = exponent == 31  ? std::numeric_limits<double>::infinity()
                       : exponent == 0 ? std::ldexp(mantissa, -14)
                                       : std::ldexp(1 + mantissa, exponent - 15);
        if (f16_from_float(f) != h || double(f) != (h >> 15 ? -value : value)) FAIL("f16 " << h);
    }
}

TEST_CASE("safetensors: what is written is read back, in every dtype, to float and double") {
    ScratchFolder dir;
    std::vector<float> a = ramp(600'000, 0.07f), b = ramp(7), none;
    for (Dtype dtype : {Dtype::F32, Dtype::BF16, Dtype::F16}) {
        SafetensorsWriter writer;
        writer.metadata["note"] = "two \"words\"";
        writer.add("odd", Dtype::BF16, {7}, b.data());  // the next tensor starts at an odd multiple of 2
        writer.add("a", dtype, {600, 1000}, a.data());
        writer.add("scalar", Dtype::F32, {}, b.data());
        writer.add("none", dtype, {0, 5}, none.data());
        writer.write(dir / "x.safetensors");
        std::string bytes = bytes_of_file(dir / "x.safetensors");
        writer.write(dir / "x.safetensors");
        CHECK(bytes == bytes_of_file(dir / "x.safetensors"));
        CHECK(uint8_t(bytes[0]) % 8 == 0);

        SafetensorsReader reader = SafetensorsReader::open(dir / "x.safetensors");
        CHECK(reader.metadata().at("format") == "pt");
        CHECK(reader.metadata().at("note") == "two \"words\"");
        REQUIRE(reader.tensors().size() == 4);
        const TensorInfo& t = reader.expect("a", {600, 1000});
        CHECK(t.dtype == dtype);
        CHECK(reader.find("b") == nullptr);
        std::vector<float> back(a.size());
        std::vector<double> wide(a.size());
        float scalar = 0;
        reader.read_all<float>(
            {{&t, back.data()}, {reader.find("scalar"), &scalar}, {reader.find("none"), nullptr}});
        reader.read(t, wide.data());
        CHECK(scalar == b[0]);
        for (size_t i = 0; i < a.size(); i++) {
            float expected = dtype == Dtype::F32    ? a[i]
                             : dtype == Dtype::BF16 ? float_from_bf16(bf16_from_float(a[i]))
                                                    : float_from_f16(f16_from_float(a[i]));
            if (back[i] != expected || wide[i] != double(expected)) FAIL("value " << i);
        }
    }
    CHECK_FALSE(std::filesystem::exists(dir / "x.safetensors.tmp"));
}

TEST_CASE("safetensors: shards equal the single file") {
    ScratchFolder one, many;
    std::vector<std::vector<float>> data;
    SafetensorsWriter writer;
    for (int i = 0; i < 7; i++) data.push_back(ramp(100, 0.1f * float(i + 1)));
    for (int i = 0; i < 7; i++)
        writer.add("t" + std::to_string(i), Dtype::F32, {10, 10}, data[size_t(i)].data());
    writer.write_model(one.path);
    writer.write_model(many.path, 1000);  // two tensors of 400 bytes a shard
    CHECK(std::filesystem::exists(one / "model.safetensors"));
    CHECK(std::filesystem::exists(many / "model-00004-of-00004.safetensors"));
    CHECK_FALSE(std::filesystem::exists(many / "model-00005-of-00004.safetensors"));
    SafetensorsReader single = SafetensorsReader::open(one.path), shards = SafetensorsReader::open(many.path);
    CHECK(SafetensorsReader::open(many / "model.safetensors.index.json").tensors().size() == 7);
    REQUIRE(shards.tensors().size() == 7);
    for (const TensorInfo& t : single.tensors()) {
        const TensorInfo& s = shards.expect(t.name, t.shape);
        CHECK(std::memcmp(single.data(t), shards.data(s), t.bytes) == 0);
    }
    // The other form is never left beside the new one.
    CHECK(many.plain(error_of([&] { writer.write_model(many.path); })) ==
          "DIR/model.safetensors.index.json: another model's weights are already in this folder");
    CHECK(one.plain(error_of([&] { writer.write_model(one.path, 1000); })) ==
          "DIR/model.safetensors: another model's weights are already in this folder");
}

TEST_CASE("safetensors: real folders survive load and save byte for byte") {
    for (const char* model : {"models/stories260K", "models/stories260K-qwen-bf16"}) {
        std::string folder = shared_path(model);
        if (folder.empty()) continue;
        ScratchFolder dir;
        SafetensorsReader reader = SafetensorsReader::open(folder);
        SafetensorsWriter writer;
        std::vector<std::vector<float>> data;
        for (const TensorInfo& t : reader.tensors()) {
            data.emplace_back(size_t(t.count()));
            reader.read(t, data.back().data());
            writer.add(t.name, t.dtype, t.shape, data.back().data());
        }
        writer.write_model(dir.path);
        SafetensorsReader again = SafetensorsReader::open(dir.path);
        REQUIRE(again.tensors().size() == reader.tensors().size());
        for (const TensorInfo& t : reader.tensors()) {
            const TensorInfo& s = again.expect(t.name, t.shape);
            CHECK((s.dtype == t.dtype && std::memcmp(reader.data(t), again.data(s), t.bytes) == 0));
        }
    }
}

TEST_CASE("safetensors: headers that lie are refused, by file and tensor") {
    ScratchFolder dir;
    const std::string four(4, '\0');
    std::string deep = "{\"t\":";
    for (int i = 0; i < 1000; i++) deep += "[";
    struct Row {
        std::string file, error;
    };
    auto tensor = [](const std::string& fields) { return "{\"t\":{" + fields + "}}"; };
    auto f32 = [&](const std::string& shape, const std::string& offsets) {
        return tensor("\"dtype\":\"F32\",\"shape\":" + shape + ",\"data_offsets\":" + offsets);
    };
    const std::string second =
        "{\"t\":{\"dtype\":\"F32\",\"shape\":[1],\"data_offsets\":[0,4]},"
        "\"u\":{\"dtype\":\"F32\",\"shape\":[1],\"data_offsets\":";
    for (const Row& row : std::vector<Row>{
             {"", "DIR/x: 0 bytes are too few for a safetensors file"},
             {"1234567", "DIR/x: 7 bytes are too few for a safetensors file"},
             {std::string(8, '\xff'), "DIR/x: header of 16777216.00 TiB is longer than 100 MB"},
             {with_length("{}").substr(0, 9),
              "DIR/x: header of 2 bytes runs past the end of the file (9 bytes)"},
             {with_length(""), "DIR/x: header: byte 0: unexpected end"},
             {with_length("{\"t\":"), "DIR/x: tensor \"t\": byte 5: unexpected end"},
             {with_length("{\"\xff\":1}"), "DIR/x: tensor \"\xff\": its name is not UTF-8"},
             {with_length("[]"), "DIR/x: header: byte 0: expected {"},
             {with_length("17"), "DIR/x: header: byte 0: expected {"},
             {with_length("{}{}"), "DIR/x: header: byte 2: text after the end"},
             {with_length(deep), "DIR/x: tensor \"t\": byte 5: expected {"},
             {with_length("{\"__metadata__\":{\"a\":1}}"),
              "DIR/x: tensor \"__metadata__\": byte 21: expected \""},
             {with_length("{\"__metadata__\":[]}"), "DIR/x: tensor \"__metadata__\": byte 16: expected {"},
             {with_length("{\"t\":5}"), "DIR/x: tensor \"t\": byte 5: expected {"},
             {with_length("{\"t\":{}}"), "DIR/x: tensor \"t\": no \"dtype\""},
             {with_length(tensor("\"dtype\":\"F32\"")), "DIR/x: tensor \"t\": no \"shape\""},
             {with_length(tensor("\"dtype\":\"F32\",\"shape\":[]")),
              "DIR/x: tensor \"t\": no \"data_offsets\""},
             {with_length(tensor("\"dtype\":\"F4\"")), "DIR/x: tensor \"t\": unknown dtype \"F4\""},
             {with_length(tensor("\"dtype\":4")), "DIR/x: tensor \"t\": byte 14: expected \""},
             {with_length(tensor("\"shape\":4")), "DIR/x: tensor \"t\": byte 14: expected ["},
             {with_length(tensor("\"shape\":{\"a\":1}")), "DIR/x: tensor \"t\": byte 14: expected ["},
             {with_length(tensor("\"shape\":[-1]")),
              "DIR/x: tensor \"t\": byte 15: expected a whole number >= 0"},
             {with_length(tensor("\"shape\":[1.5]")),
              "DIR/x: tensor \"t\": byte 16: expected a whole number >= 0"},
             {with_length(tensor("\"shape\":[1e3]")),
              "DIR/x: tensor \"t\": byte 16: expected a whole number >= 0"},
             {with_length(tensor("\"shape\":[18446744073709551615]")),
              "DIR/x: tensor \"t\": byte 33: expected a whole number >= 0"},
             {with_length(tensor("\"shape\":[[1]]")),
              "DIR/x: tensor \"t\": byte 15: expected a whole number >= 0"},
             {with_length(tensor("\"shape\":[1,1,1,1,1,1,1,1,1]")),
              "DIR/x: tensor \"t\": more than 8 dimensions"},
             {with_length(tensor("\"extra\":0")), "DIR/x: tensor \"t\": unknown key \"extra\""},
             {with_length(f32("[4294967296,4294967296]", "[0,0]")),
              "DIR/x: tensor \"t\": shape [4294967296, 4294967296] is too large"},
             {with_length(f32("[999999999999999999,2]", "[0,0]")),
              "DIR/x: tensor \"t\": shape [999999999999999999, 2] is too large"},
             {with_length(f32("[1]", "[0,8]"), four),
              "DIR/x: tensor \"t\": data_offsets [0, 8] lie outside the file's 4 bytes of data"},
             {with_length(f32("[1]", "[4,0]"), four),
              "DIR/x: tensor \"t\": data_offsets [4, 0] lie outside the file's 4 bytes of data"},
             {with_length(f32("[2]", "[0,4]"), four),
              "DIR/x: tensor \"t\": F32 of shape [2] needs 8 bytes, data_offsets give 4"},
             {with_length(f32("[1]", "[0,4,4]"), four), "DIR/x: tensor \"t\": byte 51: expected ]"},
             {with_length(f32("[1]", "[0]"), four), "DIR/x: tensor \"t\": byte 49: expected ,"},
             {with_length(second + "[0,4]}}", four),
              "DIR/x: tensor \"u\": its data overlaps the tensor before it"},
             {with_length(second + "[2,6]}}", four + four),
              "DIR/x: tensor \"u\": its data overlaps the tensor before it"},
             {with_length(second + "[5,9]}}", four + four + four),
              "DIR/x: tensor \"u\": its data leaves a gap before it"},
             {with_length(f32("[1]", "[0,4]"), four + "x"), "DIR/x: 1 bytes at the end belong to no tensor"},
             {with_length("{\"t\":{\"dtype\":\"F32\",\"shape\":[0],\"data_offsets\":[0,0]},\"t\":{}}"),
              "DIR/x: tensor \"t\" appears twice"},
             {with_length(tensor("\"dtype\":\"F32\",\"dtype\":\"F32\"")),
              "DIR/x: tensor \"t\": \"dtype\" appears twice"},
             {with_length("{\"a\\n\\u0000\":5}"), "DIR/x: tensor \"a\\x0a\\x00\": byte 13: expected {"},
         }) {
        dir.put("x", row.file);
        CHECK(dir.plain(error_of([&] { SafetensorsReader::open(dir / "x"); })) == row.error);
    }
    // Every truncation and every flipped byte of a good file is an error or a good file, never a crash.
    std::vector<float> data = ramp(12);
    SafetensorsWriter writer;
    writer.add("first", Dtype::F32, {3, 2}, data.data());
    writer.add("second", Dtype::BF16, {6}, data.data());
    writer.write(dir / "good");
    std::string good = bytes_of_file(dir / "good");
    std::map<std::string, std::string> metadata;
    auto parses = [&](const std::string& bytes) {
        return error_of([&] {
                   parse_safetensors_header(reinterpret_cast<const unsigned char*>(bytes.data()),
                                            bytes.size(), "x", metadata);
               }) == "no error";
    };
    CHECK(parses(good));
    for (size_t n = 0; n < good.size(); n++) CHECK_FALSE(parses(good.substr(0, n)));
    for (size_t i = 0; i < good.size(); i++)
        for (int bit = 0; bit < 8; bit++) {
            std::string bad = good;
            bad[i] = char(bad[i] ^ 1 << bit);
            parses(bad);
        }
}

TEST_CASE("safetensors: missing files, wrong folders, shard indexes that lie") {
    ScratchFolder dir;
    auto open_error = [&] { return dir.plain(error_of([&] { SafetensorsReader::open(dir.path); })); };
    CHECK(dir.plain(error_of([&] { SafetensorsReader::open(dir / "no"); })) ==
          "DIR/no: cannot open: No such file or directory");
    CHECK(error_of([&] { SafetensorsReader::open("/dev/null"); }) == "/dev/null: not a regular file");
    CHECK(open_error() == "DIR: no model.safetensors and no model.safetensors.index.json");
    dir.put("pytorch_model.bin", "");
    CHECK(hint_of([&] { SafetensorsReader::open(dir.path); }).find("pickle") != std::string::npos);

    float x = 1;
    SafetensorsWriter a, b;
    a.add("a", Dtype::F32, {1}, &x);
    b.add("b", Dtype::F32, {1}, &x);
    a.write(dir / "a.safetensors");
    b.write(dir / "b.safetensors");
    struct Row {
        const char *map, *error;
    };
    for (Row row :
         {Row{"{", "DIR/model.safetensors.index.json: byte 1: unexpected end"},
          Row{"{\"weight_map\":{}}", "DIR/model.safetensors.index.json: no \"weight_map\", or an empty one"},
          Row{"{\"weight_map\":[1]}", "DIR/model.safetensors.index.json: byte 14: expected {"},
          Row{"{\"weight_map\":{\"a\":1}}", "DIR/model.safetensors.index.json: byte 19: expected \""},
          Row{"{\"weight_map\":{\"a\":\"../a.safetensors\"}}",
              "DIR/model.safetensors.index.json: tensor \"a\": \"../a.safetensors\" is not a plain file "
              "name"},
          Row{"{\"weight_map\":{\"a\":\"/etc/passwd\"}}",
              "DIR/model.safetensors.index.json: tensor \"a\": \"/etc/passwd\" is not a plain file name"},
          Row{"{\"weight_map\":{\"a\":\"..\"}}",
              "DIR/model.safetensors.index.json: tensor \"a\": \"..\" is not a plain file name"},
          Row{"{\"weight_map\":{\"a\":\"\"}}",
              "DIR/model.safetensors.index.json: tensor \"a\": \"\" is not a plain file name"},
          Row{"{\"weight_map\":{\"a\":\"a\\u0000\"}}",
              "DIR/model.safetensors.index.json: tensor \"a\": \"a\\x00\" is not a plain file name"},
          Row{"{\"weight_map\":{\"a\":\"c.safetensors\"}}", "DIR/c.safetensors: missing; the index names it"},
          Row{"{\"weight_map\":{\"a\":\"a.safetensors\",\"b\":\"a.safetensors\"}}",
              "DIR/model.safetensors.index.json: tensor \"b\" should be in \"a.safetensors\" but is in no "
              "shard"},
          Row{"{\"weight_map\":{\"a\":\"b.safetensors\",\"b\":\"a.safetensors\"}}",
              "DIR/model.safetensors.index.json: tensor \"a\" should be in \"b.safetensors\" but is in "
              "DIR/a.safetensors"},
          Row{"{\"weight_map\":{\"a\":\"a.safetensors\",\"a\":\"a.safetensors\"}}",
              "DIR/model.safetensors.index.json: tensor \"a\" appears twice"}}) {
        dir.put("model.safetensors.index.json", row.map);
        CHECK(open_error() == row.error);
    }
    SafetensorsWriter both;
    both.add("b", Dtype::F32, {1}, &x);
    both.add("c", Dtype::F32, {1}, &x);
    both.write(dir / "c.safetensors");
    dir.put("model.safetensors.index.json", "{\"weight_map\":{\"b\":\"c.safetensors\"}}");
    CHECK(open_error() == "DIR/c.safetensors: tensor \"c\" is not named by DIR/model.safetensors.index.json");
    dir.put("model.safetensors.index.json",
            "{\"weight_map\":{\"b\":\"b.safetensors\",\"c\":\"c.safetensors\"}}");
    CHECK(open_error() == "DIR/c.safetensors: tensor \"b\" is also in DIR/b.safetensors");
}

TEST_CASE("safetensors: NaN and infinity neither enter nor leave") {
    ScratchFolder dir;
    const float inf = std::numeric_limits<float>::infinity();
    std::vector<float> good = ramp(300'000, 1e-3f);
    std::vector<float> out(good.size());
    for (Dtype dtype : {Dtype::F32, Dtype::BF16, Dtype::F16}) {
        SafetensorsWriter writer;
        writer.add("w", dtype, {300, 1000}, good.data());
        writer.write(dir / "x");
        std::string bytes = bytes_of_file(dir / "x");
        size_t start = bytes.size() - 300'000 * size_t(dtype_bytes(dtype));
        for (size_t at : {size_t(0), size_t(262'143), size_t(262'144), size_t(299'999)}) {
            std::string bad = bytes;
            std::string inf_bytes = dtype == Dtype::F32    ? std::string("\0\0\x80\xff", 4)
                                    : dtype == Dtype::BF16 ? std::string("\x80\x7f", 2)
                                                           : std::string("\0\x7c", 2);
            bad.replace(start + at * inf_bytes.size(), inf_bytes.size(), inf_bytes);
            SafetensorsReader reader = SafetensorsReader::open(dir.put("bad", bad));
            CHECK(dir.plain(error_of([&] { reader.read(*reader.find("w"), out.data()); })) ==
                  "DIR/bad: tensor \"w\": value " + std::to_string(at) + " of 300000 is infinite");
            inf_bytes[0] = '\x81';  // any mantissa bit makes it a NaN
            bad.replace(start + at * inf_bytes.size(), inf_bytes.size(), inf_bytes);
            SafetensorsReader again = SafetensorsReader::open(dir.put("bad", bad));
            CHECK(dir.plain(error_of([&] { again.read(*again.find("w"), out.data()); })) ==
                  "DIR/bad: tensor \"w\": value " + std::to_string(at) + " of 300000 is NaN");
        }
        // Writing: the file that was there stays, and no temporary file is left.
        for (float value : {inf, -inf, std::numeric_limits<float>::quiet_NaN()}) {
            std::vector<float> bad = good;
            bad[123'456] = value;
            SafetensorsWriter refused;
            refused.add("w", dtype, {300'000}, bad.data());
            CHECK(dir.plain(error_of([&] { refused.write(dir / "x"); })) ==
                  std::string("DIR/x: tensor \"w\": value 123456 of 300000 is ") +
                      (std::isnan(value) ? "NaN" : "infinite"));
            CHECK(bytes_of_file(dir / "x") == bytes);
            CHECK_FALSE(std::filesystem::exists(dir / "x.tmp"));
        }
    }
    std::vector<float> large = {1, 70000};
    SafetensorsWriter writer;
    writer.add("w", Dtype::F16, {2}, large.data());
    CHECK(dir.plain(error_of([&] { writer.write(dir / "y"); })) ==
          "DIR/y: tensor \"w\": value 1 of 2 is 70000, too large for F16");
    CHECK_FALSE(std::filesystem::exists(dir / "y"));
}

TEST_CASE("safetensors: other dtypes may lie in a file but are not read; shapes are compared") {
    ScratchFolder dir;
    dir.put("x", with_length("{\"step\":{\"dtype\":\"I64\",\"shape\":[1],\"data_offsets\":[0,8]}}",
                             std::string("\x11\0\0\0\0\0\0\0", 8)));
    SafetensorsReader reader = SafetensorsReader::open(dir / "x");
    float out[1];
    CHECK(dir.plain(error_of([&] { reader.read(*reader.find("step"), out); })) ==
          "DIR/x: tensor \"step\": dtype I64 is not read (only F32, BF16, F16)");
    CHECK(reader.data(*reader.find("step"))[0] == 0x11);
    CHECK(dir.plain(error_of([&] {
        reader.expect("step", {2, 1});
    })) == "DIR/x: tensor \"step\" has shape [1], config.json asks for [2, 1]");
    CHECK(dir.plain(error_of([&] { reader.expect("w", {1}); })) ==
          "DIR/x: no tensor \"w\" (1 others, for example \"step\")");
}

TEST_CASE("files: a full disk leaves what was there") {
    ScratchFolder dir;
    CHECK(dir.plain(error_of([&] { need_space(dir.path, uint64_t(1) << 60); }))
              .find("DIR: not enough disk space: 1048576.00 TiB needed, ") == 0);
    CHECK(error_of([&] { write_whole(dir / "no/file", "x"); }).find("cannot create: No such file") !=
          std::string::npos);
    write_whole(dir / "file", "old");
    // The limit on file sizes stands in for the disk; in a process of its own because it cannot be raised
    // again.
    pid_t child = fork();
    if (child == 0) {
        std::signal(SIGXFSZ, SIG_IGN);
        rlimit limit{1 << 16, 1 << 16};
        setrlimit(RLIMIT_FSIZE, &limit);
        std::string error = error_of([&] { write_whole(dir / "file", std::string(1 << 17, 'x')); });
        _exit(dir.plain(error) == "DIR/file: cannot write: File too large" ? 0 : 1);
    }
    int status = 1;
    REQUIRE(waitpid(child, &status, 0) == child);
    CHECK(status == 0);
    CHECK(bytes_of_file(dir / "file") == "old");
    CHECK_FALSE(std::filesystem::exists(dir / "file.tmp"));
}
