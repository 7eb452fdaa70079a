// Isa: which one is taken, of those a machine has.
#include "kernels/isa.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <vector>

namespace moraine {
namespace {

TEST(Isa, ASlowDotOfBf16IsPassedOverAndTilesAreNot) {
  EXPECT_EQ(fastest_isa(Isa::kAvx512Bf16, true), Isa::kAvx512);
  EXPECT_EQ(fastest_isa(Isa::kAvx512Bf16, false), Isa::kAvx512Bf16);
  EXPECT_EQ(fastest_isa(Isa::kAmx, true), Isa::kAmx);
  EXPECT_EQ(fastest_isa(Isa::kAvx2, false), Isa::kAvx2);
}

TEST(Isa, TheOneTakenIsOfThisMachine) {
  const std::vector<Isa> here = supported_isas();
  EXPECT_TRUE(std::is_sorted(here.begin(), here.end()));
  EXPECT_NE(std::find(here.begin(), here.end(), isa()), here.end()) << isa_name(isa());
  const Isa before = isa();
  for (const Isa candidate : here) {
    set_isa_cap(candidate);
    EXPECT_EQ(isa(), candidate);
  }
  set_isa_cap(before);
}

}  // namespace
}  // namespace moraine
