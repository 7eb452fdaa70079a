// RunMetrics: the numbers of a supervised run as Prometheus text.
//
// Seconds lost and incidents are since the ledger began; restarts since the supervisor did.
#pragma once

#include <optional>
#include <span>
#include <string>

#include "supervisor/host_reading.h"
#include "supervisor/ledger.h"
#include "supervisor/supervised_run.h"

namespace moraine {

struct RunMetrics {
  const SupervisedRun& run;
  std::string letters;                        // rank_letters()
  int64_t generation = -1;                    // of the group; below 0: not known
  std::optional<double> loss = std::nullopt;  // it may be NaN
  double tokens_per_second = 0;
  int64_t strangers = 0;  // sent away by ranks where they meet
  std::span<const LedgerEntry> entries;
};

std::string run_metrics_text(const RunMetrics& metrics);

}  // namespace moraine
