// HttpExchange: hands the answer over to the io thread.
#include "server/http_exchange.h"

#include "server/connection.h"

namespace moraine {

HttpExchange::HttpExchange(HttpRequest request, std::weak_ptr<Connection> connection, Post post,
                           std::function<bool()> here)
    : request_(std::move(request)),
      connection_(std::move(connection)),
      post_(std::move(post)),
      here_(std::move(here)) {}

HttpExchange::~HttpExchange() {
  if (answered_) return;
  post_([connection = connection_] {
    if (const auto c = connection.lock())
      c->respond({.status = 500, .content_type = "", .body = ""});
  });
}

std::string HttpExchange::take_body() {
  post_([connection = connection_] {
    if (const auto c = connection.lock()) c->forget_body();
  });
  return std::move(request_.body);
}

void HttpExchange::respond(HttpResponse response, std::function<void(Delivery)> became) {
  answered_ = true;
  post_([connection = connection_, response = std::move(response), became = std::move(became)] {
    if (const auto c = connection.lock())
      c->respond(response, became);
    else if (became)
      became(Delivery::kGone);
  });
}

void HttpExchange::start_stream(HttpResponse head, std::string ping) {
  answered_ = true;
  const auto start = [connection = connection_, head = std::move(head), ping = std::move(ping)] {
    if (const auto c = connection.lock()) c->start_stream(head, ping);
  };
  if (here_()) return start();
  post_(start);
}

void HttpExchange::write(std::string_view bytes) {
  if (here_()) {
    if (const auto c = connection_.lock()) c->stream(bytes);
    return;
  }
  post_([connection = connection_, bytes = std::string(bytes)] {
    if (const auto c = connection.lock()) c->stream(bytes);
  });
}

void HttpExchange::end(std::function<void(Delivery)> became) {
  const auto end = [connection = connection_, became = std::move(became)] {
    if (const auto c = connection.lock())
      c->end_stream(became);
    else if (became)
      became(Delivery::kGone);
  };
  if (here_()) return end();
  post_(end);
}

void HttpExchange::on_gone(std::function<void(Delivery)> gone) {
  post_([connection = connection_, gone = std::move(gone)] {
    if (const auto c = connection.lock())
      c->on_gone(gone);
    else
      gone(Delivery::kGone);
  });
}

}  // namespace moraine
