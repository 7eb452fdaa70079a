// AttentionTasks: how attention is cut among threads, which changes no bit.
#pragma once

#include "kernels/cpu/attention_blocks.h"

namespace moraine::attention {

// What a task of the forward computes: rows that begin in [row_begin, row_end), query heads
// [head_begin, head_end), whose key heads are [key_begin, key_end): if several, all heads of each.
struct ForwardTask {
  int64_t row_begin, row_end;
  int64_t key_begin, key_end, head_begin, head_end;
  std::span<const int64_t> keys;  // of parts, by segment; empty: whole documents, o as q
};

// Panels, of sixteen rows of heads, that a key head has at most where a document has few rows in the batch: decoding.
constexpr int64_t kFewPanels = 2;

// A task has `rows` rows and 1 / splits of the heads; splits is 1, K or H.
struct ForwardPlan {
  int64_t rows, splits;
};

// As many rows as share packed keys, but several tasks for each thread; and of documents with few rows only so many
// that the heads of one, which lie side by side in memory, are read soon after each other: by one task, if there are
// enough.
inline ForwardPlan make_forward_plan(const AttentionForward& a, int64_t threads) {
  constexpr int64_t kMostRows = 256, kTasksPerThread = 4;
  constexpr double kNearBytes = 2 << 20;  // keys and values, all heads
  const int64_t T = a.q.dims[0], H = a.q.dims[1], K = a.k.dims[1],
                wanted = kTasksPerThread * threads;
  double rows_of_document = 0;  // of the one that a row is in, on the average
  int64_t most_rows = 0;
  for (const Segment& s : a.segments) {
    rows_of_document += static_cast<double>(s.rows * s.rows) / static_cast<double>(T);
    most_rows = std::max(most_rows, s.rows);
  }
  const bool together = most_rows * (H / K) <= kFewPanels * kGroup && T >= wanted;
  const double seen = static_cast<double>(visible_pairs(a.segments, a.window)) /
                      static_cast<double>(T),
               document = 2 * seen * static_cast<double>(K * a.k.dims[2] * dtype_bytes(a.k.dtype));
  int64_t rows = kMostRows;
  const auto far = [&] {
    const double documents = static_cast<double>(rows) / rows_of_document;
    return documents > 2 && documents * document > kNearBytes;
  };
  const auto tasks = [&] { return (T + rows - 1) / rows * (together ? 1 : K); };
  while (rows > 1 && (tasks() < wanted || far())) rows /= 2;
  return {rows, together ? 1 : tasks() < threads ? H : K};
}

// Rows, and keys, that meet at a time in the backward.
constexpr int64_t meeting_side(bool tiles) { return tiles ? 128 : 64; }

// Words that a worker of the backward packs (BackwardPacks takes the memory). `elements` of a word, `tiles`: of the
// kernels that will run.
struct BackwardSizes {
  BackwardSizes(int64_t d, int64_t elements, bool tiles)
      : pair(elements),
        side(meeting_side(tiles)),
        words(operand_words(d, pair, tiles)),
        width(round_up(d, kGroup)),
        columns_layout(right_layout(words, side, tiles)),
        rows_layout(right_layout(side / pair, width, tiles)),
        key_columns(right_words(columns_layout, words, side)),
        row_columns(words * side),
        by_rows(right_words(rows_layout, side / pair, width)),
        sums(side * width),
        scores((tiles ? 2 : 1) * kGroup * side) {}

  // k and v by columns, k by rows; dk, dv.
  int64_t keys() const { return 2 * key_columns + by_rows + 2 * sums; }
  // q and do by columns; dq; both by rows.
  int64_t rows(bool as_rows) const { return 2 * row_columns + sums + (as_rows ? 2 * by_rows : 0); }

  int64_t pair, side;
  int64_t words, width;  // of a row: as an operand, as sums
  RightLayout columns_layout, rows_layout;
  int64_t key_columns, row_columns, by_rows, sums;
  int64_t scores;  // of a unit of rows
};

// Words of a worker beside its packs of keys: rows with lse and delta, what a meeting computes.
inline int64_t meeting_words(const BackwardSizes& sizes) {
  const int64_t side = sizes.side;
  return sizes.rows(true) + 5 * side + 3 * side * side / sizes.pair + 2 * sizes.scores;
}
inline int64_t key_pack_words(const BackwardSizes& sizes) { return sizes.keys() + kGroup; }

// Of a document whose keys and gradients fit so many bytes.
inline int64_t most_rows(const BackwardSizes& sizes, int64_t worker_bytes) {
  const int64_t left = worker_bytes / int64_t{sizeof(Word)} - meeting_words(sizes);
  return std::max<int64_t>(0, left / key_pack_words(sizes) * sizes.side);
}
// The least bytes whose most_rows are `rows` or more.
inline int64_t bytes_for_rows(const BackwardSizes& sizes, int64_t rows) {
  const int64_t packs = (rows + sizes.side - 1) / sizes.side;
  return (meeting_words(sizes) + packs * key_pack_words(sizes)) * int64_t{sizeof(Word)};
}

// Which documents one task per key head takes whole in the backward, which changes no bit.
struct BackwardPlan {
  int64_t most_rows;   // that fit a worker's scratch
  int64_t most_pairs;  // a thread's share of the work
  int64_t window;

  bool whole(const Segment& s) const {
    return s.rows <= most_rows && visible_pairs({&s, 1}, window) <= most_pairs;
  }
};

inline BackwardPlan make_backward_plan(const AttentionBackward& a, const Context& ctx,
                                       const BackwardSizes& sizes) {
  return {.most_rows = most_rows(sizes, ctx.worker_bytes()),
          .most_pairs = visible_pairs(a.segments, a.window) * a.k.dims[1] / ctx.pool->threads(),
          .window = a.window};
}

// Either a document, or the rows (for dq) or keys (for dk, dv) of the others in [row_begin,
// row_end).
struct BackwardTask {
  const BackwardPlan* plan = nullptr;
  const Segment* whole = nullptr;
  int64_t key_head = 0;
  bool owns_keys = false;
  int64_t row_begin = 0, row_end = 0;  // of q, or of k if it owns keys
  std::span<const int64_t> keys = {};  // of parts, by segment; empty: whole documents
  std::span<Word> scratch = {};
};

}  // namespace moraine::attention
