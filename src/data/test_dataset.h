// TestDataset: small datasets for the tests of this folder.
#pragma once

#include <cmath>
#include <functional>
#include <string>
#include <vector>

#include "base/error.h"
#include "base/file_system.h"
#include "base/random.h"
#include "data/dataset.h"

namespace moraine::testing {

// Plainly, without a sync: fuzz tests write a thousand times.
inline void write_file(FileSystem& files, const std::string& path, const std::string& content) {
  files.create(path)->append(content.data(), static_cast<int64_t>(content.size()));
}

struct TestDocuments {
  const std::vector<int64_t>& lengths;
  int64_t per_shard;
  std::function<int32_t(int64_t document, int64_t t)> token;
};
inline void write_dataset(FileSystem& files, const std::string& folder, const TokenMeaning& meaning,
                          const TestDocuments& documents) {
  const auto& [lengths, per_shard, token] = documents;
  files.make_directories(folder);
  DatasetManifest manifest;
  manifest.meaning = meaning;
  for (size_t d = 0; d < lengths.size();) {
    const std::string name = fmt::format("shard-{:05}.bin", manifest.shards.size());
    ShardWriter writer(files, join_path(folder, name), meaning);
    for (int64_t i = 0; i < per_shard && d < lengths.size(); ++i, ++d) {
      std::vector<int32_t> tokens;
      for (int64_t t = 0; t < lengths[d]; ++t) tokens.push_back(token(static_cast<int64_t>(d), t));
      writer.add_document(tokens, 3 * lengths[d] + 1);
    }
    manifest.shards.push_back({name, writer.finish()});
  }
  write_manifest(files, folder, manifest);
}

// Lengths spread over four octaves around `middle`, some 0 and 1.
inline std::vector<int64_t> mixed_lengths(uint64_t seed, int64_t documents, double middle) {
  std::vector<int64_t> lengths;
  for (int64_t d = 0; d < documents; ++d) {
    const uint64_t i = static_cast<uint64_t>(d);
    const double octave = 4 * random_uniform(seed, Stream::kTest, 90, i) - 2;
    const uint64_t kind = random_below(20, seed, Stream::kTest, 91, i);
    lengths.push_back(kind < 2 ? static_cast<int64_t>(kind)
                               : static_cast<int64_t>(middle * std::exp2(octave)));
  }
  return lengths;
}

}  // namespace moraine::testing
