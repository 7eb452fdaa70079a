// RailSockets: the connections of this rank's rails to its peers: made, watched, ended, made again.
//
// The lower rank of a pair connects, the higher listens; when all rails of a pair are gone, the higher knocks at the
// lower's door to learn whether anybody is left. One connection at a time belongs to each (peer, rail).
//
// Whoever connects must show in kHandSeconds that it belongs to this job; no more than kMostGuests are given the time
// at once. All others are closed and counted.
//
// Nothing here waits but wait(). Calls are made by one thread at a time, wait() apart, which may run beside them.
//
// Errors:  kIo if the system gives no sockets at all.
#pragma once

#include <array>
#include <map>
#include <memory>
#include <string>
#include <vector>

#include "base/spin_wait.h"
#include "comm/rails/link_events.h"
#include "comm/rails/rail_address.h"
#include "comm/rails/rail_connection.h"
#include "comm/rails/strangers.h"

namespace moraine {

struct RailCounters {                                         // of this rank
  int64_t other_run = 0, old_generation = 0, other_rank = 0;  // hellos that did not fit
  int64_t garbage = 0;   // no hello at all, a wrong proof, bytes that are no frame
  int64_t too_many = 0;  // guests that were not let in
  int64_t silent_guests = 0, damaged = 0, knocks = 0;
  int64_t strangers() const {
    return other_run + old_generation + other_rank + garbage + too_many + silent_guests;
  }
};

class RailSockets {
 public:
  struct Options {
    HelloPlace place;
    std::string secret;
    std::vector<RailAddress> local;                   // of each rail
    std::vector<int> listeners;                       // of each rail; owned from now on
    std::map<int, std::vector<SocketAddress>> peers;  // of each rank to reach, of each rail
    RailTimes times;
  };
  explicit RailSockets(Options options);
  ~RailSockets();
  RailSockets(const RailSockets&) = delete;
  RailSockets& operator=(const RailSockets&) = delete;

  struct Events {
    static constexpr int kMost = 64;
    std::array<int, kMost> fds;
    int count = 0;
  };
  // Sleeps until a socket has something to say, at most `seconds`; 0: what there is now.
  Events wait(double seconds);
  // The same for one that leaves the events to whoever is in wait(): the kernel wakes one of several in wait(), but
  // this one beside it.
  void wait_beside(double seconds) const;

  void handle(const Events& events);
  void tick();           // every few milliseconds
  void flush(int rank);  // after something was given to lanes
  RailPeer& peer(int rank) { return peers_.at(rank).state; }
  const RailPeer& peer(int rank) const { return peers_.at(rank).state; }
  bool any_fault() const { return any_fault_; }  // a peer said so
  // Its host answers, and nobody listens: the process is gone.
  bool has_died(int rank) const { return peers_.at(rank).is_gone; }
  const RailCounters& counters() const { return counters_; }
  std::string describe(
      int rank) const;  // "rail 0 (eth0) is up, rail 1 (eth1) is lost since 0.3 seconds"

 private:
  struct Loss {     // of a rail that was up
    double at = 0;  // 0: it is not lost
    const char* why = "";
    bool is_told = false;
  };
  struct Peer {
    explicit Peer(RailPeer s) : state(std::move(s)) {}
    RailPeer state;
    std::vector<SocketAddress> addresses;
    std::vector<std::unique_ptr<RailConnection>> rails, connecting;  // open; being made
    std::vector<double> connect_ends;
    std::vector<Loss> losses;  // of each rail
    bool connects = false, is_gone = false, was_open = false;
    double knock_at = 0, measure_at = 0;
  };
  struct Guest {
    std::unique_ptr<RailConnection> connection;
    double ends = 0;
  };
  enum class Owner : uint8_t { kListener, kNews, kRail, kConnecting, kGuest };
  struct Endpoint {
    Owner owner = Owner::kGuest;
    int rank = 0, rail = 0;
    bool watches_output = false;
  };

  void watch(int fd, const Endpoint& endpoint);
  void watch_output(int fd, bool output);
  void forget(int fd);
  void handle(int fd, const Endpoint& e);
  void accept_guests(int rail);
  void refuse_guest(int rail);
  void greet(int fd);
  void count_end(RailEnd end, const RailConnection& connection);
  void begin_connecting(int rank, int rail);
  void go_on_connecting(int rank, int rail);
  void end_connecting(int rank, int rail, RailEnd end);
  void open_rail(int rank, int rail, std::unique_ptr<RailConnection> connection);
  void close_rail(int rank, int rail, const char* why);
  void tell_of_losses(int rank, double now);
  void tell_of_strangers(double now);
  void read_rail(int rank, int rail);
  bool write_rail(int rank, int rail);
  int least_loaded(const Peer& peer, uint64_t done) const;
  void hear_news();
  void hear_of_rail(int rail, bool is_running);
  void measure_rails(Peer& peer, double now);
  void tick_peer(int rank, Peer& peer, double now);

  const Options options_;
  RailConnection::Place place_;
  SpinWait spin_;
  int poll_ = -1, spare_ = -1;
  LinkEvents news_;
  std::map<int, Peer> peers_;
  std::map<int, Endpoint> endpoints_;  // by file descriptor
  std::map<int, Guest> guests_;        // by file descriptor
  RailCounters counters_;
  Strangers strangers_;
  bool any_fault_ = false;
};

}  // namespace moraine
