// Http parser: the only file that includes Boost.Beast.
#include "server/http_parser.h"

#include <fmt/format.h>

#include <boost/beast/core/string.hpp>
#include <boost/beast/http/parser.hpp>
#include <boost/beast/http/string_body.hpp>

namespace moraine {
namespace http = boost::beast::http;

struct HttpParser::State {
  const Limits& limits;
  http::request_parser<http::string_body> parser;
  Stage stage = Stage::kHeader;
  int64_t header_bytes = 0;  // taken
  HttpRequest request;
  int failed_status = 0;
  std::string failure;

  explicit State(const Limits& limits_) : limits(limits_) {
    parser.header_limit(static_cast<uint32_t>(limits.header_bytes + 1));
    parser.body_limit(static_cast<uint64_t>(limits.body_bytes));
    parser.eager(false);
  }

  void fail(int status, std::string text) {
    stage = Stage::kFailed;
    failed_status = status;
    failure = std::move(text);
  }
  void fail_too_large() {
    fail(431, fmt::format("the request's header is larger than {} bytes", limits.header_bytes));
  }
  void fail_by(const boost::system::error_code& error) {
    if (error == http::error::header_limit) return fail_too_large();
    if (error == http::error::body_limit)
      return fail(413,
                  fmt::format("the request's body is larger than {} bytes", limits.body_bytes));
    if (error == http::error::bad_version)
      return fail(505, "the request is not HTTP/1.1 or HTTP/1.0");
    if (error == http::error::bad_transfer_encoding)
      return fail(501, "the request's transfer-encoding is not \"chunked\" alone");
    fail(400, "the request is not HTTP: " + error.message());
  }
  void take_header();
  int64_t feed_header(std::string_view bytes);
  int64_t feed_body(std::string_view bytes);
};

void HttpParser::State::take_header() {
  const auto& message = parser.get();
  int64_t count = 0;
  for (const auto& field : message) {
    if (++count > limits.header_fields)
      return fail(431,
                  fmt::format("the request has more than {} header fields", limits.header_fields));
    request.fields.emplace_back(
        lower_case({field.name_string().data(), field.name_string().size()}),
        std::string(field.value()));
  }
  std::string target(message.target());
  if (static_cast<int64_t>(target.size()) > limits.target_bytes)
    return fail(414,
                fmt::format("the request's target is longer than {} bytes", limits.target_bytes));
  request.method = std::string(message.method_string());
  if (target.compare(0, 7, "http://") == 0 || target.compare(0, 8, "https://") == 0) {
    const size_t path = target.find('/', target.find("//") + 2);
    target = path == std::string::npos ? "/" : target.substr(path);
  }
  if (target.empty() || (target[0] != '/' && target != "*"))
    return fail(400, "the request's target is not a path");
  const size_t mark = target.find('?');
  request.path = target.substr(0, mark);
  if (mark != std::string::npos) request.query = target.substr(mark + 1);
  if (!parser.chunked() && !request.field("transfer-encoding").empty())
    return fail(501, "the request's transfer-encoding is not \"chunked\" alone");
  stage = parser.is_done() ? Stage::kDone : Stage::kBody;
}

int64_t HttpParser::State::feed_header(std::string_view bytes) {
  // The limit holds over all calls: Beast's own holds for what one call sees.
  const int64_t room = limits.header_bytes - header_bytes;
  const std::string_view seen = bytes.substr(0, static_cast<size_t>(room));
  int64_t used = 0;
  boost::system::error_code error;
  while (used < static_cast<int64_t>(seen.size()) && !parser.is_header_done()) {
    const size_t now =
        parser.put(boost::asio::const_buffer(seen.data() + used, seen.size() - used), error);
    used += static_cast<int64_t>(now);
    if (error || now == 0) break;
  }
  header_bytes += used;
  if (error && error != http::error::need_more) {
    fail_by(error);
  } else if (parser.is_header_done()) {
    take_header();
  } else if (seen.size() < bytes.size() || static_cast<int64_t>(bytes.size()) > room) {
    fail_too_large();
  }
  return used;
}

int64_t HttpParser::State::feed_body(std::string_view bytes) {
  int64_t used = 0;
  boost::system::error_code error;
  while (used < static_cast<int64_t>(bytes.size()) && !parser.is_done()) {
    const size_t now =
        parser.put(boost::asio::const_buffer(bytes.data() + used, bytes.size() - used), error);
    used += static_cast<int64_t>(now);
    if (error || now == 0) break;
  }
  if (error && error != http::error::need_more) {
    fail_by(error);
  } else if (parser.is_done()) {
    stage = Stage::kDone;
    request.body = std::move(parser.get().body());
  } else if (static_cast<int64_t>(bytes.size()) - used > limits.header_bytes) {
    fail(400, "a chunk of the request's body begins with a line that does not end");
  }
  return used;
}

HttpParser::HttpParser(const Limits& limits) : state_(std::make_unique<State>(limits)) {}
HttpParser::~HttpParser() = default;

HttpParser::Stage HttpParser::stage() const { return state_->stage; }

int64_t HttpParser::feed(std::string_view bytes) {
  if (state_->stage == Stage::kHeader) return state_->feed_header(bytes);
  if (state_->stage == Stage::kBody) return state_->feed_body(bytes);
  return 0;
}

HttpRequest& HttpParser::request() { return state_->request; }
bool HttpParser::keep_alive() const { return state_->parser.get().keep_alive(); }
bool HttpParser::http_1_0() const { return state_->parser.get().version() < 11; }

bool HttpParser::expects_continue() const {
  return boost::beast::iequals(state_->parser.get()[http::field::expect], "100-continue");
}

int64_t HttpParser::body_bytes() const {
  return static_cast<int64_t>(state_->stage == Stage::kDone ? state_->request.body.size()
                                                            : state_->parser.get().body().size());
}

int HttpParser::failed_status() const { return state_->failed_status; }
const std::string& HttpParser::failure() const { return state_->failure; }

}  // namespace moraine
