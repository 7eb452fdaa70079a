// Rows of plain packs are put in order by the pool, a piece at a time.
#include "model/device_packs.h"

#include <algorithm>
#include <vector>

#include "base/check.h"
#include "kernels/host_copy.h"
#include "kernels/quantised.h"

namespace moraine {
namespace {

Tensor bytes_of(const void* data, int64_t bytes) {
  return make_tensor(const_cast<void*>(data), DType::kU8, {bytes});
}

// Rows [begin, end) of all groups, one behind the other.
void put_rows_in_order(Context& ctx, const PackedMatrix& mapped, int64_t begin, int64_t end,
                       void* out) {
  ctx.pool->parallel_for(end - begin, [&](int64_t i, int) {
    const int64_t row = begin + i;
    if (mapped.dtype == DType::kF32) {
      read_packed_row(mapped, row / mapped.n, row % mapped.n,
                      static_cast<float*>(out) + i * mapped.k);
      return;
    }
    std::vector<float> wide(static_cast<size_t>(mapped.k));
    read_packed_row(mapped, row / mapped.n, row % mapped.n, wide.data());
    std::transform(wide.begin(), wide.end(), static_cast<BF16*>(out) + i * mapped.k, to_bf16);
  });
}

void copy_plain(Context& ctx, const PackedMatrix& there, const PackedMatrix& mapped) {
  const int64_t rows = mapped.groups * mapped.n, row_bytes = mapped.k * dtype_bytes(mapped.dtype),
                piece = std::max<int64_t>(1, kDevicePackPiece / std::max<int64_t>(1, row_bytes));
  std::vector<std::byte> ordered(static_cast<size_t>(std::min(rows, piece) * row_bytes));
  for (int64_t begin = 0; begin < rows; begin += piece) {
    const int64_t end = std::min(rows, begin + piece), bytes = (end - begin) * row_bytes;
    put_rows_in_order(ctx, mapped, begin, end, ordered.data());
    copy_in(ctx, bytes_of(static_cast<std::byte*>(there.data) + begin * row_bytes, bytes),
            bytes_of(ordered.data(), bytes));
  }
}

}  // namespace

void copy_pack_in(Context& ctx, const PackedMatrix& there, const PackedMatrix& mapped) {
  MR_CHECK(there.format == mapped.format && there.dtype == mapped.dtype);
  MR_CHECK(there.groups == mapped.groups && there.n == mapped.n && there.k == mapped.k);
  if (mapped.format == WeightFormat::kPlain) return copy_plain(ctx, there, mapped);
  const int64_t bytes = packed_bytes(mapped);
  copy_in(ctx, bytes_of(there.data, bytes), bytes_of(mapped.data, bytes));
}

}  // namespace moraine
