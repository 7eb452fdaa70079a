// MaskCache: masks that answers of one vocabulary share, whoever made them first.
//
//   key    a number for the grammar, and the place in it as bytes; compared whole, so that no hash decides
//   value  the tokens that may come next there, or what a walk with an automaton from one of its states finds
//
// Memory:  at most what the constructor is told, keys and bookkeeping counted; what was used longest ago goes
//          first. A mask that does not fit alone is not kept. Those that somebody still holds are beside it.
// Cost:    find: a hash of the key, a comparison.
// Threads: any.
#pragma once

#include <cstdint>
#include <list>
#include <memory>
#include <mutex>
#include <string>
#include <unordered_map>
#include <vector>

namespace moraine {

struct SharedMask {
  std::vector<uint64_t> mask;
  std::vector<int32_t>
      ends{};  // of a walk: nodes of the trie at which it may end, with nodes below them
};

class MaskCache {
 public:
  explicit MaskCache(int64_t bytes_most) : bytes_most_(bytes_most) {}
  std::shared_ptr<const SharedMask> find(const std::string& key);  // null: it is not there
  void add(const std::string& key, std::shared_ptr<const SharedMask> mask);

  struct Stats {
    int64_t masks = 0, bytes = 0, found = 0, missed = 0;
  };
  Stats stats() const;

 private:
  struct Entry {
    std::string key;
    std::shared_ptr<const SharedMask> mask;
  };
  static int64_t bytes_of(const Entry& entry);

  const int64_t bytes_most_;
  mutable std::mutex mutex_;
  std::list<Entry> entries_;                                                 // used last first
  std::unordered_map<std::string_view, std::list<Entry>::iterator> places_;  // keys of entries_
  Stats stats_;
};

}  // namespace moraine
