// Metrics: one JSON object per step in metrics.jsonl, with the line a person reads beside it.
//
// Fixed keys with units in their names (docs/formats/metrics.md). A number that is not known is NaN
// here and null there. When a run resumes, lines after the resumed step and a line cut by the crash
// are dropped, so the file always tells one history.
//
// Errors:   kIo from opening. A line that can not be written is lost, which is told once
//           (metrics.failed) until one can: a full disk stops no run. Unreadable lines are dropped,
//           never an error.
// Threads:  one at a time.
#pragma once

#include <cstdint>
#include <limits>
#include <memory>
#include <string>
#include <vector>

#include "base/file_system.h"
#include "tensor/tensor.h"

namespace moraine {

struct StepMetrics {
  static constexpr double kUnknown = std::numeric_limits<double>::quiet_NaN();

  int64_t step = 0;         // completed, this one included
  int64_t steps_total = 0;  // of the run; 0: not known
  int64_t tokens_seen = 0;  // by all ranks together
  int64_t targets = 0;      // of this step: tokens that the loss is the mean over
  double loss = kUnknown;   // nats per token
  double gradient_norm = kUnknown;
  double lr = kUnknown;
  double tokens_per_s = kUnknown;
  double percent_of_peak = kUnknown;  // of the machine's measured limit
  double seconds = kUnknown;          // of this step
  double seconds_left = kUnknown;
  double load_max_over_mean = kUnknown;  // of the worst layer; unknown: no experts
  double load_entropy = kUnknown;        // over the experts, 1 is perfect balance; mean over layers
  // Rows of the busiest rank over the mean, in the expert group of rank 0, all layers; and what it would be if
  // ranks served only the experts that they hold. Unknown: all experts are on each rank.
  double rank_load_over_mean = kUnknown, home_load_over_mean = kUnknown;
  double skip_rate = kUnknown;   // share of choices that took the skip class, 0 to 1
  int64_t dead_experts = 0;      // (layer, expert) pairs without a token
  double valid_loss = kUnknown;  // nats per token, on steps that evaluated
  double bits_per_byte = kUnknown;
  std::vector<std::vector<float>> layer_loads;  // [layers][experts] load over mean; often empty
};

// Fills the load fields from token counts [L, C] i64; the last class is the skip class if `skip`.
// layer_loads only if `with_layers`.
void set_load(StepMetrics* metrics, const Tensor& load, bool skip, bool with_layers);

// "step 1200/50000  loss 2.3141  norm 0.41  lr 3.0e-4  812 ms  12.9k tok/s  41.2% of peak
//  balance 1.21 ent 0.99 skip 0.0% dead 0  left 12m03s", in one line; what is unknown is left out.
std::string human_line(const StepMetrics& metrics);
std::string format_duration(double seconds);  // "45s", "12m03s", "3h05m", "2d04h"
std::string format_count(double count);       // "812", "12.9k", "1.29M", "3.40G"

std::string metrics_json(const StepMetrics& metrics);               // one line, without line end
bool parse_metrics(const std::string& line, StepMetrics* metrics);  // false if it is another line
std::vector<StepMetrics> read_metrics(FileSystem& fs, const std::string& path);  // ascending steps

class MetricsWriter {
 public:
  // Cuts `path`, of any length, behind the last line of steps 1 to resumed_step (0: a new run), then appends.
  MetricsWriter(FileSystem& fs, const std::string& path, int64_t resumed_step);
  void write(const StepMetrics& metrics);

 private:
  std::unique_ptr<WritableFile> file_;
  bool failed_ = false;  // the last line, which may be there in part
};

}  // namespace moraine
