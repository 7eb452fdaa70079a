// HttpMessage: a request and an answer as values, without sockets.
#pragma once

#include <string>
#include <string_view>
#include <utility>
#include <vector>

namespace moraine {

using HttpFields = std::vector<std::pair<std::string, std::string>>;

struct HttpRequest {
  std::string method;  // "GET"
  std::string path;    // "/v1/models", as sent: percent signs are not decoded
  std::string query;   // after the question mark
  HttpFields fields;   // names in lower case
  std::string body;
  std::string peer;  // address of the client, for the log

  // The first field of this name (lower case); empty if there is none.
  std::string_view field(std::string_view name) const;
};

struct HttpResponse {
  int status = 200;
  std::string content_type = "application/json";  // empty: no body
  std::string body = {};
  HttpFields fields = {};  // others than type, length, connection
};

const char* http_reason(int status);            // "Not Found"
std::string lower_case(std::string_view text);  // ASCII

}  // namespace moraine
