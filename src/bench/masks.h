// BenchMasks: what the masks of structured answers cost for each token, alone and beside the steps of an engine.
//
// Masks alone: answers of four schemas are drawn from their masks, a token of rank r with weight 1 / (r + 10), as
// vocabularies are sorted by use. The first answer of a schema finds nothing in the cache that later ones share.
// In the engine: the model draws; masks are made on one thread while the step's layers are computed.
//
// Output: tables on stdout, or with `json` an object per line.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

namespace moraine {

struct BenchMasksOptions {
  std::string model_path;  // "": masks alone
  std::string tokenizer;   // tokenizer.json or its folder; "": the model's
  std::string dtype;       // "": as the weights are stored
  int64_t threads = 0;
  int64_t new_tokens = 128;
  std::vector<int64_t> concurrency = {1, 16};
  bool json = false;
};

void bench_masks(const BenchMasksOptions& options);

}  // namespace moraine
