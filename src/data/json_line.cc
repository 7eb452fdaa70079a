// simdjson's document parser on one line; the parser keeps its memory between lines.
#include "data/json_line.h"

#include <simdjson.h>

#include <vector>

#include "base/error.h"
#include "base/nearest.h"

namespace moraine {
namespace {

const char* type_name(simdjson::dom::element_type type) {
  switch (type) {
    case simdjson::dom::element_type::ARRAY:
      return "an array";
    case simdjson::dom::element_type::OBJECT:
      return "an object";
    case simdjson::dom::element_type::STRING:
      return "a string";
    case simdjson::dom::element_type::BOOL:
      return "true or false";
    case simdjson::dom::element_type::NULL_VALUE:
      return "null";
    default:
      return "a number";
  }
}

[[noreturn]] void no_field(const simdjson::dom::object& object, const std::string& field,
                           const std::string& where) {
  std::vector<std::string> names;
  for (const auto member : object) {
    if (names.size() < 64) names.emplace_back(member.key);  // enough to guess from
  }
  const std::string nearest = nearest_name(field, names);
  throw_error(Code::kInvalidArgument,
              "{}: the object has no field '{}'{}; choose the text field by name", where, field,
              nearest.empty() ? "" : ", nearest is '" + nearest + "'");
}

}  // namespace

struct JsonLine::State {
  simdjson::dom::parser parser;
};

JsonLine::JsonLine() : state_(std::make_unique<State>()) {}
JsonLine::~JsonLine() = default;

std::string JsonLine::field(std::string& line, const std::string& field, const std::string& where) {
  const size_t size = line.size();
  line.resize(size + simdjson::SIMDJSON_PADDING, ' ');
  simdjson::dom::element root;
  const simdjson::error_code broken = state_->parser.parse(line.data(), size, false).get(root);
  line.resize(size);
  if (broken != simdjson::SUCCESS) {
    throw_error(Code::kInvalidArgument, "{}: broken JSON ({}); want one object per line", where,
                simdjson::error_message(broken));
  }
  simdjson::dom::object object;
  if (root.get(object) != simdjson::SUCCESS) {
    throw_error(Code::kInvalidArgument, "{}: the line is {}; want one object per line", where,
                type_name(root.type()));
  }
  simdjson::dom::element value;
  if (object.at_key(field).get(value) != simdjson::SUCCESS) no_field(object, field, where);
  std::string_view text;
  if (value.get(text) != simdjson::SUCCESS) {
    throw_error(Code::kInvalidArgument, "{}: field '{}' is {}; want a string", where, field,
                type_name(value.type()));
  }
  return std::string(text);
}

}  // namespace moraine
