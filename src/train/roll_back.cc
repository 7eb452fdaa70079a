// Skip, go back, or stop: spike.policy.
#include "train/roll_back.h"

#include <optional>
#include <string>
#include <utility>

#include "base/error.h"
#include "base/fault_point.h"
#include "base/log.h"
#include "comm/agree.h"
#include "train/save.h"
#include "train/stored.h"

namespace moraine {

bool must_roll_back(Run& run, const StepResult& result) {
  const SpikeConfig& c = run.config.spike;
  if (run.first())
    log_event(Level::kWarning, "step.bad", "step={} loss={} norm={} z={:.1f} in_a_row={} policy={}",
              run.state.step + 1, result.loss, result.gradient_norm, run.state.spike.z_score(),
              run.state.spike.bad_in_a_row(), spike_policy_name(c.policy));
  if (c.policy == SpikePolicy::kStop) {
    barrier(run.ranks.world);
    throw_error(Code::kDiverged,
                "step {}: loss {}, gradient norm {}; spike.policy is stop; the last good "
                "checkpoint is in {}",
                run.state.step + 1, result.loss, result.gradient_norm, run.options.out);
  }
  return c.policy == SpikePolicy::kRollback || run.state.spike.bad_in_a_row() >= c.patience;
}

namespace {

void warn_unfit(const std::string& directory, const std::string& reason) {
  log_event(Level::kWarning, "checkpoint.bad", "directory={} reason=\"{}\"", directory, reason);
}

// A mark of a later step is of another past: the run went on from a checkpoint that it was given. Without a mark the
// regular checkpoints say enough.
std::optional<int64_t> mark_of_this_past(const Run& run) {
  try {
    const std::optional<int64_t> mark = last_good(run.fs, run.options.out);
    return mark && *mark <= run.state.step ? mark : std::nullopt;
  } catch (const Error& e) {
    if (e.code() != Code::kCorrupt) throw;
    warn_unfit(run.options.out, e.what());
    return std::nullopt;
  }
}

// The one that the run went on from, where it has saved none of its own since. Empty: there is none.
std::string directory_it_began_with(const Run& run) {
  const std::string& given = run.options.resume;
  if (given == "auto" || given == "never") return "";
  try {
    const Checkpoint checkpoint = Checkpoint::open(run.fs, given);
    const int64_t step = checkpoint.info().step;
    return step <= run.state.step && is_regular_save(run.config, step) ? given : "";
  } catch (const Error& e) {  // by now it may be gone
    warn_unfit(given, e.what());
    return "";
  }
}

// Rank 0 verifies it. Empty: there is none.
std::string directory_to_go_back_to(const Run& run) {
  const std::optional<int64_t> mark = mark_of_this_past(run);
  const int64_t newest = mark.value_or(run.state.step);
  const auto checkpoint = newest_good(run.fs, run.options.out, warn_unfit, [&](int64_t step) {
    return step <= newest && (step == mark || is_regular_save(run.config, step));
  });
  return checkpoint ? checkpoint->directory() : directory_it_began_with(run);
}

[[noreturn]] void give_up(Run& run, const std::string& reason) {
  const int64_t step = run.state.step + 1;
  barrier(run.ranks.world);
  throw_error(Code::kDiverged,
              "step {}: {} bad steps in a row, {}; look at the learning rate and at the data near "
              "step {}",
              step, run.state.spike.bad_in_a_row(), reason, step);
}

}  // namespace

void roll_back(Run& run) {
  fault_point("rollback.begun");
  report_save(run, /*wait=*/true);
  if (run.state.rollbacks >= run.config.spike.rollbacks_max)
    give_up(run, fmt::format("{} rollbacks are used up", run.state.rollbacks));
  const std::string directory =  // verifying takes as long as it takes
      text_of_first(run.ranks.disk, run.first() ? directory_to_go_back_to(run) : std::string());
  if (directory.empty()) give_up(run, "no checkpoint to go back to");
  const StepPlan bad = run.timeline.at(run.state.step);
  const int64_t rollbacks = run.state.rollbacks + 1, bad_step = run.state.step;
  Skips skips = run.state.skips;
  // Parts are checked again as they are read.
  const Checkpoint checkpoint = Checkpoint::open(run.fs, directory, /*verify=*/false);
  run.trainer->restore(checkpoint);
  fault_point("rollback.restored");
  barrier(run.ranks.disk);  // as reading does
  run.state = read_state(checkpoint.info(), run.config, run.timeline);
  run.saves.saved_step = -1;
  const StepPlan from = run.timeline.at(run.state.step);
  const int64_t passed =
      bad.first_sequence + bad.num_sequences - (from.phase == bad.phase ? from.first_sequence : 0);
  add_skip(&skips, {bad.phase, passed});
  run.state.skips = std::move(skips);
  run.data->skip(run.state.skips);
  run.state.rollbacks = rollbacks;
  run.state.spike.forget_bad();
  run.open_logs();
  remove_stored_after(run, run.state.step, run.first());
  fault_point("rollback.removed");
  // Saved at once, so that a crash from here on does not read the bad data again.
  write_live_state(run);
  fault_point("rollback.written");
  if (!run.first()) return;
  // The one that was marked may be of another past, or damaged, and is removed.
  after_save([&] { mark_last_good(run.fs, run.options.out, run.state.step); });
  log_event(Level::kWarning, "run.rolled_back",
            "from_step={} to_step={} skipped_sequences={} rollbacks={}", bad_step + 1,
            run.state.step, passed, run.state.rollbacks);
}

}  // namespace moraine
