// A trie over sorted strings, and the rules about a token's surroundings.
#include "tokenizer/added_tokens.h"

#include <algorithm>
#include <utility>

#include "base/utf8.h"
#include "tokenizer/unicode.h"

namespace moraine {
namespace {

bool word_before(std::string_view text, int64_t at) {
  if (at == 0) return false;
  const int64_t begin = utf8_previous(text, at);
  return utf8_sequence_bytes(text, begin) == at - begin &&
         is_word_character(utf8_code_point(text, begin));
}

bool word_after(std::string_view text, int64_t at) {
  return at < static_cast<int64_t>(text.size()) && utf8_sequence_bytes(text, at) > 0 &&
         is_word_character(utf8_code_point(text, at));
}

int64_t skip_space_back(std::string_view text, int64_t at) {
  while (at > 0) {
    const int64_t begin = utf8_previous(text, at);
    if (utf8_sequence_bytes(text, begin) != at - begin) break;
    if (!is_white_space(utf8_code_point(text, begin))) break;
    at = begin;
  }
  return at;
}

int64_t skip_space(std::string_view text, int64_t at) {
  while (at < static_cast<int64_t>(text.size())) {
    const int bytes = utf8_sequence_bytes(text, at);
    if (bytes == 0 || !is_white_space(utf8_code_point(text, at))) break;
    at += bytes;
  }
  return at;
}

}  // namespace

void Trie::build(std::vector<std::pair<std::string, int32_t>> tokens) {
  std::erase_if(tokens, [](const auto& token) { return token.first.empty(); });
  const auto by_text = [](const auto& a, const auto& b) { return a.first < b.first; };
  std::stable_sort(tokens.begin(), tokens.end(), by_text);
  const auto same_text = [](const auto& a, const auto& b) { return a.first == b.first; };
  tokens.erase(std::unique(tokens.begin(), tokens.end(), same_text), tokens.end());
  if (tokens.empty()) return;
  // Breadth first, so that the edges of a node lie together: each entry is a node's share of
  // tokens.
  struct Share {
    int64_t depth, begin, end;
  };
  std::vector<Share> shares = {{0, 0, static_cast<int64_t>(tokens.size())}};
  nodes_.resize(1);
  for (size_t node = 0; node < shares.size(); ++node) {
    auto [depth, begin, end] = shares[node];
    if (static_cast<int64_t>(tokens[begin].first.size()) == depth) {
      nodes_[node].id = tokens[begin++].second;
    }
    nodes_[node].edges_begin = static_cast<int32_t>(edges_.size());
    while (begin < end) {
      const char byte = tokens[begin].first[depth];
      int64_t last = begin;
      while (last < end && tokens[last].first[depth] == byte) ++last;
      edges_.push_back({static_cast<uint8_t>(byte), static_cast<int32_t>(nodes_.size())});
      nodes_.emplace_back();
      shares.push_back({depth + 1, begin, last});
      if (depth == 0) begins_[static_cast<uint8_t>(byte)] = true;
      begin = last;
    }
    nodes_[node].edges_end = static_cast<int32_t>(edges_.size());
  }
}

bool Trie::find(std::string_view text, int64_t from, TextPart* found) const {
  const int64_t size = static_cast<int64_t>(text.size());
  for (int64_t at = from; at < size; ++at) {
    if (!begins_[static_cast<uint8_t>(text[at])]) continue;
    int32_t node = 0;
    found->id = -1;
    for (int64_t end = at; end < size; ++end) {
      const uint8_t byte = static_cast<uint8_t>(text[end]);
      const auto first = edges_.begin() + nodes_[node].edges_begin;
      const auto last = edges_.begin() + nodes_[node].edges_end;
      const auto edge = std::lower_bound(
          first, last, byte, [](const Edge& e, uint8_t wanted) { return e.byte < wanted; });
      if (edge == last || edge->byte != byte) break;
      node = edge->node;
      if (nodes_[node].id >= 0) *found = {nodes_[node].id, {at, end + 1}};
    }
    if (found->id >= 0) return true;
  }
  return false;
}

void AddedTokens::build(std::vector<AddedToken> tokens, const std::vector<std::string>& matched) {
  tokens_ = std::move(tokens);
  std::vector<std::pair<std::string, int32_t>> raw, normalized;
  for (size_t i = 0; i < tokens_.size(); ++i) {
    index_of_id_[tokens_[i].id] = i;
    (tokens_[i].normalized ? normalized : raw).emplace_back(matched[i], tokens_[i].id);
  }
  raw_.build(std::move(raw));
  normalized_.build(std::move(normalized));
}

const AddedToken* AddedTokens::by_id(int32_t id) const {
  const auto found = index_of_id_.find(id);
  return found == index_of_id_.end() ? nullptr : &tokens_[found->second];
}

void AddedTokens::split(const Trie& trie, std::string_view text, bool specials,
                        std::vector<TextPart>* parts) const {
  const int64_t size = static_cast<int64_t>(text.size());
  int64_t done = 0;  // the parts cover [0, done)
  TextPart found;
  for (int64_t from = 0; !trie.empty() && trie.find(text, from, &found);) {
    from = found.range.end;
    const AddedToken& token = *by_id(found.id);
    if (token.special && !specials) continue;
    int64_t begin = found.range.begin, end = found.range.end;
    if (token.single_word && (word_before(text, begin) || word_after(text, end))) continue;
    if (token.lstrip) begin = std::max(skip_space_back(text, begin), done);
    if (token.rstrip) end = skip_space(text, end);
    if (begin >= end) continue;  // the token before took this white space along
    if (done < begin) parts->push_back({-1, {done, begin}});
    parts->push_back({found.id, {begin, end}});
    done = end;
  }
  if (done < size) parts->push_back({-1, {done, size}});
}

}  // namespace moraine
