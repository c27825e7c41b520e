// safetensors.h: tensors in files: a mapped reader (one file, or shards with an index) and a writer.
//
// Format: u64 length of the header, a JSON header {"name": {"dtype", "shape", "data_offsets": [from, to]}},
// then the data, little endian, without gaps. https://github.com/huggingface/safetensors
//
// Nothing in a file is trusted: every name, dtype, shape and offset is checked when it is opened; every value
// is checked to be finite in the same pass that converts it. Errors name file and tensor.
// Numbers are BF16, F16 or F32 in files. The other dtypes of the format may lie in a file but are not read.
#pragma once
#include <algorithm>
#include <cmath>
#include <map>
#include <nlohmann/json.hpp>
#include <set>
#include <string>
#include <unordered_map>
#include <unordered_set>
#include <vector>

#include "base.h"
#include "dtype.h"
#include "files.h"
#include "json_lines.h"
#include "json_scan.h"

// ---------------------------------------------------------------------------------------------------------
// The header

struct TensorInfo {
    std::string name;
    Dtype dtype = Dtype::F32;
    std::vector<int64_t> shape;
    uint64_t offset = 0, bytes = 0;  // from the start of its file
    int file = 0;                    // which of the reader's files
    int64_t count() const { return int64_t(bytes) / dtype_bytes(dtype); }
};

inline std::string shape_text(const std::vector<int64_t>& shape) {
    std::string out = "[";
    for (size_t i = 0; i < shape.size(); i++) out += (i ? ", " : "") + std::to_string(shape[i]);
    return out + "]";
}

// Reads and checks the header of a file of `size` bytes. Result in order of offset; `metadata` is added to.
inline std::vector<TensorInfo> parse_safetensors_header(const unsigned char* data, uint64_t size,
                                                        const std::string& path,
                                                        std::map<std::string, std::string>& metadata) {
    const char* again = "the file is damaged, cut off, or not a safetensors file: get it again";
    const uint64_t longest = 100'000'000;  // as in the reference implementation
    if (size < 8)
        fail(path + ": " + std::to_string(size) + " bytes are too few for a safetensors file", again);
    uint64_t header = 0;
    for (int i = 7; i >= 0; i--) header = header << 8 | data[i];
    if (header > longest)
        fail(path + ": header of " + bytes_text(double(header)) + " is longer than 100 MB", again);
    if (header > size - 8)
        fail(path + ": header of " + std::to_string(header) + " bytes runs past the end of the file (" +
                 std::to_string(size) + " bytes)",
             again);

    const uint64_t data_size = size - 8 - header;
    std::vector<TensorInfo> tensors;
    std::unordered_set<std::string> names;
    JsonScan scan({reinterpret_cast<const char*>(data) + 8, size_t(header)}, path + ": header");
    std::string key, word;
    for (bool more = scan.open('{'); more; more = scan.more('}')) {
        TensorInfo t;
        scan.where(path + ": header");
        scan.string(t.name);
        const std::string where = path + ": tensor " + quoted(t.name);
        scan.where(where);
        if (!names.insert(t.name).second) fail(where + " appears twice", again);
        if (!utf8_valid(t.name)) fail(where + ": its name is not UTF-8", again);
        scan.expect(':');
        if (t.name == "__metadata__") {
            for (bool pair = scan.open('{'); pair; pair = scan.more('}')) {
                scan.string(key);
                scan.expect(':');
                scan.string(metadata[key]);
            }
            continue;
        }
        uint64_t from = 0, to = 0, bytes = 0;
        std::set<std::string> keys;
        for (bool field = scan.open('{'); field; field = scan.more('}')) {
            scan.string(key);
            scan.expect(':');
            if (!keys.insert(key).second) fail(where + ": " + quoted(key) + " appears twice", again);
            if (key == "dtype") {
                scan.string(word);
                auto row = std::find_if(std::begin(dtype_table), std::end(dtype_table),
                                        [&](const DtypeRow& r) { return word == r.name; });
                if (row == std::end(dtype_table)) fail(where + ": unknown dtype " + quoted(word), again);
                t.dtype = row->dtype;
            } else if (key == "shape") {
                for (bool item = scan.open('['); item; item = scan.more(']')) {
                    t.shape.push_back(scan.integer());
                    if (t.shape.size() > 8) fail(where + ": more than 8 dimensions", again);
                }
            } else if (key == "data_offsets") {
                scan.expect('[');
                from = uint64_t(scan.integer());
                scan.expect(',');
                to = uint64_t(scan.integer());
                scan.expect(']');
            } else {
                fail(where + ": unknown key " + quoted(key), again);
            }
        }
        for (const char* needed : {"dtype", "shape", "data_offsets"})
            if (!keys.count(needed)) fail(where + ": no " + quoted(needed), again);
        bytes = uint64_t(dtype_bytes(t.dtype));
        for (int64_t n : t.shape)
            if (__builtin_mul_overflow(bytes, uint64_t(n), &bytes) || bytes >> 62)
                fail(where + ": shape " + shape_text(t.shape) + " is too large", again);
        if (from > to || to > data_size)
            fail(where + ": data_offsets [" + std::to_string(from) + ", " + std::to_string(to) +
                     "] lie outside the file's " + std::to_string(data_size) + " bytes of data",
                 again);
        if (to - from != bytes)
            fail(where + ": " + dtype_name(t.dtype) + " of shape " + shape_text(t.shape) + " needs " +
                     std::to_string(bytes) + " bytes, data_offsets give " + std::to_string(to - from),
                 again);
        t.offset = 8 + header + from;
        t.bytes = bytes;
        tensors.push_back(std::move(t));
    }
    scan.where(path + ": header");
    scan.finish();

    std::stable_sort(tensors.begin(), tensors.end(), [](const TensorInfo& a, const TensorInfo& b) {
        return a.offset != b.offset ? a.offset < b.offset : a.bytes < b.bytes;
    });
    uint64_t at = 8 + header;
    for (const TensorInfo& t : tensors) {
        if (t.offset != at)
            fail(path + ": tensor " + quoted(t.name) + ": its data " +
                     (t.offset < at ? "overlaps the tensor before it" : "leaves a gap before it"),
                 again);
        at += t.bytes;
    }
    if (at != size)
        fail(path + ": " + std::to_string(size - at) + " bytes at the end belong to no tensor", again);
    return tensors;
}

