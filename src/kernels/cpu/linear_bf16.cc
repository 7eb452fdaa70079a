// The bf16 engine of dense products: vdpbf16ps on pairs along the sum, for AVX-512 machines that
// have it.
//
// Highway (1.0) has no bf16 dot product, hence raw intrinsics. vdpbf16ps adds the product of the
// upper halves, then that of the lower ones, and treats denormal numbers as zero.
#include "kernels/cpu/linear_engine.h"

#if defined(__x86_64__)

#include <hwy/cache_control.h>
#include <immintrin.h>

#include <algorithm>
#include <cstring>
#include <utility>

#include "base/check.h"
#include "kernels/cpu/linear_pairs.h"
#include "kernels/isa.h"

HWY_PUSH_ATTRIBUTES("avx512f,avx512bw,avx512vl,avx512dq,avx512bf16,fma,avx2,bmi,bmi2")

namespace moraine::cpu {
namespace {

constexpr int kTileRows = 14;     // 14 x 2 sums, 2 right vectors, 1 broadcast: 31 of 32 registers
constexpr int kColumnWidth = 16;  // one vector of words
constexpr int kLanes = 16;
constexpr int64_t kStepBytes = kPanel * 4;

// How lines are asked for from memory. kIntoL1 (machine_reads_into_l1): into L1, 8 KiB ahead. kByL2: into L2, 16 KiB
// ahead, and from there into L1. Tiles of 6 to 14 rows are 1.1 to 1.5 times as fast by L2 on a Zen 4, whose two threads
// read 50 GB/s, and 0.8 to 0.97 times on a Zen 5.
enum class Reads { kIntoL1, kByL2 };
constexpr int64_t kStepsIntoL2 = 128, kStepsIntoL1 = 64, kStepsFromL2 = 16;

// Column vectors held at once: more than 10 chains hide a dot's latency (3 to 5 rows with two vectors are 0.73 to 0.79
// times as fast from cache, Zen 5).
constexpr int vectors_for(int rows) { return rows <= 2 ? 8 : rows <= 5 ? 4 : 2; }

// Few rows wait for memory. Streams of two panels and more, without being asked, get up to a third more of it on a
// Zen 4 than one that asks, and 0.87 to 0.98 of it on a Zen 5.
template <Reads kReads>
constexpr int kUnaskedRows = kReads == Reads::kByL2 ? 5 : 2;

template <bool kColumns>
HWY_INLINE __m512bh left(const uint32_t* a, int64_t row, int64_t step) {
  const uint32_t word = kColumns ? a[step * kColumnWidth + row] : a[row * kRowWords + step];
  return reinterpret_cast<__m512bh>(_mm512_set1_epi32(static_cast<int>(word)));
}

template <int M, int V, bool kAdd>
HWY_INLINE void put(float* c, int64_t stride, const __m512 (&sums)[M][V]) {
  HWY_UNROLL(16)
  for (int i = 0; i < M; ++i, c += stride) {
    asm("" : "+r"(c));  // else gcc makes the addresses of all rows first, and keeps them in memory
    HWY_UNROLL(8)
    for (int v = 0; v < V; ++v) {
      __m512 sum = sums[i][v];
      if constexpr (kAdd) sum = _mm512_add_ps(_mm512_loadu_ps(c + v * kLanes), sum);
      _mm512_storeu_ps(c + v * kLanes, sum);
    }
  }
}

// Whole sums as bf16; as finish() rounds them.
template <int M, int V>
HWY_INLINE void put_rounded(BF16* c, int64_t stride, const __m512 (&sums)[M][V]) {
  HWY_UNROLL(16)
  for (int i = 0; i < M; ++i, c += stride) {
    asm("" : "+r"(c));  // as above
    HWY_UNROLL(4)
    for (int v = 0; v < V; v += 2) {
      const __m512bh both = _mm512_cvtne2ps_pbh(sums[i][v + 1], sums[i][v]);
      _mm512_storeu_si512(c + v * kLanes, reinterpret_cast<__m512i>(both));
    }
  }
}

// What a tile asks for at a step. Tiles that share a panel each ask for a part of the next one: else all would come in
// the first one's turn, which waits for memory then, and memory for the others.
enum class Asks { kNothing, kNext, kPart };

// Step `step` of the panel at b, or of what comes behind it.
HWY_INLINE const uint8_t* step_of(const Tile& t, const uint8_t* b, int64_t step) {
  return step < t.steps ? b + step * kStepBytes : t.ahead.data + (step - t.steps) * kStepBytes;
}
template <Reads kReads>
HWY_INLINE void ask_for_next(const Tile& t, const uint8_t* b, int64_t step) {
  constexpr bool kByL2 = kReads == Reads::kByL2;
  const uint8_t* near = step_of(t, b, step + (kByL2 ? kStepsFromL2 : kStepsIntoL1));
  __builtin_prefetch(near);
  __builtin_prefetch(near + Ahead::kLine);
  if constexpr (kByL2) {
    const uint8_t* far = step_of(t, b, step + kStepsIntoL2);
    __builtin_prefetch(far, 0, 2);
    __builtin_prefetch(far + Ahead::kLine, 0, 2);
  }
}

// A line of the tile's part, into L2.
HWY_INLINE void ask_for_part(const Tile& t, int64_t step) {
  if (step < t.ahead.lines) __builtin_prefetch(t.ahead.data + step * Ahead::kLine, 0, 2);
}

// sums[i][v] += a[i] * b[v], two products each.
template <int M, int V, bool kColumns>
HWY_INLINE void add_step(const uint32_t* a, const uint8_t* b, int64_t stride, int64_t step,
                         __m512 (&sums)[M][V]) {
  __m512bh bv[V];
  HWY_UNROLL(8)
  for (int v = 0; v < V; ++v) {
    const uint8_t* from = b + v / 2 * stride + (step * 2 + v % 2) * 64;
    bv[v] = reinterpret_cast<__m512bh>(_mm512_loadu_si512(from));
  }
  HWY_UNROLL(16)
  for (int i = 0; i < M; ++i) {
    const __m512bh ai = left<kColumns>(a, i, step);
    HWY_UNROLL(8)
    for (int v = 0; v < V; ++v) sums[i][v] = _mm512_dpbf16_ps(sums[i][v], ai, bv[v]);
  }
}

// V column vectors (V / 2 panels) from panel `panel` on, for M rows.
template <int M, int V, bool kColumns, Asks kAsks = Asks::kNothing, Reads kReads = Reads::kByL2>
HWY_INLINE void tile_part(const Tile& t, int64_t panel) {
  const uint32_t* a = static_cast<const uint32_t*>(t.a);
  const uint8_t* b = static_cast<const uint8_t*>(t.b) + panel * t.b_stride;
  float* c = t.rounded != nullptr ? nullptr : t.c + panel * kPanel;
  MR_DCHECK(t.rounded == nullptr || !t.add);
  if (t.add) {  // old sums arrive while the new ones are made
    float* row = c;
    HWY_UNROLL(16)
    for (int i = 0; i < M; ++i, row += t.c_stride) {
      asm("" : "+r"(row));
      HWY_UNROLL(8)
      for (int v = 0; v < V; ++v) hwy::Prefetch(row + v * kLanes);
    }
  }
  __m512 sums[M][V];
  HWY_UNROLL(16)
  for (int i = 0; i < M; ++i) {
    HWY_UNROLL(8)
    for (int v = 0; v < V; ++v) sums[i][v] = _mm512_setzero_ps();
  }
  const int64_t run = t.next == nullptr ? t.steps : NextRows::kSteps;
  for (int64_t step0 = 0; step0 < t.steps; step0 += run) {
    if (t.next != nullptr) t.next->turn();
    const int64_t step1 = std::min(step0 + run, t.steps);
    for (int64_t step = step0; step < step1; ++step) {
      if constexpr (kAsks == Asks::kNext) ask_for_next<kReads>(t, b, step);
      if constexpr (kAsks == Asks::kPart) ask_for_part(t, step);
      add_step<M, V, kColumns>(a, b, t.b_stride, step, sums);
    }
  }
  if constexpr (!kColumns) {
    if (t.rounded != nullptr)
      return put_rounded<M, V>(t.rounded + panel * kPanel, t.c_stride, sums);
  }
  t.add ? put<M, V, true>(c, t.c_stride, sums) : put<M, V, false>(c, t.c_stride, sums);
}

template <int M, bool kColumns, Reads kReads>
void tile_rows(const Tile& t) {
  constexpr int V = vectors_for(M);
  int64_t panel = 0;
  if constexpr (!kColumns && M > kUnaskedRows<kReads>) {
    if (t.ahead.lines > 0)
      t.ahead.part ? tile_part<M, 2, false, Asks::kPart>(t, panel++)
                   : tile_part<M, 2, false, Asks::kNext, kReads>(t, panel++);
  }
  for (; panel + V / 2 <= t.panels; panel += V / 2) tile_part<M, V, kColumns>(t, panel);
  if constexpr (V > 2) {
    for (; panel < t.panels; ++panel) tile_part<M, 2, kColumns>(t, panel);
  }
}

template <bool kColumns, Reads kReads, int... M>
void tile_of(const Tile& t, std::integer_sequence<int, M...>) {
  static constexpr void (*kTiles[])(const Tile&) = {tile_rows<M + 1, kColumns, kReads>...};
  kTiles[t.rows - 1](t);
}

template <Reads kReads>
void row_tile(const Tile& t) {
  tile_of<false, kReads>(t, std::make_integer_sequence<int, kTileRows>());
}
void column_tile(const Tile& t) {  // asks for nothing: either way
  tile_of<true, Reads::kByL2>(t, std::make_integer_sequence<int, kTileRows>());
}

HWY_INLINE __m512i round_32(const float* from) {
  return reinterpret_cast<__m512i>(
      _mm512_cvtne2ps_pbh(_mm512_loadu_ps(from + kLanes), _mm512_loadu_ps(from)));
}

HWY_INLINE __mmask16 first(int64_t n) {
  return static_cast<__mmask16>(_bzhi_u32(0xffff, static_cast<unsigned>(n)));
}

HWY_INLINE __mmask32 first_32(int64_t n) {
  return _bzhi_u32(0xffffffffu, static_cast<unsigned>(n));
}

// The last, partial 32 elements, zeros behind them.
HWY_INLINE __m512i rest_32(const float* from, int64_t n) {
  const __m512 low = _mm512_maskz_loadu_ps(first(std::min<int64_t>(n, 16)), from);
  const __m512 high = _mm512_maskz_loadu_ps(n > 16 ? first(n - 16) : 0, from + kLanes);
  return reinterpret_cast<__m512i>(_mm512_cvtne2ps_pbh(high, low));
}

void copy_rows(const RowCopy& r) {
  for (int64_t i = 0; i < r.rows; ++i) {
    uint16_t* to = static_cast<uint16_t*>(r.panel) + i * kRowWords * 2;
    int64_t j = 0;
    if (r.dtype == DType::kBF16) {
      const uint16_t* from = static_cast<const uint16_t*>(r.from) + i * r.stride;
      for (; j + 32 <= r.sum; j += 32) _mm512_storeu_si512(to + j, _mm512_loadu_si512(from + j));
      const __mmask32 rest = first_32(r.sum - j);
      if (j < r.sum) _mm512_storeu_si512(to + j, _mm512_maskz_loadu_epi16(rest, from + j));
    } else {
      const float* from = static_cast<const float*>(r.from) + i * r.stride;
      for (; j + 32 <= r.sum; j += 32) _mm512_storeu_si512(to + j, round_32(from + j));
      if (j < r.sum) _mm512_storeu_si512(to + j, rest_32(from + j, r.sum - j));
    }
  }
}

// Rows of 16 V columns, of which those of `mask` are there, as steps of pairs; behind an odd last row zeros.
template <int V>
HWY_INLINE void copy_steps(uint32_t* to, const uint16_t* from, int64_t stride, int64_t rows,
                           __mmask32 mask) {
  for (int64_t s = 0; s < rows; s += 2, from += 2 * stride, to += V * kLanes) {
    const __m512i lower = _mm512_maskz_loadu_epi16(mask, from);
    const __m512i upper = _mm512_maskz_loadu_epi16(s + 1 < rows ? mask : 0, from + stride);
    HWY_UNROLL(2)
    for (int v = 0; v < V; ++v) {
      const __m512i zip = _mm512_load_si512(kPairs[v]);
      _mm512_storeu_si512(to + v * kLanes, _mm512_permutex2var_epi16(lower, zip, upper));
    }
  }
}

// Rows s and s + 1 of bf16 become step s / 2.
template <int V>
void copy_columns(const ColumnCopy& c) {
  constexpr int64_t kRowsAtOnce = 16;  // few open rows, and cache lines written in runs of 8
  const uint16_t* rows = static_cast<const uint16_t*>(c.from);
  MR_DCHECK(c.width == V * kLanes);
  for (int64_t s0 = 0; s0 < c.sum; s0 += kRowsAtOnce) {
    const int64_t s1 = std::min(s0 + kRowsAtOnce, c.sum);
    for (int64_t p = 0; p < c.count; ++p) {
      const int64_t begin = c.even ? even_begin(c.columns, c.count, p) : p * c.width;
      ask_behind(c, begin, s0, s1);
      const int64_t n = std::min<int64_t>(V * kLanes, c.columns - begin);
      uint8_t* panel = static_cast<uint8_t*>(c.panels) + p * c.panel_bytes;
      copy_steps<V>(reinterpret_cast<uint32_t*>(panel) + s0 / 2 * V * kLanes,
                    rows + s0 * c.stride + begin, c.stride, s1 - s0, first_32(n));
    }
  }
}

// Sixteen finished sums.
HWY_INLINE __m512 finished(const Finish& f, int64_t row, int64_t j, __mmask16 mask) {
  __m512 v = _mm512_loadu_ps(f.c + row * f.c_stride + j);  // c is padded to whole panels
  if (f.alpha != 1 || f.y0 != nullptr) v = _mm512_mul_ps(_mm512_set1_ps(f.alpha), v);
  if (f.bias != nullptr) v = _mm512_add_ps(v, _mm512_maskz_loadu_ps(mask, f.bias + j));
  if (f.y0 != nullptr) {
    const __m512 old = _mm512_maskz_loadu_ps(mask, f.y0 + row * f.y_stride + j);
    v = _mm512_fmadd_ps(_mm512_set1_ps(f.beta), old, v);
  }
  return v;
}

void finish(const Finish& f) {
  // What is only rounded leaves a cache line at a time.
  const bool rounds =
      f.dtype == DType::kBF16 && f.alpha == 1 && f.bias == nullptr && f.y0 == nullptr;
  const int64_t whole = rounds ? f.columns / (2 * kLanes) * (2 * kLanes) : 0;
  for (int64_t i = 0; i < f.rows; ++i) {
    for (int64_t j = 0; j < whole; j += 2 * kLanes)
      _mm512_storeu_si512(static_cast<uint16_t*>(f.y) + i * f.y_stride + j,
                          round_32(f.c + i * f.c_stride + j));
    for (int64_t j = whole; j < f.columns; j += kLanes) {
      const __mmask16 mask = f.columns - j >= kLanes ? 0xffff : first(f.columns - j);
      const __m512 v = finished(f, i, j, mask);
      const int64_t at = i * f.y_stride + j;
      if (f.dtype == DType::kBF16) {
        const __m256i rounded = reinterpret_cast<__m256i>(_mm512_cvtneps_pbh(v));
        _mm256_mask_storeu_epi16(static_cast<uint16_t*>(f.y) + at, mask, rounded);
      } else {
        _mm512_mask_storeu_ps(static_cast<float*>(f.y) + at, mask, v);
      }
    }
  }
}

template <Reads kReads>
constexpr LinearEngine kEngine = {.tile_rows = kTileRows,
                                  .column_width = kColumnWidth,
                                  .sum_block = 2 * kBlockWords,
                                  .row_step = 2,
                                  .step_bytes = kStepBytes,
                                  .column_step = 2,
                                  .column_round = 1,
                                  .step_cost = 16,
                                  .ahead_rows = kUnaskedRows<kReads> + 1,
                                  .ahead_streams = 1,
                                  .turn_steps = NextRows::kSteps,
                                  .rounds = true,
                                  .copy_rows = copy_rows,
                                  .copy_right = copy_columns<2>,
                                  .copy_left = copy_columns<1>,
                                  .row_tile = row_tile<kReads>,
                                  .column_tile = column_tile,
                                  .finish = finish};

}  // namespace

const LinearEngine* bf16_engine() {
  return machine_reads_into_l1() ? &kEngine<Reads::kIntoL1> : &kEngine<Reads::kByL2>;
}

}  // namespace moraine::cpu

HWY_POP_ATTRIBUTES

#else

namespace moraine::cpu {
const LinearEngine* bf16_engine() { return nullptr; }
}  // namespace moraine::cpu

#endif
