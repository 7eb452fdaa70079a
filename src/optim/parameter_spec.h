// ParameterSpec: what an optimizer knows of a parameter: a named range of a flat buffer.
//
// Weights, gradients and state live in flat f32 buffers of N elements; the model says which range
// is which and what rule moves it. The optimizers know no model.
#pragma once

#include <cstdint>
#include <string>

namespace moraine {

struct ParameterSpec {
  enum class Rule : uint8_t {
    kMuon,     // each of `matrices` rows x cols matrices is orthogonalised by itself
    kAdamW,    // element by element
    kBalance,  // balancing bias of the router: moved by token counts, not by a gradient
    kFrozen,   // left alone
  };
  std::string name;      // "layers.3.experts.down", unique
  int64_t offset = 0;    // first element in the flat buffers
  int64_t count = 0;     // elements
  int64_t matrices = 1;  // kMuon and kBalance: count == matrices * rows * cols
  int64_t rows = 0;
  int64_t cols = 0;
  Rule rule = Rule::kAdamW;
  bool weight_decay = false;
  double lr_scale = 1;
};

}  // namespace moraine
