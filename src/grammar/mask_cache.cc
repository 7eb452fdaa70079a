// MaskCache: a list by last use, and a hash table into it.
#include "grammar/mask_cache.h"

#include <utility>

namespace moraine {

int64_t MaskCache::bytes_of(const Entry& entry) {
  constexpr size_t kNodes = 160;  // of the list, the table and the shared pointer
  return static_cast<int64_t>(kNodes + entry.key.size() + sizeof(SharedMask) +
                              entry.mask->mask.size() * sizeof(uint64_t) +
                              entry.mask->ends.size() * sizeof(int32_t));
}

std::shared_ptr<const SharedMask> MaskCache::find(const std::string& key) {
  const std::lock_guard<std::mutex> lock(mutex_);
  const auto at = places_.find(key);
  if (at == places_.end()) {
    ++stats_.missed;
    return nullptr;
  }
  ++stats_.found;
  entries_.splice(entries_.begin(), entries_, at->second);
  return at->second->mask;
}

void MaskCache::add(const std::string& key, std::shared_ptr<const SharedMask> mask) {
  Entry entry{.key = key, .mask = std::move(mask)};
  const int64_t bytes = bytes_of(entry);
  const std::lock_guard<std::mutex> lock(mutex_);
  if (bytes > bytes_most_ || places_.contains(key)) return;
  while (stats_.bytes + bytes > bytes_most_) {
    stats_.bytes -= bytes_of(entries_.back());
    places_.erase(entries_.back().key);
    entries_.pop_back();
  }
  entries_.push_front(std::move(entry));
  places_.emplace(entries_.front().key, entries_.begin());
  stats_.bytes += bytes;
}

MaskCache::Stats MaskCache::stats() const {
  const std::lock_guard<std::mutex> lock(mutex_);
  Stats stats = stats_;
  stats.masks = static_cast<int64_t>(entries_.size());
  return stats;
}

}  // namespace moraine
