// The attributes of `loop`.
#include "chat/jinja/loop_state.h"

#include "chat/jinja/function.h"
#include "chat/jinja/operators.h"

namespace moraine::jinja {
namespace {

Value cycle(Runtime& rt, const Value& self, const Arguments& a) {
  if (a.items.empty()) rt.fail("loop.cycle() wants values");
  return a.items[self.loop->index % static_cast<int64_t>(a.items.size())];
}

Value changed(Runtime& rt, const Value& self, const Arguments& a) {
  LoopState& loop = *self.loop;
  bool same = loop.seen && loop.last_seen.size() == a.items.size();
  for (size_t i = 0; same && i < a.items.size(); ++i) {
    same = equal(rt, loop.last_seen[i], a.items[i]);
  }
  loop.seen = true;
  loop.last_seen = a.items;
  return Value::of_bool(!same);
}

const BuiltIn kCycle = {.name = "cycle", .parameters = "*", .raw = cycle};
const BuiltIn kChanged = {.name = "changed", .parameters = "*", .raw = changed};

}  // namespace

bool loop_attribute(Runtime& rt, LoopState& loop, const Value& self, std::string_view name,
                    Value* out) {
  const int64_t length = static_cast<int64_t>(loop.items->size());
  const auto whole = [&](int64_t n) {
    *out = Value::of_int(n);
    return true;
  };
  if (name == "index") return whole(loop.index + 1);
  if (name == "index0") return whole(loop.index);
  if (name == "revindex") return whole(length - loop.index);
  if (name == "revindex0") return whole(length - loop.index - 1);
  if (name == "length") return whole(length);
  if (name == "depth") return whole(loop.depth + 1);
  if (name == "depth0") return whole(loop.depth);
  if (name == "first" || name == "last") {
    *out = Value::of_bool(name == "first" ? loop.index == 0 : loop.index + 1 == length);
    return true;
  }
  if (name == "previtem" || name == "nextitem") {
    const int64_t at = loop.index + (name == "nextitem" ? 1 : -1);
    *out = at >= 0 && at < length
               ? (*loop.items)[at]
               : Value::undefined(name == "nextitem" ? "loop.nextitem" : "loop.previtem");
    return true;
  }
  if (name != "cycle" && name != "changed") return false;
  const BuiltIn* f = name == "cycle" ? &kCycle : &kChanged;
  *out = Value::of_function(rt.function({.built_in = f, .self = self}));
  return true;
}

}  // namespace moraine::jinja
