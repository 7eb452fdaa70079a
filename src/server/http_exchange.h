// HttpExchange: one request and its answer, whole or as a stream.
//
//   respond                       once, or
//   start_stream write... end     once each, write as often as wanted
//
// An exchange that is dropped without an answer answers 500. Whoever answers may ask what became of it: told
// once, on the io thread, when the system has all of it, or when it is known that it will not get there.
// Threads: any; the calls of one exchange are one after another, and those of one stream on the io thread, where they
//          are done at once, or behind its start all on others. on_gone: before the answer began, or on the io
//          thread; it is called there, once, if the client goes before the answer is complete, never after end or
//          respond.
#pragma once

#include <atomic>
#include <functional>
#include <memory>
#include <string>
#include <string_view>

#include "server/http_message.h"

namespace moraine {

class Connection;

// What became of an answer.
enum class Delivery {
  kTaken,   // the system has all of it
  kGone,    // the client went before
  kUnread,  // the client did not read what it was sent, and was closed
};

class HttpExchange {
 public:
  using Post = std::function<void(std::function<void()>)>;
  // `here`: whether the caller is the io thread.
  HttpExchange(HttpRequest request, std::weak_ptr<Connection> connection, Post post,
               std::function<bool()> here);
  ~HttpExchange();
  HttpExchange(const HttpExchange&) = delete;
  HttpExchange& operator=(const HttpExchange&) = delete;

  const HttpRequest& request() const { return request_; }
  // Whose memory it then is; the limit of all bodies counts it no more.
  std::string take_body();

  void respond(HttpResponse response, std::function<void(Delivery)> became = {});
  // `ping` is sent in silences.
  void start_stream(HttpResponse head, std::string ping);
  void write(std::string_view bytes);
  void end(std::function<void(Delivery)> became = {});
  void on_gone(std::function<void(Delivery)> gone);  // kGone or kUnread

 private:
  HttpRequest request_;
  const std::weak_ptr<Connection> connection_;
  const Post post_;
  const std::function<bool()> here_;
  std::atomic<bool> answered_{false};
};

}  // namespace moraine
