// ShapePlans: widths, heads, experts and micro-batches for a budget, from what a machine does fast.
//
// ZAYA1's proportions, in steps that its sizing rules ask for (docs/plan.md):
//
//   hidden D           a multiple of 64, 24 to 96 times the layers' number
//   heads              head_dim 64, from D = 1,024 on 128; H * d = D / 2; K = H / 4, at least 1
//   expert_hidden      F = D; experts 4, 8, 16, 32
//   router_hidden      D / 8, a multiple of 32, at most 256
//   micro-batch        a divisor of a slot's sequences
//
// Quality is not modelled: at a budget of parameters shapes are ordered by the share of the machine's peak that a
// step reaches, at a budget of time by the parameters that a token uses, largest first.
// Errors: kInvalidArgument: no budget or two; nothing fits it: what the smallest takes.
// Cost:   a fraction of a second.
#pragma once

#include <vector>

#include "model/parameters.h"
#include "train/mesh_plans.h"

namespace moraine {

struct ShapeSearch {
  int64_t parameters = 0;  // in all, within 5 %; or
  double seconds = 0;      // of the whole run
  int64_t memory_bytes = 0;
};

struct ShapePlan {
  ModelConfig model;
  int64_t micro_sequences = 0;
  ParameterCount parameters = {};
  StepTime time = {};
  double peak_share = 0;  // flops of the operations / (seconds * peak)
  double run_seconds = 0;
  int64_t bytes = 0;  // of rank 0; planned for those that are returned
};

// Best first, at most ten. Ranks on the measured machine, on the config's own mesh.
std::vector<ShapePlan> plan_shapes(const RunConfig& config, const Machine& machine, int ranks,
                                   const ShapeSearch& search);

// The config with that shape.
RunConfig with_shape(const RunConfig& config, const ShapePlan& plan);

}  // namespace moraine
