// OnRanks: a command on several ranks: threads of this process, processes of a launcher (mpirun, srun), or processes
// that meet at a rendezvous.
#pragma once

#include <atomic>
#include <cstdint>
#include <functional>
#include <string>
#include <vector>

#include "base/error.h"
#include "cli/flags.h"
#include "comm/rails_transport.h"

namespace moraine {

struct RankFlags {
  int64_t ranks = 1;
  double deadline_seconds = 60;
  int64_t rank = -1;  // -1: as the launcher says
  std::string rendezvous, secret_file;
  std::vector<std::string> rails;
  RailTimes times = {};
  double replace_seconds = 0;
  const std::atomic<int>* stop_signal = nullptr;  // as RailsOptions::stop_signal
};
// --ranks, and for processes that meet: --rank, --rendezvous, --rails, --secret-file.
void declare_ranks(Flags& flags, const std::string& command, RankFlags* f);
// The same and --deadline-seconds.
void declare_ranks_with_deadline(Flags& flags, const std::string& command, RankFlags* f);
// --share-cache, --low-latency: how ranks that answer divide a model (LoadedModel::connect).
void declare_divided_model(Flags& flags, bool* share_cache, std::string* low_latency);

// The line of a rank that ends with an Error.
void log_failed(const Error& error);

// --rendezvous and what belongs to it. Errors: kInvalidArgument.
RailsOptions rails_options(const std::string& command, const RankFlags& flags);

// Calls body(transport) on every rank; one that ends by an Error ends all. This process prints and answers if it
// has rank 0.
// Errors: kInvalidArgument for a deadline that is none, --ranks beside Open MPI, a rendezvous without a rank or a rank
//         without a rendezvous, or tasks of a launcher that do not know each other; those of open_rails_transport.
void on_ranks(const std::string& command, const RankFlags& f,
              const std::function<void(Transport& transport)>& body);

}  // namespace moraine
