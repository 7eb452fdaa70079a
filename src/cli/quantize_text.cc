// QuantizeText: windows of files, or some answers at a time.
#include "cli/quantize_text.h"

#include <algorithm>

#include "base/error.h"
#include "base/random.h"
#include "cli/progress.h"
#include "cli/text_windows.h"
#include "cli/tokens_flag.h"
#include "eval/text_begin.h"
#include "infer/engine.h"

namespace moraine {
namespace {

// Numbers [first, first + count) of the model's samples.
std::vector<std::vector<int32_t>> sample_windows(LoadedModel& model, const TextBegin& begin,
                                                 int64_t context, int64_t first, int64_t count) {
  const auto V = static_cast<uint64_t>(model.config().vocab_size);
  std::vector<std::vector<int32_t>> windows(static_cast<size_t>(count));
  Engine engine(model.ctx(), model.model(), model.cache(), nullptr, {.sequences = kSamplesAtOnce});
  ProgressLine progress("sample");
  int64_t done = 0;
  for (int64_t i = 0; i < count; ++i) {
    std::vector<int32_t>& ids = windows[static_cast<size_t>(i)];
    const auto number = static_cast<uint64_t>(first + i);
    const bool has_begin = begin.put && begin.id >= 0;
    ids.push_back(has_begin ? begin.id
                            : static_cast<int32_t>(random_below(V, 1, Stream::kSample, number, 0)));
    Request request;
    request.prompt = ids;
    request.max_tokens = context - 1;
    request.logprobs = false;
    request.sampling.seed = number;
    Listener listener;
    listener.on_token = [&](const TokenPiece& piece) {
      ids.push_back(piece.score.chosen.token);
      progress.update(++done, count * (context - 1), "tokens");
    };
    engine.submit(std::move(request), std::move(listener));
  }
  while (engine.step()) continue;
  return windows;
}

// Windows from the front that hold about so many tokens: one at least, and all but one at most, if there are two.
std::vector<std::vector<int32_t>> take_front(std::vector<std::vector<int32_t>>& windows,
                                             int64_t tokens) {
  std::vector<std::vector<int32_t>> front;
  size_t n = 0;
  for (int64_t taken = 0; n < std::max<size_t>(1, windows.size() - 1); ++n) {
    const int64_t here = static_cast<int64_t>(windows[n].size()) - 1;
    if (n > 0 && taken + here / 2 >= tokens) break;
    taken += here;
  }
  front.assign(windows.begin(), windows.begin() + static_cast<int64_t>(n));
  windows.erase(windows.begin(), windows.begin() + static_cast<int64_t>(n));
  return front;
}

// What of the text, which stands in `report`, is for calibration.
TokenWindows divide(TokenWindows windows, const TextWanted& wanted) {
  if (wanted.calibration_tokens == 0) return windows;
  const int64_t both = wanted.calibration_tokens + wanted.report_tokens,
                found = std::min(predicted_tokens(windows.report), both),
                share = wanted.calibration_tokens * found / both;
  std::vector<std::vector<int32_t>> rest = windows.report;
  windows.calibration = take_front(rest, share);
  if (!wanted.calibrates) windows.calibration.clear();
  windows.shared = rest.empty() && wanted.calibrates;
  if (!rest.empty()) windows.report = std::move(rest);
  return windows;
}

// Calibration takes whole windows, and leaves the report what it is to have.
int64_t tokens_wanted(const TextWanted& wanted) {
  if (wanted.calibration_tokens == 0) return wanted.report_tokens;
  const int64_t windows =
      std::max<int64_t>(1, (wanted.calibration_tokens + wanted.context / 2) / wanted.context);
  return std::max(windows * wanted.context + wanted.report_tokens, 2 * wanted.context);
}

TextBegin begin_of(const ModelDirectory& directory, const Tokenizer* tokenizer) {
  return find_text_begin(directory.config(), tokenizer, parse_begin_choice("auto"));
}

}  // namespace

TokenWindows read_quantize_text(const TextWanted& wanted, const ModelDirectory& directory) {
  const std::unique_ptr<Tokenizer> tokenizer = tokenizer_of(directory.tokenizer_json());
  if (tokenizer == nullptr)
    throw_error(Code::kInvalidArgument,
                "the model has no tokenizer; text cannot be read: leave --input out");
  if (tokenizer->vocabulary_size() > directory.config().vocab_size)
    throw_error(Code::kInvalidArgument,
                "the tokenizer of {} has {} tokens, its model {}; text cannot be read: leave "
                "--input out, or import the model with its own tokenizer",
                directory.path(), tokenizer->vocabulary_size(), directory.config().vocab_size);
  TextInputOptions input;
  input.json_field = wanted.json_field;
  TokenWindows windows;
  windows.what = wanted.inputs.front() + (wanted.inputs.size() > 1 ? " and more" : "");
  windows.report = read_windows(wanted.inputs, {.tokenizer = *tokenizer,
                                                .begin = begin_of(directory, tokenizer.get()),
                                                .context = wanted.context,
                                                .tokens_max = tokens_wanted(wanted),
                                                .input = input});
  return divide(std::move(windows), wanted);
}

TokenWindows sample_quantize_text(const TextWanted& wanted, const ModelDirectory& directory,
                                  LoadedModel& model) {
  const std::unique_ptr<Tokenizer> tokenizer = tokenizer_of(directory.tokenizer_json());
  const auto windows_of = [&](int64_t n) {
    return (n + wanted.context - 2) / (wanted.context - 1);
  };
  const int64_t first = windows_of(wanted.calibration_tokens);
  TokenWindows windows;
  windows.what = "samples of the model itself";
  const TextBegin begin = begin_of(directory, tokenizer.get());
  if (wanted.calibrates && first > 0)
    windows.calibration = sample_windows(model, begin, wanted.context, 0, first);
  windows.report =
      sample_windows(model, begin, wanted.context, first, windows_of(wanted.report_tokens));
  return windows;
}

}  // namespace moraine
