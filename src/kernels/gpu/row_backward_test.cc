// Gradients of Embedding and ValueShift on an emulated GPU, by way of dispatch: fails if a term, a border of a
// document or a halo is off, if a gradient is overwritten where it is added to, if a column that is another's is
// touched, or if a bit depends on the wave or on the order of threads.
#include <gtest/gtest.h>

#include "kernels/embedding.h"
#include "kernels/gpu/test_gpu_forward.h"
#include "kernels/value_shift.h"
#include "testing/two_ways.h"

namespace moraine::gpu {
namespace {

using namespace testing;

constexpr DType kTypes[] = {DType::kF32, DType::kBF16};

struct EmbeddingCase {
  int64_t T, V, D;
  bool far;  // the first id once more, at the end, and no other twice
};

constexpr EmbeddingCase kEmbeddingCases[] = {
    {1, 1, 1, false},
    {7, 11, 45, false},
    {40, 3, 300, false},  // frequent ids; more channels than threads
    {261, 261, 2, true},  // further back than a block has threads
};

std::vector<GpuField> embedding_fields(EmbeddingBackward& f) {
  return {{&f.dtable, "dtable"}, {&f.dx, nullptr}, {&f.token, nullptr}};
}

TEST(GpuEmbeddingBackward, MatchesTheReferenceWithTheBitsOfTheCpu) {
  for (const EmbeddingCase& c : kEmbeddingCases) {
    for (const DType dtype : kTypes) {
      SCOPED_TRACE("T=" + std::to_string(c.T));
      Rig host;
      const EmbeddingBackward a = {.dtable = host.normal({c.V, c.D}, DType::kF32, 1),
                                   .dx = host.normal({c.T, c.D}, dtype, 2),
                                   .token = host.integers({c.T}, c.V, 3)};
      for (int64_t t = 0; c.far && t < c.T; ++t) {
        a.token.as<int32_t>()[t] = static_cast<int32_t>((t + 1) % (c.T - 1));
      }
      const EmbeddingBackward got =
          expect_forward(host, a,
                         GpuOperation{&embedding_fields, &moraine::embedding_backward,
                                      &ref::embedding_backward, c.T});
      moraine::embedding_backward(host.ctx, a);
      EXPECT_SAME_BITS(got.dtable, a.dtable);
    }
  }
}

TEST(GpuValueShiftBackward, MatchesTheReferenceWithOneResult) {
  const std::vector<Segment> segments = documents({1, 2, 1, 7});
  const std::vector<int64_t> halo_row = {1, -1, 0, 3};
  const auto fields = [](ValueShiftBackward& f) -> std::vector<GpuField> {
    return {{&f.dqkv, "dqkv"}, {&f.dhalo, "dhalo"}, {&f.dv, nullptr}};
  };
  for (const DType dtype : kTypes) {
    for (const int form : {0, 1, 2, 3}) {  // plain; delayed; with a halo; with some of its rows
      SCOPED_TRACE(form);
      Rig host;
      const int64_t T = 11, K = 2, d = 13;
      const ValueShiftBackward a = {
          .dqkv = host.normal({T, 3 * K * d}, dtype, 1),
          .dv = host.normal({T, K, d}, dtype, 2),
          .segments = segments,
          .delayed = form > 0,
          .dhalo = form >= 2 ? host.normal({4, K * d / 2}, dtype, 3) : Tensor(),
          .halo_row = form == 3 ? halo_row : std::span<const int64_t>()};
      const ValueShiftBackward got = expect_forward(
          host, a,
          GpuOperation{fields, &moraine::value_shift_backward, &ref::value_shift_backward, 0});
      moraine::value_shift_backward(host.ctx, a);
      EXPECT_SAME_BITS(got.dqkv, a.dqkv);
      if (form >= 2) EXPECT_SAME_BITS(got.dhalo, a.dhalo);
    }
  }
}

}  // namespace
}  // namespace moraine::gpu
