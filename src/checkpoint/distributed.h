// Distributed checkpoints: every rank writes its own rows of one, and all agree to commit it.
//
//   plan     rank 0 hears what each rank is about to write: one step, one config, every row once;
//            it clears what crashes left and makes step-<n>.partial
//   write    each rank: its rows of the tensors, to step-<n>.partial/data-<rank>-*.safetensors,
//            synced; rank 0 hears of all files, parts and checksums, looks whether it sees those
//            files, and writes the manifest
//   hash     if it is asked for: each rank reads its share of the tensors that several ranks wrote
//   commit   rank 0: rename, sync; then the outcome to all
// If any rank fails before the commit, nothing is committed, every rank gets the Error that names
// the rank and the file, and the checkpoints that were there are untouched. Only rank 0 renames, so
// a directory without the suffix holds one step of every rank, whoever dies when.
//
// The parts of all ranks tile every tensor exactly once; a tensor that several ranks hold alike is
// passed by one of them. A rank may pass several pieces of one tensor, or none; empty pieces are
// left out. write_checkpoint is this with one rank alone.
//
// Errors: those of write_checkpoint, kInvalidArgument for rows given twice or not at all, kPeerLost
//         for a rank that is gone or that saves another step or config (named).
// Wait:   ranks wait for the slowest one's writing: the deadline of `comm` must allow for the disk.
// Memory: none beyond the caller's copy: each rank holds what it passes until the save is over.
#pragma once

#include <optional>
#include <span>
#include <string>
#include <vector>

#include "checkpoint/checkpoint.h"
#include "checkpoint/history.h"
#include "checkpoint/save_thread.h"
#include "checkpoint/tensor_rows.h"
#include "comm/communicator.h"

namespace moraine {

struct DistributedContent {
  const CheckpointInfo& info;                  // the same on every rank
  std::span<const TensorRows> tensors;         // this rank's rows
  std::span<const CheckpointFile> files = {};  // the same on every rank
  // Before the commit: tensors that one rank wrote whole are hashed on the way, those in several
  // parts are read again, each by one rank. Else the hash is zero.
  bool with_hash = true;
  CheckpointOptions options = {};
};
// Collective.
CheckpointWritten write_checkpoint_distributed(Communicator& comm, FileSystem& fs,
                                               const std::string& root,
                                               const DistributedContent& content);

// Checkpoint::hash() with the reading divided among the ranks. Collective.
Hash128 checkpoint_hash_distributed(Communicator& comm, const Checkpoint& checkpoint);

struct SaverOptions {
  Retention retention;  // applied after each save that went well
  CheckpointOptions checkpoint;
};

// Saving in the background while training goes on: one thread of each rank (save_thread.h has its
// states, errors and threads). All ranks start() at the same step. The memory of `tensors` belongs
// to the save from then until poll() or wait() has given the result: a private copy, not the live
// weights. All ranks get the same result or the same Error, though not at the same moment: before
// the next start() each must have taken it. After a failed save (disk full) the checkpoints that
// were there are untouched, and the next start() tries again. `comm` is used by the saver's thread
// alone. Retention is applied by rank 0.
class DistributedSaver {
 public:
  // The destructor finishes a running save. With `with_hash` each result has its hash.
  DistributedSaver(Communicator comm, FileSystem& fs, const std::string& root,
                   const SaverOptions& options, bool with_hash = true);
  DistributedSaver(const DistributedSaver&) = delete;
  DistributedSaver& operator=(const DistributedSaver&) = delete;

  void start(CheckpointInfo info, std::vector<TensorRows> tensors,
             std::vector<CheckpointFile> files);
  bool busy() const { return thread_.busy(); }  // a save is running
  bool idle() const { return thread_.idle(); }  // start() may be called
  std::optional<SaveResult> poll() { return thread_.poll(); }
  std::optional<SaveResult> wait() { return thread_.wait(); }

 private:
  SaveResult save(const CheckpointInfo& info, std::span<const TensorRows> tensors,
                  std::span<const CheckpointFile> files);

  Communicator comm_;
  FileSystem& fs_;
  const std::string root_;
  const SaverOptions options_;
  const bool with_hash_;
  SaveThread thread_;  // last: it is joined before the rest goes
};

}  // namespace moraine
