// One document whose memory serves all lines.
#include "data/json_line.h"

#include <vector>

#include "base/error.h"
#include "base/json_document.h"
#include "base/nearest.h"

namespace moraine {
namespace {

[[noreturn]] void no_field(const JsonValue& object, const std::string& field,
                           const std::string& where) {
  std::vector<std::string> names;
  object.members([&](std::string_view name, const JsonValue&) {
    if (names.size() < 64) names.emplace_back(name);  // enough to guess from
  });
  const std::string nearest = nearest_name(field, names);
  throw_error(Code::kInvalidArgument,
              "{}: the object has no field '{}'{}; choose the text's field with --field", where,
              field, nearest.empty() ? "" : ", nearest is '" + nearest + "'");
}

}  // namespace

JsonLine::JsonLine() : document_(std::make_unique<JsonDocument>()) {}
JsonLine::~JsonLine() = default;

std::string JsonLine::field(std::string_view line, const std::string& field,
                            const std::string& where) {
  try {
    document_->parse(line);
  } catch (const Error& e) {
    throw_error(Code::kInvalidArgument, "{}: broken JSON ({}); want one object per line", where,
                e.what());
  }
  const JsonValue& root = document_->root();
  if (!root.is_object()) {
    throw_error(Code::kInvalidArgument, "{}: the line is {}; want one object per line", where,
                root.kind());
  }
  JsonValue value;
  bool there = false;
  root.members([&](std::string_view name, const JsonValue& member) {
    if (there || name != field) return;
    value = member;
    there = true;
  });
  if (!there) no_field(root, field, where);
  if (!value.is_text()) {
    throw_error(Code::kInvalidArgument, "{}: field '{}' is {}; want a string", where, field,
                value.kind());
  }
  return std::string(value.text());
}

}  // namespace moraine
