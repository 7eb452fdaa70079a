// HttpParser: the bytes of one request, in pieces of any size, as an HttpRequest.
//
//   header  request line and fields; feed stops behind them, so that the caller can refuse
//   body    by content-length or chunked; fields behind the last chunk are dropped
//
// Errors:  none are thrown. failed_status() is the answer that the client gets: 400, 413, 414, 431,
//          501 or 505; failure() says what was wrong.
// Memory:  the body, and at most limits.header_bytes that are not a whole line yet.
// Source:  Boost.Beast's parser (RFC 9112, strict: no bare line feeds, no length beside chunks).
#pragma once

#include <cstdint>
#include <memory>
#include <string>
#include <string_view>

#include "server/http_message.h"
#include "server/limits.h"

namespace moraine {

class HttpParser {
 public:
  explicit HttpParser(const Limits& limits);
  ~HttpParser();

  enum class Stage { kHeader, kBody, kDone, kFailed };
  Stage stage() const;
  // Takes what it can of `bytes` and returns how many; the rest must come again, with more behind
  // it. Stops where the stage changes from kHeader.
  int64_t feed(std::string_view bytes);

  // Once the stage is behind kHeader.
  HttpRequest& request();
  bool keep_alive() const;
  bool http_1_0() const;
  bool expects_continue() const;
  int64_t body_bytes() const;  // so far

  // Once the stage is kFailed.
  int failed_status() const;
  const std::string& failure() const;

 private:
  struct State;
  std::unique_ptr<State> state_;
};

}  // namespace moraine
