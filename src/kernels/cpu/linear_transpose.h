// Transpose: 4 x 4 blocks of 32-bit words in registers, for every Highway target that has vectors.
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

}  // namespace HWY_NAMESPACE
}  // namespace moraine
HWY_AFTER_NAMESPACE();

#endif  // per-target guard
