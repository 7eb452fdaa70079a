// MemoryCopy: a second copy of the run's state in the memory of its hosts, which outlives the
// processes: the loss of a process, or of one host, costs the steps since the last copy.
//
// A copy is a checkpoint in the format of the disk, in a tmpfs folder of each host
// (memory/folder.h), written by the same code:
//
//   write   each rank writes its rows to its own host's step-<n>.partial
//   pass on with several hosts: each rank sends its files to its partner, the rank of the same
//           place on the next host, which writes them there; so any one host may be lost
//   commit  when all ranks have said that all is there, the first rank of each host renames
//
// On one host that is one complete checkpoint, and the ranks' partner is the tmpfs itself. With
// several, a host holds its own files and those of the host before it, and all the manifest.
// newest() finds out who has what, takes the newest step of which every file is whole somewhere,
// and fetches what a host lacks.
//
// Memory: one copy, two while a new one is written (the old one goes when all hosts have committed
//         the new one); with several hosts twice that, and after newest() each host has all files.
//         Refused if less than the new copy and `reserve_bytes` is free on any host.
// Errors: only kPeerLost is thrown: anything else (no room, a limit of tmpfs, a folder of that name
//         that is another user's) is a `warning`, and training goes on. It is told once, until a
//         copy succeeds.
// Threads: all calls from one thread; `comm` is used by nothing else.
#pragma once

#include <functional>
#include <optional>
#include <string>
#include <vector>

#include "checkpoint/distributed.h"

namespace moraine {

struct MemoryCopyOptions {
  std::string base = "/dev/shm";
  int64_t reserve_bytes = int64_t{256} << 20;  // tmpfs also carries the ranks' messages
  CheckpointOptions checkpoint = {};
  // Of this host; empty: measured.
  std::function<int64_t(const std::string& base)> free_bytes = {};
};

class MemoryCopy {
 public:
  // `run_root`: the folder of the run's checkpoints on disk. `comm`: all ranks of the run. The
  // destructor finishes a running copy, and leaves it: remove() takes it away.
  MemoryCopy(Communicator comm, FileSystem& fs, const std::string& run_root,
             const MemoryCopyOptions& options);
  MemoryCopy(const MemoryCopy&) = delete;
  MemoryCopy& operator=(const MemoryCopy&) = delete;

  // As DistributedSaver: at the same step on all ranks, the memory is the copy's until the result.
  void start(CheckpointInfo info, std::vector<TensorRows> tensors,
             std::vector<CheckpointFile> files);
  // The same, on the caller's thread; while idle.
  SaveResult save_now(const CheckpointInfo& info, std::span<const TensorRows> tensors,
                      std::span<const CheckpointFile> files);
  bool idle() const { return thread_.idle(); }
  std::optional<SaveResult> poll() { return thread_.poll(); }
  std::optional<SaveResult> wait() { return thread_.wait(); }

  // Collective. The directory, on this host, of the newest copy of which every byte is whole;
  // nullopt if there is none. Whether it is newer than the disk's is the caller's to compare.
  // on_bad is called on the first rank of a host for what that host cannot use.
  std::optional<std::string> newest(const OnBadCheckpoint& on_bad);

  // Collective, while idle. All copies, or those after a step that the run goes back to. Returns a
  // warning, the same on all ranks, or "". What is not this user's alone stays as it is.
  std::string remove();
  std::string remove_after(int64_t step);

  const std::string& folder() const { return folder_; }

 private:
  std::string tidy(const std::function<void()>& act);

  Communicator comm_;
  FileSystem& fs_;
  const std::string run_root_;
  const MemoryCopyOptions options_;
  const std::string folder_;
  bool refused_ = false;  // the last copy: the warning was told
  SaveThread thread_;     // last: it is joined before the rest goes
};

}  // namespace moraine
