// QuantizeReport: what a quantised model lost, and whether that is too much.
#pragma once

#include <cstdint>
#include <string>
#include <utility>
#include <vector>

#include "base/file_system.h"
#include "cli/quantize_text.h"
#include "model/loaded_model.h"

namespace moraine {

struct QuantizeReport {
  std::string out, type;                                    // as the user calls them
  std::vector<std::pair<std::string, std::string>> others;  // of some matrices: {"down", "q4"}
  std::string made;  // where the model is, until it has been judged
  std::string from;  // what it was made of
  int64_t parameters;
  double most_kl;  // nats a token
  int64_t context, threads;
  bool json;
};

// Compares with the reference and prints the figures, with what they are worth.
// Errors: kInvalidArgument: a KL divergence above most_kl, or none; the model stays in `made`.
void report_quantised(const QuantizeReport& r, LoadedModel& reference, const TokenWindows& text);

int64_t folder_bytes(FileSystem& fs, const std::string& folder);

}  // namespace moraine
