// PythonText: values and characters written as Python writes them.
//
// Errors: kInvalidArgument for values nested past Limits::value_depth.
#pragma once

#include <string>
#include <string_view>
#include <vector>

#include "chat/jinja/runtime.h"
#include "chat/jinja/value.h"

namespace moraine::jinja {

// What {{ value }} prints: str().
std::string_view to_text(Runtime& rt, const Value& value);
// repr() at the end of `out`.
void add_repr(TextBuilder* out, Runtime& rt, const Value& value, int64_t depth = 0);
std::string float_text(double value);  // the shortest that reads back

struct JsonStyle {
  bool ensure_ascii = false;
  bool sort_keys = false;
  bool lines = false;  // an item on each line
  std::string_view indent;
  std::string_view item_separator = ", ";
  std::string_view key_separator = ": ";
};
// As Python's json.dumps.
void add_json(TextBuilder* out, Runtime& rt, const Value& value, const JsonStyle& style,
              int64_t depth = 0);

// Where white space as Python's str.strip sees it begins and ends.
std::string_view strip_left(std::string_view text);
std::string_view strip_right(std::string_view text);
// The same for any of these characters.
std::string_view strip_left(std::string_view text, std::string_view characters);
std::string_view strip_right(std::string_view text, std::string_view characters);
bool is_python_space(int32_t code_point);

int64_t count_characters(std::string_view text);
// The bytes of characters [begin, end); 0 <= begin <= end <= count.
std::string_view characters(std::string_view text, int64_t begin, int64_t end);

// Letters: all of Unicode that has one-to-one pairs, sharp s and such stay.
std::string to_lower(std::string_view text);
std::string to_upper(std::string_view text);
bool is_letter_or_digit(int32_t code_point);

// "%s of %d" % arguments. Errors: kInvalidArgument for an unknown conversion or too few arguments.
Value percent_format(Runtime& rt, std::string_view format, const std::vector<Value>& arguments);

}  // namespace moraine::jinja
