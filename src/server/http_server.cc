// Http server: the only file that includes Boost.Asio's sockets and OpenSSL's streams.
#include "server/http_server.h"

#include <fmt/format.h>
#include <sys/resource.h>
#include <sys/socket.h>

#include <algorithm>
#include <boost/asio/buffer.hpp>
#include <boost/asio/io_context.hpp>
#include <boost/asio/ip/tcp.hpp>
#include <boost/asio/post.hpp>
#include <boost/asio/signal_set.hpp>
#include <boost/asio/ssl/context.hpp>
#include <boost/asio/ssl/stream.hpp>
#include <boost/asio/steady_timer.hpp>
#include <csignal>
#include <thread>
#include <unordered_map>

#include "base/check.h"
#include "base/clock.h"
#include "base/error.h"
#include "base/log.h"
#include "server/connection.h"

namespace moraine {
namespace {

namespace asio = boost::asio;
using tcp = asio::ip::tcp;
using ErrorCode = boost::system::error_code;
using Clock = std::chrono::steady_clock;

Clock::duration to_duration(double seconds) {
  return std::chrono::duration_cast<Clock::duration>(std::chrono::duration<double>(seconds));
}

// The bytes of a call, or what its error means.
int64_t outcome(const ErrorCode& error, size_t bytes) {
  if (!error) return static_cast<int64_t>(bytes);
  return error == asio::error::eof ? 0 : -1;
}

// What plain and encrypted connections do alike.
class SocketWire : public ClientWire {
 public:
  explicit SocketWire(asio::io_context& io) : timer_(io) {}

  void set_timer(double seconds, std::function<void()> done) override {
    ++timer_number_;
    if (seconds < 0) {
      timer_.cancel();
      return;
    }
    timer_.expires_after(to_duration(seconds));
    timer_.async_wait([this, number = timer_number_, done = std::move(done)](const ErrorCode& e) {
      // `done` holds the connection, and that this wire; one that was replaced stays silent.
      if (!e && number == timer_number_) done();
    });
  }
  std::string peer() const override {
    ErrorCode error;
    const tcp::endpoint end = socket().remote_endpoint(error);
    return error ? "" : end.address().to_string(error);
  }
  void end_output(std::function<void()> done) override {
    ErrorCode ignored;
    socket().shutdown(tcp::socket::shutdown_send, ignored);
    asio::post(socket().get_executor(), std::move(done));
  }
  void close() override {
    timer_.cancel();
    ErrorCode ignored;
    socket().close(ignored);
  }
  virtual const tcp::socket& socket() const = 0;
  tcp::socket& socket() { return const_cast<tcp::socket&>(std::as_const(*this).socket()); }

 private:
  asio::steady_timer timer_;
  int64_t timer_number_ = 0;
};

class PlainWire final : public SocketWire {
 public:
  PlainWire(asio::io_context& io, tcp::socket socket)
      : SocketWire(io), socket_(std::move(socket)) {}
  void open(std::function<void(bool)> done) override {
    asio::post(socket_.get_executor(), [done = std::move(done)] { done(true); });
  }
  void read(std::span<char> into, std::function<void(int64_t)> done) override {
    socket_.async_read_some(
        asio::buffer(into.data(), into.size()),
        [done = std::move(done)](const ErrorCode& e, size_t n) { done(outcome(e, n)); });
  }
  void write(std::string_view bytes, std::function<void(int64_t)> done) override {
    socket_.async_write_some(
        asio::buffer(bytes.data(), bytes.size()),
        [done = std::move(done)](const ErrorCode& e, size_t n) { done(outcome(e, n)); });
  }
  int64_t write_now(std::string_view bytes) override {
    const ssize_t sent =
        ::send(socket_.native_handle(), bytes.data(), bytes.size(), MSG_DONTWAIT | MSG_NOSIGNAL);
    return std::max<int64_t>(sent, 0);
  }
  const tcp::socket& socket() const override { return socket_; }

