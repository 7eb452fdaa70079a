// KernelList: every kernel of this folder, for the CPU that plays a GPU.
#pragma once

#include "kernels/gpu/attention.cu"
#include "kernels/gpu/attention_backward.cu"
#include "kernels/gpu/attention_backward_rows.cu"
#include "kernels/gpu/attention_rows.cu"
#include "kernels/gpu/linear.cu"
#include "kernels/gpu/linear_weight.cu"
#include "kernels/gpu/matmul.cu"
#include "kernels/gpu/optimizer_passes.cu"
#include "kernels/gpu/residual_norm.cu"
#include "kernels/gpu/residual_norm_backward.cu"
#include "kernels/gpu/squares.cu"
#include "kernels/gpu/swiglu.cu"

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
};

}  // namespace MR_GPU_SPACE
}  // namespace moraine::gpu
