// Added tokens: whole tokens that are found in the text before anything else looks at it.
//
//   raw         `normalized` false: matched in the text as given
//   normalized  `normalized` true: matched, in its normalized form, in what is left, normalized
//
// At each place the longest token wins. `lstrip` and `rstrip` take the white space beside it along;
// `single_word` refuses it beside a letter, digit, mark or underscore.
// Threads: find from any thread.
// Cost:    a table look-up for each byte; a walk down a trie where a token may begin.
// Source:  Hugging Face tokenizers, tokenizer/added_vocabulary.rs.
#pragma once

#include <array>
#include <cstdint>
#include <map>
#include <string>
#include <string_view>
#include <vector>

#include "tokenizer/regex.h"

namespace moraine {

struct AddedToken {
  std::string content;
  int32_t id = -1;
  bool special = false, normalized = false, single_word = false, lstrip = false, rstrip = false;
};

// One part of a text: an added token, or text between them (id -1).
struct TextPart {
  int32_t id;
  TextRange range;
};

// The longest of a set of strings at a place.
class Trie {
 public:
  void build(std::vector<std::pair<std::string, int32_t>> tokens);  // equal strings: the first id
  // The first place at or after `from` where some token begins, with the longest one there.
  bool find(std::string_view text, int64_t from, TextPart* found) const;
  bool empty() const { return nodes_.empty(); }

 private:
  struct Node {
    int32_t id = -1, edges_begin = 0, edges_end = 0;
  };
  struct Edge {
    uint8_t byte;
    int32_t node;
  };
  std::vector<Node> nodes_;
  std::vector<Edge> edges_;
  std::array<bool, 256> begins_{};
};

class AddedTokens {
 public:
  // `matched[i]` is the form of tokens[i] to look for: its content, or that normalized.
  void build(std::vector<AddedToken> tokens, const std::vector<std::string>& matched);

  const AddedToken* by_id(int32_t id) const;  // nullptr if it is not an added token
  const std::vector<AddedToken>& tokens() const { return tokens_; }

  // Cuts all of `text` into parts; special tokens are left as text unless `specials`.
  void split_raw(std::string_view text, bool specials, std::vector<TextPart>* parts) const {
    split(raw_, text, specials, parts);
  }
  void split_normalized(std::string_view text, bool specials, std::vector<TextPart>* parts) const {
    split(normalized_, text, specials, parts);
  }

 private:
  void split(const Trie& trie, std::string_view text, bool specials,
             std::vector<TextPart>* parts) const;

  std::vector<AddedToken> tokens_;
  std::map<int32_t, size_t> index_of_id_;
  Trie raw_, normalized_;
};

}  // namespace moraine
