// StorageModel: the three formulas, and how they are printed.
#include "data/storage_model.h"

#include <cmath>

#include "base/error.h"

namespace moraine {
namespace {

void check_positive(double value, const char* name) {
  if (value > 0 && std::isfinite(value)) return;
  throw_error(Code::kInvalidArgument, "storage model: {} is {}, want a positive number", name,
              value);
}

}  // namespace

StorageNeed storage_need(const StoragePattern& pattern) {
  check_positive(pattern.sequences_per_step, "sequences per step");
  check_positive(pattern.tokens_per_sequence, "tokens per sequence");
  check_positive(pattern.bytes_per_token, "bytes per token");
  check_positive(pattern.page_bytes, "page size");
  check_positive(pattern.step_seconds, "step time");
  check_positive(pattern.iops_max, "page reads per second of the device");
  if (!(pattern.extra_pages_per_sequence >= 0) ||
      !std::isfinite(pattern.extra_pages_per_sequence)) {
    throw_error(Code::kInvalidArgument,
                "storage model: extra pages per sequence is {}, want 0 or more",
                pattern.extra_pages_per_sequence);
  }
  const double sequence_bytes = pattern.tokens_per_sequence * pattern.bytes_per_token;
  StorageNeed need;
  need.sigma = 1 + pattern.extra_pages_per_sequence / (sequence_bytes / pattern.page_bytes);
  need.bytes_per_step = pattern.sequences_per_step * sequence_bytes;
  need.pages_per_step = need.bytes_per_step / pattern.page_bytes;
  need.iops = need.sigma * need.pages_per_step / pattern.step_seconds;
  need.bytes_per_second = need.iops * pattern.page_bytes;
  need.break_step_seconds = need.sigma * need.pages_per_step / pattern.iops_max;
  need.share = need.iops / pattern.iops_max;
  return need;
}

std::string storage_need_text(const StoragePattern& pattern, const StorageNeed& need) {
  return fmt::format(
      "data per step     {:.2f} MiB in {:.0f} pages of {:.0f} bytes\n"
      "scatter           sigma = {:.3f} ({:.3g} extra pages per sequence)\n"
      "needed            {:.0f} page reads/s, {:.2f} MiB/s at {:.3g} s per step\n"
      "device            {:.0f} page reads/s: {:.1f} % used\n"
      "storage is {}: the limit begins below {:.3g} s per step\n",
      need.bytes_per_step / 1048576, need.pages_per_step, pattern.page_bytes, need.sigma,
      pattern.extra_pages_per_sequence, need.iops, need.bytes_per_second / 1048576,
      pattern.step_seconds, pattern.iops_max, 100 * need.share,
      need.share > 1 ? "THE LIMIT" : "not the limit", need.break_step_seconds);
}

}  // namespace moraine
