// TestModel: the golden model that tests of this folder score text with.
#pragma once

#include <memory>
#include <string>
#include <vector>

#include "base/random.h"
#include "model/loaded_model.h"
#include "testing/places.h"

namespace moraine::testing {

// `tokens` at once, in windows of `positions`.
inline std::unique_ptr<LoadedModel> load_tiny(const std::string& dtype, int64_t tokens,
                                              int64_t positions, int64_t threads = 2,
                                              const ModelRanks& ranks = {}) {
  LoadOptions options;
  options.dtype = dtype;
  options.threads = threads;
  options.tokens = tokens;
  options.positions = positions;
  options.ranks = ranks;
  return LoadedModel::open(
      ModelDirectory::open(posix_file_system(), source_path("tests/golden/native-tiny")), options);
}

// Random tokens of it.
inline std::vector<int32_t> make_ids(int64_t n) {
  std::vector<int32_t> ids;
  for (int64_t i = 0; i < n; ++i)
    ids.push_back(
        static_cast<int32_t>(random_below(320, 1, Stream::kTest, 0, static_cast<uint64_t>(i))));
  return ids;
}

}  // namespace moraine::testing
