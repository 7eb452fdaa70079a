// A model's backward pass on an emulated GPU: fails if a gradient is not the public implementation's, if it depends on
// the wave, on the order of threads or on recomputation, if a generation has more than one result, or if a layer waits
// for the host.
#include <gtest/gtest.h>

#include <cmath>

#include "kernels/gpu/test_gpu_rig.h"
#include "model/test_golden_gradients.h"
#include "model/test_gpu_model.h"

namespace moraine {
namespace {

using namespace testing;
using gpu::Emulation;
using gpu::MatrixRule;
using gpu::ThreadOrder;

// What a backward pass leaves, in the host's memory.
struct Passed {
  double loss;
  Tensor gradients, load;
};

Passed backward(GoldenFile& file, GpuModel& on, int64_t documents = 0) {
  const Batch batch = file.batch(documents);
  const ModelConfig& c = on.model->config();
  const Tensor there =
      on.arena.take("gradients.slot", "gradients", DType::kF32, {file.weights.count()});
  Passed p{.loss = 0,
           .gradients = file.rig.zeros({file.weights.count()}, DType::kF32),
           .load = file.rig.zeros({c.layers, c.classes()}, DType::kI64)};
  p.loss = on.model->loss_and_gradients(on.ctx, batch, file.target.rows(0, batch.tokens()), {there},
                                        p.load);
  copy_out(on.ctx, p.gradients, there);
  return p;
}

int wave_of(MatrixRule rule) {
  return rule == MatrixRule::kCdna2 || rule == MatrixRule::kCdna3 ? 64 : 32;
}

TEST(GpuTraining, F32GradientsByNameAreThePublicImplementationsWithOneResultOnAllTargets) {
  for (const char* name : {"native-tiny", "native-swa"}) {
    SCOPED_TRACE(name);
    Golden cpu(name, Backend::kCpu, DType::kF32, /*training=*/true);
    const Conditions conditions = conditions_of(cpu);
    const Tensor load = cpu.rig.zeros(
        {cpu.model->config().layers, cpu.model->config().classes()}, DType::kI64);
    cpu.model->loss_and_gradients(cpu.rig.ctx, cpu.batch(), cpu.target, {cpu.gradients}, load);
    Passed first;
    for (const Emulation& e :
         {Emulation{.wave = 32, .order = ThreadOrder::kRandom, .seed = 3},
          Emulation{.wave = 64, .rule = MatrixRule::kCdna3},
          Emulation{.wave = 32, .order = ThreadOrder::kDescending, .rule = MatrixRule::kSm90}}) {
      if (!first.gradients.empty() && name != std::string("native-tiny")) continue;
      GpuModel on(cpu, e, DType::kF32, /*training=*/true);
      const Passed got = backward(cpu, on);
      EXPECT_NEAR(got.loss / static_cast<double>(cpu.targets()), ref::get(cpu.want("loss"), 0),
                  2e-6);
      expect_golden_gradients(cpu, on.model->table(), got.gradients, conditions);
      EXPECT_SAME_BITS(got.load, load);
      if (first.gradients.empty()) first = got;
      EXPECT_SAME_BITS(got.gradients, first.gradients);
      EXPECT_EQ(got.loss, first.loss);
    }
  }
}

}  // namespace
}  // namespace moraine