 private:
  tcp::socket socket_;
};

class TlsWire final : public SocketWire {
 public:
  TlsWire(asio::io_context& io, tcp::socket socket, asio::ssl::context& tls)
      : SocketWire(io), stream_(std::move(socket), tls) {}
  void open(std::function<void(bool)> done) override {
    stream_.async_handshake(asio::ssl::stream_base::server,
                            [done = std::move(done)](const ErrorCode& e) { done(!e); });
  }
  void read(std::span<char> into, std::function<void(int64_t)> done) override {
    stream_.async_read_some(
        asio::buffer(into.data(), into.size()),
        [done = std::move(done)](const ErrorCode& e, size_t n) { done(outcome(e, n)); });
  }
  void write(std::string_view bytes, std::function<void(int64_t)> done) override {
    stream_.async_write_some(
        asio::buffer(bytes.data(), bytes.size()),
        [done = std::move(done)](const ErrorCode& e, size_t n) { done(outcome(e, n)); });
  }
  // Says goodbye, so that the client knows that nothing was cut off.
  void end_output(std::function<void()> done) override {
    stream_.async_shutdown([done = std::move(done)](const ErrorCode&) { done(); });
  }
  const tcp::socket& socket() const override { return stream_.next_layer(); }

 private:
  asio::ssl::stream<tcp::socket> stream_;
};

constexpr int kPostedRounds = 4;             // before sockets and timers have their turn
constexpr double kAcceptPauseSeconds = 0.1;  // when descriptors have run out

// What HttpServer::every was asked for.
struct Repeat {
  Repeat(asio::io_context& io, double s, std::function<void()> call)
      : timer(io), seconds(s), f(std::move(call)) {}
  asio::steady_timer timer;
  double seconds;
  std::function<void()> f;
};

int64_t connections_possible(int64_t wanted) {
  constexpr int64_t kOthers = 64;  // descriptors for model files, logs, the listening socket
  rlimit limit{};
  if (getrlimit(RLIMIT_NOFILE, &limit) != 0 || limit.rlim_cur == RLIM_INFINITY) return wanted;
  return std::clamp<int64_t>(static_cast<int64_t>(limit.rlim_cur) - kOthers, 1, wanted);
}

// Empty: plain HTTP.
std::optional<asio::ssl::context> tls_context(const HttpOptions& options) {
  std::optional<asio::ssl::context> tls;
  if (options.tls_cert.empty() && options.tls_key.empty()) return tls;
  if (options.tls_cert.empty() || options.tls_key.empty())
    throw_error(Code::kInvalidArgument, "TLS needs both --tls-cert and --tls-key; one is missing");
  try {
    tls.emplace(asio::ssl::context::tls_server);
    tls->set_options(asio::ssl::context::default_workarounds | asio::ssl::context::no_sslv2 |
                     asio::ssl::context::no_sslv3 | asio::ssl::context::no_tlsv1 |
                     asio::ssl::context::no_tlsv1_1 | asio::ssl::context::single_dh_use);
    tls->use_certificate_chain_file(options.tls_cert);
  } catch (const boost::system::system_error& e) {
    throw_error(Code::kInvalidArgument, "read the certificate {}: {}; wanted a PEM file",
                options.tls_cert, e.what());
  }
  try {
    tls->use_private_key_file(options.tls_key, asio::ssl::context::pem);
  } catch (const boost::system::system_error& e) {
    throw_error(Code::kInvalidArgument,
                "read the private key {}: {}; wanted a PEM file, of the certificate {}",
                options.tls_key, e.what(), options.tls_cert);
  }
  return tls;
}

}  // namespace

void check_host(const std::string& host) {
  asio::io_context io;
  ErrorCode error;
  const auto found = tcp::resolver(io).resolve(host, "", tcp::resolver::passive, error);
  if (!error && !found.empty()) return;
  throw_error(
      Code::kInvalidArgument,
      "listen on {}: no such host ({}); wanted an address of this machine, or a name for one", host,
      error.message());
}

void check_tls(const HttpOptions& options) { tls_context(options); }

double stream_seconds_within(double stream_seconds, double tpot_seconds) {
  return tpot_seconds > 0 ? std::min(stream_seconds, tpot_seconds / 2) : stream_seconds;
}

bool is_loopback(const std::string& host) {
  if (host == "localhost") return true;
  ErrorCode error;
  const auto address = asio::ip::make_address(host, error);
  return !error && address.is_loopback();
}

struct HttpServer::State {
  const HttpOptions options;
  HttpHooks hooks;
  ConnectionHost host;  // outlives the handlers that io still has at its end
  asio::io_context io{1};
  std::optional<asio::ssl::context> tls;
  tcp::acceptor acceptor{io};
  asio::signal_set signals{io};
  asio::steady_timer drain_timer{io}, accept_timer{io}, stream_timer{io};
  std::vector<std::unique_ptr<Repeat>> repeats;
  std::unordered_map<Connection*, std::shared_ptr<Connection>> connections;
  int64_t connections_most = 0, accepted = 0, dropped = 0, cut = 0;
  bool stopping = false;
  std::atomic<bool> draining{false};
  std::atomic<std::thread::id> io_thread{};  // set by run
  std::vector<std::shared_ptr<Connection>> unsent;
  std::vector<std::function<void()>>
      running;       // what was posted; empty between two calls of run_posted
  std::mutex mutex;  // of what follows
  std::vector<std::function<void()>> posted;
  bool woken = false;    // run_posted will be called
  bool resting = false;  // streams have sent: stream_timer rings when they may again
  bool closed = false;   // nothing runs any more

