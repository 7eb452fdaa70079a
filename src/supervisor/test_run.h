// What tests of the supervisor have in common: the options of a small run, and how it gets to a step.
#pragma once

#include <cstdint>
#include <string>
#include <utility>
#include <vector>

#include "supervisor/test_world.h"

namespace moraine::testing {

inline SuperviseOptions options_of(int64_t ranks, bool can_replace) {
  SuperviseOptions o;
  o.ranks = ranks;
  o.can_replace = can_replace;
  o.hang_seconds = 5;
  return o;
}

inline SuperviseOptions options_of_hosts(std::vector<std::string> hosts, int64_t spares) {
  SuperviseOptions options = options_of(4, true);
  options.hosts = std::move(hosts);
  options.spares = spares;
  return options;
}

inline void let_run(TestWorld& world, int64_t step) {
  while (world.step < step && world.now < 1e6 && !world.finished) world.pass();
}

}  // namespace moraine::testing
