// Connection: HTTP/1.1 over one wire, as a state machine.
//
//   opening  the handshake of TLS
//   header   waits for a request or reads its header    first byte, failed, timer, gone
//   body     reads its body                             complete, failed, timer, gone
//   work     the handler has it; the answer goes out    answered, gone, slow reader
//   linger   the answer was a refusal: what the client still sends is thrown away, so that it
//            reads the answer; then closed
//   closed
//
// While it works, the connection goes on reading: the end of the client is seen at once (on_gone),
// and what it sends ahead is the next request.
// Threads: the io thread.
#pragma once

#include <array>
#include <cmath>
#include <functional>
#include <memory>
#include <optional>
#include <string>

#include "server/client_wire.h"
#include "server/http_exchange.h"
#include "server/http_parser.h"
#include "server/limits.h"

namespace moraine {

// What connections share with their server.
struct ConnectionHost {
  Limits limits;
  HttpExchange::Post post;
  std::function<bool()> here;  // whether the caller is the io thread
  // A header arrived: an answer refuses the request before its body is read.
  std::function<std::optional<HttpResponse>(const HttpRequest& head)> admit;
  std::function<void(std::shared_ptr<HttpExchange>)> handle;
  // The answer to what never became a request; also counts it.
  std::function<HttpResponse(int status, const std::string& message)> refuse;
  // Fields of every answer to a request with this origin field ("" without).
  std::function<HttpFields(const std::string& origin)> extra_fields;
  std::function<void(Connection* connection)> closed;
  // Of a stream that has something to send: flush it when all that is to be done now is done.
  std::function<void(std::shared_ptr<Connection> connection)> unsent;
  bool draining = false;     // no request after the current one
  int64_t bodies_bytes = 0;  // of all connections, until the handler has looked at them
  int64_t working = 0;       // requests whose answer is not complete
};

class Connection : public std::enable_shared_from_this<Connection> {
 public:
  Connection(ConnectionHost& host, std::unique_ptr<ClientWire> wire);
  ~Connection();
  void start();
  void close();
  bool idle() const { return stage_ == Stage::kHeader || stage_ == Stage::kOpening; }
  double idle_since() const { return idle_since_; }
  // Closes now if nothing is under way; else after the answer.
  void drain();

  // The answer, from the exchange.
  void respond(const HttpResponse& response, std::function<void(Delivery)> became = {});
  void start_stream(const HttpResponse& head, std::string ping);
  void stream(std::string_view bytes);
  void end_stream(std::function<void(Delivery)> became);
  void flush();
  void on_gone(std::function<void(Delivery)> gone);

  void forget_body();  // it is the handler's: no longer counted

 private:
  enum class Stage { kOpening, kHeader, kBody, kWork, kLinger, kClosed };

  void begin_request();
  void read_more();
  void took(int64_t bytes);
  void advance();
  void header_done();
  void body_grew();
  void begin_work();
  void refuse(int status, const std::string& message);
  void refuse_with(const HttpResponse& response);
  void send_head(const HttpResponse& response, int64_t length);
  void send(std::string_view bytes);
  void write_more();
  void answer_done();
  void arm();
  void ring_at_deadline();
  void timer_rang();

  ConnectionHost& host_;
  std::unique_ptr<ClientWire> wire_;
  Stage stage_ = Stage::kOpening;
  std::array<char, 16384> chunk_;  // of one read
  bool reading_ = false;
  std::string input_;  // read and not parsed
  std::optional<HttpParser> parser_;
  int64_t body_bytes_ = 0;  // counted in host_.bodies_bytes
  double idle_since_ = 0;
  // Of what the connection waits for; and when the wire's timer rings, which is not later.
  double deadline_ = HUGE_VAL, rings_at_ = HUGE_VAL;

  bool begun_ = false;       // a byte of this request came
  bool head_only_ = false;   // HEAD
  bool keep_alive_ = false;  // after this answer
  bool chunked_ = false;
  bool counted_ = false;  // in host_.working
  bool answering_ = false, streaming_ = false, answered_ = false;
  bool unsent_ = false;  // host_.unsent was told
  std::string ping_;
  std::string origin_;
  bool unread_ = false;  // closed, or about to be, since what was sent is not read
  std::function<void(Delivery)> gone_, became_;
  std::string output_, writing_;  // waiting, and with the wire
  size_t written_ = 0;            // of writing_
};

}  // namespace moraine
