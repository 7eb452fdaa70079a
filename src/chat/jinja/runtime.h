// Runtime: what one render owns and how much it has used of what it may.
//
// Errors:  kInvalidArgument past a limit; the message names the template, the line and the limit.
// Threads: one.
#pragma once

#include <fmt/core.h>

#include <deque>
#include <string>
#include <string_view>

#include "base/json.h"
#include "chat/jinja/limits.h"
#include "chat/jinja/value.h"

namespace moraine::jinja {

class Runtime {
 public:
  Runtime(const std::string& template_name, const Limits& limits)
      : limits_(limits), name_(template_name) {}
  Runtime(const Runtime&) = delete;
  Runtime& operator=(const Runtime&) = delete;

  // «chat_template.jinja line 12: ...»
  [[noreturn]] void fail(const std::string& message) const;
  template <class... Args>
  [[noreturn]] void fail(fmt::format_string<Args...> format, const Args&... args) const {
    fail(fmt::vformat(format, fmt::make_format_args(args...)));
  }

  const Limits& limits() const { return limits_; }
  void at_line(int32_t line) { line_ = line; }
  int32_t line() const { return line_; }

  // Work: one step for each evaluation, and for every 32 bytes that are looked at.
  void step(int64_t steps = 1) {
    if ((steps_ += steps) > limits_.steps) fail_steps();
  }
  void scan(int64_t bytes) { step(1 + bytes / 32); }
  // Before `bytes` more are taken.
  void take(int64_t bytes);

  Value text(std::string text);
  List* list(int64_t items_reserved = 0);
  Dict* dict();
  Namespace* space();
  Function* function(const Function& f);
  void append(List* list, const Value& value) {
    take(sizeof(Value));
    list->items.push_back(value);
  }
  Value pair(const Value& a, const Value& b);  // a tuple
  // Replaces the value of a key that is there.
  void put(Dict* dict, const Value& key, const Value& value);
  // JSON as values; its texts are not copied, so `json` must live as long.
  Value import(const Json& json, int64_t depth = 0);

 private:
  [[noreturn]] void fail_steps() const;

  const Limits limits_;
  const std::string& name_;
  int32_t line_ = 1;
  int64_t steps_ = 0;
  int64_t bytes_ = 0;
  std::deque<std::string> texts_;
  std::deque<List> lists_;
  std::deque<Dict> dicts_;
  std::deque<Namespace> spaces_;
  std::deque<Function> functions_;
};

// Counts one level of evaluation within another.
class Level {
 public:
  Level(Runtime& runtime, int64_t* depth, int64_t limit, const char* what) : depth_(depth) {
    if (*depth_ >= limit) runtime.fail("{} deeper than {}", what, limit);
    ++*depth_;
  }
  ~Level() { --*depth_; }
  Level(const Level&) = delete;
  Level& operator=(const Level&) = delete;

 private:
  int64_t* const depth_;
};

// A text in the making, counted as it grows.
class TextBuilder {
 public:
  explicit TextBuilder(Runtime& runtime) : runtime_(runtime) {}
  void add(std::string_view more) {
    runtime_.take(static_cast<int64_t>(more.size()));
    text_ += more;
  }
  void add(int64_t times, char c) {
    if (times <= 0) return;
    runtime_.take(times);
    text_.append(times, c);
  }
  Value done() { return runtime_.text(std::move(text_)); }
  std::string& string() { return text_; }

 private:
  Runtime& runtime_;
  std::string text_;
};

}  // namespace moraine::jinja
