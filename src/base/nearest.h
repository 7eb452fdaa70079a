// Nearest: the known name closest to a mistyped one, for error messages.
#pragma once

#include <span>
#include <string>
#include <string_view>

namespace moraine {

// The candidate with the smallest edit distance; empty if `candidates` is empty. Ties: the first.
std::string nearest_name(std::string_view name, std::span<const std::string> candidates);

}  // namespace moraine
