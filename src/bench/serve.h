// BenchServe: what the engine reaches on a model: prompts, answers alone and together, cached prompts, latency.
//
// All in one run, beside the limits that are measured before and after it. The share of the limit is the larger
// of two: arithmetic against the peak of the type, and bytes (each operand of each kernel once) against what
// memory gives; a small model whose weights stay in a cache passes 100 % of the second. Requests are random
// tokens; a request takes the place of each that ends.
//
// Output: tables on stdout, or with `json` an object per line; with latency targets a chart, if asked for.
// Errors: kInvalidArgument for a chart without targets, and for tokens that the model has no room for; those of
//         check_file_place and of the model.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

namespace moraine {

struct BenchServeOptions {
  std::string model_path;
  std::string dtype;          // "": as the weights are stored
  std::string head = "auto";  // as LoadOptions::head
  int64_t threads = 0;
  int64_t prompt_tokens = 256, new_tokens = 64;
  // Who asked for a number gets it or an error; else it is lowered to what the model has room for.
  bool prompt_tokens_asked = false, new_tokens_asked = false;
  std::vector<int64_t> concurrency = {1, 4, 16, 64};
  std::vector<int64_t> tpot_ms;  // latency targets to compare at the largest concurrency; 0: none
  std::string chart;             // HTML file of the targets' comparison; "": none
  bool json = false;
};

void bench_serve(const BenchServeOptions& options);

}  // namespace moraine
