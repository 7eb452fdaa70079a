// Mesh: fails if groups overlap, miss a rank, or stop being neighbours.
#include "parallel/mesh.h"

#include <gtest/gtest.h>

#include <set>

#include "base/error.h"

namespace moraine {
namespace {

using Groups = std::set<std::vector<int>>;

int64_t members(const Groups& groups) {
  int64_t n = 0;
  for (const std::vector<int>& g : groups) n += static_cast<int64_t>(g.size());
  return n;
}

TEST(Mesh, GroupsPartitionTheRanks) {
  for (const int ranks : {1, 2, 4, 8, 16}) {
    for (int expert = 1; expert <= ranks; expert *= 2) {
      for (int context = 1; context <= ranks; context *= 2) {
        Groups contexts, experts, replicas;
        for (int r = 0; r < ranks; ++r) {
          const Mesh m = make_mesh(ranks, r, expert, context, 16, 16);
          contexts.insert(m.context_group());
          experts.insert(m.expert_group());
          replicas.insert(m.replica_group());
          EXPECT_EQ(m.context_group()[static_cast<size_t>(m.context_rank())], r);
          EXPECT_EQ(m.expert_group()[static_cast<size_t>(m.expert_rank())], r);
          EXPECT_EQ(m.data() * context, ranks);
          EXPECT_EQ(m.expert_group().back() - m.expert_group().front(), expert - 1);
        }
        EXPECT_EQ(members(contexts), ranks);
        EXPECT_EQ(members(experts), ranks);
        EXPECT_EQ(members(replicas), ranks);
        EXPECT_EQ(static_cast<int>(replicas.size()), expert);
        EXPECT_EQ(static_cast<int>(contexts.size()), ranks / context);
      }
    }
  }
}

TEST(Mesh, WhatDoesNotDivideIsNamed) {
  const auto message = [](auto... args) -> std::string {
    try {
      make_mesh(args...);
    } catch (const Error& e) {
      EXPECT_EQ(e.code(), Code::kInvalidArgument);
      return e.what();
    }
    return "no error";
  };
  EXPECT_NE(message(4, 0, 3, 1, 8, 8).find("parallel.expert = 3 on 4 ranks"), std::string::npos);
  EXPECT_NE(message(6, 0, 1, 4, 8, 8).find("parallel.context = 4 on 6 ranks"), std::string::npos);
  EXPECT_NE(message(8, 0, 8, 1, 8, 12).find("model.experts = 12"), std::string::npos);
  EXPECT_NE(message(2, 0, 2, 1, 8, 0).find("a dense model has none"), std::string::npos);
  EXPECT_EQ(message(2, 0, 1, 1, 8, 0), "no error");
  EXPECT_NE(message(8, 0, 1, 1, 4, 8).find("train.slots = 4"), std::string::npos);
  EXPECT_NE(message(3, 0, 1, 1, 8, 8).find("train.slots = 8"), std::string::npos);
  EXPECT_NE(message(8, 0, 1, 2, 24, 8).find("wanted 2, 6, 12, 24, 48 ranks"), std::string::npos);
  for (const int ranks : {1, 3, 6, 12, 24}) EXPECT_EQ(message(ranks, 0, 1, 1, 24, 8), "no error");
  EXPECT_EQ(message(48, 0, 8, 2, 24, 8), "no error");
}

}  // namespace
}  // namespace moraine
