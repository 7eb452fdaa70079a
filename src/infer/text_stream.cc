// TextStream: looks for stop strings in what has not been shown yet.
#include "infer/text_stream.h"

#include <algorithm>

namespace moraine {

TextStream::TextStream(const Tokenizer* tokenizer, const std::vector<std::string>& stop,
                       bool special_text, std::span<const int32_t> prompt)
    : stop_(stop) {
  if (tokenizer != nullptr) decoder_.emplace(*tokenizer, /*skip_special=*/!special_text, prompt);
}

bool TextStream::add(int32_t token, std::string* piece) {
  if (!decoder_) return false;
  waiting_ += decoder_->push(token);
  return cut(piece, /*all=*/false);
}

bool TextStream::finish(std::string* piece) {
  if (!decoder_ || !stopped_by_.empty()) return false;
  waiting_ += decoder_->finish();
  return cut(piece, /*all=*/true);
}

bool TextStream::cut(std::string* piece, bool all) {
  size_t first = std::string::npos,
         hold = 0;  // hold: bytes at the end that may begin a stop string
  for (const std::string& stop : stop_) {
    if (const size_t at = waiting_.find(stop); at < first) {
      first = at;
      stopped_by_ = stop;
    }
    for (size_t n = std::min(stop.size() - 1, waiting_.size()); n > hold; --n) {
      if (waiting_.compare(waiting_.size() - n, n, stop, 0, n) == 0) hold = n;
    }
  }
  const bool stopped = first != std::string::npos;
  const size_t shown = stopped ? first : all ? waiting_.size() : waiting_.size() - hold;
  piece->append(waiting_, 0, shown);
  waiting_.erase(0, stopped ? waiting_.size() : shown);
  return stopped;
}

}  // namespace moraine
