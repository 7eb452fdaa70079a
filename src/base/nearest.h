// Nearest: the known name closest to a mistyped one, for error messages.
#pragma once

#include <span>
#include <string>
#include <string_view>

namespace moraine {

// The candidate with the smallest edit distance; empty if `candidates` is empty. Ties: the first.
std::string nearest_name(std::string_view name, std::span<const std::string> candidates);

// How to write the end of an error message.
struct Suggestion {
  std::string_view quote = "";  // around the name
  std::string_view then = "";   // the remedy behind it, or in its place
};

// "; did you mean NAME? THEN": the nearest of those that begin as it was typed, else the nearest of those that share
// more than half of their letters with it. If there is none, "; THEN", and "" if that is empty.
std::string did_you_mean(std::string_view name, std::span<const std::string> candidates,
                         const Suggestion& form = {});

}  // namespace moraine
