// StagedRows: one copy, of a tensor's beginning.
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

Tensor StagedRows::copy_out(Context& ctx, const Tensor& there, int64_t rows) {
  const Tensor here = place(there);
  if (host_.empty()) return here;
  const int64_t bytes = there.rows(0, rows).bytes();
  if (bytes > 0) ctx.gpu->copy_out_pinned(here.data, there.data, bytes);
  ctx.gpu->wait();  // also if no row goes out: some may come in here
  return here;
}

void StagedRows::copy_in(Context& ctx, const Tensor& there, int64_t rows) {
  const int64_t bytes = there.rows(0, rows).bytes();
  if (!host_.empty() && bytes > 0) ctx.gpu->copy_in_pinned(there.data, host_.data, bytes);
}

}  // namespace moraine
