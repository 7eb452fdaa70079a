// OnRanks: finds the launcher or the rendezvous, or starts threads.
#include "cli/on_ranks.h"

#include <cstdlib>
#include <initializer_list>

#include "base/error.h"
#include "base/log.h"
#include "cli/secret_file.h"
#include "comm/end_by.h"
#include "comm/mpi_transport.h"
#include "comm/rails_transport.h"
#include "comm/thread_ranks.h"

namespace moraine {

// Said here: the launcher may end this process before main() can.
void log_failed(const Error& e) {
  if (e.code() == Code::kInterrupted) return;
  log_event(Level::kError, "rank.failed", "code={} reason=\"{}\"", code_name(e.code()), e.what());
}

namespace {

// Tasks of a Slurm step that do not know of each other would all do the same.
void check_launcher(const std::string& command, int64_t ranks) {
  const char* tasks = std::getenv("SLURM_STEP_NUM_TASKS");
  if (tasks == nullptr || std::strtol(tasks, nullptr, 10) <= 1) return;
  throw_error(
      Code::kInvalidArgument,
      "{}: one of {} tasks of a Slurm step without PMIx, so the tasks cannot find each "
      "other; wanted --rendezvous HOST:PORT, srun --mpi=pmix, mpirun, or one task with --ranks {}",
      command, tasks, std::max<int64_t>(ranks, std::strtol(tasks, nullptr, 10)));
}

void run_rank(std::unique_ptr<Transport> transport,
              const std::function<void(Transport& transport)>& body) {
  set_log_rank(transport->rank());
  try {
    body(*transport);
  } catch (const Error& e) {
    log_failed(e);
    end_by(*transport, e);
    throw;
  }
}

// What a launcher says of this process; -1: nothing.
int64_t launcher_number(std::initializer_list<const char*> names) {
  for (const char* name : names) {
    const char* text = std::getenv(name);
    if (text != nullptr) return std::strtol(text, nullptr, 10);
  }
  return -1;
}

}  // namespace

RailsOptions rails_options(const std::string& command, const RankFlags& f) {
  RailsOptions options;
  const int64_t told = launcher_number({"SLURM_NTASKS", "OMPI_COMM_WORLD_SIZE"});
  const int64_t ranks = f.ranks > 1 || told < 0 ? f.ranks : told;
  const int64_t rank =
      f.rank >= 0 ? f.rank : launcher_number({"SLURM_PROCID", "OMPI_COMM_WORLD_RANK", "PMIX_RANK"});
  if (rank < 0 || rank >= ranks)
    throw_error(Code::kInvalidArgument,
                "{} --rendezvous {}: this process is rank {} of {}; wanted --rank R --ranks P with "
                "R from 0 to P - 1, or a "
                "launcher that says so",
                command, f.rendezvous, rank < 0 ? std::string("(not given)") : std::to_string(rank),
                ranks);
  options.rank = static_cast<int>(rank);
  options.ranks = static_cast<int>(ranks);
  options.rendezvous = f.rendezvous;
  options.rails = f.rails;
  options.secret = read_secret_file("--secret-file", f.secret_file);
  options.times = f.times;
  options.replace_seconds = f.replace_seconds;
  options.stop_signal = f.stop_signal;
  return options;
}

void declare_ranks(Flags& flags, const std::string& command, RankFlags* f) {
  flags
      .integer("ranks", &f->ranks,
               "Ranks as threads of this process; as processes: mpirun -n P moraine " + command +
                   " ..., or one by one with --rendezvous.",
               1, 4096)
      .text("rendezvous", &f->rendezvous,
            "HOST:PORT where rank 0 waits for the others: ranks are processes on any hosts, each "
            "started with this, "
            "--ranks and its own --rank.")
      .integer("rank", &f->rank, "Of this process, from 0; default: as srun or mpirun says.", -1,
               4095)
      .list("rails", &f->rails,
            "Network path to the other hosts: an interface, an address or a network; give it again "
            "for each. Default: "
            "the one to the rendezvous.")
      .text("secret-file", &f->secret_file,
            "File whose content every process of the job must know to be let in.");
}

void declare_divided_model(Flags& flags, bool* share_cache, std::string* low_latency) {
  flags
      .flag("share-cache", share_cache,
            "Ranks divide the cache by position too: longer contexts, sums in another order.")
      .choice("low-latency", low_latency, {"auto", "on", "off"},
              "How answers of experts go from rank to rank in steps of up to 128 rows: through "
              "slots in each other's memory, or by collectives; the same bits. auto: what is "
              "faster here, measured at the start.");
}

void declare_ranks_with_deadline(Flags& flags, const std::string& command, RankFlags* f) {
  declare_ranks(flags, command, f);
  flags.number("deadline-seconds", &f->deadline_seconds, "How long a rank may be silent.");
}

void on_ranks(const std::string& command, const RankFlags& f,
              const std::function<void(Transport& transport)>& body) {
  if (!(f.deadline_seconds > 0))
    throw_error(Code::kInvalidArgument, "--deadline-seconds {}: wanted more than 0",
                f.deadline_seconds);
  if (!f.rendezvous.empty()) return run_rank(open_rails_transport(rails_options(command, f)), body);
  if (f.rank >= 0 || !f.rails.empty() || !f.secret_file.empty())
    throw_error(Code::kInvalidArgument,
                "{} --rank, --rails, --secret-file: they are of processes that meet; wanted "
                "--rendezvous HOST:PORT too",
                command);
  if (!started_by_mpi()) {
    check_launcher(command, f.ranks);
    return run_thread_ranks(static_cast<int>(f.ranks), body);
  }
  if (f.ranks > 1)
    throw_error(Code::kInvalidArgument,
                "--ranks {}: this process is a rank of a job already; the launcher says how many",
                f.ranks);
  run_rank(open_mpi_transport(), body);
}

}  // namespace moraine
