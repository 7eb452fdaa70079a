// AttentionLanes: the small products of attention with vectors.
//
//   c[i * c_row + j] = start + sum_s a(i, s) * b[s * b_step + j]
//
// Compiled once per Highway target, as attention_tiles.h, in words as there.
//
// Order: one chain of multiply-adds per element over ascending steps, whatever the tile of rows it is computed in: a
// row's bits do not depend on the rows beside it, nor on where a sum is cut and gone on with.
#include "kernels/cpu/attention_tiles.h"

#include <utility>

#if defined(MORAINE_KERNELS_CPU_ATTENTION_LANES_H_) == defined(HWY_TARGET_TOGGLE)
#ifdef MORAINE_KERNELS_CPU_ATTENTION_LANES_H_
#undef MORAINE_KERNELS_CPU_ATTENTION_LANES_H_
#else
#define MORAINE_KERNELS_CPU_ATTENTION_LANES_H_
#endif

HWY_BEFORE_NAMESPACE();
namespace moraine {
namespace HWY_NAMESPACE {

enum class Start { kZero, kAdd, kScale };

// B: Word, or what vectors widen to words as they load it, bf16.
template <class B>
struct ProductOf {
  const Word* a;  // a(i, s): a[i * kRow + s * kStep]
  const B* b;
  float* c;
  int64_t b_step, c_row;
  int64_t steps;
  int64_t rows, columns;         // columns: a multiple of kGroup
  const float* scale = nullptr;  // [rows] kScale: c starts as scale[i] * c[i, j]
};
using Product = ProductOf<Word>;

template <class F, int kRow, int kStep, Start kStart, int M, int V, class B>
HWY_INLINE void tile(const ProductOf<B>& p, int64_t i0, int64_t j0) {
  const DF df;
  VF sum[M][V];
  const Word* a = p.a + i0 * kRow;
  const B* b = p.b + j0;
  float* c = p.c + i0 * p.c_row + j0;
  HWY_UNROLL(8)
  for (int i = 0; i < M; ++i) {
    HWY_UNROLL(4)
    for (int v = 0; v < V; ++v) {
      if constexpr (kStart == Start::kZero) {
        sum[i][v] = hn::Zero(df);
      } else {
        sum[i][v] = hn::LoadU(df, c + i * p.c_row + v * kLanes);
      }
      if constexpr (kStart == Start::kScale) {
        sum[i][v] = hn::Mul(sum[i][v], hn::Set(df, p.scale[i0 + i]));
      }
    }
  }
  for (int64_t s = 0; s < p.steps; ++s, a += kStep, b += p.b_step) {
    VF column[V];
    HWY_UNROLL(4)
    for (int v = 0; v < V; ++v) column[v] = load(df, b + v * kLanes);
    HWY_UNROLL(8)
    for (int i = 0; i < M; ++i) {
      const VF row = hn::Set(df, a[i * kRow]);
      HWY_UNROLL(4)
      for (int v = 0; v < V; ++v) sum[i][v] = F::step(sum[i][v], row, column[v]);
    }
  }
  HWY_UNROLL(8)
  for (int i = 0; i < M; ++i) {
    HWY_UNROLL(4)
    for (int v = 0; v < V; ++v) hn::StoreU(sum[i][v], df, c + i * p.c_row + v * kLanes);
  }
}

// Rows [i0, i1), M at a time: what a tile has read of b is in L1 for the one behind it.
template <class F, int kRow, int kStep, Start kStart, int M, int V, class B>
void tile_rows(const ProductOf<B>& p, int64_t i0, int64_t i1) {
  constexpr int64_t kTwoByTwo =
      V == 3 ? 4 * kLanes : 0;  // columns that three and one would share unevenly
  int64_t j = 0;
  for (; j + V * kLanes <= p.columns && p.columns - j != kTwoByTwo; j += V * kLanes) {
    for (int64_t i = i0; i < i1; i += M) tile<F, kRow, kStep, kStart, M, V>(p, i, j);
  }
  if constexpr (V > 2) {
    for (; j + 2 * kLanes <= p.columns; j += 2 * kLanes) {
      for (int64_t i = i0; i < i1; i += M) tile<F, kRow, kStep, kStart, M, 2>(p, i, j);
    }
  }
  if constexpr (kLanes == attention::kGroup) {
    for (; j < p.columns; j += kLanes) {
      for (int64_t i = i0; i < i1; i += M) tile<F, kRow, kStep, kStart, M, 1>(p, i, j);
    }
  }
}

// Few rows take more columns at a time, for as many chains.
template <class F, int kRow, int kStep, Start kStart, class B>
HWY_INLINE void multiply_by_eights(const ProductOf<B>& p) {
  // Three vectors of sums for each row need fewer loads for a multiply-add than two.
  constexpr int kWide = kLanes == attention::kGroup ? 3 : 2;
  const int64_t eights = p.rows / 8 * 8, fours = p.rows / 4 * 4, twos = p.rows / 2 * 2;
  if (eights > 0) tile_rows<F, kRow, kStep, kStart, 8, kWide>(p, 0, eights);
  if (fours > eights) tile_rows<F, kRow, kStep, kStart, 4, 4>(p, eights, fours);
  if (twos > fours) tile_rows<F, kRow, kStep, kStart, 2, 4>(p, fours, twos);
  if (p.rows > twos) tile_rows<F, kRow, kStep, kStart, 1, 4>(p, twos, p.rows);
}

// Tiles as even as can be: of sixteen rows five, five and six.
template <class F, int kRow, int kStep, Start kStart, class B, int... M>
HWY_INLINE void multiply_evenly(const ProductOf<B>& p, std::integer_sequence<int, M...>) {
  static constexpr void (*kTiles[])(const ProductOf<B>&, int64_t,
                                    int64_t) = {tile_rows<F, kRow, kStep, kStart, M + 1, 2>...};
  if (p.rows <= kTileRows) return p.rows > 0 ? kTiles[p.rows - 1](p, 0, p.rows) : void();
  const int64_t tiles = (p.rows + kTileRows - 1) / kTileRows;
  for (int64_t t = 0; t < tiles; ++t) {
    const int64_t i = p.rows * t / tiles, end = p.rows * (t + 1) / tiles;
    kTiles[end - i - 1](p, i, end);
  }
}

template <class F, int kRow, int kStep, Start kStart, class B>
HWY_NOINLINE void multiply_lanes(const ProductOf<B>& p) {
  if constexpr (kTileRows == 8) {
    multiply_by_eights<F, kRow, kStep, kStart>(p);
  } else {
    multiply_evenly<F, kRow, kStep, kStart>(p, std::make_integer_sequence<int, kTileRows>());
  }
}

}  // namespace HWY_NAMESPACE
}  // namespace moraine
HWY_AFTER_NAMESPACE();

#endif  // per-target guard
