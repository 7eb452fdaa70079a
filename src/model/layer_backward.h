// LayerBackward: one decoder layer, backward.
#pragma once

#include "model/layer_forward.h"

namespace moraine {

struct LayerBackward {
  const LayerPlace& place;
  const LayerWeights& w;
  const LayerGradients& g;  // added to
  const Batch& batch;       // without a cache
  const Boundary& below;
  const Boundary& above;
  const LayerActs& a;  // as layer_forward left it
  const BackwardScratch& b;
};

// In:  b.dx = gradient of above.x (through the next layer's or the head's use of it), b.dr = gradient of
//      above.r by the residual path, b.ds = gradient of above.s from the layer above (all zero on top).
// Out: the same of below.x, below.r, below.s, in the same buffers.
void layer_backward(Context& ctx, const LayerBackward& l);

}  // namespace moraine
