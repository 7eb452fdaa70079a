// Generate: an engine with one request.
#include "infer/generate.h"

#include <fmt/format.h>

#include "base/error.h"
#include "infer/engine.h"

namespace moraine {

GenerateResult generate(const GenerateWith& with, const Request& request,
                        const std::function<void(const std::string&)>& on_text) {
  Engine engine(with.ctx, with.model, with.cache, with.tokenizer, {.ranks = with.ranks});
  GenerateResult result;
  std::string failure;
  const auto show = [&](const std::string& text) {
    result.text += text;
    if (on_text && !text.empty()) on_text(text);
  };
  Listener listener;
  listener.on_token = [&](const TokenPiece& piece) {
    result.tokens.push_back(piece.score.chosen.token);
    result.logprobs.push_back(piece.score.chosen.logprob);
    show(piece.text);
    if (with.tokenizer == nullptr && on_text)
      on_text(fmt::format("{}{}", result.tokens.size() > 1 ? " " : "", result.tokens.back()));
  };
  listener.on_finish = [&](const Ended& ended) {
    show(ended.text);
    result.finish_reason = finish_name(ended.finish);
    failure = ended.error;
  };
  engine.submit(request, std::move(listener));
  while (engine.step()) continue;
  if (!failure.empty()) throw_error(Code::kInvalidArgument, "generate: {}", failure);
  return result;
}

}  // namespace moraine
