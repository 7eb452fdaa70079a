// SaveThread: one save at a time on a background thread.
//
//   idle --start--> busy --(saved or failed)--> done --poll or wait--> idle
//
// Errors:  poll() and wait() throw the Error of the save, once. start() while not idle is a bug.
// Threads: all calls from one thread.
#pragma once

#include <functional>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "checkpoint/checkpoint.h"

namespace moraine {

struct SaveResult {
  int64_t step = 0;
  CheckpointWritten written;
  double seconds = 0;            // of the background thread
  std::vector<int64_t> removed;  // steps, by retention
  std::string warning;  // not empty: saved, but old checkpoints could not be removed, and why
};

class SaveThread {
 public:
  SaveThread();
  ~SaveThread();  // finishes a running save
  SaveThread(const SaveThread&) = delete;
  SaveThread& operator=(const SaveThread&) = delete;

  // `save` is destroyed, with all that it holds, before its result can be taken. `name` for the
  // message if it fails otherwise than by an Error: "save checkpoint step-12".
  void start(const std::string& name, std::function<SaveResult()> save);
  bool busy() const;
  bool idle() const;
  std::optional<SaveResult> poll();  // the result if a save has finished since; does not wait
  std::optional<SaveResult> wait();  // the result of the running save; nullopt if idle

 private:
  struct Shared;
  std::unique_ptr<Shared> shared_;
};

}  // namespace moraine
