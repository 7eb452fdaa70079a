// Continuation: encodes twice, subtracts, and sums what the windows give.
#include "eval/continuation.h"

#include <algorithm>

#include "base/check.h"
#include "base/error.h"
#include "base/utf8.h"

namespace moraine {
namespace {

// What str.isspace of Python says, which the harness cuts by.
bool is_space(int32_t c) {
  return (c >= 0x09 && c <= 0x0D) || (c >= 0x1C && c <= 0x20) || c == 0x85 || c == 0xA0 ||
         c == 0x1680 || (c >= 0x2000 && c <= 0x200A) || c == 0x2028 || c == 0x2029 || c == 0x202F ||
         c == 0x205F || c == 0x3000;
}

// Bytes of a text without the white space at its end.
size_t bytes_before_space(std::string_view text) {
  int64_t end = static_cast<int64_t>(text.size());
  while (end > 0) {
    const int64_t begin = utf8_previous(text, end);
    if (!is_space(utf8_code_point(text, begin))) break;
    end = begin;
  }
  return static_cast<size_t>(end);
}

std::vector<int32_t> encode(const EncodeRule& rule, std::string_view text) {
  std::vector<int32_t> ids = rule.tokenizer->encode(text, /*add_special_tokens=*/false);
  if (rule.begin.put) ids.insert(ids.begin(), rule.begin.id);
  return ids;
}

}  // namespace

Continuation encode_continuation(const EncodeRule& rule, std::string_view context,
                                 std::string_view continuation, const std::string& where) {
  const size_t kept = bytes_before_space(context);
  const std::string whole = std::string(context) + std::string(continuation);
  Continuation result{.ids = encode(rule, whole), .context_tokens = 0, .tokens_cut = 0};
  result.context_tokens = static_cast<int64_t>(encode(rule, context.substr(0, kept)).size());
  if (result.context_tokens == 0) {
    if (rule.begin.id < 0) {
      throw_error(Code::kInvalidArgument,
                  "{}: the context is empty, and the model has no token that begins or ends a "
                  "text; give a context",
                  where);
    }
    // A text may begin with that token's own name.
    if (result.ids.empty() || result.ids.front() != rule.begin.id)
      result.ids.insert(result.ids.begin(), rule.begin.id);
    result.context_tokens = 1;
  }
  const int64_t n = static_cast<int64_t>(result.ids.size());
  if (n <= result.context_tokens) {
    throw_error(Code::kInvalidArgument,
                "{}: the choice \"{}\" adds no token to its context, they melt together; begin "
                "choices with a space or a new line, or give --delimiter \" \"",
                where, continuation);
  }
  if (n > rule.tokens_max) {
    result.tokens_cut = n - rule.tokens_max;
    if (result.tokens_cut >= result.context_tokens) {
      throw_error(Code::kInvalidArgument,
                  "{}: a choice has {} tokens, the model takes {} with its context; shorten it, or "
                  "give a larger --max-length if the model has more positions",
                  where, n - result.context_tokens, rule.tokens_max);
    }
    result.ids.erase(result.ids.begin(), result.ids.begin() + result.tokens_cut);
    result.context_tokens -= result.tokens_cut;
  }
  return result;
}

std::vector<double> score_continuations(
    const EvalModel& model, std::span<const Continuation> continuations,
    const std::function<void(int64_t done, int64_t total)>& progress) {
  const int64_t total = static_cast<int64_t>(continuations.size());
  std::vector<double> logprobs(continuations.size(), 0.0);
  WindowBatch batch(model);
  const auto run = [&](int64_t done) {
    batch.run([&](int64_t owner, double loss) { logprobs[static_cast<size_t>(owner)] += -loss; });
    if (progress) progress(done, total);
  };
  for (int64_t i = 0; i < total; ++i) {
    const Continuation& c = continuations[static_cast<size_t>(i)];
    MR_CHECK(c.context_tokens >= 1);
    if (!batch.fits(static_cast<int64_t>(c.ids.size()) - 1)) run(i);
    batch.add({.ids = c.ids, .scored = c.context_tokens, .owner = i});
  }
  run(total);
  return logprobs;
}

}  // namespace moraine
