// Decoder: turns the texts of tokens back into bytes, one token at a time.
//
// Steps run in order on each token's text; after Fuse, Strip acts on the whole output instead. What
// the tokens hold comes out as bytes even where it is not UTF-8 (a character may be cut over two
// tokens); Hugging Face tokenizers puts U+FFFD there.
//
// Errors:  none while decoding; load.cc refuses step orders that cannot run token by token.
// Threads: a Decoder from any thread; a DecoderState belongs to one output.
// Source:  Hugging Face tokenizers, decoders/*.
#pragma once

#include <cstdint>
#include <memory>
#include <string>
#include <string_view>
#include <vector>

#include "tokenizer/regex.h"

namespace moraine {

struct DecoderStep {
  enum class Kind { kByteLevel, kReplace, kByteFallback, kFuse, kStrip, kMetaspace };
  Kind kind;
  std::string pattern{};  // kReplace: text to find, if no regex; kMetaspace: the replacement
  std::unique_ptr<Regex> regex{};  // kReplace
  std::string content{};           // kReplace: what stands instead; kStrip: one character
  int64_t start = 0, stop = 0;     // kStrip: at most so many at the start and at the end
  bool first_dropped = false;      // kMetaspace: in the first token, spaces vanish
};

// What one output remembers between tokens.
struct DecoderState {
  int64_t tokens = 0;    // decoded so far
  bool at_start = true;  // only stripped characters so far
  int64_t stripped = 0;  // of the output's start
  std::string held;      // falls to Strip if nothing follows
};

class Decoder {
 public:
  void add(DecoderStep step) { steps_.push_back(std::move(step)); }
  // Whether the last step is Strip after Fuse: nothing may follow it.
  bool output_stripped() const;
  // Whether further tokens leave a state as it is, so that what comes next no longer depends on them.
  bool settled(const DecoderState& state) const;
  bool separate_tokens = false;  // no decoder in the file: a space between tokens

  // Appends the bytes that `token` adds to the output. What Strip may take from the end waits for
  // the next token.
  void decode(std::string_view token, DecoderState* state, std::string* out) const;

 private:
  void strip_output(const DecoderStep& step, std::string_view text, DecoderState* state,
                    std::string* out) const;
  std::vector<DecoderStep> steps_;
};

}  // namespace moraine