// ---------------------------------------------------------------------------------------------------------
// Reader

class SafetensorsReader {
  public:
    // `path`: a .safetensors file, a model.safetensors.index.json, or a folder with either.
    // Errors: everything parse_safetensors_header checks; an index that names missing files or files outside
    // its folder; a tensor in two shards, in none, or not in the shard that the index says.
    static SafetensorsReader open(const std::string& path) {
        namespace fs = std::filesystem;
        SafetensorsReader reader;
        std::error_code ignored;
        if (!fs::is_directory(path, ignored)) {
            if (path.size() > 11 && path.compare(path.size() - 11, 11, ".index.json") == 0)
                reader.add_shards(path);
            else
                reader.add_file(path);
        } else if (fs::exists(path + "/model.safetensors", ignored)) {
            reader.add_file(path + "/model.safetensors");
        } else if (fs::exists(path + "/model.safetensors.index.json", ignored)) {
            reader.add_shards(path + "/model.safetensors.index.json");
        } else {
            bool pickled = fs::exists(path + "/pytorch_model.bin", ignored) ||
                           fs::exists(path + "/pytorch_model.bin.index.json", ignored);
            fail(path + ": no model.safetensors and no model.safetensors.index.json",
                 pickled ? "pytorch_model.bin is a pickle, which is not read: save it again with "
                           "safe_serialization=True"
                         : "is this a model folder, and is its download complete?");
        }
        return reader;
    }

    // In order of file, then of offset.
    const std::vector<TensorInfo>& tensors() const { return tensors_; }
    const std::map<std::string, std::string>& metadata() const { return metadata_; }
    const std::string& path() const { return path_; }
    const std::string& file_of(const TensorInfo& t) const { return files_[size_t(t.file)].path(); }

    const TensorInfo* find(const std::string& name) const {
        auto it = by_name_.find(name);
        return it == by_name_.end() ? nullptr : &tensors_[it->second];
    }

    // Errors: there is no such tensor, or it has another shape.
    const TensorInfo& expect(const std::string& name, const std::vector<int64_t>& shape) const {
        const TensorInfo* t = find(name);
        if (!t)
            fail(path_ + ": no tensor " + quoted(name) + " (" + std::to_string(tensors_.size()) +
                     " others, for example " +
                     (tensors_.empty() ? "none" : quoted(tensors_[tensors_.size() / 2].name)) + ")",
                 "do config.json and the weights belong together?");
        if (t->shape != shape)
            fail(file_of(*t) + ": tensor " + quoted(name) + " has shape " + shape_text(t->shape) +
                     ", config.json asks for " + shape_text(shape),
                 "do config.json and the weights belong together?");
        return *t;
    }

