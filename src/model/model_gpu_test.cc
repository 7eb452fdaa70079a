// A model on an emulated GPU: fails if a pass is not the public implementation's, if a generation has more than one
// result, if a row's bits depend on its company or on chunks, if a layer waits for the host, or if an operation without
// a kernel is not refused at the start.
#include <gtest/gtest.h>

#include <cstring>

#include "base/error.h"
#include "kernels/gpu/test_gpu_rig.h"
#include "kernels/linear.h"
#include "kernels/ref/element.h"
#include "model/test_gpu_model.h"

namespace moraine {
namespace {

using namespace testing;
using gpu::Emulation;
using gpu::MatrixRule;
using gpu::ThreadOrder;

TEST(GpuModel, F32IsThePublicImplementationWithOneResultInBothWaves) {
  for (const char* name : {"native-tiny", "native-swa", "legacy-tiny"}) {
    SCOPED_TRACE(name);
    GoldenFile file(name);
    Tensor first;
    for (const Emulation& e :
         {Emulation{.wave = 32}, Emulation{.wave = 64, .order = ThreadOrder::kRandom, .seed = 3}}) {
      if (!first.empty() && name != std::string("native-tiny")) continue;
      GpuModel on(file, e, DType::kF32);
      const double loss = on.model->loss(on.ctx, file.batch(), file.target);
      EXPECT_NEAR(loss / static_cast<double>(file.targets()), ref::get(file.want("loss"), 0), 2e-6);
      // Of the same pass.
      const Tensor hidden = on.model->boundary_above(on.model->config().layers - 1).x;
      const Tensor logits = file.rig.copy(on.model->logits(on.ctx, hidden));
      EXPECT_LE(relative_distance(logits, file.want("logits")), kF32Logit);
      if (first.empty()) first = logits;
      EXPECT_SAME_BITS(logits, first);
    }
  }
}

// Of native-tiny's logits of its first document in bf16: one for each generation, no two the same.
constexpr gpu::StatedHashes kForwardHashes = {
    "f1f3d7036c457d416b7ef3a87088e439", "1cea7a8b631289237d1c5074a89661f9",
    "e1557db5de42be99d08fe6e2ec79597e", "999e394996feb5f6053daa980d7ed1e6",
    "a06c4e743e83fd73a3dacdf34833b6ff"};

TEST(GpuModel, Bf16IsNearTheCpuWithOneResultForEachGeneration) {
  GoldenFile file("native-tiny");
  Arena arena(Arena::Mode::kReal);
  Model cpu(arena, file.directory.config(),
            {.compute = DType::kBF16, .tokens = file.token.count(), .positions = 64}, file.weights);
  cpu.refresh(file.rig.ctx);
  const Tensor want =
      file.rig.copy(cpu.logits(file.rig.ctx, cpu.forward(file.rig.ctx, file.batch(1))));
  for (const MatrixRule rule : gpu::kMatrixRules) {
    SCOPED_TRACE(matrix_rule_name(rule));
    const bool wide = rule == MatrixRule::kCdna2 || rule == MatrixRule::kCdna3;
    GpuModel on(file,
                {.wave = wide ? 64 : 32, .order = ThreadOrder::kRandom, .seed = 5, .rule = rule},
                DType::kBF16);
    const Tensor first = on.logits(file.rig, file.batch(1));
    EXPECT_LE(relative_distance(first, want), bf16_tolerance(3));
    gpu::expect_stated_hash(first, kForwardHashes, rule);
  }
}

// Whole, in chunks through pages, and from a copied page.
TEST(GpuModel, CachedAndChunkedRowsAreTheRowsOfTheWhole) {
  GoldenFile file("native-tiny");
  GpuModel on(file, {.wave = 64, .rule = MatrixRule::kCdna3}, DType::kBF16);
  Cache cache =
      make_cache(on.arena, on.model->config(), DType::kBF16, {.pages = 4, .page_rows = 16});
  const Batch batch = file.batch(1);
  const Segment document = batch.segments.front();
  const Tensor whole = on.logits(file.rig, batch);
  // The same bits as in a random order of threads.
  gpu::expect_stated_hash(whole, kForwardHashes, MatrixRule::kCdna3);
  const auto part = [&](int64_t begin, int64_t end, std::span<const int32_t> pages) {
    const Batch some{.token = batch.token.rows(begin, end),
                     .position = batch.position.rows(begin, end),
                     .segments = {{0, end - begin, begin, 0}}};
    const Tensor hidden = on.model->forward(on.ctx, some, &cache, pages);
    EXPECT_SAME_BITS(on.model->logits(on.ctx, hidden), whole.rows(begin, end));
  };
  const int32_t first[] = {3, 1}, second[] = {0, 2};
  part(0, 5, first);
  copy_page(on.ctx, cache, 3, 0);
  part(5, 6, first);  // one row: the convolution's state is half of the page's
  part(6, document.rows, first);
  part(5, document.rows, second);
}

// A pass copies ids in, and what segments say once: nothing for a layer, and nothing out.
TEST(GpuModel, NoLayerWaitsForTheHost) {
  GoldenFile file("native-tiny");
  GpuModel on(file, {.wave = 64}, DType::kBF16);
  on.model->forward(on.ctx, file.batch(1));
  const int in = on.gpu.copies_in, out = on.gpu.copies_out, takes = on.gpu.takes;
  on.model->forward(on.ctx, file.batch(1));
  EXPECT_EQ(on.gpu.copies_in - in, 2);
  EXPECT_EQ(on.gpu.copies_out - out, 0);
  EXPECT_EQ(on.gpu.takes - takes, 0);
}

std::string error_of(const std::function<void()>& f) {
  try {
    f();
  } catch (const Error& error) {
    EXPECT_EQ(error.code(), Code::kInvalidArgument);
    return error.what();
  }
  return "";
}

TEST(GpuModel, WhatHasNoKernelIsRefusedByNameBeforeAnyPass) {
  GoldenFile file("native-tiny");
  CountingGpu gpu({});
  gpu::GpuArenaMemory memory(gpu);
  Arena arena(Arena::Mode::kReal, &memory);
  const Tensor master =
      arena.take("weights.master", "weights", DType::kF32, {file.weights.count()});
  const std::string message = error_of([&] {
    const Model model(arena, file.directory.config(),
                      {.compute = DType::kBF16, .tokens = 16, .positions = 64, .coarse_head = true},
                      master);
  });
  for (const char* name : {"a model on a GPU", "linear_forward_panels", "--device cpu"}) {
    EXPECT_NE(message.find(name), std::string::npos) << message;
  }
  // Whoever calls one all the same is told, and nothing runs.
  Pool pool(1);
  Context ctx = make_context(gpu, pool);
  const Tensor x = arena.take("x", "test", DType::kF32, {2, 3});
  const int launches = gpu.launches;
  const PackedMatrix integers = {.groups = 1, .n = 2, .k = 3, .format = WeightFormat::kQ8};
  EXPECT_EQ(
      error_of([&] { pack_matrix(ctx, {.packed = integers, .w = x, .transpose = false}); }),
      "pack_matrix of quantised weights has no kernel for GPUs yet (docs/gpu.md); use the CPU");
  EXPECT_EQ(gpu.launches, launches);
}

}  // namespace
}  // namespace moraine
