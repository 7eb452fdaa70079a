// KernelList: every kernel of this folder, for the CPU that plays a GPU.
#pragma once

#include "kernels/gpu/attention.cu"
#include "kernels/gpu/attention_backward.cu"
#include "kernels/gpu/attention_backward_rows.cu"
#include "kernels/gpu/attention_rows.cu"
#include "kernels/gpu/cca_conv.cu"
#include "kernels/gpu/cross_entropy.cu"
#include "kernels/gpu/elementwise.cu"
#include "kernels/gpu/embedding.cu"
#include "kernels/gpu/expert_dispatch.cu"
#include "kernels/gpu/gelu.cu"
#include "kernels/gpu/linear.cu"
#include "kernels/gpu/linear_weight.cu"
#include "kernels/gpu/matmul.cu"
#include "kernels/gpu/move_rows.cu"
#include "kernels/gpu/optimizer_passes.cu"
#include "kernels/gpu/qk_norm_rope.cu"
#include "kernels/gpu/residual_norm.cu"
#include "kernels/gpu/residual_norm_backward.cu"
#include "kernels/gpu/router_choice.cu"
#include "kernels/gpu/router_state.cu"
#include "kernels/gpu/squares.cu"
#include "kernels/gpu/swiglu.cu"
#include "kernels/gpu/value_shift.cu"

namespace moraine::gpu {
inline namespace MR_GPU_SPACE {

inline const EmulatedEntry kKernelList[] = {
    MR_EMULATED(residual_norm_f32, ResidualNormArgs),
    MR_EMULATED(residual_norm_bf16, ResidualNormArgs),
    MR_EMULATED(residual_norm_along, ResidualNormBackwardArgs),
    MR_EMULATED(residual_norm_rows_f32, ResidualNormBackwardArgs),
    MR_EMULATED(residual_norm_rows_bf16, ResidualNormBackwardArgs),
    MR_EMULATED(residual_norm_sums, ResidualNormBackwardArgs),
    MR_EMULATED(swiglu_f32, SwigluArgs),
    MR_EMULATED(swiglu_bf16, SwigluArgs),
    MR_EMULATED(swiglu_backward_f32, SwigluBackwardArgs),
    MR_EMULATED(swiglu_backward_bf16, SwigluBackwardArgs),
    MR_EMULATED(linear_f32, LinearArgs),
    MR_EMULATED(linear_bf16, LinearArgs),
    MR_EMULATED(linear_bf16_to_f32, LinearArgs),
    MR_EMULATED(linear_weight_f32, LinearWeightArgs),
    MR_EMULATED(linear_weight_bf16, LinearWeightArgs),
    MR_EMULATED(matmul_f32, MatmulArgs),
    MR_EMULATED(matmul_bf16, MatmulArgs),
    MR_EMULATED(pack_f32, PackArgs),
    MR_EMULATED(pack_bf16, PackArgs),
    MR_EMULATED(squares_f32, SquaresArgs),
    MR_EMULATED(squares_bf16, SquaresArgs),
    MR_EMULATED(adamw, AdamWPassArgs),
    MR_EMULATED(momentum_f32, MomentumPassArgs),
    MR_EMULATED(momentum_bf16, MomentumPassArgs),
    MR_EMULATED(decay, DecayPassArgs),
    MR_EMULATED(normalise, NormalisePassArgs),
    MR_EMULATED(transpose, TransposePassArgs),
    MR_EMULATED(attention_64, AttentionArgs),
    MR_EMULATED(attention_128, AttentionArgs),
    MR_EMULATED(attention_rows_f32, AttentionArgs),
    MR_EMULATED(attention_rows_bf16, AttentionArgs),
    MR_EMULATED(attention_dq_64, AttentionBackwardArgs),
    MR_EMULATED(attention_dq_128, AttentionBackwardArgs),
    MR_EMULATED(attention_dkv_64, AttentionBackwardArgs),
    MR_EMULATED(attention_dkv_128, AttentionBackwardArgs),
    MR_EMULATED(attention_dq_rows_f32, AttentionBackwardArgs),
    MR_EMULATED(attention_dq_rows_bf16, AttentionBackwardArgs),
    MR_EMULATED(attention_dkv_rows_f32, AttentionBackwardArgs),
    MR_EMULATED(attention_dkv_rows_bf16, AttentionBackwardArgs),
    MR_EMULATED(attention_delta_f32, AttentionDeltaArgs),
    MR_EMULATED(attention_delta_bf16, AttentionDeltaArgs),
    MR_EMULATED(zero_elements, ZeroArgs),
    MR_EMULATED(add_into_f32, AddIntoArgs),
    MR_EMULATED(add_into_bf16, AddIntoArgs),
    MR_EMULATED(scale_f32, ScaleArgs),
    MR_EMULATED(scale_bf16, ScaleArgs),
    MR_EMULATED(round_copy_elements, RoundCopyArgs),
    MR_EMULATED(move_rows_elements, MoveRowsArgs),
    MR_EMULATED(embedding_f32, EmbeddingArgs),
    MR_EMULATED(embedding_bf16, EmbeddingArgs),
    MR_EMULATED(embedding_links, EmbeddingBackwardArgs),
    MR_EMULATED(embedding_sums_f32, EmbeddingBackwardArgs),
    MR_EMULATED(embedding_sums_bf16, EmbeddingBackwardArgs),
    MR_EMULATED(cca_conv_f32, CcaConvArgs),
    MR_EMULATED(cca_conv_bf16, CcaConvArgs),
    MR_EMULATED(qk_norm_rope_f32, QkNormRopeArgs),
    MR_EMULATED(qk_norm_rope_bf16, QkNormRopeArgs),
    MR_EMULATED(value_shift_f32, ValueShiftArgs),
    MR_EMULATED(value_shift_bf16, ValueShiftArgs),
    MR_EMULATED(value_shift_backward_f32, ValueShiftBackwardArgs),
    MR_EMULATED(value_shift_backward_bf16, ValueShiftBackwardArgs),
    MR_EMULATED(router_state_f32, RouterStateArgs),
    MR_EMULATED(router_state_bf16, RouterStateArgs),
    MR_EMULATED(gelu_f32, GeluArgs),
    MR_EMULATED(gelu_bf16, GeluArgs),
    MR_EMULATED(gelu_backward_f32, GeluBackwardArgs),
    MR_EMULATED(gelu_backward_bf16, GeluBackwardArgs),
    MR_EMULATED(router_choice_f32, RouterChoiceArgs),
    MR_EMULATED(dispatch_load, DispatchPlanArgs),
    MR_EMULATED(dispatch_place, DispatchPlanArgs),
    MR_EMULATED(dispatch_f32, DispatchArgs),
    MR_EMULATED(dispatch_bf16, DispatchArgs),
    MR_EMULATED(dispatch_backward_f32, DispatchBackwardArgs),
    MR_EMULATED(dispatch_backward_bf16, DispatchBackwardArgs),
    MR_EMULATED(combine_f32, CombineArgs),
    MR_EMULATED(combine_bf16, CombineArgs),
    MR_EMULATED(combine_backward_f32, CombineBackwardArgs),
    MR_EMULATED(combine_backward_bf16, CombineBackwardArgs),
    MR_EMULATED(cross_entropy_f32, CrossEntropyArgs),
    MR_EMULATED(cross_entropy_bf16, CrossEntropyArgs),
};

}  // namespace MR_GPU_SPACE
}  // namespace moraine::gpu