    // The bytes as they lie in the file (little endian, any alignment).
    const unsigned char* data(const TensorInfo& t) const { return files_[size_t(t.file)].data() + t.offset; }

    template <class T>
    struct Target {
        const TensorInfo* tensor;
        T* out;  // tensor->count() numbers
    };

    // Converts to T (float or double), all threads. Touches each byte of the file once.
    // Errors: a dtype that is not F32, BF16 or F16; a NaN or an infinity.
    template <class T>
    void read(const TensorInfo& t, T* out) const {
        read_all<T>({{&t, out}});
    }

    template <class T>
    void read_all(const std::vector<Target<T>>& targets) const {
        struct Piece {
            const Target<T>* target;
            int64_t from, count;
        };
        const int64_t piece = 1 << 18;  // numbers: large against the cost of handing it to a thread
        std::vector<Piece> pieces;
        for (const Target<T>& target : targets) {
            const TensorInfo& t = *target.tensor;
            if (t.dtype != Dtype::F32 && t.dtype != Dtype::BF16 && t.dtype != Dtype::F16)
                fail(file_of(t) + ": tensor " + quoted(t.name) + ": dtype " + dtype_name(t.dtype) +
                         " is not read (only F32, BF16, F16)",
                     "save the model in bfloat16; quantized models are not supported");
            for (int64_t from = 0; from < t.count(); from += piece)
                pieces.push_back({&target, from, std::min(piece, t.count() - from)});
        }
        int64_t bad = int64_t(pieces.size());
#pragma omp parallel for schedule(dynamic, 1) reduction(min : bad)
        for (int64_t i = 0; i < int64_t(pieces.size()); i++) {
            const TensorInfo& t = *pieces[i].target->tensor;
            const unsigned char* from = data(t) + pieces[i].from * dtype_bytes(t.dtype);
            T* out = pieces[i].target->out + pieces[i].from;
            const int64_t block = 2048, width = dtype_bytes(t.dtype);
            alignas(64) T numbers[block];
            bool finite = true;
            // The first block ends where `out` meets a line of the cache, so that whole lines follow.
            int64_t n = (64 - int64_t(uintptr_t(out) % 64)) / int64_t(sizeof(T));
            for (int64_t at = 0; at < pieces[i].count; at += n, n = block) {
                n = std::min(n, pieces[i].count - at);
                // The next block comes in while this one goes out.
                for (int64_t b = 0; b < block * width; b += 64)
                    __builtin_prefetch(from + (at + n) * width + b);
                finite &= convert_numbers(t.dtype, from + at * width, numbers, n);
                store_past_caches(out + at, numbers, n);
            }
            finish_stores();
            if (!finite) bad = std::min(bad, i);
        }
        if (bad == int64_t(pieces.size())) return;
        const Piece& p = pieces[size_t(bad)];
        const TensorInfo& t = *p.target->tensor;
        int64_t at = p.from;
        while (std::isfinite(p.target->out[at])) at++;
        fail(file_of(t) + ": tensor " + quoted(t.name) + ": value " + std::to_string(at) + " of " +
                 std::to_string(t.count()) + " is " + (std::isnan(p.target->out[at]) ? "NaN" : "infinite"),
             "the weights are broken: get the file again, or go back to an earlier checkpoint");
    }

  private:
    SafetensorsReader() = default;

    void add_file(const std::string& path) {
        if (path_.empty()) path_ = path;
        files_.emplace_back(path);
        const MappedFile& file = files_.back();
        for (TensorInfo& t : parse_safetensors_header(file.data(), file.size(), path, metadata_)) {
            t.file = int(files_.size()) - 1;
            auto [it, fresh] = by_name_.emplace(t.name, tensors_.size());
            if (!fresh)
                fail(path + ": tensor " + quoted(t.name) + " is also in " + file_of(tensors_[it->second]),
                     "two versions of the model are mixed in this folder: get it again");
            tensors_.push_back(std::move(t));
        }
    }

