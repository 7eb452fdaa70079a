// GradientNorm: the sum of squares of the whole gradient, in an order that no mesh changes.
//
//   blocks of kShareBlock elements from the start of each matrix (each expert by itself) or
//   parameter; every block is squared by its owner; the sums are added block after block: shared
//   parameters in the order of the table, then the experts, by parameter and expert.
#pragma once

#include <vector>

#include "comm/collectives.h"
#include "kernels/elementwise.h"
#include "model/parameters.h"
#include "optim/share.h"

namespace moraine {

class GradientNorm {
 public:
  explicit GradientNorm(const ParameterTable& table);

  // Adds what this rank owns of a list of parameters.
  void own(const std::vector<ParameterSpec>& specs, const std::vector<OwnedRange>& owned);

  // Collective.
  double sum_of_squares(Context& ctx, const Tensor& gradients, Communicator& world);

 private:
  struct Place {        // of a parameter's blocks among all
    int64_t first = 0;  // of its expert 0
    int64_t per_unit = 0;
    int64_t unit_begin = 0;  // the first expert held here
  };
  const ParameterTable* table_;
  std::vector<Place> places_;         // by parameter of the table
  std::vector<double> all_;           // every block of the gradient
  std::vector<ElementRange> ranges_;  // this rank's, and where each belongs
  std::vector<int64_t> index_;
  std::vector<double> sums_;
};

}  // namespace moraine
