// Save: checkpoints and copies in memory share one private copy of this rank's part.
#include "train/save.h"

#include <functional>

#include "base/clock.h"
#include "base/error.h"
#include "base/fault_point.h"
#include "base/log.h"
#include "train/diverged.h"

namespace moraine {

bool is_regular_save(const RunConfig& c, int64_t step) {
  return step > 0 && step % c.checkpoint.every_steps == 0;
}

namespace {

// What follows a checkpoint that is whole, on rank 0: none of it takes the checkpoint back.
void after_save(const std::function<void()>& act) {
  try {
    act();
  } catch (const Error& e) {
    log_event(Level::kWarning, "checkpoint.retention", "{}", e.what());
  }
}

void report_disk(Run& run, bool wait) {
  const std::optional<SaveResult> saved = wait ? run.saves.disk->wait() : run.saves.disk->poll();
  if (!saved) return;
  run.saves.saved_step = saved->step;
  if (!run.first()) return;
  log_event(Level::kInfo, "checkpoint.saved", "step={} bytes={} ms={:.0f} stall_ms={:.1f} hash={}",
            saved->step, saved->written.bytes, saved->seconds * 1e3, run.saves.stall_seconds * 1e3,
            hash_hex(saved->written.hash));
  if (!saved->warning.empty())
    log_event(Level::kWarning, "checkpoint.retention", "{}", saved->warning);
  fault_point("save.mark");
  after_save([&] { mark_last_good(run.fs, run.options.out, saved->step); });
}

void report_memory(Run& run, bool wait) {
  if (run.saves.memory == nullptr) return;
  const std::optional<SaveResult> saved =
      wait ? run.saves.memory->wait() : run.saves.memory->poll();
  if (!saved) return;
  const bool is_stored = !saved->written.directory.empty();
  if (is_stored) run.saves.memory_step = saved->step;
  if (!run.first()) return;
  if (is_stored) {
    log_event(Level::kInfo, "memory.saved", "step={} bytes={} ms={:.0f} stall_ms={:.1f}",
              saved->step, saved->written.bytes, saved->seconds * 1e3,
              run.saves.stall_seconds * 1e3);
  }
  report_refused(run, saved->warning);
}

}  // namespace

void remove_stored_after(Run& run, int64_t step, bool on_disk) {
  if (on_disk) remove_checkpoints_after(run.fs, run.options.out, step);
  if (run.saves.memory != nullptr) report_refused(run, run.saves.memory->remove_after(step));
}

void report_refused(const Run& run, const std::string& warning) {
  if (!run.first() || warning.empty()) return;
  log_event(Level::kWarning, "memory.refused", "{}", warning);
}

void report_save(Run& run, bool wait) {
  report_memory(run, wait);
  try {
    report_disk(run, wait);
  } catch (const Error& e) {
    if (e.code() == Code::kPeerLost) throw;
    if (!run.first()) return;
    log_event(Level::kError, "checkpoint.failed",
              "code={} reason=\"{}\" remedy=\"training goes on, the next save tries again\"",
              code_name(e.code()), e.what());
  }
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