  State(const HttpOptions& o, HttpHooks h) : options(o), hooks(std::move(h)) {
    connections_most = connections_possible(options.limits.connections);
    host.limits = options.limits;
    host.post = [this](std::function<void()> f) { post(std::move(f)); };
    host.here = [this] { return io_thread == std::this_thread::get_id(); };
    host.admit = hooks.admit;
    host.handle = hooks.handle;
    host.refuse = hooks.refuse;
    host.extra_fields = hooks.extra_fields;
    host.closed = [this](Connection* c) { forget(c); };
    host.unsent = [this](std::shared_ptr<Connection> c) {
      unsent.push_back(std::move(c));
      wake();
    };
    tls = tls_context(options);
    listen();
  }
  void post(std::function<void()> f);
  void queue(std::function<void()> f);
  void wake();
  void wake_streams();
  void run_posted();
  void send_streams();
  void rest(double seconds);
  void close();
  void listen();
  void accept();
  void accepted_one(tcp::socket socket);
  bool make_room();
  void forget(Connection* connection);
  void repeat(Repeat& r);
  void wait_signal();
  void begin_drain();
  void end_drain();
  void stop();
};

// One queue for all threads: Asio's own runs what the io thread posts after what another thread posts
// later, and then the end of a stream could overtake its beginning.
void HttpServer::State::post(std::function<void()> f) {
  queue(std::move(f));
  wake();
}

void HttpServer::State::queue(std::function<void()> f) {
  std::lock_guard lock(mutex);
  if (!closed) posted.push_back(std::move(f));
}

void HttpServer::State::wake() {
  {
    std::lock_guard lock(mutex);
    if (woken) return;
    woken = true;
  }
  asio::post(io, [this] { run_posted(); });
}

// While streams rest, what is queued waits with them, and the thread sleeps.
void HttpServer::State::wake_streams() {
  {
    std::lock_guard lock(mutex);
    if (resting) return;
  }
  wake();
}

// What was posted posts more: the events of a step write, and what they wrote goes out in one piece for each
// connection.
void HttpServer::State::run_posted() {
  for (int round = 0; round < kPostedRounds; ++round) {
    {
      std::lock_guard lock(mutex);
      running.swap(posted);
    }
    if (running.empty()) break;
    for (const std::function<void()>& f : running) f();
    running.clear();
  }
  send_streams();
  {
    std::lock_guard lock(mutex);
    woken = !posted.empty();
    if (!woken) return;
  }
  asio::post(io, [this] { run_posted(); });
}

// All streams together, so that the thread wakes once for them. The more they are, the longer they rest.
void HttpServer::State::send_streams() {
  if (unsent.empty()) return;
  {
    std::lock_guard lock(mutex);
    if (resting) return;
  }
  const double begin = now_seconds();
  for (size_t i = 0; i < unsent.size(); ++i) unsent[i]->flush();
  unsent.clear();
  rest(std::min(options.stream_seconds, (now_seconds() - begin) / options.stream_share));
}

void HttpServer::State::rest(double seconds) {
  if (seconds <= 0 || stopping) return;
  {
    std::lock_guard lock(mutex);
    resting = true;
  }
  stream_timer.expires_after(to_duration(seconds));
  stream_timer.async_wait([this](const ErrorCode&) {
    if (stopping) return;
    {
      std::lock_guard lock(mutex);
      resting = false;
    }
    run_posted();
  });
}

// What was posted and did not run owns exchanges, and one that was not answered posts as it goes: that is dropped.
void HttpServer::State::close() {
  std::vector<std::function<void()>> left;
  {
    std::lock_guard lock(mutex);
    closed = true;
    left.swap(posted);
  }
  left.clear();
  running.clear();
}

void HttpServer::State::listen() {
  try {
    tcp::resolver resolver(io);
    const auto found = resolver.resolve(options.host, std::to_string(options.port),
                                        tcp::resolver::passive | tcp::resolver::numeric_service);
    const tcp::endpoint end = found.begin()->endpoint();
    acceptor.open(end.protocol());
    acceptor.set_option(tcp::acceptor::reuse_address(true));
    acceptor.bind(end);
    acceptor.listen(4096);
  } catch (const boost::system::system_error& e) {
    throw_error(Code::kIo,
                "listen on {} port {}: {}; wanted an address of this machine and a port "
                "that is free (0: any)",
                options.host, options.port, e.what());
  }
}

void HttpServer::State::accept() {
  acceptor.async_accept([this](const ErrorCode& error, tcp::socket socket) {
    if (stopping || error == asio::error::operation_aborted) return;
    if (!error) {
      accepted_one(std::move(socket));
      return accept();
    }
    accept_timer.expires_after(to_duration(kAcceptPauseSeconds));
    accept_timer.async_wait([this](const ErrorCode& e) {
      if (!e && !stopping) accept();
    });
  });
}

// The connection that has been without a request for longest goes.
bool HttpServer::State::make_room() {
  std::shared_ptr<Connection> oldest;
  for (const auto& [pointer, connection] : connections) {
    if (!connection->idle()) continue;
    if (oldest == nullptr || connection->idle_since() < oldest->idle_since()) oldest = connection;
  }
  if (oldest == nullptr) return false;
  ++dropped;
  oldest->close();
  return true;
}

void HttpServer::State::accepted_one(tcp::socket socket) {
  ++accepted;
  ErrorCode ignored;
  if (static_cast<int64_t>(connections.size()) >= connections_most && !make_room()) {
    ++dropped;
    socket.close(ignored);  // every connection is at work
    return;
  }
  socket.set_option(tcp::no_delay(true), ignored);
  std::unique_ptr<ClientWire> wire;
  if (tls)
    wire = std::make_unique<TlsWire>(io, std::move(socket), *tls);
  else
    wire = std::make_unique<PlainWire>(io, std::move(socket));
  auto connection = std::make_shared<Connection>(host, std::move(wire));
  connections.emplace(connection.get(), connection);
  connection->start();
}

void HttpServer::State::forget(Connection* connection) {
  connections.erase(connection);
  if (draining && host.working == 0) asio::post(io, [this] { end_drain(); });
}

void HttpServer::State::repeat(Repeat& r) {
  if (stopping) return;
  r.timer.expires_after(to_duration(r.seconds));
  r.timer.async_wait([this, &r](const ErrorCode& e) {
    if (e) return;
    r.f();
    repeat(r);
  });
}

void HttpServer::State::wait_signal() {
  signals.async_wait([this](const ErrorCode& error, int number) {
    if (error) return;
    log_event(Level::kInfo, "serve.signal", "signal={} working={}", number, host.working);
    if (draining) return stop();
    begin_drain();
    wait_signal();
  });
}

void HttpServer::State::begin_drain() {
  if (draining) return;
  draining = host.draining = true;
  if (hooks.draining) hooks.draining();
  std::vector<std::shared_ptr<Connection>> all;
  for (const auto& [pointer, connection] : connections) all.push_back(connection);
  for (const auto& connection : all) connection->drain();
  drain_timer.expires_after(to_duration(options.drain_seconds));
  drain_timer.async_wait([this](const ErrorCode& e) {
    if (!e) stop();
  });
  asio::post(io, [this] { end_drain(); });
}

// Answers are complete; those that still go out have the connection's own time to arrive.
void HttpServer::State::end_drain() {
  if (stopping || host.working > 0) return;
  for (const auto& [pointer, connection] : connections) {
    if (!connection->idle()) return;
  }
  stop();
}

void HttpServer::State::stop() {
  if (stopping) return;
  stopping = true;
  cut = host.working;
  ErrorCode ignored;
  acceptor.close(ignored);
  signals.cancel(ignored);
  drain_timer.cancel();
  accept_timer.cancel();
  stream_timer.cancel();
  for (const auto& each : repeats) each->timer.cancel();
  std::vector<std::shared_ptr<Connection>> all;
  for (const auto& [pointer, connection] : connections) all.push_back(connection);
  for (const auto& connection : all) connection->close();
}

HttpServer::HttpServer(const HttpOptions& options, HttpHooks hooks)
    : state_(std::make_unique<State>(options, std::move(hooks))) {}

HttpServer::~HttpServer() { state_->close(); }

int64_t HttpServer::port() const { return state_->acceptor.local_endpoint().port(); }

std::string HttpServer::url() const {
  const auto address = state_->acceptor.local_endpoint().address();
  const std::string text = address.to_string();
  return fmt::format("{}://{}:{}", state_->tls ? "https" : "http",
                     address.is_v6() ? "[" + text + "]" : text, port());
}

bool HttpServer::loopback() const {
  return state_->acceptor.local_endpoint().address().is_loopback();
}

int64_t HttpServer::run() {
  if (state_->options.handle_signals) {
    state_->signals.add(SIGTERM);
    state_->signals.add(SIGINT);
    state_->wait_signal();
  }
  state_->io_thread = std::this_thread::get_id();
  state_->accept();
  state_->io.run();
  return state_->cut;
}

void HttpServer::post(std::function<void()> f) { state_->post(std::move(f)); }

void HttpServer::queue(std::function<void()> f) { state_->queue(std::move(f)); }

void HttpServer::wake() { state_->wake_streams(); }

void HttpServer::every(double seconds, std::function<void()> f) {
  post([this, seconds, f = std::move(f)] {
    state_->repeats.push_back(std::make_unique<Repeat>(state_->io, seconds, f));
    state_->repeat(*state_->repeats.back());
  });
}

void HttpServer::drain() {
  post([this] { state_->begin_drain(); });
}

bool HttpServer::draining() const { return state_->draining; }

HttpCounts HttpServer::counts() const {
  return {.connections = static_cast<int64_t>(state_->connections.size()),
          .working = state_->host.working,
          .bodies_bytes = state_->host.bodies_bytes,
          .accepted = state_->accepted,
          .dropped = state_->dropped};
}

}  // namespace moraine
