// PlanReliability: `moraine plan reliability`: the flags of src/plan/reliability.h and what is printed of it.
#pragma once

#include <cstdint>

#include "cli/flags.h"

namespace moraine {

struct ReliabilityFlags {  // as people say them: hours, seconds
  int64_t ranks_per_host = 8, rails = 2, interruptions = 20000;
  double rank_mtbf_hours = 50000, host_mtbf_hours = 3700, rail_mtbf_hours = 2000,
         rail_repair_hours = 4;
  double gap_seconds = 0.15, detect_seconds = 5, restart_seconds = 60, save_seconds = 0.1,
         write_seconds = 10, every_seconds = 0;
};
void declare_reliability(Flags& flags, ReliabilityFlags* f);

// On stdout. Errors: those of expect_reliability.
void print_reliability(const ReliabilityFlags& f, int64_t ranks, bool json);

}  // namespace moraine
