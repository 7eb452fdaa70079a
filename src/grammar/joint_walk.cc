// Sets of states, numbered as they are come to, with a row of 256 steps each.
#include "grammar/joint_walk.h"

#include <algorithm>
#include <map>
#include <unordered_map>
#include <utility>

#include "grammar/ids_hash.h"

namespace moraine {
namespace {

constexpr int32_t kNoSet = -1, kNotStepped = -2;
constexpr size_t kRow = 256;

using Members =
    std::vector<int32_t>;  // of those that are left: place in `starts`, state, and so on

struct JointPart {
  int32_t end;  // of the subtree
  int32_t set;
};

class JointSets {
 public:
  JointSets(const std::vector<JointStart>& starts, int64_t steps_most)
      : starts_(starts), steps_left_(steps_most) {}

  int32_t start() {
    Members all;
    for (size_t i = 0; i < starts_.size(); ++i) {
      all.push_back(static_cast<int32_t>(i));
      all.push_back(starts_[i].state);
    }
    return number_of(all);
  }
  int32_t next(int32_t set, uint8_t byte) {
    const size_t at = static_cast<size_t>(set) * kRow + byte;
    if (steps_[at] == kNotStepped) {
      const int32_t to = step(*sets_[static_cast<size_t>(set)], byte);
      steps_[at] = to;
    }
    return steps_[at];
  }
  // Place in `groups` of those that accept here; -1: none.
  int32_t ending(int32_t set) const { return ending_[static_cast<size_t>(set)]; }
  std::vector<std::vector<int32_t>> groups() const {
    std::vector<std::vector<int32_t>> all(groups_.size());
    for (const auto& [groups, place] : groups_) all[static_cast<size_t>(place)] = groups;
    return all;
  }
  int64_t count() const { return static_cast<int64_t>(sets_.size()); }
  // Forgets all sets but those of `path`, which get their new numbers.
  void keep(std::vector<JointPart>* path) {
    std::vector<Members> kept;
    for (const JointPart& part : *path) kept.push_back(*sets_[static_cast<size_t>(part.set)]);
    numbers_.clear();
    sets_.clear();
    ending_.clear();
    steps_.clear();
    for (size_t i = 0; i < kept.size(); ++i) (*path)[i].set = number_of(kept[i]);
  }

 private:
  int32_t step(const Members& from, uint8_t byte) {
    to_.clear();
    const size_t most = steps_left_ > 0 ? from.size() : 2;
    for (size_t i = 0; i < from.size() && to_.size() < most; i += 2) {
      --steps_left_;
      const Automaton& automaton = *starts_[static_cast<size_t>(from[i])].automaton;
      const int32_t state = automaton.next(from[i + 1], byte);
      if (state < 0) continue;
      to_.push_back(from[i]);
      to_.push_back(state);
    }
    return to_.empty() ? kNoSet : number_of(to_);
  }
  int32_t number_of(const Members& members) {
    const auto [at, made] = numbers_.try_emplace(members, static_cast<int32_t>(sets_.size()));
    if (!made) return at->second;
    sets_.push_back(&at->first);
    steps_.resize(steps_.size() + kRow, kNotStepped);
    ending_.push_back(groups_that_accept(members));
    return at->second;
  }
  int32_t groups_that_accept(const Members& members) {
    std::vector<int32_t> groups;
    for (size_t i = 0; i < members.size(); i += 2) {
      const JointStart& start = starts_[static_cast<size_t>(members[i])];
      if (start.automaton->accepting(members[i + 1])) groups.push_back(start.group);
    }
    if (groups.empty()) return -1;
    std::sort(groups.begin(), groups.end());
    groups.erase(std::unique(groups.begin(), groups.end()), groups.end());
    return groups_.try_emplace(std::move(groups), static_cast<int32_t>(groups_.size()))
        .first->second;
  }

  const std::vector<JointStart>& starts_;
  int64_t steps_left_;
  std::unordered_map<Members, int32_t, IdsHash> numbers_;
  std::vector<const Members*> sets_;  // keys of numbers_
  std::vector<int32_t> ending_;       // [sets]
  std::vector<int32_t> steps_;        // [sets, kRow]
  std::map<std::vector<int32_t>, int32_t> groups_;
  Members to_;
};

}  // namespace

JointEnds walk_jointly(const ByteTrie& trie, const std::vector<JointStart>& starts,
                       std::span<uint64_t> mask, const JointLimits& limits) {
  JointEnds out;
  JointSets sets(starts, limits.steps);
  std::vector<JointPart> path = {{trie.end(), sets.start()}};
  for (int32_t at = 1; at < trie.end();) {
    while (at >= path.back().end) path.pop_back();
    const ByteTrie::Node& node = trie.nodes[static_cast<size_t>(at)];
    const int32_t next = sets.next(path.back().set, node.byte);
    if (next == kNoSet) {
      at = node.next;
      continue;
    }
    for (const int32_t id : trie.ids_at(at))
      mask[static_cast<size_t>(id >> 6)] |= uint64_t{1} << (id & 63);
    if (sets.ending(next) >= 0 && node.next > at + 1) out.ends.push_back({at, sets.ending(next)});
    path.push_back({node.next, next});
    if (sets.count() > limits.sets) sets.keep(&path);
    ++at;
  }
  out.groups = sets.groups();
  return out;
}

}  // namespace moraine
