// Two hash tables by content, one of entries and one of sets of them.
#include "grammar/stacks.h"

#include <algorithm>

#include "grammar/ids_hash.h"

namespace moraine {
namespace {

constexpr int64_t kSlotsLeast = 256;

uint64_t hash_of(const StackStore::Entry& entry) {
  const Frame& f = entry.frame;
  uint64_t hash =
      mix_hash(static_cast<uint32_t>(f.node),
               (uint64_t{static_cast<uint16_t>(f.depth)} << 16) | (f.phase << 8) | f.sub);
  hash = mix_hash(hash,
                  (uint64_t{static_cast<uint32_t>(f.index)} << 32) | static_cast<uint32_t>(f.at));
  hash = mix_hash(hash, static_cast<uint64_t>(f.count));
  return mix_hash(hash, static_cast<uint32_t>(entry.below));
}

}  // namespace

StackStore::StackStore() : sets_{0}, entry_slots_(kSlotsLeast, -1), set_slots_(kSlotsLeast, -1) {
  intern_set({});  // kNoStacks
}

void StackStore::place(std::vector<int32_t>* slots, uint64_t hash, int32_t value) const {
  const uint64_t mask = slots->size() - 1;
  uint64_t at = hash & mask;
  while ((*slots)[at] >= 0) at = (at + 1) & mask;
  (*slots)[at] = value;
}

int32_t StackStore::intern(const Entry& entry) {
  const uint64_t hash = hash_of(entry), mask = entry_slots_.size() - 1;
  for (uint64_t at = hash & mask; entry_slots_[at] >= 0; at = (at + 1) & mask) {
    const int32_t found = entry_slots_[at];
    if (entry_hashes_[found] == hash && entries_[found] == entry) return found;
  }
  const int32_t id = static_cast<int32_t>(entries_.size());
  entries_.push_back(entry);
  entry_hashes_.push_back(hash);
  if (entries_.size() * 2 > entry_slots_.size()) {
    entry_slots_.assign(entry_slots_.size() * 2, -1);
    for (int32_t i = 0; i <= id; ++i) place(&entry_slots_, entry_hashes_[i], i);
  } else {
    place(&entry_slots_, hash, id);
  }
  return id;
}

StackSet StackStore::intern_set(std::span<const int32_t> items) {
  const uint64_t hash = IdsHash()(items), mask = set_slots_.size() - 1;
  for (uint64_t at = hash & mask; set_slots_[at] >= 0; at = (at + 1) & mask) {
    const int32_t found = set_slots_[at];
    if (set_hashes_[found] != hash) continue;
    const std::span<const int32_t> there(items_.data() + sets_[found],
                                         sets_[found + 1] - sets_[found]);
    if (std::equal(there.begin(), there.end(), items.begin(), items.end())) return found;
  }
  const StackSet id = static_cast<StackSet>(set_hashes_.size());
  items_.insert(items_.end(), items.begin(), items.end());
  sets_.push_back(static_cast<int32_t>(items_.size()));
  set_hashes_.push_back(hash);
  if (set_hashes_.size() * 2 > set_slots_.size()) {
    set_slots_.assign(set_slots_.size() * 2, -1);
    for (int32_t i = 0; i <= id; ++i) place(&set_slots_, set_hashes_[i], i);
  } else {
    place(&set_slots_, hash, id);
  }
  return id;
}

StackSet StackStore::make(std::vector<Entry>* entries) {
  if (entries->empty()) return kNoStacks;
  if (entries->size() == 1) {
    const int32_t item = intern(entries->front());
    return intern_set({&item, 1});
  }
  std::sort(entries->begin(), entries->end(), [](const Entry& a, const Entry& b) {
    return a.frame != b.frame ? a.frame < b.frame : a.below < b.below;
  });
  std::vector<int32_t> items;
  for (size_t i = 0; i < entries->size();) {
    Entry entry = (*entries)[i];
    for (++i; i < entries->size() && (*entries)[i].frame == entry.frame; ++i) {
      entry.below = unite(entry.below, (*entries)[i].below);
    }
    items.push_back(intern(entry));
  }
  return intern_set(items);
}

StackSet StackStore::unite(StackSet a, StackSet b) {
  if (a == b || b == kNoStacks) return a;
  if (a == kNoStacks) return b;
  const uint64_t key = (uint64_t{static_cast<uint32_t>(std::min(a, b))} << 32) |
                       static_cast<uint32_t>(std::max(a, b));
  if (const auto known = unions_.find(key); known != unions_.end()) return known->second;
  std::vector<Entry> entries;
  for (const StackSet set : {a, b}) {
    for (int64_t i = 0; i < count(set); ++i) entries.push_back(entry(set, i));
  }
  const StackSet both = make(&entries);
  unions_.emplace(key, both);
  return both;
}

StackSet StackStore::copy_from(const StackStore& old, StackSet set, std::vector<StackSet>* copied) {
  if ((*copied)[set] >= 0) return (*copied)[set];
  std::vector<int32_t> items;
  for (int64_t i = 0; i < old.count(set); ++i) {
    Entry entry = old.entry(set, i);
    entry.below = copy_from(old, entry.below, copied);
    items.push_back(intern(entry));
  }
  return (*copied)[set] = intern_set(items);
}

void StackStore::keep_only(std::span<StackSet> roots) {
  StackStore fresh;
  std::vector<StackSet> copied(set_hashes_.size(), -1);
  copied[kNoStacks] = kNoStacks;
  for (StackSet& root : roots) root = fresh.copy_from(*this, root, &copied);
  fresh.tidied_ = tidied_ + 1;
  *this = std::move(fresh);
}

}  // namespace moraine
