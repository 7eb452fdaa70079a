// ConfigDifference: where two printed configs differ, for messages.
#pragma once

#include <string>
#include <utility>

namespace moraine {

// The first lines in which two texts differ; equal: empty.
std::pair<std::string, std::string> differing_lines(const std::string& a, const std::string& b);

// "the run has `x`, this config says `y`", or empty.
std::string first_difference(const std::string& run, const std::string& config);

}  // namespace moraine
