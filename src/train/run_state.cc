// Numbers as text: integers in decimal, the loss in exact hexadecimal.
#include "train/run_state.h"

#include <charconv>
#include <cstdio>

#include "base/error.h"

namespace moraine {
namespace {

// A count from 0 to `most`: the values of a checkpoint are text that may say anything.
int64_t read_integer(const std::string& text, int64_t most, const std::string& where) {
  int64_t number = 0;
  const char* const end = text.data() + text.size();
  const auto [rest, error] = std::from_chars(text.data(), end, number);
  if (error == std::errc() && rest == end && number >= 0 && number <= most) return number;
  throw_error(Code::kCorrupt, "{} is \"{}\", wanted an integer from 0 to {}", where, text, most);
}

}  // namespace

void write_state(const RunState& state, CheckpointInfo* info) {
  char loss[64];
  std::snprintf(loss, sizeof loss, "%a", state.loss);
  info->step = state.step;
  info->values["spike"] = state.spike.save();
  info->values["skip_sequences"] = std::to_string(state.skip_sequences);
  info->values["skip_phase"] = std::to_string(state.skip_phase);
  info->values["rollbacks"] = std::to_string(state.rollbacks);
  info->values["verified_step"] = std::to_string(state.verified_step);
  info->values["loss"] = loss;
}

RunState read_state(const CheckpointInfo& info, const RunConfig& config, const Timeline& timeline) {
  const auto value = [&](const char* key) {
    const auto found = info.values.find(key);
    if (found == info.values.end())
      throw_error(Code::kCorrupt,
                  "checkpoint step {}: value {} is missing; is it a model without training state?",
                  info.step, key);
    return found->second;
  };
  const auto integer = [&](const char* key, int64_t most) {
    return read_integer(value(key), most, fmt::format("checkpoint step {}: {}", info.step, key));
  };
  if (info.step > timeline.steps()) {
    throw_error(Code::kCorrupt, "checkpoint step {}: the run has {} steps", info.step,
                timeline.steps());
  }
  RunState state{.spike = SpikeDetector(config.spike.sigma), .step = info.step};
  state.spike.restore(value("spike"));
  state.rollbacks = integer("rollbacks", config.spike.rollbacks_max);
  state.skip_phase = integer("skip_phase", static_cast<int64_t>(config.phases.size()) - 1);
  // A rollback leaves out no more than its phase has.
  int64_t most = 0;
  if (__builtin_mul_overflow(state.rollbacks, timeline.phase_sequences(state.skip_phase), &most))
    most = INT64_MAX / 2;
  state.skip_sequences = integer("skip_sequences", most);
  // Earlier versions did not write it: what they wrote is taken as it is.
  state.verified_step =
      info.values.contains("verified_step") ? integer("verified_step", info.step) : info.step;
  state.loss = std::strtod(value("loss").c_str(), nullptr);
  return state;
}

}  // namespace moraine
