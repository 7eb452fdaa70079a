// TestGolden: the tokenizers of tests/golden, by the name of their style.
#pragma once

#include <memory>
#include <string>

#include "testing/places.h"
#include "tokenizer/tokenizer.h"

namespace moraine::testing {

inline std::string golden_path(const std::string& style) {
  return source_path("tests/golden/tokenizer/" + style + ".json");
}

inline std::unique_ptr<Tokenizer> load_golden(const std::string& style) {
  return Tokenizer::load(posix_file_system(), golden_path(style));
}

}  // namespace moraine::testing
