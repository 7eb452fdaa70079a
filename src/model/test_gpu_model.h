// TestGpuModel: a golden file's model on an emulated GPU that counts what goes to it and comes from it.
#pragma once

#include <cmath>
#include <memory>
#include <optional>

#include "kernels/gpu/gpu_arena_memory.h"
#include "kernels/gpu/runtime.h"
#include "kernels/gpu/test_gpu_rig.h"
#include "kernels/host_copy.h"
#include "model/model.h"
#include "model/test_golden.h"

namespace moraine::testing {

// Roundings to bf16 of what one token's row goes through in a layer: x, qkv, pair, z, q or k, v, weights, o, h, x2,
// router (5), gate_up, act, y, h2; each of at most 2^-8, independent, so their squares add up. Twice: the CPU has its
// own.
inline double bf16_tolerance(int64_t layers) {
  return 0x1p-8 * std::sqrt(2.0 * 19.0 * double(layers));
}

// Of gradients: as many roundings again on the way back: dh, dye, dact, dgate_up, dxe, dlogits, router (6), dh, do, dq
// or dk, dv, dz, dpair, dqkv. They are independent, so what they are beside a gradient is what its parts are, a part
// for each target; of a tensor with few entries, beside each of them.
inline double bf16_gradient_tolerance(int64_t layers) {
  return 0x1p-8 * std::sqrt(2.0 * 38.0 * double(layers));
}

// An emulated GPU that counts what goes to it and comes from it.
class CountingGpu final : public gpu::Gpu {
 public:
  explicit CountingGpu(const gpu::Emulation& e) : gpu_(gpu::test_gpu(e)) {}
  std::string name() const override { return gpu_->name(); }
  int wave() const override { return gpu_->wave(); }
  void* take(int64_t bytes) override { return ++takes, gpu_->take(bytes); }
  void give_back(void* memory) override { gpu_->give_back(memory); }
  bool holds(const void* memory) const override { return gpu_->holds(memory); }
  void copy_in(void* device, const void* host, int64_t bytes) override {
    ++copies_in;
    gpu_->copy_in(device, host, bytes);
  }
  void copy_out(void* host, const void* device, int64_t bytes) override {
    ++copies_out;
    gpu_->copy_out(host, device, bytes);
  }
  void clear(void* device, int64_t bytes) override { gpu_->clear(device, bytes); }
  void launch(const char* kernel, const gpu::Grid& grid, const void* arguments) override {
    ++launches;
    gpu_->launch(kernel, grid, arguments);
  }
  void wait() override { ++waits; }

  int takes = 0, copies_in = 0, copies_out = 0, launches = 0, waits = 0;

 private:
  const std::unique_ptr<gpu::Gpu> gpu_;
};

// A model of f32 weights that are the host's, or of a golden file, on a GPU.
struct GpuModel {
  GpuModel(const ModelConfig& config, const Tensor& weights, const gpu::Emulation& e,
           const ModelOptions& options)
      : gpu(e),
        memory(gpu),
        arena(Arena::Mode::kReal, &memory),
        pool(1),
        ctx(make_context(gpu, pool)) {
    const Tensor there = arena.take("weights.master", "weights", DType::kF32, {weights.count()});
    copy_in(ctx, there, weights);
    model.emplace(arena, config, options, there);
    model->refresh(ctx);
  }
  GpuModel(GoldenFile& file, const gpu::Emulation& e, DType compute, bool training = false,
           Recompute recompute = Recompute::kNone)
      : GpuModel(file.directory.config(), file.weights, e,
                 {.compute = compute,
                  .tokens = file.token.count(),
                  .positions = 64,
                  .training = training,
                  .recompute = recompute}) {}
  Tensor logits(Rig& rig, const Batch& batch) {
    return rig.copy(model->logits(ctx, model->forward(ctx, batch)));
  }

  CountingGpu gpu;
  gpu::GpuArenaMemory memory;
  Arena arena;
  Pool pool;
  Context ctx;
  std::optional<Model> model;
};

}  // namespace moraine::testing
