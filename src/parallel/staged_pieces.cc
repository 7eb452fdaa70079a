// StagedPieces: one place behind the other, and a copy for each.
#include "parallel/staged_pieces.h"

#include <algorithm>
#include <utility>

#include "base/check.h"
#include "kernels/gpu/runtime.h"

namespace moraine {
namespace {

// The next `bytes` of a buffer.
std::byte* next_place(const Tensor& buffer, int64_t& taken, size_t bytes) {
  std::byte* const place = static_cast<std::byte*>(buffer.data) + taken;
  taken += static_cast<int64_t>(bytes);
  MR_CHECK(taken <= buffer.bytes(), "%ld bytes, room for %ld", long(taken), long(buffer.bytes()));
  return place;
}

}  // namespace

StagedPieces::StagedPieces(Arena& arena, gpu::Gpu* gpu, const std::string& name, int64_t send_bytes,
                           int64_t receive_bytes)
    : gpu_(gpu) {
  MR_CHECK(arena.on_device() == (gpu != nullptr));
  if (gpu == nullptr) return;
  send_ = arena.take_pinned(name + "_sent", "comm", DType::kU8, {send_bytes});
  receive_ = arena.take_pinned(name + "_received", "comm", DType::kU8, {receive_bytes});
}

std::function<void()> StagedPieces::begin(MemberPieces& pieces) {
  if (gpu_ == nullptr) return [] {};
  MR_CHECK(arrivals_.empty());
  int64_t sent = 0, received = 0;
  std::vector<std::pair<const void*, const std::byte*>> copied;  // from, to
  for (std::vector<ConstBytes>& list : pieces.send) {
    for (ConstBytes& piece : list) {
      const auto before = std::find_if(copied.begin(), copied.end(),
                                       [&](const auto& c) { return c.first == piece.data(); });
      if (before != copied.end()) {
        piece = {before->second, piece.size()};
        continue;
      }
      std::byte* const here = next_place(send_, sent, piece.size());
      gpu_->copy_out_pinned(here, piece.data(), static_cast<int64_t>(piece.size()));
      copied.emplace_back(piece.data(), here);
      piece = {here, piece.size()};
    }
  }
  for (std::vector<Bytes>& list : pieces.receive) {
    for (Bytes& piece : list) {
      const Bytes here = {next_place(receive_, received, piece.size()), piece.size()};
      arrivals_.push_back({piece, here.data()});
      piece = here;
    }
  }
  return [gpu = gpu_, mark = gpu_->mark()] { gpu->wait_for(mark); };
}

bool StagedPieces::end() {
  for (const Arrival& a : arrivals_)
    gpu_->copy_in_pinned(a.there.data(), a.here, static_cast<int64_t>(a.there.size()));
  const bool any = !arrivals_.empty();
  arrivals_.clear();
  return any;
}

void StagedPieces::forget() { arrivals_.clear(); }

}  // namespace moraine
