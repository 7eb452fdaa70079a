// StagedRows: a copy each way.
#include "parallel/staged_rows.h"

#include "kernels/gpu/runtime.h"

namespace moraine {

StagedRows::StagedRows(Arena& arena, const std::string& name, DType dtype, int64_t rows,
                       int64_t width) {
  if (arena.on_device()) host_ = arena.take_pinned(name, "comm", dtype, {rows, width});
}

Tensor StagedRows::place(const Tensor& there) const {
  if (host_.empty()) return there;
  MR_CHECK(there.bytes() <= host_.bytes(), "%ld bytes, room for %ld", long(there.bytes()),
           long(host_.bytes()));
  Tensor here = there;
  here.data = host_.data;
  return here;
}

// As many as there is room for.
Tensor StagedRows::rows_like(const Tensor& there) const {
  if (host_.empty()) return there;
  Tensor here = there;
  here.data = host_.data;
  here.dims[0] = 1;
  here.dims[0] = here.bytes() > 0 ? host_.bytes() / here.bytes() : 0;
  return here;
}

Tensor StagedRows::start_out(Context& ctx, const Tensor& there, std::span<const StagedMove> moves) {
  const Tensor here = rows_like(there);
  if (host_.empty()) return here;
  for (const StagedMove& m : moves) {
    const Tensor from = there.rows(m.there, m.there + m.count),
                 to = here.rows(m.here, m.here + m.count);
    if (from.bytes() > 0) ctx.gpu->copy_out_pinned(to.data, from.data, from.bytes());
  }
  return here;
}

Tensor StagedRows::copy_out(Context& ctx, const Tensor& there, std::span<const StagedMove> moves) {
  const Tensor here = start_out(ctx, there, moves);
  if (!host_.empty()) ctx.gpu->wait();  // also if no row goes out: some may come in here
  return here;
}

Tensor StagedRows::copy_out(Context& ctx, const Tensor& there, int64_t begin, int64_t end) {
  const StagedMove all = {begin, begin, end - begin};
  copy_out(ctx, there, {&all, 1});
  return place(there);
}

void StagedRows::copy_in(Context& ctx, const Tensor& there, std::span<const StagedMove> moves) {
  if (host_.empty()) return;
  const Tensor here = rows_like(there);
  for (const StagedMove& m : moves) {
    const Tensor to = there.rows(m.there, m.there + m.count),
                 from = here.rows(m.here, m.here + m.count);
    if (to.bytes() > 0) ctx.gpu->copy_in_pinned(to.data, from.data, to.bytes());
  }
}

void StagedRows::copy_in(Context& ctx, const Tensor& there, int64_t begin, int64_t end) {
  const StagedMove all = {begin, begin, end - begin};
  copy_in(ctx, there, {&all, 1});
}

}  // namespace moraine
