// TokensFlag: a prompt or text given as words or as token ids.
#pragma once

#include <string>
#include <vector>

#include "tokenizer/tokenizer.h"

namespace moraine {

// "1 2 3" to ids. Errors: kInvalidArgument with the word that is not an id, and `where` it stands.
std::vector<int32_t> parse_tokens(const std::string& text, const std::string& where = "--tokens");

// Ids of `tokens` if given, else of `text` through the tokenizer (which must not be null then), with what it puts
// around a text.
std::vector<int32_t> tokens_or_text(const std::string& tokens, const std::string& text,
                                    bool has_tokens, const Tokenizer* tokenizer);

// The model's tokenizer; null if it came without.
std::unique_ptr<Tokenizer> tokenizer_of(const std::string& json);

}  // namespace moraine
