// Calls: arguments to a macro's names, macros, loops that call themselves.
#include <algorithm>

#include "chat/jinja/interpreter.h"
#include "chat/jinja/operators.h"

namespace moraine::jinja {

Arguments Interpreter::evaluate_arguments(const Expression& e) {
  Arguments a;
  for (size_t i = 1; i < e.items.size(); ++i) a.items.push_back(evaluate(*e.items[i]));
  for (const auto& [name, value] : e.named) a.named.emplace_back(name, evaluate(*value));
  if (e.spread != nullptr) {
    const Value spread = evaluate(*e.spread);
    const std::vector<Value>& more = items_of(rt_, spread);
    rt_.take(static_cast<int64_t>(more.size()) * int64_t{sizeof(Value)});
    a.items.insert(a.items.end(), more.begin(), more.end());
  }
  if (e.spread_named != nullptr) {
    const Value more = evaluate(*e.spread_named);
    if (!more.is(Kind::kDict)) rt_.fail("** wants a dict, not '{}'", kind_name(more));
    for (const auto& [key, value] : more.dict->items) {
      if (!key.is(Kind::kText)) rt_.fail("** wants texts as keys, not '{}'", kind_name(key));
      a.named.emplace_back(key.text, value);
    }
  }
  return a;
}

Value Interpreter::evaluate_call(const Expression& e, const Value* caller) {
  const Value callee = evaluate(*e.items[0]);
  const Arguments arguments = evaluate_arguments(e);
  rt_.at_line(e.line);
  if (callee.is(Kind::kUndefined)) {
    const Expression& what = *e.items[0];
    if (what.kind == Expression::Kind::kAttribute) fail_unknown(rt_, "method", what.text);
    if (what.kind == Expression::Kind::kName) fail_unknown(rt_, "function", what.text);
    fail_undefined(rt_, callee);
  }
  return call(callee, arguments, caller);
}

Value Interpreter::call(const Value& callee, const Arguments& arguments, const Value* caller) {
  if (callee.is(Kind::kLoop) && callee.loop->recursive != nullptr) {
    return call_loop({.loop = callee.loop}, arguments);
  }
  if (!callee.is(Kind::kFunction)) rt_.fail("'{}' can not be called", kind_name(callee));
  const Function& f = *callee.function;
  if (f.macro != nullptr) return call_macro(f, arguments, caller);
  if (f.state != nullptr) return call_built_in(rt_, *f.built_in, callee, arguments);
  return call_built_in(rt_, *f.built_in, f.self, arguments);
}

Value Interpreter::call_loop(const Function& f, const Arguments& arguments) {
  if (arguments.items.size() != 1 || !arguments.named.empty()) {
    rt_.fail("loop() wants the items of the next level");
  }
  const Level level(rt_, &depth_, rt_.limits().depth, "it calls itself, or is nested,");
  std::string text;
  std::string* const before = std::exchange(out_, &text);
  ++captures_;
  Scope* const scope = std::exchange(scope_, f.loop->scope);
  run_for(*f.loop->recursive, arguments.items[0], f.loop->depth + 1);
  scope_ = scope;
  --captures_;
  out_ = before;
  return rt_.text(std::move(text));
}

void Interpreter::bind_macro(const MacroSyntax& macro, const Arguments& a, const Value* caller) {
  const size_t count = macro.parameters.size();
  std::vector<bool> given(count, false);
  for (size_t i = 0; i < std::min(a.items.size(), count); ++i) {
    set_name(macro.parameters[i], a.items[i]);
    given[i] = true;
  }
  if (a.items.size() > count && !macro.uses_varargs) {
    rt_.fail("macro {} takes at most {} arguments, {} are given", macro.name, count,
             a.items.size());
  }
  if (macro.uses_varargs) {
    List* rest = rt_.list();
    rest->tuple = true;
    for (size_t i = count; i < a.items.size(); ++i) rt_.append(rest, a.items[i]);
    set_name(Syntax::kVarargs, Value::of_list(rest));
  }
  Dict* more = rt_.dict();
  for (const auto& [name, value] : a.named) {
    size_t i = 0;
    while (i < count && syntax_.names[macro.parameters[i]] != name) ++i;
    if (i < count && given[i]) rt_.fail("macro {} is given '{}' twice", macro.name, name);
    if (i < count) {
      set_name(macro.parameters[i], value);
      given[i] = true;
    } else if (macro.uses_kwargs) {
      rt_.put(more, Value::of_text(name), value);
    } else {
      rt_.fail("macro {} has no argument '{}'", macro.name, name);
    }
  }
  if (macro.uses_kwargs) set_name(Syntax::kKwargs, Value::of_dict(more));
  if (caller != nullptr && !macro.uses_caller) {
    rt_.fail("macro {} is called with a block and has no caller()", macro.name);
  }
  if (macro.uses_caller && macro.name != "caller") {
    set_name(Syntax::kCaller, caller != nullptr ? *caller : Value::undefined("'caller'"));
  }
  for (size_t i = 0; i < count; ++i) {
    if (given[i]) continue;
    const size_t without = count - macro.defaults.size();
    set_name(macro.parameters[i], i < without ? Value::undefined(syntax_.names[macro.parameters[i]])
                                              : evaluate(*macro.defaults[i - without]));
  }
}

Value Interpreter::call_macro(const Function& f, const Arguments& arguments, const Value* caller) {
  const Level level(rt_, &depth_, rt_.limits().depth, "it calls itself, or is nested,");
  const ScopeGuard guard(this, f.scope);
  bind_macro(*f.macro, arguments, caller);
  std::string text;
  std::string* const before = std::exchange(out_, &text);
  ++captures_;
  run_body(f.macro->body);
  --captures_;
  out_ = before;
  return rt_.text(std::move(text));
}

}  // namespace moraine::jinja
