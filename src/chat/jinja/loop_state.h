// LoopState: where a {% for %} stands, as the variable `loop` shows it.
#pragma once

#include <cstdint>
#include <string_view>
#include <vector>

#include "chat/jinja/runtime.h"
#include "chat/jinja/value.h"

namespace moraine::jinja {

struct Scope;
struct Statement;

struct LoopState {
  const std::vector<Value>* items = nullptr;
  int64_t index = 0;                     // from 0
  int64_t depth = 0;                     // of recursive loops, from 0
  const Statement* recursive = nullptr;  // the statement, for loop(items)
  Scope* scope = nullptr;                // around the statement
  std::vector<Value> last_seen;          // of loop.changed
  bool seen = false;
};

// loop.index and the like; `self` is the loop as a value. False if there is no such attribute.
bool loop_attribute(Runtime& rt, LoopState& loop, const Value& self, std::string_view name,
                    Value* out);

}  // namespace moraine::jinja
