// AttentionProducts: the small products of attention, with vectors or with AMX tiles.
//
//   c[i * c_row + j] = start + sum_s a(i, s) * b[s * b_step + j]
//
// Compiled once per Highway target, as attention_tiles.h, in words as there.
//
// Order:   vectors: one chain of multiply-adds per element over ascending steps, whatever the tile of rows it is
//          computed in. Tiles: dots of 16 steps (amx_tiles.h), ascending; a sum over positions is cut where positions
//          are multiples of 32, wherever it begins: it starts with half a dot if its first group is odd (half_first),
//          and ends with one if its last is even. Either way a row's bits do not depend on the rows beside it.
#include "kernels/cpu/attention_tiles.h"

#include <utility>

#if defined(MORAINE_KERNELS_CPU_ATTENTION_PRODUCTS_H_) == defined(HWY_TARGET_TOGGLE)
#ifdef MORAINE_KERNELS_CPU_ATTENTION_PRODUCTS_H_
#undef MORAINE_KERNELS_CPU_ATTENTION_PRODUCTS_H_
#else
#define MORAINE_KERNELS_CPU_ATTENTION_PRODUCTS_H_
#endif

HWY_BEFORE_NAMESPACE();
namespace moraine {
namespace HWY_NAMESPACE {

enum class Start { kZero, kAdd, kScale };

struct Product {
  const Word* a;  // a(i, s): with vectors a[i * kRow + s * kStep], with tiles a[i * a_row + s]
  const Word* b;
  float* c;
  int64_t a_row, b_step, c_row;
  int64_t steps;                 // with tiles a multiple of 8
  int64_t rows, columns;         // columns: a multiple of kGroup. Tiles compute rows in sixteens
  const float* scale = nullptr;  // [rows] kScale: c starts as scale[i] * c[i, j]
  bool half_first = false;
};

template <class F, int kRow, int kStep, Start kStart, int M, int V>
HWY_INLINE void tile(const Product& p, int64_t i0, int64_t j0) {
  const DF df;
  VF sum[M][V];
  const Word* a = p.a + i0 * kRow;
  const Word* b = p.b + j0;
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
    for (int v = 0; v < V; ++v) column[v] = hn::LoadU(df, b + v * kLanes);
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

template <class F, int kRow, int kStep, Start kStart, int M, int V>
void tile_row(const Product& p, int64_t i) {
  int64_t j = 0;
  for (; j + V * kLanes <= p.columns; j += V * kLanes) {
    tile<F, kRow, kStep, kStart, M, V>(p, i, j);
  }
  if constexpr (V > 2) {
    for (; j + 2 * kLanes <= p.columns; j += 2 * kLanes) {
      tile<F, kRow, kStep, kStart, M, 2>(p, i, j);
    }
  }
  if constexpr (kLanes == attention::kGroup) {
    for (; j < p.columns; j += kLanes) tile<F, kRow, kStep, kStart, M, 1>(p, i, j);
  }
}

// Few rows take more columns at a time, for as many chains.
template <class F, int kRow, int kStep, Start kStart>
HWY_INLINE void multiply_by_eights(const Product& p) {
  int64_t i = 0;
  for (; i + 8 <= p.rows; i += 8) tile_row<F, kRow, kStep, kStart, 8, 2>(p, i);
  for (; i + 4 <= p.rows; i += 4) tile_row<F, kRow, kStep, kStart, 4, 4>(p, i);
  for (; i + 2 <= p.rows; i += 2) tile_row<F, kRow, kStep, kStart, 2, 4>(p, i);
  for (; i < p.rows; ++i) tile_row<F, kRow, kStep, kStart, 1, 4>(p, i);
}

// Tiles as even as can be: of sixteen rows five, five and six.
template <class F, int kRow, int kStep, Start kStart, int... M>
HWY_INLINE void multiply_evenly(const Product& p, std::integer_sequence<int, M...>) {
  static constexpr void (*kTiles[])(const Product&,
                                    int64_t) = {tile_row<F, kRow, kStep, kStart, M + 1, 2>...};
  const int64_t tiles = (p.rows + kTileRows - 1) / kTileRows;
  for (int64_t t = 0; t < tiles; ++t) {
    const int64_t i = p.rows * t / tiles;
    kTiles[p.rows * (t + 1) / tiles - i - 1](p, i);
  }
}

template <class F, int kRow, int kStep, Start kStart>
HWY_NOINLINE void multiply_lanes(const Product& p) {
  if constexpr (kTileRows == 8) {
    multiply_by_eights<F, kRow, kStep, kStart>(p);
  } else {
    multiply_evenly<F, kRow, kStep, kStart>(p, std::make_integer_sequence<int, kTileRows>());
  }
}

#if HWY_TARGET == HWY_AVX3
template <int... kTile>
HWY_INLINE void add_half_dot(cpu::AmxTiles& tiles, const Product& p, const Word* a, const Word* b,
                             std::integer_sequence<int, kTile...>) {
  tiles.load<5>(a, 4 * p.a_row);
  ((tiles.load<7>(b + kTile * cpu::kAmxWords, 4 * p.b_step), tiles.dot<kTile, 5, 7>()), ...);
  tiles.zero<5>(), tiles.zero<7>();  // zeros take no register (linear_amx.h)
}

// Sixteen rows of as many tiles of sums side by side as kTile has.
template <bool kZero, int... kTile>
HWY_INLINE void multiply_sixteen(cpu::AmxTiles& tiles, const Product& p, int64_t i, int64_t j,
                                 std::integer_sequence<int, kTile...> all) {
  const Word *a = p.a + i * p.a_row, *b = p.b + j;
  float* c = p.c + i * p.c_row + j;
  if constexpr (kZero) {
    (tiles.zero<kTile>(), ...);
  } else {
    (tiles.load<kTile>(c + kTile * cpu::kAmxWords, 4 * p.c_row), ...);
  }
  int64_t s = 0;
  if (p.half_first) {
    add_half_dot(tiles, p, a, b, all);
    s = cpu::kAmxWords / 2;
  }
  for (; s + cpu::kAmxWords <= p.steps; s += cpu::kAmxWords) {
    tiles.load<4>(a + s, 4 * p.a_row);
    const Word* right = b + s * p.b_step;
    ((tiles.load<6>(right + kTile * cpu::kAmxWords, 4 * p.b_step), tiles.dot<kTile, 4, 6>()), ...);
  }
  if (s < p.steps) add_half_dot(tiles, p, a + s, b + s * p.b_step, all);
  (tiles.store<kTile>(c + kTile * cpu::kAmxWords, 4 * p.c_row), ...);
}

HWY_INLINE void scale_rows(const Product& p) {
  const DF df;
  for (int64_t i = 0; i < p.rows; ++i) {
    if (p.scale[i] == 1) continue;
    const VF scale = hn::Set(df, p.scale[i]);
    float* c = p.c + i * p.c_row;
    for (int64_t j = 0; j < p.columns; j += kLanes) {
      hn::StoreU(hn::Mul(hn::LoadU(df, c + j), scale), df, c + j);
    }
  }
}

template <Start kStart>
HWY_NOINLINE void multiply_tiles(cpu::AmxTiles& tiles, const Product& p) {
  constexpr bool kZero = kStart == Start::kZero;
  if constexpr (kStart == Start::kScale) scale_rows(p);
  for (int64_t i = 0; i < p.rows; i += cpu::kAmxRows) {
    int64_t j = 0;
    for (; j + 4 * cpu::kAmxWords <= p.columns; j += 4 * cpu::kAmxWords) {
      multiply_sixteen<kZero>(tiles, p, i, j, std::make_integer_sequence<int, 4>());
    }
    for (; j < p.columns; j += cpu::kAmxWords) {
      multiply_sixteen<kZero>(tiles, p, i, j, std::make_integer_sequence<int, 1>());
    }
  }
}
#endif

template <class F, int kRow, int kStep, Start kStart>
HWY_INLINE void multiply([[maybe_unused]] typename F::Tiles& tiles, const Product& p) {
  if constexpr (F::kTiles) {
    multiply_tiles<kStart>(tiles, p);
  } else {
    multiply_lanes<F, kRow, kStep, kStart>(p);
  }
}

}  // namespace HWY_NAMESPACE
}  // namespace moraine
HWY_AFTER_NAMESPACE();

#endif  // per-target guard
