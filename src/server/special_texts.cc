// SpecialTexts: a walk from the root for each place.
#include "server/special_texts.h"

namespace moraine {
namespace {

uint32_t edge(uint32_t node, char byte) { return node << 8 | static_cast<uint8_t>(byte); }

}  // namespace

SpecialTexts::SpecialTexts(const Tokenizer& tokenizer) {
  for (int64_t id = 0; id < tokenizer.vocabulary_size(); ++id) {
    const auto token = static_cast<int32_t>(id);
    if (tokenizer.is_special(token)) add(tokenizer.token_text(token));
  }
}

void SpecialTexts::add(std::string_view text) {
  if (text.empty()) return;
  uint32_t node = 0;
  for (const char byte : text) {
    const auto [found, is_new] =
        next_.emplace(edge(node, byte), static_cast<uint32_t>(ends_.size()));
    if (is_new) ends_.push_back(false);
    node = found->second;
  }
  ends_[node] = true;
}

std::string_view SpecialTexts::begins(std::string_view text, size_t at) const {
  size_t bytes = 0;
  uint32_t node = 0;
  for (size_t i = at; i < text.size(); ++i) {
    const auto found = next_.find(edge(node, text[i]));
    if (found == next_.end()) break;
    node = found->second;
    if (ends_[node]) bytes = i + 1 - at;
  }
  return text.substr(at, bytes);
}

bool SpecialTexts::is_in(std::string_view text) const {
  for (size_t at = 0; at < text.size(); ++at) {
    if (!begins(text, at).empty()) return true;
  }
  return false;
}

}  // namespace moraine
