// bpe.h: the byte-pair model itself: tokens as byte strings, merges, and the merging of one piece of text.
//
// A piece starts as one token per byte; then, again and again, the neighbours whose merge stands first in the
// list of merges are joined, leftmost first. Short pieces look for that pair by scanning, long ones keep
// a list of places for every rank, so that the time stays linear for a piece of any length.
#pragma once
#include <algorithm>
#include <cstdint>
#include <cstring>
#include <string>
#include <string_view>
#include <unordered_map>
#include <vector>

#include "base.h"
#include "unicode.h"

// ---- the byte alphabet ----------------------------------------------------------------------------------
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

// ---- hashing --------------------------------------------------------------------------------------------

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

// ---- the model ------------------------------------------------------------------------------------------

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

    // How many of the 256 bytes encode() would lose: those without a token, where there is no unknown_id
    // either.
    int missing_bytes() const {
        return unknown_id >= 0 ? 0
                               : int(std::count_if(byte_id_, byte_id_ + 256, [](int id) { return id < 0; }));
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
            merge_by_rank(work, out);
    }

  private:
    static constexpr uint64_t no_pair = ~uint64_t(0);
    static constexpr uint32_t no_rank = (1 << 22) - 1, no_entry = ~uint32_t(0);
    static constexpr size_t scan_limit = 40;  // measured: below it the quadratic scan wins

    struct Place {
        uint32_t offset;
        int length;  // -1: no such token
    };
    struct Slot {
        uint32_t hash;
        int id;
    };
    struct Symbol {
        int id;
        uint32_t next, previous;  // positions; the end is the number of symbols
        uint32_t rank;            // of the pair with the next one
    };
    // What one thread works with; the lists are empty between pieces.
    struct Work {
        std::vector<int> id;
        std::vector<Symbol> symbol;
        struct Entry {
            uint32_t position, next;
        };
        std::vector<Entry> entries;
        std::vector<uint32_t> head;                // by rank, into entries
        std::vector<uint64_t> waiting, waiting64;  // one bit a rank; one bit a word of `waiting`
        std::vector<uint32_t> here;
        bool clean = true;

        void start(size_t n, size_t ranks) {
            if (!clean)
                head.clear(), waiting.clear(), waiting64.clear();  // an earlier piece ran out of memory
            clean = false;
            symbol.resize(n);
            entries.clear();
            if (head.size() < ranks) {
                head.resize(ranks, no_entry);
                waiting.resize(ranks / 64 + 1);
                waiting64.resize(ranks / 4096 + 1);
            }
        }
        void wait(uint32_t rank, uint32_t position) {
            entries.push_back({position, head[rank]});
            head[rank] = uint32_t(entries.size() - 1);
            waiting[rank / 64] |= uint64_t(1) << rank % 64;
            waiting64[rank / 4096] |= uint64_t(1) << rank / 64 % 64;
        }
        uint32_t first_rank() const {
            for (size_t i = 0; i < waiting64.size(); i++) {
                if (!waiting64[i]) continue;
                size_t word = i * 64 + size_t(__builtin_ctzll(waiting64[i]));
                return uint32_t(word * 64) + uint32_t(__builtin_ctzll(waiting[word]));
            }
            return no_rank;
        }
        // Moves the list of a rank to `here`, positions ascending.
        void take(uint32_t rank) {
            here.clear();
            for (uint32_t e = head[rank]; e != no_entry; e = entries[e].next)
                here.push_back(entries[e].position);
            std::reverse(here.begin(), here.end());  // most lists grew from left to right
            if (!std::is_sorted(here.begin(), here.end())) std::sort(here.begin(), here.end());
            head[rank] = no_entry;
            waiting[rank / 64] &= ~(uint64_t(1) << rank % 64);
            if (!waiting[rank / 64]) waiting64[rank / 4096] &= ~(uint64_t(1) << rank / 64 % 64);
        }
        void finish() {
            clean = true;
            if (symbol.capacity() <= size_t(1) << 20) return;
            std::vector<Symbol>().swap(symbol);  // one huge piece should not hold its memory for good
            std::vector<Entry>().swap(entries);
        }
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

    // Pairs wait in one list per rank; a set of ranks tells which list is first. Every step of a heap would
    // be a cache miss in long pieces; here the pairs of one rank are joined in a sweep from left to right.
    void merge_by_rank(Work& work, std::vector<int>& out) const {
        uint32_t n = uint32_t(work.id.size());
        work.start(n, merged_.size());
        Symbol* symbol = work.symbol.data();
        for (uint32_t i = 0; i < n; i++) symbol[i] = {work.id[i], i + 1, i - 1, no_rank};
        auto set_rank = [&](uint32_t i) {
            symbol[i].rank = symbol[i].next < n ? rank_of(symbol[i].id, symbol[symbol[i].next].id) : no_rank;
            if (symbol[i].rank != no_rank) work.wait(symbol[i].rank, i);
            return symbol[i].rank;
        };
        for (uint32_t i = 0; i < n; i++) set_rank(i);
        for (uint32_t rank; (rank = work.first_rank()) != no_rank;) {
            work.take(rank);
            bool earlier =
                false;  // a merge made a pair of lower rank: it goes first, the rest of these waits again
            for (uint32_t i : work.here) {
                Symbol& s = symbol[i];
                if (s.rank != rank) continue;  // joined to a neighbour meanwhile
                if (earlier) {
                    work.wait(rank, i);
                    continue;
                }
                Symbol& gone = symbol[s.next];
                s.id = merged_[rank];
                s.next = gone.next;
                gone.rank = no_rank;
                if (s.next < n) symbol[s.next].previous = i;
                earlier = set_rank(i) < rank;
                if (i > 0) earlier = set_rank(s.previous) < rank || earlier;
            }
        }
        for (uint32_t i = 0; i < n; i = symbol[i].next) out.push_back(symbol[i].id);
        work.finish();
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
