// GrammarCache: a list by last use, and a map into it.
#include "grammar/grammar_cache.h"

#include <utility>

namespace moraine {

SharedGrammar GrammarCache::find_or(std::string text, const Compile& compile) {
  SharedGrammar made{.grammar = nullptr, .masks = masks_};
  {
    const std::lock_guard<std::mutex> lock(mutex_);
    if (const auto at = places_.find(text); at != places_.end()) {
      ++stats_.found;
      entries_.splice(entries_.begin(), entries_, at->second);
      return at->second->grammar;
    }
    ++stats_.compiled;
    made.number = next_number_++;
  }
  made.grammar = compile();
  const int64_t bytes = made.grammar->bytes() + static_cast<int64_t>(text.size());
  const std::lock_guard<std::mutex> lock(mutex_);
  if (bytes > bytes_most_ || places_.contains(text)) return made;
  while (stats_.bytes + bytes > bytes_most_) {
    stats_.bytes -= entries_.back().bytes;
    places_.erase(entries_.back().text);
    entries_.pop_back();
  }
  entries_.push_front({.text = std::move(text), .grammar = made, .bytes = bytes});
  places_.emplace(entries_.front().text, entries_.begin());
  stats_.bytes += bytes;
  return made;
}

SharedGrammar GrammarCache::any_json() {
  return find_or("any", [] { return Grammar::any_json(); });
}

SharedGrammar GrammarCache::of_schema(const Json& schema, bool strict) {
  return find_or((strict ? "strict " : "schema ") + json_text(schema),
                 [&] { return Grammar::of_schema(schema, strict); });
}

SharedGrammar GrammarCache::of_tool_calls(const ToolGrammar& tools) {
  Json list = Json::array();
  for (const ToolGrammar::Tool& tool : tools.tools)
    list.push_back(Json::array({tool.name, tool.parameters, tool.strict}));
  const Json text =
      Json::array({list, static_cast<int>(tools.choice), tools.name, tools.parallel, tools.open,
                   tools.begin, tools.between, tools.end, tools.separator, tools.close,
                   tools.trigger, tools.tagged, tools.answer, tools.answer_strict});
  return find_or("tools " + json_text(text), [&] { return Grammar::of_tool_calls(tools); });
}

GrammarCache::Stats GrammarCache::stats() const {
  const std::lock_guard<std::mutex> lock(mutex_);
  Stats stats = stats_;
  stats.grammars = static_cast<int64_t>(entries_.size());
  return stats;
}

}  // namespace moraine
