// OnRanks: a command on several ranks: threads of this process, or processes of a launcher (mpirun, srun).
#pragma once

#include <cstdint>
#include <functional>
#include <string>

#include "cli/flags.h"
#include "comm/transport.h"

namespace moraine {

struct RankFlags {
  int64_t ranks = 1;
  double deadline_seconds = 60;
};
// --ranks, --deadline-seconds.
void declare_ranks(Flags& flags, const std::string& command, RankFlags* f);

// Calls body(transport) on every rank; one that ends by an Error ends all. This process prints and answers if it
// has rank 0.
// Errors: kInvalidArgument for a deadline that is none, --ranks beside a launcher, or tasks of a launcher that do
//         not know each other.
void on_ranks(const std::string& command, const RankFlags& f,
              const std::function<void(Transport& transport)>& body);

}  // namespace moraine
