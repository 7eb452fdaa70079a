// WriteRows: files are written in rounds; a round has each name once.
#include "checkpoint/write_rows.h"

#include <algorithm>
#include <numeric>
#include <set>

#include "base/error.h"
#include "checkpoint/safetensors/file.h"

namespace moraine {
namespace {

PlannedRows piece_of(const TensorRows& t) {
  const std::span<const int64_t> local(t.local.dims, static_cast<size_t>(t.local.rank));
  const bool fits =
      t.shape.size() == local.size() &&
      (local.empty() || std::equal(local.begin() + 1, local.end(), t.shape.begin() + 1));
  if (!fits) {
    throw_error(Code::kInvalidArgument, "'{}' {}: a piece of shape {} is none of its rows", t.name,
                shape_text(t.shape), shape_text(local));
  }
  const int64_t rows = local.empty() ? 1 : local[0];
  return {t.name, t.local.dtype, t.shape, t.row_begin, t.row_begin + rows};
}

}  // namespace

RowsToWrite rows_to_write(const CheckpointInfo& info, std::span<const CheckpointFile> files,
                          std::span<const TensorRows> tensors) {
  RowsToWrite own;
  own.plan.facts = shared_facts(info, files);
  for (const TensorRows& t : tensors) {
    PlannedRows piece = piece_of(t);
    const bool empty_tensor = !t.shape.empty() && t.shape[0] == 0;
    if (piece.row_begin == piece.row_end && !empty_tensor) continue;
    own.plan.pieces.push_back(std::move(piece));
    own.rows.push_back(t);
  }
  return own;
}

DataFilesWritten write_rows(FileSystem& fs, const std::string& folder, int64_t writer,
                            const RowsToWrite& own, const CheckpointOptions& options) {
  DataFilesWritten all;
  all.parts.resize(own.rows.size());
  all.hashes.resize(own.rows.size());
  std::vector<size_t> waiting(own.rows.size());
  std::iota(waiting.begin(), waiting.end(), size_t{0});
  while (!waiting.empty()) {
    std::set<std::string_view> names;
    std::vector<TensorRows> round;
    std::vector<size_t> taken, later;
    for (const size_t i : waiting) {
      const bool first = names.insert(own.rows[i].name).second;
      (first ? taken : later).push_back(i);
      if (first) round.push_back(own.rows[i]);
    }
    const int64_t index = static_cast<int64_t>(all.data.size());
    DataFilesWritten written =
        write_data_files(fs, folder, {.writer = writer, .index = index}, round, options);
    all.data.insert(all.data.end(), written.data.begin(), written.data.end());
    for (size_t i = 0; i < taken.size(); ++i) {
      for (ManifestPart& part : written.parts[i]) part.file += index;
      all.parts[taken[i]] = std::move(written.parts[i]);
      all.hashes[taken[i]] = written.hashes[i];
    }
    waiting = std::move(later);
  }
  return all;
}

}  // namespace moraine
