// Pair heap: counts of neighbouring symbols, with the most frequent pair at hand.
//
// Each pair also knows in which words, or sections of words (word_merger.h), it was seen. Counts
// may go up and down; the heap is put right when a pair comes to its top.
//
// Order: pop gives the largest count; ties by the smaller left id, then the smaller right id.
// Cost:  add is one hash look-up; pop and settle are log n each.
#pragma once

#include <cstdint>
#include <queue>
#include <unordered_map>
#include <vector>

namespace moraine {

struct CountedPair {
  int32_t left, right;
  int64_t count;
  std::vector<int32_t> words;  // some may be there twice, or hold the pair no more
};

class PairHeap {
 public:
  // Adds `change`, which may be negative, to the count of a pair in `word`.
  void add(int32_t left, int32_t right, int64_t change, int32_t word);
  // After a round of add: makes the new counts visible to pop.
  void settle();
  // Takes the most frequent pair out. False if no pair has a count above zero.
  bool pop(CountedPair* pair);

 private:
  struct Known {
    int64_t count = 0;
    bool raised = false;  // since the last settle
    std::vector<int32_t> words;
  };
  struct Entry {
    int64_t count;
    uint64_t key;  // left << 32 | right
    bool operator<(const Entry& other) const {
      return count != other.count ? count < other.count : key > other.key;
    }
  };
  std::unordered_map<uint64_t, Known> known_;
  std::vector<uint64_t> raised_;
  std::priority_queue<Entry> heap_;
};

}  // namespace moraine
