// added_tokens.h: tokens that are matched in the text itself ("<|im_end|>"), and which text may match them.
#pragma once
#include <algorithm>
#include <cstdint>
#include <cstring>
#include <string>
#include <string_view>
#include <vector>

#include "unicode.h"

// What happens to "<|im_end|>" that stands in the text. `literal` spells it with ordinary tokens; added
// tokens that are not special ("<tool_call>") are recognised all the same, as with Hugging Face's
// split_special_tokens.
enum class Specials { recognise, literal };

struct AddedToken {
    int id;
    std::string content;
    bool special, normalized, strip_left, strip_right;
};

// Text of which parts are literal: a chat template's own control tokens count, a user's do not.
// Ill-formed UTF-8 is replaced when a part is added.
struct MarkedText {
    struct Range {
        size_t begin, end;
    };
    std::string text;
    std::vector<Range> literal;  // ascending, in bytes of `text`

    void add(std::string_view part, Specials specials) {
        size_t begin = text.size();
        if (utf8_valid(part))
            text += part;
        else
            text += utf8_replace_invalid(part);
        if (specials == Specials::literal && text.size() > begin) literal.push_back({begin, text.size()});
    }

    // The bytes [begin, end) by themselves.
    MarkedText part(size_t begin, size_t end) const {
        MarkedText out;
        out.text = text.substr(begin, end - begin);
        for (const Range& range : literal)
            if (range.begin < end && begin < range.end)
                out.literal.push_back(
                    {std::max(range.begin, begin) - begin, std::min(range.end, end) - begin});
        return out;
    }
};

// Finds added tokens in text: the leftmost, and of those the longest.
class AddedTokenMatcher {
  public:
    void add(std::string_view content, int index) {
        int node = 0;
        for (char c : content) {
            int child = find_child(node, uint8_t(c));
            if (child < 0) {
                child = int(nodes_.size());
                nodes_.push_back({uint8_t(c), -1, -1, nodes_[node].first_child});
                nodes_[node].first_child = child;
                if (node == 0) root_[uint8_t(c)] = child, first_byte_ = nodes_.size() == 2 ? uint8_t(c) : -1;
            }
            node = child;
        }
        if (nodes_[node].token < 0) nodes_[node].token = index;
        empty_ = false;
    }
    bool empty() const { return empty_; }

    struct Match {
        size_t begin, end;
        int token;  // as given to add()
    };
    bool find(std::string_view text, size_t from, Match& match) const {
        for (size_t at = from; at < text.size(); at++) {
            if (first_byte_ >= 0) {
                const void* hit = std::memchr(text.data() + at, first_byte_, text.size() - at);
                if (!hit) return false;
                at = size_t(static_cast<const char*>(hit) - text.data());
            }
            int node = root_[uint8_t(text[at])];
            match.token = -1;
            for (size_t end = at + 1; node >= 0; end++) {
                if (nodes_[node].token >= 0) match = {at, end, nodes_[node].token};
                if (end == text.size()) break;
                node = find_child(node, uint8_t(text[end]));
            }
            if (match.token >= 0) return true;
        }
        return false;
    }

  private:
    struct Node {
        uint8_t byte;
        int token, first_child, sibling;
    };
    int find_child(int node, uint8_t byte) const {
        if (node == 0) return root_[byte];
        int child = nodes_[node].first_child;
        while (child >= 0 && nodes_[child].byte != byte) child = nodes_[child].sibling;
        return child;
    }
    std::vector<Node> nodes_ = {{0, -1, -1, -1}};
    std::vector<int> root_ = std::vector<int>(256, -1);
    int first_byte_ = -1;  // where all tokens start with the same byte
    bool empty_ = true;
};
