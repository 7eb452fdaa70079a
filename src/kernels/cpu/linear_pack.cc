// Packing of weights into right panels: 32 outputs side by side, steps of the sum one after
// another.
#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "kernels/cpu/linear_pack.cc"
#include "hwy/foreach_target.h"

#include <algorithm>
#include <cstring>

#include "base/check.h"
#include "kernels/cpu/linear_engine.h"
#include "kernels/cpu/linear_transpose.h"
#include "kernels/cpu/simd.h"
#include "kernels/linear.h"

HWY_BEFORE_NAMESPACE();
namespace moraine::cpu {
namespace HWY_NAMESPACE {
namespace hn = hwy::HWY_NAMESPACE;

// One panel of a matrix in memory: element (j, i), output j of the panel and input i, lies at
// from[j * row_stride + i], or at from[i * row_stride + j] if transposed.
struct PanelSource {
  const float* from;
  int64_t row_stride;
  int64_t outputs;  // 1 .. 32, the rest of the panel is zero
  int64_t k;
};

uint32_t word_at(const float* lower, const float* upper, bool bf16) {
  uint32_t word;
  if (!bf16) {
    std::memcpy(&word, lower, sizeof word);
    return word;
  }
  word = to_bf16(*lower).bits;
  return upper == nullptr ? word : word | uint32_t{to_bf16(*upper).bits} << 16;
}

// Steps [s0, s1) of outputs [j0, j1), one word at a time.
void pack_words(uint32_t* panel, const PanelSource& p, bool transpose, bool bf16, int64_t s0,
                int64_t s1, int64_t j0, int64_t j1) {
  const int64_t per = bf16 ? 2 : 1;
  const int64_t along_k = transpose ? p.row_stride : 1, along_j = transpose ? 1 : p.row_stride;
  for (int64_t s = s0; s < s1; ++s) {
    for (int64_t j = j0; j < j1; ++j) {
      uint32_t word = 0;
      if (j < p.outputs) {
        const float* lower = p.from + j * along_j + s * per * along_k;
        word = word_at(lower, s * per + 1 < p.k ? lower + along_k : nullptr, bf16);
      }
      panel[s * kPanel + j] = word;
    }
  }
}

#if HWY_TARGET != HWY_SCALAR
using D4 = hn::FixedTag<float, 4>;
using moraine::HWY_NAMESPACE::DF;
using moraine::HWY_NAMESPACE::transpose_4x4;
using moraine::HWY_NAMESPACE::U4;
using moraine::HWY_NAMESPACE::V4;

// The bits of v rounded to bf16, in the upper half of each lane.
template <class V>
HWY_INLINE auto rounded(V v) {
  const hn::RebindToUnsigned<hn::DFromV<V>> du;
  const auto bits = hn::BitCast(du, v);
  const auto odd = hn::And(hn::ShiftRight<16>(bits), hn::Set(du, 1));
  const auto sum = hn::Add(bits, hn::Add(odd, hn::Set(du, 0x7fff)));
  const auto nan = hn::RebindMask(du, hn::IsNaN(v));
  return hn::IfThenElse(nan, hn::Or(bits, hn::Set(du, 0x400000)), sum);
}

template <class V>
HWY_INLINE V pair_words(V lower, V upper) {
  return hn::Or(hn::ShiftRight<16>(lower), hn::And(upper, hn::Set(hn::DFromV<V>(), 0xffff0000u)));
}

// Four words along k of one row: steps s .. s + 3.
HWY_INLINE V4 four_words(const float* row, int64_t s, bool bf16) {
  const D4 d;
  if (!bf16) return hn::BitCast(U4(), hn::LoadU(d, row + s));
  const auto first = hn::LoadU(d, row + 2 * s), second = hn::LoadU(d, row + 2 * s + 4);
  return pair_words(rounded(hn::ConcatEven(d, second, first)),
                    rounded(hn::ConcatOdd(d, second, first)));
}

// Steps [s0, s1) of outputs from j on.
struct PanelPart {
  int64_t j, s0, s1;
};

// Four outputs, steps in fours.
HWY_INLINE void pack_fours(uint32_t* panel, const PanelSource& p, bool bf16,
                           const PanelPart& part) {
  const int64_t ld = p.row_stride, j = part.j;
  const float* row = p.from + j * ld;
  for (int64_t s = part.s0; s < part.s1; s += 4) {
    V4 a = four_words(row, s, bf16), b = four_words(row + ld, s, bf16);
    V4 c = four_words(row + 2 * ld, s, bf16), d = four_words(row + 3 * ld, s, bf16);
    transpose_4x4(a, b, c, d);
    uint32_t* to = panel + s * kPanel + j;
    hn::StoreU(a, U4(), to);
    hn::StoreU(b, U4(), to + kPanel);
    hn::StoreU(c, U4(), to + 2 * kPanel);
    hn::StoreU(d, U4(), to + 3 * kPanel);
  }
}

#if HWY_TARGET == HWY_AVX3
// Sixteen words along k of one row: steps s .. s + 15.
HWY_INLINE __m512i sixteen_words(const float* row, int64_t s, bool bf16) {
  const DF d;
  if (!bf16) return _mm512_loadu_si512(row + s);
  alignas(64) static constexpr uint16_t kUpper[32] = {1,  3,  5,  7,  9,  11, 13, 15, 17, 19, 21,
                                                      23, 25, 27, 29, 31, 33, 35, 37, 39, 41, 43,
                                                      45, 47, 49, 51, 53, 55, 57, 59, 61, 63};
  const auto first = rounded(hn::LoadU(d, row + 2 * s)),
             second = rounded(hn::LoadU(d, row + 2 * s + 16));
  return _mm512_permutex2var_epi16(first.raw, _mm512_load_si512(kUpper), second.raw);
}

// Sixteen outputs, steps in sixteens; returns the first step that is left.
HWY_INLINE int64_t pack_sixteens(uint32_t* panel, const PanelSource& p, bool bf16,
                                 const PanelPart& part) {
  int64_t s = part.s0;
  for (; s + 16 <= part.s1; s += 16) {
    __m512i word[16];
    HWY_UNROLL(16)
    for (int i = 0; i < 16; ++i) {
      word[i] = sixteen_words(p.from + (part.j + i) * p.row_stride, s, bf16);
    }
    moraine::HWY_NAMESPACE::transpose_16x16(word);
    HWY_UNROLL(16)
    for (int i = 0; i < 16; ++i) _mm512_storeu_si512(panel + (s + i) * kPanel + part.j, word[i]);
  }
  return s;
}
#endif

// Rows of the source are outputs: blocks of outputs x steps are transposed in registers.
void pack_rows(uint32_t* panel, const PanelSource& p, bool bf16) {
  constexpr int64_t kStepsAtOnce = 64;  // 8 KiB of the panel: its lines are completed in L1
  const int64_t steps = bf16 ? (p.k + 1) / 2 : p.k, whole = (bf16 ? p.k / 2 : p.k) / 4 * 4;
  const int64_t outputs = p.outputs / 4 * 4;
  for (int64_t s0 = 0; s0 < whole; s0 += kStepsAtOnce) {
    const int64_t s1 = std::min(s0 + kStepsAtOnce, whole);
    int64_t j = 0;
#if HWY_TARGET == HWY_AVX3
    for (; j + 16 <= outputs; j += 16) {
      const int64_t rest = pack_sixteens(panel, p, bf16, {j, s0, s1});
      for (int64_t i = j; i < j + 16; i += 4) pack_fours(panel, p, bf16, {i, rest, s1});
    }
#endif
    for (; j < outputs; j += 4) pack_fours(panel, p, bf16, {j, s0, s1});
  }
  pack_words(panel, p, false, bf16, 0, whole, outputs, kPanel);
  pack_words(panel, p, false, bf16, whole, steps, 0, kPanel);
}

// Rows of the source are inputs: whole vectors are copied, two rows at a time for bf16.
void pack_columns(uint32_t* panel, const PanelSource& p, bool bf16) {
  const DF d;
  const hn::RebindToUnsigned<DF> du;
  const int64_t lanes = static_cast<int64_t>(hn::Lanes(d));
  const int64_t steps = bf16 ? (p.k + 1) / 2 : p.k, whole = bf16 ? p.k / 2 : p.k;
  const int64_t outputs = p.outputs / lanes * lanes, ld = p.row_stride;
  for (int64_t s = 0; s < whole; ++s) {
    const float* row = p.from + (bf16 ? 2 * s : s) * ld;
    uint32_t* to = panel + s * kPanel;
    for (int64_t j = 0; j < outputs; j += lanes) {
      const auto lower = hn::LoadU(d, row + j);
      auto words = hn::BitCast(du, lower);
      if (bf16) words = pair_words(rounded(lower), rounded(hn::LoadU(d, row + ld + j)));
      hn::StoreU(words, du, to + j);
    }
  }
  pack_words(panel, p, true, bf16, 0, whole, outputs, kPanel);
  pack_words(panel, p, true, bf16, whole, steps, 0, kPanel);
}

#else  // one lane: no blocks to transpose

void pack_rows(uint32_t* panel, const PanelSource& p, bool bf16) {
  pack_words(panel, p, false, bf16, 0, bf16 ? (p.k + 1) / 2 : p.k, 0, kPanel);
}

void pack_columns(uint32_t* panel, const PanelSource& p, bool bf16) {
  pack_words(panel, p, true, bf16, 0, bf16 ? (p.k + 1) / 2 : p.k, 0, kPanel);
}

#endif

// Panel `panel` of group `group`.
void pack_panel(const PackMatrix& a, int64_t group, int64_t panel) {
  const PackedMatrix& m = a.packed;
  const bool bf16 = m.dtype == DType::kBF16;
  const int64_t steps = bf16 ? (m.k + 1) / 2 : m.k, panels = (m.n + kPanel - 1) / kPanel;
  const int64_t j0 = panel * kPanel;
  const float* w = a.w.as<float>() + group * m.n * m.k;
  uint32_t* to = static_cast<uint32_t*>(m.data) + (group * panels + panel) * steps * kPanel;
  const PanelSource source = {.from = a.transpose ? w + j0 : w + j0 * m.k,
                              .row_stride = a.transpose ? m.n : m.k,
                              .outputs = std::min(kPanel, m.n - j0),
                              .k = m.k};
  a.transpose ? pack_columns(to, source, bf16) : pack_rows(to, source, bf16);
}

}  // namespace HWY_NAMESPACE
}  // namespace moraine::cpu
HWY_AFTER_NAMESPACE();

#if HWY_ONCE
namespace moraine::cpu {
HWY_EXPORT(pack_panel);

void pack_matrix(Context& ctx, const PackMatrix& a) {
  MR_CHECK(a.packed.dtype != DType::kF64, "the cpu backend has no f64 packs");
  const int64_t panels = (a.packed.n + kPanel - 1) / kPanel;
  const auto pack = HWY_DYNAMIC_DISPATCH(pack_panel);
  ctx.pool->parallel_for(a.packed.groups * panels,
                         [&](int64_t task, int) { pack(a, task / panels, task % panels); });
}
}  // namespace moraine::cpu
#endif  // HWY_ONCE
