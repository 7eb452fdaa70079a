// MpiMessages: sends each message as a header and pieces, and polls until they have arrived.
#include "comm/mpi_messages.h"

#include <sched.h>

#include <algorithm>
#include <chrono>
#include <cstring>
#include <thread>

#include "base/check.h"
#include "base/clock.h"
#include "base/error.h"
#include "base/thread.h"
#include "comm/label.h"
#include "comm/waited.h"

namespace moraine {
namespace {

constexpr int kFrameTag = kMaxChannels, kFaultTag = 2 * kMaxChannels;  // of channel 0
constexpr auto kPollSeconds = std::chrono::microseconds(200);
constexpr int64_t kFaultBytes = RegionHead::kReasonBytes;

// Yields while an answer may be near; later sleeps, so that waiting leaves the cores to others.
class Patience {
 public:
  void pause() {
    constexpr int kYields = 2000;
    if (++rounds_ <= kYields) {
      sched_yield();
    } else {
      std::this_thread::sleep_for(std::chrono::microseconds(100));
    }
  }

 private:
  int rounds_ = 0;
};

}  // namespace

MpiMessages::MpiMessages(HostTransport& host, int rank, int size, std::vector<int> others)
    : mpi_(mpi_library()),
      host_(host),
      rank_(rank),
      others_(std::move(others)),
      lanes_(static_cast<size_t>(size) * kMaxChannels),
      fault_in_(kFaultBytes),
      fault_out_(kFaultBytes) {
  if (!others_.empty())
    post_receive(fault_in_.data(), kFaultBytes, kMpiAnySource, kFaultTag, &fault_request_);
}

MpiMessages::~MpiMessages() {
  listening_ = 0;
  if (poller_.joinable()) poller_.join();
}

void MpiMessages::check(int result, const char* doing) {
  if (result == kMpiSuccess) return;
  host_.throw_lost(
      fmt::format("rank {}: {}: Open MPI says: {}", rank_, doing, mpi_.error_text(result)));
}

void MpiMessages::post_send(const void* data, int64_t bytes, int peer, int tag,
                            MpiRequest* request) {
  const std::lock_guard lock(mutex_);
  check(mpi_.isend(data, static_cast<int>(bytes), mpi_.byte, peer, tag, mpi_.world, request),
        "send");
}

void MpiMessages::post_receive(void* data, int64_t bytes, int peer, int tag, MpiRequest* request) {
  const std::lock_guard lock(mutex_);
  check(mpi_.irecv(data, static_cast<int>(bytes), mpi_.byte, peer, tag, mpi_.world, request),
        "receive");
}

bool MpiMessages::test(MpiRequest* request, MpiStatus* status) {
  const std::lock_guard lock(mutex_);
  int done = 0;
  check(mpi_.test(request, &done, status), "wait for a message");
  return done != 0;
}

void MpiMessages::wait(MpiRequest* request, MpiStatus* status, const Wait& w) {
  wait(w, [=, this] { return test(request, status); });
}

template <class Ready>
void MpiMessages::wait(const Wait& w, Ready ready) {
  Waited waited(now_seconds());
  Patience patience;
  while (!ready()) {
    look();
    host_.throw_if_fault(w.channel, w.label);
    if (waited.look(now_seconds()) > w.seconds) {
      host_.throw_lost(fmt::format("{}: rank {} {} rank {} since {:.1f} seconds; rank {} is silent",
                                   host_.context_text(w.channel, w.label), rank_, w.doing, w.peer,
                                   w.seconds, w.peer));
    }
    patience.pause();
  }
}

SendTicket MpiMessages::send(int peer, int channel, uint64_t label, ConstBytes data, double) {
  Lane& l = lane(peer, channel);
  host_.throw_if_fault(channel, label);
  forget_finished(l);
  l.label = label;
  const int64_t bytes = static_cast<int64_t>(data.size());
  const bool is_inline = bytes <= kSmallBytes;
  const Header header = {label, bytes};
  Sending& s = l.sending.emplace_back();
  s.number = ++l.sent;
  s.head.resize(sizeof header + (is_inline ? data.size() : 0));
  std::memcpy(s.head.data(), &header, sizeof header);
  if (is_inline && bytes > 0) std::memcpy(s.head.data() + sizeof header, data.data(), data.size());
  const int64_t pieces = is_inline ? 0 : (bytes + kPieceBytes - 1) / kPieceBytes;
  s.requests.resize(static_cast<size_t>(pieces) + 1);
  post_send(s.head.data(), static_cast<int64_t>(s.head.size()), peer, channel, &s.requests[0]);
  for (int64_t i = 0; i < pieces; ++i) {
    const int64_t begin = i * kPieceBytes;
    post_send(data.data() + begin, std::min(kPieceBytes, bytes - begin), peer, channel,
              &s.requests[static_cast<size_t>(i) + 1]);
  }
  return {peer, channel, is_inline ? 0 : s.number};
}

bool MpiMessages::finished(Sending& s) {
  MpiStatus status;
  while (!s.requests.empty() && test(&s.requests.back(), &status)) s.requests.pop_back();
  return s.requests.empty();
}

void MpiMessages::forget_finished(Lane& l) {
  while (!l.sending.empty() && finished(l.sending.front())) l.sending.pop_front();
}

void MpiMessages::wait_sent(const SendTicket& ticket, double seconds) {
  if (ticket.sequence == 0) return;
  Lane& l = lane(ticket.peer, ticket.channel);
  const Wait w = {ticket.peer, ticket.channel, l.label, seconds, "waits until its data is read by"};
  for (Sending& s : l.sending) {
    if (s.number != ticket.sequence) continue;
    MpiStatus status;
    for (MpiRequest& request : s.requests) wait(&request, &status, w);
    s.requests.clear();
  }
  forget_finished(l);
}

Incoming MpiMessages::open(int peer, int channel, uint64_t label, int64_t bytes, double seconds) {
  Lane& l = lane(peer, channel);
  l.label = label;
  host_.throw_if_fault(channel, label);
  l.head.resize(sizeof(Header) + kSmallBytes);
  MpiRequest request;
  MpiStatus status;
  post_receive(l.head.data(), static_cast<int64_t>(l.head.size()), peer, channel, &request);
  wait(&request, &status, {peer, channel, label, seconds, "waits for"});
  Header header;
  std::memcpy(&header, l.head.data(), sizeof header);
  if (header.label != label || header.bytes != bytes)
    host_.throw_lost(mismatch_text({rank_, label, bytes}, {peer, header.label, header.bytes}));
  Incoming in = {.peer = peer,
                 .channel = channel,
                 .bytes = bytes,
                 .taken = 0,
                 .slot = 0,
                 .memory = bytes <= kSmallBytes ? l.head.data() + sizeof header : nullptr};
  l.arrived = 0;
  return in;
}

void MpiMessages::post_piece(const Incoming& in, Lane& l, int64_t piece) {
  const int64_t begin = piece * kPieceBytes;
  if (begin >= in.bytes) return;
  std::vector<std::byte>& buffer = l.pieces[piece % 2];
  buffer.resize(kPieceBytes);
  post_receive(buffer.data(), std::min(kPieceBytes, in.bytes - begin), in.peer, in.channel,
               &l.requests[piece % 2]);
}

// Piece n + 1 is on its way while n is being taken.
ConstBytes MpiMessages::next(Incoming& in, int64_t bytes, Bytes staging, double seconds) {
  MR_CHECK(in.taken + bytes <= in.bytes, "%ld of %ld bytes", long(in.taken + bytes),
           long(in.bytes));
  const int64_t begin = in.taken;
  in.taken += bytes;
  if (in.memory != nullptr) return {in.memory + begin, static_cast<size_t>(bytes)};
  Lane& l = lane(in.peer, in.channel);
  for (int64_t done = 0; done < bytes;) {
    const int64_t at = begin + done, piece = at / kPieceBytes;
    if (piece == l.arrived) {
      if (piece == 0) post_piece(in, l, 0);
      MpiStatus status;
      wait(&l.requests[piece % 2], &status, {in.peer, in.channel, l.label, seconds, "waits for"});
      l.arrived = piece + 1;
      post_piece(in, l, piece + 1);
    }
    const int64_t inside = at - piece * kPieceBytes,
                  n = std::min(bytes - done, kPieceBytes - inside);
    const std::byte* from = l.pieces[piece % 2].data() + inside;
    if (n == bytes) return {from, static_cast<size_t>(n)};
    std::memcpy(staging.data() + done, from, static_cast<size_t>(n));
    done += n;
  }
  return staging.first(static_cast<size_t>(bytes));
}

void MpiMessages::close(Incoming& in) {
  MR_CHECK(in.memory != nullptr || in.taken == in.bytes, "closed after %ld of %ld bytes",
           long(in.taken), long(in.bytes));
}

void MpiMessages::receive(int peer, int channel, uint64_t label, Bytes out, double seconds) {
  Incoming in = open(peer, channel, label, static_cast<int64_t>(out.size()), seconds);
  if (in.memory != nullptr) {
    if (!out.empty()) std::memcpy(out.data(), in.memory, out.size());
    return;
  }
  std::vector<MpiRequest> requests;
  for (int64_t begin = 0; begin < in.bytes; begin += kPieceBytes) {
    post_receive(out.data() + begin, std::min(kPieceBytes, in.bytes - begin), peer, channel,
                 &requests.emplace_back());
  }
  MpiStatus status;
  for (MpiRequest& request : requests)
    wait(&request, &status, {peer, channel, label, seconds, "waits for"});
}

// Frames ------------------------------------------------------------------------------------------

void MpiMessages::listen(int channel, FrameListener listener) {
  if (others_.empty()) return;
  const bool begins = listener != nullptr;
  {
    const std::lock_guard once(look_mutex_);
    Ear& ear = ears_[static_cast<size_t>(channel)];
    listening_ += int{begins} - int{ear.listener != nullptr};
    ear.listener = std::move(listener);
    if (begins && ear.request == nullptr) {
      ear.frame.resize(kMostFrameBytes);
      post_receive(ear.frame.data(), kMostFrameBytes, kMpiAnySource, kFrameTag + channel,
                   &ear.request);
    }
  }
  if (begins && !poller_.joinable())
    poller_ = start_thread("mpi frames", [this] { poll_in_background(); });
  if (!begins && listening_ == 0 && poller_.joinable()) poller_.join();
}

// Open MPI moves nothing while nobody calls it: a rank that computes answers through this thread.
void MpiMessages::poll_in_background() {
  try {
    while (listening_ > 0) {
      look();
      std::this_thread::sleep_for(kPollSeconds);
    }
  } catch (const Error&) {  // recorded: whoever waits next has it
  }
}

void MpiMessages::post(int peer, int channel, ConstBytes frame) {
  MR_CHECK(static_cast<int64_t>(frame.size()) <= kMostFrameBytes, "%zu bytes", frame.size());
  host_.throw_if_fault(channel, make_label(0, 0, Operation::kFrame));
  const std::lock_guard lock(mutex_);
  forget_posted();
  PostedFrame& posted = posted_.emplace_back();
  posted.bytes.assign(frame.begin(), frame.end());
  post_send(posted.bytes.data(), static_cast<int64_t>(frame.size()), peer, kFrameTag + channel,
            &posted.request);
}

// Called with mutex_.
void MpiMessages::forget_posted() {
  MpiStatus status;
  posted_.remove_if([&](PostedFrame& p) { return test(&p.request, &status); });
}

void MpiMessages::hear_frames() {
  for (int channel = 0; channel < kMaxChannels; ++channel) hear_frames(channel);
}

// Called with look_mutex_.
void MpiMessages::hear_frames(int channel) {
  Ear& ear = ears_[static_cast<size_t>(channel)];
  MpiStatus status;
  while (ear.request != nullptr && test(&ear.request, &status)) {
    std::vector<std::byte> answer;
    if (ear.listener) answer = ear.listener(status.source, {ear.frame.data(), status.bytes});
    post_receive(ear.frame.data(), kMostFrameBytes, kMpiAnySource, kFrameTag + channel,
                 &ear.request);
    if (!answer.empty()) post(status.source, channel, answer);
  }
}

void MpiMessages::wait_until(const FarWait& w, const std::function<bool()>& ready) {
  host_.throw_if_fault(w.channel, w.label);
  wait(w, [&] { return ready(); });
}

// Faults ------------------------------------------------------------------------------------------

void MpiMessages::look() {
  const std::unique_lock once(look_mutex_, std::try_to_lock);
  if (others_.empty() || !once.owns_lock()) return;
  hear_frames();
  if (fault_request_ == nullptr) return;
  MpiStatus status;
  if (!test(&fault_request_, &status)) return;
  fault_request_ = nullptr;
  fault_in_.back() = std::byte{0};
  host_.record_fault(status.source, reinterpret_cast<const char*>(fault_in_.data()));
}

void MpiMessages::announce_fault(const std::string& reason) {
  constexpr double kSeconds = 0.2;  // small messages leave at once where the peer lives
  const size_t n = std::min(reason.size(), fault_out_.size() - 1);
  std::memcpy(fault_out_.data(), reason.data(), n);
  fault_sends_.resize(others_.size());
  for (size_t i = 0; i < others_.size(); ++i) {
    const std::lock_guard lock(mutex_);
    if (mpi_.isend(fault_out_.data(), static_cast<int>(kFaultBytes), mpi_.byte, others_[i],
                   kFaultTag, mpi_.world, &fault_sends_[i]) != kMpiSuccess)
      fault_sends_[i] = mpi_.request_null;
  }
  const double end = now_seconds() + kSeconds;
  bool all = false;
  while (!all && now_seconds() < end) {
    all = true;
    for (MpiRequest& request : fault_sends_) {
      const std::lock_guard lock(mutex_);
      int done = 1;
      MpiStatus status;
      if (mpi_.test(&request, &done, &status) == kMpiSuccess) all = all && done != 0;
    }
    sched_yield();
  }
}

bool MpiMessages::finish(double seconds) {
  const double end = now_seconds() + seconds;
  for (Lane& l : lanes_) {
    Patience patience;
    for (forget_finished(l); !l.sending.empty(); forget_finished(l)) {
      if (now_seconds() > end) return false;
      patience.pause();
    }
  }
  for (Patience patience;; patience.pause()) {
    {
      const std::lock_guard lock(mutex_);
      forget_posted();
      if (posted_.empty()) return true;
    }
    if (now_seconds() > end) return false;
  }
}

}  // namespace moraine
