// Operations: what one rank computes in one optimizer step, operation by operation, from numbers alone.
//
// The names, calls, flops and bytes are those that the kernels give to their profile (kernels/profile.h): of a run
// of one rank on whole sequences they are equal to what `bench train` counts (train/step_work_test.cc holds
// them to it, operation by operation). Rows that share a sequence, and rows that come from other ranks, are the
// mean over the ranks: their sum over all ranks is exact, of one rank it is not.
//
// Letters: docs/notation.md. Units: flops (a multiply-add counts two), bytes.
// Routing: every token goes to `experts_per_token` experts, evenly: none takes the skip class. `imbalance` is the
//          rows of the rank that has most, over the mean; it slows a step only where experts are divided.
// Cost:    microseconds, whatever the sizes.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "model/activations.h"  // Recompute
#include "model/config.h"
#include "parallel/context_attention.h"  // ContextVariant
#include "tensor/dtype.h"

namespace moraine {

// What an optimizer moves on the rank that has most to do.
struct OptimizerWork {
  double muon_flops = 0;
  int64_t muon_elements = 0, adamw_elements = 0;
  int64_t owned_elements = 0;  // whose gradients it squares for the norm
  int64_t momentum_bytes = 4;  // of an element
  // Calls of the optimizers that have any: of shared parameters, of experts.
  int64_t muon_calls = 1, adamw_calls = 1;
};

struct RankWork {
  ModelConfig model;
  DType compute = DType::kBF16;
  Recompute recompute = Recompute::kNone;
  int64_t slots = 1;          // of this rank
  int64_t micro_batches = 1;  // of a slot
  int64_t sequences = 1;      // of a micro-batch
  int64_t length = 0;         // positions of a sequence
  int64_t document = 0;       // positions of a document; 0: as long as the sequence
  int64_t context = 1, expert = 1;
  ContextVariant variant = ContextVariant::kAllGather;
  double imbalance = 1;
  int64_t parameters = 0, expert_parameters = 0;  // elements held here; of experts
  int64_t vector_parameters = 0;                  // that are in no matrix
  OptimizerWork optimizer;

  int64_t rows() const { return sequences * length / context; }  // of a micro-batch, here
  int64_t senders() const { return expert; }
};

// A product as the table of the machine file knows it (machine/products.h); groups == 0: no product.
struct ProductShape {
  bool is_weight = false;  // of backward: sums over rows
  int64_t rows = 0;        // of a group, the mean
  int64_t n = 0, k = 0, groups = 0;
  bool operator==(const ProductShape&) const = default;
};

struct StepOperation {
  std::string name;
  double calls = 0;
  double flops = 0, bytes = 0;  // of all calls
  ProductShape product = {};
};

// One row for each name and product shape, in the order in which a step comes to them first.
std::vector<StepOperation> step_operations(const RankWork& work);

}  // namespace moraine
