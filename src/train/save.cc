// Save: checkpoints and copies in memory share one private copy of this rank's part.
#include "train/save.h"

#include "base/clock.h"
#include "base/error.h"
#include "base/fault_point.h"
#include "base/log.h"
#include "train/diverged.h"
#include "train/stored.h"

namespace moraine {

bool is_regular_save(const RunConfig& c, int64_t step) {
  return step > 0 && step % c.checkpoint.every_steps == 0;
}

bool saving(const Run& run) {
  return !run.saves.disk->idle() || (run.saves.memory != nullptr && !run.saves.memory->idle());
}

void save_in_background(Run& run) {
  const double begin = now_seconds();
  report_save(run, /*wait=*/true);
  check_before_store(run);
  run.saves.disk->start(run.info(), run.trainer->copy_saved_rows(), run.files());
  run.saves.stall_seconds = now_seconds() - begin;
  fault_point("save.started");
}

void copy_to_memory(Run& run) {
  const double begin = now_seconds();
  report_save(run, /*wait=*/true);
  check_before_store(run);
  run.saves.memory->start(run.info(), run.trainer->copy_saved_rows(), run.files());
  run.saves.stall_seconds = now_seconds() - begin;
  fault_point("memory.started");
}

CheckpointWritten write_live_state(Run& run) {
  check_before_store(run);
  return write_checkpoint_distributed(
      run.ranks.world, run.fs, run.options.out,
      {.info = run.info(), .tensors = run.trainer->readable_rows(), .files = run.files()});
}

CheckpointWritten save_now(Run& run) {
  report_save(run, /*wait=*/true);
  if (run.saves.saved_step ==
      run.state.step) {  // the background save wrote it, or the run was resumed from it
    const std::string directory = checkpoint_path(run.fs, run.options.out, run.state.step);
    const Checkpoint checkpoint = Checkpoint::open(run.fs, directory, /*verify=*/false);
    return {.directory = directory,
            .bytes = checkpoint.bytes(),
            .hash = checkpoint_hash_distributed(run.ranks.world, checkpoint)};
  }
  const CheckpointWritten written = write_live_state(run);
  run.saves.saved_step = run.state.step;
  if (!run.first()) return written;
  log_event(Level::kInfo, "checkpoint.saved", "step={} bytes={} hash={}", run.state.step,
            written.bytes, hash_hex(written.hash));
  if (is_regular_save(run.config, run.state.step))
    after_save([&] { mark_last_good(run.fs, run.options.out, run.state.step); });
  after_save([&] {
    apply_retention(run.fs, run.options.out,
                    {.keep = run.config.checkpoint.keep,
                     .permanent_every = run.config.checkpoint.permanent_every_steps},
                    run.state.step);
  });
  return written;
}

}  // namespace moraine
