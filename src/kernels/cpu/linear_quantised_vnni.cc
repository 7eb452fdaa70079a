// Tiles of quantised products with vpdpbusd: four products of a byte each a lane. A block's sums are in registers, as
// many as those hold, and are then added to floats in memory.
#include "kernels/cpu/linear_quantised.h"
#include "kernels/cpu/linear_quantised_lanes.h"

#if defined(__x86_64__)

#include <immintrin.h>

#include <cstring>
#include <utility>

HWY_PUSH_ATTRIBUTES("avx512f,avx512bw,avx512vl,avx512dq,avx512vnni,fma,avx2,bmi,bmi2")

namespace moraine::cpu {
namespace {

constexpr int kFew = 6;    // rows for which a block of weights is unpacked in registers
constexpr int kMany = 14;  // at a time otherwise: 28 sums, two weights, four inputs: 31 registers

// Panels at once, each a stream of its own: few rows wait for memory, which gives one stream 85 to 95 % of what it
// gives four (Zen 4, a file's pages). More rows would have no registers for their sums.
constexpr int panels_for(int rows) { return rows == 1 ? 4 : rows <= 4 ? 2 : 1; }

// A block of some panels.
struct Weights {
  const uint8_t* integers;
  const uint8_t* scales;
  int64_t stride;  // bytes from a panel to the next
  int bits;        // that the offset is of
};

// The same block of some rows, and their floats: there are none yet in the first block of a product.
struct Rows {
  const QuantisedRow* rows;
  int64_t block;
  float* c;
  int64_t c_stride;
  bool add;
};
constexpr int64_t kRow = sizeof(QuantisedRow);

// Four inputs of a row, in every lane.
HWY_INLINE __m512i four(const int8_t* r) {
  int32_t word;
  std::memcpy(&word, r, sizeof word);
  return _mm512_set1_epi32(word);
}

// sum + products of four. In assembly: with the intrinsic, gcc 12 moves sums from register to register.
HWY_INLINE void add_products(__m512i& sum, __m512i q, __m512i x) {
  asm("vpdpbusd %2, %1, %0" : "+v"(sum) : "v"(q), "v"(x));
}

// sums[i][v] += products of one part of a step.
template <int kBits, int kPart, int M, int V>
HWY_INLINE void add_part(__m512i (&sums)[M][V], const Weights& w, const int8_t* r, int64_t step) {
  __m512i q[V];
  HWY_UNROLL(8)
  for (int v = 0; v < V; ++v)
    q[v] = integers_of<kBits, kPart>(w.integers + v / 2 * w.stride + v % 2 * 64, step);
  HWY_UNROLL(16)
  for (int i = 0; i < M; ++i) {
    const __m512i x = four(r + i * kRow + 4 * (step + kPart * kSteps<kBits>));
    HWY_UNROLL(8)
    for (int v = 0; v < V; ++v) add_products(sums[i][v], q[v], x);
  }
}

// c[i] (+)= M rows times a block of P panels, whose integers stand there as kBits.
template <int kBits, int M, int P>
HWY_INLINE void add_block(const Rows& at, const Weights& block) {
  constexpr int V = 2 * P, kParted = kParts<kBits>;
  __m512i sums[M][V];
  HWY_UNROLL(16)
  for (int i = 0; i < M; ++i) {
    const __m512i offset = _mm512_set1_epi32(at.rows[i].minus[at.block] >> (8 - block.bits));
    HWY_UNROLL(8)
    for (int v = 0; v < V; ++v) sums[i][v] = offset;
  }
  const int8_t* r = at.rows->r + at.block * kQuantisedBlock;
  Weights w = block;
  for (int64_t run = 0; run < kRuns; ++run) {
    for (int64_t step = 0; step < kSteps<kBits>; ++step) {
      add_part<kBits, 0>(sums, w, r, step);
      if constexpr (kParted > 1) add_part<kBits, 1>(sums, w, r, step);
      if constexpr (kParted > 2) add_part<kBits, 2>(sums, w, r, step);
      if constexpr (kParted > 2) add_part<kBits, 3>(sums, w, r, step);
    }
    w.integers += kRunBytes<kBits>, r += kQuantisedRun;
  }
  // A condition for each in place of the mask makes gcc 12 keep sums in memory.
  const __mmask16 before = at.add ? 0xffff : 0;
  __m512 scales[V];
  HWY_UNROLL(8)
  for (int v = 0; v < V; ++v) scales[v] = load_scales(w.scales + v / 2 * w.stride + v % 2 * 32);
  HWY_UNROLL(16)
  for (int i = 0; i < M; ++i) {
    const __m512 step = _mm512_set1_ps(at.rows[i].step[at.block]);
    HWY_UNROLL(8)
    for (int v = 0; v < V; ++v) {
      float* c = at.c + i * at.c_stride + 16 * v;
      const __m512 y = _mm512_maskz_loadu_ps(before, c);
      _mm512_storeu_ps(c, add_scaled(y, sums[i][v], step, scales[v]));
    }
  }
}

// --------------------------------------------------------------------------------------------- few rows

// All rows of a tile x P panels from `panel` on.
template <int kBits, int M, int P>
void few_rows_panels(const Tile& t, int64_t panel, AskAhead& next) {
  const uint8_t* w = static_cast<const uint8_t*>(t.b) + panel * t.b_stride;
  for (int64_t b = 0; b < t.steps; ++b, w += kBlockBytes<kBits>) {
    next.step();
    add_block<kBits, M, P>({.rows = static_cast<const QuantisedRow*>(t.a),
                            .block = b,
                            .c = t.c + panel * kPanel,
                            .c_stride = t.c_stride,
                            .add = b > 0 || t.add},
                           {w, scales_of<kBits>(w), t.b_stride, kBits});
  }
}

template <int kBits, int M>
void few_rows(const Tile& t) {
  constexpr int P = panels_for(M);
  AskAhead next(t.ahead, t.panels * t.steps);
  int64_t panel = 0;
  for (; panel + P <= t.panels; panel += P) few_rows_panels<kBits, M, P>(t, panel, next);
  for (; panel < t.panels; ++panel) few_rows_panels<kBits, M, 1>(t, panel, next);
}

template <int kBits, int... M>
void few_rows_of(const Tile& t, std::integer_sequence<int, M...>) {
  static constexpr void (*kTiles[])(const Tile&) = {few_rows<kBits, M + 1>...};
  kTiles[t.rows - 1](t);
}

// -------------------------------------------------------------------------------------------- many rows

template <int M>
void many_rows(const Rows& at, const Weights& block) {
  add_block<8, M, 1>(at, block);
}

// For kFew + 1 .. kMany rows.
template <int... M>
void many_rows_of(int64_t rows, const Rows& at, const Weights& w,
                  std::integer_sequence<int, M...>) {
  static constexpr void (*kTiles[])(const Rows&, const Weights&) = {many_rows<kFew + 1 + M>...};
  kTiles[rows - kFew - 1](at, w);
}

// A block of a panel stays in L1, unpacked, until all rows have taken it.
template <int kBits>
void many_rows_tile(const Tile& t) {
  constexpr auto kAll = std::make_integer_sequence<int, kMany - kFew>();
  alignas(64) uint8_t integers[kRuns * kRunBytes<8>];
  const auto* rows = static_cast<const QuantisedRow*>(t.a);
  const int64_t parts = (t.rows + kMany - 1) / kMany;
  AskAhead next(t.ahead, t.panels * t.steps * parts);
  for (int64_t panel = 0; panel < t.panels; ++panel) {
    const uint8_t* w = static_cast<const uint8_t*>(t.b) + panel * t.b_stride;
    for (int64_t b = 0; b < t.steps; ++b, w += kBlockBytes<kBits>) {
      if constexpr (kBits < 8) unpack_block<kBits>(w, integers);
      const Weights block = {kBits < 8 ? integers : w, scales_of<kBits>(w), 0, kBits};
      for (int64_t i = 0; i < parts; ++i) {
        const int64_t row = even_begin(t.rows, parts, i), end = even_begin(t.rows, parts, i + 1);
        next.step();
        many_rows_of(end - row,
                     {.rows = rows + row,
                      .block = b,
                      .c = t.c + row * t.c_stride + panel * kPanel,
                      .c_stride = t.c_stride,
                      .add = b > 0 || t.add},
                     block, kAll);
      }
    }
  }
}

template <int kBits>
void vnni_tile(const Tile& t) {
  if (t.rows <= kFew) return few_rows_of<kBits>(t, std::make_integer_sequence<int, kFew>());
  many_rows_tile<kBits>(t);
}

}  // namespace

QuantisedTiles vnni_tiles() { return {vnni_tile<8>, vnni_tile<6>, vnni_tile<4>}; }

}  // namespace moraine::cpu

HWY_POP_ATTRIBUTES

#else

namespace moraine::cpu {
QuantisedTiles vnni_tiles() { return {}; }
}  // namespace moraine::cpu

#endif
