// JsonFields: the members of one JSON object of a request, each checked as it is read.
//
//   JsonFields fields(json, "");
//   n = fields.integer("n", 1, 1, 128);
//   fields.ignore({"user"}); fields.refuse("suffix", "...");
//   fields.done();        // a member that nobody asked for is an error that names a known one that is near
//
// A member that is null counts as absent, as in the OpenAI protocol.
// Errors: RequestError naming the member, what was found and what is allowed.
#pragma once

#include <cstdint>
#include <initializer_list>
#include <string>
#include <vector>

#include "base/json.h"
#include "server/limits.h"

namespace moraine {

// A request's body. Errors: RequestError for no UTF-8, no JSON, too deep or too many values, no object.
Json parse_body(const std::string& body, const Limits& limits);

class JsonFields {
 public:
  // `place` of the object, for messages: "messages[2]"; empty: the request.
  JsonFields(const Json& object, std::string place);

  const Json* find(const std::string& name);  // nullptr: absent or null
  bool has(const std::string& name) { return find(name) != nullptr; }
  const Json& need(const std::string& name);
  int64_t integer(const std::string& name, int64_t standard, int64_t min, int64_t max);
  double number(const std::string& name, double standard, double min, double max);
  bool boolean(const std::string& name, bool standard);
  std::string text(const std::string& name, const std::string& standard);
  std::string choice(const std::string& name, const std::string& standard,
                     std::initializer_list<const char*> allowed);
  // A string, or an array of at most `most` strings; absent: none.
  std::vector<std::string> texts(const std::string& name, int64_t most);
  const Json* array(const std::string& name, int64_t most);
  const Json* object(const std::string& name);

  // Members that change nothing that this server does.
  void ignore(std::initializer_list<const char*> names);
  // A member that would change the answer in a way that is not there; `harmless` value is let pass.
  void refuse(const std::string& name, const char* why, const Json& harmless = nullptr);
  void done() const;

  std::string place_of(const std::string& name) const;  // "messages[2].role"
  [[noreturn]] void fail(const std::string& name, const std::string& message) const;

 private:
  const Json& object_;
  const std::string place_;
  std::vector<std::string> known_;
};

const char* kind_of(const Json& value);  // "a string"

}  // namespace moraine
