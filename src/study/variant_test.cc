// Fails if a value with commas is cut, a word without a value passes, or two variants share a folder.
#include "study/variant.h"

#include <gtest/gtest.h>

#include "base/error.h"

namespace moraine {
namespace {

TEST(Variant, OneFactorHasAVariantForEachValue) {
  const std::vector<Variant> all =
      read_variants({"model.attention=cca, gqa", "model.sliding_layers=[0, 2],[]"}, {});
  ASSERT_EQ(all.size(), 5u);
  EXPECT_EQ(all[0].name, "base");
  EXPECT_TRUE(all[0].assignments.empty());
  EXPECT_EQ(all[2].name, "attention=gqa");
  EXPECT_EQ(all[2].assignments, std::vector<std::string>{"model.attention=gqa"});
  EXPECT_EQ(all[3].name, "sliding_layers=[0, 2]");
  EXPECT_EQ(variant_folder(all[3]), "sliding_layers=_0__2_");
  EXPECT_EQ(all[4].assignments, std::vector<std::string>{"model.sliding_layers=[]"});
}

TEST(Variant, ANamedOneSetsSeveralKeys) {
  const Variant v =
      read_variants({}, {"no bias: optimizer.balance_learning_rate=0, train.init=\"a,b\""}).at(1);
  EXPECT_EQ(v.name, "no bias");
  EXPECT_EQ(v.assignments,
            (std::vector<std::string>{"optimizer.balance_learning_rate=0", "train.init=\"a,b\""}));
  EXPECT_EQ(variant_folder(v), "no_bias");
  EXPECT_EQ(variant_folder({.name = "../up", .assignments = {}}), "_.._up");
}

TEST(Variant, WhatIsNoneIsRefused) {
  for (const char* word : {"", "model.hidden", "=3", "model.hidden=", "model.hidden=1,,2"})
    EXPECT_THROW(read_variants({word}, {}), Error) << word;
  for (const char* word : {"", "model.hidden=3", ": model.hidden=3", "a:", "a: model.hidden"})
    EXPECT_THROW(read_variants({}, {word}), Error) << word;
  EXPECT_THROW(read_variants({"model.hidden=1,1"}, {}), Error);
  EXPECT_THROW(read_variants({}, {"base: model.hidden=3"}), Error);
  EXPECT_THROW(read_variants({}, {"a b: model.hidden=3", "a_b: model.hidden=4"}), Error);
}

}  // namespace
}  // namespace moraine
