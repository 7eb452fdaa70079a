// WordMerger: the words of a training as symbols, of which neighbours become one again and again.
//
// A long word stands in sections: a pair is looked up in the section where it begins, so that a
// merge reads the sections that hold its pair and not the whole of a word of megabytes. A pair may
// reach into the next section; the symbol that it becomes stays where it began.
//
// Order: pairs of a word are merged from left to right ("aaa" is "aa" and "a").
// Cost:  most_frequent is log n; merge reads the sections that hold the pair.
#pragma once

#include <cstdint>
#include <span>
#include <vector>

#include "tokenizer/pair_heap.h"
#include "tokenizer/word_counts.h"

namespace moraine {

class WordMerger {
 public:
  // byte_ids: [256], the symbol of each byte.
  WordMerger(const WordCounts& counts, std::span<const int32_t> byte_ids);

  // False if no pair is left.
  bool most_frequent(CountedPair* pair) { return pairs_.pop(pair); }
  // Every `pair` becomes `merged`. Sorts pair->words.
  void merge(CountedPair* pair, int32_t merged);

 private:
  // Of one word, or all of it.
  struct Section {
    int64_t begin;          // in symbols_
    int64_t count;          // of the word
    int32_t length;         // symbols left
    int32_t before, after;  // sections of the same word that hold symbols; -1: none
  };

  void add_word(std::string_view bytes, int64_t count, std::span<const int32_t> byte_ids);
  void merge_section(const CountedPair& pair, int32_t merged, int32_t index);
  void drop_first(int32_t index);  // symbol; a section without any leaves the word
  int32_t symbol(int32_t section, int32_t at) const {
    return symbols_[sections_[section].begin + at];
  }

  std::vector<int32_t> symbols_;
  std::vector<Section> sections_;
  PairHeap pairs_;
};

}  // namespace moraine
