// Groups: meet, train, and again.
#include "train/groups.h"

#include <algorithm>

#include "base/clock.h"
#include "base/error.h"
#include "base/fault_point.h"
#include "base/heartbeat.h"
#include "base/log.h"
#include "train/loop.h"
#include "train/run_kept.h"
#include "train/run_memory.h"

namespace moraine {
namespace {

constexpr int kFruitlessGroups = 8;  // that were lost before they had taken a step

bool may_meet_again(Code code) { return code == Code::kPeerLost || code == Code::kTimeout; }

// By one group, to the end of the run or until it is time to meet again.
RunResult train_in_group(FileSystem& fs, const RunConfig& config, RunOptions options,
                         RailsJob& job) {
  const double begin = now_seconds();
  const std::unique_ptr<Transport> transport = job.meet();
  if (transport == nullptr) return {};
  fault_point("group.formed");
  set_log_rank(transport->rank());
  if (transport->rank() == 0)
    log_event(Level::kInfo, "group.formed", "generation={} ranks={} seconds={:.3f}",
              job.generation(), transport->size(), now_seconds() - begin);
  // Whatever the run began with: from here on it goes on with its own.
  if (job.generation() > 1) options.resume = "auto";
  options.has_newcomers = [&job] { return job.has_newcomers(); };
  options.kept->phase = 0;  // as in a process that has just come: all move from there
  options.kept->move = {};
  return train(fs, config, options, *transport);
}

}  // namespace

RunResult train_in_groups(FileSystem& fs, const RunConfig& config, const RunOptions& given,
                          RailsJob& job) {
  RunKept kept;
  RunOptions options = given;
  options.kept = &kept;
  int fruitless = 0;
  for (;;) {
    const uint64_t before = job.generation();
    const int64_t steps = kept.steps;
    try {
      const RunResult result = train_in_group(fs, config, options, job);
      if (!result.is_done) continue;
      fault_point("end.done");
      if (!result.checkpoint.empty()) job.end();
      return result;
    } catch (const Error& e) {
      const bool was_in_a_group = job.generation() > before;
      fruitless = kept.steps > steps ? 0 : fruitless + 1;
      if (!may_meet_again(e.code()) || !was_in_a_group || fruitless >= kFruitlessGroups) throw;
      log_event(Level::kWarning, "group.lost", "generation={} step={} reason=\"{}\"",
                job.generation(), heartbeat().step.load(), e.what());
      fault_point("group.left");
    }
  }
}

}  // namespace moraine
