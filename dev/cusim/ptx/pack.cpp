// pack.cpp: gives virtual registers their columns. Liveness is a dataflow analysis over basic blocks (a value
// set in a conditional inside a loop lives across the back edge); registers that are never alive together
// share a column.
//
// Sharing is sound per lane: lanes that diverge each follow a path of the same graph and write only their own
// entries. A destination never shares with a source of its own instruction, so handlers may write while they
// read.
#include <algorithm>

#include "decode.h"

namespace cusim {

namespace {

class Bits {
  public:
    explicit Bits(size_t n = 0) : words_((n + 63) / 64) {}
    void set(int i) { words_[size_t(i) >> 6] |= u64(1) << (i & 63); }
    void clear(int i) { words_[size_t(i) >> 6] &= ~(u64(1) << (i & 63)); }
    bool test(int i) const { return words_[size_t(i) >> 6] >> (i & 63) & 1; }
    bool operator!=(const Bits& o) const { return words_ != o.words_; }
    void operator|=(const Bits& o) {
        for (size_t w = 0; w < words_.size(); w++) words_[w] |= o.words_[w];
    }
    template <class F>
    void for_each(F f) const {
        for (size_t w = 0; w < words_.size(); w++)
            for (u64 rest = words_[w]; rest; rest &= rest - 1) f(int(w * 64 + size_t(__builtin_ctzll(rest))));
    }

