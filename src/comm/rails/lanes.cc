// Lanes: cuts messages into parcels, and puts parcels together again.
#include "comm/rails/lanes.h"

#include <algorithm>
#include <cstring>
#include <utility>

#include "base/check.h"

namespace moraine {
// Sending -----------------------------------------------------------------------------------------

const Lanes::Outgoing* Lanes::find(const Lane& lane, uint64_t message) const {
  for (const Outgoing& o : lane.out) {
    if (o.number == message) return &o;
  }
  return nullptr;
}

Lanes::Outgoing* Lanes::find(Lane& lane, uint64_t message) {
  return const_cast<Outgoing*>(std::as_const(*this).find(lane, message));
}

bool Lanes::has_room(int channel) const {
  const Lane& lane = lanes_[static_cast<size_t>(channel)];
  return lane.last_sent < lane.peer_taken + kOpenMessages;
}

uint64_t Lanes::send(int channel, uint64_t label, ConstBytes data) {
  MR_CHECK(has_room(channel), "channel %d", channel);
  Lane& lane = lanes_[static_cast<size_t>(channel)];
  Outgoing& o = lane.out.emplace_back();
  o.number = ++lane.last_sent;
  o.label = label;
  o.bytes = static_cast<int64_t>(data.size());
  o.chunks = chunk_count(o.bytes);
  o.granted = 1;
  if (o.bytes <= copied_bytes()) {
    o.copy.assign(data.begin(), data.end());
    o.data = o.copy.data();
  } else {
    o.data = data.data();
  }
  return o.number;
}

bool Lanes::is_sent(int channel, uint64_t message) const {
  return find(lanes_[static_cast<size_t>(channel)], message) == nullptr;
}

bool Lanes::all_sent() const {
  const auto is_empty = [](const Lane& lane) { return lane.out.empty(); };
  return std::all_of(lanes_.begin(), lanes_.end(), is_empty) && again_.empty();
}

void Lanes::withdraw(int channel, uint64_t message) {
  std::erase_if(lanes_[static_cast<size_t>(channel)].out,
                [message](const Outgoing& o) { return o.number == message; });
}

// Receiving ---------------------------------------------------------------------------------------

bool Lanes::has_next(int channel, MessageHead* head) const {
  const Lane& lane = lanes_[static_cast<size_t>(channel)];
  const auto next = lane.early.find(lane.opened + 1);
  if (next == lane.early.end() || !next->second.is_known) return false;
  *head = next->second.head;
  return true;
}

void Lanes::open(int channel, Bytes out) {
  Lane& lane = lanes_[static_cast<size_t>(channel)];
  const auto next = lane.early.find(++lane.opened);
  MR_CHECK(next != lane.early.end() && !lane.in.is_open, "channel %d", channel);
  lane.first = std::move(next->second);
  lane.early.erase(next);
  Inbox& in = lane.in;
  in.is_open = true;
  in.head = lane.first.head;
  in.have.assign(static_cast<size_t>(chunk_count(in.head.bytes)), false);
  in.have[0] = lane.first.is_whole;
  in.whole = lane.first.is_whole ? 1 : 0;
  if (in.head.bytes <= chunk_ && out.empty()) {  // all of it is the first chunk, where it lies
    in.base = lane.first.data.data();
    in.room = in.granted = in.head.bytes;
    return;
  }
  if (out.empty()) {
    lane.window.resize(static_cast<size_t>(kWindowChunks * chunk_));
    out = lane.window;
  }
  in.base = out.data();
  in.room = static_cast<int64_t>(out.size());
  if (lane.first.is_whole) std::memcpy(in.base, lane.first.data.data(), lane.first.data.size());
  in.granted = std::min(in.head.bytes, chunk_);
  if (in.head.bytes > chunk_) grant(channel, std::min(in.head.bytes, in.room));
}

int64_t Lanes::arrived(int channel) const {
  const Inbox& in = lanes_[static_cast<size_t>(channel)].in;
  return std::min(in.head.bytes, in.whole * chunk_);
}

ConstBytes Lanes::window(int channel, int64_t offset) const {
  const Inbox& in = lanes_[static_cast<size_t>(channel)].in;
  const int64_t at = in.room == 0 ? 0 : offset % in.room;
  return {in.base + at, static_cast<size_t>(std::min(in.room - at, arrived(channel) - offset))};
}

// Often enough that the sender never waits, seldom enough that grants are no traffic.
void Lanes::release(int channel, int64_t offset) {
  const Inbox& in = lanes_[static_cast<size_t>(channel)].in;
  const int64_t may = std::min(in.head.bytes, offset / chunk_ * chunk_ + in.room);
  if (in.head.bytes <= in.room || may <= in.granted) return;
  if (may == in.head.bytes || may - in.granted >= in.room / 4) grant(channel, may);
}

void Lanes::grant(int channel, int64_t granted) {
  Lane& lane = lanes_[static_cast<size_t>(channel)];
  lane.in.granted = granted;
  control_.push_back({.kind = FrameKind::kGrant,
                      .channel = static_cast<uint8_t>(channel),
                      .message = lane.opened,
                      .offset = granted});
}

void Lanes::close(int channel) {
  Lane& lane = lanes_[static_cast<size_t>(channel)];
  lane.in.is_open = false;
  lane.in.base = nullptr;
  lane.first = {};
  lane.taken = lane.opened;
  if (lane.taken - lane.told < kOpenMessages / 2) return;
  lane.told = lane.taken;
  control_.push_back(
      {.kind = FrameKind::kTaken, .channel = static_cast<uint8_t>(channel), .message = lane.taken});
}

// Parcels -----------------------------------------------------------------------------------------

bool Lanes::next_chunk(int channel, Parcel* parcel) {
  for (Outgoing& o : lanes_[static_cast<size_t>(channel)].out) {
    if (o.chunks > 1 && !std::exchange(o.is_announced, true)) {
      *parcel = {.kind = FrameKind::kAnnounce,
                 .channel = static_cast<uint8_t>(channel),
                 .message = o.number,
                 .label = o.label,
                 .bytes = o.bytes};
      return true;
    }
    if (o.next_chunk >= o.granted) continue;
    const int64_t offset = o.next_chunk++ * chunk_;
    const int64_t payload = std::min(chunk_, o.bytes - offset);
    *parcel = {.kind = FrameKind::kData,
               .channel = static_cast<uint8_t>(channel),
               .is_urgent = o.bytes > copied_bytes(),
               .message = o.number,
               .label = o.label,
               .bytes = o.bytes,
               .offset = offset,
               .payload_bytes = static_cast<uint32_t>(payload)};
    return true;
  }
  return false;
}

// What was lost on the way holds up more than what has not begun.
bool Lanes::next_parcel(Parcel* parcel) {
  for (std::deque<Parcel>* queue : {&control_, &again_}) {
    while (!queue->empty()) {
      *parcel = queue->front();
      queue->pop_front();
      if (parcel->kind != FrameKind::kData || payload(*parcel) != nullptr) return true;
    }
  }
  for (int i = 0; i < kLanes; ++i) {
    const int channel = (turn_ + i) % kLanes;
    if (!next_chunk(channel, parcel)) continue;
    turn_ = (channel + 1) % kLanes;
    return true;
  }
  return false;
}

void Lanes::acknowledge(const Parcel& p) {
  if (p.kind != FrameKind::kData) return;
  Lane& lane = lanes_[p.channel];
  Outgoing* o = find(lane, p.message);
  if (o != nullptr && ++o->acknowledged == o->chunks) withdraw(p.channel, p.message);
}

void Lanes::carry_again(const Parcel& p) { again_.push_back(p); }

const std::byte* Lanes::payload(const Parcel& p) const {
  static const std::byte nothing{};
  const Outgoing* o = find(lanes_[p.channel], p.message);
  if (o == nullptr) return nullptr;
  return o->bytes == 0 ? &nothing : o->data + p.offset;
}

bool Lanes::accepts(const FrameHead& h) const {
  const Lane& lane = lanes_[h.channel];
  if (h.kind == FrameKind::kTaken || h.kind == FrameKind::kGrant)
    return h.message <= lane.last_sent;
  const bool is_message = h.kind == FrameKind::kData || h.kind == FrameKind::kAnnounce;
  if (!is_message || h.message <= lane.taken) return true;
  if (h.message > lane.told + kOpenMessages) return false;
  if (h.message > lane.opened || h.kind == FrameKind::kAnnounce) return h.offset == 0;
  const Inbox& in = lane.in;
  return h.label == in.head.label && h.bytes == in.head.bytes &&
         h.offset + h.payload_bytes <= std::max(in.granted, chunk_);
}

// A frame was accepted when its head came; since then the message may have been opened, or another connection may
// have said something else of it. What does not fit is read into nowhere.
bool Lanes::fits(const Early& early, const FrameHead& h) {
  const bool is_same = early.head.label == h.label && early.head.bytes == h.bytes;
  return (!early.is_known || is_same) &&
         (early.data.empty() || early.data.size() == h.payload_bytes);
}

bool Lanes::fits(const Inbox& in, const FrameHead& h) const {
  return in.head.label == h.label && in.head.bytes == h.bytes &&
         !in.have[static_cast<size_t>(h.offset / chunk_)];
}

bool Lanes::is_in_first(const Lane& lane, const FrameHead& h) {
  return h.offset == 0 && lane.first.data.size() == h.payload_bytes;
}

std::byte* Lanes::place(const FrameHead& h) {
  Lane& lane = lanes_[h.channel];
  if (h.message <= lane.taken) return nullptr;
  if (h.message > lane.opened) {
    Early& early = lane.early[h.message];
    if (early.is_whole || !fits(early, h)) return nullptr;
    early.data.resize(h.payload_bytes);
    return early.data.data();
  }
  const Inbox& in = lane.in;
  if (!fits(in, h)) return nullptr;
  return is_in_first(lane, h) ? lane.first.data.data() : in.base + h.offset % in.room;
}

bool Lanes::take_chunk(Lane& lane, const FrameHead& h) {
  if (h.message <= lane.taken) return false;
  if (h.message > lane.opened) {
    Early& early = lane.early[h.message];
    if (early.is_whole || !fits(early, h)) return false;
    early.head = {h.label, h.bytes};
    early.is_known = true;
    return early.is_whole = true;
  }
  Inbox& in = lane.in;
  if (!fits(in, h)) return false;
  if (is_in_first(lane, h)) std::memcpy(in.base, lane.first.data.data(), h.payload_bytes);
  in.have[static_cast<size_t>(h.offset / chunk_)] = true;
  while (in.whole < static_cast<int64_t>(in.have.size()) && in.have[static_cast<size_t>(in.whole)])
    ++in.whole;
  return true;
}

bool Lanes::take(const FrameHead& h) {
  Lane& lane = lanes_[h.channel];
  if (h.kind == FrameKind::kTaken) {
    lane.peer_taken = std::max(lane.peer_taken, h.message);
  } else if (h.kind == FrameKind::kGrant) {
    Outgoing* o = find(lane, h.message);
    if (o != nullptr)
      o->granted = std::max(o->granted, h.offset >= o->bytes ? o->chunks : h.offset / chunk_);
  } else if (h.kind == FrameKind::kAnnounce && h.message > lane.opened) {
    Early& early = lane.early[h.message];
    if (!early.is_known) early.head = {h.label, h.bytes};
    early.is_known = true;
  } else if (h.kind == FrameKind::kData) {
    return take_chunk(lane, h);
  }
  return true;
}

}  // namespace moraine
