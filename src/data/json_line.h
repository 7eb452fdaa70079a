// JsonLine: one text field of one line of a .jsonl file.
//
// Errors: kInvalidArgument, with `where` (path and line) in front: not JSON, not an object, field
//         missing (the nearest name is given) or not a string.
// Source: simdjson (the whole line is checked, not only the part before the field).
#pragma once

#include <memory>
#include <string>

namespace moraine {

class JsonLine {
 public:
  JsonLine();
  ~JsonLine();
  JsonLine(const JsonLine&) = delete;
  JsonLine& operator=(const JsonLine&) = delete;

  // The decoded string at `field` of the object in `line`. `line` is padded in place and left as it
  // was.
  std::string field(std::string& line, const std::string& field, const std::string& where);

 private:
  struct State;
  std::unique_ptr<State> state_;
};

}  // namespace moraine
