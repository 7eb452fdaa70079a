// TestRanks: a checkpoint's tensors dealt out to ranks, and ranks as threads that save them.
#pragma once

#include <functional>
#include <mutex>
#include <optional>
#include <string>
#include <vector>

#include "base/error.h"
#include "base/random.h"
#include "checkpoint/distributed.h"
#include "checkpoint/test_checkpoint.h"
#include "comm/all_ranks.h"
#include "comm/communicator.h"
#include "comm/thread_ranks.h"

namespace moraine::testing {

// Far beyond what a test takes: a test that waits for it has failed.
constexpr double kRankDeadline = 60;

// Rows of each tensor cut at random places, each piece given to a random rank.
using Dealt = std::vector<std::vector<TensorRows>>;
inline Dealt deal(const std::vector<CheckpointTensor>& tensors, int ranks, uint64_t seed) {
  Dealt dealt(static_cast<size_t>(ranks));
  uint64_t draw = 0;
  const auto below = [&](uint64_t n) { return random_below(n, seed, Stream::kTest, 77, draw++); };
  for (const CheckpointTensor& t : tensors) {
    const std::vector<int64_t> shape(t.tensor.dims, t.tensor.dims + t.tensor.rank);
    const int64_t rows = shape.empty() ? 1 : shape[0];
    int64_t row = 0;
    do {
      const int64_t left = rows - row;
      int64_t end = row + static_cast<int64_t>(below(static_cast<uint64_t>(left) + 1));
      if (below(3) == 0) end = rows;
      const Tensor piece = shape.empty() ? t.tensor : t.tensor.rows(row, end);
      if (shape.empty()) end = rows;
      dealt[below(static_cast<uint64_t>(ranks))].push_back({t.name, piece, shape, row});
      row = end;
    } while (row < rows);
  }
  return dealt;
}

// Runs body on each rank with a communicator of all. What each rank threw, if it threw.
using RankErrors = std::vector<std::optional<Error>>;
inline RankErrors run_ranks(int ranks, const std::function<void(Communicator&)>& body) {
  RankErrors errors(static_cast<size_t>(ranks));
  run_thread_ranks(ranks, [&](Transport& transport) {
    Communicator comm(transport, all_ranks(transport), 0, "save", kRankDeadline);
    try {
      body(comm);
    } catch (const Error& error) {
      errors[static_cast<size_t>(transport.rank())] = error;
    }
  });
  return errors;
}

struct DealtCheckpoint {
  const TestCheckpoint& checkpoint;
  const Dealt& dealt;
};
inline CheckpointWritten write_dealt(Communicator& comm, FileSystem& fs, const std::string& root,
                                     const DealtCheckpoint& content,
                                     const CheckpointOptions& options = {}) {
  return write_checkpoint_distributed(comm, fs, root,
                                      {.info = content.checkpoint.info,
                                       .tensors = content.dealt[static_cast<size_t>(comm.rank())],
                                       .files = content.checkpoint.files,
                                       .options = options});
}

}  // namespace moraine::testing
