// bpe.h: the byte-pair model itself: tokens as byte strings, merges, and the merging of one piece of text.
//
// A piece starts as one token per byte; then, again and again, the neighbours whose merge stands first in the
// list of merges are joined, leftmost first. Short pieces look for that pair by scanning, long ones with a
// heap, so the time stays near-linear for a piece of any length.
#pragma once
#include <algorithm>
#include <cstdint>
#include <cstring>
#include <queue>
#include <string>
#include <string_view>
#include <unordered_map>
#include <vector>

#include "base.h"
#include "unicode.h"

// ---- the byte alphabet ------------------------------------------------------------------------------------
// tokenizer.json spells every byte as one printable character (GPT-2's choice): printable bytes as
// themselves, the other 68 as U+0100 and up.

struct ByteAlphabet {
    uint16_t character[256];  // by byte
    int16_t byte[324];        // by character; -1: stands for no byte
    ByteAlphabet() {
        std::fill_n(byte, 324, int16_t(-1));
        int next = 256;
        for (int b = 0; b < 256; b++) {
            bool printable = (b >= '!' && b <= '~') || (b >= 0xa1 && b <= 0xac) || b >= 0xae;
            character[b] = uint16_t(printable ? b : next++);
            byte[character[b]] = int16_t(b);
        }
    }
};

inline const ByteAlphabet& byte_alphabet() {
    static const ByteAlphabet shared;
    return shared;
}

// The bytes that `text` spells, appended to `out`; false (and `out` as it was) where a character spells none.
inline bool spelled_bytes(std::string_view text, std::string& out) {
    const ByteAlphabet& alphabet = byte_alphabet();
    size_t before = out.size();
    for (const char *p = text.data(), *end = p + text.size(); p < end;) {
        uint32_t c = utf8_take(p);
        if (c >= 324 || alphabet.byte[c] < 0) {
            out.resize(before);
            return false;
        }
        out += char(alphabet.byte[c]);
    }
    return true;
}

inline std::string spelling(std::string_view bytes) {
    std::string out;
    for (char b : bytes) utf8_append(out, byte_alphabet().character[uint8_t(b)]);
    return out;
}

// ---- hashing ----------------------------------------------------------------------------------------------

// Eight bytes a step, two multiplications; the tables below compare keys in full, so quality only costs time.
inline uint64_t hash_bytes(std::string_view bytes) {
    uint64_t h = bytes.size() * 0x9e3779b97f4a7c15;
    const char* p = bytes.data();
    size_t left = bytes.size();
    while (left > 0) {
        uint64_t x = 0;
        size_t n = std::min<size_t>(left, 8);
        std::memcpy(&x, p, n);
        h = (h ^ x) * 0xff51afd7ed558ccd;
        h ^= h >> 32;
        p += n;
        left -= n;
    }
    return h * 0xc4ceb9fe1a85ec53;
}

// ---- the model --------------------------------------------------------------------------------------------

constexpr int max_token_id = (1 << 21) - 2;  // so that a merge fits into 64 bits: left, right, rank

class BpeModel {
  public:
    // -- building: add() every token, merge() in the order of the ranks, seal() --

    // `token` as tokenizer.json spells it. The caller has checked the id's range and that it is new.
    // Returns false where the bytes are already another token's.
    bool add(int id, std::string_view token) {
        make_room(id);
        scratch_.clear();
        if (!spelled_bytes(token, scratch_)) {
            // No text can become such a token ("<0x20>" can); only its name and its own bytes are kept.
            if (!unspelled_.emplace(std::string(token), id).second) return false;
            scratch_ = token;
            place(id, scratch_);
            unlisted_.push_back(id);
            return true;
        }
        if (used_ * 2 >= slots_.size()) grow();
        uint64_t hash = hash_bytes(scratch_);
        size_t at = find_slot(scratch_, hash);
        if (slots_[at].id >= 0) return false;
        place(id, scratch_);
        slots_[at] = {uint32_t(hash), id};
        used_++;
        return true;
    }

    void reserve(size_t tokens) {
        while (slots_.size() < tokens * 2) grow();
    }

    // A token that is only found by other means (an added token outside the vocabulary).
    void add_unlisted(int id, std::string_view token) {
        make_room(id);
        scratch_.clear();
        if (!spelled_bytes(token, scratch_)) scratch_ = token;
        place(id, scratch_);
        unlisted_.push_back(id);
    }

