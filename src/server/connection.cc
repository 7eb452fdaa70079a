// Connection: what each event does in each stage.
#include "server/connection.h"

#include <fmt/compile.h>
#include <fmt/format.h>

#include <algorithm>
#include <iterator>
#include <utility>

#include "base/clock.h"

namespace moraine {
namespace {

constexpr double kLingerSeconds = 2;  // for a client to read why it was refused

}  // namespace

Connection::Connection(ConnectionHost& host, std::unique_ptr<ClientWire> wire)
    : host_(host), wire_(std::move(wire)) {}

Connection::~Connection() { forget_body(); }

void Connection::start() {
  idle_since_ = now_seconds();
  arm();
  wire_->open([self = shared_from_this()](bool opened) {
    if (self->stage_ == Stage::kClosed) return;
    if (!opened) return self->close();
    self->begin_request();
    self->read_more();
  });
}

void Connection::close() {
  if (stage_ == Stage::kClosed) return;
  stage_ = Stage::kClosed;
  forget_body();
  if (counted_) --host_.working;
  counted_ = false;
  wire_->set_timer(-1, {});
  wire_->close();
  const Delivery how = unread_ ? Delivery::kUnread : Delivery::kGone;
  const std::function<void(Delivery)> gone = std::exchange(gone_, nullptr),
                                      became = std::exchange(became_, nullptr);
  if (gone) gone(how);
  if (became) became(how);
  host_.closed(this);
}

void Connection::drain() {
  if (idle() && !begun_) close();
}

void Connection::forget_body() {
  host_.bodies_bytes -= body_bytes_;
  body_bytes_ = 0;
}

void Connection::begin_request() {
  stage_ = Stage::kHeader;
  idle_since_ = now_seconds();
  parser_.emplace(host_.limits);
  begun_ = !input_.empty();
  head_only_ = keep_alive_ = chunked_ = answering_ = streaming_ = answered_ = false;
  ping_.clear();
  origin_.clear();
  arm();
  advance();
}

void Connection::read_more() {
  if (reading_ || stage_ == Stage::kClosed) return;
  reading_ = true;
  wire_->read(chunk_, [self = shared_from_this()](int64_t bytes) {
    self->reading_ = false;
    self->took(bytes);
  });
}

void Connection::took(int64_t bytes) {
  if (stage_ == Stage::kClosed) return;
  if (bytes == 0 && stage_ == Stage::kWork && answered_) {
    keep_alive_ = false;  // it may still read the answer
    return;
  }
  if (bytes <= 0) return close();
  if (stage_ != Stage::kLinger) {
    input_.append(chunk_.data(), static_cast<size_t>(bytes));
    if (stage_ == Stage::kWork) {
      if (static_cast<int64_t>(input_.size()) > host_.limits.pipelined_bytes) return close();
    } else {
      if (!begun_) {
        begun_ = true;
        arm();
      }
      advance();
    }
  }
  read_more();
}

void Connection::advance() {
  while (!input_.empty() && (stage_ == Stage::kHeader || stage_ == Stage::kBody)) {
    const Stage before = stage_;
    const int64_t used = parser_->feed(input_);
    input_.erase(0, static_cast<size_t>(used));
    if (parser_->stage() == HttpParser::Stage::kFailed)
      return refuse(parser_->failed_status(), parser_->failure());
    if (stage_ == Stage::kHeader && parser_->stage() != HttpParser::Stage::kHeader) header_done();
    if (stage_ == Stage::kBody) body_grew();
    if (used == 0 && stage_ == before) return;
  }
}

void Connection::header_done() {
  const HttpRequest& request = parser_->request();
  parser_->request().peer = wire_->peer();
  origin_ = request.field("origin");
  head_only_ = request.method == "HEAD";
  keep_alive_ = parser_->keep_alive();
  if (!parser_->http_1_0() && request.field("host").empty())
    return refuse(400, "the request has no host field");
  const std::string_view encoding = request.field("content-encoding");
  if (!encoding.empty() && encoding != "identity")
    return refuse(415, "the request's body has a content-encoding; wanted none");
  const std::string_view expect = request.field("expect");
  if (!expect.empty() && !parser_->expects_continue())
    return refuse(417, "the request expects something else than 100-continue");
  if (const std::optional<HttpResponse> refusal = host_.admit(request)) {
    if (parser_->stage() != HttpParser::Stage::kDone) return refuse_with(*refusal);
    stage_ = Stage::kWork;  // no body follows: the connection goes on
    return respond(*refusal);
  }
  if (parser_->stage() == HttpParser::Stage::kDone) return begin_work();
  stage_ = Stage::kBody;
  arm();
  if (parser_->expects_continue() && input_.empty()) send("HTTP/1.1 100 Continue\r\n\r\n");
}

void Connection::body_grew() {
  const int64_t bytes = parser_->body_bytes();
  host_.bodies_bytes += bytes - body_bytes_;
  body_bytes_ = bytes;
  if (host_.bodies_bytes > host_.limits.bodies_bytes)
    return refuse(503, "the server holds as many bytes of requests as it may; try again later");
  if (parser_->stage() == HttpParser::Stage::kDone) begin_work();
}

void Connection::begin_work() {
  stage_ = Stage::kWork;
  ++host_.working;
  counted_ = true;
  arm();
  host_.handle(std::make_shared<HttpExchange>(std::move(parser_->request()), weak_from_this(),
                                              host_.post, host_.here));
}

void Connection::refuse(int status, const std::string& message) {
  refuse_with(host_.refuse(status, message));
}

// The rest of the request is not read as one: the connection ends.
void Connection::refuse_with(const HttpResponse& response) {
  stage_ = Stage::kWork;
  keep_alive_ = false;
  input_.clear();
  forget_body();
  respond(response);
}

void Connection::on_gone(std::function<void(Delivery)> gone) {
  if (stage_ == Stage::kClosed) return gone(unread_ ? Delivery::kUnread : Delivery::kGone);
  if (stage_ == Stage::kWork && !answered_) gone_ = std::move(gone);
}

void Connection::send_head(const HttpResponse& response, int64_t length) {
  if (host_.draining) keep_alive_ = false;
  std::string head =
      fmt::format("HTTP/1.1 {} {}\r\n", response.status, http_reason(response.status));
  if (!response.content_type.empty()) head += "content-type: " + response.content_type + "\r\n";
  for (const auto& [name, value] : response.fields) head += name + ": " + value + "\r\n";
  if (host_.extra_fields) {
    for (const auto& [name, value] : host_.extra_fields(origin_))
      head += name + ": " + value + "\r\n";
  }
  if (length >= 0 && response.status != 204) head += fmt::format("content-length: {}\r\n", length);
  if (chunked_) head += "transfer-encoding: chunked\r\n";
  if (!keep_alive_) {
    head += "connection: close\r\n";
  } else if (parser_->http_1_0()) {
    head += "connection: keep-alive\r\n";
  }
  send(head + "\r\n");
}

void Connection::respond(const HttpResponse& response, std::function<void(Delivery)> became) {
  if (stage_ != Stage::kWork) {
    if (became) became(unread_ ? Delivery::kUnread : Delivery::kGone);
    return;
  }
  if (answering_) return;
  answering_ = answered_ = true;
  became_ = std::move(became);
  forget_body();
  gone_ = nullptr;
  send_head(response, static_cast<int64_t>(response.body.size()));
  if (!head_only_) send(response.body);
}

void Connection::start_stream(const HttpResponse& head, std::string ping) {
  if (stage_ != Stage::kWork || answering_) return;
  answering_ = streaming_ = true;
  forget_body();
  chunked_ = !parser_->http_1_0();
  if (!chunked_) keep_alive_ = false;
  ping_ = std::move(ping);
  send_head(head, -1);
}

void Connection::stream(std::string_view bytes) {
  if (stage_ != Stage::kWork || !streaming_ || answered_ || bytes.empty() || head_only_) return;
  // What waits already: one event may be longer, as the echo of a long prompt with its log-probabilities.
  if (static_cast<int64_t>(output_.size()) > host_.limits.output_bytes) {
    streaming_ = false;  // nothing behind what is left out, and no end
    unread_ = true;
    return host_.post([self = shared_from_this()] { self->close(); });  // not in the writer's midst
  }
  if (chunked_) fmt::format_to(std::back_inserter(output_), FMT_COMPILE("{:x}\r\n"), bytes.size());
  output_ += bytes;
  if (chunked_) output_ += "\r\n";
  if (unsent_ || !writing_.empty()) return;
  unsent_ = true;
  host_.unsent(shared_from_this());
}

// Most of what a stream sends goes at once, and then nothing waits for it.
void Connection::flush() {
  unsent_ = false;
  if (stage_ == Stage::kClosed || !writing_.empty() || output_.empty()) return;
  output_.erase(0, static_cast<size_t>(wire_->write_now(output_)));
  if (!output_.empty()) return write_more();
  arm();
}

void Connection::end_stream(std::function<void(Delivery)> became) {
  if (stage_ != Stage::kWork) {
    if (became) became(unread_ ? Delivery::kUnread : Delivery::kGone);
    return;
  }
  if (answered_) return;
  became_ = std::move(became);
  if (!streaming_) return;  // it is about to be closed
  answered_ = true;
  gone_ = nullptr;
  if (chunked_ && !head_only_) send("0\r\n\r\n");
  if (writing_.empty()) write_more();
}

void Connection::send(std::string_view bytes) {
  if (stage_ == Stage::kClosed) return;
  output_ += bytes;
  if (writing_.empty()) write_more();
}

void Connection::write_more() {
  if (written_ == writing_.size()) {
    writing_.clear();
    written_ = 0;
    std::swap(writing_, output_);
  }
  arm();
  if (writing_.empty()) {
    if (answered_) answer_done();
    return;
  }
  wire_->write(std::string_view(writing_).substr(written_),
               [self = shared_from_this()](int64_t bytes) {
                 if (self->stage_ == Stage::kClosed) return;
                 if (bytes <= 0) return self->close();
                 self->written_ += static_cast<size_t>(bytes);
                 self->write_more();
               });
}

void Connection::answer_done() {
  if (counted_) --host_.working;
  counted_ = false;
  if (const auto became = std::exchange(became_, nullptr)) became(Delivery::kTaken);
  if (stage_ != Stage::kWork) return;
  const bool rest = host_.draining && input_.empty();
  if (keep_alive_ && !rest) return begin_request();
  stage_ = Stage::kLinger;
  wire_->end_output([self = shared_from_this()] {});
  arm();
  read_more();
}

// One timer serves all stages: nothing is read for long while an answer goes out.
void Connection::arm() {
  const Limits& limits = host_.limits;
  double seconds = -1;
  switch (stage_) {
    case Stage::kOpening:
      seconds = limits.handshake_seconds;
      break;
    case Stage::kHeader:
      seconds = begun_ ? limits.header_seconds : limits.idle_seconds;
      break;
    case Stage::kBody:
      seconds = limits.body_seconds;
      break;
    case Stage::kWork:
      if (!writing_.empty()) {
        seconds = limits.write_seconds;
      } else if (streaming_ && !answered_) {
        seconds = limits.ping_seconds;
      }
      break;
    case Stage::kLinger:
      seconds = kLingerSeconds;
      break;
    case Stage::kClosed:
      return;
  }
  deadline_ = seconds < 0 ? HUGE_VAL : now_seconds() + seconds;
  if (deadline_ < rings_at_) ring_at_deadline();
}

// A stream moves its deadline with each token, and the timer only when it rings.
void Connection::ring_at_deadline() {
  rings_at_ = deadline_;
  wire_->set_timer(deadline_ - now_seconds(), [self = shared_from_this()] {
    self->rings_at_ = HUGE_VAL;
    if (self->stage_ == Stage::kClosed) return;
    if (now_seconds() >= self->deadline_) return self->timer_rang();
    if (self->deadline_ < HUGE_VAL) self->ring_at_deadline();
  });
}

void Connection::timer_rang() {
  if (stage_ == Stage::kHeader && begun_)
    return refuse(408, "the request's header did not arrive in time");
  if (stage_ == Stage::kBody) return refuse(408, "the request's body did not arrive in time");
  if (stage_ == Stage::kWork && writing_.empty() && streaming_ && !answered_) {
    stream(ping_);
    return;
  }
  unread_ = stage_ == Stage::kWork;
  close();
}

}  // namespace moraine
