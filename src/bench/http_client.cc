// A blocking socket, and as much of HTTP/1.1 as our own server answers with.
#include "bench/http_client.h"

#include <fmt/format.h>
#include <netdb.h>
#include <netinet/in.h>
#include <netinet/tcp.h>
#include <sys/socket.h>
#include <unistd.h>

#include <algorithm>
#include <cctype>
#include <cerrno>
#include <charconv>
#include <cstring>
#include <memory>

#include "base/error.h"

namespace moraine {
namespace {

constexpr size_t kHeadMost = 1 << 16;

// A number at the beginning of text; false if there is none.
bool parse_number(std::string_view text, int base, size_t* value) {
  const auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), *value, base);
  return error == std::errc() && end != text.data();
}

// The value of a field of a head in lower case; "" if it has none.
std::string_view field_of(std::string_view head, std::string_view name) {
  const std::string key = fmt::format("\r\n{}:", name);
  const size_t at = head.find(key);
  if (at == std::string_view::npos) return "";
  std::string_view value = head.substr(at + key.size());
  value = value.substr(0, value.find("\r\n"));
  value.remove_prefix(std::min(value.find_first_not_of(' '), value.size()));
  return value;
}

}  // namespace

ServerUrl parse_server_url(const std::string& url) {
  const auto refuse = [&](const char* why) {
    throw_error(Code::kInvalidArgument, "--url {}: {}; wanted http://HOST:PORT", url, why);
  };
  std::string_view rest = url;
  if (!rest.starts_with("http://"))
    refuse(rest.starts_with("https://") ? "TLS is not spoken here" : "it begins with no http://");
  rest.remove_prefix(std::strlen("http://"));
  if (rest.ends_with('/')) rest.remove_suffix(1);
  for (const char c : rest) {
    if (c <= ' ' || c > '~' || c == '/' || c == '?' || c == '#' || c == '@')
      refuse("there is more than a host and a port in it");
  }
  const size_t bracket = rest.starts_with('[') ? rest.find(']') : 0;
  if (bracket == std::string_view::npos) refuse("its host has no closing bracket");
  const size_t colon = rest.find(':', bracket);
  ServerUrl server{.host = std::string(rest.substr(0, colon)),
                   .port = "80",
                   .authority = std::string(rest),
                   .text = url};
  if (bracket > 0) server.host = server.host.substr(1, bracket - 1);
  if (server.host.empty()) refuse("it has no host");
  if (colon != std::string_view::npos) {
    const std::string_view port = rest.substr(colon + 1);
    size_t value = 0;
    const bool digits = !port.empty() && std::all_of(port.begin(), port.end(),
                                                     [](char c) { return c >= '0' && c <= '9'; });
    if (!digits || !parse_number(port, 10, &value) || value < 1 || value > 65535)
      refuse("its port is no number from 1 to 65535");
    server.port = port;
  }
  return server;
}

HttpClient::HttpClient(const ServerUrl& server, const std::string& api_key)
    : server_(server),
      key_line_(api_key.empty() ? "" : fmt::format("authorization: Bearer {}\r\n", api_key)) {}

HttpClient::~HttpClient() {
  if (socket_ >= 0) ::close(socket_);
}

void HttpClient::lost(const char* what) const {
  if (errno == EAGAIN || errno == EWOULDBLOCK)
    throw_error(Code::kTimeout, "{}: nothing came for {} seconds", server_.text, kSilenceSeconds);
  throw_error(Code::kIo, "{}: {}{}{}", server_.text, what, errno != 0 ? ": " : "",
              errno != 0 ? std::strerror(errno) : "");
}

