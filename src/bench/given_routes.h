// GivenRoutes: an observer that decides where rows go, and how slow a rank is in its experts.
//
// Experts of a token are drawn by shares, without repetition: a function of (layer, step, rank, row).
#pragma once

#include <vector>

#include "model/forward_observer.h"

namespace moraine {

// The k-th of `experts` has weight 1 / k^s.
std::vector<double> zipf_weights(int64_t experts, double s);

class GivenRoutes : public ForwardObserver {
 public:
  GivenRoutes(int64_t layers, int64_t experts, int rank);

  // Weights of the experts of every layer, each layer in an order of its own.
  void set_weights(const std::vector<double>& weights);
  // The same, in the order of the experts.
  void set_ordered_weights(const std::vector<double>& weights);
  void set_step(int64_t step) { step_ = step; }
  // Computing takes so many times as long; 1: as long as it takes.
  void set_slowness(double times) { slowness_ = times; }

  // Shares of a layer's experts.
  std::vector<double> shares(int64_t layer) const;
  // Rows of the busiest of so many ranks over their mean, at least, while no expert has replicas: the most that one
  // expert has. Mean over layers.
  double floor_over_mean(int64_t ranks) const;

  void reads(int64_t, ServedMatrix, const Tensor&, std::span<const int64_t>) override {}
  void chooses(int64_t, const Tensor&) override {}
  void route(int64_t layer, const Tensor& expert) override;
  void computed(int64_t layer, double seconds) override;

 private:
  std::vector<std::vector<double>> until_;  // [layers][experts] running sums of shares, to 1
  int rank_;
  int64_t step_ = 0;
  double slowness_ = 1;
};

}  // namespace moraine
