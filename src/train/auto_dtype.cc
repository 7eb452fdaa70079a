// The config of the run that goes on, or two measured peaks.
#include "train/auto_dtype.h"

#include "base/log.h"
#include "comm/agree.h"

namespace moraine {

void settle_dtype(Run& run) {
  if (run.config.train.dtype != "auto") return;
  std::string settled, reason;
  if (run.first()) {
    const std::string& resume = run.options.resume;
    const std::string saved = join_path(resume == "auto" ? run.options.out : resume, "config.toml");
    if (resume != "never" && run.fs.exists(saved)) {
      settled = read_run_config(SettingsTable::parse(run.fs.read(saved), saved)).train.dtype;
      reason = "the run has it";
    }
    if (settled.empty() || settled == "auto") {
      settled = faster_dtype(run.machine);
      reason = fmt::format("products: bf16 {:.1f}, f32 {:.1f} GFLOP/s", run.machine.bf16_gflops,
                           run.machine.f32_gflops);
    }
    log_event(Level::kInfo, "run.dtype", "dtype={} reason=\"{}\"", settled, reason);
  }
  run.config.train.dtype = text_of_first(run.ranks.disk, settled);  // a measurement takes its time
}

void measure_dtype(RunConfig& config) {
  if (config.train.dtype != "auto") return;
  Pool pool(usable_cores());
  config.train.dtype = faster_dtype(measure_machine_quick(pool));
}

}  // namespace moraine
