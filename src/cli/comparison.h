// Comparison of two loaded models on text: with progress, and as lines or JSON.
#pragma once

#include <cstdint>
#include <span>
#include <string>
#include <vector>

#include "base/json.h"
#include "eval/compare.h"
#include "model/loaded_model.h"

namespace moraine {

// Of all windows (text_windows.h). Errors: those of ModelComparison.
Comparison compare_models(LoadedModel& reference, LoadedModel& other,
                          std::span<const std::vector<int32_t>> windows);

// "tokens=... loss_reference=... loss=... kl=... top1_agreement=... route_flips=..." and a line with the layers'.
std::string comparison_text(const Comparison& comparison);
Json comparison_json(const Comparison& comparison);
// Of one whose KL divergence is NaN: whose predictions are not numbers.
std::string not_numbers(const Comparison& comparison);

}  // namespace moraine
