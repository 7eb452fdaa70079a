// QuantizeReport: figures, then doubts about them, then the verdict.
#include "cli/quantize_report.h"

#include <fmt/format.h>

#include <cmath>

#include "base/error.h"
#include "base/json.h"
#include "base/log.h"
#include "cli/comparison.h"
#include "cli/text_windows.h"
#include "eval/observed_pass.h"
#include "model/model_directory.h"

namespace moraine {
namespace {

constexpr int64_t kTellingTokens = 1000;  // a KL of fewer says little

void print_doubts(const TokenWindows& text, int64_t tokens) {
  if (text.shared)
    say("the text is one window: the model was calibrated on what it is judged by; give a longer "
        "one, or a smaller --context\n");
  if (tokens < kTellingTokens)
    say("{} tokens say little about a model; give a longer text, or more --report-tokens\n",
        tokens);
}

void check_lost(const QuantizeReport& r, const Comparison& result) {
  if (result.kl <= r.most_kl) return;
  if (std::isnan(result.kl))
    throw_error(Code::kInvalidArgument, "quantize: {}; what was made stays in {}; {}",
                not_numbers(result), r.made,
                std::isnan(result.loss_reference)
                    ? "take another checkpoint"
                    : "take another text to calibrate on, or --calibration-tokens 0");
  throw_error(Code::kInvalidArgument,
              "quantize: a KL divergence of {:.4f} nats a token is above {}; the model stays in "
              "{}: move it to {} if it will do, or remove it and take other types; --max-kl {:.2g} "
              "would have accepted it",
              result.kl, r.most_kl, r.made, r.out, 1.1 * result.kl);
}

}  // namespace

void report_quantised(const QuantizeReport& r, LoadedModel& reference, const TokenWindows& text) {
  FileSystem& fs = posix_file_system();
  LoadOptions load;
  load.threads = r.threads;
  load.tokens = whole_windows(kObservedRows, r.context);
  load.positions = r.context;
  const std::unique_ptr<LoadedModel> other =
      LoadedModel::open(ModelDirectory::open(fs, r.made), load);
  const Comparison result = compare_models(reference, *other, text.report);
  if (r.json) {
    Json line = comparison_json(result);
    line["model"] = result.kl <= r.most_kl ? r.out : r.made, line["type"] = r.type;
    for (const auto& [name, type] : r.others) line[name] = type;
    line["from"] = r.from, line["parameters"] = r.parameters;
    line["bytes"] = folder_bytes(fs, r.made);
    line["max_kl"] = r.most_kl, line["accepted"] = result.kl <= r.most_kl;
    line["text"] = text.what, line["calibrated_on_it"] = text.shared;
    fmt::print("{}\n", json_text(line));
  } else {
    fmt::print("against bf16, on {}: {}", text.what, comparison_text(result));
  }
  print_doubts(text, result.tokens);
  check_lost(r, result);
}

int64_t folder_bytes(FileSystem& fs, const std::string& folder) {
  int64_t bytes = 0;
  for (const std::string& name : fs.list(folder)) bytes += fs.file_bytes(join_path(folder, name));
  return bytes;
}

}  // namespace moraine
