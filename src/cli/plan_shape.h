// PlanShape: `moraine plan shape`: shapes for a budget on this machine, what near misses cost, and a config.
#pragma once

#include <cstdint>
#include <string>

#include "cli/flags.h"
#include "train/run_config.h"

namespace moraine {

struct PlanShapeFlags {
  int64_t parameters = 0;
  double hours = 0;
  std::string out;
  bool no_measure = false, overwrite = false;
};
void declare_plan_shape(Flags& flags, PlanShapeFlags* f);

struct ShapeAsked {
  std::string machine_file;
  double memory_gib = 0;
  int ranks = 1;
  bool json = false;
};
// On stdout, and the config of the first shape in `out`. config: with vocabulary and type settled.
// Errors: those of plan_shapes (train/shape_plans.h); kInvalidArgument: `out` is there, and not `overwrite`.
void print_plan_shape(const PlanShapeFlags& f, const RunConfig& config, const ShapeAsked& asked);

}  // namespace moraine
