// GpuStep: the passes of kernels/gpu, in the order of the optimizers.
#include "optim/gpu_step.h"

#include <vector>

#include "kernels/gpu/matmul.h"
#include "kernels/gpu/optimizer_passes.h"
#include "kernels/linear.h"
#include "optim/adamw.h"
#include "optim/flat_math.h"
#include "optim/muon.h"

namespace moraine::gpu {
namespace {

static_assert(kNormalisePiece == kNormBlock, "the scratch has room for as many sums");

void update_matrix(Gpu& gpu, const MuonStep& a, const MuonMatrix& matrix) {
  const MuonPasses p = muon_passes(a, matrix, a.scratch.as<uint8_t>());
  const MomentumBlock& b = p.momentum;
  momentum_pass(gpu,
                {.out = b.out,
                 .momentum = b.momentum,
                 .g = b.g,
                 .n = b.n,
                 .g_scale = b.g_scale,
                 .mu = b.mu,
                 .nesterov = b.nesterov},
                b.momentum_dtype == DType::kBF16);
  float *standing = p.standing.as<float>(), *x = p.newton_schulz.x.as<float>();
  const int64_t rows = matrix.rows, cols = matrix.cols;
  if (p.tall) transpose_pass(gpu, {.out = x, .in = standing, .rows = rows, .cols = cols});
  newton_schulz(gpu, p.newton_schulz);
  if (p.tall) transpose_pass(gpu, {.out = standing, .in = x, .rows = cols, .cols = rows});
  decay_pass(gpu, {.w = p.w, .x = standing, .n = b.n, .keep = p.keep, .rate = p.rate});
}

}  // namespace

void adamw_step(Gpu& gpu, const AdamWStep& a) {
  if (a.ranges.empty()) return;
  check_adamw(a);
  MR_CHECK(a.seen == nullptr);
  std::vector<AdamWPiece> pieces;
  AdamWBlock b = {};
  int64_t end = 0;
  for (const AdamWRange& range : a.ranges) {
    b = adamw_block_of(a, range, 0, range.count);
    end += range.count;
    pieces.push_back(
        {.w = b.w, .m = b.m, .v = b.v, .g = b.g, .end = end, .keep = b.keep, .rate = b.rate});
  }
  adamw_pass(gpu, {.pieces = pieces.data(),
                   .num_pieces = static_cast<int64_t>(pieces.size()),
                   .count = end,
                   .g_scale = b.g_scale,
                   .beta1 = b.beta1,
                   .one_minus_beta1 = b.one_minus_beta1,
                   .beta2 = b.beta2,
                   .one_minus_beta2 = b.one_minus_beta2,
                   .m_correction = b.m_correction,
                   .v_correction = b.v_correction,
                   .eps = b.eps});
}

void newton_schulz(Gpu& gpu, const NewtonSchulz& a) {
  const NewtonSchulzNorm norm = newton_schulz_norm(a.kind);
  normalise_pass(
      gpu,
      {.x = a.x.as<float>(), .sums = nullptr, .n = a.x.count(), .gain = norm.gain, .eps = norm.eps},
      newton_schulz_rooms(a).sums);
  newton_schulz_products(a, [&](const MatmulNT& product) { matmul_nt(gpu, product); });
}

void muon_step(Gpu& gpu, const MuonStep& a) {
  if (a.matrices.empty()) return;
  check_muon(a, 1);
  for (const MuonMatrix& matrix : a.matrices) {
    if (matrix.rows * matrix.cols > 0) update_matrix(gpu, a, matrix);
  }
}

}  // namespace moraine::gpu
