// WindowAgent: a table of segments, a table of what was asked, and what joins them.
#include "comm/window/window_agent.h"

#include <atomic>
#include <cstring>

namespace moraine {
namespace {

std::vector<std::byte> frame_of(const WindowFrame& head, ConstBytes payload) {
  std::vector<std::byte> frame(sizeof head + payload.size());
  std::memcpy(frame.data(), &head, sizeof head);
  if (!payload.empty()) std::memcpy(frame.data() + sizeof head, payload.data(), payload.size());
  return frame;
}

WindowPlace place_of(const GlobalAddress& a) {
  return {.offset = a.offset, .generation = a.generation, .segment = a.segment};
}

// Whether a request is of a shape that ask() makes: sizes fit each other and the limits.
bool is_request(const WindowFrame& h) {
  switch (h.action) {
    case WindowAction::kPut:
      return h.payload_bytes <= h.whole_bytes && h.whole_bytes >= 0 && h.group != 0 &&
             (h.payload_bytes > 0 || h.whole_bytes == 0);
    case WindowAction::kGet:
      return h.payload_bytes == 0 && h.payload_wanted <= kMostPartBytes;
    case WindowAction::kFetchAdd:
    case WindowAction::kCompareSwap:
      return h.payload_bytes == 0;
    default:
      return false;
  }
}

}  // namespace

uint64_t add_to_word(uint64_t* word, uint64_t value) {
  return std::atomic_ref<uint64_t>(*word).fetch_add(value);
}

uint64_t swap_word_if(uint64_t* word, uint64_t expected, uint64_t desired) {
  std::atomic_ref<uint64_t>(*word).compare_exchange_strong(expected, desired);
  return expected;
}

uint64_t load_word(const uint64_t* word) {
  return std::atomic_ref<uint64_t>(*const_cast<uint64_t*>(word)).load();
}

const char* window_status_text(WindowStatus status) {
  switch (status) {
    case WindowStatus::kOk:
      return "did it";
    case WindowStatus::kNoSegment:
      return "has no such segment";
    case WindowStatus::kOldGeneration:
      return "has a segment of another generation there";
    case WindowStatus::kOutside:
      return "has a smaller segment";
    case WindowStatus::kUnaligned:
      return "has no word there: its offset is no multiple of 8";
    case WindowStatus::kMalformed:
      return "can not read the request";
  }
  return "gave an answer that this program does not know";
}

// Owner -------------------------------------------------------------------------------------------

void WindowAgent::add_segment(int segment, uint64_t generation, Bytes memory) {
  const std::lock_guard lock(mutex_);
  segments_[segment] = {generation, memory};
}

void WindowAgent::remove_segment(int segment) {
  const std::lock_guard lock(mutex_);
  segments_.erase(segment);
}

WindowStatus WindowAgent::find(const WindowPlace& p, int64_t bytes, std::byte** at) const {
  const auto found = segments_.find(p.segment);
  if (found == segments_.end()) return WindowStatus::kNoSegment;
  const Segment& s = found->second;
  if (s.generation != p.generation) return WindowStatus::kOldGeneration;
  const int64_t size = static_cast<int64_t>(s.memory.size());
  if (p.offset < 0 || p.offset > size || bytes < 0 || bytes > size - p.offset)
    return WindowStatus::kOutside;
  *at = s.memory.data() + p.offset;
  return WindowStatus::kOk;
}

WindowStatus WindowAgent::find_word(const WindowPlace& p, uint64_t** word) const {
  std::byte* at = nullptr;
  const WindowStatus status = find(p, kWindowWordBytes, &at);
  if (status != WindowStatus::kOk) return status;
  if (p.offset % kWindowWordBytes != 0) return WindowStatus::kUnaligned;
  *word = reinterpret_cast<uint64_t*>(at);
  return WindowStatus::kOk;
}

std::vector<std::byte> WindowAgent::handle(int from, ConstBytes frame, bool* signalled) {
  *signalled = false;
  WindowFrame head;
  if (frame.size() < sizeof head) return {};
  std::memcpy(&head, frame.data(), sizeof head);
  const ConstBytes payload = frame.subspan(sizeof head);
  if (head.magic != WindowFrame::kMagic) return {};
  const std::lock_guard lock(mutex_);
  if (head.action == WindowAction::kAnswer) {
    take(from, head, payload);
    return {};
  }
  if (payload.size() == head.payload_bytes && is_request(head))
    return act(from, head, payload, signalled);
  return frame_of({.status = WindowStatus::kMalformed, .id = head.id}, {});
}

std::vector<std::byte> WindowAgent::act(int from, const WindowFrame& h, ConstBytes payload,
                                        bool* signalled) {
  WindowFrame answer = {.id = h.id};
  if (h.action == WindowAction::kPut) {
    answer.status = put(from, h, payload, signalled);
    return frame_of(answer, {});
  }
  if (h.action == WindowAction::kGet) {
    std::byte* at = nullptr;
    answer.status = find(h.place, h.payload_wanted, &at);
    if (answer.status != WindowStatus::kOk) return frame_of(answer, {});
    answer.payload_bytes = h.payload_wanted;
    return frame_of(answer, {at, h.payload_wanted});
  }
  uint64_t* word = nullptr;
  answer.status = find_word(h.place, &word);
  if (answer.status != WindowStatus::kOk) return frame_of(answer, {});
  answer.value = h.action == WindowAction::kFetchAdd ? add_to_word(word, h.value)
                                                     : swap_word_if(word, h.expected, h.value);
  return frame_of(answer, {});
}

WindowStatus WindowAgent::write_part(const WindowFrame& h, ConstBytes payload) {
  std::byte* at = nullptr;
  const WindowStatus status = find(h.place, static_cast<int64_t>(payload.size()), &at);
  uint64_t* word = nullptr;
  const WindowStatus signal = h.has_signal != 0 ? find_word(h.signal, &word) : WindowStatus::kOk;
  if (status != WindowStatus::kOk) return status;
  if (signal != WindowStatus::kOk) return signal;
  if (!payload.empty()) std::memcpy(at, payload.data(), payload.size());
  return WindowStatus::kOk;
}

// Parts are counted, so their order is of no matter; a put of which a part was refused raises no signal.
WindowStatus WindowAgent::put(int from, const WindowFrame& h, ConstBytes payload, bool* signalled) {
  const auto key = std::pair(from, h.group);
  size_t& open = open_counts_[from];
  auto found = open_puts_.find(key);
  if (found == open_puts_.end()) {
    if (open == kMostOpenPuts) return WindowStatus::kMalformed;
    found = open_puts_.emplace(key, OpenPut{.missing = h.whole_bytes}).first;
    ++open;
  }
  OpenPut& whole = found->second;
  const int64_t bytes = static_cast<int64_t>(payload.size());
  const WindowStatus status =
      bytes > whole.missing ? WindowStatus::kMalformed : write_part(h, payload);
  whole.missing -= std::min(bytes, whole.missing);
  whole.is_refused = whole.is_refused || status != WindowStatus::kOk;
  if (whole.missing > 0) return status;
  uint64_t* word = nullptr;
  if (!whole.is_refused && h.has_signal != 0 && find_word(h.signal, &word) == WindowStatus::kOk) {
    add_to_word(word, 1);
    *signalled = true;
  }
  open_puts_.erase(found);
  --open;
  return status;
}

// Who asks ----------------------------------------------------------------------------------------

uint64_t WindowAgent::ask(const WindowRequest& r, std::vector<std::byte>* frame) {
  const std::lock_guard lock(mutex_);
  WindowFrame head = {.action = r.action, .id = next_id_++};
  head.place = place_of(r.address);
  head.payload_bytes = static_cast<uint32_t>(r.data.size());
  head.payload_wanted = static_cast<uint32_t>(r.out.size());
  head.value = r.value;
  head.expected = r.expected;
  head.group = r.group == 0 ? head.id : r.group;
  head.whole_bytes = r.whole_bytes;
  if (r.signal != nullptr) {
    head.has_signal = 1;
    head.signal = place_of(*r.signal);
  }
  *frame = frame_of(head, r.data);
  const int64_t bytes = static_cast<int64_t>(r.data.size() + r.out.size());
  pending_.emplace(head.id, Pending{r.action, r.address, bytes, r.out});
  if (r.action == WindowAction::kPut) ++puts_in_flight_[r.address.rank];
  return head.id;
}

// From whom it was asked, and of the size that was asked for; anything else is dropped.
void WindowAgent::take(int from, const WindowFrame& h, ConstBytes payload) {
  const auto found = pending_.find(h.id);
  if (found == pending_.end() || found->second.address.rank != from) return;
  Pending& p = found->second;
  WindowStatus status = h.status;
  if (status == WindowStatus::kOk && payload.size() != p.out.size())
    status = WindowStatus::kMalformed;
  if (p.action == WindowAction::kPut) {
    --puts_in_flight_[from];
    if (status != WindowStatus::kOk && !refused_) refused_ = RefusedPut{p.address, p.bytes, status};
    pending_.erase(found);
    return;
  }
  if (status == WindowStatus::kOk && !payload.empty())
    std::memcpy(p.out.data(), payload.data(), payload.size());
  p.answer = WindowAnswer{status, h.value};
}

std::optional<WindowAnswer> WindowAgent::take_answer(uint64_t id) {
  const std::lock_guard lock(mutex_);
  const auto found = pending_.find(id);
  if (found == pending_.end() || !found->second.answer) return {};
  const std::optional<WindowAnswer> answer = found->second.answer;
  pending_.erase(found);
  return answer;
}

void WindowAgent::forget(uint64_t id) {
  const std::lock_guard lock(mutex_);
  pending_.erase(id);
}

int WindowAgent::puts_in_flight(int rank) const {
  const std::lock_guard lock(mutex_);
  const auto found = puts_in_flight_.find(rank);
  return found == puts_in_flight_.end() ? 0 : found->second;
}

std::optional<RefusedPut> WindowAgent::take_refused() {
  const std::lock_guard lock(mutex_);
  return std::exchange(refused_, std::nullopt);
}

}  // namespace moraine
