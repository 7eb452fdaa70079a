// ValueShift, one element at a time.
#include "kernels/value_shift.h"

#include "kernels/halo_rows.h"
#include "kernels/ref/element.h"

namespace moraine::ref {

void value_shift_forward(const ValueShiftForward& a) {
  const int64_t N = a.qkv.dims[1], width = a.v.dims[1] * a.v.dims[2], C = N - width, M = width / 2;
  for (size_t s = 0; s < a.segments.size(); ++s) {
    const Segment& segment = a.segments[s];
    const int64_t halo_row = halo_row_of(a.halo_row, static_cast<int64_t>(s));
    for (int64_t t = segment.row_begin; t < segment.row_begin + segment.rows; ++t) {
      for (int64_t j = 0; j < width; ++j) {
        double value = 0;
        if (!a.delayed || j < M) {
          value = get(a.qkv, t * N + C + j);
        } else if (t > segment.row_begin) {
          value = get(a.qkv, (t - 1) * N + C + j);
        } else if (!a.halo.empty() && halo_row >= 0) {
          value = get(a.halo, halo_row * M + j - M);
        }
        set(a.v, t * width + j, value);
      }
    }
  }
}

void value_shift_backward(const ValueShiftBackward& a) {
  const int64_t N = a.dqkv.dims[1], width = a.dv.dims[1] * a.dv.dims[2], C = N - width,
                M = width / 2;
  for (size_t s = 0; s < a.segments.size(); ++s) {
    const Segment& segment = a.segments[s];
    const int64_t end = segment.row_begin + segment.rows;
    const int64_t halo_row = halo_row_of(a.halo_row, static_cast<int64_t>(s));
    for (int64_t j = 0; a.delayed && !a.dhalo.empty() && halo_row >= 0 && j < M; ++j) {
      set(a.dhalo, halo_row * M + j, get(a.dv, segment.row_begin * width + M + j));
    }
    for (int64_t t = segment.row_begin; t < end; ++t) {
      for (int64_t j = 0; j < width; ++j) {
        double value = 0;
        if (!a.delayed || j < M) {
          value = get(a.dv, t * width + j);
        } else if (t + 1 < end) {
          value = get(a.dv, (t + 1) * width + j);
        }
        set(a.dqkv, t * N + C + j, value);
      }
    }
  }
}

}  // namespace moraine::ref
