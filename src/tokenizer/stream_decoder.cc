// Stream decoder: holds back the bytes at the end that may begin a character.
#include "tokenizer/stream_decoder.h"

#include <utility>

#include "base/utf8.h"

namespace moraine {

std::string StreamDecoder::push(int32_t id) {
  tokenizer_.decode_next(id, skip_special_, &state_, &waiting_);
  const size_t ready = waiting_.size() - incomplete_utf8_tail(waiting_);
  std::string text = to_valid_utf8(std::string_view(waiting_).substr(0, ready));
  waiting_.erase(0, ready);
  return text;
}

std::string StreamDecoder::finish() {
  return to_valid_utf8(std::exchange(waiting_, std::string()));
}

}  // namespace moraine
