// DeadExperts: whether routing has collapsed.
//
// It has if a quarter of the experts of all layers had no token for 100 steps in a row, in steps with 16 tokens and
// more for each expert of a layer. A run's first steps leave experts without tokens for fewer (docs/model.md).
#pragma once

#include <cstdint>

namespace moraine {

class DeadExperts {
 public:
  DeadExperts(int64_t layers, int64_t experts) : layers_(layers), experts_(experts) {}
  // dead: (layer, expert) pairs without a token in a step of so many tokens. True once, when routing has collapsed;
  // again if it had come back meanwhile.
  bool add(int64_t dead, int64_t tokens);

 private:
  const int64_t layers_, experts_;
  int64_t steps_ = 0;
};

}  // namespace moraine
