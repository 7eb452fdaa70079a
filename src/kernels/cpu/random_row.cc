// RandomRow with SIMD: the rounds of Philox on lanes of 64 bits, each holding one of the four 32-bit words of
// an index.
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

// Vectors of words that are computed together: the rounds of one wait for each other. As many as registers hold.
constexpr size_t kTogether = HWY_TARGET <= HWY_AVX3 ? 4 : 2;

// The words of indices from `index` on, kTogether vectors.
// Products read the lower halves of lanes only, so what the upper ones hold between rounds is nobody's.
HWY_INLINE void words(D64 d, const Keys& keys, uint64_t step, V64 index, V64* out) {
  constexpr uint64_t kLow = 0xffffffffu;
  const V64 mul0 = hn::Set(d, uint64_t{0xD2511F53u}), mul1 = hn::Set(d, uint64_t{0xCD9E8D57u});
  V64 c0[kTogether], c1[kTogether], c2[kTogether], c3[kTogether];
  HWY_UNROLL(4)
  for (size_t k = 0; k < kTogether; ++k) {
    c0[k] = hn::Add(index, hn::Set(d, k * hn::Lanes(d)));
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
  HWY_UNROLL(4)
  for (size_t k = 0; k < kTogether; ++k)
    out[k] = hn::Or(hn::ShiftLeft<32>(c0[k]), hn::And(c1[k], hn::Set(d, kLow)));
}

void random_row_of(const RandomRow& a) {
  const D64 d;
  const size_t lanes = hn::Lanes(d), most = kTogether * lanes, n = a.bits.size();
  const Keys keys(a);
  V64 drawn[kTogether];
  V64 index = hn::Iota(d, a.first);
  size_t i = 0;
  for (; i + most <= n; i += most, index = hn::Add(index, hn::Set(d, most))) {
    words(d, keys, a.step, index, drawn);
    for (size_t k = 0; k < kTogether; ++k) hn::StoreU(drawn[k], d, a.bits.data() + i + k * lanes);
  }
  if (i == n) return;
  HWY_ALIGN uint64_t rest[kTogether * HWY_MAX_BYTES / sizeof(uint64_t)];
  words(d, keys, a.step, index, drawn);
  for (size_t k = 0; k < kTogether; ++k) hn::StoreU(drawn[k], d, rest + k * lanes);
  std::copy_n(rest, n - i, a.bits.data() + i);
}

// A bit for each lane of the mask.
template <class Mask>
HWY_INLINE uint64_t mask_bits(D64 d, Mask mask) {
  alignas(8) uint8_t bytes[8] = {};
  hn::StoreMaskBits(d, mask, bytes);
  if (HWY_MAX_BYTES / sizeof(uint64_t) <= 8) return bytes[0];
  uint64_t bits;
  std::memcpy(&bits, bytes, sizeof bits);
  return bits;
}

void random_row_reaching(const RandomRow& a, uint64_t least, uint64_t* reached) {
  constexpr size_t kBits = 64;
  const D64 d;
  const size_t lanes = hn::Lanes(d), most = kTogether * lanes, n = a.bits.size();
  const size_t whole = kBits % most == 0 ? n / kBits * kBits : 0;
  const Keys keys(a);
  const V64 limit = hn::Set(d, least);
  V64 index = hn::Iota(d, a.first);
  V64 drawn[kTogether];
  for (size_t begin = 0; begin < whole; begin += kBits) {
    uint64_t bits = 0;
    for (size_t i = 0; i < kBits; i += most, index = hn::Add(index, hn::Set(d, most))) {
      words(d, keys, a.step, index, drawn);
      for (size_t k = 0; k < kTogether; ++k) {
        hn::StoreU(drawn[k], d, a.bits.data() + begin + i + k * lanes);
        bits |= mask_bits(d, hn::Not(hn::Lt(drawn[k], limit))) << (i + k * lanes);
      }
    }
    reached[begin / kBits] = bits;
  }
  if (whole == n) return;
  RandomRow rest = a;
  rest.bits = a.bits.subspan(whole);
  rest.first = a.first + whole;
  random_row_of(rest);
  for (size_t i = whole; i < n; ++i) {
    uint64_t& bits = reached[i / kBits];
    if (i % kBits == 0) bits = 0;
    bits |= uint64_t{a.bits[i] >= least} << (i % kBits);
  }
}

}  // namespace
}  // namespace HWY_NAMESPACE
}  // namespace moraine
HWY_AFTER_NAMESPACE();

#if HWY_ONCE
namespace moraine {

HWY_EXPORT(random_row_of);
HWY_EXPORT(random_row_reaching);

void random_row(const RandomRow& a) {
  MR_CHECK(a.first + a.bits.size() <= uint64_t{1} << 32);
  HWY_DYNAMIC_DISPATCH(random_row_of)(a);
}

void random_row(const RandomRow& a, uint64_t least, std::span<uint64_t> reached) {
  MR_CHECK(a.first + a.bits.size() <= uint64_t{1} << 32);
  MR_CHECK(reached.size() == (a.bits.size() + 63) / 64);
  HWY_DYNAMIC_DISPATCH(random_row_reaching)(a, least, reached.data());
}

}  // namespace moraine
#endif  // HWY_ONCE
