// Tokenizer parts: everything that a tokenizer.json says, ready to run.
#pragma once

#include <cstdint>
#include <memory>
#include <string>
#include <string_view>
#include <vector>

#include "tokenizer/added_tokens.h"
#include "tokenizer/bpe_model.h"
#include "tokenizer/decoder.h"
#include "tokenizer/normalizer.h"
#include "tokenizer/pre_tokenizer.h"
#include "tokenizer/token_table.h"

namespace moraine {

struct TokenizerParts {
  std::string json;
  AddedTokens added;
  TokenTable added_ids;
  Normalizer normalizer;
  PreTokenizer pre_tokenizer;
  BpeModel model;
  std::vector<int32_t> before, after;  // what the post-processor puts around a text
  Decoder decoder;

  std::vector<std::string> texts;    // by id; empty where there is no token
  std::vector<bool> known, special;  // by id
  int32_t bos_id = -1, eos_id = -1;
  int64_t token_text_most = 0;  // bytes of a text that one token stands for, at most; 0: no bound
  bool takes_space = false;     // but for white space, which some take along, however much it is
};

// Errors: as Tokenizer::parse.
std::unique_ptr<TokenizerParts> read_tokenizer_json(const std::string& json,
                                                    const std::string& name);

// The id that the text of tokenizer_config.json or special_tokens_map.json gives for "bos_token" or
// "eos_token". False if it says nothing about it.
bool read_special_token(const std::string& json, const std::string& name, std::string_view key,
                        const TokenizerParts& parts, int32_t* id);

}  // namespace moraine
