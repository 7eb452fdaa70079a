// ContentHash: one number for all tensors of a checkpoint, whatever files they are cut into.
//
// XXH3-128 of a text: `step <n>\n` if there is a step, then one line for each tensor in name order,
//
//   "<name as JSON string>" f32 [4, 64] <XXH3-128 of the tensor's bytes, 32 hex digits>\n
#pragma once

#include <cstdint>
#include <span>
#include <string_view>

#include "base/hash.h"

namespace moraine {

class ContentHash {
 public:
  void add_step(int64_t step);
  // In name order. `type` is dtype_name, or what a weight file calls a type that is none of ours.
  void add_tensor(std::string_view name, std::string_view type, std::span<const int64_t> shape,
                  const Hash128& bytes_hash);
  Hash128 digest() const { return hasher_.digest(); }

 private:
  Hasher hasher_;
};

}  // namespace moraine
