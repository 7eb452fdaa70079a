// Operations: the list.
#include "kernels/gpu/operations.h"

#include <algorithm>
#include <string>

#include "base/error.h"

namespace moraine::gpu {
namespace {

constexpr std::string_view kOperations[] = {"pack_matrix",
                                            "linear_forward",
                                            "grouped_linear_forward",
                                            "linear_backward_input",
                                            "linear_backward_weight",
                                            "grouped_linear_backward_input",
                                            "grouped_linear_backward_weight",
                                            "embedding_forward",
                                            "embedding_packed_forward",
                                            "embedding_backward",
                                            "residual_norm_forward",
                                            "residual_norm_backward",
                                            "cca_conv_forward",
                                            "cca_conv_backward",
                                            "qk_norm_rope_forward",
                                            "qk_norm_rope_backward",
                                            "rope_table",
                                            "value_shift_forward",
                                            "value_shift_backward",
                                            "attention_forward",
                                            "attention_backward",
                                            "attention_delta",
                                            "attention_part_forward",
                                            "attention_merge",
                                            "attention_part_backward",
                                            "router_state_forward",
                                            "router_state_backward",
                                            "gelu_forward",
                                            "gelu_backward",
                                            "router_choice_forward",
                                            "router_choice_backward",
                                            "dispatch_plan",
                                            "dispatch_forward",
                                            "dispatch_backward",
                                            "swiglu_forward",
                                            "swiglu_backward",
                                            "combine_forward",
                                            "combine_backward",
                                            "cross_entropy",
                                            "zero",
                                            "add_into",
                                            "scale",
                                            "round_copy",
                                            "squares_of_ranges",
                                            "all_finite",
                                            "move_rows"};

}  // namespace

bool has_operation(std::string_view name) {
  return std::find(std::begin(kOperations), std::end(kOperations), name) != std::end(kOperations);
}

void require_operations(std::span<const char* const> names, std::string_view who) {
  std::string missing;
  for (const char* name : names) {
    if (!has_operation(name)) missing += (missing.empty() ? "" : ", ") + std::string(name);
  }
  if (missing.empty()) return;
  throw_error(Code::kInvalidArgument,
              "{} on a GPU: no kernel for {} yet (docs/gpu.md); use --device cpu", who, missing);
}

}  // namespace moraine::gpu
