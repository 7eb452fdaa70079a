// RandomRow with SIMD: the rounds of Philox on lanes of 64 bits, each holding one of the four 32-bit words of
// a block.
#include "kernels/random_row.h"

#include <algorithm>
#include <cstring>

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

// Vectors of blocks that are computed together: the rounds of one wait for each other. As many as registers hold.
constexpr size_t kTogether = HWY_TARGET <= HWY_AVX3 ? 4 : 2;
constexpr size_t kShorts = 8;  // of a block

// The blocks from `block` on, kTogether vectors, as shorts in their order.
// Products read the lower halves of lanes only, so what the upper ones hold between rounds is nobody's.
HWY_INLINE void draw_blocks(D64 d, const Keys& keys, uint64_t step, V64 block, uint16_t* out) {
  constexpr uint64_t kLow = 0xffffffffu;
  const V64 mul0 = hn::Set(d, uint64_t{0xD2511F53u}), mul1 = hn::Set(d, uint64_t{0xCD9E8D57u});
  V64 c0[kTogether], c1[kTogether], c2[kTogether], c3[kTogether];
  HWY_UNROLL(4)
  for (size_t k = 0; k < kTogether; ++k) {
    c0[k] = hn::Add(block, hn::Set(d, k * hn::Lanes(d)));
    c1[k] = hn::Zero(d);
    c2[k] = hn::Set(d, step & kLow);
    c3[k] = hn::Set(d, step >> 32);
  }
  HWY_UNROLL(10)
  for (int round = 0; round < kRounds; ++round) {
    const V64 key0 = hn::Set(d, keys.key0[round]), key1 = hn::Set(d, keys.key1[round]);
    HWY_UNROLL(4)
    for (size_t k = 0; k < kTogether; ++k) {
      const V64 p0 = product(d, mul0, c0[k]), p1 = product(d, mul1, c2[k]);
      c0[k] = hn::Xor3(hn::ShiftRight<32>(p1), c1[k], key0);
      c2[k] = hn::Xor3(hn::ShiftRight<32>(p0), c3[k], key1);
      c1[k] = p1;
      c3[k] = p0;
    }
  }
  const V64 low = hn::Set(d, kLow);
  HWY_UNROLL(4)
  for (size_t k = 0; k < kTogether; ++k) {
    const V64 first = hn::Or(hn::And(c0[k], low), hn::ShiftLeft<32>(c1[k])),
              second = hn::Or(hn::And(c2[k], low), hn::ShiftLeft<32>(c3[k]));
    hn::StoreInterleaved2(first, second, d,
                          reinterpret_cast<uint64_t*>(out + k * kShorts * hn::Lanes(d)));
  }
}

void draw_shorts(const RandomRow& a) {
  const D64 d;
  const size_t blocks = kTogether * hn::Lanes(d), most = kShorts * blocks, n = a.shorts.size();
  const Keys keys(a);
  V64 block = hn::Iota(d, a.first / kShorts);
  size_t i = 0;
  for (; i + most <= n; i += most, block = hn::Add(block, hn::Set(d, blocks)))
    draw_blocks(d, keys, a.step, block, a.shorts.data() + i);
  if (i == n) return;
  HWY_ALIGN uint16_t rest[kTogether * kShorts * HWY_MAX_BYTES / sizeof(uint64_t)];
  draw_blocks(d, keys, a.step, block, rest);
  std::copy_n(rest, n - i, a.shorts.data() + i);
}

void random_row_of(const RandomRow& a) {
  constexpr size_t kBits = 64;
  draw_shorts(a);
  const size_t n = a.shorts.size();
  const hn::ScalableTag<uint16_t> d;
  const size_t lanes = hn::Lanes(d);
  size_t i = 0;
  for (; i + kBits <= n && lanes >= 8 && kBits % lanes == 0; i += kBits) {
    const auto limit = hn::Set(d, a.least[i / kBits]);
    uint8_t bits[kBits / 8];
    for (size_t k = 0; k < kBits; k += lanes) {
      const auto below = hn::Lt(hn::LoadU(d, a.shorts.data() + i + k), limit);
      hn::StoreMaskBits(d, hn::Not(below), bits + k / 8);
    }
    std::memcpy(&a.reached[i / kBits], bits, sizeof bits);
  }
  for (; i < n; ++i) {
    uint64_t& bits = a.reached[i / kBits];
    if (i % kBits == 0) bits = 0;
    bits |= uint64_t{a.shorts[i] >= a.least[i / kBits]} << (i % kBits);
  }
}

}  // namespace
}  // namespace HWY_NAMESPACE
}  // namespace moraine
HWY_AFTER_NAMESPACE();

#if HWY_ONCE
namespace moraine {

HWY_EXPORT(random_row_of);

void random_row(const RandomRow& a) {
  MR_CHECK(a.first % 8 == 0 && a.first + a.shorts.size() <= uint64_t{1} << 32);
  MR_CHECK(a.reached.size() == (a.shorts.size() + 63) / 64 && a.least.size() == a.reached.size());
  HWY_DYNAMIC_DISPATCH(random_row_of)(a);
}

}  // namespace moraine
#endif  // HWY_ONCE
