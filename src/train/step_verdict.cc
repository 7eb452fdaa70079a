// StepVerdict: counts who says what.
#include "train/step_verdict.h"

#include <fmt/format.h>

#include <algorithm>
#include <set>

namespace moraine {
namespace {

std::string short_hex(const Hash128& hash) { return hash_hex(hash).substr(0, 8); }

int block_size(const Mesh& mesh) { return std::max(mesh.expert, mesh.context); }

// As much as a line of a log may hold.
void add_evidence(StepVerdict& verdict, const std::string& text) {
  constexpr size_t kMost = 512;
  if (verdict.evidence.size() >= kMost) return;
  verdict.evidence += (verdict.evidence.empty() ? "" : "; ") + text;
  if (verdict.evidence.size() > kMost) verdict.evidence.replace(kMost, std::string::npos, "...");
}

// Adds those of `members` that are not with more than half of them.
void judge_members(const char* what, std::span<const int> members, std::span<const Hash128> hashes,
                   StepVerdict& verdict) {
  const auto count = [&](const Hash128& hash) {
    return 2 * std::count(hashes.begin(), hashes.end(), hash);
  };
  const auto size = static_cast<int64_t>(members.size());
  if (count(hashes[0]) == 2 * size) return;
  bool has_majority = false;
  for (const Hash128& hash : hashes) has_majority = has_majority || count(hash) > size;
  for (size_t i = 0; i < members.size(); ++i) {
    if (count(hashes[i]) > size) continue;
    (has_majority ? verdict.wrong : verdict.suspects).push_back(members[i]);
  }
  std::string found;
  for (size_t i = 0; i < members.size(); ++i)
    found += fmt::format("{}{} at rank {}", i == 0 ? "" : ", ", short_hex(hashes[i]), members[i]);
  add_evidence(verdict, fmt::format("{} have hash {}", what, found));
}

void settle(StepVerdict& verdict) {
  for (std::vector<int>* list : {&verdict.wrong, &verdict.suspects}) {
    std::sort(list->begin(), list->end());
    list->erase(std::unique(list->begin(), list->end()), list->end());
  }
  if (!verdict.wrong.empty()) verdict.suspects.clear();
}

// One thing that several ranks have computed: of rank `of`, the shared gradients of its slot or those of its experts.
struct Item {
  int of = 0;
  bool is_expert = false;
};

int computer(const Mesh& mesh, const SlotPass& pass, const Item& item) {
  // Experts that stay within their group are held by the same rank, whoever sends the rows.
  if (item.is_expert && pass.shift % mesh.expert != 0) return item.of;
  return (item.of + pass.shift) % mesh.ranks;
}

const Hash128& hash_of(const Mesh& mesh, const SlotPass& pass, const Item& item) {
  const SlotHash& slot = pass.by[static_cast<size_t>(computer(mesh, pass, item))];
  return item.is_expert ? slot.experts : slot.shared;
}

enum class Side : uint8_t { kOwn, kAgain, kUnknown };

// Which of two that differ is wrong.
Side wrong_side(const Mesh& mesh, const SlotPass& own, const SlotPass& again,
                std::span<const SlotPass> more, const Item& item) {
  const Hash128 &a = hash_of(mesh, own, item), &b = hash_of(mesh, again, item);
  if (again.shift == 0) return Side::kOwn;  // the same rank twice
  if (more.size() == 1) {
    const Hash128& third = hash_of(mesh, more[0], item);
    return third == a ? Side::kAgain : third == b ? Side::kOwn : Side::kUnknown;
  }
  const bool own_stays = hash_of(mesh, more[0], item) == a,
             again_stays = hash_of(mesh, more[1], item) == b;
  if (own_stays == again_stays) return Side::kUnknown;
  return own_stays ? Side::kAgain : Side::kOwn;
}

std::string hashes_text(const Mesh& mesh, std::span<const SlotPass* const> passes,
                        const Item& item) {
  std::string text =
      fmt::format("gradients of {} {} have hash",
                  item.is_expert ? "the experts of rank" : "the slot of rank", item.of);
  for (const SlotPass* pass : passes)
    text += fmt::format("{} {} by rank {}", pass == passes[0] ? "" : ",",
                        short_hex(hash_of(mesh, *pass, item)), computer(mesh, *pass, item));
  return text;
}

// Within ranks that compute for each other, who made it wrong.
void name_in_block(const std::set<int>& shared, const std::set<int>& experts, int begin, int end,
                   StepVerdict& verdict) {
  const auto within = [&](const std::set<int>& all) {
    return std::vector<int>(all.lower_bound(begin), all.lower_bound(end));
  };
  const std::vector<int> s = within(shared), e = within(experts);
  if (s.size() > 1) {
    for (int r = begin; r < end; ++r) verdict.suspects.push_back(r);
    return;
  }
  const std::vector<int>& named = s.empty() ? e : s;
  std::vector<int>& list = named.size() == 1 ? verdict.wrong : verdict.suspects;
  list.insert(list.end(), named.begin(), named.end());
}

}  // namespace

int slot_shift(const Mesh& mesh) {
  if (block_size(mesh) < mesh.ranks) return block_size(mesh);
  return mesh.context < mesh.ranks ? mesh.context : 0;
}

std::vector<int> deciding_shifts(const Mesh& mesh) {
  const int shift = slot_shift(mesh);
  if (shift > 0 && 3 * shift <= mesh.ranks) return {2 * shift};
  return {0, shift};
}

StepVerdict judge_state(const Mesh& mesh, std::span<const StepReport> reports) {
  StepVerdict verdict;
  const auto judge = [&](const char* what, const std::vector<int>& members,
                         Hash128 StepReport::*field) {
    std::vector<Hash128> hashes;
    for (const int r : members) hashes.push_back(reports[static_cast<size_t>(r)].*field);
    judge_members(what, members, hashes, verdict);
  };
  judge("weights", mesh.all(), &StepReport::weights);
  for (int first = 0; first < mesh.expert; ++first) {
    Mesh member = mesh;
    member.rank = first;
    judge("weights of experts", member.replica_group(), &StepReport::experts);
  }
  judge("loss, norm and counts", mesh.all(), &StepReport::numbers);
  settle(verdict);
  return verdict;
}

bool slots_agree(const Mesh& mesh, const SlotPass& own, const SlotPass& again) {
  for (int r = 0; r < mesh.ranks; ++r) {
    for (const bool is_expert : {false, true}) {
      const Item item{r, is_expert};
      if (!(hash_of(mesh, own, item) == hash_of(mesh, again, item))) return false;
    }
  }
  return true;
}

StepVerdict judge_slots(const Mesh& mesh, const SlotPass& own, const SlotPass& again,
                        std::span<const SlotPass> more) {
  StepVerdict verdict;
  std::vector<const SlotPass*> passes = {&own, &again};
  for (const SlotPass& pass : more) passes.push_back(&pass);
  std::set<int> shared, experts;  // who was wrong about what
  for (int i = 0; i < 2 * mesh.ranks; ++i) {
    const Item item{.of = i / 2, .is_expert = i % 2 == 1};
    if (hash_of(mesh, own, item) == hash_of(mesh, again, item)) continue;
    add_evidence(verdict, hashes_text(mesh, passes, item));
    const Side side = wrong_side(mesh, own, again, more, item);
    if (side == Side::kUnknown) {
      verdict.suspects.push_back(computer(mesh, own, item));
      verdict.suspects.push_back(computer(mesh, again, item));
    } else {
      (item.is_expert ? experts : shared)
          .insert(computer(mesh, side == Side::kOwn ? own : again, item));
    }
  }
  for (int begin = 0; begin < mesh.ranks; begin += block_size(mesh))
    name_in_block(shared, experts, begin, begin + block_size(mesh), verdict);
  settle(verdict);
  return verdict;
}

}  // namespace moraine
