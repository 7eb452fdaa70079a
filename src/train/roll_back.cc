// Skip, go back, or stop: spike.policy.
#include "train/roll_back.h"

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

// As rank 0 reads it; -1: there is none.
int64_t agreed_last_good(Run& run) {
  const int64_t none = -1;
  return value_of_first(run.ranks.world,
                        run.first() ? last_good(run.fs, run.options.out).value_or(none) : none);
}

}  // namespace

void roll_back(Run& run) {
  fault_point("rollback.begun");
  report_save(run, /*wait=*/true);
  const int64_t good = agreed_last_good(run);
  if (good < 0 || run.state.rollbacks >= run.config.spike.rollbacks_max) {
    barrier(run.ranks.world);
    throw_error(Code::kDiverged,
                "step {}: {} bad steps in a row, {}; look at the learning rate and at the data "
                "near step {}",
                run.state.step + 1, run.state.spike.bad_in_a_row(),
                good >= 0 ? fmt::format("{} rollbacks are used up", run.state.rollbacks)
                          : std::string("no checkpoint to go back to"),
                run.state.step + 1);
  }
  const StepPlan bad = run.timeline.at(run.state.step);
  const int64_t rollbacks = run.state.rollbacks + 1, bad_step = run.state.step,
                skip_before = run.state.skip(bad);
  const Checkpoint checkpoint = Checkpoint::open(
      run.fs, checkpoint_path(run.fs, run.options.out, good), /*verify=*/run.first());
  run.trainer->restore(checkpoint);
  fault_point("rollback.restored");
  run.state = read_state(checkpoint.info(), run.config, run.timeline);
  run.saves.saved_step = -1;
  const StepPlan from = run.timeline.at(run.state.step);
  const int64_t passed =
      bad.first_sequence + bad.num_sequences - (from.phase == bad.phase ? from.first_sequence : 0);
  run.state.skip_sequences = skip_before + passed;
  run.state.skip_phase = bad.phase;
  run.state.rollbacks = rollbacks;
  run.state.spike.forget_bad();
  run.open_logs();
  remove_stored_after(run, run.state.step, run.first());
  fault_point("rollback.removed");
  // Saved at once, so that a crash from here on does not read the bad data again.
  write_live_state(run);
  fault_point("rollback.written");
  if (run.first())
    log_event(Level::kWarning, "run.rolled_back",
              "from_step={} to_step={} skipped_sequences={} rollbacks={}", bad_step + 1,
              run.state.step, passed, run.state.rollbacks);
}

}  // namespace moraine