  private:
    std::vector<u64> words_;
};

}  // namespace

// Instruction indices that may follow each instruction.
std::vector<std::vector<int>> Decoder::successors() const {
    int n = int(kernel_.code.size());
    std::vector<std::vector<int>> out(n);
    for (int i = 0; i < n; i++) {
        const Inst& inst = kernel_.code[i];
        std::vector<int>& next = out[i];
        if (inst.flow == Flow::Branch) next.push_back(int(inst.immediate));
        if (inst.flow == Flow::IndexBranch) next.assign(inst.more.begin(), inst.more.end());
        bool falls_through = inst.flow < Flow::Branch || inst.flow > Flow::Exit || inst.guard != kNoColumn;
        if (falls_through && i + 1 < n) next.push_back(i + 1);
        for (int t : next)
            if (t < 0 || t >= n) throw PtxError("branch out of the kernel '" + kernel_.name + "'", 0);
    }
    return out;
}

// Colours the given registers: equal colours are never alive together. Returns a colour per entry of `ids`.
std::vector<int> Decoder::color(const std::vector<int>& ids) const {
    size_t count = ids.size(), n = kernel_.code.size();
    std::vector<int> local(registers_.size(), -1);
    for (size_t k = 0; k < count; k++) local[ids[k]] = int(k);
    auto next = successors();

    // Basic blocks.
    std::vector<char> leader(n + 1, 0);
    leader[0] = leader[n] = 1;
    for (size_t i = 0; i < n; i++) {
        bool plain = next[i].size() == 1 && next[i][0] == int(i) + 1;
        if (plain) continue;
        leader[i + 1] = 1;
        for (int t : next[i]) leader[t] = 1;
    }
    std::vector<int> first, block_of(n);
    for (size_t i = 0; i < n; i++) {
        if (leader[i]) first.push_back(int(i));
        block_of[i] = int(first.size()) - 1;
    }
    first.push_back(int(n));
    int blocks = int(first.size()) - 1;

    auto step_back = [&](Bits& live, size_t i) {
        if (!uses_[i].conditional)
            for (int r : uses_[i].writes)
                if (local[r] >= 0) live.clear(local[r]);
        for (int r : uses_[i].reads)
            if (local[r] >= 0) live.set(local[r]);
    };
    std::vector<Bits> live_in(blocks, Bits(count));
    auto live_out = [&](int b) {
        Bits live(count);
        for (int t : next[first[b + 1] - 1]) live |= live_in[block_of[t]];
        return live;
    };
    for (bool changed = true; changed;) {
        changed = false;
        for (int b = blocks - 1; b >= 0; b--) {
            Bits live = live_out(b);
            for (int i = first[b + 1] - 1; i >= first[b]; i--) step_back(live, i);
            if (live != live_in[b]) live_in[b] = live, changed = true;
        }
    }

    std::vector<Bits> conflict(count, Bits(count));
    std::vector<int> order;
    std::vector<char> seen(count, 0);
    for (int b = 0; b < blocks; b++) {
        Bits live = live_out(b);
        for (int i = first[b + 1] - 1; i >= first[b]; i--) {
            const Uses& u = uses_[i];
            for (int w : u.writes) {
                int v = local[w];
                if (v < 0) continue;
                conflict[v] |= live;
                for (const auto* list : {&u.reads, &u.writes})
                    for (int r : *list)
                        if (local[r] >= 0) conflict[v].set(local[r]);
            }
            step_back(live, i);
        }
        // Registers alive at the entry were never written: they conflict with each other too.
        if (b == 0) live.for_each([&](int v) { conflict[v] |= live; });
    }
    for (size_t v = 0; v < count; v++) conflict[v].for_each([&](int u) { conflict[u].set(int(v)); });

    for (size_t i = 0; i < n; i++)
        for (const auto* list : {&uses_[i].writes, &uses_[i].reads})
            for (int r : *list) {
                int v = local[r];
                if (v >= 0 && !seen[v]) seen[v] = 1, order.push_back(v);
            }
    std::vector<int> colors(count, -1);
    std::vector<int> taken_by;  // by colour: the last register that found it taken
    for (int v : order) {
        conflict[v].for_each([&](int u) {
            int c = colors[u];
            if (c < 0) return;
            if (size_t(c) >= taken_by.size()) taken_by.resize(size_t(c) + 1, -1);
            taken_by[c] = v;
        });
        int c = 0;
        while (size_t(c) < taken_by.size() && taken_by[c] == v) c++;
        if (size_t(c) >= taken_by.size()) taken_by.resize(size_t(c) + 1, -1);
        colors[v] = c;
    }
    return colors;
}

void Decoder::pack() {
    if (kernel_.code.empty()) return;
    std::vector<char> used(registers_.size(), 0);
    for (const Uses& u : uses_)
        for (const auto* list : {&u.reads, &u.writes})
            for (int r : *list) used[r] = 1;
    std::vector<Column> column(registers_.size(), 0);
    u32 top = 0;
    for (size_t r = 0; r < registers_.size(); r++)
        if (registers_[r].pinned) column[r] = Column(top), top += 4 * kWarp;
    struct Kind {
        int bytes;
        bool predicate;
    };
    for (Kind kind : {Kind{8, false}, Kind{4, false}, Kind{2, false}, Kind{4, true}}) {
        std::vector<int> ids;
        for (size_t r = 0; r < registers_.size(); r++)
            if (used[r] && !registers_[r].pinned && registers_[r].bytes == kind.bytes &&
                registers_[r].predicate == kind.predicate)
                ids.push_back(int(r));
        if (ids.empty()) continue;
        std::vector<int> colors = color(ids);
        u32 size = kind.predicate ? 4 : u32(kind.bytes * kWarp);
        for (size_t k = 0; k < ids.size(); k++) column[ids[k]] = Column(top + u32(colors[k]) * size);
        top += size * u32(*std::max_element(colors.begin(), colors.end()) + 1);
    }
    kernel_.register_bytes = (top + 63) / 64 * 64;
    auto place = [&](Column& c) {
        if (c != kNoColumn && !(c & 1)) c = column[c >> 1];
    };
    for (Inst& i : kernel_.code) {
        for (Column* c : {&i.d, &i.a, &i.b, &i.c, &i.guard}) place(*c);
        if (i.flow != Flow::IndexBranch)
            for (Column& c : i.more) place(c);
    }
    for (Column& c : kernel_.special) place(c);
}

}  // namespace cusim
