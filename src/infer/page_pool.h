// PagePool: which page of the cache holds what, and whose it is.
//
//   free       holds nothing
//   held       one or more sequences use it
//   kept       nobody uses it, but its positions are known, and a prompt that begins with them takes it up
//              again; the one that was let go longest ago is the first to be taken for something else
//
// A prefix is found page by page: the key of a page is a hash of the key before it and of its tokens, and the
// first key is a hash of the caller's salt, so two salts never share a page. The tokens are compared as well: a
// hit is never a matter of luck. A page that is not full is found by the key before it, and belongs to a
// prompt that begins with all its tokens.
//
// Cost:    find: one hash and one comparison for each page of the prompt. Everything else: constant.
// Threads: one at a time.
#pragma once

#include <cstdint>
#include <list>
#include <map>
#include <span>
#include <string>
#include <vector>

#include "base/hash.h"

namespace moraine {

class PagePool {
 public:
  PagePool(int64_t pages, int64_t page_rows);

  int64_t pages() const { return static_cast<int64_t>(page_.size()); }
  int64_t page_rows() const { return page_rows_; }
  // Pages that take() can still give: free ones and kept ones.
  int64_t available() const { return static_cast<int64_t>(free_.size() + kept_.size()); }
  int64_t kept() const { return static_cast<int64_t>(kept_.size()); }
  int64_t evictions() const { return evictions_; }

  int32_t take();            // held once; -1: there is none
  void hold(int32_t page);   // once more
  void leave(int32_t page);  // once less; the last one makes it kept or free

  // A page's place in the chain of prefixes.
  static Hash128 first_key(const std::string& salt);
  static Hash128 next_key(const Hash128& before, std::span<const int32_t> tokens);

  // Makes a held page findable: its positions hold `tokens`, behind the pages of `before`. One that holds the
  // same already stays the one that is found.
  void publish(int32_t page, const Hash128& before, std::span<const int32_t> tokens);

  // The longest known prefix of `tokens`: full pages in order, then at most one that is not full. All are held
  // for the caller.
  struct Prefix {
    std::vector<int32_t> full;
    std::vector<Hash128> keys;  // before each full page, and behind the last
    int32_t partial = -1;       // to be copied
    int64_t rows = 0;           // of `partial`
  };
  Prefix find(const std::string& salt, std::span<const int32_t> tokens);
  // The same with nothing held, for who only asks how much is known.
  Prefix look(const std::string& salt, std::span<const int32_t> tokens) const;

 private:
  struct Page {
    int64_t held = 0;
    bool published = false;
    Hash128 before;
    std::vector<int32_t> tokens;
    std::list<int32_t>::iterator kept;  // where it stands, if kept
  };
  struct KeyLess {
    bool operator()(const Hash128& a, const Hash128& b) const {
      return a.high != b.high ? a.high < b.high : a.low < b.low;
    }
  };
  Page& page(int32_t index) { return page_[static_cast<size_t>(index)]; }
  const Page& page(int32_t index) const { return page_[static_cast<size_t>(index)]; }
  std::vector<int32_t>& followers(const Hash128& key) { return after_[key]; }
  int32_t match(const Hash128& before, std::span<const int32_t> tokens, bool full) const;
  void forget(int32_t index);

  const int64_t page_rows_;
  std::vector<Page> page_;
  std::vector<int32_t> free_;
  std::list<int32_t> kept_;                                 // longest ago first
  std::map<Hash128, std::vector<int32_t>, KeyLess> after_;  // pages by the key before them
  int64_t evictions_ = 0;
};

}  // namespace moraine
