// BenchStorage: what a checkpoint costs: a save from all ranks against gathering to one rank that
// writes, restoring with and without the page cache, and how long training stands still.
//
// Ranks are threads of this process with one communicator. The state is 32 f32 tensors of equal
// size; 24 belong whole to one rank each (as Muon's do), 8 are cut by rows over all ranks. In every
// round, in rotating order, the same bytes are
//
//   distributed  written by write_checkpoint_distributed, with the hash
//   gathered     sent to rank 0, which writes them with write_checkpoint
//   raw          written by all ranks at once with large writes and one sync each: the disk's limit
//   restored     each rank opens the checkpoint and reads its part, every byte checked: from the page
//                cache, and after the files were dropped from it; raw: read() of the dropped files
//   copied       each rank's part, memory to memory: training stands still for this, and for no more
// and medians, and the median of gathered over distributed in one round, are printed. The disk's
// limit is the fastest raw round of the run, the copy's the copy bandwidth of all cores in the same run.
//
// Output: a table on stdout, or with `json` one object per line:
//         {"bench":"storage","name":...,"ranks":...,"mib":...,"median":...,"p10":...,"p90":...,
//          "unit":"s"|"ratio"|"GB/s","rounds":...}
#pragma once

#include <cstdint>
#include <string>
#include <vector>

namespace moraine {

struct BenchStorageOptions {
  std::vector<int64_t> ranks;
  int64_t mib;      // of state, all ranks together
  int64_t rounds;   // >= 1
  std::string out;  // a folder on the disk that is measured; a folder in it is made and removed
  bool json;
};

void bench_storage(const BenchStorageOptions& options);

}  // namespace moraine
