// VirtualWorld: what tests of the rendezvous stand on. Breaks if bytes come in another order, through a cut, or from a
// process that is gone, or if an end comes before what was said.
#include <gtest/gtest.h>

#include <algorithm>
#include <string>
#include <utility>

#include "base/error.h"
#include "comm/rails/test_world.h"

namespace moraine {

void VirtualWorld::ProcessThread::join() {
  // Also of a killed process, whose threads all unwind.
  while (world_.has_task(task_)) world_.block([this] { return !world_.has_task(task_); }, kNever);
}

// The wire of one process ----------------------------------------------------------------------------

int VirtualWorld::ProcessWire::add(End end) {
  const int link = ++w_.last_;
  w_.ends_.emplace(link, std::move(end));
  return link;
}

void VirtualWorld::ProcessWire::pause(double seconds) {
  w_.wait([] { return false; }, w_.now_ + seconds);
}

std::unique_ptr<WireThread> VirtualWorld::ProcessWire::start(const char*,
                                                             std::function<void()> body) {
  return std::make_unique<ProcessThread>(w_, w_.start(process_, std::move(body)));
}

int VirtualWorld::ProcessWire::listen(const SocketAddress& address) {
  if (w_.listener_at(address) >= 0) throw_error(Code::kIo, "the address is taken");
  return add({.process = process_, .listens = true, .address = address});
}

int VirtualWorld::ProcessWire::accept(int listener) {
  if (is_killed()) return -1;
  std::deque<int>& waiting = w_.ends_.at(listener).waiting;
  if (waiting.empty()) return -1;
  const int link = waiting.front();
  waiting.pop_front();
  return link;
}

SocketAddress VirtualWorld::ProcessWire::own_address(int) { return place(w_.host_of(process_), 0); }

void VirtualWorld::ProcessWire::keep_alive(int link) {
  End& e = w_.ends_.at(link);
  e.keeps_alive = true;
  const auto peer = w_.ends_.find(e.peer);
  const bool is_alone = peer == w_.ends_.end(), is_told = !e.in.empty() && e.in.back().is_end;
  const auto cut = [&](const End& from, const End& to) {
    return w_.cut_until(w_.host_of_end(from), w_.host_of_end(to)) > w_.now_ + kKeepAlive;
  };
  if (is_alone ? !is_told : cut(e, peer->second) || cut(peer->second, e))
    w_.push(e, {w_.now_ + kKeepAlive, {}, true, true});
}

bool VirtualWorld::ProcessWire::wait_to_read(std::span<const int> links, double seconds) {
  const auto ready = [this, links] {
    return std::any_of(links.begin(), links.end(), [&](int l) { return w_.is_readable(l); });
  };
  if (is_killed()) throw Killed();
  if (!ready()) w_.wait(ready, w_.now_ + std::max(seconds, 0.0));
  return ready();
}

// There is room again after a moment.
bool VirtualWorld::ProcessWire::wait_to_write(int, double seconds) {
  pause(std::min(1e-4, std::max(seconds, 0.0)));
  return seconds > 0;
}

int VirtualWorld::ProcessWire::reach(const SocketAddress& to, double end) {
  const int here = w_.processes_.at(process_).host, there = host_at(to);
  const auto passes = [&] {
    return w_.cut_until(here, there) <= w_.now_ && w_.cut_until(there, here) <= w_.now_ &&
           std::find(w_.lost_hosts_.begin(), w_.lost_hosts_.end(), there) == w_.lost_hosts_.end();
  };
  if (!passes()) w_.wait(passes, end);
  pause(2 * w_.delay());
  const int listener = w_.listener_at(to);
  if (w_.now_ > end || !passes() || listener < 0) return -1;
  const int near = add({.process = process_}),
            far = add({.process = w_.ends_.at(listener).process, .peer = near});
  w_.ends_.at(near).peer = far;
  w_.ends_.at(listener).waiting.push_back(far);
  return near;
}

int64_t VirtualWorld::ProcessWire::read(int link, void* to, size_t bytes) {
  if (is_killed()) return -1;
  if (!w_.is_readable(link)) return 0;
  std::deque<Piece>& in = w_.ends_.at(link).in;
  if (in.front().is_end) return -1;
  std::string& piece = in.front().bytes;
  size_t n = std::min(bytes, piece.size());
  if (n > 1 && w_.draws.one_in(4)) n = 1 + static_cast<size_t>(w_.draws.below(long(n) - 1));
  std::copy_n(piece.data(), n, static_cast<char*>(to));
  piece.erase(0, n);
  if (piece.empty()) in.pop_front();
  return static_cast<int64_t>(n);
}

int64_t VirtualWorld::ProcessWire::write(int link, const void* from, size_t bytes) {
  const End& mine = w_.ends_.at(link);
  const bool has_ended = w_.is_readable(link) && mine.in.front().is_end;
  if (is_killed() || has_ended) return -1;
  if (w_.draws.one_in(16)) return 0;
  size_t n = bytes;
  if (n > 1 && w_.draws.one_in(8)) n = 1 + static_cast<size_t>(w_.draws.below(long(n) - 1));
  const auto peer = w_.ends_.find(mine.peer);
  if (peer != w_.ends_.end())
    w_.push(peer->second, {w_.now_ + w_.delay(), std::string(static_cast<const char*>(from), n)});
  return static_cast<int64_t>(n);
}

// The world ------------------------------------------------------------------------------------------

int VirtualWorld::begin_process(int host, std::function<void(Wire&)> body) {
  const int number = ++last_;
  Process& p = processes_.emplace(number, Process{.host = host}).first->second;
  p.wire = std::make_unique<ProcessWire>(*this, number);
  start(number, [&p, body = std::move(body)] { body(*p.wire); });
  return number;
}

int VirtualWorld::start(int process, std::function<void()> body) {
  const int number = ++last_;
  tasks_.push_back({.number = number,
                    .process = process,
                    .fiber = std::make_unique<Fiber>([body = std::move(body)] {
                      try {
                        body();
                      } catch (const Killed&) {
                      }
                    })});
  return number;
}

// False: the process was killed.
bool VirtualWorld::block(const std::function<bool()>& ready, double end) {
  Task& task = *running_;
  task.ready = ready;
  task.until = end;
  task.fiber->pause();
  return !processes_.at(task.process).killed;
}

void VirtualWorld::push(End& to, Piece piece) {
  if (!to.in.empty() && !piece.is_local) piece.at = std::max(piece.at, to.in.back().at);
  if (piece.is_local)
    while (!to.in.empty() && to.in.back().at > piece.at) to.in.pop_back();
  if (to.in.empty() || !to.in.back().is_end) to.in.push_back(std::move(piece));
}

double VirtualWorld::comes_at(const End& e, const Piece& p) const {
  const auto peer = ends_.find(e.peer);
  if (p.is_local || peer == ends_.end()) return p.at;
  return std::max(p.at, cut_until(host_of_end(peer->second), host_of_end(e)));
}

bool VirtualWorld::is_readable(int link) const {
  const End& e = ends_.at(link);
  if (e.listens) return !e.waiting.empty();
  return !e.in.empty() && comes_at(e, e.in.front()) <= now_;
}

int VirtualWorld::listener_at(const SocketAddress& address) const {
  for (const auto& [link, e] : ends_) {
    if (e.listens && e.address == address) return link;
  }
  return -1;
}

// The other side hears of the end behind what was said before.
void VirtualWorld::forget(int link) {
  const auto at = ends_.find(link);
  if (at == ends_.end()) return;  // with its process
  const End e = std::move(at->second);
  const auto peer = ends_.find(e.peer);
  if (peer != ends_.end()) {
    const double held = cut_until(host_of_end(e), host_of_end(peer->second));
    push(peer->second, {std::max(now_ + delay(), held), {}, true});
  }
  ends_.erase(at);
  for (const int waiting : e.waiting) forget(waiting);
}

void VirtualWorld::end_process(int process, double heard_at) {
  Process& p = processes_.at(process);
  if (p.killed) return;
  p.killed = true;
  std::vector<int> gone;
  for (auto& [link, e] : ends_) {
    if (e.process == process) gone.push_back(link);
  }
  for (const int link : gone) {
    const auto peer = ends_.find(ends_.at(link).peer);
    if (peer == ends_.end() || peer->second.process == process) continue;
    End& other = peer->second;
    if (heard_at < kNever)
      push(other, {std::max(heard_at, cut_until(p.host, host_of_end(other))), {}, true});
    else if (other.keeps_alive)
      push(other, {now_ + kKeepAlive, {}, true, true});
  }
  for (const int link : gone) ends_.erase(link);
}

void VirtualWorld::lose_host(int host) {
  lost_hosts_.push_back(host);
  for (auto& [number, p] : processes_) {
    if (p.host == host) end_process(number, kNever);
  }
}

void VirtualWorld::cut(int from, int to, double seconds) {
  double& until = cuts_[{from, to}];
  until = std::max(until, now_ + seconds);
  if (seconds < kKeepAlive) return;
  for (auto& [link, e] : ends_) {  // probes, or the answers to them, do not come through
    const auto peer = ends_.find(e.peer);
    if (!e.keeps_alive || peer == ends_.end()) continue;
    const std::pair hosts(host_of_end(e), host_of_end(peer->second));
    if (hosts == std::pair(from, to) || hosts == std::pair(to, from))
      push(e, {now_ + kKeepAlive, {}, true, true});
  }
}

double VirtualWorld::next_time() const {
  double next = events_.empty() ? kNever : events_.begin()->first;
  const auto take = [&](double time) {
    if (time > now_) next = std::min(next, time);
  };
  for (const Task& t : tasks_) {
    take(t.until);
    take(processes_.at(t.process).asleep_until);
  }
  for (const auto& [link, e] : ends_) {
    if (!e.in.empty()) take(comes_at(e, e.in.front()));
  }
  for (const auto& [hosts, until] : cuts_) take(until);
  return next;
}

void VirtualWorld::run_until(double end) {
  std::vector<std::list<Task>::iterator> ready;
  for (;;) {
    while (!events_.empty() && events_.begin()->first <= now_) {
      const auto event = std::move(events_.begin()->second);
      events_.erase(events_.begin());
      event();
    }
    ready.clear();
    for (auto t = tasks_.begin(); t != tasks_.end(); ++t) {
      const Process& p = processes_.at(t->process);
      if (p.killed || (p.asleep_until <= now_ && (t->until <= now_ || t->ready())))
        ready.push_back(t);
    }
    if (!ready.empty()) {
      const auto next = ready[static_cast<size_t>(draws.below(long(ready.size())))];
      running_ = &*next;
      next->fiber->resume();
      if (next->fiber->has_ended()) tasks_.erase(next);
      continue;
    }
    const double next = next_time();
    if (next > end) break;
    now_ = next;
  }
  now_ = std::max(now_, end);
}

// Its own tests --------------------------------------------------------------------------------------

namespace {

// Of host 1, where a process listens at port 7 and takes in what one guest says until that has ended.
struct Host {
  std::string heard;
  double ended = -1;
  void listen(Wire& wire) {
    const int listener = wire.listen(VirtualWorld::place(1, 7)), listeners[] = {listener};
    wire.wait_to_read(listeners, VirtualWorld::kNever);
    const int guest = wire.accept(listener), guests[] = {guest};
    for (;;) {
      char text[16];
      wire.wait_to_read(guests, VirtualWorld::kNever);
      const int64_t n = wire.read(guest, text, sizeof text);
      if (n < 0) break;
      heard.append(text, static_cast<size_t>(n));
    }
    ended = wire.now();
    wire.close(guest);
    wire.close(listener);
  }
};

constexpr const char* kText = "what is said comes in its order, whatever happens on the way";

int say_to_host(VirtualWorld& world, double silent_for) {
  return world.begin_process(2, [=](Wire& wire) {
    int link = -1;
    while (link < 0) link = wire.reach(VirtualWorld::place(1, 7), VirtualWorld::kNever);
    for (const char* c = kText; *c != 0;) c += wire.write(link, c, 1);
    wire.pause(silent_for);
    wire.close(link);
  });
}

TEST(VirtualWorld, WhatIsSaidComesInOrderAndThenTheEnd) {
  for (uint64_t seed = 0; seed < 100; ++seed) {
    VirtualWorld world(seed);
    Host host;
    world.begin_process(1, [&](Wire& wire) { host.listen(wire); });
    world.run_until(0.1);
    say_to_host(world, 0);
    if (seed % 2 == 1) world.at(0.1 + world.draws.between(0, 0.1), [&] { world.cut(2, 1, 3); });
    world.run_until(9);
    EXPECT_EQ(host.heard, kText);
    EXPECT_GT(host.ended, 0);
    EXPECT_LT(host.ended, 4);
  }
}

TEST(VirtualWorld, ACutHoldsUpWhatIsSaid) {
  VirtualWorld world(1);
  Host host;
  world.begin_process(1, [&](Wire& wire) { host.listen(wire); });
  say_to_host(world, 5);
  world.run_until(1);
  ASSERT_EQ(host.heard, kText);
  world.cut(2, 1, 30);
  world.run_until(20);
  EXPECT_LT(host.ended, 0) << "an end came through the cut";
  world.run_until(40);
  EXPECT_GE(host.ended, 31);
}

TEST(VirtualWorld, OnlyOfAProcessThatIsKilledTheEndIsHeard) {
  for (const bool host_too : {false, true}) {
    VirtualWorld world(1);
    Host host;
    world.begin_process(1, [&](Wire& wire) { host.listen(wire); });
    const int guest = say_to_host(world, 100);
    world.run_until(1);
    ASSERT_EQ(host.heard, kText);
    if (host_too)
      world.lose_host(2);
    else
      world.kill(guest);
    world.run_until(50);
    EXPECT_EQ(host.ended < 0, host_too);
    EXPECT_FALSE(world.runs(guest));
  }
}

}  // namespace
}  // namespace moraine
