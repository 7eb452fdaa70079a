// TrainingFlops: the floating-point operations that one token of training asks for, from the shape alone.
//
//   weights     6 for each weight that a token uses: 2 forward, 4 backward (the tied head included, one row of
//               the embedding not)
//   attention   12 * H * d for each visible key: q.k and p.v, forward and backward, mean over the positions of a
//               sequence; a sliding layer sees its window
//
// What is recomputed and what an optimizer needs do not count: this is what a model asks for, not what an
// implementation takes, so that models can be compared at equal compute.
// Source: the usual count (6 N and attention), as in reference figures of model flops utilisation.
#pragma once

#include "model/config.h"

namespace moraine {

// Per token, at sequences of `sequence` positions.
double training_flops(const ModelConfig& config, int64_t sequence);

}  // namespace moraine
