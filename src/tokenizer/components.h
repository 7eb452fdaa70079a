// Components: the normalizer, pre-tokenizer, decoder and post-processor of a tokenizer.json.
//
// Errors: kInvalidArgument for a component that is not supported, by its name and with the list of
//         those that are; kCorrupt for one whose members are missing or of the wrong type.
#pragma once

#include <cstdint>
#include <functional>
#include <string_view>
#include <vector>

#include "base/json_document.h"
#include "tokenizer/decoder.h"
#include "tokenizer/normalizer.h"
#include "tokenizer/pre_tokenizer.h"

namespace moraine {

void read_normalizer(const JsonValue& view, Normalizer* normalizer);
void read_pre_tokenizer(const JsonValue& view, PreTokenizer* pre_tokenizer);
void read_decoder(const JsonValue& view, Decoder* decoder);

// The ids put before and after one text.
void read_post_processor(const JsonValue& view, std::vector<int32_t>* before,
                         std::vector<int32_t>* after);

}  // namespace moraine
