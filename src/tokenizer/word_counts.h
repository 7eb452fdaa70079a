// Word counts: how often each piece occurs in texts, cut as an encoder would cut them.
//
//   special tokens are cut out; bytes that are not UTF-8 count for nothing (an encoder writes them
//   one by one); the rest is cut by the regex, and every piece counts once
//
// Order:  the counts do not depend on the thread count.
// Memory: the texts of one batch (16 groups of 1 MB, or one longer text per group) and at most
//         kWordsMost words: beyond, the rarest are forgotten, at ends of batches only, so that this
//         too depends on the texts alone.
// Errors: what the regex gives up on (tokenizer/regex.h).
#pragma once

#include <cstdint>
#include <functional>
#include <string>
#include <string_view>
#include <vector>

#include "base/pool.h"
#include "tokenizer/added_tokens.h"
#include "tokenizer/pre_tokenizer.h"
#include "tokenizer/token_table.h"

namespace moraine {

class WordCounts {
 public:
  static constexpr int64_t kWordsMost = 8'000'000;

  void add(std::string_view word, int64_t count);
  void add_all(const WordCounts& other);
  void forget_rare(int64_t words_most);  // until at most so many words are left

  int64_t size() const { return words_.count(); }
  std::string_view word(int64_t index) const { return words_.token(index); }
  int64_t count(int64_t index) const { return counts_[index]; }

 private:
  TokenTable words_;
  std::vector<int64_t> counts_;
};

struct WordCutter {
  const PreTokenizer& pre_tokenizer;
  const Trie& special_tokens;
};
// `next` fills in one text and returns true, or returns false at the end. `progress` gets the bytes
// so far.
WordCounts count_words(const std::function<bool(std::string*)>& next, const WordCutter& cutter,
                       Pool& pool, const std::function<void(int64_t bytes)>& progress);

}  // namespace moraine
