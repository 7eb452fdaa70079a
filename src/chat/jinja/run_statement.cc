// Statements: what is printed, what is set, what is repeated.
#include <utility>

#include "chat/jinja/interpreter.h"
#include "chat/jinja/operators.h"
#include "chat/jinja/python_text.h"

namespace moraine::jinja {

std::string Interpreter::run(const Dict& variables) {
  const ScopeGuard guard(this, nullptr);
  for (size_t i = 0; i < syntax_.names.size(); ++i) {
    const Value* value = find_key(rt_, variables, Value::of_text(syntax_.names[i]));
    if (value != nullptr) set_name(static_cast<int32_t>(i), *value);
  }
  std::string text;
  out_ = &text;
  // Names that the template sets are in a scope of their own, so that setting one is quick.
  const ScopeGuard inner(this, scope_);
  run_body(syntax_.body);
  return text;
}

void Interpreter::print(std::string_view text) {
  if (static_cast<int64_t>(out_->size() + text.size()) > rt_.limits().output_bytes) {
    rt_.fail("prints more than {} bytes", rt_.limits().output_bytes);
  }
  if (captures_ > 0) rt_.take(static_cast<int64_t>(text.size()));
  *out_ += text;
}

Interpreter::Flow Interpreter::run_body(const Body& body) {
  for (const Statement& s : body) {
    const Flow flow = run_statement(s);
    if (flow != Flow::kOn) return flow;
  }
  return Flow::kOn;
}

Interpreter::Flow Interpreter::run_statement(const Statement& s) {
  using Kind = Statement::Kind;
  const Level level(rt_, &depth_, rt_.limits().depth, "it calls itself, or is nested,");
  rt_.step();
  rt_.at_line(s.line);
  switch (s.kind) {
    case Kind::kText:
      print(s.text);
      return Flow::kOn;
    case Kind::kPrint:
      print(to_text(rt_, evaluate(*s.value)));
      return Flow::kOn;
    case Kind::kIf:
      return run_if(s);
    case Kind::kFor:
      run_for(s, evaluate(*s.value), 0);
      return Flow::kOn;
    case Kind::kSet:
      assign(s.target, evaluate(*s.value));
      return Flow::kOn;
    case Kind::kSetBlock:
      run_set_block(s);
      return Flow::kOn;
    case Kind::kMacro:
      set_name(s.target.name,
               Value::of_function(rt_.function({.macro = s.macro.get(), .scope = scope_})));
      return Flow::kOn;
    case Kind::kCallBlock: {
      const Value caller =
          Value::of_function(rt_.function({.macro = s.macro.get(), .scope = scope_}));
      print(to_text(rt_, evaluate_call(*s.value, &caller)));
      return Flow::kOn;
    }
    case Kind::kFilterBlock: {
      const Value text = capture(s.branches[0].body);
      print(to_text(rt_, evaluate_filter(*s.value, &text)));
      return Flow::kOn;
    }
    case Kind::kWith:
      return run_with(s);
    case Kind::kGeneration:
      run_generation(s);
      return Flow::kOn;
    case Kind::kBreak:
      return Flow::kBreak;
    case Kind::kContinue:
      return Flow::kContinue;
  }
  return Flow::kOn;
}

Interpreter::Flow Interpreter::run_if(const Statement& s) {
  for (const Statement::Branch& branch : s.branches) {
    if (branch.condition == nullptr || truth(evaluate(*branch.condition))) {
      return run_body(branch.body);
    }
  }
  return Flow::kOn;
}

// The items of a loop that pass its condition.
const std::vector<Value>& Interpreter::chosen_items(const Statement& s, const Value& value) {
  const std::vector<Value>& items = items_of(rt_, value);
  if (s.condition == nullptr) return items;
  List* chosen = rt_.list();
  const ScopeGuard guard(this, scope_);
  for (const Value& item : items) {
    assign(s.target, item);
    if (truth(evaluate(*s.condition))) rt_.append(chosen, item);
  }
  return chosen->items;
}

Interpreter::Flow Interpreter::run_for(const Statement& s, const Value& value, int64_t depth) {
  rt_.take(sizeof(LoopState));
  LoopState& loop = loops_.emplace_back();
  loop.depth = depth;
  loop.scope = scope_;
  loop.recursive = s.recursive ? &s : nullptr;
  loop.items = &chosen_items(s, value);
  Value self;
  self.kind = Kind::kLoop;
  self.loop = &loop;
  {
    const ScopeGuard guard(this, scope_);
    for (; loop.index < static_cast<int64_t>(loop.items->size()); ++loop.index) {
      rt_.step();
      scope_->names.clear();
      set_name(Syntax::kLoop, self);
      assign(s.target, (*loop.items)[loop.index]);
      if (run_body(s.branches[0].body) == Flow::kBreak) break;
    }
  }
  if (loop.items->empty() && s.branches.size() > 1) return run_body(s.branches[1].body);
  return Flow::kOn;
}

void Interpreter::assign(const Target& target, const Value& value) {
  if (!target.items.empty()) {
    need_defined(rt_, value);
    const std::vector<Value>& items = items_of(rt_, value);
    if (items.size() != target.items.size()) {
      rt_.fail("{} values for {} names", items.size(), target.items.size());
    }
    for (size_t i = 0; i < items.size(); ++i) assign(target.items[i], items[i]);
    return;
  }
  if (target.attribute.empty()) return set_name(target.name, value);
  const Value* space = find_name(target.name);
  if (space == nullptr || !space->is(Kind::kNamespace)) {
    rt_.fail("cannot assign to an attribute of '{}': it is no namespace",
             syntax_.names[target.name]);
  }
  rt_.step(1 + static_cast<int64_t>(space->space->items.size()) / 8);
  for (auto& [name, old] : space->space->items) {
    if (name == target.attribute) {
      old = value;
      return;
    }
  }
  rt_.take(sizeof(Value));
  space->space->items.emplace_back(target.attribute, value);
}

Value Interpreter::capture(const Body& body) {
  const ScopeGuard guard(this, scope_);
  std::string text;
  std::string* const before = std::exchange(out_, &text);
  ++captures_;
  run_body(body);
  --captures_;
  out_ = before;
  return rt_.text(std::move(text));
}

void Interpreter::run_set_block(const Statement& s) {
  const Value text = capture(s.branches[0].body);
  assign(s.target, s.value == nullptr ? text : evaluate_filter(*s.value, &text));
}

Interpreter::Flow Interpreter::run_with(const Statement& s) {
  std::vector<Value> values;
  for (const auto& with : s.withs) values.push_back(evaluate(*with.second));
  const ScopeGuard guard(this, scope_);
  for (size_t i = 0; i < values.size(); ++i) assign(s.withs[i].first, values[i]);
  return run_body(s.branches[0].body);
}

void Interpreter::run_generation(const Statement& s) {
  if (want_generations_ && captures_ > 0) {
    rt_.fail(
        "{{% generation %}} within a macro or a block that is not printed at once: its place "
        "in the text can not be told");
  }
  const ScopeGuard guard(this, scope_);
  const int64_t begin = static_cast<int64_t>(out_->size());
  run_body(s.branches[0].body);
  if (want_generations_ && captures_ == 0 && static_cast<int64_t>(out_->size()) > begin) {
    generations_.emplace_back(begin, static_cast<int64_t>(out_->size()));
  }
}

}  // namespace moraine::jinja