void HttpClient::connect() {
  addrinfo hints{};
  hints.ai_socktype = SOCK_STREAM;
  addrinfo* found = nullptr;
  const int status = ::getaddrinfo(server_.host.c_str(), server_.port.c_str(), &hints, &found);
  if (status != 0)
    throw_error(Code::kIo, "{}: no such host: {}", server_.text, ::gai_strerror(status));
  const std::unique_ptr<addrinfo, void (*)(addrinfo*)> owner(found, ::freeaddrinfo);
  for (const addrinfo* a = found; a != nullptr && socket_ < 0; a = a->ai_next) {
    socket_ = ::socket(a->ai_family, a->ai_socktype | SOCK_CLOEXEC, a->ai_protocol);
    if (socket_ < 0) continue;
    const timeval silence{.tv_sec = kSilenceSeconds, .tv_usec = 0};
    ::setsockopt(socket_, SOL_SOCKET, SO_RCVTIMEO, &silence, sizeof silence);
    const int at_once = 1;
    ::setsockopt(socket_, IPPROTO_TCP, TCP_NODELAY, &at_once, sizeof at_once);
    if (::connect(socket_, a->ai_addr, a->ai_addrlen) == 0) break;
    const int error = errno;
    ::close(socket_);
    socket_ = -1;
    errno = error;
  }
  if (socket_ < 0) lost("no connection");
}

void HttpClient::send(std::string_view bytes) {
  while (!bytes.empty()) {
    const ssize_t sent = ::send(socket_, bytes.data(), bytes.size(), MSG_NOSIGNAL);
    if (sent < 0 && errno == EINTR) continue;
    if (sent <= 0) lost("the request is not taken");
    bytes.remove_prefix(static_cast<size_t>(sent));
  }
}

void HttpClient::receive() {
  char chunk[1 << 16];
  ssize_t got;
  do {
    errno = 0;
    got = ::recv(socket_, chunk, sizeof chunk, 0);
  } while (got < 0 && errno == EINTR);
  if (got <= 0) lost("the answer is cut off");
  buffer_.append(chunk, static_cast<size_t>(got));
}

std::string HttpClient::until(const char* mark) {
  size_t at;
  while ((at = buffer_.find(mark)) == std::string::npos) {
    if (buffer_.size() > kHeadMost)
      throw_error(Code::kIo, "{}: this is no HTTP: wanted a moraine or another OpenAI server",
                  server_.text);
    receive();
  }
  return take(at + std::strlen(mark));
}

std::string HttpClient::take(size_t bytes) {
  while (buffer_.size() < bytes) receive();
  std::string taken = buffer_.substr(0, bytes);
  buffer_.erase(0, bytes);
  return taken;
}

HttpClient::Answer HttpClient::ask(const char* method, const std::string& path,
                                   const std::string& json, const OnBody& on_body) {
  if (socket_ < 0) connect();
  send(
      fmt::format("{} {} HTTP/1.1\r\nhost: {}\r\n{}content-type: application/json\r\n"
                  "content-length: {}\r\n\r\n{}",
                  method, path, server_.authority, key_line_, json.size(), json));
  std::string head = until("\r\n\r\n");
  std::transform(head.begin(), head.end(), head.begin(),
                 [](unsigned char c) { return static_cast<char>(std::tolower(c)); });
  size_t status = 0, bytes = 0;
  if (!head.starts_with("http/1.1 ") ||
      !parse_number(std::string_view(head).substr(9), 10, &status))
    throw_error(Code::kIo, "{}: this is no HTTP/1.1", server_.text);
  Answer answer{.status = static_cast<int>(status), .body = ""};
  const auto heard = [&](std::string piece) {
    if (on_body && answer.status == 200) on_body(piece);
    answer.body += piece;
  };
  if (field_of(head, "transfer-encoding") == "chunked") {
    for (;;) {
      if (!parse_number(until("\r\n"), 16, &bytes))
        throw_error(Code::kIo, "{}: a chunk of the answer has no length", server_.text);
      if (bytes > 0) heard(take(bytes));
      take(2);
      if (bytes == 0) break;
    }
  } else if (parse_number(field_of(head, "content-length"), 10, &bytes)) {
    heard(take(bytes));
  }
  if (field_of(head, "connection") == "close") {
    ::close(socket_);
    socket_ = -1;
    buffer_.clear();
  }
  return answer;
}

}  // namespace moraine
