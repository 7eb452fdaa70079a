// Sorts the vocabulary into a trie, and what tokens do inside strings into masks by length.
#include "grammar/token_trie.h"

#include <algorithm>

#include "base/check.h"
#include "grammar/string_state.h"

namespace moraine {
namespace {

void set_bit(std::span<uint64_t> mask, int32_t id) { mask[id >> 6] |= uint64_t{1} << (id & 63); }

// Those of `ids` that are special tokens with a logit, each once, ascending.
std::vector<int32_t> special_tokens(const Tokenizer& tokenizer, int64_t vocab_size,
                                    std::span<const int32_t> ids) {
  std::vector<int32_t> found;
  for (const int32_t id : ids) {
    if (id >= 0 && id < vocab_size && tokenizer.is_special(id)) found.push_back(id);
  }
  std::sort(found.begin(), found.end());
  found.erase(std::unique(found.begin(), found.end()), found.end());
  return found;
}

// A token from the border of two characters of a string on.
struct StringWalk {
  int32_t characters = 0;  // whole ones
  int64_t closed = -1;     // place of the closing quote
  bool plain = true;       // no escape, and ends with a whole character
  bool broken = false;
};

StringWalk walk_string(std::string_view bytes) {
  StringWalk walk;
  StringState state = kBorder;
  for (size_t i = 0; i < bytes.size(); ++i) {
    const uint8_t byte = static_cast<uint8_t>(bytes[i]);
    if (state == kBorder && byte == '"') {
      walk.closed = static_cast<int64_t>(i);
      return walk;
    }
    state = next_string_state(state, byte);
    if (state == kBroken) {
      walk.broken = true;
      return walk;
    }
    walk.plain = walk.plain && state < kBackslash;
    walk.characters += state == kBorder;
  }
  walk.plain = walk.plain && state == kBorder;
  return walk;
}

}  // namespace

void ByteTrie::build(std::vector<Entry> entries) {
  std::stable_sort(entries.begin(), entries.end(),
                   [](const Entry& a, const Entry& b) { return a.bytes < b.bytes; });
  nodes = {{0, 0, 0}};
  ids.clear();
  std::vector<int32_t> path = {0};
  std::string_view last;
  const auto leave = [&](size_t depth) {  // closes the subtrees of nodes deeper than that
    for (; path.size() > depth + 1; path.pop_back()) {
      nodes[path.back()].next = static_cast<int32_t>(nodes.size());
    }
  };
  for (const Entry& entry : entries) {
    size_t same = 0;
    const size_t shorter = std::min(last.size(), entry.bytes.size());
    while (same < shorter && last[same] == entry.bytes[same]) ++same;
    leave(same);
    for (size_t i = same; i < entry.bytes.size(); ++i) {
      path.push_back(static_cast<int32_t>(nodes.size()));
      nodes.push_back({0, static_cast<int32_t>(ids.size()), static_cast<uint8_t>(entry.bytes[i])});
    }
    ids.push_back(entry.id);
    last = entry.bytes;
  }
  leave(0);
  nodes[0].next = static_cast<int32_t>(nodes.size());
  nodes.push_back({static_cast<int32_t>(nodes.size()) + 1, static_cast<int32_t>(ids.size()), 0});
}

std::span<const int32_t> ByteTrie::ids_at(int32_t node) const {
  const int32_t begin = nodes[node].ids_begin;
  return std::span(ids).subspan(begin, nodes[node + 1].ids_begin - begin);
}

std::span<const int32_t> ByteTrie::ids_below(int32_t node) const {
  const int32_t begin = nodes[node].ids_begin;
  return std::span(ids).subspan(begin, nodes[nodes[node].next].ids_begin - begin);
}

int32_t ByteTrie::child(int32_t node, uint8_t byte) const {
  for (int32_t at = node + 1; at < nodes[node].next; at = nodes[at].next) {
    if (nodes[at].byte == byte) return at;
  }
  return -1;
}

int32_t ByteTrie::find(std::string_view bytes, int32_t from) const {
  for (size_t i = 0; i < bytes.size() && from >= 0; ++i) {
    from = child(from, static_cast<uint8_t>(bytes[i]));
  }
  return from;
}

TokenTrie::TokenTrie(const Tokenizer& tokenizer, int64_t vocab_size,
                     std::span<const int32_t> literal_tokens, std::span<const int32_t> free_tokens)
    : vocab_size_(vocab_size), begin_{0} {
  MR_CHECK(vocab_size > 0 && vocab_size < (int64_t{1} << 31), "vocab_size=%ld", long(vocab_size));
  literal_ = special_tokens(tokenizer, vocab_size, literal_tokens);
  free_ = special_tokens(tokenizer, vocab_size, free_tokens);
  for (int32_t id = 0; id < vocab_size; ++id) {
    if (!tokenizer.is_special(id) || is_literal(id) || is_free(id))
      text_ += tokenizer.token_bytes(id);
    longest_ = std::max(longest_, static_cast<int64_t>(text_.size()) - begin_.back());
    begin_.push_back(static_cast<int64_t>(text_.size()));
  }
  ordinary_.assign(mask_words(), 0);
  std::vector<ByteTrie::Entry> entries;
  for (int32_t id = 0; id < vocab_size; ++id) {
    if (bytes(id).empty() || is_literal(id) || is_free(id)) continue;
    entries.push_back({bytes(id), id});
    set_bit(ordinary_, id);
  }
  trie_.build(std::move(entries));
  sort_into_string_tokens();
}

std::string_view TokenTrie::bytes(int32_t id) const {
  if (id < 0 || id >= vocab_size_) return {};
  return std::string_view(text_).substr(begin_[id], begin_[id + 1] - begin_[id]);
}

bool TokenTrie::is_literal(int32_t id) const {
  return std::binary_search(literal_.begin(), literal_.end(), id);
}

bool TokenTrie::is_free(int32_t id) const {
  return std::binary_search(free_.begin(), free_.end(), id);
}

void TokenTrie::sort_into_string_tokens() {
  StringTokens& in = in_string_;
  const int64_t words = mask_words();
  in.at_most.assign(StringTokens::kStringLengths * words, 0);
  std::vector<ByteTrie::Entry> tails, odd;
  for (const int32_t id : trie_.ids) {
    const std::string_view text = bytes(id);
    const StringWalk walk = walk_string(text);
    if (walk.broken) continue;
    if (!walk.plain) {
      odd.push_back({text, id});
    } else if (walk.closed >= 0) {
      const std::string_view tail = text.substr(walk.closed + 1);
      if (tail.empty()) {
        in.closing_at_end.push_back({id, walk.characters});
      } else {
        tails.push_back({tail, static_cast<int32_t>(in.closing.size())});
        in.closing.push_back({id, walk.characters});
      }
    } else if (walk.characters < StringTokens::kStringLengths) {
      set_bit(std::span(in.at_most).subspan(walk.characters * words, words), id);
    } else {
      in.longer.push_back({id, walk.characters});
    }
  }
  for (int64_t i = words; i < StringTokens::kStringLengths * words; ++i) {
    in.at_most[i] |= in.at_most[i - words];
  }
  std::sort(in.longer.begin(), in.longer.end(),
            [](const auto& a, const auto& b) { return a.characters < b.characters; });
  in.tails.build(std::move(tails));
  in.odd.build(std::move(odd));
}

std::vector<int32_t> TokenTrie::holding(std::string_view text) const {
  std::vector<int32_t> found;
  for (size_t at = text_.find(text); at != std::string::npos;) {
    const auto after = std::upper_bound(begin_.begin(), begin_.end(), static_cast<int64_t>(at));
    const int32_t id = static_cast<int32_t>(after - begin_.begin()) - 1;
    if (static_cast<int64_t>(at + text.size()) > begin_[id + 1]) {
      at = text_.find(text, at + 1);  // it begins in one token and ends in another
      continue;
    }
    if (!is_literal(id) && !is_free(id)) found.push_back(id);
    at = text_.find(text, begin_[id + 1]);
  }
  return found;
}

}  // namespace moraine
