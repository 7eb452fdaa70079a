// Checkpoints of any mesh, on disk or in memory.
#include "train/resume.h"

#include <algorithm>
#include <optional>

#include "base/error.h"
#include "base/fault_point.h"
#include "base/heartbeat.h"
#include "base/log.h"
#include "comm/agree.h"
#include "model/model_directory.h"
#include "train/config_difference.h"
#include "train/diverged.h"
#include "train/same_past.h"
#include "train/save.h"
#include "train/stored.h"

namespace moraine {
namespace {

// Another length or schedule must leave the steps that were taken as they were.
void check_same_steps(const Run& run, const Checkpoint& checkpoint, const RunConfig& before) {
  const StepDifference other = first_other_step(before, run.config, checkpoint.info().step);
  if (other.text.empty()) return;
  const int64_t taken = checkpoint.info().step, steps = run.timeline.steps();
  if (steps < taken) {
    throw_error(
        Code::kInvalidArgument,
        "resume {}: the run has taken {} steps, and with this config it would have {}; a run "
        "cannot be made shorter than it is: wanted at least {} steps, or a new run (another "
        "--out, without --resume)",
        checkpoint.directory(), taken, steps, taken);
  }
  const std::string folder =  // of the run, whose checkpoint may be named or in memory
      run.options.resume == "auto" ? run.options.out : parent_path(checkpoint.directory());
  std::string from = fmt::format("no checkpoint of such a step is left in {}", folder);
  for (const int64_t step : list_checkpoints(run.fs, folder)) {
    if (step <= other.step)
      from = fmt::format("--resume {} with another --out", checkpoint_path(run.fs, folder, step));
  }
  throw_error(Code::kInvalidArgument,
              "resume {}: with this config step {} {}; a run can be made longer from where its "
              "steps are still the same, after step {} or before: {}",
              checkpoint.directory(), other.step + 1, other.text, other.step, from);
}

void check_same_run(const Run& run, const Checkpoint& checkpoint) {
  const RunConfig before =
      read_saved_config(checkpoint.info().config, checkpoint.directory() + ": config");
  const std::string difference = first_difference(past_text(before), past_text(run.config));
  if (!difference.empty()) {
    throw_error(Code::kInvalidArgument,
                "resume {}: {}; a run must go on as it began: restore the value, or start a new "
                "run (another --out, without --resume)",
                checkpoint.directory(), difference);
  }
  check_same_steps(run, checkpoint, before);
  const auto& values = checkpoint.info().values;
  const auto generation = values.find(kGenerationValue);
  if (generation != values.end() && generation->second != run.generation) {
    throw_error(Code::kInvalidArgument,
                "resume {}: a GPU of generation {} has computed the run, and here is {}: each has "
                "its own bits; go on where it began, or start a new run (another --out)",
                checkpoint.directory(), generation->second, run.generation);
  }
  const auto data = values.find("data.hash");
  if (data != values.end() && data->second != hash_hex(run.data->hash())) {
    throw_error(Code::kInvalidArgument,
                "resume {}: the training data has other content than when the run began; restore "
                "it, or start a new run",
                checkpoint.directory());
  }
}

// Ranks that share sequences, and sums of rounded gradients, depend on the mesh.
void warn_of_other_bits(const Run& run, const Checkpoint& checkpoint) {
  const RunConfig before =
      read_saved_config(checkpoint.info().config, checkpoint.directory() + ": config");
  const auto found = checkpoint.info().values.find("ranks");
  const std::string ranks = found == checkpoint.info().values.end() ? "1" : found->second;
  bool shared = false, same = ranks == std::to_string(run.ranks.mesh.ranks);
  for (size_t i = 0; i < run.config.phases.size(); ++i) {
    const int64_t phase = static_cast<int64_t>(i), now = phase_context(run.config, phase),
                  then = phase_context(before, phase);
    shared = shared || now > 1 || then > 1;
    same = same && now == then;
  }
  if (same || (!shared && run.config.parallel.reduce_dtype == ReduceDType::kF32)) return;
  log_event(Level::kWarning, "run.other_mesh",
            "ranks_before={} ranks={} reason=\"sequences shared by ranks, or a bf16 reduce dtype: "
            "from here on "
            "the run agrees with one that kept its mesh within rounding, not to the bit\"",
            ranks, run.ranks.mesh.ranks);
}

void resume_from(Run& run, const Checkpoint& checkpoint) {
  set_activity(Activity::kLoading);
  check_same_run(run, checkpoint);
  fault_point("resume.begun");
  run.trainer->restore(checkpoint);
  run.state = read_state(checkpoint.info(), run.config, run.timeline);
  run.saves.saved_step = -1;
  fault_point("resume.loaded");
  barrier(run.ranks.disk);  // reading takes as long as it takes
  if (!run.first()) return;
  warn_of_other_bits(run, checkpoint);
  log_event(Level::kInfo, "checkpoint.loaded", "directory={} step={} tokens={}",
            checkpoint.directory(), run.state.step, checkpoint.info().tokens_seen);
}

void warn_bad(const std::string& directory, const std::string& reason) {
  log_event(Level::kWarning, "checkpoint.bad", "directory={} reason=\"{}\"", directory, reason);
}

// Where rank 0 wants to go on from; empty: from nothing on disk.
std::string resume_directory(Run& run, bool has_copy) {
  const std::string& how = run.options.resume;
  if (how == "never") {
    if (!list_checkpoints(run.fs, run.options.out).empty()) {
      throw_error(Code::kInvalidArgument,
                  "--resume never: {} holds a run already; remove it or choose another --out",
                  run.options.out);
    }
    return "";
  }
  if (how != "auto") {
    const std::vector<int64_t> steps = list_checkpoints(run.fs, how);
    if (!steps.empty() && !run.fs.exists(join_path(how, "manifest.json"))) {
      throw_error(Code::kInvalidArgument,
                  "--resume {}: it is a run; wanted one of its {} checkpoints, of which {} is the "
                  "newest, or --out {} with --resume auto",
                  how, steps.size(), checkpoint_path(run.fs, how, steps.back()), how);
    }
    return Checkpoint::open(run.fs, how).directory();
  }
  if (!run.fs.exists(run.options.out)) return "";
  const auto checkpoint = newest_good(run.fs, run.options.out, warn_bad);
  if (checkpoint) return checkpoint->directory();
  if (has_copy || list_checkpoints(run.fs, run.options.out).empty()) return "";
  throw_error(Code::kCorrupt,
              "resume {}: it holds checkpoints, and none of them is whole; `moraine inspect {}` "
              "names the damage; to start again, choose another --out",
              run.options.out, run.options.out);
}

// The newest whole copy in memory, as this host has it.
std::optional<Checkpoint> copy_in_memory(Run& run) {
  if (run.saves.memory == nullptr || run.options.resume != "auto") return std::nullopt;
  // Somebody removed the folder of the run to begin again.
  const std::string begun = join_path(run.options.out, "config.toml");
  if (!value_of_first(run.ranks.world, run.first() && run.fs.exists(begun))) {
    report_refused(run, run.saves.memory->remove());
    return std::nullopt;
  }
  const std::optional<std::string> copy = run.saves.memory->newest(warn_bad);
  if (!copy) return std::nullopt;
  return Checkpoint::open(run.fs, *copy, /*verify=*/false);
}

// Of what is on disk, whole or not; -1: nothing.
int64_t newest_on_disk(Run& run) {
  int64_t step = -1;
  if (run.first() && run.fs.exists(run.options.out)) {
    for (const int64_t one : list_checkpoints(run.fs, run.options.out)) step = std::max(step, one);
  }
  return value_of_first(run.ranks.world, step);
}

}  // namespace

bool resume(Run& run) {
  fault_point("resume.search");
  drop_distrusted(run);
  const std::optional<Checkpoint> copy = copy_in_memory(run);
  const bool is_newest = copy && copy->info().step > newest_on_disk(run);
  if (is_newest) {  // nobody waits for a disk
    resume_from(run, *copy);
    return true;
  }
  // Rank 0 has verified it; parts are checked again as they are read.
  const std::string directory = text_of_first(
      run.ranks.disk, run.first() ? resume_directory(run, copy.has_value()) : std::string());
  std::optional<Checkpoint> disk;
  if (!directory.empty()) disk = Checkpoint::open(run.fs, directory, /*verify=*/false);
  if (copy && (!disk || copy->info().step > disk->info().step)) {
    resume_from(run, *copy);
    return true;
  }
  if (!disk) return false;
  resume_from(run, *disk);
  if (run.options.resume != "auto") {
    // They are of another past, and nobody who looks through the folder would see them.
    if (run.saves.memory != nullptr) report_refused(run, run.saves.memory->remove());
    return true;
  }
  run.saves.saved_step = run.state.step;
  // A crash may have come between the checkpoint and its mark.
  if (run.first() && is_regular_save(run.config, run.state.step))
    mark_last_good(run.fs, run.options.out, run.state.step);
  return true;
}

void start_new(Run& run) {
  const uint64_t seed = static_cast<uint64_t>(run.config.train.seed);
  if (run.config.train.init.empty()) {
    run.trainer->initialize(seed);
  } else {
    const ModelDirectory directory = ModelDirectory::open(run.fs, run.config.train.init);
    run.trainer->set_weights(
        [&](const Tensor& flat) { directory.read_weights(run.trainer->model().table(), flat); });
    if (run.first()) log_event(Level::kInfo, "model.loaded", "directory={}", directory.path());
  }
  run.trainer->refresh();
}

}  // namespace moraine
