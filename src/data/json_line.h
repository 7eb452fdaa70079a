// JsonLine: one text field of one line of a .jsonl file.
//
// Errors: kInvalidArgument, with `where` (path and line) in front: not JSON, not an object, field
//         missing (the nearest name is given) or not a string.
// The whole line is checked, not only the part before the field.
#pragma once

#include <memory>
#include <string>
#include <string_view>

namespace moraine {

class JsonDocument;  // base/json_document.h

class JsonLine {
 public:
  JsonLine();
  ~JsonLine();
  JsonLine(const JsonLine&) = delete;
  JsonLine& operator=(const JsonLine&) = delete;

  // The decoded string at `field` of the object in `line`; the first, if it is given twice.
  std::string field(std::string_view line, const std::string& field, const std::string& where);

 private:
  std::unique_ptr<JsonDocument> document_;
};

}  // namespace moraine
