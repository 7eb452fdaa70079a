// Optimizer: moves every parameter by its rule, once per step.
//
// Built from the model's list of parameters; takes its state and scratch from the arena by name, so
// that a dry arena plans it. State of a rule is one flat buffer: Muon's momentum matrix after
// matrix, AdamW's m and v range after range, in the order of the list.
//
// A rank that owns only a share of the state (ZeRO-1) passes an OptimizerShare: it keeps state for,
// and moves, only those matrices and that slice of AdamW's elements; the bits are those of the
// whole step. Balancing biases are moved by every rank (same counts, same bits).
//
// Types:    weights, gradients f32; state f32 (momentum: bf16 by option).
// Order:    see muon.h, adamw.h, balance.h: no bit depends on threads or shares.
// Errors:   check_options: kInvalidArgument. A bad parameter list is the caller's bug.
// Threads:  one step at a time.
// On a GPU: everything but `load` is in its memory (gpu_step.h); balancing biases, a few hundred numbers, are moved by
//           the host, as on the CPU, and copied back.
#pragma once

#include <cstdint>
#include <span>
#include <string>
#include <vector>

#include "optim/adamw.h"
#include "optim/balance.h"
#include "optim/muon.h"
#include "optim/parameter_spec.h"
#include "tensor/arena.h"

namespace moraine {

struct OptimizerOptions {
  MuonOptions muon;
  AdamWOptions adamw;
  BalanceOptions balance;
};

// Errors: kInvalidArgument: names the option, what was found and what is allowed.
void check_options(const OptimizerOptions& options);

// The parameter list, as the rules see it: what a share is a share of.
struct OptimizerLayout {
  std::vector<MuonMatrix> matrices;   // momentum_offset: matrix after matrix
  std::vector<int64_t> matrix_spec;   // [matrices] index of the parameter it belongs to
  std::vector<AdamWRange> ranges;     // state_offset: range after range
  std::vector<int64_t> range_spec;    // [ranges]
  std::vector<int64_t> balance_spec;  // parameters with balancing biases
  int64_t momentum_elements = 0, adamw_elements = 0;
  int64_t balance_rows = 0, balance_cols = 0;  // of all of them together; rows as `load`
};
OptimizerLayout optimizer_layout(std::span<const ParameterSpec> specs);

struct OptimizerShare {
  bool everything = true;                  // then the rest is not looked at
  std::vector<int64_t> matrices = {};      // indices into OptimizerLayout::matrices, ascending
  int64_t adamw_begin = 0, adamw_end = 0;  // of AdamW's elements, ranges laid end to end
};

// One state tensor, named "<parameter>.momentum", "<parameter>.m" or "<parameter>.v".
struct OptimizerTensor {
  std::string name;
  Tensor tensor;  // a view of the state; all of the parameter's, or the part this share has
  int64_t element_begin = 0;  // of the parameter, where `tensor` starts
  int64_t elements_all = 0;   // of the parameter; == tensor.count() unless it is a part
};

struct OptimizerStep {
  Tensor weights;    // [N] f32 in and out
  Tensor gradients;  // [N] f32 in
  Tensor load;  // [layers, classes] i64 in: tokens per class, global; empty if nothing balances
  double gradient_scale;      // 1 / targets, times the clip factor (clip.h)
  double lr_scale;            // of the schedule; the balancing rate does not follow it
  int64_t step;               // 1 for the first
  AdamWSeen* seen = nullptr;  // as of AdamWStep
};

class Optimizer {
 public:
  // `threads`: of the pools that step() will be called with, at most.
  Optimizer(std::span<const ParameterSpec> specs, const OptimizerOptions& options, int threads,
            Arena& arena, const OptimizerShare& share = {});

  void step(Context& ctx, const OptimizerStep& a);

  // In the order of the list. Restoring is writing into these views.
  std::vector<OptimizerTensor> state() const;
  double flops() const;  // of one step's products
  AdamWMemory adamw_memory(const Tensor& weights) const {
    return {.weights = weights, .m = m_, .v = v_, .ranges = layout_.ranges};
  }

 private:
  void balance(Context& ctx, const OptimizerStep& a);

  std::vector<ParameterSpec> specs_;
  OptimizerOptions options_;
  OptimizerLayout layout_;        // with offsets into this share's state
  Tensor momentum_;               // [elements of the owned matrices]
  Tensor m_, v_;                  // [elements of the owned slices]
  Tensor balance_m_, balance_v_;  // [rows, classes]
  // Of the biases and of these, where the host reads and writes: without a device the same memory.
  Tensor bias_host_, balance_m_host_, balance_v_host_;  // bias: empty without a device
  Tensor scratch_;
};

// One line per kind of parameter (layer numbers folded): rule, tensors, elements, learning rate,
// decay.
std::string optimizer_table(std::span<const ParameterSpec> specs, const OptimizerOptions& options);

}  // namespace moraine
