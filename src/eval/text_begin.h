// TextBegin: the token that stands before a text, and whether this model expects it.
#pragma once

#include <cstdint>
#include <string>

#include "model/config.h"
#include "tokenizer/tokenizer.h"

namespace moraine {

enum class BeginChoice : uint8_t {
  kAuto,  // yes, if the tokenizer's own post-processor puts it in front of a text
  kYes,
  kNo,
};

struct TextBegin {
  int32_t id =
      -1;  // the token that begins a text, else the one that ends it; -1: the model has neither
  bool put = false;  // in front of every text
};

// "auto", "yes", "no". Errors: kInvalidArgument.
BeginChoice parse_begin_choice(const std::string& text);

// The ids are the config's; where it names none, the tokenizer's (null: it has none).
// Errors: kInvalidArgument: kYes, and there is no token that begins a text.
TextBegin find_text_begin(const ModelConfig& config, const Tokenizer* tokenizer,
                          BeginChoice choice);

}  // namespace moraine
