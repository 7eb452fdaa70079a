// History: the checkpoints of one run folder, from which one is chosen and old ones are dropped.
//
//   root/step-<n>/            complete
//   root/step-<n>.partial/    rubble of a save or a removal that was cut: ignored, removed by the next save
//   root/step-<n>.replaced/   the former step-<n> while a new one takes its place: counts as step-<n> as
//                             long as there is no step-<n>
//   root/last_good            one line: the step that the spike policy rolls back to, with a checksum
//
// Errors:  kIo; kNotFound if a step is named that does not exist; kCorrupt for a damaged last_good.
// Threads: one caller at a time per root.
#pragma once

#include <cstdint>
#include <functional>
#include <optional>
#include <string>
#include <vector>

#include "base/file_system.h"
#include "checkpoint/checkpoint.h"

namespace moraine {

// Complete checkpoints under `root`, ascending. None, or no root, is not an error.
std::vector<int64_t> list_checkpoints(FileSystem& fs, const std::string& root);

// The directory of a step, whether it exists or not.
std::string checkpoint_path(FileSystem& fs, const std::string& root, int64_t step);

// The newest checkpoint, of the steps that are `wanted` (empty: of all), that verifies; nullopt if there
// is none. Each worse one on the way is told to on_bad(directory, reason). A version that we do not know
// is an Error, not bad: falling back would lose the work of a newer program.
using OnBadCheckpoint =
    std::function<void(const std::string& directory, const std::string& reason)>;
using WantedStep = std::function<bool(int64_t step)>;
std::optional<Checkpoint> newest_good(FileSystem& fs, const std::string& root,
                                      const OnBadCheckpoint& on_bad, const WantedStep& wanted = {});

void mark_last_good(FileSystem& fs, const std::string& root, int64_t step);
std::optional<int64_t> last_good(FileSystem& fs, const std::string& root);  // nullopt: no mark

struct Retention {
  int64_t keep = 3;             // newest ones, >= 1
  int64_t permanent_every = 0;  // steps divisible by it stay for good; 0: none
};
// Removes what neither Retention, nor the last_good mark, nor `protect` keeps; returns the removed
// steps.
std::vector<int64_t> apply_retention(FileSystem& fs, const std::string& root,
                                     const Retention& retention,
                                     std::optional<int64_t> protect = std::nullopt);

// Removes one checkpoint: after a crash in the middle it is gone or whole. Ok if absent.
void remove_checkpoint(FileSystem& fs, const std::string& root, int64_t step);
// Removes all after `step`: a rollback gives up what it rolls back. Newest first.
void remove_checkpoints_after(FileSystem& fs, const std::string& root, int64_t step);

// Moves a finished step-<n>.partial into place, durably; used by write_checkpoint.
void commit_checkpoint(FileSystem& fs, const std::string& root, int64_t step);
// Removes what crashes left behind, restores an interrupted replacement.
void clear_rubble(FileSystem& fs, const std::string& root);
std::string partial_path(const std::string& root, int64_t step);

}  // namespace moraine
