// OnRanks: finds the launcher, or starts threads.
#include "cli/on_ranks.h"

#include <cstdlib>

#include "base/error.h"
#include "base/log.h"
#include "comm/mpi_transport.h"
#include "comm/thread_ranks.h"

namespace moraine {
namespace {

// Tasks of a Slurm step that do not know of each other would all do the same.
void check_launcher(const std::string& command, int64_t ranks) {
  const char* tasks = std::getenv("SLURM_STEP_NUM_TASKS");
  if (tasks == nullptr || std::strtol(tasks, nullptr, 10) <= 1) return;
  throw_error(Code::kInvalidArgument,
              "{}: one of {} tasks of a Slurm step without PMIx, so the tasks cannot find each "
              "other; wanted srun --mpi=pmix, mpirun, or one task with --ranks {}",
              command, tasks, std::max<int64_t>(ranks, std::strtol(tasks, nullptr, 10)));
}

void run_mpi_rank(const std::function<void(Transport& transport)>& body) {
  const std::unique_ptr<Transport> transport = open_mpi_transport();
  set_log_rank(transport->rank());
  try {
    body(*transport);
  } catch (const Error& e) {
    // Said here: the launcher may end this process before main() can.
    if (e.code() != Code::kInterrupted)
      log_event(Level::kError, "rank.failed", "code={} reason=\"{}\"", code_name(e.code()),
                e.what());
    // All ranks end so together; of anything else the others may not know yet.
    if (e.code() != Code::kInterrupted && e.code() != Code::kDiverged) transport->fail(e.what());
    throw;
  }
}

}  // namespace

void declare_ranks(Flags& flags, const std::string& command, RankFlags* f) {
  flags
      .integer(
          "ranks", &f->ranks,
          "Ranks as threads of this process; as processes: mpirun -n P moraine " + command + " ...",
          1, 4096)
      .number("deadline-seconds", &f->deadline_seconds, "How long a rank may be silent.");
}

void on_ranks(const std::string& command, const RankFlags& f,
              const std::function<void(Transport& transport)>& body) {
  if (!(f.deadline_seconds > 0))
    throw_error(Code::kInvalidArgument, "--deadline-seconds {}: wanted more than 0",
                f.deadline_seconds);
  if (!started_by_mpi()) {
    check_launcher(command, f.ranks);
    return run_thread_ranks(static_cast<int>(f.ranks), body);
  }
  if (f.ranks > 1)
    throw_error(Code::kInvalidArgument,
                "--ranks {}: this process is a rank of a job already; the launcher says how many",
                f.ranks);
  run_mpi_rank(body);
}

}  // namespace moraine