    void add_shards(const std::string& index) {
        path_ = index;
        std::map<std::string, std::string> shard_of;  // tensor -> file name
        std::map<std::string, int> number_of;         // file name -> which of files_
        const std::string text = read_file(index, 100'000'000);
        JsonScan scan(text, index);
        std::string key, name, file;
        for (bool more = scan.open('{'); more; more = scan.more('}')) {
            scan.string(key);
            scan.expect(':');
            if (key != "weight_map") {
                scan.value();
                continue;
            }
            for (bool pair = scan.open('{'); pair; pair = scan.more('}')) {
                scan.string(name);
                scan.expect(':');
                scan.string(file);
                const std::string where = index + ": tensor " + quoted(name);
                // A name with a slash could reach any file of this machine.
                if (file.empty() || file[0] == '.' ||
                    file.find_first_of(std::string("/\\\0", 3)) != std::string::npos)
                    fail(where + ": " + quoted(file) + " is not a plain file name",
                         "shards lie beside the index; get the file again");
                if (!shard_of.emplace(name, file).second)
                    fail(where + " appears twice", "get the file again");
                number_of[file] = 0;
            }
        }
        scan.finish();
        if (shard_of.empty()) fail(index + ": no \"weight_map\", or an empty one", "get the file again");
        for (auto& [file, number] : number_of) {
            std::string path = parent_folder(index) + "/" + file;
            if (::access(path.c_str(), F_OK) != 0)
                fail(path + ": missing; the index names it", "the download is not complete: get the file");
            number = int(files_.size());
            add_file(path);
        }
        for (const auto& [name, file] : shard_of) {
            const TensorInfo* t = find(name);
            if (!t || t->file != number_of[file])
                fail(index + ": tensor " + quoted(name) + " should be in " + quoted(file) + " but is " +
                         (t ? "in " + file_of(*t) : "in no shard"),
                     "index and shards are of different versions: get both again");
        }
        for (const TensorInfo& t : tensors_)
            if (!shard_of.count(t.name))
                fail(file_of(t) + ": tensor " + quoted(t.name) + " is not named by " + index,
                     "index and shards are of different versions: get both again");
    }

    std::string path_;
    std::vector<MappedFile> files_;
    std::vector<TensorInfo> tensors_;
    std::unordered_map<std::string, size_t> by_name_;
    std::map<std::string, std::string> metadata_;
};

// ---------------------------------------------------------------------------------------------------------
// Writer

// Equal tensors give equal bytes. The arrays handed to add() are read by write() and must live until then.
class SafetensorsWriter {
  public:
    // "format": "pt" is what transformers asks for.
    std::map<std::string, std::string> metadata = {{"format", "pt"}};

    // `dtype`: F32, BF16 or F16, converted to from `data` (product of shape), round to nearest even.
    void add(const std::string& name, Dtype dtype, const std::vector<int64_t>& shape, const float* data) {
        if (dtype != Dtype::F32 && dtype != Dtype::BF16 && dtype != Dtype::F16)
            throw std::logic_error(name + ": SafetensorsWriter writes F32, BF16 and F16");
        Entry entry{name, dtype, shape, data, 1};
        for (int64_t n : shape) entry.count *= n;
        if (!names_.insert(name).second) throw std::logic_error(name + ": added twice");
        entries_.push_back(entry);
    }

    uint64_t bytes() const { return bytes_of(0, entries_.size()); }

    // One file. Errors: not enough space (checked before writing); a value that is NaN or infinite, or is so
    // in the file's dtype. On any error the file that was there before is unchanged.
    void write(const std::string& path) const {
        need_space(parent_folder(path), bytes() + header_of(0, entries_.size()).size());
        write_part(path, 0, entries_.size());
    }

    // model.safetensors, or above `shard_bytes` model-00001-of-0000N.safetensors and their index.
    void write_model(const std::string& folder, uint64_t shard_bytes = 5'000'000'000) const {
        std::vector<size_t> starts = {0};
        for (size_t i = 0; i < entries_.size(); i++)
            if (i > starts.back() && bytes_of(starts.back(), i + 1) > shard_bytes) starts.push_back(i);
        bool sharded = starts.size() > 1;
        // The other form left over from another model would be read instead of, or beside, this one.
        std::string other = folder + (sharded ? "/model.safetensors" : "/model.safetensors.index.json");
        if (::access(other.c_str(), F_OK) == 0)
            fail(other + ": another model's weights are already in this folder", "choose an empty folder");
        if (!sharded) return write(folder + "/model.safetensors");
        need_space(folder, bytes());
        Json index = {{"metadata", {{"total_size", bytes()}}}};
        Json map = Json::object();
        std::map<std::string, std::string> shard_of;
        for (size_t s = 0; s < starts.size(); s++) {
            size_t end = s + 1 < starts.size() ? starts[s + 1] : entries_.size();
            std::string file = format("model-%05zu-of-%05zu.safetensors", s + 1, starts.size());
            write_part(folder + "/" + file, starts[s], end);
            for (size_t i = starts[s]; i < end; i++) shard_of[entries_[i].name] = file;
        }
        index["weight_map"] = shard_of;
        write_whole(folder + "/model.safetensors.index.json", index.dump(2) + "\n");
    }

