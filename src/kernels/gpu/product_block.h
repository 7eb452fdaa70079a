// ProductBlock: sums of a block of a matrix product on tiles: chunks travel to shared memory while earlier ones are
// multiplied.
//
//   ProductShape says how many rows and columns of the product a block has, how deep a stage is, and how waves divide
//   it. An operand is lines of chunks, as its matrix lies in memory:
//
//     LinesOperand      a line is a row (or column) of the product, chunks go along the sum
//     ColumnsOperand    a line is a term of the sum, chunks go along the rows (or columns)
//
//   A stage holds `depth` terms of both, chunks as chunk_lines.h has them. While stage s is multiplied, s + 1 ..
//   s + stages - 1 are on their way; one barrier a stage.
//
// REQUIRES: product_threads<S>() threads, all of which come. Any widths: a matrix whose lines do not begin at multiples
//           of 16 bytes is read by elements, slower.
// Order:    terms ascending in steps of 16, zeros after the last: the same sums in every shape.
#pragma once

#include "kernels/gpu/product_operands.h"
#include "kernels/gpu/product_shape.h"

namespace moraine::gpu {
inline namespace MR_GPU_SPACE {

template <ProductShape S>
MR_DEVICE constexpr int product_threads() {
  return S.waves_down * S.waves_across * kWave;
}

template <ProductShape S>
using RowsByLines = LinesOperand<S.rows, S.depth, product_threads<S>()>;
template <ProductShape S>
using ColumnsByLines = LinesOperand<S.columns, S.depth, product_threads<S>()>;

// The sums of a wave: its part of the block, in tiles.
template <ProductShape S>
struct WaveSums {
  static constexpr int kDown = S.rows / S.waves_down / kTile,
                       kAcross = S.columns / S.waves_across / kTile;
  SumTile v[kDown][kAcross];

  MR_DEVICE static int row() {
    return static_cast<int>(static_cast<unsigned>(wave()) / S.waves_across * kDown * kTile);
  }
  MR_DEVICE static int column() {
    return static_cast<int>(static_cast<unsigned>(wave()) % S.waves_across * kAcross * kTile);
  }

  template <class Left, class Right>
  MR_DEVICE void add_stage(Shared<Chunk> left_stage, Shared<Chunk> right_stage) {
    MR_UNROLL for (int term = 0; term < S.depth; term += kTile) {
      LeftTile left[kDown];
      RightTile right[kAcross];
      MR_UNROLL for (int i = 0; i < kDown; ++i) {
        left[i] = Left::left(left_stage, row() + i * kTile, term);
      }
      MR_UNROLL for (int j = 0; j < kAcross; ++j) {
        right[j] = Right::right(right_stage, column() + j * kTile, term);
      }
      MR_UNROLL for (int i = 0; i < kDown; ++i) {
        MR_UNROLL for (int j = 0; j < kAcross; ++j) multiply_add(v[i][j], left[i], right[j]);
      }
    }
  }
  // put(row, column, sum), both of the block, for every sum that this thread has.
  template <class Put>
  MR_DEVICE void each(const Put& put) const {
    MR_UNROLL for (int i = 0; i < kDown; ++i) {
      MR_UNROLL for (int j = 0; j < kAcross; ++j) {
        each_sum(v[i][j], [&](int r, int c, float sum) {
          put(row() + i * kTile + r, column() + j * kTile + c, sum);
        });
      }
    }
  }
  // visit(sums, down, across): kSumRun of them, which begin so many rows and columns behind first_cell() of the block.
  template <class Visit>
  MR_DEVICE void each_run(const Visit& visit) {
    MR_UNROLL for (int i = 0; i < kDown; ++i) each_run_of(i, visit);
  }
  template <class Visit>
  MR_DEVICE void each_run_of(int i, const Visit& visit) {
    MR_UNROLL for (int j = 0; j < kAcross; ++j) {
      MR_UNROLL for (int e = 0; e < kHeld; e += kSumRun) {
        const TileCell c = sum_cell(0, e);  // of any lane the same distance from its first
        visit(v[i][j].v + e, i * kTile + c.row, j * kTile + c.column);
      }
    }
  }
  MR_DEVICE static TileCell first_cell() {
    const TileCell c = sum_cell(lane(), 0);
    return {row() + c.row, column() + c.column};
  }
};

// How many terms a sum has, and whether the wave has any sum.
struct Terms {
  int64_t count;
  bool any;
};

// Adds all terms to `sums`; beside(left stage) is called by all threads once a stage.
template <ProductShape S, class Left, class Right, class Beside>
MR_DEVICE void add_product(WaveSums<S>& sums, Left left, Right right, const Terms& of,
                           const Beside& beside) {
  constexpr int kStage = Left::kStage + Right::kStage;
  MR_SHARED(Chunk, memory, S.stages * kStage);
  const Shared<Chunk> stages = memory;
  const auto copy_next = [&](int stage, bool there) {
    if (there) {
      left.copy_next(stages + stage * kStage);
      right.copy_next(stages + (stage * kStage + Left::kStage));
    }
    commit_copies();
  };
  auto to_copy = static_cast<int>((of.count + S.depth - 1) / S.depth);
  MR_UNROLL for (int s = 0; s < S.stages - 1; ++s) copy_next(s, to_copy-- > 0);
  int now = 0, next = S.stages - 1;
  for (int64_t term = 0; term < of.count; term += S.depth) {
    wait_copies<S.stages - 2>();
    sync_block();  // all see the stage, and all are done with the one before it, which is filled anew
    copy_next(next, to_copy-- > 0);
    const Shared<Chunk> stage = stages + now * kStage;
    if (of.any) sums.template add_stage<Left, Right>(stage, stage + Left::kStage);
    beside(stage);
    next = now;
    now = now + 1 == S.stages ? 0 : now + 1;
  }
}

}  // namespace MR_GPU_SPACE
}  // namespace moraine::gpu
