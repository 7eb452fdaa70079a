// WriteRows: one rank's pieces, from what the trainer passes to data files on disk.
//
// Errors: kInvalidArgument for a piece that does not fit its tensor; those of write_data_files.
#pragma once

#include <span>
#include <string>
#include <vector>

#include "checkpoint/checkpoint.h"
#include "checkpoint/data_files.h"
#include "checkpoint/save_plan.h"
#include "checkpoint/tensor_rows.h"

namespace moraine {

// What a rank will write, and where it is in memory. Empty pieces are left out.
struct RowsToWrite {
  SavePlan plan;
  std::vector<TensorRows> rows;  // of plan.pieces
};

RowsToWrite rows_to_write(const CheckpointInfo& info, std::span<const CheckpointFile> files,
                          std::span<const TensorRows> tensors);

// Writes and syncs data-<writer>-*; the result is in the order of plan.pieces. No file gets two
// pieces of one tensor: the second ones follow in files of their own.
DataFilesWritten write_rows(FileSystem& fs, const std::string& folder, int64_t writer,
                            const RowsToWrite& own, const CheckpointOptions& options);

}  // namespace moraine
