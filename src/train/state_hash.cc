// StateHash: a task hashes one block; the hash of all hashes is the digest.
#include "train/state_hash.h"

#include <algorithm>

#include "kernels/gpu/runtime.h"

namespace moraine {
namespace {

constexpr int64_t kBlockBytes =
    int64_t{1} << 20;  // large enough to hash at full speed, small enough to share out

}  // namespace

StateHash::StateHash(std::span<const Tensor> parts) {
  for (const Tensor& part : parts) {
    if (part.empty()) continue;
    const auto* data = static_cast<const std::byte*>(part.data);
    for (int64_t at = 0; at < part.bytes(); at += kBlockBytes)
      blocks_.push_back({data + at, std::min(kBlockBytes, part.bytes() - at)});
  }
  hashes_.resize(blocks_.size());
}

Hash128 StateHash::digest(Context& ctx) {
  if (ctx.backend == Backend::kGpu) {
    hash_copies(ctx);
  } else {
    hash_here(ctx);
  }
  return hash_bytes(hashes_.data(), static_cast<int64_t>(hashes_.size() * sizeof(Hash128)));
}

void StateHash::hash_here(Context& ctx) {
  ctx.pool->parallel_for(static_cast<int64_t>(blocks_.size()), [&](int64_t i, int) {
    const Block& block = blocks_[static_cast<size_t>(i)];
    hashes_[static_cast<size_t>(i)] = hash_bytes(block.data, block.bytes);
  });
}

void StateHash::hash_copies(Context& ctx) {
  std::vector<std::byte> copy(static_cast<size_t>(kBlockBytes));
  for (size_t i = 0; i < blocks_.size(); ++i) {
    ctx.gpu->copy_out(copy.data(), blocks_[i].data, blocks_[i].bytes);
    hashes_[i] = hash_bytes(copy.data(), blocks_[i].bytes);
  }
}

}  // namespace moraine
