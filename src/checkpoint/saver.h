// CheckpointSaver: writing a checkpoint on one background thread while training goes on.
//
//   idle --start--> busy --(written or failed)--> done --poll or wait--> idle
//
// The memory of `tensors` belongs to the save from start() until poll() or wait() has given the
// result: a private copy, not the live weights. After a failed save (disk full) the checkpoints
// that were there are untouched, and the next start() tries again.
//
// Errors:  poll() and wait() throw the Error of the save, once. start() while not idle is a bug.
// Threads: all calls from one thread.
#pragma once

#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "checkpoint/checkpoint.h"
#include "checkpoint/history.h"

namespace moraine {

struct SaverOptions {
  Retention retention;  // applied after each save that went well
  CheckpointOptions checkpoint;
};

struct SaveResult {
  int64_t step = 0;
  CheckpointWritten written;
  double seconds = 0;            // of the background thread
  std::vector<int64_t> removed;  // steps, by retention
  std::string warning;  // not empty: saved, but old checkpoints could not be removed, and why
};

class CheckpointSaver {
 public:
  CheckpointSaver(FileSystem& fs, const std::string& root, const SaverOptions& options);
  ~CheckpointSaver();  // finishes a running save
  CheckpointSaver(const CheckpointSaver&) = delete;
  CheckpointSaver& operator=(const CheckpointSaver&) = delete;

  void start(CheckpointInfo info, std::vector<CheckpointTensor> tensors,
             std::vector<CheckpointFile> files);
  bool busy() const;                 // a save is running
  bool idle() const;                 // start() may be called
  std::optional<SaveResult> poll();  // the result if a save has finished since; does not wait
  std::optional<SaveResult> wait();  // the result of the running save; nullopt if idle

 private:
  struct Shared;
  std::unique_ptr<Shared> shared_;
};

}  // namespace moraine