    // The next merge. Of a repeated pair the later one counts, as in the reference.
    void merge(int left, int right, int result) {
        pairs_.push_back(pair_key(left, right));
        merged_.push_back(result);
    }

    // Builds the tables, once all tokens and merges are there.
    void seal() {
        for (int b = 0; b < 256; b++) {
            char byte = char(b);
            byte_id_[b] = find({&byte, 1});
        }
        size_t size = 16;
        while (size * 2 < merged_.size() * 3) size *= 2;
        std::vector<uint64_t> keys(size, no_pair);
        keys.swap(pairs_);
        pair_shift_ = 64 - __builtin_ctzll(size);
        for (size_t rank = 0; rank < merged_.size(); rank++)
            pairs_[pair_slot(keys[rank])] = keys[rank] << 22 | rank;
    }

    // -- reading --

    int id_end() const { return int(place_.size()); }  // one more than the largest id
    bool has(int id) const { return id >= 0 && id < id_end() && place_[size_t(id)].length >= 0; }
    std::string_view bytes(int id) const {
        return {arena_.data() + place_[size_t(id)].offset, size_t(place_[size_t(id)].length)};
    }

    // The token that stands for exactly these bytes of text, or -1. A good guess saves the search.
    int find(std::string_view bytes, int guess = -1) const {
        if (has(guess) && unlisted_.empty() && this->bytes(guess) == bytes) return guess;
        return slots_.empty() ? -1 : slots_[find_slot(bytes, hash_bytes(bytes))].id;
    }

    // The token spelled so in tokenizer.json, or -1.
    int find_spelled(std::string_view token) const {
        std::string bytes;
        if (spelled_bytes(token, bytes)) return find(bytes);
        auto it = unspelled_.find(std::string(token));
        return it == unspelled_.end() ? -1 : it->second;
    }

    size_t merge_count() const { return merged_.size(); }

    int unknown_id = -1;  // stands for a byte that is no token; -1: such bytes vanish, as in the reference
    bool fuse_unknown = false;  // one unknown_id for a run of them
    bool whole_first = false;   // "ignore_merges": a piece that is a token stays whole, merges or not

    // Appends the ids of one piece.
    void encode(std::string_view piece, std::vector<int>& out) const {
        if (whole_first)
            if (int id = find(piece); id >= 0) return out.push_back(id);
        static thread_local Work work;
        work.id.clear();
        bool unknown_before = false;
        for (char b : piece) {
            int id = byte_id_[uint8_t(b)];
            if (id < 0 && (unknown_id < 0 || (fuse_unknown && unknown_before))) continue;
            unknown_before = id < 0;
            work.id.push_back(id < 0 ? unknown_id : id);
        }
        if (work.id.size() <= scan_limit)
            merge_by_scanning(work, out);
        else
            merge_by_heap(work, out);
    }

  private:
    static constexpr uint64_t no_pair = ~uint64_t(0);
    static constexpr uint32_t no_rank = (1 << 22) - 1;
    static constexpr size_t scan_limit = 40;  // measured: below it the quadratic scan wins

    struct Place {
        uint32_t offset;
        int length;  // -1: no such token
    };
    struct Slot {
        uint32_t hash;
        int id;
    };
    struct Work {
        std::vector<int> id;
        std::vector<uint32_t> rank;  // of the pair (i, next of i)
        std::vector<int> next, previous;
        std::vector<uint64_t> heap;
    };

    void make_room(int id) {
        if (id >= id_end()) place_.resize(size_t(id) + 1, {0, -1});
    }
    void place(int id, std::string_view bytes) {
        place_[size_t(id)] = {uint32_t(arena_.size()), int(bytes.size())};
        arena_ += bytes;
    }

    size_t find_slot(std::string_view bytes, uint64_t hash) const {
        size_t mask = slots_.size() - 1, at = (hash >> 32) & mask;
        while (slots_[at].id >= 0 &&
               !(slots_[at].hash == uint32_t(hash) && this->bytes(slots_[at].id) == bytes))
            at = (at + 1) & mask;
        return at;
    }

