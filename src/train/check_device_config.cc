// CheckDeviceConfig: plans of the CPU, and links between devices.
#include "train/check_device_config.h"

#include "base/error.h"

namespace moraine {

// The way round: a sum of rounded gradients is the host's, and so is the way of rows to experts, with sums for the
// ranks that hold the same ones.
std::string host_alone(const RunConfig& c, int64_t expert) {
  if (c.parallel.reduce_dtype != ReduceDType::kF32)
    return "parallel.reduce_dtype = \"bf16\" goes over the host";
  if (expert > 1) return fmt::format("parallel.expert = {} goes over the host", expert);
  return "";
}

void check_device_config(const RunConfig& c, int64_t ranks) {
  const ParallelConfig& p = c.parallel;
  if (c.train.device == "cpu") return;
  // The planner has times of the CPU, and the host's memory.
  if (p.plan != PlanChoice::kGiven)
    throw_error(Code::kInvalidArgument,
                "train.device = {}: parallel.plan = \"{}\" works on the CPU alone (docs/gpu.md); "
                "wanted \"given\", or train.device = cpu",
                c.train.device, p.plan == PlanChoice::kAuto ? "auto" : "shuffled");
  if (p.device_links != DeviceLinks::kLibrary || ranks == 1) return;
  for (size_t phase = 0; phase < c.phases.size(); ++phase) {
    const std::string why = host_alone(c, phase_expert(c, static_cast<int64_t>(phase)));
    if (!why.empty())
      throw_error(Code::kInvalidArgument,
                  "parallel.device_links = \"library\": {}; wanted \"host\" or \"auto\"", why);
  }
}

}  // namespace moraine
