// ChunkLines: lines of chunks in shared memory, and rows of bf16 that are copied there.
//
// Chunks of a line change places by its number, so that one chunk of eight lines that follow each other lies in all
// banks: what a matrix unit's load reads at once.
#pragma once

#include <cstdint>

#include "kernels/gpu/tile.h"

namespace moraine::gpu {
inline namespace MR_GPU_SPACE {

// Where a chunk of a line lies among lines of kChunks.
template <unsigned kChunks>
MR_DEVICE constexpr int chunk_place(unsigned line, unsigned chunk) {
  constexpr unsigned kTurns = kChunks < 8 ? kChunks : 8;
  return static_cast<int>(line * kChunks + (chunk ^ (line / (8 / kTurns) % kTurns)));
}

// at(line, half) of tile.h for the tile whose lines begin at `line`, and whose chunks begin at that of `column`, a
// multiple of 16.
template <unsigned kChunks>
MR_DEVICE auto tile_chunks(Shared<Chunk> lines, int line, int column) {
  return [=](unsigned behind, unsigned half) {
    // chunk_place(.., column / kChunk + half): an exclusive or is one whatever the order.
    const int first = chunk_place<kChunks>(static_cast<unsigned>(line) + behind, half);
    return lines + (first ^ column / kChunk);
  };
}

// Columns from `column` of a row that has so many, by elements; zeros behind them.
MR_DEVICE Chunk gathered_chunk(const BF16* row, int64_t column, int64_t width) {
  Chunk c = {};
  for (int e = 0; e < kChunk; ++e) {
    if (column + e < width) c.v[e] = load(row + (column + e));
  }
  return c;
}

// Which of its block's threads a thread is, where kChunks of them copy a line.
template <unsigned kChunks>
struct ChunkOfThread {
  MR_DEVICE static int line() {
    return static_cast<int>(static_cast<unsigned>(thread()) / kChunks);
  }
  MR_DEVICE static int chunk() {
    return static_cast<int>(static_cast<unsigned>(thread()) % kChunks);
  }
};

// kLines lines: row_of(line) of `width` elements, zeros behind them, or zeros for null. They are on their way then;
// commit_copies() is the caller's.
template <int kLines, int kChunks, int kThreads, class RowOf>
MR_DEVICE void copy_rows(Shared<Chunk> to, int64_t width, bool aligned, const RowOf& row_of) {
  constexpr int kRound = kThreads / kChunks;
  static_assert(kThreads % kChunks == 0 && kLines % kRound == 0);
  using Mine = ChunkOfThread<kChunks>;
  const int column = Mine::chunk() * kChunk;
  if (aligned) {
    MR_ROLLED for (int i = 0; i < kLines; i += kRound) {
      const BF16* const row = row_of(Mine::line() + i);
      copy_async(to + chunk_place<kChunks>(Mine::line() + i, Mine::chunk()),
                 row == nullptr ? row : row + column, row != nullptr && column < width);
    }
  } else {
    MR_ROLLED for (int i = 0; i < kLines; i += kRound) {
      const BF16* const row = row_of(Mine::line() + i);
      store(to + chunk_place<kChunks>(Mine::line() + i, Mine::chunk()),
            row == nullptr ? Chunk{} : gathered_chunk(row, column, width));
    }
  }
}

}  // namespace MR_GPU_SPACE
}  // namespace moraine::gpu
