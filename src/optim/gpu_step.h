// GpuStep: the optimizers on a GPU: AdamW, Muon and Newton-Schulz with the arguments that they take on the CPU.
//
// Tensors lie in the memory of `gpu`. Formulas, shapes, types: adamw.h, muon.h, newton_schulz.h. Matrices are moved one
// after the other: muon's scratch is that of one thread.
//
// Order:    AdamW and the other passes over elements have the same bits for any split of a range, and on every target
//           (kernels/gpu/optimizer_passes.h). A matrix is a function of its own numbers: products with bf16 operands
//           have one result for each generation of GPUs, with f32 operands one on all (kernels/gpu/matmul.h).
// Cost:     as on the CPU; three launches of passes and 6 of products for each step of each matrix. Not tuned: many
//           small matrices do not fill a GPU.
#pragma once

namespace moraine {
struct AdamWStep;
struct MuonStep;
struct NewtonSchulz;
}  // namespace moraine

namespace moraine::gpu {

class Gpu;

void adamw_step(Gpu& gpu, const AdamWStep& a);
void newton_schulz(Gpu& gpu, const NewtonSchulz& a);
void muon_step(Gpu& gpu, const MuonStep& a);

}  // namespace moraine::gpu
