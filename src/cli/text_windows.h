// TextWindows: text files as runs of tokens that a model reads at once.
#pragma once

#include <cstdint>
#include <span>
#include <string>
#include <vector>

#include "data/text_input.h"
#include "eval/text_begin.h"
#include "tokenizer/tokenizer.h"

namespace moraine {

struct WindowRule {
  const Tokenizer& tokenizer;
  TextBegin begin;         // in front of every document, if it says so
  int64_t context;         // rows of a window: it has one token more, which is only predicted
  int64_t tokens_max = 0;  // predicted in all, then reading stops; 0: no limit
  TextInputOptions input = {};
};

// Consecutive windows of each document, 2 to context + 1 tokens; the last token of one begins the next.
// Errors: those of TextInput; kInvalidArgument if there is no window in any of the files.
std::vector<std::vector<int32_t>> read_windows(std::span<const std::string> paths,
                                               const WindowRule& rule);

int64_t predicted_tokens(std::span<const std::vector<int32_t>> windows);

}  // namespace moraine
