// Embedding: the fast kernel against the reference; fails if a repeated token loses a row, adds in
// another order, or `=` stands for `+=`.
#include "kernels/embedding.h"

#include <gtest/gtest.h>

#include <limits>

#include "kernels/ref/element.h"
#include "testing/rig.h"

namespace moraine {
namespace {

using namespace testing;

struct LookupCase {
  int64_t T, V, D;
  DType dtype;
};
constexpr LookupCase kLookupCases[] = {
    {1, 1, 1, DType::kF32},        {5, 3, 127, DType::kF32},     // every token repeats
    {257, 50, 64, DType::kBF16},   {100, 1, 33, DType::kBF16},   // one token, 100 times
    {300, 4096, 256, DType::kF32}, {9, 20, 2048, DType::kBF16},  // the width of the model
    {64, 11, 513, DType::kF32},    {0, 7, 16, DType::kF32},      // one past a block of columns
};

TEST(Embedding, MatchesReference) {
  for_each_isa([](Isa) {
    for (const LookupCase& c : kLookupCases) {
      Rig rig;
      const Tensor table = rig.normal({c.V, c.D}, DType::kF32, 1),
                   token = rig.integers({c.T}, c.V, 2);
      const Tensor x = rig.normal({c.T, c.D}, c.dtype, 3), want_x = rig.copy(x);
      embedding_forward(rig.ctx, {.x = x, .table = table, .token = token});
      ref::embedding_forward({.x = want_x, .table = table, .token = token});
      EXPECT_SAME_BITS(x, want_x);

      const Tensor dx = rig.normal({c.T, c.D}, c.dtype, 4),
                   d = rig.normal({c.V, c.D}, DType::kF32, 5), want = rig.copy(d);
      embedding_backward(rig.ctx, {.dtable = d, .dx = dx, .token = token});
      ref::embedding_backward({.dtable = want, .dx = dx, .token = token});
      // One addition of two f32 rounds the same in f32 and in double; only the order could tell
      // them apart.
      EXPECT_SAME_BITS(d, want);
    }
  });
}

// A row of a pack is the row of the table that it was packed from, whatever instruction set packed it.
TEST(Embedding, PackedRowsAreThoseOfTheTable) {
  for_each_isa([](Isa) {
    for (const LookupCase& c : kLookupCases) {
      Rig rig, reference(Backend::kRef);
      const Tensor table = rig.normal({c.V, c.D}, DType::kF32, 1),
                   token = rig.integers({c.T}, c.V, 2);
      const Tensor x = rig.normal({c.T, c.D}, c.dtype, 3), want_x = rig.copy(x),
                   want_row = rig.copy(x);
      const auto packed = [&](Rig& on) {
        PackedMatrix p{.dtype = c.dtype, .groups = 1, .n = c.V, .k = c.D};
        p.data = on.zeros({packed_bytes(p)}, DType::kU8).data;
        pack_matrix(on.ctx, {.packed = p, .w = table, .transpose = false});
        return p;
      };
      embedding_packed_forward(rig.ctx, {.x = x, .table = packed(rig), .token = token});
      embedding_packed_forward(reference.ctx,
                               {.x = want_x, .table = packed(reference), .token = token});
      embedding_forward(rig.ctx, {.x = want_row, .table = table, .token = token});
      EXPECT_SAME_BITS(x, want_x);
      EXPECT_SAME_BITS(x, want_row);
      for (const WeightFormat format : {WeightFormat::kQ8, WeightFormat::kQ6, WeightFormat::kQ4}) {
        PackedMatrix p{.dtype = c.dtype, .groups = 1, .n = c.V, .k = c.D, .format = format};
        p.data = rig.zeros({packed_bytes(p)}, DType::kU8).data;
        pack_matrix(rig.ctx, {.packed = p, .w = table, .transpose = false});
        embedding_packed_forward(rig.ctx, {.x = x, .table = p, .token = token});
        embedding_packed_forward(reference.ctx, {.x = want_x, .table = p, .token = token});
        EXPECT_SAME_BITS(x, want_x);
      }
    }
  });
}

TEST(Embedding, ReferenceMatchesFiniteDifferences) {
  Rig rig(Backend::kRef);
  const int64_t T = 7, V = 4, D = 3;
  const Tensor table = rig.normal({V, D}, DType::kF64, 1), token = rig.integers({T}, V, 2);
  const Tensor dx = rig.normal({T, D}, DType::kF64, 3), x = rig.zeros({T, D}, DType::kF64),
               d = rig.zeros({V, D}, DType::kF64);
  const auto loss = [&] {
    embedding_forward(rig.ctx, {.x = x, .table = table, .token = token});
    double sum = 0;
    for (int64_t i = 0; i < x.count(); ++i) sum += ref::get(x, i) * ref::get(dx, i);
    return sum;
  };
  embedding_backward(rig.ctx, {.dtable = d, .dx = dx, .token = token});
  expect_gradient(table, d, loss, "dtable");
}

// Sums of numbers of very different size show every change of order.
TEST(Embedding, RepeatedTokensAddInOrderOnAnyThreadCount) {
  for_each_isa([](Isa) {
    const int64_t T = 2000, V = 37, D = 600;
    Rig one(Backend::kCpu, 1), two(Backend::kCpu, 2), four(Backend::kCpu, 4);
    const Tensor token = one.integers({T}, V, 2), dx = one.normal({T, D}, DType::kF32, 3);
    for (int64_t i = 0; i < dx.count(); ++i) dx.as<float>()[i] *= i / D % 3 == 0 ? 1e6f : 1e-3f;
    const Tensor a = one.normal({V, D}, DType::kF32, 4), b = one.copy(a), c = one.copy(a),
                 want = one.copy(a);
    embedding_backward(one.ctx, {.dtable = a, .dx = dx, .token = token});
    embedding_backward(two.ctx, {.dtable = b, .dx = dx, .token = token});
    embedding_backward(four.ctx, {.dtable = c, .dx = dx, .token = token});
    ref::embedding_backward({.dtable = want, .dx = dx, .token = token});
    EXPECT_SAME_BITS(a, want);
    EXPECT_SAME_BITS(b, want);
    EXPECT_SAME_BITS(c, want);
  });
}

TEST(EmbeddingDeathTest, TokenOutOfRangeStops) {
  Rig rig(Backend::kCpu, 1);
  const Tensor table = rig.zeros({4, 8}, DType::kF32), x = rig.zeros({2, 8}, DType::kF32);
  for (const int32_t bad : {-1, 4, std::numeric_limits<int32_t>::max()}) {
    const Tensor token = rig.int32s({0, bad});
    EXPECT_DEATH(embedding_forward(rig.ctx, {.x = x, .table = table, .token = token}), "token");
    EXPECT_DEATH(embedding_backward(rig.ctx, {.dtable = table, .dx = x, .token = token}), "token");
  }
}

}  // namespace
}  // namespace moraine