    void grow() {
        slots_.assign(std::max<size_t>(64, slots_.size() * 2), {0, -1});
        std::vector<char> skip(place_.size(), 0);
        for (int id : unlisted_) skip[id] = 1;
        for (int id = 0; id < id_end(); id++) {
            if (!has(id) || skip[id]) continue;
            uint64_t hash = hash_bytes(bytes(id));
            slots_[find_slot(bytes(id), hash)] = {uint32_t(hash), id};
        }
    }

    static uint64_t pair_key(int left, int right) { return uint64_t(left) << 21 | uint64_t(right); }
    size_t pair_slot(uint64_t key) const {
        size_t mask = pairs_.size() - 1, at = (key * 0x9e3779b97f4a7c15) >> pair_shift_;
        while (pairs_[at] != no_pair && pairs_[at] >> 22 != key) at = (at + 1) & mask;
        return at;
    }
    uint32_t rank_of(int left, int right) const {
        return uint32_t(pairs_[pair_slot(pair_key(left, right))] & no_rank);  // no_pair gives no_rank
    }

    void merge_by_scanning(Work& work, std::vector<int>& out) const {
        int n = int(work.id.size());
        int* id = work.id.data();
        uint32_t rank[scan_limit];
        for (int i = 0; i + 1 < n; i++) rank[i] = rank_of(id[i], id[i + 1]);
        while (n > 1) {
            int best = 0;
            for (int i = 1; i + 1 < n; i++)
                if (rank[i] < rank[best]) best = i;
            if (rank[best] == no_rank) break;
            id[best] = merged_[rank[best]];
            std::memmove(id + best + 1, id + best + 2, sizeof *id * size_t(n - best - 2));
            std::memmove(rank + best, rank + best + 1, sizeof *rank * size_t(n - best - 2));
            n--;
            if (best > 0) rank[best - 1] = rank_of(id[best - 1], id[best]);
            if (best + 1 < n) rank[best] = rank_of(id[best], id[best + 1]);
        }
        out.insert(out.end(), id, id + n);
    }

    void merge_by_heap(Work& work, std::vector<int>& out) const {
        int n = int(work.id.size());
        int* id = work.id.data();
        work.rank.assign(size_t(n), no_rank);
        work.next.resize(size_t(n));
        work.previous.resize(size_t(n));
        work.heap.clear();
        uint32_t* rank = work.rank.data();
        int *next = work.next.data(), *previous = work.previous.data();
        // Smallest rank first, then leftmost; an entry is stale when the pair there has another rank by now.
        auto set_rank = [&](int i, int right) {
            rank[i] = rank_of(id[i], id[right]);
            if (rank[i] == no_rank) return false;
            work.heap.push_back(uint64_t(rank[i]) << 32 | uint32_t(i));
            return true;
        };
        auto push = [&](int i, int right) {
            if (set_rank(i, right)) std::push_heap(work.heap.begin(), work.heap.end(), std::greater<>());
        };
        for (int i = 0; i < n; i++) next[i] = i + 1, previous[i] = i - 1;
        for (int i = 0; i + 1 < n; i++) set_rank(i, i + 1);
        std::make_heap(work.heap.begin(), work.heap.end(), std::greater<>());
        while (!work.heap.empty()) {
            std::pop_heap(work.heap.begin(), work.heap.end(), std::greater<>());
            uint64_t top = work.heap.back();
            work.heap.pop_back();
            int i = int(uint32_t(top));
            if (rank[i] != top >> 32) continue;
            int gone = next[i], after = next[gone];
            id[i] = merged_[rank[i]];
            next[i] = after;
            rank[gone] = rank[i] = no_rank;
            if (after < n) previous[after] = i, push(i, after);
            if (previous[i] >= 0) push(previous[i], i);
        }
        for (int i = 0; i < n; i = next[i]) out.push_back(id[i]);
    }

    std::string arena_, scratch_;  // all tokens' bytes
    std::vector<Place> place_;     // by id
    std::vector<Slot> slots_;      // open addressing, a power of two
    size_t used_ = 0;
    std::unordered_map<std::string, int> unspelled_;  // vocabulary entries that are not in the byte alphabet
    std::vector<int> unlisted_;                       // ids that slots_ does not hold

    int byte_id_[256];
    // Once sealed: left 21 bits, right 21, rank 22, in open addressing. Before: the keys by rank.
    std::vector<uint64_t> pairs_;
    int pair_shift_ = 0;
    std::vector<int> merged_;  // by rank
};
