// CcaConv in double, one output element at a time.
#include "kernels/cca_conv.h"

#include <vector>

#include "kernels/halo_rows.h"
#include "kernels/ref/element.h"

namespace moraine::ref {
namespace {

// p at a row of segment s, or before it: from the halo, zeros without one.
double p_at(const CcaConvForward& a, int64_t s, int64_t row, int64_t c) {
  const int64_t C = a.b.dims[0], begin = a.segments[static_cast<size_t>(s)].row_begin;
  if (row >= begin) return get(a.qkv, row * a.qkv.dims[1] + c);
  const int64_t halo = a.halo.empty() ? -1 : halo_row_of(a.halo_row, s);
  return halo < 0 ? 0 : get(a.halo, (halo * 2 + (row - begin + 2)) * C + c);
}

double u_at(const CcaConvForward& a, int64_t s, int64_t row, int64_t c) {
  return get(a.w, 2 * c) * p_at(a, s, row - 1, c) + get(a.w, 2 * c + 1) * p_at(a, s, row, c) +
         get(a.b, c);
}

}  // namespace

void cca_conv_forward(const CcaConvForward& a) {
  const int64_t G = a.pair.dims[0], T = a.pair.dims[1], d = a.pair.dims[2] / 2;
  for (size_t s = 0; s < a.segments.size(); ++s) {
    const Segment& segment = a.segments[s];
    for (int64_t t = segment.row_begin; t < segment.row_begin + segment.rows; ++t) {
      for (int64_t c = 0; c < G * d; ++c) {
        const int64_t i = ((c / d) * T + t) * 2 * d + 2 * (c % d);
        set(a.pair, i, u_at(a, static_cast<int64_t>(s), t - 1, c));
        set(a.pair, i + 1, u_at(a, static_cast<int64_t>(s), t, c));
      }
    }
  }
}

void cca_conv_backward(const CcaConvBackward& a) {
  const int64_t G = a.dpair.dims[0], T = a.dpair.dims[1], d = a.dpair.dims[2] / 2;
  const int64_t C = G * d, N = a.qkv.dims[1];
  std::vector<double> dw0(C), dw1(C), db(C);
  for (size_t s = 0; s < a.segments.size(); ++s) {
    const int64_t begin = a.segments[s].row_begin, end = begin + a.segments[s].rows;
    const int64_t halo_row = halo_row_of(a.halo_row, static_cast<int64_t>(s));
    for (int64_t c = 0; c < C; ++c) {
      const auto p = [&](int64_t row) {  // of the segment, or of its halo
        if (row >= begin) return get(a.qkv, row * N + c);
        if (a.halo.empty() || halo_row < 0) return 0.0;
        return row < begin - 2 ? 0.0 : get(a.halo, (halo_row * 2 + row - begin + 2) * C + c);
      };
      const auto tap = [&](int64_t row, int64_t k) {  // gradient of the pair's element k at a row
        if (row < begin || row >= end) return 0.0;
        return get(a.dpair, ((c / d) * T + row) * 2 * d + 2 * (c % d) + k);
      };
      const auto du = [&](int64_t row) { return tap(row, 1) + tap(row + 1, 0); };
      const double w0 = get(a.w, 2 * c), w1 = get(a.w, 2 * c + 1);
      for (int64_t t = begin - 1; t < end; ++t) {
        const double after = t + 1 < end ? du(t + 1) : 0;
        if (t >= begin) add(a.dqkv, t * N + c, w1 * du(t) + w0 * after);
        dw0[c] += du(t) * p(t - 1);
        dw1[c] += du(t) * p(t);
        db[c] += du(t);
      }
      if (a.dhalo.empty() || halo_row < 0) continue;
      set(a.dhalo, (halo_row * 2) * C + c, w0 * du(begin - 1));
      set(a.dhalo, (halo_row * 2 + 1) * C + c, w1 * du(begin - 1) + w0 * du(begin));
    }
  }
  for (int64_t c = 0; c < C; ++c) {
    add(a.dw, 2 * c, dw0[c]);
    add(a.dw, 2 * c + 1, dw1[c]);
    add(a.db, c, db[c]);
  }
}

}  // namespace moraine::ref
