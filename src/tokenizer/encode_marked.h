// EncodeMarked: tokens of a text of which some bytes are to be learnt, and some are a stranger's.
//
// The text is encoded as a whole, special tokens in it taken as such; a token is a target if its bytes lie in a range
// of `targets`. In a range of `ordinary` special tokens are text; the text is cut at its borders.
// Where a token would lie across the border of a target (" I" of "Assistant: It"), or tokens do not decode to the very
// bytes of the text (a normalizer changed it), the text is cut at the borders of targets too: whoever generates encodes
// what stands before an answer by itself, and the answer's first token is learnt as it will be met.
//
// Errors:  those of Tokenizer::encode. Ranges are ascending, disjoint and inside of the text.
// Threads: any.
// Cost:    encoding and decoding once; encoding twice where the text is cut.
#pragma once

#include <cstdint>
#include <span>
#include <string_view>
#include <vector>

#include "tokenizer/tokenizer.h"

namespace moraine {

struct ByteRange {
  int64_t begin, end;
};

struct MarkedTokens {
  std::vector<int32_t> ids;
  std::vector<uint8_t> is_target;  // 1 or 0 for each
};

MarkedTokens encode_marked(const Tokenizer& tokenizer, std::string_view text,
                           std::span<const ByteRange> targets,
                           std::span<const ByteRange> ordinary = {});

}  // namespace moraine
