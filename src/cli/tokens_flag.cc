// Parsing of id lists.
#include "cli/tokens_flag.h"

#include <charconv>

#include "base/error.h"

namespace moraine {

std::vector<int32_t> parse_tokens(const std::string& text, const std::string& where) {
  std::vector<int32_t> ids;
  const char *at = text.data(), *end = text.data() + text.size();
  while (true) {
    while (at < end && (*at == ' ' || *at == ',' || *at == '\n' || *at == '\t')) ++at;
    if (at == end) return ids;
    int32_t id = 0;
    const std::from_chars_result result = std::from_chars(at, end, id);
    if (result.ec != std::errc() || id < 0) {
      throw_error(Code::kInvalidArgument,
                  "{}: \"{}\" is not a token id; wanted numbers from 0, separated by spaces", where,
                  std::string(at, std::min<size_t>(20, static_cast<size_t>(end - at))));
    }
    ids.push_back(id);
    at = result.ptr;
  }
}

std::vector<int32_t> tokens_or_text(const std::string& tokens, const std::string& text,
                                    bool has_tokens, const Tokenizer* tokenizer) {
  if (has_tokens) return parse_tokens(tokens);
  if (tokenizer == nullptr)
    throw_error(Code::kInvalidArgument,
                "the model has no tokenizer; give ids with --tokens \"1 2 3\"");
  return tokenizer->encode(text, /*add_special_tokens=*/true);
}

std::unique_ptr<Tokenizer> tokenizer_of(const std::string& json) {
  return json.empty() ? nullptr : Tokenizer::parse(json, "tokenizer.json");
}

}  // namespace moraine
