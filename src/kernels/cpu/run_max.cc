// RunMax with SIMD: two vectors of maxima for each run.
#include "kernels/run_max.h"

#include <algorithm>
#include <cmath>
#include <limits>

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

float one_by_one(std::span<const float> run) {
  float largest = -INFINITY;
  for (const float value : run)
    largest = std::max(largest, value);  // the left one, if the right one is NaN
  return largest;
}

void run_max_of(const RunMax& a) {
  constexpr size_t kRun = kRunLength;
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
    const float largest = hn::GetLane(hn::MaxOfLanes(d, larger(even, odd)));
    // Highway's emulated vectors say the lowest finite value where all is -inf.
    const bool known = largest > std::numeric_limits<float>::lowest();
    a.largest[begin / kRun] = known ? largest : one_by_one(a.values.subspan(begin, kRun));
  }
  for (; begin < n; begin += kRun)
    a.largest[begin / kRun] = one_by_one(a.values.subspan(begin, std::min(kRun, n - begin)));
}

}  // namespace
}  // namespace HWY_NAMESPACE
}  // namespace moraine
HWY_AFTER_NAMESPACE();

#if HWY_ONCE
namespace moraine {

HWY_EXPORT(run_max_of);

void run_max(const RunMax& a) {
  MR_CHECK(a.largest.size() == (a.values.size() + kRunLength - 1) / kRunLength);
  HWY_DYNAMIC_DISPATCH(run_max_of)(a);
}

}  // namespace moraine
#endif  // HWY_ONCE
