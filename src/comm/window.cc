// Window: finds out what an address means, and goes the near way or the far one.
#include "comm/window.h"

#include <unistd.h>

#include <algorithm>
#include <chrono>
#include <cstring>

#include "base/check.h"
#include "base/error.h"
#include "comm/collectives.h"
#include "comm/doorbell.h"
#include "comm/far_messages.h"
#include "comm/host_transport.h"
#include "comm/label.h"

namespace moraine {
namespace {

HostTransport& host_of(Communicator& comm) {
  HostTransport* host = comm.transport().host();
  MR_CHECK(host != nullptr, "%s: a window needs a transport that moves", comm.name().c_str());
  return *host;
}

FarMessages* far_of(Communicator& comm, const HostTransport& host) {
  for (int m = 0; m < comm.size(); ++m) {
    if (!host.reaches(comm.global_rank(m))) return comm.transport().far();
  }
  return nullptr;
}

uint64_t nanoseconds() {
  return static_cast<uint64_t>(std::chrono::duration_cast<std::chrono::nanoseconds>(
                                   std::chrono::system_clock::now().time_since_epoch())
                                   .count());
}

int member_of(const Communicator& comm, int rank) {
  for (int m = 0; m < comm.size(); ++m) {
    if (comm.global_rank(m) == rank) return m;
  }
  return -1;
}

// What a member tells of the segment that it brings.
struct Offer {
  int64_t bytes = 0;
  uint64_t generation = 0;  // the first member's counts
  uint64_t number = 0;      // of threads: of HostRegion::offer
  int32_t pid = 0, descriptor = -1;
};

}  // namespace

Window::Window(Communicator& comm)
    : comm_(comm), host_(host_of(comm)), far_(far_of(comm, host_)), agent_(nanoseconds()) {
  label_ = comm.next_label(static_cast<int>(Operation::kWindow));
  if (far_ != nullptr) {
    far_->listen(comm.channel(), [this](int from, ConstBytes frame) {
      bool signalled = false;
      std::vector<std::byte> answer = agent_->handle(from, frame, &signalled);
      // This rank's threads may sleep for what a rank of this host would do.
      if (signalled) ring_doorbell(host_.region().rank(host_.local_of(host_.rank())));
      return answer;
    });
  }
  barrier(comm);  // everybody listens
}

Window::~Window() {
  if (far_ != nullptr) far_->listen(comm_.channel(), {});
}

// Segments ----------------------------------------------------------------------------------------

// Of the first member's clock, so that it grows from one window to the next, and from one process to the next.
uint64_t Window::next_generation() { return std::max(generation_ + 1, nanoseconds()); }

bool Window::is_near(int rank) const { return host_.reaches(rank); }

int Window::add_segment(int64_t bytes, const std::string& name) {
  MR_CHECK(bytes >= 0, "bytes=%ld", long(bytes));
  const std::shared_ptr<SegmentMemory> mine = SegmentMemory::make(bytes);
  const bool is_threads = host_.kind() == RankKind::kThreads;
  const Offer offer = {.bytes = bytes,
                       .generation = next_generation(),
                       .number = is_threads ? host_.region().offer(mine) : 0,
                       .pid = getpid(),
                       .descriptor = mine->descriptor()};
  std::vector<Offer> offers(static_cast<size_t>(comm_.size()));
  all_gather_equal(comm_, std::as_bytes(std::span(&offer, 1)),
                   std::as_writable_bytes(std::span(offers)));
  Segment segment = {.name = name, .generation = offers[0].generation, .parts = {}};
  for (int m = 0; m < comm_.size(); ++m) {
    const Offer& o = offers[static_cast<size_t>(m)];
    Part& part = segment.parts.emplace_back(Part{.bytes = o.bytes, .memory = nullptr});
    if (!is_near(comm_.global_rank(m))) continue;
    part.memory = is_threads
                      ? std::static_pointer_cast<SegmentMemory>(host_.region().take_offer(o.number))
                      : SegmentMemory::open(o.pid, o.descriptor, o.bytes);
    if (part.memory == nullptr)
      host_.throw_lost(fmt::format("{}: rank {} took its memory back",
                                   host_.context_text(comm_.channel(), label_),
                                   comm_.global_rank(m)));
  }
  const size_t me = static_cast<size_t>(comm_.rank());
  segment.parts[me].memory = mine;
  const int id = static_cast<int>(segments_.size());
  generation_ = segment.generation;
  agent_->add_segment(id, segment.generation, mine->bytes());
  segments_.push_back(std::move(segment));
  barrier(comm_);  // all have it
  mine->close_descriptor();
  return id;
}

void Window::remove_segment(int segment) {
  MR_CHECK(segment >= 0 && segment < static_cast<int>(segments_.size()), "segment=%d", segment);
  quiet();
  barrier(comm_);
  agent_->remove_segment(segment);
  segments_[static_cast<size_t>(segment)].parts.clear();
}

Bytes Window::memory(int segment) const {
  return segments_[static_cast<size_t>(segment)]
      .parts[static_cast<size_t>(comm_.rank())]
      .memory->bytes();
}

int64_t Window::bytes_of(int member, int segment) const {
  return segments_[static_cast<size_t>(segment)].parts[static_cast<size_t>(member)].bytes;
}

GlobalAddress Window::address(int member, int segment, int64_t offset) const {
  return {.rank = comm_.global_rank(member),
          .segment = segment,
          .offset = offset,
          .generation = segments_[static_cast<size_t>(segment)].generation};
}

// Addresses ---------------------------------------------------------------------------------------

std::string Window::text(const Use& use) const {
  return fmt::format("{}: rank {} {} {} bytes of rank {}, segment {}, offset {}, generation {}",
                     host_.context_text(comm_.channel(), label_), host_.rank(), use.doing,
                     use.bytes, use.address.rank, use.address.segment, use.address.offset,
                     use.address.generation);
}

void Window::refuse(const Use& use, const std::string& found, WindowStatus status) const {
  const bool is_gone = status == WindowStatus::kNoSegment || status == WindowStatus::kOldGeneration;
  throw_error(is_gone ? Code::kNotFound : Code::kInvalidArgument, "{}: {}", text(use), found);
}

std::byte* Window::find(const Use& use) {
  throw_refused();
  const GlobalAddress& a = use.address;
  const int member = member_of(comm_, a.rank);
  if (member < 0)
    refuse(use,
           fmt::format("the group '{}' has no such rank; wanted one of its members", comm_.name()),
           WindowStatus::kOutside);
  const bool is_known = a.segment >= 0 && a.segment < static_cast<int>(segments_.size()) &&
                        !segments_[static_cast<size_t>(a.segment)].parts.empty();
  if (!is_known)
    refuse(use, "there is no such segment; wanted an address of one that is registered",
           WindowStatus::kNoSegment);
  const Segment& segment = segments_[static_cast<size_t>(a.segment)];
  if (a.generation != segment.generation)
    refuse(use,
           fmt::format("segment '{}' has generation {}; wanted an address made for it",
                       segment.name, segment.generation),
           WindowStatus::kOldGeneration);
  const Part& part = segment.parts[static_cast<size_t>(member)];
  if (a.offset < 0 || a.offset > part.bytes || use.bytes > part.bytes - a.offset)
    refuse(use,
           fmt::format("segment '{}' has {} bytes there; wanted an end inside of it", segment.name,
                       part.bytes),
           WindowStatus::kOutside);
  if (part.memory == nullptr) return nullptr;
  if (a.rank == host_.rank()) {
    host_.throw_if_fault(comm_.channel(), label_);
  } else {
    host_.throw_if_gone(a.rank, comm_.channel(), label_, use.doing);
  }
  return part.memory->bytes().data() + a.offset;
}

uint64_t* Window::find_word(const char* doing, const GlobalAddress& a) {
  const Use use = {doing, a, kWindowWordBytes};
  std::byte* at = find(use);
  if (a.offset % kWindowWordBytes != 0)
    refuse(use, "a word begins at a multiple of 8", WindowStatus::kUnaligned);
  return reinterpret_cast<uint64_t*>(at);
}

// Near and far ------------------------------------------------------------------------------------

void Window::put(const GlobalAddress& to, ConstBytes data) {
  const Use use = {"puts", to, static_cast<int64_t>(data.size())};
  std::byte* at = find(use);
  if (!is_near(to.rank)) return put_far(use, data, nullptr);
  if (!data.empty()) std::memcpy(at, data.data(), data.size());
}

void Window::put_signal(const GlobalAddress& to, ConstBytes data, const GlobalAddress& signal) {
  const Use use = {"puts", to, static_cast<int64_t>(data.size())};
  std::byte* at = find(use);
  uint64_t* word = find_word("signals", signal);
  if (signal.rank != to.rank)
    refuse(use, fmt::format("its signal is at rank {}; wanted the same rank", signal.rank),
           WindowStatus::kOutside);
  if (!is_near(to.rank)) return put_far(use, data, &signal);
  if (!data.empty()) std::memcpy(at, data.data(), data.size());
  add_to_word(word, 1);
  ring_doorbell(host_.region().rank(host_.local_of(to.rank)));
}

void Window::get(const GlobalAddress& from, Bytes out) {
  const Use use = {"gets", from, static_cast<int64_t>(out.size())};
  const std::byte* at = find(use);
  if (is_near(from.rank)) {
    if (!out.empty()) std::memcpy(out.data(), at, out.size());
    return;
  }
  for (int64_t done = 0; done < use.bytes; done += kMostPartBytes) {
    const int64_t n = std::min(kMostPartBytes, use.bytes - done);
    std::vector<std::byte> frame;
    const uint64_t id =
        agent_->ask({.action = WindowAction::kGet,
                     .address = from + done,
                     .out = out.subspan(static_cast<size_t>(done), static_cast<size_t>(n))},
                    &frame);
    far_->post(from.rank, comm_.channel(), frame);
    wait_for_answer(use, id);
  }
}

uint64_t Window::fetch_add(const GlobalAddress& word, uint64_t value) {
  return change_word({.action = WindowAction::kFetchAdd, .address = word, .value = value},
                     "adds to");
}

uint64_t Window::compare_swap(const GlobalAddress& word, uint64_t expected, uint64_t desired) {
  return change_word({.action = WindowAction::kCompareSwap,
                      .address = word,
                      .value = desired,
                      .expected = expected},
                     "compares and swaps");
}

uint64_t Window::change_word(const WindowRequest& request, const char* doing) {
  const GlobalAddress& a = request.address;
  uint64_t* word = find_word(doing, a);
  if (!is_near(a.rank)) {
    std::vector<std::byte> frame;
    const uint64_t id = agent_->ask(request, &frame);
    far_->post(a.rank, comm_.channel(), frame);
    return wait_for_answer({doing, a, kWindowWordBytes}, id).value;
  }
  const uint64_t before = request.action == WindowAction::kFetchAdd
                              ? add_to_word(word, request.value)
                              : swap_word_if(word, request.expected, request.value);
  ring_doorbell(host_.region().rank(host_.local_of(a.rank)));
  return before;
}

void Window::wait_until(const GlobalAddress& word, uint64_t least, int from) {
  MR_CHECK(word.rank == host_.rank() && from >= 0 && from < comm_.size(), "rank=%d from=%d",
           word.rank, from);
  const uint64_t* at = find_word("waits for", word);
  const auto ready = [at, least] { return load_word(at) >= least; };
  const int rank = comm_.global_rank(from);
  const char* doing = "waits for a signal of";
  if (is_near(rank)) {
    host_.wait({host_.local_of(rank), comm_.channel(), label_, comm_.deadline(), doing}, ready);
  } else if (!ready()) {
    far_->wait_until({rank, comm_.channel(), label_, comm_.deadline(), doing}, ready);
  }
}

// Far ---------------------------------------------------------------------------------------------

void Window::put_far(const Use& use, ConstBytes data, const GlobalAddress* signal) {
  uint64_t group = 0;
  for (int64_t done = 0; done == 0 || done < use.bytes; done += kMostPartBytes) {
    const int64_t n = std::min(kMostPartBytes, use.bytes - done);
    wait_for_puts(use.address.rank, kMostPutsInFlight - 1);
    std::vector<std::byte> frame;
    const uint64_t id =
        agent_->ask({.action = WindowAction::kPut,
                     .address = use.address + done,
                     .data = data.subspan(static_cast<size_t>(done), static_cast<size_t>(n)),
                     .signal = signal,
                     .group = group,
                     .whole_bytes = use.bytes},
                    &frame);
    group = group == 0 ? id : group;
    far_->post(use.address.rank, comm_.channel(), frame);
  }
}

void Window::wait_for_puts(int rank, int most) {
  const auto ready = [this, rank, most] { return agent_->puts_in_flight(rank) <= most; };
  if (!ready())
    far_->wait_until(
        {rank, comm_.channel(), label_, comm_.deadline(), "waits until its puts are taken by"},
        ready);
}

WindowAnswer Window::wait_for_answer(const Use& use, uint64_t id) {
  std::optional<WindowAnswer> answer;
  try {
    far_->wait_until(
        {use.address.rank, comm_.channel(), label_, comm_.deadline(), "waits for an answer of"},
        [&] { return answer || (answer = agent_->take_answer(id)); });
  } catch (...) {
    agent_->forget(id);
    throw;
  }
  if (answer->status != WindowStatus::kOk)
    refuse(use, fmt::format("the owner {}", window_status_text(answer->status)), answer->status);
  return *answer;
}

void Window::throw_refused() {
  if (far_ == nullptr) return;
  if (const std::optional<RefusedPut> refused = agent_->take_refused())
    refuse({"put", refused->address, refused->bytes},
           fmt::format("the owner {}", window_status_text(refused->status)), refused->status);
}

void Window::quiet() {
  if (far_ == nullptr) return;
  for (int m = 0; m < comm_.size(); ++m) {
    if (!is_near(comm_.global_rank(m))) wait_for_puts(comm_.global_rank(m), 0);
  }
  throw_refused();
}

}  // namespace moraine
