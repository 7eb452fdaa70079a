// Packed documents over sequences for tests, and rows between a batch and its ranks.
#pragma once

#include <algorithm>
#include <cstring>
#include <vector>

#include "base/random.h"
#include "comm/all_ranks.h"
#include "comm/communicator.h"
#include "parallel/context_rows.h"
#include "tensor/tensor.h"

namespace moraine::testing {

struct Packed {
  ContextLayout layout;
  std::vector<int64_t> segment_begin;
};

// Random documents in `sequences` sequences: many short ones, every third as long as a sequence.
inline Packed random_packed(int64_t ranks, int64_t sequences, int64_t length, uint64_t seed) {
  Packed p = {{ranks, sequences, length}, {}};
  for (int64_t at = 0, i = 0; at < p.layout.rows(); ++i) {
    p.segment_begin.push_back(at);
    const uint64_t most = static_cast<uint64_t>(i % 3 == 0 ? length : 7);
    const int64_t n = 1 + static_cast<int64_t>(
                              random_below(most, seed, Stream::kTest, static_cast<uint64_t>(i), 0));
    at = std::min(at + n, (at / length + 1) * length);
  }
  return p;
}

// Segments of the whole batch on one rank.
inline std::vector<Segment> whole_segments(const Packed& p) {
  std::vector<Segment> segments;
  for (size_t i = 0; i < p.segment_begin.size(); ++i) {
    const int64_t begin = p.segment_begin[i];
    const int64_t end = i + 1 < p.segment_begin.size() ? p.segment_begin[i + 1] : p.layout.rows();
    segments.push_back({begin, end - begin, 0, begin});
  }
  return segments;
}

// Local rows out of the batch's, and back.
inline void take_rows(const ContextRows& mine, const Tensor& local, const Tensor& whole) {
  for (int64_t t = 0; t < mine.rows(); ++t) {
    const int64_t row = mine.row[static_cast<size_t>(t)];
    const Tensor from = whole.rows(row, row + 1);
    std::memcpy(local.rows(t, t + 1).data, from.data, static_cast<size_t>(from.bytes()));
  }
}
inline void put_rows(const ContextRows& mine, const Tensor& whole, const Tensor& local) {
  for (int64_t t = 0; t < mine.rows(); ++t) {
    const int64_t row = mine.row[static_cast<size_t>(t)];
    const Tensor to = whole.rows(row, row + 1);
    std::memcpy(to.data, local.rows(t, t + 1).data, static_cast<size_t>(to.bytes()));
  }
}

inline Communicator world_of(Transport& transport, int channel = 0) {
  return Communicator(transport, all_ranks(transport), channel, "context", 60);
}

}  // namespace moraine::testing
