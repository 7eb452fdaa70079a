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

StorageNeed storage_need(const StorageLoad& load) {
  check_positive(load.sequences_per_step, "sequences per step");
  check_positive(load.tokens_per_sequence, "tokens per sequence");
  check_positive(load.bytes_per_token, "bytes per token");
  check_positive(load.page_bytes, "page size");
  check_positive(load.step_seconds, "step time");
  check_positive(load.iops_max, "page reads per second of the device");
  if (!(load.extra_pages_per_sequence >= 0) || !std::isfinite(load.extra_pages_per_sequence)) {
    throw_error(Code::kInvalidArgument,
                "storage model: extra pages per sequence is {}, want 0 or more",
                load.extra_pages_per_sequence);
  }
  const double sequence_bytes = load.tokens_per_sequence * load.bytes_per_token;
  StorageNeed need;
  need.sigma = 1 + load.extra_pages_per_sequence / (sequence_bytes / load.page_bytes);
  need.bytes_per_step = load.sequences_per_step * sequence_bytes;
  need.pages_per_step = need.bytes_per_step / load.page_bytes;
  need.iops = need.sigma * need.pages_per_step / load.step_seconds;
  need.bytes_per_second = need.iops * load.page_bytes;
  need.break_step_seconds = need.sigma * need.pages_per_step / load.iops_max;
  need.share = need.iops / load.iops_max;
  return need;
}

std::string storage_need_text(const StorageLoad& load, const StorageNeed& need) {
  return fmt::format(
      "data per step     {:.2f} MiB in {:.0f} pages of {:.0f} bytes\n"
      "scatter           sigma = {:.3f} ({:.3g} extra pages per sequence)\n"
      "needed            {:.0f} page reads/s, {:.2f} MiB/s at {:.3g} s per step\n"
      "device            {:.0f} page reads/s: {:.1f} % used\n"
      "storage is {}: the limit begins below {:.3g} s per step\n",
      need.bytes_per_step / 1048576, need.pages_per_step, load.page_bytes, need.sigma,
      load.extra_pages_per_sequence, need.iops, need.bytes_per_second / 1048576, load.step_seconds,
      load.iops_max, 100 * need.share, need.share > 1 ? "THE LIMIT" : "not the limit",
      need.break_step_seconds);
}

}  // namespace moraine
