// GrammarCache: grammars by what they were compiled from, with the masks that their answers share.
//
// Schemas are compared as the text that JSON writers make of them, whole: members in another order are another
// schema, as answers follow their order.
//
// Memory:  at most GrammarCacheBytes, an estimate of all vectors and texts counted; what was used longest ago goes
//          first. A grammar larger than its share is compiled each time. What answers still hold is beside it.
// Errors:  those of Grammar; nothing is kept then.
// Threads: any; two that ask for the same at once may both compile it.
#pragma once

#include <functional>
#include <list>
#include <map>
#include <memory>
#include <mutex>
#include <string>

#include "grammar/grammar.h"
#include "grammar/mask_cache.h"

namespace moraine {

struct GrammarCacheBytes {
  int64_t grammars = 16 << 20;
  int64_t masks = 48 << 20;
};

class GrammarCache {
 public:
  explicit GrammarCache(const GrammarCacheBytes& bytes)
      : bytes_most_(bytes.grammars), masks_(std::make_shared<MaskCache>(bytes.masks)) {}

  SharedGrammar any_json();
  SharedGrammar of_schema(const Json& schema, bool strict = false);
  SharedGrammar of_tool_calls(const ToolGrammar& tools);

  MaskCache::Stats mask_stats() const { return masks_->stats(); }
  struct Stats {
    int64_t grammars = 0, bytes = 0, found = 0, compiled = 0;
  };
  Stats stats() const;

 private:
  struct Entry {
    std::string text;  // what it was compiled from
    SharedGrammar grammar;
    int64_t bytes;
  };
  using Compile = std::function<std::shared_ptr<const Grammar>()>;
  SharedGrammar find_or(std::string text, const Compile& compile);

  const int64_t bytes_most_;
  const std::shared_ptr<MaskCache> masks_;
  mutable std::mutex mutex_;
  std::list<Entry> entries_;                                       // used last first
  std::map<std::string_view, std::list<Entry>::iterator> places_;  // texts of entries_
  int64_t next_number_ = 1;
  Stats stats_;
};

}  // namespace moraine
