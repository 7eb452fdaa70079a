// Console: what a person reads while a run goes on; rank 0's standard error.
#pragma once

#include "train/run.h"

namespace moraine {

std::string hardware_text(const Run& run);

// Config, machine, ranks, model, optimizer, memory, data, length.
void print_start(const Run& run);
void print_step(const StepMetrics& metrics);
void print_profile(const std::string& text);
// A profile was asked for of a run that is complete.
void print_no_profile();

void print_sample(int64_t step, const std::string& text);

}  // namespace moraine
