// TestNewest: the newest good checkpoint of a run, and what was passed over on the way to it.
#pragma once

#include <string>
#include <vector>

#include "checkpoint/history.h"
#include "checkpoint/test_checkpoint.h"

namespace moraine::testing {

constexpr CheckpointOptions kSmallFiles{.max_file_bytes = 100};  // so that there are several

struct Found {
  int64_t step = -1;  // -1: none
  Hash128 hash;
  std::vector<std::string> bad;  // "directory: reason"
};

inline Found find_newest(FileSystem& fs, const std::string& root) {
  Found found;
  const auto checkpoint =
      newest_good(fs, root, [&](const std::string& dir, const std::string& why) {
        found.bad.push_back(dir + ": " + why);
      });
  if (!checkpoint) return found;
  found.step = checkpoint->info().step;
  found.hash = checkpoint->hash();
  return found;
}

}  // namespace moraine::testing
