// GpuLists: a ring, and what is in it.
#include "kernels/gpu/gpu_lists.h"

#include <cstring>

#include "base/error.h"
#include "kernels/gpu/runtime.h"

namespace moraine::gpu {
namespace {

constexpr int64_t kAligned = 16;

// What was placed at `begin` is found only from the newer half of the ring. A list goes on from the end, or to the
// ring's start if it does not fit before its end: one of at most a quarter reaches nothing of that half either way.
constexpr int64_t kRing = 4 * kGpuListBytes;
bool is_newer(int64_t begin, int64_t end) {
  const int64_t behind = (end - begin + kRing) % kRing;
  return 0 < behind && behind <= kRing / 2;
}

int64_t room_of(int64_t bytes) { return (bytes + kAligned - 1) / kAligned * kAligned; }

}  // namespace

const void* GpuLists::place(Gpu& gpu, const void* host, int64_t bytes) {
  if (bytes == 0) return nullptr;
  const auto size = static_cast<size_t>(bytes);
  for (auto list = lists_.rbegin(); list != lists_.rend(); ++list) {
    if (list->bytes.size() == size && is_newer(list->begin, end_) &&
        std::memcmp(list->bytes.data(), host, size) == 0)
      return ring_ + list->begin;
  }
  const int64_t room = room_of(bytes);
  if (room > kGpuListBytes) {
    throw_error(Code::kDevice,
                "{}: a list of {} bytes for a kernel, at most {}; fewer rows in a batch",
                gpu.name(), bytes, kGpuListBytes);
  }
  if (ring_ == nullptr) ring_ = static_cast<uint8_t*>(gpu.take(kRing));
  if (end_ + room > kRing) end_ = 0;
  // Those whose room this one takes.
  std::erase_if(lists_, [&](const Placed& list) {
    const int64_t list_end = list.begin + room_of(static_cast<int64_t>(list.bytes.size()));
    return list.begin < end_ + room && end_ < list_end;
  });
  gpu.copy_in(ring_ + end_, host, bytes);
  const auto* const from = static_cast<const uint8_t*>(host);
  lists_.push_back({end_, {from, from + bytes}});
  if (lists_.size() > kListsFound) lists_.pop_front();
  end_ += room;
  return ring_ + lists_.back().begin;
}

}  // namespace moraine::gpu
