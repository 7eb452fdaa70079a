// PagePool: a list of free pages, a list of kept ones, and a map from keys to pages.
#include "infer/page_pool.h"

#include <algorithm>

#include "base/check.h"

namespace moraine {

PagePool::PagePool(int64_t pages, int64_t page_rows)
    : page_rows_(page_rows), page_(static_cast<size_t>(pages)) {
  MR_CHECK(pages >= 0 && page_rows > 0);
  for (int64_t i = pages - 1; i >= 0; --i) free_.push_back(static_cast<int32_t>(i));
}

int32_t PagePool::take() {
  int32_t index = -1;
  if (!free_.empty()) {
    index = free_.back();
    free_.pop_back();
  } else if (!kept_.empty()) {
    index = kept_.front();
    kept_.pop_front();
    forget(index);
    ++evictions_;
  } else {
    return -1;
  }
  MR_CHECK(page(index).held == 0 && !page(index).published);
  page(index).held = 1;
  return index;
}

void PagePool::hold(int32_t index) {
  Page& p = page(index);
  if (p.held++ == 0) kept_.erase(p.kept);
}

void PagePool::leave(int32_t index) {
  Page& p = page(index);
  MR_CHECK(p.held > 0, "page %d", index);
  if (--p.held > 0) return;
  if (!p.published) {
    free_.push_back(index);
    return;
  }
  kept_.push_back(index);
  p.kept = std::prev(kept_.end());
}

Hash128 PagePool::first_key(const std::string& salt) {
  return hash_bytes(salt.data(), static_cast<int64_t>(salt.size()));
}

Hash128 PagePool::next_key(const Hash128& before, std::span<const int32_t> tokens) {
  Hasher hasher;
  hasher.add(&before, sizeof before);
  hasher.add(tokens.data(), static_cast<int64_t>(tokens.size_bytes()));
  return hasher.digest();
}

void PagePool::publish(int32_t index, const Hash128& before, std::span<const int32_t> tokens) {
  Page& p = page(index);
  MR_CHECK(p.held > 0 && !tokens.empty() && static_cast<int64_t>(tokens.size()) <= page_rows_);
  if (p.published) forget(index);  // it holds more by now
  for (const int32_t other : followers(before)) {
    if (std::ranges::equal(page(other).tokens, tokens)) return;
  }
  p.published = true;
  p.before = before;
  p.tokens.assign(tokens.begin(), tokens.end());
  followers(before).push_back(index);
}

void PagePool::forget(int32_t index) {
  Page& p = page(index);
  const auto at = after_.find(p.before);
  MR_CHECK(p.published && at != after_.end());
  std::erase(at->second, index);
  if (at->second.empty()) after_.erase(at);
  p.published = false;
  p.tokens.clear();
}

// The follower of `before` whose tokens are the next of a prompt: a full page, or the longest that is not.
int32_t PagePool::match(const Hash128& before, std::span<const int32_t> tokens, bool full) const {
  const auto at = after_.find(before);
  if (at == after_.end()) return -1;
  int32_t best = -1;
  for (const int32_t index : at->second) {
    const std::vector<int32_t>& mine = page(index).tokens;
    if ((static_cast<int64_t>(mine.size()) == page_rows_) != full) continue;
    if (mine.size() > tokens.size() || !std::ranges::equal(mine, tokens.first(mine.size())))
      continue;
    if (best < 0 || mine.size() > page(best).tokens.size()) best = index;
  }
  return best;
}

PagePool::Prefix PagePool::find(const std::string& salt, std::span<const int32_t> tokens) {
  Prefix prefix = look(salt, tokens);
  for (const int32_t full : prefix.full) hold(full);
  if (prefix.partial >= 0) hold(prefix.partial);
  return prefix;
}

PagePool::Prefix PagePool::look(const std::string& salt, std::span<const int32_t> tokens) const {
  Prefix prefix;
  prefix.keys.push_back(first_key(salt));
  const auto rows = static_cast<size_t>(page_rows_);
  while (tokens.size() >= rows) {
    const int32_t next = match(prefix.keys.back(), tokens, /*full=*/true);
    if (next < 0) break;
    prefix.full.push_back(next);
    prefix.keys.push_back(next_key(prefix.keys.back(), tokens.first(rows)));
    tokens = tokens.subspan(rows);
  }
  prefix.partial = match(prefix.keys.back(), tokens, /*full=*/false);
  if (prefix.partial >= 0) prefix.rows = static_cast<int64_t>(page(prefix.partial).tokens.size());
  return prefix;
}

}  // namespace moraine
