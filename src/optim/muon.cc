// Muon: small matrices first, one per task; then large ones, each on all threads.
#include "optim/muon.h"

#include <algorithm>
#include <cmath>
#include <vector>

#include "kernels/check_tensor.h"
#include "optim/flat_math.h"
#include "optim/gpu_step.h"

namespace moraine {
namespace {

constexpr double kAdamWRms = 0.2;    // Moonlight section 2.2
constexpr int64_t kBlock = 1 << 15;  // elements moved by one task
// Up to 1024 x 1024: X and its scratch stay near one core.
constexpr int64_t kSmallElements = 1 << 20;

bool is_small(const MuonMatrix& matrix) { return matrix.rows * matrix.cols <= kSmallElements; }
int64_t padded(int64_t bytes) { return (bytes + 63) / 64 * 64; }

// X, of a tall matrix also the matrix as it stands, and what Newton-Schulz needs.
struct Layout {
  bool tall;
  int64_t m, n, matrix_bytes, newton_schulz_bytes;
  Layout(const MuonMatrix& matrix, DType compute)
      : tall(matrix.rows > matrix.cols),
        m(std::min(matrix.rows, matrix.cols)),
        n(std::max(matrix.rows, matrix.cols)),
        matrix_bytes(padded(m * n * 4)),
        newton_schulz_bytes(padded(newton_schulz_scratch_bytes(m, n, compute))) {}
  int64_t matrices_bytes() const { return (tall ? 2 : 1) * matrix_bytes; }
  int64_t bytes() const { return matrices_bytes() + newton_schulz_bytes; }
};

template <class F>
void for_blocks(Context& ctx, int64_t count, const F& f) {
  ctx.pool->parallel_for((count + kBlock - 1) / kBlock, [&](int64_t block, int) {
    f(block * kBlock, std::min(kBlock, count - block * kBlock));
  });
}

void update_matrix(Context& ctx, const MuonStep& a, const MuonMatrix& matrix, uint8_t* scratch) {
  const MuonPasses p = muon_passes(a, matrix, scratch);
  const int64_t momentum_bytes = dtype_bytes(a.momentum.dtype);
  for_blocks(ctx, p.momentum.n, [&](int64_t begin, int64_t n) {
    MomentumBlock block = p.momentum;
    block.out += begin;
    block.momentum = static_cast<uint8_t*>(block.momentum) + begin * momentum_bytes;
    block.g += begin;
    block.n = n;
    momentum_block(block);
  });
  if (p.tall) transpose(ctx, p.newton_schulz.x, p.standing);
  newton_schulz(ctx, p.newton_schulz);
  if (p.tall) transpose(ctx, p.standing, p.newton_schulz.x);
  const float* x = p.standing.as<float>();
  for_blocks(ctx, p.momentum.n, [&](int64_t begin, int64_t n) {
    decay_and_subtract_block(p.w + begin, x + begin, n, p.keep, p.rate);
  });
}

struct ScratchPlan {
  int64_t small_bytes = 0;  // of one worker
  int64_t large_bytes = 0;
};

ScratchPlan plan_scratch(std::span<const MuonMatrix> matrices, DType compute) {
  ScratchPlan plan;
  for (const MuonMatrix& matrix : matrices) {
    int64_t& bytes = is_small(matrix) ? plan.small_bytes : plan.large_bytes;
    bytes = std::max(bytes, Layout(matrix, compute).bytes());
  }
  return plan;
}

}  // namespace

int64_t muon_scratch_bytes(std::span<const MuonMatrix> matrices, DType compute, int threads) {
  const ScratchPlan plan = plan_scratch(matrices, compute);
  return std::max(plan.small_bytes * threads, plan.large_bytes);
}

double muon_flops(int64_t rows, int64_t cols, int ns_steps) {
  return newton_schulz_flops(std::min(rows, cols), std::max(rows, cols), ns_steps);
}

MuonPasses muon_passes(const MuonStep& a, const MuonMatrix& matrix, uint8_t* scratch) {
  const Layout layout(matrix, a.options.ns_dtype);
  const Tensor x = make_tensor(scratch, DType::kF32, {layout.m, layout.n});
  const Tensor standing = layout.tall ? make_tensor(scratch + layout.matrix_bytes, DType::kF32,
                                                    {matrix.rows, matrix.cols})
                                      : x;
  uint8_t* const momentum = static_cast<uint8_t*>(a.momentum.data) +
                            matrix.momentum_offset * dtype_bytes(a.momentum.dtype);
  const double lr = a.lr * matrix.lr_scale;
  const double decay = matrix.weight_decay ? a.options.weight_decay : 0;
  return {.momentum = {.out = standing.as<float>(),
                       .momentum = momentum,
                       .g = a.gradients.as<float>() + matrix.offset,
                       .n = matrix.rows * matrix.cols,
                       .momentum_dtype = a.momentum.dtype,
                       .g_scale = static_cast<float>(a.gradient_scale),
                       .mu = static_cast<float>(a.options.momentum),
                       .nesterov = a.options.nesterov},
          .standing = standing,
          .tall = layout.tall,
          .newton_schulz = {.x = x,
                            .scratch = make_tensor(scratch + layout.matrices_bytes(), DType::kU8,
                                                   {layout.newton_schulz_bytes}),
                            .kind = a.options.coefficients,
                            .steps = a.options.ns_steps,
                            .compute = a.options.ns_dtype},
          .w = a.weights.as<float>() + matrix.offset,
          .keep = static_cast<float>(1 - lr * decay),
          .rate = static_cast<float>(lr * kAdamWRms * std::sqrt(static_cast<double>(layout.n)))};
}

void check_muon(const MuonStep& a, int threads) {
  check_dtype(a.weights, "weights", DType::kF32);
  check_tensor(a.gradients, "gradients", DType::kF32, {a.weights.dims[0]});
  check_dtype(a.scratch, "scratch", DType::kU8);
  MR_CHECK(a.scratch.bytes() >= muon_scratch_bytes(a.matrices, a.options.ns_dtype, threads),
           "scratch has %ld bytes", long(a.scratch.bytes()));
  for (const MuonMatrix& matrix : a.matrices) {
    const int64_t count = matrix.rows * matrix.cols;
    MR_CHECK(matrix.offset >= 0 && matrix.offset + count <= a.weights.count());
    MR_CHECK(matrix.momentum_offset >= 0 && matrix.momentum_offset + count <= a.momentum.count());
  }
}

void muon_step(Context& ctx, const MuonStep& a) {
  if (a.matrices.empty()) return;
  const DType compute = a.options.ns_dtype;
  const int threads = ctx.backend == Backend::kGpu ? 1 : ctx.pool->threads();
  check_muon(a, threads);
  double flops = 0, elements = 0;
  std::vector<int64_t> small, large;
  for (size_t i = 0; i < a.matrices.size(); ++i) {
    const MuonMatrix& matrix = a.matrices[i];
    const int64_t count = matrix.rows * matrix.cols;
    if (count == 0) continue;
    flops += muon_flops(matrix.rows, matrix.cols, a.options.ns_steps);
    elements += static_cast<double>(count);
    (is_small(matrix) ? small : large).push_back(static_cast<int64_t>(i));
  }
  const OpTimer timer(ctx.profile, "muon", flops,
                      elements * (16.0 + 2.0 * dtype_bytes(a.momentum.dtype)));
  if (ctx.backend == Backend::kGpu) return gpu::muon_step(*ctx.gpu, a);
  uint8_t* scratch = a.scratch.as<uint8_t>();
  Context inner = ctx;
  // This timer counts the products already, and a profile may be used by one thread only.
  inner.profile = nullptr;

  if (static_cast<int64_t>(small.size()) < 2 * threads) {  // too few tasks to fill the threads
    large.insert(large.end(), small.begin(), small.end());
    small.clear();
  }
  // Longest first, so that the threads end together.
  std::stable_sort(small.begin(), small.end(), [&](int64_t i, int64_t j) {
    const MuonMatrix &x = a.matrices[static_cast<size_t>(i)],
                     &y = a.matrices[static_cast<size_t>(j)];
    return muon_flops(x.rows, x.cols, 1) > muon_flops(y.rows, y.cols, 1);
  });
  const int64_t small_bytes = plan_scratch(a.matrices, compute).small_bytes;
  Pool alone(1);  // runs on whichever thread calls it; has no threads and no state of its own
  ctx.pool->parallel_for(static_cast<int64_t>(small.size()), [&](int64_t task, int worker) {
    Context own = inner;
    own.pool = &alone;
    own.scratch = ctx.scratch.rows(worker, worker + 1);
    const int64_t index = small[static_cast<size_t>(task)];
    update_matrix(own, a, a.matrices[static_cast<size_t>(index)], scratch + worker * small_bytes);
  });
  for (const int64_t index : large)
    update_matrix(inner, a, a.matrices[static_cast<size_t>(index)], scratch);
}

}  // namespace moraine
