// By the history on disk and by MemoryCopy.
#include "train/stored.h"

#include "base/error.h"
#include "base/fault_point.h"
#include "base/log.h"

namespace moraine {
namespace {

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

void after_save(const std::function<void()>& act) {
  try {
    act();
  } catch (const Error& e) {
    log_event(Level::kWarning, "checkpoint.retention", "{}", e.what());
  }
}

void report_save(Run& run, bool wait) {
  report_memory(run, wait);
  try {
    report_disk(run, wait);
  } catch (const Error& e) {
    if (e.code() == Code::kPeerLost) throw;
    if (!run.first()) return;
    log_event(Level::kError, "checkpoint.failed",
              "code={} reason=\"{}\" remedy=\"free disk, if it is full; training goes on, the next "
              "save tries "
              "again\"",
              code_name(e.code()), e.what());
  }
}

void remove_stored_after(Run& run, int64_t step, bool on_disk) {
  if (on_disk) remove_checkpoints_after(run.fs, run.options.out, step);
  if (run.saves.memory != nullptr) report_refused(run, run.saves.memory->remove_after(step));
}

void report_refused(const Run& run, const std::string& warning) {
  if (!run.first() || warning.empty()) return;
  log_event(Level::kWarning, "memory.refused", "{}", warning);
}

}  // namespace moraine
