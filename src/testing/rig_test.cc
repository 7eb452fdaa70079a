// Rig: fails if a comparison passes a wrong tensor, or fails a right one.
#include "testing/rig.h"

#include <gtest/gtest-spi.h>
#include <gtest/gtest.h>

#include <cmath>
#include <limits>

#include "base/file_system.h"
#include "kernels/ref/element.h"
#include "testing/two_ways.h"

namespace moraine {
namespace {

using namespace testing;

constexpr double kNaN = std::numeric_limits<double>::quiet_NaN();
constexpr double kInf = std::numeric_limits<double>::infinity();

Tensor of(Rig& rig, const std::vector<double>& values, DType dtype = DType::kF32) {
  const Tensor t = rig.zeros({static_cast<int64_t>(values.size())}, dtype);
  for (size_t i = 0; i < values.size(); ++i) ref::set(t, static_cast<int64_t>(i), values[i]);
  return t;
}

void compare(const std::vector<double>& got, const std::vector<double>& want, double relative) {
  Rig rig;
  expect_close(of(rig, got), of(rig, want), {relative}, "t");
}

TEST(Rig, CloseIsRelativeToTheElementAndTheRms) {
  // rms of {3, 4, 0, 0} = 2.5: element 0 may be off by 1e-3 * (3 + 2.5), element 2 by 2.5e-3.
  compare({3.0054, 4, 0.0024, 0}, {3, 4, 0, 0}, 1e-3);
  EXPECT_NONFATAL_FAILURE(compare({3.0056, 4, 0, 0}, {3, 4, 0, 0}, 1e-3), "at 0");
  EXPECT_NONFATAL_FAILURE(compare({3, 4, 0.0026, 0}, {3, 4, 0, 0}, 1e-3), "at 2");
}

TEST(Rig, TheWorstElementIsNamed) {
  EXPECT_NONFATAL_FAILURE(compare({1.1, 1, 1.5, 1}, {1, 1, 1, 1}, 1e-3), "at 2: got 1.5, want 1");
}

TEST(Rig, AResultThatIsNotFiniteIsNeverClose) {
  for (const double bad : {kNaN, kInf, -kInf}) {
    EXPECT_NONFATAL_FAILURE(compare({1, bad, 3}, {1, 2, 3}, 1e30), "at 1");
  }
}

TEST(Rig, AReferenceThatIsNotFiniteIsExact) {
  compare({1, kNaN, kInf, -kInf}, {1, kNaN, kInf, -kInf}, 0);
  for (const double want : {kNaN, kInf, -kInf}) {
    for (const double got : {0.0, 1e30, kNaN, kInf, -kInf}) {
      if (got == want || (std::isnan(got) && std::isnan(want))) continue;
      EXPECT_NONFATAL_FAILURE(compare({1, got, 3}, {1, want, 3}, 1e30), "at 1");
    }
  }
}

TEST(Rig, OneElementThatIsNotFiniteDoesNotExcuseTheOthers) {
  for (const double strange : {kNaN, kInf, -kInf}) {
    compare({strange, 2, 3}, {strange, 2, 3}, 1e-6);
    EXPECT_NONFATAL_FAILURE(compare({strange, 2, 3.1}, {strange, 2, 3}, 1e-6), "at 2");
  }
}

TEST(Rig, AnEmptyTensorIsCloseToAnEmptyOne) { compare({}, {}, 0); }

TEST(Rig, FiniteMeansEveryElement) {
  Rig rig;
  expect_finite(of(rig, {1, -2, 0}), "t");
  for (const double bad : {kNaN, kInf, -kInf}) {
    EXPECT_NONFATAL_FAILURE(expect_finite(of(rig, {1, 2, bad}), "t"), "at 2");
  }
}

TEST(Rig, SameBitsTellsZerosApart) {
  Rig rig;
  expect_same_bits(of(rig, {1, kNaN}), of(rig, {1, kNaN}), "t");
  EXPECT_NONFATAL_FAILURE(expect_same_bits(of(rig, {1, 0.0}), of(rig, {1, -0.0}), "t"), "at 1");
  EXPECT_NONFATAL_FAILURE(expect_same_bits(of(rig, {1, 2}), of(rig, {2, 2}), "t"), "at 0");
}

TEST(Rig, ToleranceIsOneRoundingAndSixDeviationsOfTheSum) {
  EXPECT_EQ(tolerance(DType::kF32, 0).relative, 7 * 0x1p-24);
  EXPECT_EQ(tolerance(DType::kF32, 99).relative, (1 + 6 * 10) * 0x1p-24);
  EXPECT_EQ(tolerance(DType::kBF16, 0).relative, 0x1p-8 + 6 * 0x1p-24);
  EXPECT_EQ(tolerance(DType::kF64, 3).relative, 13 * 0x1p-53);
}

// loss = sum x^3 / 3, whose gradient is x^2.
TEST(Rig, AWrongGradientIsFound) {
  Rig rig(Backend::kRef);
  const Tensor x = rig.normal({50}, DType::kF64, 1), dx = rig.zeros({50}, DType::kF64);
  const auto loss = [&] {
    double sum = 0;
    for (int64_t i = 0; i < 50; ++i) sum += std::pow(x.as<double>()[i], 3) / 3;
    return sum;
  };
  for (int64_t i = 0; i < 50; ++i) dx.as<double>()[i] = std::pow(x.as<double>()[i], 2);
  expect_gradient(x, dx, loss, "dx", 50);
  dx.as<double>()[17] += 1e-4;
  EXPECT_NONFATAL_FAILURE(expect_gradient(x, dx, loss, "dx", 50), "dx[17]");
  dx.as<double>()[17] = kNaN;
  ::testing::TestPartResultArray failures;
  {
    ::testing::ScopedFakeTestPartResultReporter reporter(
        ::testing::ScopedFakeTestPartResultReporter::INTERCEPT_ONLY_CURRENT_THREAD, &failures);
    expect_gradient(x, dx, loss, "dx", 50);
  }
  EXPECT_GT(failures.size(), 0);
}

TEST(Rig, NumbersAreAFunctionOfTheSeed) {
  Rig a, b;
  expect_same_bits(a.normal({99}, DType::kBF16, 7), b.normal({99}, DType::kBF16, 7), "normal");
  const Tensor one = a.normal({4096}, DType::kF32, 1), other = a.normal({4096}, DType::kF32, 2);
  EXPECT_NE(ref::get(one, 0), ref::get(other, 0));
  EXPECT_NEAR(rms(one), 1, 6 / std::sqrt(2 * 4096.0));  // six deviations of the rms of 4096 draws
  const Tensor ids = a.integers({1000}, 3, 5);
  for (int64_t i = 0; i < 1000; ++i) {
    EXPECT_GE(ids.as<int32_t>()[i], 0);
    EXPECT_LT(ids.as<int32_t>()[i], 3);
  }
}

TEST(Rig, EveryIsaRunsAndTheOneBeforeIsRestored) {
  const Isa before = isa();
  std::vector<Isa> seen;
  for_each_isa([&](Isa cap) {
    EXPECT_EQ(isa(), cap);
    seen.push_back(cap);
  });
  EXPECT_EQ(seen, supported_isas());
  EXPECT_EQ(isa(), before);
}

TEST(Rig, ATempFolderGoesWithItsObject) {
  std::string path;
  {
    const TempFolder folder;
    path = folder.path();
    EXPECT_TRUE(posix_file_system().exists(path));
  }
  EXPECT_FALSE(posix_file_system().exists(path));
}

// y = 2x + y: an operation of one direction stands for both.
struct Data {
  Tensor y, x, absent;
  float wrong = 0;
};
std::vector<Output> outputs(Data& data) {
  return present({{&data.y, "y"}, {&data.absent, "absent"}});
}
void run(Context& ctx, Data& data) {
  for (int64_t i = 0; i < data.y.count(); ++i) {
    const float shift = ctx.pool->threads() > 1 ? data.wrong : 0;
    data.y.as<float>()[i] += 2 * data.x.as<float>()[i] + shift;
  }
}

TEST(TwoWays, RunsOnCopiesAndComparesEveryOutput) {
  Rig rig;
  const Data data = {of(rig, {1, 1}), of(rig, {1, 2}), Tensor()};
  const Data once = run_copy(rig, data, rig.ctx), again = run_copy(rig, data, rig.ctx);
  EXPECT_EQ(ref::get(data.y, 0), 1);
  EXPECT_EQ(ref::get(once.y, 1), 5);
  expect_same_outputs(once, again);
  expect_close_outputs(once, again, 1);
  expect_finite_outputs(once);
  const Data other = {of(rig, {3, kNaN}), data.x, Tensor()};
  EXPECT_NONFATAL_FAILURE(expect_same_outputs(other, once), "y");
  EXPECT_NONFATAL_FAILURE(expect_close_outputs(other, once, 1), "y");
  EXPECT_NONFATAL_FAILURE(expect_finite_outputs(other), "y");
}

TEST(TwoWays, ThreadsThatChangeABitAreFound) {
  float wrong = 0;
  const auto make = [&](Rig& rig) {
    return Data{of(rig, {1, 1}), of(rig, {1, 2}), Tensor(), wrong};
  };
  expect_threads_change_nothing(make);
  wrong = 1;
  EXPECT_NONFATAL_FAILURE(expect_threads_change_nothing(make), "y");
}

}  // namespace
}  // namespace moraine
