// A priority queue with entries that may be out of date: one too high is put back with its true
// count.
#include "tokenizer/pair_heap.h"

#include <utility>

namespace moraine {

void PairHeap::add(int32_t left, int32_t right, int64_t change, int32_t word) {
  const uint64_t key =
      static_cast<uint64_t>(static_cast<uint32_t>(left)) << 32 | static_cast<uint32_t>(right);
  Known& pair = known_[key];
  pair.count += change;
  if (change <= 0) return;
  if (pair.words.empty() || pair.words.back() != word) pair.words.push_back(word);
  if (!pair.raised) raised_.push_back(key);
  pair.raised = true;
}

void PairHeap::settle() {
  for (const uint64_t key : raised_) {
    Known& pair = known_[key];
    pair.raised = false;
    if (pair.count > 0) heap_.push({pair.count, key});
  }
  raised_.clear();
}

bool PairHeap::pop(CountedPair* result) {
  while (!heap_.empty()) {
    const Entry top = heap_.top();
    heap_.pop();
    const auto found = known_.find(top.key);
    const int64_t count = found == known_.end() ? 0 : found->second.count;
    // Below the true count: a newer entry is in the heap.
    if (count < top.count && count > 0) heap_.push({count, top.key});
    if (count != top.count) continue;
    *result = {static_cast<int32_t>(top.key >> 32), static_cast<int32_t>(top.key & UINT32_MAX),
               count, std::move(found->second.words)};
    known_.erase(found);
    return true;
  }
  return false;
}

}  // namespace moraine
