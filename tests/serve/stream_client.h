// StreamClient: a stream as it comes, and what its chunks come to.
#pragma once

#include <string>
#include <vector>

#include "base/json.h"
#include "server/test_client.h"

namespace moraine::testing {

// A stream, event by event, while it runs.
class StreamClient {
 public:
  StreamClient(int64_t port, const std::string& path, const Json& body) : client(port) {
    const std::string text = json_text(body);
    client.send("POST " + path + " HTTP/1.1\r\nhost: localhost\r\ncontent-type: application/json" +
                "\r\ncontent-length: " + std::to_string(text.size()) + "\r\n\r\n" + text);
  }
  // "" at the end of the stream, or of the connection.
  std::string event() {
    if (head.empty()) head = client.until("\r\n\r\n");
    if (head.find("chunked") == std::string::npos) return "";  // refused
    size_t at;
    while ((at = text_.find("\n\n")) == std::string::npos) {
      const std::string size = client.until("\r\n");
      const size_t bytes = size.empty() ? 0 : std::stoul(size, nullptr, 16);
      text_ += client.take(bytes);
      if (!size.empty()) client.take(2);
      if (bytes == 0) {
        whole = !size.empty();
        return "";
      }
    }
    const std::string event = text_.substr(0, at);
    text_.erase(0, at + 2);
    return event;
  }
  TestClient client;
  std::string head;
  bool whole = false;  // the last chunk has come

 private:
  std::string text_;
};

// The JSON of the events; "[DONE]" and comments are none.
inline std::vector<Json> events_of(const std::string& body) {
  std::vector<Json> events;
  for (size_t at = 0; (at = body.find("data: ", at)) != std::string::npos;) {
    const size_t end = body.find("\n\n", at);
    const std::string data = body.substr(at + 6, end - at - 6);
    if (data != "[DONE]") events.push_back(parse_json(data));
    at = end;
  }
  return events;
}

// Adds the list `name` of one chunk to that of the chunks before.
inline void append(const Json& part, const std::string& name, Json* whole) {
  if (!part.is_object() || !part[name].is_array()) return;
  for (const Json& each : part[name]) (*whole)[name].push_back(each);
}

// The choices of /v1/completions that the chunks of a stream come to.
inline Json choices_of(const std::vector<Json>& chunks) {
  Json choices = Json::array();
  for (const Json& chunk : chunks) {
    for (const Json& part : chunk["choices"]) {
      const auto index = part["index"].get<size_t>();
      while (choices.size() <= index) choices.push_back(nullptr);
      Json& choice = choices[index];
      if (choice.is_null()) {
        choice = part;
        continue;
      }
      choice["text"] = choice["text"].get<std::string>() + part["text"].get<std::string>();
      choice["finish_reason"] = part["finish_reason"];
      for (const char* name : {"tokens", "token_logprobs", "top_logprobs", "text_offset"})
        append(part["logprobs"], name, &choice["logprobs"]);
    }
  }
  return choices;
}

}  // namespace moraine::testing
