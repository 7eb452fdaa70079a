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

// Which documents one task per key head takes whole in the backward, which changes no bit.
struct BackwardPlan {
  int64_t most_rows;   // whose keys and gradients fit a worker's scratch
  int64_t most_pairs;  // a thread's share of the work
  int64_t window;

  bool whole(const Segment& s) const {
    return s.rows <= most_rows && visible_pairs({&s, 1}, window) <= most_pairs;
  }
};

// pair: elements per word of the kernels that will run (BackwardWorker::run_keys takes the memory).
inline BackwardPlan make_backward_plan(const AttentionBackward& a, int64_t threads, int64_t pair) {
  const int64_t width = round_up(a.q.dims[2], kGroup), scratch = kWorkerScratchBytes / 4,
                words = (width + pair - 1) / pair,
                packed =
                    words * kTile + std::max(words, kTile) * kStepPad,  // of one operand of a tile
      keys = 3 * packed + 2 * kTile * width + kGroup,                   // k, v, k by rows; dk, dv
      rows = 4 * packed + kTile * width + 5 * kTile,  // q, do in both orders; dq; lse, delta
      tile = 3 * kTile * kTile / pair + 2 * kGroup * kTile;
  return {.most_rows = std::max<int64_t>(0, (scratch - rows - tile) / keys * kTile),
          .most_pairs = visible_pairs(a.segments, a.window) * a.k.dims[1] / threads,
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
};

}  // namespace moraine::attention
