// Pre-tokenizer: cuts normalized text into pieces, which are then encoded one by one.
//
// Steps run in order, each on every piece of the one before.
//   Split, Digits, ...  matches of a regex, a text or a class of characters are removed, isolated,
//                       merged with the previous or the next piece, or joined in runs (contiguous)
//   ByteLevel           may put a space in front, cuts with GPT-2's regex, writes bytes as
//                       characters (tokenizer/byte_alphabet.h)
//   Metaspace           writes U+2581 for spaces, may put one in front, may cut before each
//
// Errors:  what a Regex gives up on (tokenizer/regex.h).
// Threads: apply from any thread.
// Source:  Hugging Face tokenizers, pre_tokenizers/* and NormalizedString::split.
#pragma once

#include <cstdint>
#include <memory>
#include <string>
#include <vector>

#include "tokenizer/normalizer.h"
#include "tokenizer/regex.h"

namespace moraine {

struct TextPiece {
  TextRange range;  // in PieceList::text
  bool from_start;  // its first character was the first of the whole text
  bool may_prefix;  // false right after an invalid byte
};

struct PieceList {
  std::string text;
  std::vector<TextPiece> pieces;  // none empty
};

enum class SplitBehavior { kRemoved, kIsolated, kMergedWithPrevious, kMergedWithNext, kContiguous };
enum class PrependScheme { kFirst, kNever, kAlways };

struct PreTokenizerStep {
  enum class Kind { kRegex, kText, kClass, kByteLevel, kMetaspace };
  Kind kind;
  std::unique_ptr<Regex> regex{};  // kRegex; kByteLevel: null for use_regex false
  std::string pattern{};           // kText: what to find; kMetaspace: the replacement
  bool (*in_class)(int32_t code_point) = nullptr;  // kClass
  SplitBehavior behavior = SplitBehavior::kIsolated;
  bool invert = false;        // what does not match counts as the match
  bool prefix_space = false;  // kByteLevel
  bool keep_bytes = false;    // kByteLevel: leave bytes as they are (the last step)
  PrependScheme prepend = PrependScheme::kAlways;  // kMetaspace
  bool cut = true;                                 // kMetaspace
};

// The regex of GPT-2, which ByteLevel uses.
extern const char* const kGpt2Pattern;

class PreTokenizer {
 public:
  void add(PreTokenizerStep step) { steps_.push_back(std::move(step)); }
  std::vector<PreTokenizerStep>& steps() { return steps_; }
  bool removes() const;  // whether a step drops what it matches
  void apply(NormalizedText text, PieceList* list) const;

 private:
  std::vector<PreTokenizerStep> steps_;
};

}  // namespace moraine
