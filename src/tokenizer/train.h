// Train: a byte-level BPE vocabulary from texts, as the text of a tokenizer.json.
//
//   ids   special tokens in the order given, then the 256 bytes in order of their characters
//         (tokenizer/byte_alphabet.h), then one token for each merge
//   loop  the pair with the largest count becomes a token, until there are vocab_size tokens or the
//         largest count is below min_frequency; pairs lie inside words (tokenizer/word_counts.h)
//   ties  the pair with the smaller left id, then the smaller right id
//
// The file loads here and in the Hugging Face tokenizers library, and every byte string survives
// encode and decode.
//
// Order:   the same result for any thread count.
// Errors:  kInvalidArgument: a vocabulary smaller than the special tokens and bytes; special tokens
//          that are empty, repeated, not UTF-8 or one of the byte characters; a bad pattern.
// Threads: counting uses the pool; merging runs on the caller.
// Cost:    each merge touches the words that hold its pair: 8 MB of English to 8192 tokens in 1 s.
// Source:  Sennrich et al. 2016; the order of ties as Hugging Face BpeTrainer.
#pragma once

#include <cstdint>
#include <functional>
#include <string>
#include <vector>

#include "base/pool.h"

namespace moraine {

// A letter run with the space before it; contractions apart; one digit at a time, so that a small
// vocabulary is not spent on numbers; punctuation runs with the space before them; line ends with
// the space before them; other space, all but the last before a word. Unlike Llama 3's pattern, a
// word keeps no punctuation in front and punctuation takes no line ends along: a small vocabulary
// would hold many tokens twice.
extern const char* const kTrainPattern;

struct BpeTrainOptions {
  int64_t vocab_size = 0;  // special tokens and bytes included
  std::vector<std::string> special_tokens = {"<|endoftext|>"};
  int64_t min_frequency = 2;
  std::string pattern = kTrainPattern;  // Oniguruma syntax (tokenizer/regex_syntax.h)
};

struct BpeTrainProgress {
  bool counting;        // else merging
  int64_t done, total;  // counting: bytes of text, total unknown (0); merging: tokens
};

// `next` fills in one text (a document) and returns true, or returns false at the end.
std::string train_bpe(const std::function<bool(std::string* text)>& next,
                      const BpeTrainOptions& options, Pool& pool,
                      const std::function<void(const BpeTrainProgress&)>& progress);

}  // namespace moraine
