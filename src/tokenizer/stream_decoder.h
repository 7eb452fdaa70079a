// Stream decoder: the text of tokens as they are generated, in whole characters.
//
//   std::string piece = decoder.push(id);   // may be empty: a character is not complete yet
//   piece = decoder.finish();               // what is left
//
// All pieces together are what the ids add to the text of those before them, decode() if there are none, with
// bytes that are not UTF-8 replaced by U+FFFD: every piece is valid UTF-8.
// Threads: one output each; the tokenizer must outlive it.
#pragma once

#include <cstdint>
#include <span>
#include <string>

#include "tokenizer/decoder.h"
#include "tokenizer/tokenizer.h"

namespace moraine {

class StreamDecoder {
 public:
  StreamDecoder(const Tokenizer& tokenizer, bool skip_special, std::span<const int32_t> before = {})
      : tokenizer_(tokenizer),
        skip_special_(skip_special),
        state_(tokenizer.state_after(before, skip_special)) {}
  std::string push(int32_t id);
  std::string finish();

 private:
  const Tokenizer& tokenizer_;
  const bool skip_special_;
  DecoderState state_;
  std::string waiting_;  // bytes of a character that is not complete
};

}  // namespace moraine
