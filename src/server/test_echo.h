// Echo: an HTTP server in this process whose handler answers with what it was asked, or holds it.
#pragma once

#include <future>
#include <memory>
#include <mutex>
#include <optional>
#include <string>
#include <thread>

#include "server/http_server.h"
#include "server/test_client.h"

namespace moraine::testing {

// Answers with method, path and body; holds what it is told to.
class Echo {
 public:
  explicit Echo(const Limits& limits = {}, double drain_seconds = 30, double stream_seconds = 0,
                double stream_share = 1e-12) {
    HttpOptions options;
    options.limits = limits;
    options.drain_seconds = drain_seconds;
    options.stream_seconds = stream_seconds;
    options.stream_share = stream_share;  // tiny: as often as stream_seconds says
    HttpHooks hooks;
    hooks.admit = [this](const HttpRequest& head) -> std::optional<HttpResponse> {
      if (head.path == "/refused" || server->draining())
        return HttpResponse{.status = server->draining() ? 503 : 401, .body = "no"};
      return std::nullopt;
    };
    hooks.refuse = [](int status, const std::string& message) {
      return HttpResponse{.status = status, .body = message};
    };
    hooks.handle = [this](std::shared_ptr<HttpExchange> exchange) { handle(exchange); };
    server = std::make_unique<HttpServer>(options, hooks);
    thread = std::thread([this] { cut = server->run(); });
  }
  ~Echo() {
    server->drain();
    if (held) held->end();
    held = nullptr;
    thread.join();
  }
  // Of an answer that goes on until it is told to end: its head.
  std::string begin_stream(TestClient& client) {
    client.send("GET /stream HTTP/1.1\r\nhost: a\r\n\r\n");
    began.get_future().wait();
    const std::string head = client.until("\r\n\r\n");
    TestClient(port()).get(
        "/");  // the thread has been elsewhere, so nothing goes out with the head
    return head;
  }
  void handle(const std::shared_ptr<HttpExchange>& exchange) {
    const HttpRequest& r = exchange->request();
    if (r.path == "/drop") return;
    if (r.path == "/hold" || r.path == "/stream") {
      exchange->on_gone([this](Delivery) { gone.set_value(); });
      if (r.path == "/stream")
        exchange->start_stream({.content_type = "text/event-stream"}, ": ping\n\n");
      std::lock_guard lock(mutex);
      body = exchange->take_body();
      held = exchange;
      began.set_value();
      return;
    }
    exchange->respond({.body = r.method + " " + r.path + " " + r.body});
  }
  // On the io thread.
  template <class F>
  auto ask(F f) {
    std::promise<decltype(f())> answer;
    server->post([&] { answer.set_value(f()); });
    return answer.get_future().get();
  }
  HttpCounts counts() {
    return ask([this] { return server->counts(); });
  }
  int64_t port() const { return server->port(); }

  std::unique_ptr<HttpServer> server;
  std::thread thread;
  std::mutex mutex;
  std::shared_ptr<HttpExchange> held;
  std::string body;  // of the held one
  std::promise<void> began, gone;
  int64_t cut = 0;
};

}  // namespace moraine::testing
