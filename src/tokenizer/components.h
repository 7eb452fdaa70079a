// Components: the normalizer, pre-tokenizer, decoder and post-processor of a tokenizer.json.
//
// Errors: kInvalidArgument for a component that is not supported, by its name and with the list of
//         those that are; kCorrupt for one whose members are missing or of the wrong type.
#pragma once

#include <cstdint>
#include <functional>
#include <string_view>
#include <vector>

#include "tokenizer/decoder.h"
#include "tokenizer/json_view.h"
#include "tokenizer/normalizer.h"
#include "tokenizer/pre_tokenizer.h"

namespace moraine {

void read_normalizer(const JsonView& view, Normalizer* normalizer);
void read_pre_tokenizer(const JsonView& view, PreTokenizer* pre_tokenizer);
void read_decoder(const JsonView& view, Decoder* decoder);

// The ids put before and after one text.
void read_post_processor(const JsonView& view, std::vector<int32_t>* before,
                         std::vector<int32_t>* after);

}  // namespace moraine
