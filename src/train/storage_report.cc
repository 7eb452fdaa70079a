// One short measurement, on the first shard of the phase's data.
#include "train/storage_report.h"

#include "base/error.h"
#include "base/log.h"
#include "data/storage_model.h"
#include "data/storage_probe.h"

namespace moraine {

void print_storage(const Run& run, const StepPlan& plan, double step_seconds) {
  const Dataset& data = run.data->loader(plan.phase).dataset(0);
  const std::string shard = join_path(data.folder(), data.manifest().shards.front().file);
  constexpr double kProbeSeconds = 0.2;
  try {
    const StorageProbe probe = measure_storage_iops(
        run.fs, shard, {.threads = 8, .seconds = kProbeSeconds, .page_bytes = 4096, .seed = 1});
    const StoragePattern pattern{
        .sequences_per_step = static_cast<double>(plan.num_sequences),
        .tokens_per_sequence = static_cast<double>(plan.sequence),
        .bytes_per_token = static_cast<double>(data.manifest().meaning.token_bytes()),
        .page_bytes = 4096,
        .step_seconds = step_seconds,
        .extra_pages_per_sequence = 1,
        .iops_max = probe.iops};
    say("storage: {}\n{}\n", storage_probe_text(probe),
        storage_need_text(pattern, storage_need(pattern)));
  } catch (const Error& e) {
    log_event(Level::kWarning, "storage.not_measured", "reason=\"{}\"", e.what());
  }
}

}  // namespace moraine
