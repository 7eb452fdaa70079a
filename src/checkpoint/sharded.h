// Sharded checkpoints: every rank writes its own part of one checkpoint, and all agree to commit it.
//
//   write    each rank: its rows of the tensors, to step-<n>.partial/data-<rank>-*.safetensors, synced
//   gather   rank 0: every rank's part list and checksums
//   commit   rank 0: manifest, sync, rename; then the outcome to all
// If any rank fails before the commit, nothing is committed, every rank gets the Error that names
// the rank and the file, and the checkpoints that were there are untouched. Only rank 0 renames, so
// a directory without the suffix holds one step of every rank, whoever dies when.
//
// The parts of all ranks tile every tensor exactly once; a tensor that several ranks hold alike is
// passed by one of them.
#pragma once

#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "checkpoint/checkpoint.h"
#include "checkpoint/saver.h"
#include "comm/communicator.h"

namespace moraine {

// Rows [row_begin, row_begin + rows of `local`) of a tensor of global shape `shape`; a scalar has
// one row.
struct ShardTensor {
  std::string name;
  Tensor local;
  std::vector<int64_t> shape;
  int64_t row_begin = 0;
};

// Collective. `info` and `files` are the same on every rank. The hash is computed if `with_hash`
// (each rank re-reads its share of the tensors); else it is zero.
CheckpointWritten write_checkpoint_sharded(Communicator& comm, FileSystem& fs,
                                           const std::string& root, const CheckpointInfo& info,
                                           std::span<const ShardTensor> tensors,
                                           std::span<const CheckpointFile> files, bool with_hash,
                                           const CheckpointOptions& options = {});

// Checkpoint::hash() with the reading divided among the ranks. Collective.
Hash128 checkpoint_hash_sharded(Communicator& comm, const Checkpoint& checkpoint);

// CheckpointSaver, for all ranks together: start() at the same step on each; the memory of
// `tensors` belongs to the save until poll() or wait() has given the result. `comm` is used by the
// saver's thread alone. Retention is applied by rank 0.
class ShardedSaver {
 public:
  ShardedSaver(Communicator comm, FileSystem& fs, const std::string& root,
               const SaverOptions& options);
  ~ShardedSaver();  // finishes a running save
  ShardedSaver(const ShardedSaver&) = delete;
  ShardedSaver& operator=(const ShardedSaver&) = delete;

  void start(CheckpointInfo info, std::vector<ShardTensor> tensors,
             std::vector<CheckpointFile> files);
  bool idle() const;
  std::optional<SaveResult> poll();
  std::optional<SaveResult> wait();

 private:
  struct Shared;
  std::unique_ptr<Shared> shared_;
};

}  // namespace moraine
