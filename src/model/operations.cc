// Operations: forward, then what options add.
#include "model/operations.h"

namespace moraine {
namespace {

using Names = std::vector<const char*>;

void add(Names& names, const Names& more) { names.insert(names.end(), more.begin(), more.end()); }

void add_training(Names& names, const ModelConfig& c) {
  add(names, {"linear_backward_input", "linear_backward_weight", "embedding_backward",
              "attention_backward", "residual_norm_backward", "qk_norm_rope_backward",
              "value_shift_backward", "swiglu_backward"});
  if (c.cca())
    add(names,
        {"cca_conv_backward", "grouped_linear_backward_input", "grouped_linear_backward_weight"});
  if (c.dense()) return;
  add(names, {"router_choice_backward", "dispatch_backward", "combine_backward"});
  if (c.zaya_router()) add(names, {"router_state_backward", "gelu_backward"});
}

}  // namespace

std::vector<const char*> operations_of(const ModelConfig& c, const ModelOptions& o) {
  Names names = {"linear_forward",       "residual_norm_forward", "rope_table",
                 "qk_norm_rope_forward", "value_shift_forward",   "attention_forward",
                 "swiglu_forward",       "cross_entropy",         "move_rows"};
  if (o.packed != nullptr) {
    add(names, {"embedding_packed_forward"});
  } else {
    add(names, {"embedding_forward", "pack_matrix", "round_copy"});
  }
  if (c.cca()) add(names, {"cca_conv_forward", "grouped_linear_forward"});
  if (!c.dense()) {
    add(names, {"router_choice_forward", "dispatch_plan", "dispatch_forward",
                "grouped_linear_forward", "combine_forward"});
    if (c.zaya_router()) add(names, {"router_state_forward", "gelu_forward"});
  }
  if (o.coarse_head) add(names, {"linear_forward_panels"});
  if (o.context != nullptr) add(names, {"attention_part_forward", "attention_merge"});
  if (o.cache_ranks != nullptr) add(names, {"tree_attention"});
  if (o.training) add_training(names, c);
  if (o.training && o.context != nullptr)
    add(names, {"attention_delta", "attention_part_backward"});
  return names;
}

}  // namespace moraine
