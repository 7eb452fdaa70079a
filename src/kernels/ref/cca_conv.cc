// CcaConv in double, one output element at a time.
#include "kernels/cca_conv.h"

#include <vector>

#include "kernels/ref/element.h"

namespace moraine::ref {
namespace {

// p at a row of segment s, or before it: from the halo, zeros without one.
double p_at(const CcaConvForward& a, int64_t s, int64_t row, int64_t c) {
  const int64_t C = a.b.dims[0], begin = a.segments[static_cast<size_t>(s)].row_begin;
  if (row >= begin) return get(a.qkv, row * a.qkv.dims[1] + c);
  return a.halo.empty() ? 0 : get(a.halo, (s * 2 + (row - begin + 2)) * C + c);
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
  for (const Segment& segment : a.segments) {
    const int64_t begin = segment.row_begin, end = begin + segment.rows;
    for (int64_t c = 0; c < C; ++c) {
      const auto tap = [&](int64_t row, int64_t k) {  // gradient of the pair's element k at a row
        if (row < begin || row >= end) return 0.0;
        return get(a.dpair, ((c / d) * T + row) * 2 * d + 2 * (c % d) + k);
      };
      const auto du = [&](int64_t row) { return tap(row, 1) + tap(row + 1, 0); };
      db[c] += du(begin - 1);
      for (int64_t t = begin; t < end; ++t) {
        const double after = t + 1 < end ? du(t + 1) : 0;
        add(a.dqkv, t * N + c, get(a.w, 2 * c + 1) * du(t) + get(a.w, 2 * c) * after);
        dw0[c] += t > begin ? du(t) * get(a.qkv, (t - 1) * N + c) : 0;
        dw1[c] += du(t) * get(a.qkv, t * N + c);
        db[c] += du(t);
      }
    }
  }
  for (int64_t c = 0; c < C; ++c) {
    add(a.dw, 2 * c, dw0[c]);
    add(a.dw, 2 * c + 1, dw1[c]);
    add(a.db, c, db[c]);
  }
}

}  // namespace moraine::ref
