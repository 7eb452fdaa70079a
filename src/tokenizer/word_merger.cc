// WordMerger: a section is read and written in place; what it becomes is never longer.
#include "tokenizer/word_merger.h"

#include <algorithm>

namespace moraine {
namespace {

constexpr size_t kSectionBytes = 1024;  // nearly every word is one section

}  // namespace

WordMerger::WordMerger(const WordCounts& counts, std::span<const int32_t> byte_ids) {
  for (int64_t i = 0; i < counts.size(); ++i) {
    if (counts.word(i).size() >= 2) add_word(counts.word(i), counts.count(i), byte_ids);
  }
  pairs_.settle();
}

void WordMerger::add_word(std::string_view bytes, int64_t count,
                          std::span<const int32_t> byte_ids) {
  const int64_t word = static_cast<int64_t>(symbols_.size());
  for (const char byte : bytes) symbols_.push_back(byte_ids[static_cast<uint8_t>(byte)]);
  for (size_t at = 0; at < bytes.size(); at += kSectionBytes) {
    const size_t length = std::min(kSectionBytes, bytes.size() - at);
    const bool first = at == 0, last = at + length == bytes.size();
    const int32_t section = static_cast<int32_t>(sections_.size());
    sections_.push_back({.begin = word + static_cast<int64_t>(at),
                         .count = count,
                         .length = static_cast<int32_t>(length),
                         .before = first ? -1 : section - 1,
                         .after = last ? -1 : section + 1});
    const int32_t* symbols = symbols_.data() + sections_.back().begin;
    const size_t pairs = last ? length - 1 : length;
    for (size_t k = 0; k < pairs; ++k) pairs_.add(symbols[k], symbols[k + 1], count, section);
  }
}

void WordMerger::merge(CountedPair* pair, int32_t merged) {
  std::vector<int32_t>& sections = pair->words;
  std::sort(sections.begin(), sections.end());
  sections.erase(std::unique(sections.begin(), sections.end()), sections.end());
  for (const int32_t section : sections) merge_section(*pair, merged, section);
  pairs_.settle();
}

void WordMerger::drop_first(int32_t index) {
  Section& section = sections_[index];
  ++section.begin;
  if (--section.length > 0) return;
  if (section.before >= 0) sections_[section.before].after = section.after;
  if (section.after >= 0) sections_[section.after].before = section.before;
}

void WordMerger::merge_section(const CountedPair& pair, int32_t merged, int32_t index) {
  Section& section = sections_[index];
  int32_t* symbols = symbols_.data() + section.begin;
  const auto change = [&](int32_t left, int32_t right, int64_t times, int32_t where) {
    // The pair that is being merged is gone for good: its overlaps ("aaa") count no more.
    if (left == pair.left && right == pair.right) return;
    pairs_.add(left, right, times * section.count, where);
  };
  // The symbol `ahead` of the section's end, or -1 after the word's.
  const auto symbol_at = [&](int32_t at) {
    if (at < section.length) return symbols[at];
    int32_t beyond = at - section.length;
    for (int32_t next = section.after; next >= 0; next = sections_[next].after) {
      if (beyond < sections_[next].length) return symbol(next, beyond);
      beyond -= sections_[next].length;
    }
    return int32_t{-1};
  };
  int32_t kept = 0, i = 0;
  for (; i < section.length; ++i) {
    if (symbols[i] != pair.left || symbol_at(i + 1) != pair.right) {
      symbols[kept++] = symbols[i];
      continue;
    }
    const int32_t following = symbol_at(i + 2), before = section.before;
    if (kept > 0 || before >= 0) {
      const int32_t where = kept > 0 ? index : before;
      const int32_t left =
          kept > 0 ? symbols[kept - 1] : symbol(before, sections_[before].length - 1);
      change(left, pair.left, -1, where);
      change(left, merged, 1, where);
    }
    if (following >= 0) {
      change(pair.right, following, -1, index);
      change(merged, following, 1, index);
    }
    symbols[kept++] = merged;
    if (i + 1 < section.length) {
      ++i;
    } else {
      drop_first(section.after);
    }
  }
  section.length = kept;
}

}  // namespace moraine
