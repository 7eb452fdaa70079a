// Transpose: square blocks of 32-bit words in registers, for every Highway target that has vectors.
//
// Include it after "hwy/foreach_target.h"; like simd.h it has a guard per target. On HWY_SCALAR it
// is empty.
#if defined(MORAINE_KERNELS_CPU_TRANSPOSE_H_) == defined(HWY_TARGET_TOGGLE)
#ifdef MORAINE_KERNELS_CPU_TRANSPOSE_H_
#undef MORAINE_KERNELS_CPU_TRANSPOSE_H_
#else
#define MORAINE_KERNELS_CPU_TRANSPOSE_H_
#endif

#include "hwy/highway.h"

HWY_BEFORE_NAMESPACE();
namespace moraine {
namespace HWY_NAMESPACE {

#if HWY_TARGET != HWY_SCALAR
using U4 = hwy::HWY_NAMESPACE::FixedTag<uint32_t, 4>;
using V4 = hwy::HWY_NAMESPACE::Vec<U4>;

// Rows a, b, c, d become columns.
HWY_INLINE void transpose_4x4(V4& a, V4& b, V4& c, V4& d) {
  namespace hn = hwy::HWY_NAMESPACE;
  const U4 du;
  const hn::FixedTag<uint64_t, 2> dw;
  const auto ab0 = hn::BitCast(dw, hn::InterleaveLower(du, a, b));
  const auto ab1 = hn::BitCast(dw, hn::InterleaveUpper(du, a, b));
  const auto cd0 = hn::BitCast(dw, hn::InterleaveLower(du, c, d));
  const auto cd1 = hn::BitCast(dw, hn::InterleaveUpper(du, c, d));
  a = hn::BitCast(du, hn::InterleaveLower(dw, ab0, cd0));
  b = hn::BitCast(du, hn::InterleaveUpper(dw, ab0, cd0));
  c = hn::BitCast(du, hn::InterleaveLower(dw, ab1, cd1));
  d = hn::BitCast(du, hn::InterleaveUpper(dw, ab1, cd1));
}
#endif

#if HWY_TARGET == HWY_AVX3
// Rows become columns: a quarter of the shuffles of 4 x 4 blocks, and whole cache lines on both sides.
HWY_INLINE void transpose_16x16(__m512i (&row)[16]) {
  __m512i pair[16], four[16];
  HWY_UNROLL(8)
  for (int i = 0; i < 16; i += 2) {  // words of rows i, i + 1, in turn
    pair[i] = _mm512_unpacklo_epi32(row[i], row[i + 1]);
    pair[i + 1] = _mm512_unpackhi_epi32(row[i], row[i + 1]);
  }
  HWY_UNROLL(4)
  for (int i = 0; i < 16;
       i += 4) {  // four[i + c]: columns c, c + 4, c + 8, c + 12 of rows i to i + 3
    four[i] = _mm512_unpacklo_epi64(pair[i], pair[i + 2]);
    four[i + 1] = _mm512_unpackhi_epi64(pair[i], pair[i + 2]);
    four[i + 2] = _mm512_unpacklo_epi64(pair[i + 1], pair[i + 3]);
    four[i + 3] = _mm512_unpackhi_epi64(pair[i + 1], pair[i + 3]);
  }
  HWY_UNROLL(4)
  for (int c = 0; c < 4; ++c) {
    const __m512i low = _mm512_shuffle_i32x4(four[c], four[c + 4], 0x88),  // columns c and c + 8
        low_odd = _mm512_shuffle_i32x4(four[c], four[c + 4], 0xdd),        // c + 4 and c + 12
        high = _mm512_shuffle_i32x4(four[c + 8], four[c + 12], 0x88),
                  high_odd = _mm512_shuffle_i32x4(four[c + 8], four[c + 12], 0xdd);
    row[c] = _mm512_shuffle_i32x4(low, high, 0x88);
    row[c + 8] = _mm512_shuffle_i32x4(low, high, 0xdd);
    row[c + 4] = _mm512_shuffle_i32x4(low_odd, high_odd, 0x88);
    row[c + 12] = _mm512_shuffle_i32x4(low_odd, high_odd, 0xdd);
  }
}
#endif

}  // namespace HWY_NAMESPACE
}  // namespace moraine
HWY_AFTER_NAMESPACE();

#endif  // per-target guard
