// Numbers as text: integers in decimal, the loss in exact hexadecimal.
#include "train/run_state.h"

#include <algorithm>
#include <charconv>
#include <cstdio>
#include <map>
#include <sstream>

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

// "<phase>:<sequences>" for each, in the order in which they were left out.
std::string skips_text(const Skips& skips) {
  std::string text;
  for (const auto& [phase, sequences] : skips)
    text += fmt::format("{}{}:{}", text.empty() ? "" : " ", phase, sequences);
  return text;
}

// A rollback leaves out no more than its phase has.
int64_t most_skipped(const RunState& state, const Timeline& timeline, int64_t phase) {
  int64_t most = 0;
  if (__builtin_mul_overflow(state.rollbacks, timeline.phase_sequences(phase), &most))
    most = INT64_MAX / 2;
  return most;
}

struct SavedSkips {
  const RunState& state;  // rollbacks are read
  const Timeline& timeline;
  int64_t phase_last;
  std::string where;
};

Skips read_skips(const std::string& text, const SavedSkips& a) {
  Skips skips;
  std::map<int64_t, int64_t> left;  // that a phase may still leave out
  std::istringstream words(text);
  for (std::string word; words >> word;) {
    const size_t colon = std::min(word.find(':'), word.size());
    const int64_t phase = read_integer(word.substr(0, colon), a.phase_last, a.where);
    const std::string rest = colon < word.size() ? word.substr(colon + 1) : "";
    int64_t& most = left.try_emplace(phase, most_skipped(a.state, a.timeline, phase)).first->second;
    add_skip(&skips, {phase, read_integer(rest, most, a.where)});
    most -= skips.back().sequences;
  }
  if (skips_text(skips) == text && std::ssize(skips) <= a.state.rollbacks) return skips;
  throw_error(Code::kCorrupt,
              "{} is \"{}\", wanted phases and sequences as in \"0:12 2:8\", of {} rollbacks",
              a.where, text, a.state.rollbacks);
}

}  // namespace

void write_state(const RunState& state, CheckpointInfo* info) {
  char loss[64];
  std::snprintf(loss, sizeof loss, "%a", state.loss);
  info->step = state.step;
  info->values["spike"] = state.spike.save();
  info->values["skips"] = skips_text(state.skips);
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
  const int64_t phase_last = static_cast<int64_t>(config.phases.size()) - 1;
  if (info.values.contains("skips")) {
    state.skips = read_skips(value("skips"), {state, timeline, phase_last,
                                              fmt::format("checkpoint step {}: skips", info.step)});
  } else {
    // Earlier versions kept those of one phase, and began the next as if there were none.
    const int64_t phase = integer("skip_phase", phase_last),
                  sequences = integer("skip_sequences", most_skipped(state, timeline, phase));
    const bool goes_on = info.step < timeline.steps() && timeline.at(info.step).phase <= phase;
    if (sequences > 0 && goes_on) state.skips = {{phase, sequences}};
  }
  // Earlier versions did not write it: what they wrote is taken as it is.
  state.verified_step =
      info.values.contains("verified_step") ? integer("verified_step", info.step) : info.step;
  state.loss = std::strtod(value("loss").c_str(), nullptr);
  return state;
}

}  // namespace moraine
