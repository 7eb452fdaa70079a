// Spike: notices a step whose loss is out of line, from a running mean and deviation.
//
//   mean += (x - mean) / n                    variance alike; n = min(steps seen, kWindow): an
//                                             exponential average that starts as a plain one
//   bad    loss or norm is not finite, or (sigma > 0, after kWarm steps) loss > mean + sigma * deviation
//
// Bad steps do not enter the averages.
//
// The state is a few numbers, kept in checkpoints as exact text, so that a resumed run decides the
// same.
#pragma once

#include <cstdint>
#include <string>

namespace moraine {

class SpikeDetector {
 public:
  static constexpr int64_t kWindow = 128, kWarm = 32;

  explicit SpikeDetector(double sigma) : sigma_(sigma) {}

  // True: the step is bad. Counts it, or learns from it.
  bool observe(double loss, double gradient_norm);

  double z_score() const { return z_; }  // of the last loss; 0 while warming up
  int64_t bad_in_a_row() const { return bad_in_a_row_; }
  void forget_bad() { bad_in_a_row_ = 0; }

  std::string save() const;
  void restore(const std::string& text);  // kCorrupt if it is not what save wrote

 private:
  double sigma_, mean_ = 0, variance_ = 0, z_ = 0;
  int64_t seen_ = 0, bad_in_a_row_ = 0;
};

}  // namespace moraine
