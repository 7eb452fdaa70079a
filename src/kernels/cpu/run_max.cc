// RunMax with SIMD: two vectors of maxima for each run.
#include "kernels/run_max.h"

#include <algorithm>
#include <cmath>

#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "kernels/cpu/run_max.cc"
#include "hwy/foreach_target.h"
#include "hwy/highway.h"

#include "base/check.h"

HWY_BEFORE_NAMESPACE();
namespace moraine {
namespace HWY_NAMESPACE {
namespace {

namespace hn = hwy::HWY_NAMESPACE;

using D32 = hn::ScalableTag<float>;
using V32 = hn::Vec<D32>;

// b where a is NaN.
HWY_INLINE V32 larger(V32 a, V32 b) { return hn::IfThenElse(hn::Gt(a, b), a, b); }

void run_max_of(const RunMax& a) {
  constexpr size_t kRun = kMaxRun;
  const D32 d;
  const size_t lanes = hn::Lanes(d), n = a.values.size();
  const V32 none = hn::Set(d, -INFINITY);
  size_t begin = 0;
  for (; begin + kRun <= n && kRun % (2 * lanes) == 0; begin += kRun) {
    const float* const run = a.values.data() + begin;
    V32 even = none, odd = none;
    for (size_t i = 0; i < kRun; i += 2 * lanes) {
      even = larger(hn::LoadU(d, run + i), even);
      odd = larger(hn::LoadU(d, run + i + lanes), odd);
    }
    a.largest[begin / kRun] = hn::GetLane(hn::MaxOfLanes(d, larger(even, odd)));
  }
  for (; begin < n; begin += kRun) {
    float largest = -INFINITY;
    for (size_t i = begin; i < std::min(begin + kRun, n); ++i)
      largest = std::max(largest, a.values[i]);  // the left one, if the right one is NaN
    a.largest[begin / kRun] = largest;
  }
}

}  // namespace
}  // namespace HWY_NAMESPACE
}  // namespace moraine
HWY_AFTER_NAMESPACE();

#if HWY_ONCE
namespace moraine {

HWY_EXPORT(run_max_of);

void run_max(const RunMax& a) {
  MR_CHECK(a.largest.size() == (a.values.size() + kMaxRun - 1) / kMaxRun);
  HWY_DYNAMIC_DISPATCH(run_max_of)(a);
}

}  // namespace moraine
#endif  // HWY_ONCE
