// VirtualWorld: hosts, processes and connections in virtual time, for code behind a Wire. One seed, one history.
//
// Bytes of a connection keep their order and come after a delay, in pieces of any size. A cut holds them up, in one
// direction or both; what is sent meanwhile comes when it has healed, unless that takes longer than keep_alive. A
// killed process' connections end; those of a lost host fall silent.
//
// Threads: one; every process and each of its threads is a fiber.
#pragma once

#include <arpa/inet.h>

#include <algorithm>
#include <deque>
#include <limits>
#include <list>
#include <map>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "base/check.h"
#include "base/error.h"
#include "comm/rails/wire.h"
#include "testing/fiber.h"
#include "testing/seeded_draws.h"

namespace moraine {

class VirtualWorld {
 public:
  static constexpr double kNever = std::numeric_limits<double>::infinity(), kKeepAlive = 4;

  explicit VirtualWorld(uint64_t seed) : draws{seed} {}
  ~VirtualWorld() {
    for (auto& [number, p] : processes_) kill(number);
    run_until(now_);
  }
  VirtualWorld(const VirtualWorld&) = delete;
  VirtualWorld& operator=(const VirtualWorld&) = delete;

  double now() const { return now_; }
  SeededDraws draws;

  static SocketAddress place(int host, int port) {
    return SocketAddress::ipv4(0x0a000000u + static_cast<uint32_t>(host),
                               static_cast<uint16_t>(port));
  }
  static int host_at(const SocketAddress& address) {
    const uint8_t* b = address.bytes();
    return b[1] << 16 | b[2] << 8 | b[3];
  }

  // Its number. `body` ends by itself, or by kill(), which unwinds it.
  int begin_process(int host, std::function<void(Wire&)> body);
  bool runs(int process) const { return !processes_.at(process).killed && has_tasks(process); }
  int host_of(int process) const { return processes_.at(process).host; }
  void kill(int process) { end_process(process, now_ + delay()); }
  void lose_host(int host);
  void stop(int process, double seconds) { processes_.at(process).asleep_until = now_ + seconds; }
  // What `from` says does not reach `to`.
  void cut(int from, int to, double seconds);
  double cut_until(int from, int to) const {
    const auto at = cuts_.find({from, to});
    return at == cuts_.end() ? 0 : at->second;
  }

  // `event` happens then, outside of all processes.
  void at(double time, std::function<void()> event) { events_.emplace(time, std::move(event)); }
  void run_until(double end);
  // Of a process' fiber: until `ready`, or `end`.
  void wait(const std::function<bool()>& ready, double end) {
    if (!block(ready, end)) throw Killed();
  }

 private:
  struct Killed {};  // unwinds a process

  struct Task {
    int number, process;
    std::unique_ptr<Fiber> fiber;
    std::function<bool()> ready = [] { return true; };
    double until = kNever;
  };
  struct Process {
    int host;
    bool killed = false;
    double asleep_until = 0;
    std::unique_ptr<Wire> wire = {};
  };
  struct Piece {
    double at;
    std::string bytes;
    bool is_end = false;
    bool is_local = false;  // by a timer of this host: no cut holds it up
  };
  struct End {
    int process = -1, peer = -1;
    std::deque<Piece> in = {};
    bool keeps_alive = false;
    bool listens = false;
    SocketAddress address = {};
    std::deque<int> waiting = {};  // of a listener
  };
  class ProcessThread : public WireThread {
   public:
    ProcessThread(VirtualWorld& world, int task) : world_(world), task_(task) {}
    ~ProcessThread() override { ProcessThread::join(); }
    void join() override;

   private:
    VirtualWorld& world_;
    int task_;
  };
  class ProcessWire : public Wire {
   public:
    ProcessWire(VirtualWorld& world, int process) : w_(world), process_(process) {}
    double now() override { return w_.now_; }
    void pause(double seconds) override;
    std::unique_ptr<WireThread> start(const char* what, std::function<void()> body) override;
    int listen(const SocketAddress& address) override;
    int accept(int listener) override;
    int reach(const SocketAddress& to, double end) override;
    void close(int link) override { w_.forget(link); }
    SocketAddress own_address(int link) override;
    void keep_alive(int link) override;
    int64_t read(int link, void* to, size_t bytes) override;
    int64_t write(int link, const void* from, size_t bytes) override;
    bool wait_to_read(std::span<const int> links, double seconds) override;
    bool wait_to_write(int link, double seconds) override;

   private:
    bool is_killed() const { return w_.processes_.at(process_).killed; }
    int add(End end);
    VirtualWorld& w_;
    int process_;
  };

  double delay() { return draws.one_in(20) ? draws.between(0.02, 0.2) : draws.between(1e-4, 2e-3); }
  bool has_tasks(int process) const {
    return std::any_of(tasks_.begin(), tasks_.end(),
                       [&](const Task& t) { return t.process == process; });
  }
  int host_of_end(const End& e) const { return processes_.at(e.process).host; }
  int start(int process, std::function<void()> body);
  bool has_task(int number) const {
    return std::any_of(tasks_.begin(), tasks_.end(),
                       [&](const Task& t) { return t.number == number; });
  }
  bool block(const std::function<bool()>& ready, double end);
  void end_process(int process, double heard_at);
  void push(End& to, Piece piece);
  double comes_at(const End& e, const Piece& p) const;
  bool is_readable(int link) const;
  double next_time() const;
  int listener_at(const SocketAddress& address) const;
  void forget(int link);

  double now_ = 0;
  int last_ = 0;
  std::map<int, Process> processes_;
  std::map<int, End> ends_;
  std::list<Task> tasks_;
  Task* running_ = nullptr;
  std::map<std::pair<int, int>, double> cuts_;
  std::vector<int> lost_hosts_;
  std::multimap<double, std::function<void()>> events_;
};

}  // namespace moraine
