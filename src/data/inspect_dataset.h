// InspectDataset: say what a dataset or a shard holds, or everything that is wrong with it.
//
// Errors: describe_dataset: those of opening it (dataset.h). verify_dataset: only kNotFound for a
//         folder without a manifest; damage is a finding, not an Error.
// Cost:   describe reads 16 bytes per document; verify reads and hashes every byte, shards in
//         parallel.
#pragma once

#include <string>
#include <vector>

#include "base/file_system.h"
#include "base/pool.h"
#include "data/dataset.h"

namespace moraine {

struct Inspection {
  std::string text;  // lines for people
  std::string json;  // one object, one line
};

// Counts, tokenizer, shards, and how long documents are.
Inspection describe_dataset(const Dataset& dataset);

struct Verification {
  std::vector<std::string> problems;  // each names file and place; empty: every byte is as written
  int64_t shards = 0, bytes = 0;      // that were read
  Inspection report() const;
};

Verification verify_dataset(FileSystem& files, Pool& pool, const std::string& folder);

// A shard by itself, whatever its name: what begins as one.
bool is_shard_file(FileSystem& files, const std::string& path);
Inspection describe_shard(const TokenShard& shard, const std::string& path);
Verification verify_shard(const TokenShard& shard);

}  // namespace moraine
