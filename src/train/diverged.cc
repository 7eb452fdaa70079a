// Diverged: removes what is not trusted, names the rank, ends.
#include "train/diverged.h"

#include <fmt/ranges.h>

#include <algorithm>

#include "base/error.h"
#include "base/fault_point.h"
#include "base/log.h"
#include "comm/collectives.h"
#include "train/run_kept.h"
#include "train/stored.h"

namespace moraine {
namespace {

constexpr int kUndecided = 3;  // times in a process, then the run ends

bool contains(const std::vector<int>& list, int rank) {
  return std::find(list.begin(), list.end(), rank) != list.end();
}

// Who is not accused, if there is one; else rank 0.
int first_sound_rank(const StepVerdict& verdict, int ranks) {
  for (int rank = 0; rank < ranks; ++rank) {
    if (!contains(verdict.wrong, rank)) return rank;
  }
  return 0;
}

constexpr const char* kGoesOn = "the run goes on from the newest state that is trusted";

[[noreturn]] void leave_undecided(Run& run, const StepVerdict& verdict) {
  const std::string what = fmt::format(
      "step {}: one of the ranks {} has diverged, and which one can not be told: {}; {}",
      run.state.step + 1, fmt::join(verdict.suspects, ", "), verdict.evidence, kGoesOn);
  if (run.first())
    log_event(Level::kWarning, "ranks.disagree", "step={} ranks={} evidence=\"{}\"",
              run.state.step + 1, fmt::join(verdict.suspects, ","), verdict.evidence);
  barrier(run.ranks.world);
  if (run.options.kept != nullptr && ++run.options.kept->undecided >= kUndecided) {
    throw_error(Code::kRankDiverged, "{}; this was the {}rd time: test the hosts of these ranks",
                what, kUndecided);
  }
  throw_error(Code::kPeerLost, "{}: by itself, or with the same command", what);
}

[[noreturn]] void leave(Run& run, const StepVerdict& verdict) {
  if (verdict.wrong.empty()) leave_undecided(run, verdict);
  const std::string what = fmt::format("step {}: rank {} has diverged: {}", run.state.step + 1,
                                       fmt::join(verdict.wrong, ", "), verdict.evidence);
  barrier(run.ranks.world);  // what is not trusted is gone, and all know why
  if (contains(verdict.wrong, run.ranks.mesh.rank)) {
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
              "{}; {}: with another process in its place (--rendezvous with "
              "parallel.replace_seconds), or with the same command without its host",
              what, kGoesOn);
}

}  // namespace

void say_diverged(const Run& run, const std::string& evidence) {
  log_event(Level::kError, "rank.diverged", "step={} rank={} verified_step={} evidence=\"{}\"",
            run.state.step + 1, run.ranks.mesh.rank, run.state.verified_step, evidence);
}

void leave_diverged(Run& run, const StepVerdict& verdict) {
  fault_point("diverged.judged");
  report_save(run, /*wait=*/true);
  remove_stored_after(run, run.state.verified_step,
                      run.ranks.mesh.rank == first_sound_rank(verdict, run.ranks.mesh.ranks));
  fault_point("diverged.removed");
  leave(run, verdict);
}

void note_distrusted(Run& run) {
  RunKept* const kept = run.options.kept;
  if (kept != nullptr && run.trainer->is_judging())
    kept->distrusted_after = std::min(kept->distrusted_after, run.state.verified_step);
}

void drop_distrusted(Run& run) {
  RunKept* const kept = run.options.kept;
  if (kept == nullptr || run.options.resume != "auto") return;
  std::vector<int64_t> all(static_cast<size_t>(run.ranks.world.size()));
  all_gather_equal(run.ranks.world, std::as_bytes(std::span(&kept->distrusted_after, 1)),
                   std::as_writable_bytes(std::span(all)));
  const int64_t step = *std::min_element(all.begin(), all.end());
  if (step == INT64_MAX) return;
  remove_stored_after(run, step, run.first());
  barrier(run.ranks.world);  // until here each rank that knows of it may still be the last one
  kept->distrusted_after = INT64_MAX;
}

void check_before_store(Run& run) {
  run.trainer->check_state();
  const StepVerdict verdict = run.trainer->compare_weights();
  if (!verdict.agreed()) leave(run, verdict);  // what was stored before was checked in the same way
}

}  // namespace moraine
