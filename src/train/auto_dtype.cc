// The config of the run that goes on, or two measured peaks.
#include "train/auto_dtype.h"

#include "base/error.h"
#include "base/log.h"
#include "checkpoint/history.h"
#include "comm/agree.h"

namespace moraine {
namespace {

Precision faster(const Machine& machine) {
  return bf16_is_faster(machine) ? Precision::kBF16 : Precision::kF32;
}

std::string reason_of(const Machine& m) {
  if (m.bf16_gflops > 0)
    return fmt::format("products: bf16 {:.1f}, f32 {:.1f} GFLOP/s", m.bf16_gflops, m.f32_gflops);
  return fmt::format(
      "products of both {:.1f} GFLOP/s; widening half the bytes is {} on {}", m.f32_gflops,
      bf16_is_faster(m) ? "cheaper than moving all" : "dearer than moving all", m.isa);
}

// kAuto: there is none, or it cannot be read.
Precision dtype_in(FileSystem& fs, const std::string& folder) {
  const std::string saved = join_path(folder, "config.toml");
  if (!fs.exists(saved)) return Precision::kAuto;
  try {
    return read_saved_config(fs.read(saved), saved).train.dtype;
  } catch (const Error&) {
    return Precision::kAuto;
  }
}

// kAuto: there is none. A run's own file is written anew when it goes on, and may be damaged or left behind; each
// checkpoint carries it too.
Precision dtype_of_the_run(const Run& run) {
  const std::string& resume = run.options.resume;
  if (resume == "never") return Precision::kAuto;
  if (resume != "auto") return dtype_in(run.fs, resume);
  Precision found = dtype_in(run.fs, run.options.out);
  const std::vector<int64_t> steps = list_checkpoints(run.fs, run.options.out);
  for (auto step = steps.rbegin(); step != steps.rend() && found == Precision::kAuto; ++step)
    found = dtype_in(run.fs, checkpoint_path(run.fs, run.options.out, *step));
  return found;
}

}  // namespace

void settle_dtype(Run& run) {
  if (run.config.train.dtype != Precision::kAuto) return;
  Precision settled = Precision::kAuto;
  if (run.first()) {
    settled = dtype_of_the_run(run);
    const bool known = settled != Precision::kAuto;
    if (!known) settled = run.gpu != nullptr ? Precision::kBF16 : faster(run.machine);
    log_event(Level::kInfo, "run.dtype", "dtype={} reason=\"{}\"",
              settled == Precision::kBF16 ? "bf16" : "f32",
              known                ? "the run has it"
              : run.gpu != nullptr ? "a GPU's matrix units take it"
                                   : reason_of(run.machine));
  }
  run.config.train.dtype = value_of_first(run.ranks.disk, settled);  // measuring takes its time
}

void measure_dtype(RunConfig& config) {
  if (config.train.dtype != Precision::kAuto) return;
  if (config.train.device != "cpu") {
    config.train.dtype = Precision::kBF16;
    return;
  }
  Pool pool(usable_cores());
  config.train.dtype = faster(measure_machine_quick(pool));
}

}  // namespace moraine
