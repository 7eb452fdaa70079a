// ProductOperands: a matrix of bf16 as an operand of a block's product: what a thread copies of it for each stage, and
// which tiles the stage holds. product_block.h uses them.
#pragma once

#include "kernels/gpu/chunk_lines.h"

namespace moraine::gpu {
inline namespace MR_GPU_SPACE {

// Of a matrix [.., width], lines [first, end).
struct MatrixLines {
  const BF16* data;
  int64_t first, end, width;
};

// What a thread copies for stage after stage: of every kRound-th of kLines lines the chunk at a place of its own.
template <int kLines, int kChunks, int kThreads>
struct LineCopies {
  using Mine = ChunkOfThread<kChunks>;
  static constexpr int kRound = kThreads / kChunks, kTimes = kLines / kRound;
  static_assert(kThreads % kChunks == 0 && kLines % kRound == 0);
  MatrixLines m;
  const BF16* from;         // the first chunk of the next stage
  int64_t line, column;     // of it
  int64_t step;             // from a line to the next
  int lines_left, in_line;  // of the matrix behind it, as many as matter
  bool aligned;

  MR_DEVICE LineCopies(const MatrixLines& lines, int64_t first_column) : m(lines) {
    line = m.first + Mine::line();
    column = first_column + Mine::chunk() * kChunk;
    from = m.data + (line * m.width + column);
    step = kRound * m.width;
    lines_left = bounded(m.end - line);
    in_line = bounded(m.width - column);
    aligned = lines_are_aligned<Chunk>(m.data, m.width);
  }
  MR_DEVICE static int bounded(int64_t v) {
    constexpr int64_t kMost = 1 << 30;
    return static_cast<int>(v < kMost ? (v > -kMost ? v : -kMost) : kMost);
  }
  MR_DEVICE void move(int lines, int columns) {
    from += lines * m.width + columns;
    line += lines;
    column += columns;
    lines_left -= lines;
    in_line -= columns;
  }
  // Zeros past the ends.
  MR_DEVICE void copy(Shared<Chunk> stage) const {
    if (aligned) {
      const int left = in_line > 0 ? lines_left : 0;
      MR_UNROLL for (int i = 0; i < kTimes; ++i) {
        copy_async(stage + chunk_place<kChunks>(Mine::line() + i * kRound, Mine::chunk()),
                   from + i * step, i * kRound < left);
      }
    } else {
      MR_ROLLED for (int i = 0; i < kTimes; ++i) {
        const int64_t at = line + i * kRound;
        store(stage + chunk_place<kChunks>(Mine::line() + i * kRound, Mine::chunk()),
              at < m.end ? gathered_chunk(m.data + at * m.width, column, m.width) : Chunk{});
      }
    }
  }
};

// kExtent: rows, or columns, of the block. kDepth: terms of a stage.
template <int kExtent, int kDepth, int kThreads>
struct LinesOperand {
  static constexpr int kChunks = kDepth / kChunk, kStage = kExtent * kChunks;
  LineCopies<kExtent, kChunks, kThreads> copies;

  // The rows from lines.first.
  MR_DEVICE explicit LinesOperand(const MatrixLines& lines) : copies(lines, 0) {}
  MR_DEVICE void copy_next(Shared<Chunk> stage) {
    copies.copy(stage);
    copies.move(0, kDepth);
  }
  // The tile of rows from `begin`, terms from `term` of the stage.
  MR_DEVICE static LeftTile left(Shared<Chunk> stage, int begin, int term) {
    return left_of_lines(tile_chunks<kChunks>(stage, begin, term));
  }
  MR_DEVICE static RightTile right(Shared<Chunk> stage, int begin, int term) {
    return right_of_lines(tile_chunks<kChunks>(stage, begin, term));
  }
};

template <int kExtent, int kDepth, int kThreads>
struct ColumnsOperand {
  static constexpr int kChunks = kExtent / kChunk, kStage = kDepth * kChunks;
  LineCopies<kDepth, kChunks, kThreads> copies;

  // The terms from lines.first, the block's columns from `column`.
  MR_DEVICE ColumnsOperand(const MatrixLines& lines, int64_t column) : copies(lines, column) {}
  MR_DEVICE void copy_next(Shared<Chunk> stage) {
    copies.copy(stage);
    copies.move(kDepth, 0);
  }
  MR_DEVICE static LeftTile left(Shared<Chunk> stage, int begin, int term) {
    return left_of_columns(tile_chunks<kChunks>(stage, term, begin));
  }
  MR_DEVICE static RightTile right(Shared<Chunk> stage, int begin, int term) {
    return right_of_columns(tile_chunks<kChunks>(stage, term, begin));
  }
};

}  // namespace MR_GPU_SPACE
}  // namespace moraine::gpu
