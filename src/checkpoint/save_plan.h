// SavePlan: who writes which rows, and whether all ranks together write one whole checkpoint.
//
// Pure functions over what the ranks say: no communication, no disk. A plan says what a rank is
// about to write; check_plans refuses what would be a mixture before a byte is written; after
// writing, assemble_manifest makes one manifest of all.
//
// Errors: kInvalidArgument for pieces that do not fit or do not tile their tensor (names the
//         tensor, the rows and the ranks); kPeerLost for a rank that saves something else (names
//         the rank and the difference) or whose message cannot be read.
#pragma once

#include <cstdint>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "base/hash.h"
#include "checkpoint/checkpoint.h"
#include "checkpoint/data_files.h"
#include "checkpoint/manifest.h"

namespace moraine {

// Rows [row_begin, row_end) of a tensor of global shape `shape`; a scalar has one row.
struct PlannedRows {
  std::string name;
  DType dtype = DType::kF32;
  std::vector<int64_t> shape;
  int64_t row_begin = 0;
  int64_t row_end = 0;
};

// What must be the same on every rank, with words for the message that says that it is not.
struct SharedFact {
  std::string what;   // "step", "config"
  std::string value;  // as shown: the number, or the hash of a text
};

struct SavePlan {
  std::vector<SharedFact> facts;
  std::vector<PlannedRows> pieces;
};

std::vector<SharedFact> shared_facts(const CheckpointInfo& info,
                                     std::span<const CheckpointFile> files);

// One entry per rank, in rank order. Pieces must tile the rows of every tensor exactly once.
void check_plans(std::span<const SavePlan> plans);

// The checkpoint of all ranks: `written[r]` are the files of plans[r].pieces, in that order. The
// parts of a file that one rank wrote name it by its position in that rank's list; here all lists
// stand one after the other. `files` stays empty. The plans have been checked.
Manifest assemble_manifest(const CheckpointInfo& info, std::span<const SavePlan> plans,
                           std::span<const DataFilesWritten> written);

// As messages.
std::string plan_text(const SavePlan& plan);
SavePlan parse_plan(std::string_view text);
std::string written_text(const DataFilesWritten& written);
DataFilesWritten parse_written(std::string_view text);

// Who takes which of `bytes.size()` things, so that all have about as much: owner of each.
std::vector<int> divide_by_bytes(std::span<const int64_t> bytes, int ranks);

}  // namespace moraine
