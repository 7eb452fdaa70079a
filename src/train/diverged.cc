// Diverged: removes what is not trusted, names the rank, ends.
#include "train/diverged.h"

#include <fmt/ranges.h>

#include <algorithm>

#include "base/error.h"
#include "base/log.h"
#include "comm/collectives.h"
#include "train/run_kept.h"
#include "train/save.h"

namespace moraine {
namespace {

constexpr int kUndecided = 3;  // times in a process, then the run ends

bool contains(const std::vector<int>& list, int rank) {
  return std::find(list.begin(), list.end(), rank) != list.end();
}

// By a rank that is not accused, if there is one.
int first_sound_rank(const StepVerdict& verdict) {
  int rank = 0;
  while (contains(verdict.wrong, rank)) ++rank;
  return rank;
}

void remove_distrusted(Run& run, bool sound) {
  report_save(run, /*wait=*/true);
  if (sound) remove_checkpoints_after(run.fs, run.options.out, run.state.verified_step);
  if (run.saves.memory != nullptr)
    report_refused(run, run.saves.memory->remove_after(run.state.verified_step));
}

[[noreturn]] void leave_undecided(Run& run, const StepVerdict& verdict) {
  const std::string what = fmt::format(
      "step {}: one of the ranks {} has diverged, and which one can not be told: {}; steps after "
      "{} are taken again",
      run.state.step + 1, fmt::join(verdict.suspects, ", "), verdict.evidence,
      run.state.verified_step);
  if (run.first())
    log_event(Level::kWarning, "ranks.disagree", "step={} ranks={} evidence=\"{}\"",
              run.state.step + 1, fmt::join(verdict.suspects, ","), verdict.evidence);
  barrier(run.ranks.world);
  if (run.options.kept != nullptr && ++run.options.kept->undecided >= kUndecided) {
    throw_error(Code::kRankDiverged, "{}; this was the {}rd time: test the hosts of these ranks",
                what, kUndecided);
  }
  throw Error(Code::kPeerLost, what);
}

}  // namespace

void say_diverged(const Run& run, const std::string& evidence) {
  log_event(Level::kError, "rank.diverged", "step={} rank={} verified_step={} evidence=\"{}\"",
            run.state.step + 1, run.ranks.mesh.rank, run.state.verified_step, evidence);
}

void leave_diverged(Run& run, const StepVerdict& verdict) {
  const int rank = run.ranks.mesh.rank;
  remove_distrusted(run, rank == first_sound_rank(verdict));
  if (verdict.wrong.empty()) leave_undecided(run, verdict);
  const std::string what = fmt::format("step {}: rank {} has diverged: {}", run.state.step + 1,
                                       fmt::join(verdict.wrong, ", "), verdict.evidence);
  barrier(run.ranks.world);  // what is not trusted is gone, and all know why
  if (contains(verdict.wrong, rank)) {
    throw_error(
        Code::kRankDiverged,
        "{}; this rank leaves the run: test the memory and the processor of its host before "
        "it is used again",
        what);
  }
  // The wrong rank says so to all, and is the cause that every rank names.
  try {
    barrier(run.ranks.world);
  } catch (const Error&) {
  }
  throw_error(Code::kPeerLost,
              "{}; the run goes on from what was verified, step {} or before: with another process "
              "in its place (--rendezvous with parallel.replace_seconds), or with the same command "
              "without its host",
              what, run.state.verified_step);
}

void check_before_store(Run& run) {
  run.trainer->check_state();
  const StepVerdict verdict = run.trainer->compare_weights();
  if (!verdict.agreed()) leave_diverged(run, verdict);
}

}  // namespace moraine
