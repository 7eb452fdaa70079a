// RailSockets: one epoll set, and what to do about each of its events.
#include "comm/rails/rail_sockets.h"

#include <fcntl.h>
#include <poll.h>
#include <sys/epoll.h>
#include <sys/socket.h>
#include <unistd.h>

#include <cerrno>
#include <cmath>
#include <cstring>

#include "base/clock.h"
#include "base/error.h"
#include "base/log.h"
#include "comm/rails/tcp_path.h"

namespace moraine {
namespace {

constexpr double kHandSeconds = 2;     // from connecting to belonging
constexpr double kKnockSeconds = 0.2;  // between two knocks at a peer of whom nothing is heard
constexpr size_t kMostGuests = 64;
constexpr double kNewsSeconds = 0.05;  // from a loss to its event

const char* why(RailEnd end) {
  switch (end) {
    case RailEnd::kDamaged:
      return "a damaged frame";
    case RailEnd::kGarbage:
      return "bytes that are no frame of ours";
    default:
      return "closed by the other end or by the network";
  }
}

}  // namespace

RailSockets::RailSockets(Options options)
    : options_(std::move(options)),
      place_{options_.place, &options_.secret},
      poll_(epoll_create1(EPOLL_CLOEXEC)),
      spare_(open("/dev/null", O_RDONLY | O_CLOEXEC)) {
  if (poll_ < 0) throw_error(Code::kIo, "start rails: make an epoll set: {}", std::strerror(errno));
  const int rails = static_cast<int>(options_.local.size());
  for (int rail = 0; rail < rails; ++rail)
    watch(options_.listeners[static_cast<size_t>(rail)], {Owner::kListener, 0, rail});
  if (news_.fd() >= 0) watch(news_.fd(), {Owner::kNews});
  for (const auto& [rank, addresses] : options_.peers) {
    Peer& p = peers_.emplace(rank, Peer(RailPeer(rails, options_.place.generation, options_.times)))
                  .first->second;
    p.addresses = addresses;
    p.rails.resize(addresses.size());
    p.connecting.resize(addresses.size());
    p.connect_ends.resize(addresses.size());
    p.losses.resize(addresses.size());
    p.connects = options_.place.rank < rank;
  }
}

RailSockets::~RailSockets() {
  for (const int fd : options_.listeners) close(fd);
  if (spare_ >= 0) close(spare_);
  close(poll_);
}

// Watching ----------------------------------------------------------------------------------------

void RailSockets::watch(int fd, const Endpoint& endpoint) {
  epoll_event event = {};
  event.events = EPOLLIN | (endpoint.watches_output ? EPOLLOUT : 0u);
  event.data.fd = fd;
  if (epoll_ctl(poll_, endpoints_.contains(fd) ? EPOLL_CTL_MOD : EPOLL_CTL_ADD, fd, &event) != 0)
    throw_error(Code::kIo, "watch a rail: {}", std::strerror(errno));
  endpoints_[fd] = endpoint;
}

void RailSockets::watch_output(int fd, bool output) {
  Endpoint e = endpoints_.at(fd);
  if (e.watches_output == output) return;
  e.watches_output = output;
  watch(fd, e);
}

void RailSockets::forget(int fd) {
  epoll_ctl(poll_, EPOLL_CTL_DEL, fd, nullptr);
  endpoints_.erase(fd);
}

RailSockets::Events RailSockets::wait(double seconds) {
  std::array<epoll_event, Events::kMost> list;
  Events events;
  const auto look = [&](int milliseconds) {
    events.count = std::max(0, epoll_wait(poll_, list.data(), Events::kMost, milliseconds));
    return events.count > 0;
  };
  const int milliseconds = static_cast<int>(std::ceil(seconds * 1e3));
  if (milliseconds == 0) {
    look(0);
  } else {
    spin_.wait(
        1, [&] { return look(0); }, [&] { look(milliseconds); });
  }
  for (size_t i = 0; i < static_cast<size_t>(events.count); ++i) events.fds[i] = list[i].data.fd;
  return events;
}

void RailSockets::wait_beside(double seconds) const {
  pollfd set = {poll_, POLLIN, 0};
  poll(&set, 1, static_cast<int>(std::ceil(seconds * 1e3)));
}

void RailSockets::handle(const Events& events) {
  for (int i = 0; i < events.count; ++i) {
    const int fd = events.fds[static_cast<size_t>(i)];
    const auto found = endpoints_.find(fd);  // an earlier event may have ended it
    if (found != endpoints_.end()) handle(fd, Endpoint(found->second));
  }
}

void RailSockets::handle(int fd, const Endpoint& e) {
  switch (e.owner) {
    case Owner::kListener:
      return accept_guests(e.rail);
    case Owner::kNews:
      return hear_news();
    case Owner::kGuest:
      return greet(fd);
    case Owner::kConnecting:
      return go_on_connecting(e.rank, e.rail);
    case Owner::kRail:
      read_rail(e.rank, e.rail);
      write_rail(e.rank, e.rail);
      return flush(e.rank);
  }
}

// Guests ------------------------------------------------------------------------------------------

void RailSockets::accept_guests(int rail) {
  for (;;) {
    const int fd = accept4(options_.listeners[static_cast<size_t>(rail)], nullptr, nullptr,
                           SOCK_NONBLOCK | SOCK_CLOEXEC);
    if (fd < 0 && (errno == EMFILE || errno == ENFILE)) return refuse_guest(rail);
    if (fd < 0) return;
    if (guests_.size() >= kMostGuests) {
      ++counters_.too_many;
      close(fd);
      continue;
    }
    guests_[fd] = {std::make_unique<RailConnection>(place_, fd), now_seconds() + kHandSeconds};
    watch(fd, {Owner::kGuest, 0, rail});
    greet(fd);
  }
}

// Without a free file descriptor nobody can be let in, and who knocks would be heard for ever: one is kept for that.
void RailSockets::refuse_guest(int rail) {
  if (spare_ >= 0) close(spare_);
  const int fd = accept(options_.listeners[static_cast<size_t>(rail)], nullptr, nullptr);
  if (fd >= 0) close(fd);
  ++counters_.too_many;
  spare_ = open("/dev/null", O_RDONLY | O_CLOEXEC);
}

void RailSockets::count_end(RailEnd end, const RailConnection& c) {
  if (end == RailEnd::kDamaged) ++counters_.damaged;
  if (end == RailEnd::kGarbage) ++counters_.garbage;
  if (end != RailEnd::kStranger) return;
  switch (c.hello_fault()) {
    case HelloFault::kOtherRun:
      ++counters_.other_run;
      break;
    case HelloFault::kOldGeneration:
      ++counters_.old_generation;
      break;
    case HelloFault::kOtherRank:
      ++counters_.other_rank;
      break;
    default:
      ++counters_.garbage;
      break;
  }
}

void RailSockets::greet(int fd) {
  const auto guest = guests_.find(fd);
  RailConnection& c = *guest->second.connection;
  const RailEnd end = c.shake_hands();
  if (end == RailEnd::kNone && !c.is_open()) return;
  const int rail = endpoints_.at(fd).rail;
  forget(fd);
  std::unique_ptr<RailConnection> connection = std::move(guest->second.connection);
  guests_.erase(guest);
  if (end != RailEnd::kNone) {
    if (!connection->has_spoken()) ++counters_.knocks;
    return count_end(end, *connection);
  }
  const Hello& hello = connection->other();
  const auto peer = peers_.find(hello.from);
  const bool fits = peer != peers_.end() && !peer->second.connects && hello.rail == rail;
  if (!fits) {
    ++counters_.other_rank;
    return;
  }
  open_rail(hello.from, rail, std::move(connection));
}

// Connecting --------------------------------------------------------------------------------------

void RailSockets::begin_connecting(int rank, int rail) {
  Peer& p = peers_.at(rank);
  const size_t r = static_cast<size_t>(rail);
  Hello hello;
  hello.run = options_.place.run;
  hello.generation = options_.place.generation;
  hello.from = options_.place.rank;
  hello.to = rank;
  hello.rail = rail;
  p.connecting[r] =
      std::make_unique<RailConnection>(place_, hello, options_.local[r].address, p.addresses[r]);
  p.connect_ends[r] = now_seconds() + options_.times.connect_seconds;
  p.state.trying(rail);
  const RailConnection& c = *p.connecting[r];
  if (c.fd() < 0 || c.error() != 0) {
    const bool refused = c.error() == ECONNREFUSED;
    p.connecting[r].reset();
    p.is_gone = p.is_gone || (refused && p.was_open && !p.state.any_open());
    return p.state.retry_later(rail, now_seconds());
  }
  watch(c.fd(), {Owner::kConnecting, rank, rail, true});
}

void RailSockets::go_on_connecting(int rank, int rail) {
  Peer& p = peers_.at(rank);
  RailConnection& c = *p.connecting[static_cast<size_t>(rail)];
  if (!p.connects) {  // a knock: it is enough that the door is there
    const RailEnd end = c.see_connected();
    return end_connecting(rank, rail, end == RailEnd::kNone ? RailEnd::kEnded : end);
  }
  const RailEnd end = c.shake_hands();
  if (end != RailEnd::kNone) return end_connecting(rank, rail, end);
  watch_output(c.fd(), false);
  if (!c.is_open()) return;
  std::unique_ptr<RailConnection> connection = std::move(p.connecting[static_cast<size_t>(rail)]);
  forget(connection->fd());
  open_rail(rank, rail, std::move(connection));
}

void RailSockets::end_connecting(int rank, int rail, RailEnd end) {
  Peer& p = peers_.at(rank);
  std::unique_ptr<RailConnection> connection = std::move(p.connecting[static_cast<size_t>(rail)]);
  forget(connection->fd());
  connection->reset_on_close();
  count_end(end, *connection);
  if (end == RailEnd::kRefused && p.was_open && !p.state.any_open()) p.is_gone = true;
  p.state.retry_later(rail, now_seconds());
}

// Rails -------------------------------------------------------------------------------------------

void RailSockets::open_rail(int rank, int rail, std::unique_ptr<RailConnection> connection) {
  Peer& p = peers_.at(rank);
  close_rail(rank, rail, "replaced by a new connection");
  p.was_open = true;
  p.state.rail_opened(rail, connection->number(), now_seconds());
  watch(connection->fd(), {Owner::kRail, rank, rail});
  p.rails[static_cast<size_t>(rail)] = std::move(connection);
  read_rail(rank, rail);
  flush(rank);
}

// What is under way is worth nothing any more: both ends begin anew.
void RailSockets::close_rail(int rank, int rail, const char* why) {
  Peer& p = peers_.at(rank);
  std::unique_ptr<RailConnection> connection = std::move(p.rails[static_cast<size_t>(rail)]);
  if (connection == nullptr) return;
  forget(connection->fd());
  connection->reset_on_close();
  const bool was_up = p.state.state(rail) == RailState::kUp;
  p.state.rail_closed(rail, now_seconds());
  p.knock_at = 0;
  if (!was_up) return;
  p.losses[static_cast<size_t>(rail)] = {now_seconds(), why, false};
}

// A rail that ends because its peer's work has ended is no news: that is known a moment later.
void RailSockets::tell_of_losses(int rank, double now) {
  Peer& p = peers_.at(rank);
  for (size_t rail = 0; rail < p.losses.size(); ++rail) {
    Loss& loss = p.losses[rail];
    if (loss.at == 0) continue;
    const std::string& interface = options_.local[rail].interface_name;
    const bool is_over = p.is_gone || p.state.has_said_goodbye() || p.state.is_failing();
    if (!loss.is_told && !is_over && now - loss.at > kNewsSeconds) {
      loss.is_told = true;
      log_event(Level::kWarning, "rails.lost", "peer={} rail={} interface={} reason=\"{}\"", rank,
                rail, interface, loss.why);
    }
    if (p.state.state(static_cast<int>(rail)) != RailState::kUp) continue;
    if (loss.is_told)
      log_event(Level::kInfo, "rails.back", "peer={} rail={} interface={} seconds={:.2f}", rank,
                rail, interface, now - loss.at);
    loss = {};
  }
}

void RailSockets::read_rail(int rank, int rail) {
  Peer& p = peers_.at(rank);
  RailConnection* c = p.rails[static_cast<size_t>(rail)].get();
  if (c == nullptr) return;
  std::vector<int> lost;
  const RailEnd end = c->read_frames(p.state, rail, &lost);
  any_fault_ = any_fault_ || p.state.fault() != nullptr;
  if (end != RailEnd::kNone) {
    count_end(end, *c);
    return close_rail(rank, rail, why(end));
  }
  for (const int r : lost) close_rail(rank, r, "silent at the other end");
}

// True: a whole frame went into the socket.
bool RailSockets::write_rail(int rank, int rail) {
  Peer& p = peers_.at(rank);
  RailConnection* c = p.rails[static_cast<size_t>(rail)].get();
  if (c == nullptr) return false;
  bool wrote = false;
  const RailEnd end = c->write_frame(p.state, rail, now_seconds(), &wrote);
  if (end != RailEnd::kNone) {
    close_rail(rank, rail, why(end));
    return false;
  }
  watch_output(c->fd(), c->is_blocked());
  return wrote;
}

int RailSockets::least_loaded(const Peer& p, uint64_t done) const {
  int best = -1;
  for (int rail = 0; rail < p.state.rails(); ++rail) {
    const RailConnection* c = p.rails[static_cast<size_t>(rail)].get();
    if (c == nullptr || c->is_blocked() || (done >> rail & 1) != 0) continue;
    if (best < 0 || p.state.in_flight_bytes(rail) < p.state.in_flight_bytes(best)) best = rail;
  }
  return best;
}

// Each frame to the rail that has least under way, so that all end at about the same time.
void RailSockets::flush(int rank) {
  const Peer& p = peers_.at(rank);
  uint64_t done = 0;  // a bit for each rail
  for (int rail; (rail = least_loaded(p, done)) >= 0;)
    done |= uint64_t{!write_rail(rank, rail)} << rail;
}

void RailSockets::hear_of_rail(int rail, bool is_running) {
  for (auto& [rank, peer] : peers_) {
    if (is_running) {
      peer.state.retry_now(rail);
    } else {
      close_rail(rank, rail, "no carrier");
    }
  }
}

void RailSockets::hear_news() {
  for (const LinkNews& news : news_.read()) {
    for (size_t rail = 0; rail < options_.local.size(); ++rail) {
      if (options_.local[rail].interface_index == news.interface_index)
        hear_of_rail(static_cast<int>(rail), news.is_running);
    }
  }
}

// Time --------------------------------------------------------------------------------------------

// The kernel knows what fits into the way of a connection.
void RailSockets::measure_rails(Peer& p, double now) {
  if (now < p.measure_at) return;
  p.measure_at = now + options_.times.heartbeat_seconds;
  for (int rail = 0; rail < p.state.rails(); ++rail) {
    const RailConnection* c = p.rails[static_cast<size_t>(rail)].get();
    if (c == nullptr) continue;
    const TcpPath path = measure_tcp_path(c->fd());
    p.state.set_path(rail, path.bytes_per_second * path.round_trip_seconds);
  }
}

void RailSockets::tick_peer(int rank, Peer& p, double now) {
  for (const int rail : p.state.tick(now)) close_rail(rank, rail, "silent");
  const bool is_over = p.is_gone || p.state.has_said_goodbye();
  for (int rail = 0; rail < p.state.rails() && !is_over; ++rail) {
    const size_t r = static_cast<size_t>(rail);
    if (p.connecting[r] != nullptr) {
      if (now > p.connect_ends[r] || p.state.wants_connection(rail, now))
        end_connecting(rank, rail, RailEnd::kEnded);
    } else if (p.connects) {
      if (p.state.wants_connection(rail, now)) begin_connecting(rank, rail);
    } else if (p.was_open && !p.state.any_open() && now >= p.knock_at) {
      begin_connecting(rank, rail);
      if (rail == p.state.rails() - 1) p.knock_at = now + kKnockSeconds;
    }
  }
  tell_of_losses(rank, now);
  measure_rails(p, now);
  flush(rank);
}

void RailSockets::tell_of_strangers(double now) {
  const RailCounters& c = counters_;
  const int64_t dropped = strangers_.note(c.strangers(), now);
  if (dropped == 0) return;
  log_event(Level::kWarning, "rails.strangers",
            "at=rail dropped={} other_run={} old_generation={} other_rank={} garbage={} "
            "too_many={} silent={}",
            dropped, c.other_run, c.old_generation, c.other_rank, c.garbage, c.too_many,
            c.silent_guests);
}

void RailSockets::tick() {
  const double now = now_seconds();
  tell_of_strangers(now);
  for (auto& [rank, peer] : peers_) tick_peer(rank, peer, now);
  for (auto guest = guests_.begin(); guest != guests_.end();) {
    const auto next = std::next(guest);
    if (now > guest->second.ends) {
      ++counters_.silent_guests;
      forget(guest->first);
      guests_.erase(guest);
    }
    guest = next;
  }
}

std::string RailSockets::describe(int rank) const {
  const Peer& p = peers_.at(rank);
  std::string text;
  for (int rail = 0; rail < p.state.rails(); ++rail) {
    const RailState state = p.state.state(rail);
    text += fmt::format("{}rail {} ({}, {}) is {}", text.empty() ? "" : ", ", rail,
                        options_.local[static_cast<size_t>(rail)].interface_name,
                        address_text(p.addresses[static_cast<size_t>(rail)]),
                        state == RailState::kUp        ? "up"
                        : state == RailState::kProving ? "being proved"
                                                       : "lost");
  }
  return text;
}

}  // namespace moraine
