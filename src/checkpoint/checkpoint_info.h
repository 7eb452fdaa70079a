// CheckpointInfo: what a checkpoint says of its run beside tensors.
#pragma once

#include <cstdint>
#include <map>
#include <string>

namespace moraine {

// State that is not a tensor.
struct CheckpointInfo {
  int64_t step = 0;                           // optimizer steps completed
  int64_t tokens_seen = 0;                    // tokens consumed by all ranks together
  uint64_t seed = 0;                          // with step, fixes every random draw
  std::map<std::string, std::string> values;  // small named strings of the training loop
  std::string config;                         // the effective config, as text
};

}  // namespace moraine
