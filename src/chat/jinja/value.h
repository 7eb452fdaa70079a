// Value: what an expression of a template is while it runs.
//
// Values are small and copied; what they point to belongs to the Runtime (chat/jinja/runtime.h), the
// template or the conversation, lives until the end of the render, and does not change after it was made,
// except a namespace: so there are no cycles but through one.
// Text is valid UTF-8; positions and lengths that templates see count code points.
#pragma once

#include <cstdint>
#include <string_view>
#include <utility>
#include <vector>

namespace moraine::jinja {

struct BuiltIn;
struct Function;
struct LoopState;
struct MacroSyntax;
struct Scope;
struct Value;

struct List {
  std::vector<Value> items;
  bool tuple = false;
};

// Keys in the order in which they came; searched one by one.
struct Dict {
  std::vector<std::pair<Value, Value>> items;
};

struct Namespace {
  std::vector<std::pair<std::string_view, Value>> items;
};

enum class Kind : uint8_t {
  kUndefined,  // text: what is not there, for messages
  kNone,
  kBool,
  kInt,
  kFloat,
  kText,
  kList,
  kDict,
  kNamespace,
  kFunction,
  kLoop,
};

struct Value {
  Kind kind = Kind::kUndefined;
  union {
    bool boolean;
    int64_t integer = 0;
    double real;
    const List* list;
    const Dict* dict;
    Namespace* space;
    const Function* function;
    LoopState* loop;
  };
  std::string_view text;

  static Value undefined(std::string_view what) { return of_text(what, Kind::kUndefined); }
  static Value none() { return of_kind(Kind::kNone); }
  static Value of_bool(bool b) {
    Value v = of_kind(Kind::kBool);
    v.boolean = b;
    return v;
  }
  static Value of_int(int64_t i) {
    Value v = of_kind(Kind::kInt);
    v.integer = i;
    return v;
  }
  static Value of_float(double f) {
    Value v = of_kind(Kind::kFloat);
    v.real = f;
    return v;
  }
  static Value of_text(std::string_view text, Kind kind = Kind::kText) {
    Value v = of_kind(kind);
    v.text = text;
    return v;
  }
  static Value of_list(const List* list) {
    Value v = of_kind(Kind::kList);
    v.list = list;
    return v;
  }
  static Value of_dict(const Dict* dict) {
    Value v = of_kind(Kind::kDict);
    v.dict = dict;
    return v;
  }
  static Value of_function(const Function* function) {
    Value v = of_kind(Kind::kFunction);
    v.function = function;
    return v;
  }

  bool is(Kind k) const { return kind == k; }
  bool is_number() const {
    return kind == Kind::kInt || kind == Kind::kFloat || kind == Kind::kBool;
  }
  bool is_whole() const { return kind == Kind::kInt || kind == Kind::kBool; }
  int64_t whole() const { return kind == Kind::kBool ? boolean : integer; }
  double number() const { return kind == Kind::kFloat ? real : static_cast<double>(whole()); }

 private:
  static Value of_kind(Kind kind) {
    Value v;
    v.kind = kind;
    return v;
  }
};

// What a template can call.
struct Function {
  const BuiltIn* built_in = nullptr;  // or a macro, or a loop that calls itself
  Value self = {};
  const MacroSyntax* macro = nullptr;
  Scope* scope = nullptr;  // around the macro
  LoopState* loop = nullptr;
  Namespace* state = nullptr;  // of a joiner
};

// What stands between the parentheses of a call.
struct Arguments {
  std::vector<Value> items;
  std::vector<std::pair<std::string_view, Value>> named;
};

}  // namespace moraine::jinja