  private:
    struct Entry {
        std::string name;
        Dtype dtype;
        std::vector<int64_t> shape;
        const float* data;
        int64_t count;
        uint64_t bytes() const { return uint64_t(count) * uint64_t(dtype_bytes(dtype)); }
    };

    uint64_t bytes_of(size_t from, size_t to) const {
        uint64_t sum = 0;
        for (size_t i = from; i < to; i++) sum += entries_[i].bytes();
        return sum;
    }

    // Length and text, padded with blanks so that the data starts at a multiple of 8.
    std::string header_of(size_t from, size_t to) const {
        std::string text = "{\"__metadata__\":" + Json(metadata).dump();
        uint64_t at = 0;
        for (size_t i = from; i < to; i++) {
            const Entry& e = entries_[i];
            text += "," + Json(e.name).dump() + ":{\"dtype\":\"" + dtype_name(e.dtype) +
                    "\",\"shape\":" + Json(e.shape).dump() + ",\"data_offsets\":[" + std::to_string(at) +
                    "," + std::to_string(at + e.bytes()) + "]}";
            at += e.bytes();
        }
        text += "}";
        text.resize((text.size() + 7) / 8 * 8, ' ');
        std::string length(8, '\0');
        for (int i = 0; i < 8; i++) length[size_t(i)] = char(text.size() >> 8 * i);
        return length + text;
    }

    void write_part(const std::string& path, size_t from, size_t to) const {
        FileWriter out(path);
        out.write(header_of(from, to));
        std::vector<unsigned char> block;
        for (size_t i = from; i < to; i++) {
            const Entry& e = entries_[i];
            const int64_t piece = 1 << 20;
            for (int64_t at = 0; at < e.count; at += piece) {
                int64_t n = std::min(piece, e.count - at);
                block.resize(size_t(n * dtype_bytes(e.dtype)));
                if (!narrow_numbers(e.dtype, e.data + at, block.data(), n)) {
                    while (std::isfinite(e.data[at]) && fits(e.dtype, e.data[at])) at++;
                    bool finite = std::isfinite(e.data[at]);
                    fail(path + ": tensor " + quoted(e.name) + ": value " + std::to_string(at) + " of " +
                             std::to_string(e.count) + " is " +
                             (finite ? format("%g, too large for %s", double(e.data[at]), dtype_name(e.dtype))
                              : std::isnan(e.data[at]) ? "NaN"
                                                       : "infinite"),
                         "nothing was written over the file that was there before; go back to an earlier "
                         "checkpoint");
                }
                out.write(block.data(), block.size());
            }
        }
        out.commit();
    }

    static bool fits(Dtype dtype, float x) {
        if (dtype == Dtype::BF16) return std::isfinite(float_from_bf16(bf16_from_float(x)));
        if (dtype == Dtype::F16) return std::isfinite(float_from_f16(f16_from_float(x)));
        return std::isfinite(x);
    }

    // from (n) -> to (n numbers of dtype). Returns false if one of them is NaN or infinite there.
    static bool narrow_numbers(Dtype dtype, const float* from, unsigned char* to, int64_t n) {
        if (dtype == Dtype::F32) {
            uint32_t worst = 0;
            for (int64_t i = 0; i < n; i++) worst = std::max(worst, float_bits(from[i]) & 0x7fffffff);
            std::memcpy(to, from, size_t(n) * 4);
            return worst < 0x7f800000;
        }
        bool half = dtype == Dtype::F16;
        uint32_t worst = 0;
        for (int64_t i = 0; i < n; i++) {
            uint16_t h = half ? f16_from_float(from[i]) : bf16_from_float(from[i]);
            worst = std::max(worst, uint32_t(h & 0x7fff));
            std::memcpy(to + 2 * i, &h, 2);
        }
        return worst < (half ? 0x7c00 : 0x7f80);
    }

    std::vector<Entry> entries_;
    std::unordered_set<std::string> names_;
};
