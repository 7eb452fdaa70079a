// Interpreter: runs a parsed template.
//
// Errors:  kInvalidArgument: what the template does that is unknown or does not go, what it refuses
//          (raise_exception), and limits; with its line.
// Threads: one.
#pragma once

#include <deque>
#include <string>
#include <utility>
#include <vector>

#include "chat/jinja/loop_state.h"
#include "chat/jinja/runtime.h"
#include "chat/jinja/syntax.h"

namespace moraine::jinja {

// Names and what they stand for, within what is around them.
struct Scope {
  Scope* around = nullptr;
  std::vector<std::pair<int32_t, Value>> names;
};

class Interpreter {
 public:
  Interpreter(Runtime& rt, const Syntax& syntax) : rt_(rt), syntax_(syntax) {}

  // `variables` by name; what is left of them over the names of the template is not used.
  std::string run(const Dict& variables);
  // Of {% generation %} blocks: first byte and byte behind, in `run`'s text.
  const std::vector<std::pair<int64_t, int64_t>>& generations() const { return generations_; }
  // {% generation %} in what is not printed at once is an error; otherwise such blocks are ignored.
  void want_generations() { want_generations_ = true; }

 private:
  enum class Flow : uint8_t { kOn, kBreak, kContinue };

  // run_statement.cc
  Flow run_body(const Body& body);
  Flow run_statement(const Statement& s);
  Flow run_if(const Statement& s);
  Flow run_for(const Statement& s, const Value& value, int64_t depth);
  void run_set_block(const Statement& s);
  Flow run_with(const Statement& s);
  void run_generation(const Statement& s);
  void assign(const Target& target, const Value& value);
  Value capture(const Body& body);  // what it prints, in a scope of its own
  const std::vector<Value>& chosen_items(const Statement& s, const Value& value);
  void print(std::string_view text);

  // call.cc
  Value call(const Value& callee, const Arguments& arguments, const Value* caller);
  Value call_macro(const Function& f, const Arguments& arguments, const Value* caller);
  Value call_loop(const Function& f, const Arguments& arguments);
  void bind_macro(const MacroSyntax& macro, const Arguments& arguments, const Value* caller);
  Value evaluate_call(const Expression& e, const Value* caller);
  Arguments evaluate_arguments(const Expression& e);

  // evaluate.cc
  Value evaluate(const Expression& e);
  Value evaluate_kind(const Expression& e);
  Value evaluate_name(const Expression& e);
  Value evaluate_list(const Expression& e);
  Value evaluate_dict(const Expression& e);
  Value evaluate_unary(const Expression& e);
  Value evaluate_binary(const Expression& e);
  Value evaluate_compare(const Expression& e);
  Value evaluate_concat(const Expression& e);
  Value evaluate_filter(const Expression& e, const Value* input);
  Value evaluate_test(const Expression& e);
  Value evaluate_slice(const Expression& e);
  const Value* find_name(int32_t name) const;
  void set_name(int32_t name, const Value& value);

  // A scope within the present one (or within `around`) for as long as this lives.
  class ScopeGuard {
   public:
    ScopeGuard(Interpreter* in, Scope* around) : in_(in), before_(in->scope_) {
      in->rt_.take(sizeof(Scope));
      in->scope_ = &in->scopes_.emplace_back();
      in->scope_->around = around;
    }
    ~ScopeGuard() { in_->scope_ = before_; }
    ScopeGuard(const ScopeGuard&) = delete;
    ScopeGuard& operator=(const ScopeGuard&) = delete;

   private:
    Interpreter* const in_;
    Scope* const before_;
  };

  Runtime& rt_;
  const Syntax& syntax_;
  std::deque<Scope> scopes_;
  std::deque<LoopState> loops_;
  Scope* scope_ = nullptr;
  std::string* out_ = nullptr;  // of the innermost capture
  int64_t depth_ = 0;
  int64_t captures_ = 0;
  bool want_generations_ = false;
  std::vector<std::pair<int64_t, int64_t>> generations_;
};

}  // namespace moraine::jinja
