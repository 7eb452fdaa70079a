// HostTransport: moves messages through rings, and says which rank a failed wait was for.
#include "comm/host_transport.h"

#include <sched.h>
#include <sys/prctl.h>
#include <sys/uio.h>

#include <algorithm>
#include <bit>
#include <cerrno>
#include <cstring>

#include "base/check.h"
#include "base/clock.h"
#include "base/error.h"
#include "base/heartbeat.h"
#include "comm/doorbell.h"
#include "comm/label.h"
#include "comm/liveness.h"
#include "comm/patience.h"
#include "comm/waited.h"

namespace moraine {
namespace {

constexpr double kLookSeconds = 5e-3;  // between looks at liveness, fault record and deadline
constexpr int64_t kThreadInlineBytes = 1024;
constexpr double kBusyLookSeconds = 5e-4;  // if other messages move only while somebody looks
// About a millisecond, or 50 microseconds, where every rank has a core of its own; else a few turns
// for a peer on the same core.
constexpr int kPauses = 40000, kBackgroundPauses = 2000, kYields = 4;

void pause_core() {
#if defined(__x86_64__)
  __builtin_ia32_pause();
#elif defined(__aarch64__)
  asm volatile("yield");
#endif
}

}  // namespace

HostTransport::HostTransport(Options options)
    : region_(std::move(options.region)),
      kind_(options.kind),
      local_(options.local),
      ranks_(std::move(options.ranks)),
      hosts_(std::move(options.hosts)),
      idle_(std::move(options.idle)),
      on_fault_(std::move(options.on_fault)),
      inline_bytes_(kind_ == RankKind::kThreads ? kThreadInlineBytes : kInlineBytes),
      counters_(ranks_.size() * kMaxChannels) {
  MR_CHECK(static_cast<int>(ranks_.size()) == region_->ranks());
  if (kind_ == RankKind::kProcesses) {
#if defined(PR_SET_PTRACER)
    prctl(PR_SET_PTRACER, PR_SET_PTRACER_ANY, 0, 0, 0);  // fails where nothing forbids reading
#endif
    join_alive(mine());
  }
  add_cores();
  mine().state.store(RankState::kHere, std::memory_order_release);
}

HostTransport::~HostTransport() {
  mine().state.store(RankState::kLeft, std::memory_order_release);
  if (kind_ == RankKind::kProcesses) leave_alive(mine());
  for (int r = 0; r < region_->ranks(); ++r) ring_doorbell(region_->rank(r));
}

int HostTransport::size() const {
  return static_cast<int>(hosts_.empty() ? ranks_.size() : hosts_.size());
}

int HostTransport::host_of(int rank) const {
  return hosts_.empty() ? 0 : hosts_[static_cast<size_t>(rank)];
}

std::string HostTransport::name() const {
  return kind_ == RankKind::kThreads ? "thread" : "process";
}

void HostTransport::name_channel(int channel, const std::string& name) {
  channel_names_[channel] = name;
}

int HostTransport::local_of(int rank) const {
  const auto found = std::lower_bound(ranks_.begin(), ranks_.end(), rank);
  return found != ranks_.end() && *found == rank ? static_cast<int>(found - ranks_.begin()) : -1;
}

SendTicket HostTransport::send(int peer, int channel, uint64_t label, ConstBytes data,
                               double seconds) {
  const int to = local_of(peer);
  MR_CHECK(to >= 0, "rank %d is not on this host", peer);
  const uint64_t number = ++counters(to, channel).sent;
  Message& m = slot(local_, to, channel, number);
  const Wait w = {to, channel, label, seconds, "has no free place to send to"};
  mine().label[channel].store(label, std::memory_order_relaxed);
  throw_if_fault(w.channel, w.label);
  wait(w, [&m, number] {
    return number <= kRingMessages ||
           m.done.load(std::memory_order_acquire) == number - kRingMessages;
  });
  m.label = label;
  m.bytes = static_cast<int64_t>(data.size());
  m.address = reinterpret_cast<uint64_t>(data.data());
  const bool is_inline = m.bytes <= inline_bytes_;
  if (is_inline && m.bytes > 0) std::memcpy(m.inline_data, data.data(), data.size());
  region_->ring(local_, to, channel).sent.store(number, std::memory_order_release);
  ring_doorbell(region_->rank(to));
  return {peer, channel, is_inline ? 0 : number};
}

void HostTransport::wait_sent(const SendTicket& ticket, double seconds) {
  if (ticket.sequence == 0) return;
  const int to = local_of(ticket.peer);
  const Message& m = slot(local_, to, ticket.channel, ticket.sequence);
  const uint64_t label = mine().label[ticket.channel].load(std::memory_order_relaxed);
  // A later message in this slot means that this one was taken long ago.
  wait({to, ticket.channel, label, seconds, "waits until its data is read by"},
       [&m, &ticket] { return m.done.load(std::memory_order_acquire) >= ticket.sequence; });
}

bool HostTransport::message_there(int from, int channel, uint64_t number) const {
  return region_->ring(from, local_, channel).sent.load(std::memory_order_acquire) >= number;
}

Incoming HostTransport::open(int peer, int channel, uint64_t label, int64_t bytes, double seconds) {
  const int from = local_of(peer);
  MR_CHECK(from >= 0, "rank %d is not on this host", peer);
  const uint64_t number = ++counters(from, channel).received;
  const Wait w = {from, channel, label, seconds, "waits for"};
  mine().label[channel].store(label, std::memory_order_relaxed);
  throw_if_fault(w.channel, w.label);
  wait(w, [&] { return message_there(from, channel, number); });
  const Message& m = slot(from, local_, channel, number);
  if (m.label != label || m.bytes != bytes)
    throw_lost(mismatch_text({rank(), label, bytes}, {peer, m.label, m.bytes}));
  Incoming in = {.peer = peer,
                 .channel = channel,
                 .bytes = bytes,
                 .taken = 0,
                 .slot = number,
                 .memory = nullptr};
  if (bytes <= inline_bytes_) {
    in.memory = m.inline_data;
  } else if (kind_ == RankKind::kThreads) {
    in.memory = reinterpret_cast<const std::byte*>(m.address);
    mark_opened(in, label);
  }
  return in;
}

ConstBytes HostTransport::next(Incoming& in, int64_t bytes, Bytes staging, double) {
  MR_CHECK(in.taken + bytes <= in.bytes, "%ld of %ld bytes", long(in.taken + bytes),
           long(in.bytes));
  const int64_t begin = in.taken;
  in.taken += bytes;
  if (in.memory != nullptr) return {in.memory + begin, static_cast<size_t>(bytes)};
  const int from = local_of(in.peer);
  const Message& m = slot(from, local_, in.channel, in.slot);
  const Bytes out = staging.first(static_cast<size_t>(bytes));
  if (!read_memory(from, m.address + static_cast<uint64_t>(begin), out))
    throw_unreachable(in.peer, in.channel, m.label);
  return out;
}

bool HostTransport::read_memory(int from, uint64_t address, Bytes out) const {
  const pid_t pid = region_->rank(from).pid.load(std::memory_order_relaxed);
  size_t done = 0;
  while (done < out.size()) {
    const iovec local = {out.data() + done, out.size() - done};
    const iovec remote = {reinterpret_cast<void*>(address + done), out.size() - done};
    const ssize_t n = process_vm_readv(pid, &local, 1, &remote, 1, 0);
    if (n <= 0) return false;
    done += static_cast<size_t>(n);
  }
  return true;
}

void HostTransport::throw_unreachable(int peer, int channel, uint64_t label) {
  const int error = errno;
  throw_if_fault(channel, label);
  const int local = local_of(peer);
  has_died(region_->rank(local));
  throw_lost(fmt::format("{}: rank {} cannot reach the memory of rank {}: {}; {}",
                         context_text(channel, label), rank(), peer, std::strerror(error),
                         describe(local)));
}

void HostTransport::close(Incoming& in) {
  const int from = local_of(in.peer);
  slot(from, local_, in.channel, in.slot).done.store(in.slot, std::memory_order_release);
  ring_doorbell(region_->rank(from));
}

// Either the sender sees the mark and stays, or this rank sees the fault and does not read: each
// writes its own word, then reads the other's, all in one order (seq_cst).
void HostTransport::mark_opened(Incoming& in, uint64_t label) {
  slot(local_of(in.peer), local_, in.channel, in.slot).opened.store(in.slot);
  if (region_->head().fault.load() != FaultState::kSet) return;
  close(in);
  throw_if_fault(in.channel, label);
}

void HostTransport::drop(Incoming& in) {
  if (kind_ == RankKind::kThreads) close(in);
}

void HostTransport::withdraw(const SendTicket& ticket, const std::string& reason) {
  if (ticket.sequence == 0 || kind_ != RankKind::kThreads) return;
  fail(reason);
  const Message& m = slot(local_, local_of(ticket.peer), ticket.channel, ticket.sequence);
  for (;;) {
    const uint32_t seen = mine().doorbell.load(std::memory_order_seq_cst);
    const bool nobody_will =
        region_->head().fault.load() == FaultState::kSet && m.opened.load() < ticket.sequence;
    if (nobody_will || m.done.load(std::memory_order_acquire) >= ticket.sequence) return;
    sleep_on_doorbell(mine(), seen, kLookSeconds);
  }
}

void HostTransport::receive(int peer, int channel, uint64_t label, Bytes out, double seconds) {
  Incoming in = open(peer, channel, label, static_cast<int64_t>(out.size()), seconds);
  const ConstBytes view = next(in, in.bytes, out, seconds);
  if (view.data() != out.data() && !view.empty()) std::memcpy(out.data(), view.data(), view.size());
  close(in);
}

// Waiting ------------------------------------------------------------------------------------

// mpirun binds each rank to a core: only together do ranks know how many there are.
void HostTransport::add_cores() {
  cpu_set_t cores;
  RegionHead& head = region_->head();
  if (sched_getaffinity(0, sizeof cores, &cores) == 0) {
    for (int c = 0; c < std::min(CPU_SETSIZE, RegionHead::kMostCores); ++c) {
      if (CPU_ISSET(c, &cores)) head.cores[c / 64].fetch_or(uint64_t{1} << c % 64);
    }
  }
  head.joined.fetch_add(1);
}

bool HostTransport::may_spin() {
  if (spin_.load(std::memory_order_relaxed) == Spin::kUnknown) {
    const RegionHead& head = region_->head();
    if (head.joined.load() < region_->ranks()) return false;
    int cores = 0;
    for (const auto& word : head.cores) cores += std::popcount(word.load());
    spin_.store(cores >= region_->ranks() ? Spin::kYes : Spin::kNo, std::memory_order_relaxed);
  }
  return spin_.load(std::memory_order_relaxed) == Spin::kYes;
}

// Where every rank has a core of its own, its peer is about to answer: yielding would hand the core
// to some other program for milliseconds. Where not, the peer may need this very core.
bool HostTransport::spin(bool (*ready)(const void*), const void* context) {
  const bool alone = may_spin();
  const int most = !alone ? kYields : is_background_thread() ? kBackgroundPauses : kPauses;
  for (int i = 0; i < most; ++i) {
    if (ready(context)) return true;
    if (alone) {
      pause_core();
    } else {
      sched_yield();
    }
  }
  return false;
}

void HostTransport::wait_slowly(const Wait& w, bool (*ready)(const void*), const void* context) {
  Waited waited(now_seconds());
  const WaitsFor waits(ranks_[static_cast<size_t>(w.peer)]);
  mine().waits_for[w.channel].store(w.peer + 1, std::memory_order_relaxed);
  for (;;) {
    const uint32_t seen = mine().doorbell.load(std::memory_order_seq_cst);
    if (ready(context)) break;
    throw_if_fault(w.channel, w.label);
    // What a rank did before it left or died still counts: look once more.
    if (has_gone(w.peer) && !ready(context)) throw_gone(w);
    const double left = w.seconds - waited.look(now_seconds());
    if (left <= 0) throw_deadline(w);
    if (idle_) idle_();
    sleep_on_doorbell(mine(), seen, std::min(left, idle_ ? kBusyLookSeconds : kLookSeconds));
  }
  mine().waits_for[w.channel].store(0, std::memory_order_relaxed);
}

bool HostTransport::has_gone(int local) {
  RankRecord& peer = region_->rank(local);
  const RankState state = peer.state.load(std::memory_order_acquire);
  return state == RankState::kLeft || state == RankState::kDied ||
         (kind_ == RankKind::kProcesses && has_died(peer));
}

void HostTransport::throw_gone(const Wait& w) {
  throw_if_fault(w.channel, w.label);
  const bool left = region_->rank(w.peer).state.load(std::memory_order_acquire) == RankState::kLeft;
  throw_lost(fmt::format("{}: rank {} {} rank {}, which {}", context_text(w.channel, w.label),
                         rank(), w.doing, ranks_[static_cast<size_t>(w.peer)],
                         left ? "left: it has ended its work" : "died"));
}

void HostTransport::throw_if_gone(int rank, int channel, uint64_t label, const char* doing) {
  throw_if_fault(channel, label);
  const int local = local_of(rank);
  if (has_gone(local)) throw_gone({local, channel, label, 0, doing});
}

// Faults -------------------------------------------------------------------------------------

void HostTransport::throw_if_fault(int channel, uint64_t label) const {
  if (region_->head().fault.load(std::memory_order_acquire) != FaultState::kSet) return;
  const int who = fault_rank();
  if (who == rank())  // another channel of this rank, or its caller, found it
    throw Error(Code::kPeerLost, fault_reason());
  throw_error(Code::kPeerLost, "{}: rank {} ends because of rank {}: {}",
              context_text(channel, label), rank(), who, fault_reason());
}

void HostTransport::throw_lost(const std::string& reason) {
  fail(reason);
  throw Error(Code::kPeerLost, reason);
}

void HostTransport::throw_deadline(const Wait& w) {
  std::string text = fmt::format("{}: rank {} {} rank {} since {:.1f} seconds; {}",
                                 context_text(w.channel, w.label), rank(), w.doing,
                                 ranks_[static_cast<size_t>(w.peer)], w.seconds, describe(w.peer));
  // The peer may itself wait for the culprit: name every rank of the host that cannot answer.
  for (int r = 0; r < region_->ranks(); ++r) {
    if (r == w.peer || r == local_ || kind_ != RankKind::kProcesses) continue;
    const std::string state = process_state(region_->rank(r).pid.load(std::memory_order_relaxed));
    const bool absent = region_->rank(r).state.load(std::memory_order_acquire) != RankState::kHere;
    if (absent || state.find("stopped") != std::string::npos || state == "has died")
      text += "; " + describe(r);
  }
  throw_lost(text);
}

std::string HostTransport::context_text(int channel, uint64_t label) const {
  const std::string& name = channel_names_[channel];
  return name.empty() ? label_text(label) : label_text(label) + " in group '" + name + "'";
}

std::string HostTransport::describe(int local) const {
  const RankRecord& r = region_->rank(local);
  std::string text = fmt::format("rank {} ", ranks_[static_cast<size_t>(local)]);
  const RankState state = r.state.load(std::memory_order_acquire);
  if (state == RankState::kAbsent) return text + "has not started";
  if (state == RankState::kLeft) return text + "left: it has ended its work";
  if (state == RankState::kDied) return text + "died";
  text += kind_ == RankKind::kProcesses ? process_state(r.pid.load(std::memory_order_relaxed))
                                        : std::string("is alive");
  for (int c = 0; c < kMaxChannels; ++c) {
    const int waits = r.waits_for[c].load(std::memory_order_relaxed);
    const uint64_t label = r.label[c].load(std::memory_order_relaxed);
    if (label == 0) continue;
    text += fmt::format("{} at {}", text.back() == ')' ? "," : ", last", label_text(label));
    if (waits > 0)
      text += fmt::format(" waiting for rank {}", ranks_[static_cast<size_t>(waits - 1)]);
  }
  return text;
}

void HostTransport::fail(const std::string& reason) { record_fault(rank(), reason); }

void HostTransport::record_fault(int who, const std::string& reason) {
  RegionHead& head = region_->head();
  FaultState expected = FaultState::kNone;
  if (!head.fault.compare_exchange_strong(expected, FaultState::kWriting,
                                          std::memory_order_acq_rel))
    return;
  head.fault_rank.store(who, std::memory_order_relaxed);
  const size_t n = std::min(reason.size(), size_t{RegionHead::kReasonBytes - 1});
  std::memcpy(head.reason, reason.data(), n);
  head.reason[n] = '\0';
  head.fault.store(FaultState::kSet);
  for (int r = 0; r < region_->ranks(); ++r) ring_doorbell(region_->rank(r));
  if (on_fault_ && who == rank()) on_fault_(reason);
}

int HostTransport::fault_rank() const {
  const RegionHead& head = region_->head();
  if (head.fault.load(std::memory_order_acquire) != FaultState::kSet) return -1;
  return head.fault_rank.load(std::memory_order_relaxed);
}

std::string HostTransport::fault_reason() const {
  const RegionHead& head = region_->head();
  return head.fault.load(std::memory_order_acquire) == FaultState::kSet ? head.reason : "";
}

}  // namespace moraine
