// The f32 engine of dense products: Highway vectors along the columns of a right panel.
#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "kernels/cpu/linear_f32.cc"
#include "hwy/foreach_target.h"

#include <hwy/cache_control.h>

#include <algorithm>
#include <cstring>
#include <utility>

#include "base/check.h"
#include "kernels/cpu/linear_engine.h"
#include "kernels/cpu/simd.h"
#include "kernels/isa.h"

HWY_BEFORE_NAMESPACE();
namespace moraine::cpu {
namespace HWY_NAMESPACE {
namespace hn = hwy::HWY_NAMESPACE;
using moraine::HWY_NAMESPACE::DF;
using moraine::HWY_NAMESPACE::load;
using moraine::HWY_NAMESPACE::load_n;
using moraine::HWY_NAMESPACE::store;
using moraine::HWY_NAMESPACE::store_n;
using moraine::HWY_NAMESPACE::VF;

constexpr int kLanes = static_cast<int>(hn::MaxLanes(DF()));
constexpr bool kManyRegisters = kLanes == 16 || HWY_TARGET == HWY_NEON;  // 32, else 16
constexpr int kTileRows = kLanes == 16 ? 14 : 6;
constexpr int kColumnWidth = kLanes == 16 ? 16 : 8;
constexpr int kPanelVectors = static_cast<int>(kPanel) / kLanes;
constexpr int64_t kPartSum = kLanes == 8 ? kMaxPartSum : 0;
// Vectors of a tile in registers: rows * vectors sums, at least 8 chains where the registers allow.
constexpr int kWideVectors = kLanes == 16 || !kManyRegisters ? 2 : 4;

// Column vectors held at once for a tile of `rows` rows; a multiple of kPanelVectors spans panels.
constexpr int vectors_for(int rows) {
  if (kLanes == 16) return rows <= 2 ? 8 : rows == 3 ? 4 : 2;
  const int few = kManyRegisters ? 8 : 4;
  return rows <= 2 ? std::min(few, kPanelVectors) : std::min(kWideVectors, kPanelVectors);
}

template <bool kColumns>
HWY_INLINE float left(const float* a, int64_t row, int64_t step) {
  return kColumns ? a[step * kColumnWidth + row] : a[row * kRowWords + step];
}

// Where vector v of the columns from `first` on (in vectors) lies in panels of `bytes` each.
HWY_INLINE const uint8_t* right(const void* b, int64_t stride, int64_t vector) {
  return static_cast<const uint8_t*>(b) + vector / kPanelVectors * stride +
         vector % kPanelVectors * kLanes * 4;
}

// How many steps before its use a panel's line is asked for into L1. On a Cascade Lake 14 rows are 1.07 times as fast
// with it, 8 rows of a pack that comes from memory 1.5 times. With 8 lanes large packs come in parts, which stay in L1.
constexpr int64_t steps_ahead(int rows) { return kLanes < 16 ? 0 : rows <= 8 ? 32 : 16; }

// Bytes from `step` of V vectors' panels to what is asked for at it: the step so many steps later, or one of the panels
// behind.
template <int V>
HWY_INLINE int64_t bytes_ahead(const Tile& t, int64_t step, int64_t steps) {
  constexpr int64_t kStepBytes = kPanel * 4;
  if (step + steps < t.steps) return steps * kStepBytes;
  return std::max(1, V / kPanelVectors) * t.b_stride - (t.steps - steps) * kStepBytes;
}

// Before that a line of a panel from memory is asked for into L2. With it 4 to 8 rows are 1.2 to 1.4 times as fast on a
// Zen 4, one and two 1.0 to 1.05, 12 and more 1.1 times. On a Zen 5 tiles of 1 to 3 rows are 0.84 to 0.9 times as fast,
// of 4 to 7 0.91 to 1.0, of 8 1.0 to 1.06, of more 1.05 to 1.4 times.
constexpr int64_t kStepsFar = kLanes < 16 ? 0 : 128;
inline bool gains_by_l2(const Tile& t, int rows) {
  return kStepsFar > 0 && t.far && (rows >= 8 || !machine_reads_into_l1());
}
template <int V>
HWY_INLINE void ask_far(const uint8_t* const* b, int64_t step, int64_t ahead) {
  HWY_UNROLL(8)
  for (int v = 0; v < V; ++v) __builtin_prefetch(b[v] + step * kPanel * 4 + ahead, 0, 2);
}

template <int M, int V>
HWY_INLINE void ask_for_step(const uint8_t* const* b, int64_t step, int64_t ahead) {
  if constexpr (steps_ahead(M) == 0) return;
  HWY_UNROLL(8)
  for (int v = 0; v < V; ++v) hwy::Prefetch(b[v] + step * kPanel * 4 + ahead);
}

// One step of f32: sums[i][v] += a[i] * b[v].
template <int M, int V, bool kColumns>
HWY_INLINE void step_f32(const float* a, const uint8_t* const* b, int64_t step, VF (&sums)[M][V]) {
  const DF df;
  VF bv[V];
  HWY_UNROLL(8)
  for (int v = 0; v < V; ++v)
    bv[v] = load(df, reinterpret_cast<const float*>(b[v]) + step * kPanel);
  HWY_UNROLL(16)
  for (int i = 0; i < M; ++i) {
    const VF ai = hn::Set(df, left<kColumns>(a, i, step));
    HWY_UNROLL(8)
    for (int v = 0; v < V; ++v) sums[i][v] = hn::MulAdd(ai, bv[v], sums[i][v]);
  }
}

// One step of a pair of bf16: the lower half of each word first.
template <int M, int V>
HWY_INLINE void step_bf16(const float* a, const uint8_t* const* b, int64_t step, VF (&sums)[M][V]) {
  const DF df;
  const hn::RebindToUnsigned<DF> du;
  VF bv[V];
  HWY_UNROLL(8)
  for (int v = 0; v < V; ++v) {
    const auto word = hn::LoadU(du, reinterpret_cast<const uint32_t*>(b[v]) + step * kPanel);
    bv[v] = hn::BitCast(df, hn::ShiftLeft<16>(word));
  }
  HWY_UNROLL(16)
  for (int i = 0; i < M; ++i) {
    const VF ai = hn::Set(df, a[i * kRowWords + 2 * step]);
    HWY_UNROLL(8)
    for (int v = 0; v < V; ++v) sums[i][v] = hn::MulAdd(ai, bv[v], sums[i][v]);
  }
  HWY_UNROLL(8)
  for (int v = 0; v < V; ++v) {
    const auto word = hn::LoadU(du, reinterpret_cast<const uint32_t*>(b[v]) + step * kPanel);
    bv[v] = hn::BitCast(df, hn::And(word, hn::Set(du, 0xffff0000u)));
  }
  HWY_UNROLL(16)
  for (int i = 0; i < M; ++i) {
    const VF ai = hn::Set(df, a[i * kRowWords + 2 * step + 1]);
    HWY_UNROLL(8)
    for (int v = 0; v < V; ++v) sums[i][v] = hn::MulAdd(ai, bv[v], sums[i][v]);
  }
}

template <int M, int V, bool kAdd>
HWY_INLINE void put(float* c, int64_t stride, const VF (&sums)[M][V]) {
  const DF df;
  HWY_UNROLL(16)
  for (int i = 0; i < M; ++i) {
    HWY_UNROLL(8)
    for (int v = 0; v < V; ++v) {
      float* to = c + i * stride + v * kLanes;
      store(kAdd ? hn::Add(load(df, to), sums[i][v]) : sums[i][v], df, to);
    }
  }
}

template <int M, int V>
HWY_INLINE void get(const float* chain, VF (&sums)[M][V]) {
  HWY_UNROLL(16)
  for (int i = 0; i < M; ++i) {
    HWY_UNROLL(8)
    for (int v = 0; v < V; ++v) sums[i][v] = load(DF(), chain + i * kPanel + v * kLanes);
  }
}

// V column vectors from vector `first` on, for M rows.
template <int M, int V, class B, bool kColumns>
HWY_INLINE void tile_part(const Tile& t, int64_t first) {
  const DF df;
  const float* a = static_cast<const float*>(t.a);
  const uint8_t* b[V];
  HWY_UNROLL(8)
  for (int v = 0; v < V; ++v) b[v] = right(t.b, t.b_stride, first + v);
  float* c = t.c + first * kLanes;
  float* chain = t.chain == nullptr ? nullptr : t.chain + first * kLanes;
  if (t.add && t.ends) {  // old sums arrive while the new ones are made
    HWY_UNROLL(16)
    for (int i = 0; i < M; ++i) {
      HWY_UNROLL(8)
      for (int v = 0; v < V; ++v) hwy::Prefetch(c + i * t.c_stride + v * kLanes);
    }
  }
  VF sums[M][V];
  HWY_UNROLL(16)
  for (int i = 0; i < M; ++i) {
    HWY_UNROLL(8)
    for (int v = 0; v < V; ++v) sums[i][v] = hn::Zero(df);
  }
  if (!t.begins) get<M, V>(chain, sums);
  // Column panels are short, and lie nearly side by side: one distance does for all their steps.
  const bool whole = (kColumns || steps_ahead(M) == 0) && t.next == nullptr;
  const int64_t run = whole ? t.steps : NextRows::kSteps;
  const bool by_l2 = gains_by_l2(t, M);
  for (int64_t step0 = 0; step0 < t.steps; step0 += run) {
    if (t.next != nullptr) t.next->turn();
    const int64_t ahead = bytes_ahead<V>(t, step0, steps_ahead(M)),
                  far = bytes_ahead<V>(t, step0, kStepsFar);
    const int64_t step1 = std::min(step0 + run, t.steps);
    for (int64_t step = step0; step < step1; ++step) {
      ask_for_step<M, V>(b, step, ahead);
      if (by_l2) ask_far<V>(b, step, far);
      if constexpr (std::is_same_v<B, BF16>) {
        step_bf16<M, V>(a, b, step, sums);
      } else {
        step_f32<M, V, kColumns>(a, b, step, sums);
      }
    }
  }
  if (!t.ends) return put<M, V, false>(chain, kPanel, sums);
  t.add ? put<M, V, true>(c, t.c_stride, sums) : put<M, V, false>(c, t.c_stride, sums);
}

template <int M, class B, bool kColumns>
void tile_rows(const Tile& t) {
  constexpr int kFew = std::min(2, kPanelVectors);
  constexpr int V = vectors_for(M);
  const int64_t vectors = t.panels * kPanelVectors;
  int64_t first = 0;
  for (; first + V <= vectors; first += V) tile_part<M, V, B, kColumns>(t, first);
  if constexpr (V > kFew) {
    for (; first < vectors; first += kFew) tile_part<M, kFew, B, kColumns>(t, first);
  }
}

// Rows of a pack that comes from memory: some panels at once, in parts, of which the next is asked for. Two rows at a
// time take all of a panel's columns, so lines are read in order; the others find the part in L1.
constexpr bool kFarTiles = kLanes == 8;
constexpr int64_t kFarSteps = 32;  // of a part: 4 KiB

template <class B>
void far_part(const Tile& part, int64_t rows) {
  constexpr int kTogether = 2;
  Tile t = part;
  for (int64_t i = 0; i < rows; i += kTogether) {
    t.a = static_cast<const float*>(part.a) + i * kRowWords;
    t.c = part.c + i * part.c_stride;
    t.chain = part.chain + i * kPanel;
    i + kTogether <= rows ? tile_rows<kTogether, B, false>(t) : tile_rows<1, B, false>(t);
  }
}

template <class B>
void far_tile(const Tile& t) {
  constexpr int64_t kStepBytes = kPanel * 4, kPair = 4 / sizeof(B);
  const auto part_at = [&](int64_t panel, int64_t step) {
    return static_cast<const uint8_t*>(t.b) + panel * t.b_stride + step * kStepBytes;
  };
  float chains[AskPanels::kPanels][kTileRows * kPanel];
  for (int64_t panel0 = 0; panel0 < t.panels; panel0 += AskPanels::kPanels) {
    const int64_t panel1 = std::min(panel0 + AskPanels::kPanels, t.panels);
    for (int64_t s0 = 0; s0 < t.steps; s0 += kFarSteps) {
      const int64_t s1 = std::min(s0 + kFarSteps, t.steps);
      const bool last = s1 == t.steps;
      const int64_t next0 = last ? panel1 : panel0,
                    panels = std::min(next0 + AskPanels::kPanels, t.panels) - next0;
      const AskPanels next(part_at(next0, last ? 0 : s1), t.b_stride, panels,
                           kFarSteps * kStepBytes);
      for (int64_t panel = panel0; panel < panel1; ++panel) {
        next.share(panel - panel0, panel1 - panel0);
        far_part<B>({.a = static_cast<const float*>(t.a) + s0 * kPair,
                     .b = part_at(panel, s0),
                     .b_stride = 0,
                     .panels = 1,
                     .steps = s1 - s0,
                     .c = t.c + panel * kPanel,
                     .c_stride = t.c_stride,
                     .rows = 0,
                     .add = t.add,
                     .chain = chains[panel - panel0],
                     .begins = s0 == 0,
                     .ends = last},
                    t.rows);
      }
    }
  }
}

template <class B, bool kColumns, int... M>
void tile_of(const Tile& t, std::integer_sequence<int, M...>) {
  static constexpr void (*kTiles[])(const Tile&) = {tile_rows<M + 1, B, kColumns>...};
  MR_DCHECK(t.rows >= 1 && t.rows <= kTileRows);
  kTiles[t.rows - 1](t);
}

template <class B, bool kColumns>
void tile(const Tile& t) {
  if constexpr (!kColumns && kFarTiles) {
    if (t.far && t.panels > 1) return far_tile<B>(t);
  }
  tile_of<B, kColumns>(t, std::make_integer_sequence<int, kTileRows>());
}

void widen_right(float* to, const void* right, int64_t steps) {
  const DF df;
  const hn::RebindToUnsigned<DF> du;
  const auto* from = static_cast<const uint32_t*>(right);
  const auto upper = hn::Set(du, 0xffff0000u);
  for (int64_t step = 0; step < steps; ++step, from += kPanel, to += 2 * kPanel) {
    HWY_UNROLL(8)
    for (int v = 0; v < kPanelVectors; ++v) {
      const auto word = hn::LoadU(du, from + v * kLanes);
      store(hn::BitCast(df, hn::ShiftLeft<16>(word)), df, to + v * kLanes);
      store(hn::BitCast(df, hn::And(word, upper)), df, to + kPanel + v * kLanes);
    }
  }
}

HWY_INLINE float widened(float value) { return value; }
HWY_INLINE float widened(BF16 value) { return to_float(value); }

// n elements as f32.
template <class E>
HWY_INLINE void widen(float* to, const E* from, int64_t n) {
  const DF df;
  int64_t i = 0;
  for (; i + kLanes <= n; i += kLanes) store(load(df, from + i), df, to + i);
  for (; i < n; ++i) to[i] = widened(from[i]);
}

template <class E>
HWY_INLINE void copy_rows_of(const RowCopy& r, bool round) {
  const DF df;
  for (int64_t i = 0; i < r.rows; ++i) {
    float* to = static_cast<float*>(r.panel) + i * kRowWords;
    widen(to, static_cast<const E*>(r.from) + i * r.stride, r.sum);
    for (int64_t j = r.sum; j < (r.sum + 1) / 2 * 2; ++j) to[j] = 0;
    if (!round) continue;
    for (int64_t j = 0; j < (r.sum + kLanes - 1) / kLanes * kLanes; j += kLanes) {
      BF16 rounded[kLanes];
      store(load(df, to + j), df, rounded);
      store(load(df, rounded), df, to + j);
    }
  }
}

void copy_rows_f32(const RowCopy& r) { copy_rows_of<float>(r, false); }

// For a bf16 pack: f32 rows are rounded.
void copy_rows_bf16(const RowCopy& r) {
  r.dtype == DType::kBF16 ? copy_rows_of<BF16>(r, false) : copy_rows_of<float>(r, true);
}

// Steps of a panel of V vectors, one for each row of `from`, of which n elements are there; zeros behind them.
template <int V, class E>
HWY_INLINE void copy_steps(float* to, const E* from, int64_t stride, int64_t rows, int64_t n) {
  const DF df;
  constexpr int64_t kWidth = V * kLanes;
  for (int64_t s = 0; s < rows && n < kWidth; ++s) {
    widen(to + s * kWidth, from + s * stride, n);
    std::fill(to + s * kWidth + n, to + (s + 1) * kWidth, 0.0f);
  }
  for (int64_t s = 0; s < rows && n == kWidth; ++s) {
    HWY_UNROLL(8)
    for (int v = 0; v < V; ++v)
      store(load(df, from + s * stride + v * kLanes), df, to + s * kWidth + v * kLanes);
  }
}

template <int V, class E>
HWY_INLINE void copy_columns_of(const ColumnCopy& c) {
  constexpr int64_t kRowsAtOnce = 8;  // few open rows, and whole cache lines written in a run
  MR_DCHECK(c.width == V * kLanes);
  for (int64_t s0 = 0; s0 < c.sum; s0 += kRowsAtOnce) {
    const int64_t s1 = std::min(s0 + kRowsAtOnce, c.sum);
    for (int64_t p = 0; p < c.count; ++p) {
      const int64_t begin = c.even ? even_begin(c.columns, c.count, p) : p * c.width;
      ask_behind(c, begin, s0, s1);
      auto* panel = reinterpret_cast<float*>(static_cast<uint8_t*>(c.panels) + p * c.panel_bytes);
      copy_steps<V>(panel + s0 * c.width, static_cast<const E*>(c.from) + s0 * c.stride + begin,
                    c.stride, s1 - s0, std::min(c.width, c.columns - begin));
    }
  }
}

template <int V>
void copy_columns(const ColumnCopy& c) {
  c.dtype == DType::kBF16 ? copy_columns_of<V, BF16>(c) : copy_columns_of<V, float>(c);
}

template <class E>
HWY_INLINE void finish_of(const Finish& f) {
  const DF df;
  const VF alpha = hn::Set(df, f.alpha), beta = hn::Set(df, f.beta);
  const bool plain = f.alpha == 1 && f.y0 == nullptr;
  for (int64_t i = 0; i < f.rows; ++i) {
    E* y = static_cast<E*>(f.y) + i * f.y_stride;
    const float* c = f.c + i * f.c_stride;
    const float* y0 = f.y0 == nullptr ? nullptr : f.y0 + i * f.y_stride;
    for (int64_t j = 0; j < f.columns; j += kLanes) {
      const int64_t left = f.columns - j;
      const bool whole = left >= kLanes;
      VF v = load(df, c + j);  // c is padded to whole panels
      if (!plain) v = hn::Mul(alpha, v);
      if (f.bias != nullptr) {
        v = hn::Add(v, whole ? load(df, f.bias + j) : load_n(df, f.bias + j, left));
      }
      if (y0 != nullptr)
        v = hn::MulAdd(beta, whole ? load(df, y0 + j) : load_n(df, y0 + j, left), v);
      whole ? store(v, df, y + j) : store_n(v, df, y + j, left);
    }
  }
}

void finish(const Finish& f) { f.dtype == DType::kBF16 ? finish_of<BF16>(f) : finish_of<float>(f); }

const LinearEngine* engine(bool bf16) {
  static constexpr LinearEngine kF32 = {.tile_rows = kTileRows,
                                        .column_width = kColumnWidth,
                                        .sum_block = kBlockWords,
                                        .row_step = 1,
                                        .step_bytes = kPanel * 4,
                                        .column_step = 1,
                                        .column_round = 1,
                                        .step_cost = 16,
                                        .ahead_rows = 0,
                                        .ahead_streams = 0,
                                        .turn_steps = NextRows::kSteps,
                                        .parts = {.sum = kPartSum, .tile = tile<float, false>},
                                        .copy_rows = copy_rows_f32,
                                        .copy_right = copy_columns<kPanelVectors>,
                                        .copy_left = copy_columns<kColumnWidth / kLanes>,
                                        .row_tile = tile<float, false>,
                                        .column_tile = tile<float, true>,
                                        .finish = finish};
  static constexpr LinearEngine kBf16 = [] {
    LinearEngine e = kF32;
    e.row_step = 2;
    e.copy_rows = copy_rows_bf16;
    e.row_tile = tile<BF16, false>;
    e.parts.widen = widen_right;
    return e;
  }();
  return bf16 ? &kBf16 : &kF32;
}

}  // namespace HWY_NAMESPACE
}  // namespace moraine::cpu
HWY_AFTER_NAMESPACE();

#if HWY_ONCE
namespace moraine::cpu {
HWY_EXPORT(engine);
const LinearEngine& f32_engine(DType dtype) {
  return *HWY_DYNAMIC_DISPATCH(engine)(dtype == DType::kBF16);
}
}  // namespace moraine::cpu
#endif  // HWY_ONCE
