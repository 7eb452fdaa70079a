// DeviceBatch: checks, then copies.
#include "model/device_batch.h"

#include "kernels/host_copy.h"

namespace moraine {
namespace {

// Every id in [least, limit).
Tensor put_ids(Context& ctx, const Tensor& there, const Tensor& host, int64_t least,
               int64_t limit) {
  for (int64_t t = 0; t < host.count(); ++t) {
    const int32_t id = host.as<int32_t>()[t];
    MR_CHECK(id >= least && id < limit, "id %d at row %ld, limit %ld", id, long(t), long(limit));
  }
  const Tensor part = there.rows(0, host.count());
  copy_in(ctx, part, host);
  return part;
}

}  // namespace

DeviceBatch::DeviceBatch(Arena& arena, int64_t tokens, const Limits& limits) : limits_(limits) {
  if (!arena.on_device()) return;
  const auto take = [&](const char* name) {
    return arena.take(name, "scratch", DType::kI32, {tokens});
  };
  token_ = take("batch.token");
  position_ = take("batch.position");
  target_ = take("batch.target");
}

Batch DeviceBatch::put(Context& ctx, const Batch& batch) const {
  if (token_.empty()) return batch;
  return {.token = put_ids(ctx, token_, batch.token, 0, limits_.vocabulary),
          .position = put_ids(ctx, position_, batch.position, 0, limits_.positions),
          .segments = batch.segments};
}

Tensor DeviceBatch::put_target(Context& ctx, const Tensor& target) const {
  if (token_.empty()) return target;
  return put_ids(ctx, target_, target, INT32_MIN, limits_.vocabulary);
}

}  // namespace moraine
