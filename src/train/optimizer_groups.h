// OptimizerGroups: the distributed optimizers of the two groups of parameters.
//
//   shared   what every rank has: divided among all ranks
//   experts  each rank has some: divided among the ranks that have the same (none if dense)
//
// Experts are dealt out first; the shared parameters then even out what the ranks have to do.
#pragma once

#include <memory>
#include <vector>

#include "parallel/ranks.h"
#include "train/buckets.h"
#include "train/distributed_optimizer.h"
#include "train/run_config.h"

namespace moraine {

class OptimizerGroups {
 public:
  // table: of what this rank holds.
  OptimizerGroups(Arena& arena, const RunConfig& config, const ParameterTable& table, Ranks& ranks,
                  int threads);

  // Those there are, in the order in which all ranks go through them.
  const std::vector<DistributedOptimizer*>& all() const { return all_; }

  // Parts of the flat gradient buffer to their owners, summed over ranks. Collective.
  // scratch: at least reduce_bytes(bucket).
  void reduce(const Tensor& gradients, const Bucket& bucket, Bytes scratch);
  int64_t reduce_bytes(const Bucket& bucket) const;
  // Those that other ranks have a part in.
  std::vector<Range> leaving(const Bucket& bucket) const;
  void reduce(Context& ctx, DeviceCollectives& links, const Tensor& gradients, const Bucket& bucket,
              const Tensor& scratch);

 private:
  std::unique_ptr<DistributedOptimizer> shared_, experts_;
  std::vector<DistributedOptimizer*> all_;
};

}  // namespace moraine
