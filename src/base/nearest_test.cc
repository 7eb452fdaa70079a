// Nearest: what is suggested for a mistyped name, and that nothing is for a name that is no mistyped one.
#include "base/nearest.h"

#include <gtest/gtest.h>

namespace moraine {
namespace {

const std::vector<std::string> kNames = {"train", "tokenizer", "serve", "bench"};

TEST(Nearest, IsTheFirstOfTheClosest) {
  EXPECT_EQ(nearest_name("trian", kNames), "train");
  EXPECT_EQ(nearest_name("q", kNames), "train");  // five letters away, as serve and bench are
  EXPECT_EQ(nearest_name("q", {}), "");
}

TEST(DidYouMean, NamesWhatIsHalfAsTyped) {
  EXPECT_EQ(did_you_mean("trian", kNames), "; did you mean train?");
  EXPECT_EQ(did_you_mean("sarvs", kNames, {.quote = "'"}), "; did you mean 'serve'?");
  EXPECT_EQ(did_you_mean("sarvs", kNames, {.then = "read on"}), "; did you mean serve? read on");
}

TEST(DidYouMean, NamesWhatBeginsAsTypedFirst) {
  EXPECT_EQ(did_you_mean("tok", kNames), "; did you mean tokenizer?");
  const std::vector<std::string> flags = {"--help", "--temperature"};
  EXPECT_EQ(did_you_mean("--tem", flags), "; did you mean --temperature?");
}

TEST(DidYouMean, NamesNothingElse) {
  EXPECT_EQ(did_you_mean("frobnicate", kNames), "");
  EXPECT_EQ(did_you_mean("frobnicate", kNames, {.then = "read on"}), "; read on");
  EXPECT_EQ(did_you_mean("", kNames), "");
  EXPECT_EQ(did_you_mean("train", {}), "");
}

}  // namespace
}  // namespace moraine
