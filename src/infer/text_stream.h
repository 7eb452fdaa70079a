// TextStream: the text of an answer as its tokens come, held back while it may be the start of a stop string.
//
// Text ends before the first stop string that is complete; a stop string may begin in one token and end in
// another. Pieces are whole characters. An answer's text is what its tokens add to that of the prompt: where a
// tokenizer drops the space at the beginning of a text, it is dropped of the prompt.
#pragma once

#include <cstdint>
#include <optional>
#include <span>
#include <string>
#include <vector>

#include "tokenizer/stream_decoder.h"

namespace moraine {

class TextStream {
 public:
  // Without a tokenizer there is no text. `stop` strings are not empty.
  // special_text: special tokens show, as their names.
  TextStream(const Tokenizer* tokenizer, const std::vector<std::string>& stop, bool special_text,
             std::span<const int32_t> prompt);

  // Appends to *piece what can be shown now. True if a stop string is complete.
  bool add(int32_t token, std::string* piece);
  // The answer ended: what was held back.
  bool finish(std::string* piece);
  // The stop string that ended the text; empty: none did.
  const std::string& stopped_by() const { return stopped_by_; }

 private:
  bool cut(std::string* piece, bool all);

  const std::vector<std::string> stop_;
  std::optional<StreamDecoder> decoder_;
  std::string waiting_;  // not shown yet
  std::string stopped_by_;
};

}  // namespace moraine
