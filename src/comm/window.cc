// Window: addresses are exchanged once; the counters lie in the shared memory of the host.
#include "comm/window.h"

#include <cstring>

#include "base/check.h"
#include "comm/collectives.h"
#include "comm/doorbell.h"
#include "comm/label.h"

namespace moraine {
namespace {

HostTransport& host_of(Communicator& comm) {
  HostTransport* host = comm.transport().host();
  MR_CHECK(host != nullptr && comm.one_host(), "%s: a window needs one host", comm.name().c_str());
  return *host;
}

}  // namespace

Window::Window(Communicator& comm, Bytes mine)
    : comm_(comm), host_(host_of(comm)), views_(static_cast<size_t>(comm.size())) {
  label_ = comm.next_label(static_cast<int>(Operation::kWindow));
  barrier(comm);  // nobody looks at the counters of an earlier window any more
  for (auto& counter : host_.region().rank(host_.local_of(host_.rank())).signals[comm.channel()])
    counter.store(0, std::memory_order_relaxed);
  const View view = {reinterpret_cast<uint64_t>(mine.data()), static_cast<int64_t>(mine.size())};
  all_gather_equal(comm, std::as_bytes(std::span(&view, 1)),
                   std::as_writable_bytes(std::span(views_)));
}

uint64_t Window::address(int member, int64_t offset, size_t bytes) const {
  const View& view = views_[static_cast<size_t>(member)];
  MR_CHECK(offset >= 0 && static_cast<int64_t>(bytes) <= view.bytes - offset,
           "%zu bytes at %ld of member %d's %ld", bytes, long(offset), member, long(view.bytes));
  return view.address + static_cast<uint64_t>(offset);
}

void Window::put(int member, int64_t offset, ConstBytes data) {
  const uint64_t to = address(member, offset, data.size());
  if (data.empty()) return;
  host_.throw_if_fault(comm_.channel(), label_);
  if (member == comm_.rank() || host_.kind() == RankKind::kThreads) {
    std::memcpy(reinterpret_cast<void*>(to), data.data(), data.size());
    return;
  }
  const int rank = comm_.global_rank(member);
  if (!host_.write_memory(host_.local_of(rank), to, data))
    host_.throw_unreachable(rank, comm_.channel(), label_);
}

void Window::get(int member, int64_t offset, Bytes out) {
  const uint64_t from = address(member, offset, out.size());
  if (out.empty()) return;
  host_.throw_if_fault(comm_.channel(), label_);
  if (member == comm_.rank() || host_.kind() == RankKind::kThreads) {
    std::memcpy(out.data(), reinterpret_cast<const void*>(from), out.size());
    return;
  }
  const int rank = comm_.global_rank(member);
  if (!host_.read_memory(host_.local_of(rank), from, out))
    host_.throw_unreachable(rank, comm_.channel(), label_);
}

void Window::put_signal(int member, int64_t offset, ConstBytes data, int signal) {
  MR_CHECK(signal >= 0 && signal < kSignals, "signal=%d", signal);
  put(member, offset, data);
  RankRecord& target = host_.region().rank(host_.local_of(comm_.global_rank(member)));
  target.signals[comm_.channel()][signal].fetch_add(1, std::memory_order_release);
  ring_doorbell(target);
}

void Window::wait_signal(int signal, uint64_t count, int from) {
  MR_CHECK(signal >= 0 && signal < kSignals, "signal=%d", signal);
  const auto& counter =
      host_.region().rank(host_.local_of(host_.rank())).signals[comm_.channel()][signal];
  host_.throw_if_fault(comm_.channel(), label_);
  host_.wait({host_.local_of(comm_.global_rank(from)), comm_.channel(), label_, comm_.deadline(),
              "waits for a signal of"},
             [&counter, count] { return counter.load(std::memory_order_acquire) >= count; });
}

}  // namespace moraine
