// StepVerdict: who is wrong, from what ranks say; and who is not.
#include "train/step_verdict.h"

#include <fmt/format.h>
#include <gtest/gtest.h>

namespace moraine {
namespace {

Hash128 hash(uint64_t n) { return {.high = n, .low = n}; }

Mesh mesh_of(int ranks, int expert, int context = 1) {
  return {.ranks = ranks, .context = context, .expert = expert, .rank = 0};
}

std::vector<StepReport> equal_reports(const Mesh& mesh) {
  std::vector<StepReport> reports(static_cast<size_t>(mesh.ranks));
  for (int r = 0; r < mesh.ranks; ++r) {
    reports[static_cast<size_t>(r)].weights = hash(1);
    reports[static_cast<size_t>(r)].experts = hash(10 + static_cast<uint64_t>(r % mesh.expert));
    reports[static_cast<size_t>(r)].numbers = hash(2);
  }
  return reports;
}

using RankList = std::vector<int>;

TEST(StepVerdict, OfTheStateWhoeverIsNotWithMoreThanHalfIsWrong) {
  const Mesh mesh = mesh_of(8, 2);
  EXPECT_TRUE(judge_state(mesh, equal_reports(mesh)).agreed());
  for (int r = 0; r < 8; ++r) {
    for (Hash128 StepReport::*field :
         {&StepReport::weights, &StepReport::experts, &StepReport::numbers}) {
      std::vector<StepReport> reports = equal_reports(mesh);
      reports[static_cast<size_t>(r)].*field = hash(99);
      EXPECT_EQ(judge_state(mesh, reports).wrong, RankList{r});
    }
  }
  std::vector<StepReport> reports = equal_reports(mesh);
  reports[1].weights = reports[6].weights = hash(99);
  reports[3].numbers = hash(98);
  EXPECT_EQ(judge_state(mesh, reports).wrong, (RankList{1, 3, 6}));
}

TEST(StepVerdict, OfTheStateWithoutAMajorityAllAreSuspects) {
  std::vector<StepReport> reports = equal_reports(mesh_of(2, 1));
  reports[1].weights = hash(99);
  const StepVerdict two = judge_state(mesh_of(2, 1), reports);
  EXPECT_TRUE(two.wrong.empty());
  EXPECT_EQ(two.suspects, (RankList{0, 1}));
  const Mesh pairs = mesh_of(4, 2);  // experts 0 are at ranks 0 and 2
  reports = equal_reports(pairs);
  reports[2].experts = hash(99);
  EXPECT_EQ(judge_state(pairs, reports).suspects, (RankList{0, 2}));
  reports[1].weights = hash(98);  // somebody can be named: that comes first
  EXPECT_EQ(judge_state(pairs, reports).wrong, RankList{1});
}

// What ranks say of slots, each right: the shared gradients of rank r's slot are r, those of the experts of part q of
// the group of rank r are 100 + q, which all its ranks' slots went into.
SlotPass right_pass(const Mesh& mesh, int shift) {
  SlotPass pass{.shift = shift, .by = {}};
  for (int r = 0; r < mesh.ranks; ++r) {
    const int of = (r - shift + mesh.ranks) % mesh.ranks;
    const int held = shift % mesh.expert == 0 ? of : r;
    pass.by.push_back({hash(static_cast<uint64_t>(of)), hash(static_cast<uint64_t>(100 + held))});
  }
  return pass;
}

struct Passes {
  SlotPass own, again;
  std::vector<SlotPass> more;
};
Passes right_passes(const Mesh& mesh) {
  Passes passes{right_pass(mesh, 0), right_pass(mesh, slot_shift(mesh)), {}};
  for (const int shift : deciding_shifts(mesh)) passes.more.push_back(right_pass(mesh, shift));
  return passes;
}
StepVerdict judge(const Mesh& mesh, const Passes& p) {
  EXPECT_FALSE(slots_agree(mesh, p.own, p.again));
  return judge_slots(mesh, p.own, p.again, p.more);
}
void spoil(SlotPass& pass, int rank, bool expert, uint64_t with = 999) {
  SlotHash& said = pass.by[static_cast<size_t>(rank)];
  (expert ? said.experts : said.shared) = hash(with);
}

const Mesh kMeshes[] = {mesh_of(1, 1),   mesh_of(2, 1), mesh_of(2, 2),    mesh_of(3, 1),
                        mesh_of(4, 1),   mesh_of(4, 2), mesh_of(4, 4),    mesh_of(8, 2),
                        mesh_of(6, 2),   mesh_of(8, 8), mesh_of(4, 2, 2), mesh_of(8, 1, 2),
                        mesh_of(4, 1, 4)};

TEST(StepVerdict, OfSlotsAllAgreeWhereNobodyIsWrong) {
  for (const Mesh& mesh : kMeshes) {
    const Passes passes = right_passes(mesh);
    EXPECT_TRUE(slots_agree(mesh, passes.own, passes.again));
    EXPECT_TRUE(judge_slots(mesh, passes.own, passes.again, passes.more).agreed());
  }
}

TEST(StepVerdict, OfSlotsWhoWasWrongOnceIsNamed) {
  for (const Mesh& mesh : kMeshes) {
    for (int r = 0; r < mesh.ranks; ++r) {
      for (const bool expert : {false, true}) {
        SCOPED_TRACE(fmt::format("{} ranks, experts over {}, rank {}", mesh.ranks, mesh.expert, r));
        Passes own = right_passes(mesh), again = right_passes(mesh);
        spoil(own.own, r, expert);
        EXPECT_EQ(judge(mesh, own).wrong, RankList{r});
        spoil(again.again, r, expert);
        EXPECT_EQ(judge(mesh, again).wrong, RankList{r});
      }
    }
  }
}

TEST(StepVerdict, OfThreeWhoIsAlwaysWrongIsNamed) {
  const Mesh mesh = mesh_of(4, 1);
  for (int r = 0; r < 4; ++r) {
    Passes passes = right_passes(mesh);
    uint64_t with = 900;
    for (SlotPass* pass : {&passes.own, &passes.again, &passes.more[0]})
      spoil(*pass, r, false, with++);
    EXPECT_EQ(judge(mesh, passes).wrong, RankList{r});
  }
}

TEST(StepVerdict, OfTwoThatInsistBothAreSuspects) {
  const Mesh mesh = mesh_of(2, 1);
  Passes passes = right_passes(mesh);
  spoil(passes.own, 1, false);
  spoil(passes.more[0], 1, false);  // its own slot once more
  const StepVerdict verdict = judge(mesh, passes);
  EXPECT_TRUE(verdict.wrong.empty());
  EXPECT_EQ(verdict.suspects, (RankList{0, 1}));
  EXPECT_NE(verdict.evidence.find("the slot of rank 1"), std::string::npos) << verdict.evidence;
}

// An expert that is wrong spoils the slots of all who sent rows to it.
TEST(StepVerdict, WhereSeveralSlotsOfAGroupAreWrongItIsOneOfTheGroup) {
  const Mesh mesh = mesh_of(8, 2);
  Passes passes = right_passes(mesh);
  for (const int r : {2, 3}) spoil(passes.own, r, false);
  spoil(passes.own, 3, true);
  const StepVerdict verdict = judge(mesh, passes);
  EXPECT_TRUE(verdict.wrong.empty());
  EXPECT_EQ(verdict.suspects, (RankList{2, 3}));
}

// The rows of one rank are wrong: so are the gradients of the experts that they went to.
TEST(StepVerdict, WhereOneSlotOfAGroupIsWrongExpertsFollowIt) {
  const Mesh mesh = mesh_of(8, 2);
  Passes passes = right_passes(mesh);
  spoil(passes.own, 2, false);
  for (const int r : {2, 3}) spoil(passes.own, r, true);
  EXPECT_EQ(judge(mesh, passes).wrong, RankList{2});
}

}  // namespace
}  // namespace moraine
