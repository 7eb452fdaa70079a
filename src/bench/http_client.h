// HttpClient: one connection to a server, one request after the other, with each answer handed on as it comes.
//
// HTTP/1.1 without TLS: answers with a length or in chunks, the connection kept between requests.
// Errors:  kInvalidArgument: a URL that is none; kIo: no such host, no connection, an answer that is cut off or none;
//          kTimeout: nothing came for kSilenceSeconds.
// Threads: one; the hook is called on it.
#pragma once

#include <cstddef>
#include <functional>
#include <string>
#include <string_view>

namespace moraine {

struct ServerUrl {
  std::string host, port;
  std::string authority;  // both as they were written: "[::1]:8080"
  std::string text;       // as given, for messages
};
ServerUrl parse_server_url(const std::string& url);  // "http://127.0.0.1:8080"

class HttpClient {
 public:
  static constexpr int kSilenceSeconds = 300;

  HttpClient(const ServerUrl& server, const std::string& api_key);  // key: "" is none
  ~HttpClient();
  HttpClient(const HttpClient&) = delete;
  HttpClient& operator=(const HttpClient&) = delete;

  struct Answer {
    int status = 0;
    std::string body;
  };
  using OnBody = std::function<void(std::string_view piece)>;

  Answer get(const std::string& path) { return ask("GET", path, "", {}); }
  // on_body hears the body of a 200 as it comes; it is in the answer all the same.
  Answer post(const std::string& path, const std::string& json, const OnBody& on_body = {}) {
    return ask("POST", path, json, on_body);
  }

 private:
  Answer ask(const char* method, const std::string& path, const std::string& json,
             const OnBody& on_body);
  void connect();
  void send(std::string_view bytes);
  void receive();                       // more into buffer_
  std::string until(const char* mark);  // with it
  std::string take(size_t bytes);
  [[noreturn]] void lost(const char* what) const;

  const ServerUrl server_;
  const std::string key_line_;
  int socket_ = -1;
  std::string buffer_;  // received, not taken
};

}  // namespace moraine
