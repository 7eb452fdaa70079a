// Normalizer: the changes made to text before it is cut into pieces.
//
// The text travels with one fact about its origin: whether its first character comes from the start
// of the whole text, which Metaspace (tokenizer/pre_tokenizer.h) asks for.
//
// Threads: apply from any thread.
// Errors:  what a Regex gives up on (tokenizer/regex.h); kInvalidArgument for a text that grows to
//          more than 64 times its length.
// Source:  Hugging Face tokenizers, normalizers/*.
#pragma once

#include <memory>
#include <string>
#include <vector>

#include "tokenizer/regex.h"
#include "tokenizer/unicode.h"

namespace moraine {

struct NormalizedText {
  std::string text;        // valid UTF-8
  bool from_start = true;  // its first character was the first of the text
  bool may_prefix = true;  // false after an invalid byte: nothing may be put in front
};

struct NormalizerStep {
  enum class Kind { kForm, kLowercase, kReplace, kPrepend, kStrip, kByteLevel };
  Kind kind;
  NormalForm form = NormalForm::kNfc;  // kForm
  std::string pattern{};               // kReplace: the text to find, if there is no regex
  std::unique_ptr<Regex> regex{};      // kReplace
  std::string content{};               // kReplace, kPrepend
  bool left = false, right = false;    // kStrip
};

class Normalizer {
 public:
  void add(NormalizerStep step) { steps_.push_back(std::move(step)); }
  bool maps_bytes() const;  // whether a step writes bytes as characters
  void apply(NormalizedText* text) const;
  // How many times longer than what it makes of it a text is at most, without the white space that is stripped; 0:
  // there is no bound.
  int64_t shrinks_most() const;
  bool strips() const;  // whether a step strips white space

 private:
  std::vector<NormalizerStep> steps_;
};

// Appends the places of `pattern`, left to right, none overlapping. `pattern` is not empty.
void find_all_text(std::string_view text, std::string_view pattern,
                   std::vector<TextRange>* matches);

}  // namespace moraine
