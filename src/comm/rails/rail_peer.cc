// RailPeer: shares parcels among rails, and notices which of these are dead.
#include "comm/rails/rail_peer.h"

#include <algorithm>
#include <cstring>
#include <limits>
#include <utility>

#include "base/check.h"
#include "comm/waited.h"

namespace moraine {
namespace {

// What a rail may carry unacknowledged, beside twice what its way holds: little enough to stay in a cache on its way
// through both kernels, and to send again.
constexpr int64_t kLeastChunks = 4, kMostChunks = 256;
// A look that is late makes no rail silent.
static_assert(Waited::kMostBetweenLooks < RailTimes{}.dead_seconds / 2);
constexpr size_t kMostFaultBytes = 2000;

}  // namespace

RailPeer::RailPeer(int rails, uint32_t generation, const RailTimes& times, int64_t chunk_bytes)
    : generation_(generation),
      times_(times),
      probe_(static_cast<size_t>(chunk_bytes), std::byte{0x5a}),
      lanes_(chunk_bytes),
      rails_(static_cast<size_t>(rails)) {
  MR_CHECK(rails >= 1, "rails=%d", rails);
}

// Connections -------------------------------------------------------------------------------------

void RailPeer::rail_opened(int rail, uint64_t connection, double now) {
  if (at(rail).state != RailState::kClosed) rail_closed(rail, now);
  Rail& r = at(rail);
  r.state = RailState::kProving;
  r.connection = connection;
  r.probe_sent = r.acknowledge_now = false;
  r.received = r.told = r.acknowledged = 0;
  r.heard = r.opened = observed_;
  r.sent = now;
  set_path(rail, 0);
}

void RailPeer::set_path(int rail, double bytes) {
  const double chunk = static_cast<double>(lanes_.chunk_bytes());
  at(rail).window_bytes =
      static_cast<int64_t>(std::min(2 * bytes + static_cast<double>(kLeastChunks) * chunk,
                                    static_cast<double>(kMostChunks) * chunk));
}

void RailPeer::rail_closed(int rail, double now) {
  Rail& r = at(rail);
  if (r.state == RailState::kClosed) return;
  const bool settled = observed_ - r.opened > times_.settled_seconds;
  if (settled) r.retry_seconds = 0;
  r.state = RailState::kClosed;
  ++r.counts.lost;
  for (const Parcel& p : r.in_flight) {
    if (p.kind == FrameKind::kProbe || p.kind == FrameKind::kRailLost) continue;
    ++r.counts.sent_again;
    if (p.kind == FrameKind::kFault || p.kind == FrameKind::kGoodbye) {
      notices_.push_back(p);
    } else {
      lanes_.carry_again(p);
    }
  }
  r.in_flight.clear();
  r.in_flight_bytes = 0;
  retry_later(rail, now);
}

bool RailPeer::any_open() const {
  return std::any_of(rails_.begin(), rails_.end(),
                     [](const Rail& r) { return r.state != RailState::kClosed; });
}

bool RailPeer::wants_connection(int rail, double now) const {
  return at(rail).state == RailState::kClosed && now >= at(rail).retry_at;
}

void RailPeer::retry_later(int rail, double now) {
  Rail& r = at(rail);
  r.retry_at = now + r.retry_seconds;
  r.retry_seconds =
      std::clamp(2 * r.retry_seconds, times_.first_retry_seconds, times_.last_retry_seconds);
}

void RailPeer::trying(int rail) { at(rail).retry_at = std::numeric_limits<double>::infinity(); }

void RailPeer::retry_now(int rail) { at(rail).retry_at = at(rail).retry_seconds = 0; }

// Frames out --------------------------------------------------------------------------------------

bool RailPeer::next_parcel(Rail& r, Parcel* parcel) {
  if (r.state == RailState::kProving) {
    if (std::exchange(r.probe_sent, true)) return false;
    *parcel = {.kind = FrameKind::kProbe, .payload_bytes = static_cast<uint32_t>(probe_.size())};
    return true;
  }
  if (!notices_.empty()) {
    *parcel = notices_.front();
    notices_.pop_front();
    return true;
  }
  return r.in_flight_bytes < r.window_bytes && lanes_.next_parcel(parcel);
}

bool RailPeer::next_frame(int rail, double now, Outbound* out) {
  Rail& r = at(rail);
  if (r.state == RailState::kClosed) return false;
  Parcel& p = out->parcel;
  p = {};
  out->is_counted = next_parcel(r, &p);
  const bool is_due = r.acknowledge_now || now - r.sent >= times_.heartbeat_seconds;
  if (!out->is_counted && !is_due) return false;
  if (!out->is_counted) p.kind = FrameKind::kAcknowledge;
  out->head = {};
  out->head.generation = generation_;
  out->head.kind = p.kind;
  out->head.channel = p.channel;
  out->head.is_urgent = p.is_urgent;
  out->head.payload_bytes = p.payload_bytes;
  out->head.received = r.received;
  out->head.message = p.message;
  out->head.label = p.label;
  out->head.bytes = p.bytes;
  out->head.offset = p.offset;
  seal_frame(out->head, payload(*out));
  r.told = r.received;
  r.acknowledge_now = false;
  r.sent = now;
  if (!out->is_counted) return true;
  r.in_flight.push_back(p);
  r.in_flight_bytes += p.payload_bytes;
  if (p.kind == FrameKind::kData) r.counts.sent_bytes += p.payload_bytes;
  return true;
}

const std::byte* RailPeer::payload(const Outbound& out) const {
  switch (out.parcel.kind) {
    case FrameKind::kData:
      return lanes_.payload(out.parcel);
    case FrameKind::kFault:
      return reinterpret_cast<const std::byte*>(fault_out_.data());
    default:
      return probe_.data();  // a probe, or nothing
  }
}

// Frames in ---------------------------------------------------------------------------------------

void RailPeer::heard(int rail) {
  at(rail).heard = observed_;
  if (at(rail).state == RailState::kUp) carried_ = observed_;
}

bool RailPeer::accepts(const FrameHead& head) const { return lanes_.accepts(head); }

std::byte* RailPeer::place(const FrameHead& head) {
  if (head.kind == FrameKind::kData) return lanes_.place(head);
  if (head.kind != FrameKind::kFault) return nullptr;
  scratch_.resize(static_cast<size_t>(lanes_.chunk_bytes()));
  return scratch_.data();
}

bool RailPeer::acknowledge(Rail& r, uint64_t received) {
  if (received > r.acknowledged + r.in_flight.size()) return false;
  for (; r.acknowledged < received; ++r.acknowledged) {
    const Parcel& p = r.in_flight.front();
    if (p.kind == FrameKind::kProbe) {
      r.state = RailState::kUp;
      carried_ = observed_;
    }
    lanes_.acknowledge(p);
    r.in_flight_bytes -= p.payload_bytes;
    r.in_flight.pop_front();
  }
  return true;
}

bool RailPeer::arrived(int rail, const FrameHead& head, const std::byte* payload,
                       std::vector<int>* lost) {
  Rail& r = at(rail);
  if (!acknowledge(r, head.received)) return false;
  if (head.kind == FrameKind::kAcknowledge) return true;
  ++r.received;
  r.acknowledge_now = r.acknowledge_now || head.is_urgent != 0 || head.kind == FrameKind::kProbe ||
                      r.received - r.told >= 4;
  if (head.kind == FrameKind::kRailLost) {
    for (int i = 0; i < rails(); ++i) {
      if (at(i).state != RailState::kClosed && at(i).connection == head.message) lost->push_back(i);
    }
  } else if (head.kind == FrameKind::kGoodbye) {
    goodbye_ = true;
    r.acknowledge_now = true;
  } else if (head.kind == FrameKind::kFault) {
    if (fault_.empty() && payload != nullptr)
      fault_.assign(reinterpret_cast<const char*>(payload),
                    std::min<size_t>(head.payload_bytes, kMostFaultBytes));
    r.acknowledge_now = true;
  } else if (!lanes_.take(head)) {
    ++r.counts.duplicates;
  } else if (head.kind == FrameKind::kData) {
    r.counts.received_bytes += head.payload_bytes;
  }
  return true;
}

// Time --------------------------------------------------------------------------------------------

double RailPeer::freshest() const {
  double last = -1e9;
  for (const Rail& r : rails_) {
    if (r.state != RailState::kClosed) last = std::max(last, r.heard);
  }
  return last;
}

void RailPeer::say_lost(int rail) {
  notices_.push_back(
      {.kind = FrameKind::kRailLost, .message = at(rail).connection, .offset = rail});
}

// Whether it is time to run again what was begun.
bool RailPeer::begin_resend() {
  const double held = uncarried_seconds() - times_.hold_seconds;
  const double each = times_.hold_seconds + times_.interval_seconds;
  const int due = held < 0 ? 0 : std::min(times_.resends, 1 + static_cast<int>(held / each));
  return due > std::exchange(resends_, due);
}

std::vector<int> RailPeer::tick(double now) {
  if (last_tick_ >= 0) observed_ += std::clamp(now - last_tick_, 0.0, Waited::kMostBetweenLooks);
  last_tick_ = now;
  std::vector<int> dead;
  const double last = freshest();
  const bool heard_nothing = std::exchange(hears_nothing_, observed_ - last > times_.dead_seconds);
  const bool again = begin_resend();
  for (int i = 0; i < rails() && (again || (hears_nothing_ && !heard_nothing)); ++i) {
    if (at(i).state == RailState::kClosed) retry_now(i);
  }
  for (int i = 0; i < rails(); ++i) {
    const Rail& r = at(i);
    if (r.state == RailState::kClosed) continue;
    const double silent = observed_ - r.heard;
    const bool others_speak = last - r.heard > times_.dead_seconds / 2;
    const bool is_dead = silent > times_.dead_seconds && others_speak;
    const bool is_unproved =
        r.state == RailState::kProving && observed_ - r.opened > times_.renew_seconds;
    if (is_dead) say_lost(i);
    if (is_dead || is_unproved || silent > times_.renew_seconds || again) dead.push_back(i);
  }
  return dead;
}

double RailPeer::uncarried_seconds() const { return observed_ - carried_; }

bool RailPeer::is_lost() const { return uncarried_seconds() > times_.patience_seconds(); }

// Ends --------------------------------------------------------------------------------------------

void RailPeer::send_fault(const std::string& reason) {
  if (!fault_out_.empty()) return;
  fault_out_ = reason.empty() ? "no reason was given" : reason.substr(0, kMostFaultBytes);
  notices_.push_back(
      {.kind = FrameKind::kFault, .payload_bytes = static_cast<uint32_t>(fault_out_.size())});
}

void RailPeer::send_goodbye() { notices_.push_back({.kind = FrameKind::kGoodbye}); }

bool RailPeer::fault_is_told() const {
  const auto is_fault = [](const Parcel& p) { return p.kind == FrameKind::kFault; };
  return std::none_of(notices_.begin(), notices_.end(), is_fault) &&
         std::none_of(rails_.begin(), rails_.end(), [&is_fault](const Rail& r) {
           return std::any_of(r.in_flight.begin(), r.in_flight.end(), is_fault);
         });
}

bool RailPeer::all_acknowledged() const {
  return lanes_.all_sent() && notices_.empty() &&
         std::all_of(rails_.begin(), rails_.end(),
                     [](const Rail& r) { return r.in_flight.empty(); });
}

}  // namespace moraine
