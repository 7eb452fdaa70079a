// MoveRows: checks, and a memcpy for each move unless a GPU does it.
#include "kernels/move_rows.h"

#include <cstring>

#include "kernels/check_tensor.h"
#include "kernels/gpu/move_rows.h"

namespace moraine {

void move_rows(Context& ctx, const MoveRows& a) {
  check_dtype(a.from, "from", a.to.dtype);
  const int64_t size = dtype_bytes(a.to.dtype), to_count = a.to.count(),
                from_count = a.from.count();
  int64_t moved = 0;
  for (const RowMove& m : a.moves) {
    MR_CHECK(m.count >= 0 && m.to >= 0 && m.to + m.count <= to_count, "[%ld, %ld) of %ld",
             long(m.to), long(m.to + m.count), long(to_count));
    MR_CHECK(m.from + m.count <= from_count, "[%ld, %ld) of %ld", long(m.from),
             long(m.from + m.count), long(from_count));
    moved += m.count;
  }
  if (moved == 0) return;
  const OpTimer timer(ctx.profile, "move_rows", 0, 2.0 * static_cast<double>(moved * size));
  if (ctx.backend == Backend::kGpu) return gpu::move_rows(*ctx.gpu, a);
  for (const RowMove& m : a.moves) {
    char* const to = static_cast<char*>(a.to.data) + m.to * size;
    const auto bytes = static_cast<size_t>(m.count * size);
    if (m.from < 0) {
      std::memset(to, 0, bytes);
    } else {
      std::memcpy(to, static_cast<const char*>(a.from.data) + m.from * size, bytes);
    }
  }
}

}  // namespace moraine
