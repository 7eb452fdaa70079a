// BenchInference: the two things that a server computes, each by itself, beside what the machine could do.
//
// `bench prefill`: a prompt into an empty cache, `rows` rows at a step: time to the first token, tokens/s, share of the
// peak that products are held against. `bench decode`: n sequences of a given length, a token of each at a step:
// tokens/s, and the bytes that such a step cannot do without over its time, against what memory gives.
//
//   bytes    every pack that the step reads, once: attention, router, head, the two matrices of the experts that a row
//            was sent to (counted as they are chosen), and the cached keys and values. Of a head in two stages
//            (infer/head_pass.h) its copy, and of itself the panels that greedy draws want
//
// No engine: no scheduler, and no draw but what a head in two stages has to know of it (`bench serve` has those).
// Tokens are random. Peaks are measured before and after; of decode in eight rounds, and ratios are their medians.
//
// Output: a table, or with `json` an object per line; below each line of a table where its time went
//         (train/time_split.h).
#pragma once

#include <cstdint>
#include <functional>
#include <string>
#include <vector>

#include "infer/step_rows.h"
#include "model/head.h"

namespace moraine {

constexpr int64_t kMostSequences = kHeadRows;  // at a step: their logits are made together

struct BenchInferenceOptions {
  std::string model_path;
  std::string dtype;  // "": as the weights are stored
  int64_t threads = 0;
  std::vector<int64_t> prompts = {512, 2048, 8192};  // prefill: tokens
  int64_t rows = kStepRows;                          // prefill: of a step
  std::vector<int64_t> sequences = {1, 4, 16, 64};   // decode: at a step
  int64_t context = 512;                             // decode: positions that are there before
  int64_t steps = 32;                                // decode
  std::string head = "auto";                         // as LoadOptions::head
  bool json = false;
  // Optional. Of the line that is being measured: tokens of its prompt, or steps, that are done. It hears of none at
  // first, and of all before the line is printed.
  std::function<void(const std::string& line, int64_t done, int64_t total)> progress = {};
};

void bench_prefill(const BenchInferenceOptions& options);
void bench_decode(const BenchInferenceOptions& options);

}  // namespace moraine
