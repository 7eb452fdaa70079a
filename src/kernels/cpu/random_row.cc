// RandomRow with SIMD: the rounds of Philox on lanes of 64 bits, each holding one of the four 32-bit words of
// an index.
#include "kernels/random_row.h"

#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "kernels/cpu/random_row.cc"
#include "hwy/foreach_target.h"
#include "hwy/highway.h"

#include "base/check.h"

HWY_BEFORE_NAMESPACE();
namespace moraine {
namespace HWY_NAMESPACE {
namespace {

namespace hn = hwy::HWY_NAMESPACE;

using D64 = hn::ScalableTag<uint64_t>;
using V64 = hn::Vec<D64>;

// a * b of the low halves.
HWY_INLINE V64 product(D64 d, V64 a, V64 b) {
#if HWY_TARGET == HWY_SCALAR
  return hn::Set(d, hn::GetLane(a) * hn::GetLane(b));
#else
  const hn::Repartition<uint32_t, D64> d32;
  (void)d;
  return hn::MulEven(hn::BitCast(d32, a), hn::BitCast(d32, b));
#endif
}

// Words of indices first .. first + lanes.
HWY_INLINE V64 words(D64 d, const RandomRow& a, uint64_t first) {
  constexpr uint64_t kLow = 0xffffffffu;
  constexpr uint32_t kWeyl0 = 0x9E3779B9u, kWeyl1 = 0xBB67AE85u;
  const uint64_t mixed = a.seed + 0x9E3779B97F4A7C15ull * static_cast<uint64_t>(a.stream);
  auto key0 = static_cast<uint32_t>(mixed), key1 = static_cast<uint32_t>(mixed >> 32);
  const V64 mul0 = hn::Set(d, uint64_t{0xD2511F53u}), mul1 = hn::Set(d, uint64_t{0xCD9E8D57u}),
            low = hn::Set(d, kLow);
  V64 c0 = hn::Iota(d, first), c1 = hn::Zero(d), c2 = hn::Set(d, a.step & kLow),
      c3 = hn::Set(d, a.step >> 32);
  for (int round = 0; round < 10; ++round) {
    const V64 p0 = product(d, mul0, c0), p1 = product(d, mul1, c2);
    c0 = hn::Xor(hn::Xor(hn::ShiftRight<32>(p1), c1), hn::Set(d, uint64_t{key0}));
    c2 = hn::Xor(hn::Xor(hn::ShiftRight<32>(p0), c3), hn::Set(d, uint64_t{key1}));
    c1 = hn::And(p1, low);
    c3 = hn::And(p0, low);
    key0 += kWeyl0;
    key1 += kWeyl1;
  }
  return hn::Or(hn::ShiftLeft<32>(c0), c1);
}

void random_row_of(const RandomRow& a) {
  const D64 d;
  const size_t lanes = hn::Lanes(d), n = a.bits.size();
  size_t i = 0;
  for (; i + lanes <= n; i += lanes) hn::StoreU(words(d, a, a.first + i), d, a.bits.data() + i);
  HWY_ALIGN uint64_t rest[HWY_MAX_BYTES / sizeof(uint64_t)];
  if (i == n) return;
  hn::StoreU(words(d, a, a.first + i), d, rest);
  for (size_t k = 0; i < n; ++i, ++k) a.bits[i] = rest[k];
}

}  // namespace
}  // namespace HWY_NAMESPACE
}  // namespace moraine
HWY_AFTER_NAMESPACE();

#if HWY_ONCE
namespace moraine {

HWY_EXPORT(random_row_of);

void random_row(const RandomRow& a) {
  MR_CHECK(a.first + a.bits.size() <= uint64_t{1} << 32);
  HWY_DYNAMIC_DISPATCH(random_row_of)(a);
}

}  // namespace moraine
#endif  // HWY_ONCE
