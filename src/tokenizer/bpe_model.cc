// Two merge loops with one result: a scan for short pieces, a heap with a linked list for long
// ones.
#include "tokenizer/bpe_model.h"

#include <algorithm>
#include <bit>
#include <functional>
#include <string>

#include <fmt/format.h>

#include "base/check.h"
#include "base/utf8.h"
#include "tokenizer/byte_alphabet.h"

namespace moraine {
namespace {

constexpr int32_t kNoRank = INT32_MAX;
constexpr uint64_t kNoPair = UINT64_MAX;
constexpr int64_t kScanMost = 48;        // symbols; above, the heap is faster
constexpr int64_t kWholeBytesMost = 64;  // longer pieces are rarely one token
constexpr int32_t kBasicPlane = 0x10000;
constexpr std::string_view kWordStartText = "\xE2\x96\x81";  // U+2581: SentencePiece's space

uint64_t key_of(int32_t left, int32_t right) {
  return static_cast<uint64_t>(static_cast<uint32_t>(left)) << 32 | static_cast<uint32_t>(right);
}

uint64_t slot_of(uint64_t key, uint64_t mask) {
  key *= 0x9E3779B97F4A7C15u;  // 2^64 over the golden ratio: spreads both halves
  return (key ^ key >> 29) & mask;
}

}  // namespace

BpeModel::BpeModel(const BpeOptions& options, TokenTable vocabulary,
                   const std::vector<BpeMerge>& merges)
    : options_(options), vocabulary_(std::move(vocabulary)) {
  for (int byte = 0; byte < 256; ++byte) {
    std::string character;
    append_utf8(character_of_byte(static_cast<uint8_t>(byte)), &character);
    fallback_ids_[byte] =
        options_.byte_fallback ? vocabulary_.find(fmt::format("<0x{:02X}>", byte)) : -1;
    const bool mapped = options_.byte_level || options_.byte_characters;
    byte_ids_[byte] = mapped ? vocabulary_.find(character) : -1;
    if (byte_ids_[byte] < 0) byte_ids_[byte] = fallback_ids_[byte];
    MR_CHECK(!options_.byte_level || byte_ids_[byte] >= 0, "byte %d has no token", byte);
  }
  int32_t largest = -1;
  if (!options_.byte_level) character_ids_.assign(kBasicPlane, -1);
  for (int64_t i = 0; i < vocabulary_.count(); ++i) {
    const std::string_view text = vocabulary_.token(i);
    largest = std::max(largest, vocabulary_.id(i));
    if (options_.byte_level) {
      std::string raw;
      if (append_character_bytes(text, &raw)) raw_tokens_.insert(raw, vocabulary_.id(i));
    } else if (!text.empty() && utf8_bytes_of_lead(text[0]) == static_cast<int>(text.size())) {
      const int32_t code_point = utf8_code_point(text, 0);
      if (code_point < kBasicPlane) character_ids_[code_point] = vocabulary_.id(i);
    }
  }
  whole_.assign(largest + 1, false);
  add_merges(merges);
  find_cuts(merges);
  find_whole_tokens();
}

void BpeModel::add_merges(const std::vector<BpeMerge>& merges) {
  const uint64_t slots = std::bit_ceil(std::max<uint64_t>(16, 2 * merges.size()));
  pairs_.assign(slots, {kNoPair, kNoRank, -1});
  for (size_t i = 0; i < merges.size(); ++i) {
    const uint64_t key = key_of(merges[i].left, merges[i].right);
    uint64_t slot = slot_of(key, slots - 1);
    while (pairs_[slot].key != kNoPair && pairs_[slot].key != key) slot = (slot + 1) & (slots - 1);
    pairs_[slot] = {key, static_cast<int32_t>(i), merges[i].result};
  }
}

const BpeModel::Pair* BpeModel::pair(int32_t left, int32_t right) const {
  const uint64_t key = key_of(left, right), mask = pairs_.size() - 1;
  uint64_t slot = slot_of(key, mask);
  while (pairs_[slot].key != key) {
    if (pairs_[slot].key == kNoPair) return nullptr;
    slot = (slot + 1) & mask;
  }
  return &pairs_[slot];
}

int32_t BpeModel::rank(int32_t left, int32_t right) const {
  const Pair* found = pair(left, right);
  return found == nullptr ? kNoRank : found->rank;
}

// A token may be looked up whole if merging gives it back, which is not so for every vocabulary.
void BpeModel::find_whole_tokens() {
  const TokenTable& texts = options_.byte_level ? raw_tokens_ : vocabulary_;
  Scratch scratch;
  std::vector<int32_t> ids;
  for (int64_t i = 0; i < texts.count(); ++i) {
    const std::string_view text = texts.token(i);
    if (text.empty() || static_cast<int64_t>(text.size()) > kWholeBytesMost) continue;
    ids.clear();
    encode_chunk(text, &scratch, &ids);
    whole_[texts.id(i)] = ids.size() == 1 && ids[0] == texts.id(i);
  }
}

// Cutting is exact if no merge makes a token with X U+2581 inside, for the X before the cut. Merges
// of stand-in tokens (unknown, <0xHH>) have no such text: then nothing is cut.
void BpeModel::find_cuts(const std::vector<BpeMerge>& merges) {
  if (options_.byte_level || options_.byte_characters || options_.ignore_merges) return;
  if (vocabulary_.find(kWordStartText) < 0) return;
  std::vector<bool> stands_in(whole_.size(), false);
  if (options_.unknown_id >= 0) stands_in[options_.unknown_id] = true;
  for (const int32_t id : fallback_ids_) {
    if (id >= 0) stands_in[id] = true;
  }
  std::vector<bool> made(whole_.size(), false);
  for (const BpeMerge& merge : merges) {
    if (stands_in[merge.left] || stands_in[merge.right]) return;
    made[merge.result] = true;
  }
  joins_.assign(0x110000, false);
  for (int64_t i = 0; i < vocabulary_.count(); ++i) {
    if (!made[vocabulary_.id(i)]) continue;
    const std::string_view text = vocabulary_.token(i);
    for (size_t at = text.find(kWordStartText); at != std::string_view::npos;
         at = text.find(kWordStartText, at + 1)) {
      const int64_t end = static_cast<int64_t>(at);
      if (end > 0) joins_[utf8_code_point(text, utf8_previous(text, end))] = true;
    }
  }
  cuts_ = true;
}

int32_t BpeModel::character_id(std::string_view text, int64_t at, int bytes) const {
  if (bytes < 4) return character_ids_[utf8_code_point(text, at)];
  return vocabulary_.find(text.substr(at, bytes));
}

void BpeModel::encode(std::string_view piece, Scratch* scratch, std::vector<int32_t>* out) const {
  if (piece.empty()) return;
  if (options_.ignore_merges) {
    const int32_t id = (options_.byte_level ? raw_tokens_ : vocabulary_).find(piece);
    if (id >= 0) {
      out->push_back(id);
      return;
    }
  }
  size_t begin = 0;
  size_t at = cuts_ ? piece.find(kWordStartText, 1) : std::string_view::npos;
  for (; at != std::string_view::npos; at = piece.find(kWordStartText, at + 1)) {
    const int64_t before = utf8_previous(piece, static_cast<int64_t>(at));
    if (joins_[utf8_code_point(piece, before)]) continue;
    encode_chunk(piece.substr(begin, at - begin), scratch, out);
    begin = at;
  }
  encode_chunk(piece.substr(begin), scratch, out);
}

void BpeModel::encode_byte(uint8_t byte, std::vector<int32_t>* out) const {
  const int32_t id = byte_ids_[byte] >= 0 ? byte_ids_[byte] : options_.unknown_id;
  if (id >= 0) out->push_back(id);
}

bool BpeModel::keeps_all() const {
  if (options_.byte_level || (options_.unknown_id >= 0 && !options_.fuse_unknown)) return true;
  const std::array<int32_t, 256>& bytes = options_.byte_fallback ? fallback_ids_ : byte_ids_;
  return std::all_of(bytes.begin(), bytes.end(), [](int32_t id) { return id >= 0; });
}

void BpeModel::encode_chunk(std::string_view chunk, Scratch* scratch,
                            std::vector<int32_t>* out) const {
  if (static_cast<int64_t>(chunk.size()) <= kWholeBytesMost) {
    const int32_t id = (options_.byte_level ? raw_tokens_ : vocabulary_).find(chunk);
    if (id >= 0 && whole_[id]) {
      out->push_back(id);
      return;
    }
  }
  scratch->ids.clear();
  symbols(chunk, &scratch->ids);
  if (static_cast<int64_t>(scratch->ids.size()) <= kScanMost) {
    merge_by_scan(scratch, out);
  } else {
    merge_by_heap(scratch, out);
  }
}

void BpeModel::symbols(std::string_view chunk, std::vector<int32_t>* ids) const {
  if (options_.byte_level) {
    for (char byte : chunk) ids->push_back(byte_ids_[static_cast<uint8_t>(byte)]);
    return;
  }
  bool unknown_waits = false;  // written before the next known character, after any <0xHH>
  const auto fallback = [&](char byte) { return fallback_ids_[static_cast<uint8_t>(byte)]; };
  const auto has_id = [&](char byte) { return fallback(byte) >= 0; };
  for (int64_t at = 0; at < static_cast<int64_t>(chunk.size());) {
    const int bytes = utf8_bytes_of_lead(chunk[at]);
    const int32_t id = character_id(chunk, at, bytes);
    const std::string_view character = chunk.substr(at, bytes);
    at += bytes;
    if (id >= 0) {
      if (unknown_waits) ids->push_back(options_.unknown_id);
      unknown_waits = false;
      ids->push_back(id);
    } else if (options_.byte_fallback && std::all_of(character.begin(), character.end(), has_id)) {
      for (char byte : character) ids->push_back(fallback(byte));
    } else if (options_.unknown_id >= 0) {
      if (unknown_waits && !options_.fuse_unknown) ids->push_back(options_.unknown_id);
      unknown_waits = true;
    }
  }
  if (unknown_waits) ids->push_back(options_.unknown_id);
}

void BpeModel::merge_by_scan(Scratch* scratch, std::vector<int32_t>* out) const {
  int32_t ids[kScanMost], ranks[kScanMost];  // ranks[i]: of the pair (i, i + 1)
  int64_t count = static_cast<int64_t>(scratch->ids.size());
  std::copy(scratch->ids.begin(), scratch->ids.end(), ids);
  for (int64_t i = 0; i + 1 < count; ++i) ranks[i] = rank(ids[i], ids[i + 1]);
  while (count > 1) {
    const int32_t* least = std::min_element(ranks, ranks + count - 1);
    if (*least == kNoRank) break;
    const int64_t at = least - ranks;
    ids[at] = pair(ids[at], ids[at + 1])->result;
    std::copy(ids + at + 2, ids + count, ids + at + 1);
    std::copy(ranks + at + 1, ranks + count - 1, ranks + at);
    --count;
    if (at > 0) ranks[at - 1] = rank(ids[at - 1], ids[at]);
    if (at + 1 < count) ranks[at] = rank(ids[at], ids[at + 1]);
  }
  out->insert(out->end(), ids, ids + count);
}

// The heap holds rank << 32 | position; an entry whose pair has changed since is skipped.
void BpeModel::merge_by_heap(Scratch* scratch, std::vector<int32_t>* out) const {
  const int32_t count = static_cast<int32_t>(scratch->ids.size());
  std::vector<int32_t>& ids = scratch->ids;
  std::vector<int32_t>& ranks = scratch->ranks;
  std::vector<int32_t>& next = scratch->next;
  std::vector<int32_t>& previous = scratch->previous;
  std::vector<uint64_t>& heap = scratch->heap;
  ranks.assign(count, kNoRank);
  next.resize(count);
  previous.resize(count);
  heap.clear();
  const auto entry = [&](int32_t at) {
    return static_cast<uint64_t>(ranks[at]) << 32 | static_cast<uint32_t>(at);
  };
  for (int32_t i = 0; i < count; ++i) {
    next[i] = i + 1;
    previous[i] = i - 1;
    if (i + 1 < count) ranks[i] = rank(ids[i], ids[i + 1]);
    if (ranks[i] != kNoRank) heap.push_back(entry(i));
  }
  std::make_heap(heap.begin(), heap.end(), std::greater<>());
  const auto refresh = [&](int32_t at) {
    ranks[at] = next[at] < count ? rank(ids[at], ids[next[at]]) : kNoRank;
    if (ranks[at] == kNoRank) return;
    heap.push_back(entry(at));
    std::push_heap(heap.begin(), heap.end(), std::greater<>());
  };
  while (!heap.empty()) {
    std::pop_heap(heap.begin(), heap.end(), std::greater<>());
    const uint64_t top = heap.back();
    heap.pop_back();
    const int32_t at = static_cast<int32_t>(top & UINT32_MAX);
    if (top != entry(at)) continue;
    const int32_t right = next[at];
    ids[at] = pair(ids[at], ids[right])->result;
    ids[right] = -1;
    ranks[right] = kNoRank;
    next[at] = next[right];
    if (next[at] < count) previous[next[at]] = at;
    refresh(at);
    if (previous[at] >= 0) refresh(previous[at]);
  }
  for (int32_t i = 0; i < count; i = next[i]) out->push_back(ids[i]);
}

}  // namespace moraine
