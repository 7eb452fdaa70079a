// RailsMessages: waits by moving bytes.
#include "comm/rails/rails_messages.h"

#include <algorithm>
#include <cstring>
#include <utility>

#include "base/check.h"
#include "base/clock.h"
#include "base/error.h"
#include "base/heartbeat.h"
#include "base/log.h"
#include "base/thread.h"
#include "comm/label.h"
#include "comm/waited.h"

namespace moraine {
namespace {

constexpr double kTickSeconds = 2e-3;  // between looks at the clocks of rails
constexpr double kTurnSeconds = 5e-3;  // between looks at faults and deadlines
constexpr double kIdleSeconds = 1e-3;  // after the last waiter, until the thread takes over
// Of silence, until an operation is held, and until that is news: a rank may just be busy.
constexpr double kHeldSeconds = 0.2, kHeldNewsSeconds = 1;

const uint64_t kFrameLabel = make_label(0, 0, Operation::kFrame);

std::vector<int> ranks_of(const RailSockets::Options& options) {
  std::vector<int> ranks;
  for (const auto& [rank, addresses] : options.peers) ranks.push_back(rank);
  return ranks;
}

}  // namespace

RailsMessages::RailsMessages(HostTransport& host, RailSockets::Options options)
    : host_(host), peers_(ranks_of(options)), sockets_(std::move(options)) {
  thread_ = start_thread("rails", [this] { run_in_background(); });
}

RailsMessages::~RailsMessages() {
  {
    const std::lock_guard lock(mutex_);
    stop_ = true;
  }
  background_.notify_all();
  thread_.join();
  say_held(-static_cast<int32_t>(holds_.size()));
}

// Moving ------------------------------------------------------------------------------------------

// Called with the lock. A system that gives no more sockets ends the job like any other fault, by whoever waits next.
void RailsMessages::work(const RailSockets::Events& events) {
  try {
    sockets_.handle(events);
    const double now = now_seconds();
    if (now - ticked_at_ >= kTickSeconds) {
      ticked_at_ = now;
      sockets_.tick();
      end_holds();
    }
  } catch (const Error& e) {
    broken_ = e.what();
  }
  for (const int peer : peers_) hear_frames(peer);
  if (!sockets_.any_fault()) return;  // this is run for every few frames
  for (const int peer : peers_) {
    const std::string* fault = sockets_.peer(peer).fault();
    if (fault != nullptr) host_.record_fault(peer, *fault);
  }
}

void RailsMessages::turn(Lock& lock, double seconds) {
  if (is_driven_) {
    ++waiters_;
    changed_.wait_for(lock, std::chrono::duration<double>(seconds));
    --waiters_;
    return;
  }
  is_driven_ = true;
  lock.unlock();
  const RailSockets::Events events = sockets_.wait(seconds);
  lock.lock();
  work(events);
  is_driven_ = false;
  driven_at_ = now_seconds();
  if (waiters_ > 0) changed_.notify_all();
}

void RailsMessages::run_in_background() {
  Lock lock(mutex_);
  while (!stop_) {
    if (is_driven_ || now_seconds() - driven_at_ < kIdleSeconds) {
      background_.wait_for(lock, std::chrono::duration<double>(kIdleSeconds));
      continue;
    }
    lock.unlock();
    sockets_.wait_beside(kTurnSeconds);
    lock.lock();
    if (is_driven_) continue;  // who waits has been woken as well
    work(sockets_.wait(0));
    if (waiters_ > 0) changed_.notify_all();
  }
}

// Waiting -----------------------------------------------------------------------------------------

// What the operation waits for cannot come. Once for each silence: the peer's other operations are held as well.
void RailsMessages::hold(const Wait& w) {
  const RailPeer& peer = sockets_.peer(w.peer);
  const double uncarried = peer.uncarried_seconds();
  if (uncarried < kHeldSeconds || !peer.has_carried()) return;
  const auto [at, is_new] = holds_.try_emplace(w.peer);
  Hold& h = at->second;
  if (is_new) {
    h.operation = host_.context_text(w.channel, w.label);
    say_held(1);
  }
  h.seconds = uncarried;
  if (uncarried < kHeldNewsSeconds) return;
  if (!std::exchange(h.is_told, true))
    log_event(Level::kWarning, "rails.held",
              "peer={} operation=\"{}\" attempts={} seconds_most={:.1f}", w.peer, h.operation,
              peer.times().resends, peer.times().patience_seconds());
  if (peer.resends() <= h.resends) return;
  h.resends = peer.resends();
  log_event(Level::kWarning, "rails.retry",
            "peer={} operation=\"{}\" attempt={} of={} seconds={:.1f}", w.peer, h.operation,
            h.resends, peer.times().resends, uncarried);
}

// By whoever hears the peer first.
void RailsMessages::end_holds() {
  for (auto at = holds_.begin(); at != holds_.end();) {
    const auto& [rank, h] = *at;
    const RailPeer& peer = sockets_.peer(rank);
    if (peer.uncarried_seconds() >= kHeldSeconds) {
      ++at;
      continue;
    }
    say_held(-1);
    if (h.is_told)
      log_event(Level::kInfo, "rails.resumed",
                "peer={} operation=\"{}\" attempts={} seconds={:.1f}", rank, h.operation, h.resends,
                h.seconds);
    at = holds_.erase(at);
  }
}

void RailsMessages::throw_lost(Lock& lock, const Wait& w, const std::string& what) {
  const std::string text =
      fmt::format("{}: rank {} {} rank {}, which {}; {}", host_.context_text(w.channel, w.label),
                  host_.rank(), w.doing, w.peer, what, sockets_.describe(w.peer));
  lock.unlock();
  host_.throw_lost(text);
}

void RailsMessages::check(Lock& lock, const Wait& w, double waited) {
  host_.throw_if_fault(w.channel, w.label);
  if (!broken_.empty()) throw_lost(lock, w, fmt::format("cannot be reached: {}", broken_));
  const RailPeer& peer = sockets_.peer(w.peer);
  if (sockets_.has_died(w.peer))
    throw_lost(lock, w, "died: its host answers, and nobody listens there");
  if (peer.has_said_goodbye() && !peer.any_open())
    throw_lost(lock, w, "left: it has ended its work");
  const bool is_late = waited > w.seconds;
  if ((peer.is_lost() || is_late) && !peer.has_carried()) is_apart_ = true;
  if (peer.is_lost())
    throw_lost(lock, w,
               fmt::format("has no rail that carried anything for {:.1f} seconds, {} attempts",
                           peer.uncarried_seconds(), peer.resends()));
  if (is_late) throw_lost(lock, w, fmt::format("gives nothing since {:.1f} seconds", waited));
}

template <class Ready>
void RailsMessages::wait(Lock& lock, const Wait& w, Ready ready) {
  if (ready()) return;
  Waited waited(now_seconds());
  const WaitsFor waits(w.peer);
  for (;;) {
    turn(lock, std::min(w.seconds, kTurnSeconds));
    if (ready()) return;
    hold(w);
    check(lock, w, waited.look(now_seconds()));
  }
}

void RailsMessages::meet(double seconds) {
  Lock lock(mutex_);
  for (const int peer : peers_) {
    const Wait w = {peer, 0, 0, seconds, "waits for a rail to"};
    const RailPeer& p = sockets_.peer(peer);
    wait(lock, w, [&p] {
      for (int rail = 0; rail < p.rails(); ++rail) {
        if (p.state(rail) == RailState::kUp) return true;
      }
      return false;
    });
  }
}

// Messages ----------------------------------------------------------------------------------------

SendTicket RailsMessages::send(int peer, int channel, uint64_t label, ConstBytes data,
                               double seconds) {
  Lock lock(mutex_);
  labels_[static_cast<size_t>(channel)] = label;
  host_.throw_if_fault(channel, label);
  Lanes& lanes = sockets_.peer(peer).lanes();
  wait(lock, {peer, channel, label, seconds, "has no free place to send to"},
       [&lanes, channel] { return lanes.has_room(channel); });
  const uint64_t number = lanes.send(channel, label, data);
  sockets_.flush(peer);
  const bool was_copied = static_cast<int64_t>(data.size()) <= lanes.copied_bytes();
  return {peer, channel, was_copied ? 0 : number};
}

void RailsMessages::wait_sent(const SendTicket& t, double seconds) {
  if (t.sequence == 0) return;
  Lock lock(mutex_);
  const Lanes& lanes = sockets_.peer(t.peer).lanes();
  const uint64_t label = labels_[static_cast<size_t>(t.channel)];
  wait(lock, {t.peer, t.channel, label, seconds, "waits until its data is read by"},
       [&lanes, &t] { return lanes.is_sent(t.channel, t.sequence); });
}

void RailsMessages::open_message(Lock& lock, const Wait& w, int64_t bytes, Bytes out) {
  host_.throw_if_fault(w.channel, w.label);
  Lanes& lanes = sockets_.peer(w.peer).lanes();
  MessageHead head;
  wait(lock, w, [&] { return lanes.has_next(w.channel, &head); });
  if (head.label != w.label || head.bytes != bytes) {
    lock.unlock();
    host_.throw_lost(
        mismatch_text({host_.rank(), w.label, bytes}, {w.peer, head.label, head.bytes}));
  }
  lanes.open(w.channel, out);
  sockets_.flush(w.peer);
}

Incoming RailsMessages::open(int peer, int channel, uint64_t label, int64_t bytes, double seconds) {
  Lock lock(mutex_);
  open_message(lock, {peer, channel, label, seconds, "waits for"}, bytes, {});
  return {.peer = peer,
          .channel = channel,
          .bytes = bytes,
          .taken = 0,
          .slot = label,
          .memory = nullptr};
}

// A view where the piece lies in one part of the window, which so stays as it is until the next call.
ConstBytes RailsMessages::next(Incoming& in, int64_t bytes, Bytes staging, double seconds) {
  MR_CHECK(in.taken + bytes <= in.bytes, "%ld of %ld bytes", long(in.taken + bytes),
           long(in.bytes));
  Lock lock(mutex_);
  Lanes& lanes = sockets_.peer(in.peer).lanes();
  const Wait w = {in.peer, in.channel, in.slot, seconds, "waits for"};
  lanes.release(in.channel, in.taken);
  sockets_.flush(in.peer);
  for (int64_t done = 0; done < bytes;) {
    const int64_t want = in.taken + std::min(bytes - done, lanes.chunk_bytes());
    wait(lock, w, [&] { return lanes.arrived(in.channel) >= want; });
    const ConstBytes view = lanes.window(in.channel, in.taken);
    const int64_t n = std::min<int64_t>(bytes - done, static_cast<int64_t>(view.size()));
    in.taken += n;
    if (n == bytes) return view.first(static_cast<size_t>(n));
    std::memcpy(staging.data() + done, view.data(), static_cast<size_t>(n));
    done += n;
    lanes.release(in.channel, in.taken);
    sockets_.flush(in.peer);
  }
  return staging.first(static_cast<size_t>(bytes));
}

void RailsMessages::close(Incoming& in) {
  const std::lock_guard lock(mutex_);
  sockets_.peer(in.peer).lanes().close(in.channel);
  sockets_.flush(in.peer);
}

void RailsMessages::drop(Incoming& in) { close(in); }

void RailsMessages::receive(int peer, int channel, uint64_t label, Bytes out, double seconds) {
  Lock lock(mutex_);
  const Wait w = {peer, channel, label, seconds, "waits for"};
  const int64_t bytes = static_cast<int64_t>(out.size());
  Lanes& lanes = sockets_.peer(peer).lanes();
  open_message(lock, w, bytes, out);
  try {
    wait(lock, w, [&] { return lanes.arrived(channel) >= bytes; });
  } catch (...) {
    if (!lock.owns_lock()) lock.lock();
    lanes.close(channel);  // `out` is the caller's again
    throw;
  }
  lanes.close(channel);
  sockets_.flush(peer);
}

void RailsMessages::withdraw(const SendTicket& t) {
  if (t.sequence == 0) return;
  const std::lock_guard lock(mutex_);
  sockets_.peer(t.peer).lanes().withdraw(t.channel, t.sequence);
}

// Frames ----------------------------------------------------------------------------------------

// On lanes of their own: an answer must not wait behind a message that nobody has opened yet.
void RailsMessages::listen(int channel, FrameListener listener) {
  const std::lock_guard lock(mutex_);
  listeners_[static_cast<size_t>(channel)] = std::move(listener);
}

void RailsMessages::post(int peer, int channel, ConstBytes frame) {
  MR_CHECK(static_cast<int64_t>(frame.size()) <= kMostFrameBytes, "%zu bytes", frame.size());
  const std::lock_guard lock(mutex_);
  host_.throw_if_fault(channel, kFrameLabel);
  post_now(peer, frame_lane(channel), {frame.begin(), frame.end()});
  sockets_.flush(peer);
}

void RailsMessages::post_now(int peer, int lane, std::vector<std::byte> frame) {
  Lanes& lanes = sockets_.peer(peer).lanes();
  if (!kept_.contains({peer, lane}) && lanes.has_room(lane)) {
    lanes.send(lane, kFrameLabel, frame);
  } else {
    kept_[{peer, lane}].push_back(std::move(frame));
  }
}

void RailsMessages::post_kept(int peer) {
  Lanes& lanes = sockets_.peer(peer).lanes();
  for (auto kept = kept_.lower_bound({peer, 0});
       kept != kept_.end() && kept->first.first == peer;) {
    auto& [key, frames] = *kept;
    for (; !frames.empty() && lanes.has_room(key.second); frames.pop_front())
      lanes.send(key.second, kFrameLabel, frames.front());
    kept = frames.empty() ? kept_.erase(kept) : std::next(kept);
  }
}

void RailsMessages::hear_frames(int peer) {
  bool heard = false;
  for (int channel = 0; channel < kMaxChannels; ++channel)
    heard = hear_frames(peer, channel) || heard;
  if (!heard && kept_.empty()) return;
  post_kept(peer);
  sockets_.flush(peer);
}

bool RailsMessages::hear_frames(int peer, int channel) {
  Lanes& lanes = sockets_.peer(peer).lanes();
  const int lane = frame_lane(channel);
  MessageHead head;
  bool heard = false;
  for (; lanes.has_next(lane, &head); heard = true) {
    if (head.label != kFrameLabel || head.bytes > kMostFrameBytes) {
      broken_ = fmt::format("rank {} sent {} bytes of {} as a frame, which no rank does", peer,
                            head.bytes, label_text(head.label));
      break;
    }
    lanes.open(lane, {});
    const FrameListener& listener = listeners_[static_cast<size_t>(channel)];
    std::vector<std::byte> answer;
    if (listener) answer = listener(peer, lanes.window(lane, 0));
    lanes.close(lane);
    if (!answer.empty()) post_now(peer, lane, std::move(answer));
  }
  return heard;
}

void RailsMessages::wait_until(const FarWait& w, const std::function<bool()>& ready) {
  Lock lock(mutex_);
  host_.throw_if_fault(w.channel, w.label);
  wait(lock, w, ready);
}

// Ends --------------------------------------------------------------------------------------------

bool RailsMessages::all_gave_everything() const {
  return std::all_of(peers_.begin(), peers_.end(), [this](int peer) {
    const RailPeer& p = sockets_.peer(peer);
    const auto kept = kept_.lower_bound({peer, 0});
    const bool has_kept = kept != kept_.end() && kept->first.first == peer;
    return (p.all_acknowledged() && !has_kept) || p.has_said_goodbye() || sockets_.has_died(peer) ||
           p.fault() != nullptr || p.is_lost();
  });
}

void RailsMessages::announce_fault(const std::string& reason) {
  constexpr double kSeconds = 0.2;  // small messages leave at once where the peer lives
  Lock lock(mutex_);
  for (const int peer : peers_) {
    sockets_.peer(peer).send_fault(reason);
    sockets_.flush(peer);
  }
  const auto is_told = [this](int peer) {
    const RailPeer& p = sockets_.peer(peer);
    return p.fault_is_told() || p.has_said_goodbye() || sockets_.has_died(peer);
  };
  const double end = now_seconds() + kSeconds;
  while (!std::all_of(peers_.begin(), peers_.end(), is_told) && now_seconds() < end)
    turn(lock, kTickSeconds);
}

bool RailsMessages::finish(double seconds) {
  Lock lock(mutex_);
  const double end = now_seconds() + seconds;
  for (int pass = 0; pass < 2; ++pass) {
    for (const int peer : peers_) {
      if (pass == 1) sockets_.peer(peer).send_goodbye();
      sockets_.flush(peer);
    }
    while (!all_gave_everything()) {
      if (now_seconds() > end) return false;
      turn(lock, kTickSeconds);
    }
  }
  return std::none_of(peers_.begin(), peers_.end(), [this](int peer) {
    const RailPeer& p = sockets_.peer(peer);
    return p.is_lost() && !p.has_said_goodbye() && !sockets_.has_died(peer);
  });
}

RailCounters RailsMessages::counters() {
  const std::lock_guard lock(mutex_);
  return sockets_.counters();
}

RailCounts RailsMessages::counts(int peer, int rail) {
  const std::lock_guard lock(mutex_);
  return sockets_.peer(peer).counts(rail);
}

}  // namespace moraine
