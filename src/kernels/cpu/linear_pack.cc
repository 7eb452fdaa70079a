// Packing of weights into right panels: 32 outputs side by side, steps of the sum one after
// another.
//
// A weight is read once, in tiles of 32 x 32, for one pack or for both: the one whose panels are rows of the weight
// and the one whose panels are its columns. A tile is a run of whole cache lines in either.
#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "kernels/cpu/linear_pack.cc"
#include "hwy/foreach_target.h"

#include <hwy/cache_control.h>

#include <algorithm>
#include <cstdint>
#include <cstring>

#include "base/check.h"
#include "kernels/ceil_div.h"
#include "kernels/cpu/linear_engine.h"
#include "kernels/cpu/linear_transpose.h"
#include "kernels/cpu/simd.h"
#include "kernels/linear.h"

HWY_BEFORE_NAMESPACE();
namespace moraine::cpu {
namespace HWY_NAMESPACE {
namespace hn = hwy::HWY_NAMESPACE;
using moraine::HWY_NAMESPACE::DF;
using moraine::HWY_NAMESPACE::load;
using moraine::HWY_NAMESPACE::store;

constexpr int64_t kSide = kPanel;             // of a tile
constexpr int64_t kMaxWords = kSide * kSide;  // of a tile of f32; half as many of bf16
constexpr int64_t kAheadTiles = 2;            // asked for into L2
constexpr int64_t kStreamBytes = int64_t{4}
                                 << 20;  // larger packs, made for later, pass the caches by
constexpr int64_t kLanes = hn::MaxLanes(DF());

// Rows and columns of one group's matrix as it lies in memory.
struct Matrix {
  const float* from;
  int64_t rows, columns;
};

// Where the tiles of one group's matrix go; null: nowhere.
struct Packs {
  uint32_t *by_rows, *by_columns;  // panels are 32 rows, or 32 columns
  bool stream;                     // past the caches
};

// Rows of a tile as the pack's type, zeros beyond the matrix.
template <class E>
struct RowsOfTile {
  alignas(64) E at[kSide][kSide];
};

template <class E>
HWY_INLINE void read_tile(const Matrix& m, int64_t row, int64_t column, RowsOfTile<E>& to) {
  const DF df;
  const int64_t rows = std::min(kSide, m.rows - row), columns = std::min(kSide, m.columns - column);
  const bool whole = columns == kSide, more = column + kAheadTiles * kSide < m.columns;
  for (int64_t i = 0; i < rows; ++i) {
    const float* from = m.from + (row + i) * m.columns + column;
    if (more) {
      __builtin_prefetch(from + kAheadTiles * kSide, 0, 2);
      __builtin_prefetch(from + kAheadTiles * kSide + kSide / 2, 0, 2);
    }
    alignas(64) float padded[kSide];
    if (!whole) {
      std::memcpy(padded, from, static_cast<size_t>(columns) * sizeof(float));
      std::fill(padded + columns, padded + kSide, 0.0f);
      from = padded;
    }
    HWY_UNROLL(4)
    for (int64_t j = 0; j < kSide; j += kLanes) store(load(df, from + j), df, &to.at[i][j]);
  }
  std::memset(to.at[rows < kSide ? rows : 0], 0,
              static_cast<size_t>(kSide - rows) * sizeof to.at[0]);
}

// out[s][j] = word s of row j.
HWY_INLINE void transpose_words(const uint32_t* rows, int64_t words, uint32_t* out) {
#if HWY_TARGET == HWY_SCALAR
  for (int64_t s = 0; s < words; ++s) {
    for (int64_t j = 0; j < kSide; ++j)
      std::memcpy(out + s * kSide + j, rows + j * words + s, sizeof *out);
  }
#elif HWY_TARGET == HWY_AVX3
  for (int64_t j = 0; j < kSide; j += 16) {
    for (int64_t s = 0; s < words; s += 16) {
      __m512i block[16];
      HWY_UNROLL(16)
      for (int i = 0; i < 16; ++i) block[i] = _mm512_load_si512(rows + (j + i) * words + s);
      moraine::HWY_NAMESPACE::transpose_16x16(block);
      HWY_UNROLL(16)
      for (int i = 0; i < 16; ++i) _mm512_store_si512(out + (s + i) * kSide + j, block[i]);
    }
  }
#else
  using moraine::HWY_NAMESPACE::U4;
  using moraine::HWY_NAMESPACE::V4;
  const U4 d;
  for (int64_t j = 0; j < kSide; j += 4) {
    for (int64_t s = 0; s < words; s += 4) {
      const uint32_t* from = rows + j * words + s;
      V4 row0 = hn::Load(d, from), row1 = hn::Load(d, from + words),
         row2 = hn::Load(d, from + 2 * words), row3 = hn::Load(d, from + 3 * words);
      moraine::HWY_NAMESPACE::transpose_4x4(row0, row1, row2, row3);
      uint32_t* to = out + s * kSide + j;
      hn::Store(row0, d, to), hn::Store(row1, d, to + kSide);
      hn::Store(row2, d, to + 2 * kSide), hn::Store(row3, d, to + 3 * kSide);
    }
  }
#endif
}

// out[s][j] = the words of column j: rows s, or rows 2s and 2s + 1.
HWY_INLINE void pair_rows(const RowsOfTile<float>& tile, uint32_t* out) {
  std::memcpy(out, tile.at, sizeof tile.at);
}

HWY_INLINE void pair_rows(const RowsOfTile<BF16>& tile, uint32_t* out) {
  const hn::RebindToUnsigned<DF> du;
  const hn::Rebind<uint16_t, DF> d16;
  for (int64_t s = 0; s < kSide / 2; ++s) {
    const auto* lower = reinterpret_cast<const uint16_t*>(tile.at[2 * s]);
    const auto* upper = reinterpret_cast<const uint16_t*>(tile.at[2 * s + 1]);
    HWY_UNROLL(4)
    for (int64_t j = 0; j < kSide; j += kLanes) {
      const auto low = hn::PromoteTo(du, hn::Load(d16, lower + j)),
                 high = hn::PromoteTo(du, hn::Load(d16, upper + j));
      hn::Store(hn::Or(low, hn::ShiftLeft<16>(high)), du, out + s * kSide + j);
    }
  }
}

// A tile's part of a panel.
HWY_INLINE void write(uint32_t* to, const uint32_t* words, int64_t count, bool stream) {
  if (!stream) {
    std::memcpy(to, words, static_cast<size_t>(count) * sizeof(uint32_t));
    return;
  }
  const hn::RebindToUnsigned<DF> du;
  for (int64_t i = 0; i < count; i += kLanes) hn::Stream(hn::Load(du, words + i), du, to + i);
}

// Rows [row, row + 32) of a matrix, to their places in both packs.
template <class E>
void pack_tiles(const Matrix& m, const Packs& to, int64_t row) {
  constexpr int64_t kPer = 4 / sizeof(E),
                    kWords = kSide / kPer;  // elements of a word, words of a row
  const int64_t row_words = ceil_div(m.rows, kPer), column_words = ceil_div(m.columns, kPer);
  for (int64_t column = 0; column < m.columns; column += kSide) {
    RowsOfTile<E> tile;
    alignas(64) uint32_t words[kMaxWords];
    read_tile(m, row, column, tile);
    if (to.by_rows != nullptr) {
      const int64_t first = column / kPer, steps = std::min(kWords, column_words - first);
      transpose_words(reinterpret_cast<const uint32_t*>(tile.at), kWords, words);
      write(to.by_rows + (row / kSide * column_words + first) * kPanel, words, steps * kPanel,
            to.stream);
    }
    if (to.by_columns != nullptr) {
      const int64_t first = row / kPer, steps = std::min(kWords, row_words - first);
      pair_rows(tile, words);
      write(to.by_columns + (column / kSide * row_words + first) * kPanel, words, steps * kPanel,
            to.stream);
    }
  }
}

// Rows [32 block, 32 block + 32) of group `group`.
void pack_rows_of(const PackMatrix& a, int64_t group, int64_t block) {
  const bool bf16 = a.packed.dtype == DType::kBF16;
  const int64_t rows = a.transpose ? a.packed.k : a.packed.n,
                columns = a.transpose ? a.packed.n : a.packed.k;
  const auto words_of = [group](const PackedMatrix& p) {
    return p.data == nullptr ? nullptr : reinterpret_cast<uint32_t*>(packed_group(p, group));
  };
  uint32_t *const packed = words_of(a.packed), *const other = words_of(a.transposed);
  const auto aligned = [](const void* p) { return reinterpret_cast<uintptr_t>(p) % 64 == 0; };
  const Packs to = {.by_rows = a.transpose ? other : packed,
                    .by_columns = a.transpose ? packed : other,
                    .stream = other != nullptr && packed_bytes(a.packed) > kStreamBytes &&
                              aligned(packed) && aligned(other)};
  const Matrix m = {a.w.as<float>() + group * rows * columns, rows, columns};
  bf16 ? pack_tiles<BF16>(m, to, block * kSide) : pack_tiles<float>(m, to, block * kSide);
  if (to.stream) hwy::FlushStream();
}

}  // namespace HWY_NAMESPACE
}  // namespace moraine::cpu
HWY_AFTER_NAMESPACE();

#if HWY_ONCE
namespace moraine::cpu {
HWY_EXPORT(pack_rows_of);

void pack_matrix(Context& ctx, const PackMatrix& a) {
  MR_CHECK(a.packed.dtype != DType::kF64, "the cpu backend has no f64 packs");
  const int64_t blocks = ceil_div(a.transpose ? a.packed.k : a.packed.n, kPanel);
  const auto pack = HWY_DYNAMIC_DISPATCH(pack_rows_of);
  ctx.pool->parallel_for(a.packed.groups * blocks,
                         [&](int64_t task, int) { pack(a, task / blocks, task % blocks); });
}
}  // namespace moraine::cpu
#endif  // HWY_ONCE
