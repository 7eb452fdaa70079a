// DistributedOptimizer: the optimizer of parameters that a group of ranks holds alike (ZeRO-1).
//
//   reduce    every rank's gradients to the owner of each part, summed in the slot tree's order
//   step      the owner moves its part of the weights
//   gather    the moved weights back to every rank
//
// Ownership: optim/share.h. A group of one owns everything and sends nothing. Of a device, reduce works on what was
// staged in the host's memory (staging.h), take_reduced brings the owned part back, and gather stages by itself; or the
// device's links move both (parallel/device_collectives.h), in its order of work.
//
// Bytes on the wire, per rank of P: reduce and gather each (P-1)/P of 4 * parameters.
#pragma once

#include <memory>
#include <vector>

#include "comm/collectives.h"
#include "optim/optimizer.h"
#include "optim/share.h"
#include "train/staging.h"

namespace moraine {

struct DistributedOptimizerOptions {
  OptimizerOptions rules;
  int threads = 1;
  ReduceDType reduce_dtype = ReduceDType::kF32;  // of gradients
};

class DistributedOptimizer {
 public:
  // specs: of this group only, offsets in the whole flat buffer. costs: of the ranks of `comm`, by
  // what they own already; added to.
  DistributedOptimizer(Arena& arena, std::vector<ParameterSpec> specs,
                       const DistributedOptimizerOptions& options, Communicator& comm,
                       std::vector<double>& costs);

  // Part [begin, end) of the flat gradient buffer; all ranks pass the same parts in the same order.
  // scratch: at least reduce_bytes(part).
  void reduce(const Tensor& gradients, Range part, Bytes scratch);
  int64_t reduce_bytes(Range part) const;
  void reduce(Context& ctx, DeviceCollectives& links, const Tensor& gradients, Range part,
              const Tensor& scratch);
  void step(Context& ctx, const OptimizerStep& a);
  void take_reduced(Context& ctx, const Tensor& gradients, Staging& staging);
  void gather(Context& ctx, const Tensor& weights, const DeviceWay& way);

  bool is_divided() const { return comm_->size() > 1; }  // among ranks
  const std::vector<ParameterSpec>& specs() const { return specs_; }
  const std::vector<OwnedRange>& owned() const { return owned_; }
  std::vector<OptimizerTensor> state() const { return optimizer_->state(); }
  AdamWMemory adamw_memory(const Tensor& weights) const {
    return optimizer_->adamw_memory(weights);
  }

 private:
  const std::vector<Range>& share() const { return shares_[static_cast<size_t>(comm_->rank())]; }

  std::vector<ParameterSpec> specs_;
  DistributedOptimizerOptions options_;
  Communicator* comm_;
  Shares shares_;                  // of every member
  std::vector<OwnedRange> owned_;  // here
  std::unique_ptr<Optimizer> optimizer_;
};

}  // namespace moraine
