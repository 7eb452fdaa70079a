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

#include <optional>
#include <span>
#include <string>
#include <vector>

#include "checkpoint/checkpoint.h"
#include "checkpoint/history.h"
#include "checkpoint/save_thread.h"

namespace moraine {

struct SaverOptions {
  Retention retention;  // applied after each save that went well
  CheckpointOptions checkpoint;
};

class CheckpointSaver {
 public:
  // The destructor finishes a running save.
  CheckpointSaver(FileSystem& fs, const std::string& root, const SaverOptions& options);
  CheckpointSaver(const CheckpointSaver&) = delete;
  CheckpointSaver& operator=(const CheckpointSaver&) = delete;

  void start(CheckpointInfo info, std::vector<CheckpointTensor> tensors,
             std::vector<CheckpointFile> files);
  bool busy() const { return thread_.busy(); }  // a save is running
  bool idle() const { return thread_.idle(); }  // start() may be called
  // The result if a save has finished since; does not wait.
  std::optional<SaveResult> poll() { return thread_.poll(); }
  // The result of the running save; nullopt if idle.
  std::optional<SaveResult> wait() { return thread_.wait(); }

 private:
  SaveResult save(const CheckpointInfo& info, std::span<const CheckpointTensor> tensors,
                  std::span<const CheckpointFile> files);

  FileSystem& fs_;
  const std::string root_;
  const SaverOptions options_;
  SaveThread thread_;
};

}  // namespace moraine
