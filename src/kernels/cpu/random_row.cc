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
  return hn::Set(d, (hn::GetLane(a) & 0xffffffffu) * (hn::GetLane(b) & 0xffffffffu));
#else
  const hn::Repartition<uint32_t, D64> d32;
  (void)d;
  return hn::MulEven(hn::BitCast(d32, a), hn::BitCast(d32, b));
#endif
}

constexpr int kRounds = 10;

// Two words for each round.
struct Keys {
  uint64_t key0[kRounds], key1[kRounds];

  explicit Keys(const RandomRow& a) {
    constexpr uint32_t kWeyl0 = 0x9E3779B9u, kWeyl1 = 0xBB67AE85u;
    const uint64_t mixed = a.seed + 0x9E3779B97F4A7C15ull * static_cast<uint64_t>(a.stream);
    auto first = static_cast<uint32_t>(mixed), second = static_cast<uint32_t>(mixed >> 32);
    for (int round = 0; round < kRounds; ++round, first += kWeyl0, second += kWeyl1) {
      key0[round] = first;
      key1[round] = second;
    }
  }
};

// Products read the lower halves of lanes only, so what the upper ones hold between rounds is nobody's.
HWY_INLINE V64 words(D64 d, const Keys& keys, uint64_t step, V64 index) {
  constexpr uint64_t kLow = 0xffffffffu;
  const V64 mul0 = hn::Set(d, uint64_t{0xD2511F53u}), mul1 = hn::Set(d, uint64_t{0xCD9E8D57u});
  V64 c0 = index, c1 = hn::Zero(d), c2 = hn::Set(d, step & kLow), c3 = hn::Set(d, step >> 32);
  HWY_UNROLL(10)
  for (int round = 0; round < kRounds; ++round) {
    const V64 p0 = product(d, mul0, c0), p1 = product(d, mul1, c2);
    c0 = hn::Xor3(hn::ShiftRight<32>(p1), c1, hn::Set(d, keys.key0[round]));
    c2 = hn::Xor3(hn::ShiftRight<32>(p0), c3, hn::Set(d, keys.key1[round]));
    c1 = p1;
    c3 = p0;
  }
  return hn::Or(hn::ShiftLeft<32>(c0), hn::And(c1, hn::Set(d, kLow)));
}

void random_row_of(const RandomRow& a) {
  const D64 d;
  const size_t lanes = hn::Lanes(d), n = a.bits.size();
  const Keys keys(a);
  V64 index = hn::Iota(d, a.first);
  size_t i = 0;
  for (; i + lanes <= n; i += lanes, index = hn::Add(index, hn::Set(d, lanes)))
    hn::StoreU(words(d, keys, a.step, index), d, a.bits.data() + i);
  HWY_ALIGN uint64_t rest[HWY_MAX_BYTES / sizeof(uint64_t)];
  if (i == n) return;
  hn::StoreU(words(d, keys, a.step, index), d, rest);
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
