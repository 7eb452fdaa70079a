// Function: what a template can call.
#pragma once

#include <string_view>

#include "chat/jinja/runtime.h"
#include "chat/jinja/value.h"

namespace moraine::jinja {

// Arguments after they were given their places: absent ones are not `given`.
struct Bound {
  static constexpr int kMost = 5;
  Value values[kMost];
  bool given[kMost] = {};
};

// What is built in. `parameters`: names with spaces between, of arguments that may be left out after "|".
// The first argument of a filter, and of a method, is the value that it is called on.
struct BuiltIn {
  std::string_view name;
  std::string_view parameters;  // "*": not bound, `raw` is called
  Value (*run)(Runtime& rt, const Value& self, const Bound& a) = nullptr;
  Value (*raw)(Runtime& rt, const Value& self, const Arguments& a) = nullptr;
};

// Errors: kInvalidArgument for an argument too many, too few or of an unknown name.
Bound bind_arguments(Runtime& rt, const BuiltIn& f, const Arguments& a);
Value call_built_in(Runtime& rt, const BuiltIn& f, const Value& self, const Arguments& a);

// Filters and tests by name; null if there is none.
const BuiltIn* find_filter(std::string_view name);
const BuiltIn* find_test(std::string_view name);
// range, namespace, raise_exception, ...; undefined if there is none.
const BuiltIn* find_global(std::string_view name);
// A method of this value: "strip" of a text. Null if it has none.
const BuiltIn* find_method(const Value& self, std::string_view name);

[[noreturn]] void fail_unknown(Runtime& rt, const char* what, std::string_view name);
// The text of argument `index`, for those that must be one.
std::string_view text_argument(Runtime& rt, const BuiltIn& f, const Bound& a, int index);

}  // namespace moraine::jinja
