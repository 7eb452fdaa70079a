// ValueShift as row copies; a copy needs no SIMD of its own.
#include "kernels/value_shift.h"

#include <cstring>

#include "kernels/cpu/row_blocks.h"
#include "kernels/halo_rows.h"
#include "kernels/segment_rows.h"

namespace moraine::cpu {
namespace {

struct Bytes {  // of one row of values, of half a row, of qkv, and of the columns before the values
  int64_t row, half, qkv, before;
};

Bytes bytes_of(const Tensor& v, const Tensor& qkv) {
  const int64_t size = dtype_bytes(v.dtype), row = v.dims[1] * v.dims[2] * size;
  return {row, row / 2, qkv.dims[1] * size, qkv.dims[1] * size - row};
}

void copy(char* to, const char* from, int64_t bytes) {
  std::memcpy(to, from, static_cast<size_t>(bytes));
}

void zero(char* to, int64_t bytes) { std::memset(to, 0, static_cast<size_t>(bytes)); }

}  // namespace

void value_shift_forward(Context& ctx, const ValueShiftForward& a) {
  MR_CHECK(a.v.dtype != DType::kF64);
  const Bytes n = bytes_of(a.v, a.qkv);
  const char* const values = static_cast<const char*>(a.qkv.data) + n.before;
  char* const v = static_cast<char*>(a.v.data);
  const char* const halo = static_cast<const char*>(a.halo.data);
  const int64_t rows = rows_per_task(a.v.dims[1] * a.v.dims[2]);
  for_row_tasks(ctx, a.v.dims[0], rows, [&](int64_t begin, int64_t end, int) {
    int64_t s = segment_index(a.segments, begin);
    for (int64_t t = begin; t < end; ++t) {
      if (!a.delayed) {
        copy(v + t * n.row, values + t * n.qkv, n.row);
        continue;
      }
      const Segment& segment = a.segments[static_cast<size_t>(s)];
      copy(v + t * n.row, values + t * n.qkv, n.half);
      char* const late = v + t * n.row + n.half;
      if (t > segment.row_begin) {
        copy(late, values + (t - 1) * n.qkv + n.half, n.half);
      } else if (halo != nullptr && halo_row_of(a.halo_row, s) >= 0) {
        copy(late, halo + halo_row_of(a.halo_row, s) * n.half, n.half);
      } else {
        zero(late, n.half);
      }
      if (t + 1 == segment.row_begin + segment.rows) ++s;
    }
  });
}

void value_shift_backward(Context& ctx, const ValueShiftBackward& a) {
  MR_CHECK(a.dv.dtype != DType::kF64);
  const Bytes n = bytes_of(a.dv, a.dqkv);
  char* const values = static_cast<char*>(a.dqkv.data) + n.before;
  const char* const dv = static_cast<const char*>(a.dv.data);
  char* const dhalo = static_cast<char*>(a.dhalo.data);
  const int64_t rows = rows_per_task(a.dv.dims[1] * a.dv.dims[2]);
  for_row_tasks(ctx, a.dv.dims[0], rows, [&](int64_t begin, int64_t end, int) {
    int64_t s = segment_index(a.segments, begin);
    for (int64_t t = begin; t < end; ++t) {
      if (!a.delayed) {
        copy(values + t * n.qkv, dv + t * n.row, n.row);
        continue;
      }
      const Segment& segment = a.segments[static_cast<size_t>(s)];
      const int64_t halo_row = halo_row_of(a.halo_row, s);
      if (t == segment.row_begin && dhalo != nullptr && halo_row >= 0) {
        copy(dhalo + halo_row * n.half, dv + t * n.row + n.half, n.half);
      }
      copy(values + t * n.qkv, dv + t * n.row, n.half);
      char* const late = values + t * n.qkv + n.half;
      if (t + 1 < segment.row_begin + segment.rows) {
        copy(late, dv + (t + 1) * n.row + n.half, n.half);
      } else {
        zero(late, n.half);
        ++s;
      }
    }
  });
}

}  // namespace moraine::cpu
