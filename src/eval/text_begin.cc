// TextBegin: asks the tokenizer for the ids of nothing.
#include "eval/text_begin.h"

#include "base/error.h"

namespace moraine {

BeginChoice parse_begin_choice(const std::string& text) {
  if (text == "auto") return BeginChoice::kAuto;
  if (text == "yes") return BeginChoice::kYes;
  if (text == "no") return BeginChoice::kNo;
  throw_error(Code::kInvalidArgument, "--bos {}: wanted auto, yes or no", text);
}

TextBegin find_text_begin(const ModelConfig& config, const Tokenizer* tokenizer,
                          BeginChoice choice) {
  const auto first_of = [&](int64_t in_config, int32_t in_tokenizer) {
    return in_config >= 0 ? static_cast<int32_t>(in_config) : in_tokenizer;
  };
  const int32_t bos = first_of(config.bos_id, tokenizer == nullptr ? -1 : tokenizer->bos_id());
  const int32_t eos = first_of(config.eos_id, tokenizer == nullptr ? -1 : tokenizer->eos_id());
  TextBegin begin{.id = bos >= 0 ? bos : eos, .put = choice == BeginChoice::kYes};
  if (choice == BeginChoice::kAuto && tokenizer != nullptr && bos >= 0) {
    const std::vector<int32_t> around_nothing = tokenizer->encode("", /*add_special_tokens=*/true);
    begin.put = !around_nothing.empty() && around_nothing.front() == bos;
  }
  if (begin.put && bos < 0) {
    throw_error(Code::kInvalidArgument,
                "--bos yes: neither the model's config (bos_id) nor its tokenizer has a token that "
                "begins a text");
  }
  return begin;
}

}  // namespace moraine
