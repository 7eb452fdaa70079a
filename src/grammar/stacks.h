// Stacks: sets of stacks of frames, each written once and known by a number.
//
//   set    {(frame, set below), ...}   no frame twice: stacks that agree at the top share it
//
// An answer that fits several alternatives of a schema has a stack for each; written this way they
// need no more room than there are places in the grammar times the depth. Frames are values:
// counters in them are numbers, so a bound of 10^9 costs nothing.
//
// Cost: a set costs one look-up in a hash table. keep_only drops what nothing leads to.
#pragma once

#include <cstdint>
#include <span>
#include <unordered_map>
#include <utility>
#include <vector>

namespace moraine {

// A place inside one node of a grammar (grammar/nodes.h). What fields mean: grammar/step.cc.
struct Frame {
  int32_t node = -1;
  int16_t depth = 0;  // arrays and objects around it
  uint8_t phase = 0;
  uint8_t sub = 0;    // white space so far, or the place inside a character
  int32_t index = 0;  // of a property or part
  int32_t at = 0;     // state of an automaton, node of a trie
  int64_t count = 0;  // characters, items
  auto operator<=>(const Frame&) const = default;
};

using StackSet = int32_t;
constexpr StackSet kNoStacks = 0;

class StackStore {
 public:
  struct Entry {
    Frame frame;
    StackSet below;
    bool operator==(const Entry&) const = default;
  };

  StackStore();

  // The set of these; takes them in any order, equal ones too, and uses `entries` as scratch.
  StackSet make(std::vector<Entry>* entries);
  // In order of frames.
  int64_t count(StackSet set) const { return sets_[set + 1] - sets_[set]; }
  const Entry& entry(StackSet set, int64_t i) const { return entries_[items_[sets_[set] + i]]; }

  int64_t size() const { return static_cast<int64_t>(entries_.size() + items_.size()); }
  // Drops everything that `roots` do not lead to, and gives them their new numbers.
  void keep_only(std::span<StackSet> roots);
  int64_t tidied() const { return tidied_; }  // how often

 private:
  StackSet unite(StackSet a, StackSet b);
  int32_t intern(const Entry& entry);
  StackSet intern_set(std::span<const int32_t> items);
  StackSet copy_from(const StackStore& old, StackSet set, std::vector<StackSet>* copied);
  void place(std::vector<int32_t>* slots, uint64_t hash, int32_t value) const;

  std::vector<Entry> entries_;
  std::vector<uint64_t> entry_hashes_, set_hashes_;
  std::vector<int32_t> items_;                    // of sets: entries, one set after another
  std::vector<int32_t> sets_;                     // [sets + 1] begins in items_
  std::vector<int32_t> entry_slots_, set_slots_;  // hash tables, at most half full; -1 for empty
  std::unordered_map<uint64_t, StackSet> unions_;
  int64_t tidied_ = 0;
};

}  // namespace moraine
