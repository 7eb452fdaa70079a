// QuantizeText: what a quantised model is calibrated and judged on: given text, or the model's own samples.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "model/loaded_model.h"

namespace moraine {

// Calibration takes the first windows of the text, the report those behind, which are the same ones whether anything is
// calibrated or not. A text that is too short for both is divided in about their ratio; one window serves for both.
struct TokenWindows {
  std::vector<std::vector<int32_t>> calibration, report;
  std::string what;     // "FILE", or "samples of the model itself"
  bool shared = false;  // calibrated on what is reported
};

struct TextWanted {
  std::vector<std::string> inputs = {};  // empty: samples
  std::string json_field = "text";
  int64_t context = 512;  // positions of a window
  int64_t calibration_tokens = 16384, report_tokens = 16384;
  bool calibrates = true;  // else what calibration would take is left out
};

// Files, read without computing. Errors: those of TextInput; kInvalidArgument without a tokenizer.
TokenWindows read_quantize_text(const TextWanted& wanted, const ModelDirectory& directory);

// Drawn at temperature 1, each from a token of its own that begins a text (random where the model has none), 32 at a
// time; `model` has a cache for 32 sequences of `context` positions.
TokenWindows sample_quantize_text(const TextWanted& wanted, const ModelDirectory& directory,
                                  LoadedModel& model);

constexpr int64_t kSamplesAtOnce = 32;

}  // namespace moraine
