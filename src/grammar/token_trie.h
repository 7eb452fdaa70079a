// TokenTrie: the bytes of every token of a vocabulary, in order of bytes, for asking which of them may come next.
//
//   ordinary tokens  in the trie with what they add to a text that has begun; they are in masks
//   special tokens   in no mask, but for those named in `literal_tokens`: these are in masks where
//                    a grammar has fixed text that they spell (`<tool_call>`), never inside a
//                    JSON string; and those named in `free_tokens` (`</think>`): these are in masks
//                    where a grammar has free text, and nowhere else
//   other ids        (no text, or past the tokenizer's last) in no mask
//
// Nodes stand in preorder, so a node's subtree is the range [node, nodes[node].next), and the
// tokens below it are a range of `ids`.
//
// Threads: immutable; shared by all requests of a model. The tokenizer is not needed afterwards.
// Cost:    built in 0.2 s for 262,144 tokens; about 24 bytes for each node, and for inside strings
//          kStringLengths masks of a bit for each token.
#pragma once

#include <cstdint>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "tokenizer/tokenizer.h"

namespace moraine {

// A set of byte strings with ids, as a tree in preorder.
struct ByteTrie {
  struct Node {
    int32_t next;       // where the node after its subtree is
    int32_t ids_begin;  // of `ids`: its own first, then those of its subtree
    uint8_t byte;       // on the edge to it; the root's says nothing
  };
  std::vector<Node> nodes;   // the root first; one more at the end closes the ranges
  std::vector<int32_t> ids;  // of the strings, in order of bytes

  struct Entry {
    std::string_view bytes;  // not empty
    int32_t id;
  };
  void build(std::vector<Entry> entries);
  int32_t end() const { return static_cast<int32_t>(nodes.size()) - 1; }
  // The ids that end at a node, and those that end at it or below.
  std::span<const int32_t> ids_at(int32_t node) const;
  std::span<const int32_t> ids_below(int32_t node) const;
  int32_t child(int32_t node, uint8_t byte) const;               // -1 if there is none
  int32_t find(std::string_view bytes, int32_t from = 0) const;  // -1 if there is none
};

// What tokens do inside a JSON string, from the border of two characters on.
struct StringTokens {
  // Tokens of whole characters, none of them " \ or below U+0020: bit masks of those of at most n
  // characters, n = 0 .. kStringLengths - 1, one after another; and the longer ones.
  static constexpr int64_t kStringLengths = 33;  // longer tokens are few: runs of spaces and signs
  struct LongToken {
    int32_t id, characters;
  };
  std::vector<uint64_t> at_most;
  std::vector<LongToken> longer;  // by length
  // Tokens of such characters, then the closing quote, then a tail: by tail.
  struct ClosingToken {
    int32_t id, characters;
  };
  std::vector<ClosingToken> closing;         // what the ids of `tails` are: places in this list
  std::vector<ClosingToken> closing_at_end;  // those with nothing behind the quote
  ByteTrie tails;
  ByteTrie odd;  // tokens with an escape, or that end inside a character: these are walked
};

class TokenTrie {
 public:
  // vocab_size: the number of logits; may be larger or smaller than the tokenizer's.
  TokenTrie(const Tokenizer& tokenizer, int64_t vocab_size,
            std::span<const int32_t> literal_tokens = {},
            std::span<const int32_t> free_tokens = {});  // none of them in both

  int64_t vocab_size() const { return vocab_size_; }
  int64_t mask_words() const { return (vocab_size_ + 63) / 64; }

  // Empty for ids that are in no mask.
  std::string_view bytes(int32_t id) const;
  int64_t longest() const { return longest_; }  // bytes of the longest token
  bool is_literal(int32_t id) const;            // one of `literal_tokens`
  std::span<const int32_t> literal_tokens() const { return literal_; }
  bool is_free(int32_t id) const;  // one of `free_tokens`
  std::span<const int32_t> free_tokens() const { return free_; }

  const ByteTrie& trie() const { return trie_; }  // of ordinary tokens
  const StringTokens& in_string() const { return in_string_; }
  std::span<const uint64_t> ordinary() const { return ordinary_; }  // [mask_words()]
  // Ordinary tokens with `text` somewhere in them. Cost: one pass over all bytes.
  std::vector<int32_t> holding(std::string_view text) const;

 private:
  void sort_into_string_tokens();

  int64_t vocab_size_;
  int64_t longest_ = 0;
  std::string text_;                     // all bytes, by id
  std::vector<int64_t> begin_;           // [vocab_size + 1]
  std::vector<int32_t> literal_, free_;  // ascending
  std::vector<uint64_t> ordinary_;
  ByteTrie trie_;
  StringTokens in_string_;
};

}  // namespace moraine
