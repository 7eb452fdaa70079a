// RowBlocks: sums over the rows of a batch, the same bits for any number of threads.
//
// The rows are cut into blocks of kRowsPerBlock. One task sums one block into its own memory; then
// the blocks are added in order, column by column. Memory is the first half of the first worker's
// scratch (kSumsBytes); a batch with more blocks than fit runs in rounds, whose size depends on
// `width` alone.
#pragma once

#include <algorithm>
#include <cstring>

#include "base/check.h"
#include "kernels/limits.h"

namespace moraine::cpu {

constexpr int64_t kRowsPerBlock = 64;  // enough blocks for 32 threads at 2,048 rows
constexpr int64_t kSumColumns = 1024;  // of one task of the final sum: 4 KiB per block

inline int64_t block_count(int64_t rows) { return (rows + kRowsPerBlock - 1) / kRowsPerBlock; }

// The half of a worker's scratch that sum_row_blocks does not use.
inline float* spare_scratch(const Context& ctx, int worker) {
  return ctx.worker_scratch<float>(worker) + kSumsBytes / static_cast<int64_t>(sizeof(float));
}

// block(row_begin, row_end, sums, worker): adds its rows to `sums`, `width` floats that start as
// zero. finish(sums): adds the total of a round of blocks to the output; called on the caller's
// thread, in order.
template <class Block, class Finish>
void sum_row_blocks(const Context& ctx, int64_t rows, int64_t width, const Block& block,
                    const Finish& finish) {
  const int64_t stride = (width + 15) / 16 * 16;  // whole cache lines: tasks share none
  const int64_t stride_bytes = stride * static_cast<int64_t>(sizeof(float));
  const int64_t round = kSumsBytes / stride_bytes, blocks = block_count(rows);
  MR_CHECK(round > 0, "%ld sums do not fit the scratch", long(width));
  float* const sums = ctx.worker_scratch<float>(0);
  for (int64_t first = 0; first < blocks; first += round) {
    const int64_t count = std::min(round, blocks - first);
    ctx.pool->parallel_for(count, [&](int64_t task, int worker) {
      float* const mine = sums + task * stride;
      std::memset(mine, 0, static_cast<size_t>(stride_bytes));
      const int64_t begin = (first + task) * kRowsPerBlock;
      block(begin, std::min(rows, begin + kRowsPerBlock), mine, worker);
    });
    ctx.pool->parallel_for((width + kSumColumns - 1) / kSumColumns, [&](int64_t task, int) {
      const int64_t begin = task * kSumColumns, end = std::min(width, begin + kSumColumns);
      for (int64_t b = 1; b < count; ++b) {
        const float* const part = sums + b * stride;
        for (int64_t c = begin; c < end; ++c) sums[c] += part[c];
      }
    });
    finish(static_cast<const float*>(sums));
  }
}

// Asks for the first `values` of row t of m, [T, N], if it has one: parts of a row that are read in another order than
// they lie in are not foreseen by the machine.
inline void ask_for_row(const Tensor& m, int64_t t, int64_t values) {
  constexpr int64_t kLine = 64;
  if (t >= m.dims[0]) return;
  const int64_t size = dtype_bytes(m.dtype), end = values * size;
  const char* row = static_cast<const char*>(m.data) + t * m.dims[1] * size;
  for (int64_t at = 0; at < end; at += kLine) __builtin_prefetch(row + at);
}

// Rows of one task of an operation whose rows are independent: about 8,192 elements, 1 to 64 rows.
inline int64_t rows_per_task(int64_t row_elements) {
  return std::clamp<int64_t>(8192 / std::max<int64_t>(row_elements, 1), 1, 64);
}

// f(row_begin, row_end, worker) over [0, rows) in tasks of `rows_each`.
template <class F>
void for_row_tasks(const Context& ctx, int64_t rows, int64_t rows_each, const F& f) {
  ctx.pool->parallel_for((rows + rows_each - 1) / rows_each, [&](int64_t task, int worker) {
    const int64_t begin = task * rows_each;
    f(begin, std::min(rows, begin + rows_each), worker);
  });
}

}  // namespace moraine::cpu
