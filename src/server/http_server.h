// HttpServer: listens, and runs every connection on one thread.
//
//   run    takes connections until drain has ended; SIGTERM and SIGINT begin to drain, a second one
//          ends at once
//   drain  requests that arrive are refused by the admit hook (draining() says so), those under way
//          are completed; then, or after so many seconds, all connections are closed
//
// Errors:  kInvalidArgument or kIo from the constructor: an address that is none or is taken, a
//          certificate or key that can not be used.
// Threads: run on one thread, which is the io thread: hooks are called there and must not wait.
//          The others from any thread.
// Cost:    an idle connection is about 20 KiB and no thread; with TLS about 60 KiB.
#pragma once

#include <functional>
#include <memory>
#include <optional>
#include <string>

#include "server/http_exchange.h"
#include "server/http_message.h"
#include "server/limits.h"

namespace moraine {

struct HttpOptions {
  std::string host = "127.0.0.1";  // an address, or a name for one
  int64_t port = 0;                // 0: a free one
  std::string tls_cert, tls_key;   // PEM files; both or none
  double drain_seconds = 30;
  // Streams send together, so often that it takes `stream_share` of the time, and at least every `stream_seconds`.
  double stream_share = 0.01;
  double stream_seconds = 0.02;
  bool handle_signals = false;
  Limits limits;
};

struct HttpHooks {
  std::function<std::optional<HttpResponse>(const HttpRequest& head)> admit;
  std::function<void(std::shared_ptr<HttpExchange>)> handle;
  std::function<HttpResponse(int status, const std::string& message)> refuse;
  std::function<HttpFields(const std::string& origin)> extra_fields = {};  // of every answer
  std::function<void()> draining = {};                                     // it begins
};

struct HttpCounts {
  int64_t connections = 0;  // open
  int64_t working = 0;      // requests whose answer is not complete
  int64_t bodies_bytes = 0;
  int64_t accepted = 0, dropped = 0;  // since the start; dropped: to make room
};

class HttpServer {
 public:
  HttpServer(const HttpOptions& options, HttpHooks hooks);
  ~HttpServer();

  int64_t port() const;
  std::string url() const;  // "http://127.0.0.1:8080"
  bool loopback() const;    // only this machine reaches it
  // Returns how many requests were cut off by the end of the draining time.
  int64_t run();
  // Runs f on the io thread; what is posted earlier, by any thread, runs earlier.
  void post(std::function<void()> f);
  // As post, but the io thread may sleep on until somebody posts or wakes it. Waking costs more than what is queued:
  // once for all tokens of a step, and while streams may not send yet not at all.
  void queue(std::function<void()> f);
  void wake();
  // Calls f on the io thread every so many seconds, until run ends.
  void every(double seconds, std::function<void()> f);
  void drain();
  bool draining() const;
  HttpCounts counts() const;  // on the io thread

 private:
  struct State;
  std::unique_ptr<State> state_;
};

// What the constructor would refuse, for who has much to do before it. Errors: kInvalidArgument.
void check_host(const std::string& host);  // no such host
void check_tls(const HttpOptions&
                   options);  // a certificate or key that can not be used, or one without the other

// Of a server whose tokens have a target: streams rest for half of it at most.
double stream_seconds_within(double stream_seconds, double tpot_seconds);

// Whether `host` is an address of this machine that no other reaches ("localhost", 127.0.0.0/8, ::1).
bool is_loopback(const std::string& host);

}  // namespace moraine
