// Walks of tries beside stacks, and the shorter ways.
#include "grammar/mask.h"

#include <algorithm>
#include <tuple>
#include <utility>

#include "base/check.h"
#include "base/utf8.h"
#include "grammar/joint_walk.h"
#include "grammar/nodes.h"
#include "grammar/string_state.h"

namespace moraine {
namespace {

constexpr int64_t kStoreHeldMost = 1 << 18;  // 20 MB: then what nothing leads to is dropped
constexpr int64_t kWorthKeeping = 256;       // nodes that a walk saw
constexpr size_t kWalkedAlone = 4;           // automata

// An automaton's steps as a table, made row by row for the states that a walk comes to.
class StepTable {
 public:
  explicit StepTable(const Automaton& automaton)
      : automaton_(automaton), rows_(static_cast<size_t>(automaton.states()), -1) {}
  // [256] the next state or -1; valid until the next call.
  const int32_t* row(int32_t state) {
    int32_t& at = rows_[static_cast<size_t>(state)];
    if (at < 0) {
      at = static_cast<int32_t>(steps_.size());
      steps_.resize(steps_.size() + 256, -1);
      for (const Automaton::Edge& edge : automaton_.edges(state)) {
        for (int byte = edge.low; byte <= edge.high; ++byte) steps_[at + byte] = edge.to;
      }
    }
    return steps_.data() + at;
  }

 private:
  const Automaton& automaton_;
  std::vector<int32_t> rows_, steps_;
};

}  // namespace

MaskMaker::MaskMaker(GrammarState* state, std::span<uint64_t> mask)
    : state_(*state),
      tokens_(*state->trie_),
      grammar_(state->grammar_->nodes()),
      stacks_(state->stacks_),
      step_(grammar_, stacks_),
      mask_(mask) {}

MaskMaker::Way MaskMaker::way_of(const Frame& frame) const {
  if (frame.node == kBottom) return Way::kWalk;
  const GrammarNode& node = grammar_.nodes[frame.node];
  const bool border = frame.sub == kBorder;
  switch (node.kind) {
    case GrammarNode::Kind::kString:
      return frame.phase == kInside && border ? Way::kString : Way::kWalk;
    case GrammarNode::Kind::kAutomaton:
      return node.literal ? Way::kWalk : Way::kAutomaton;
    case GrammarNode::Kind::kObject:
      return frame.phase == kKey && border && step_.rest_fits(node, frame) ? Way::kKey : Way::kWalk;
    case GrammarNode::Kind::kFreeText:
      return Way::kFreeText;
    default:
      return Way::kWalk;
  }
}

void MaskMaker::make() {
  std::fill(mask_.begin(), mask_.end(), 0);
  // The ways that take bits back come first, each into an empty mask.
  std::vector<uint64_t> sum(mask_.size(), 0);
  bool summed = false;
  GrammarStep::Entries rest;
  for (int64_t i = 0; i < stacks_.count(state_.now_); ++i) {
    const StackStore::Entry entry = stacks_.entry(state_.now_, i);
    const Way way = way_of(entry.frame);
    if (way != Way::kKey && way != Way::kFreeText) continue;
    way == Way::kKey ? add_key(entry) : add_free_text(entry);
    for (size_t word = 0; word < sum.size(); ++word) sum[word] |= std::exchange(mask_[word], 0);
    summed = true;
  }
  if (summed) std::copy(sum.begin(), sum.end(), mask_.begin());
  GrammarStep::Entries strings, machines;
  for (int64_t i = 0; i < stacks_.count(state_.now_); ++i) {
    const StackStore::Entry entry = stacks_.entry(state_.now_, i);
    const Way way = way_of(entry.frame);
    if (way == Way::kString) strings.push_back(entry);
    if (way == Way::kAutomaton) machines.push_back(entry);
  }
  add_strings(strings);
  add_automata(machines);
  for (int64_t i = 0; i < stacks_.count(state_.now_); ++i) {
    const StackStore::Entry entry = stacks_.entry(state_.now_, i);
    if (way_of(entry.frame) == Way::kWalk) rest.push_back(entry);
  }
  const StackSet others = stacks_.make(&rest);
  walk(tokens_.trie(), others, 0);
  add_special_tokens();
}

StackSet MaskMaker::one(const StackStore::Entry& entry) {
  GrammarStep::Entries entries = {entry};
  return stacks_.make(&entries);
}

template <class F>
void MaskMaker::walk_each(const ByteTrie& trie, StackSet set, int32_t root, const F& each) {
  if (set == kNoStacks) return;
  path_.clear();
  path_.push_back({trie.nodes[root].next, set});
  const int32_t end = trie.nodes[root].next;
  for (int32_t at = root + 1; at < end;) {
    while (at >= path_.back().end) path_.pop_back();
    const ByteTrie::Node& node = trie.nodes[at];
    const StackSet next = step_.step(path_.back().set, node.byte);
    if (next == kNoStacks) {
      at = node.next;
      continue;
    }
    each(at);
    if (stacks_.size() > kStoreHeldMost) {
      std::vector<StackSet> roots = {state_.now_, next};
      roots.insert(roots.end(), held_.begin(), held_.end());
      for (const PathPart& part : path_) roots.push_back(part.set);
      stacks_.keep_only(roots);
      state_.now_ = roots[0];
      for (size_t i = 0; i < held_.size(); ++i) held_[i] = roots[2 + i];
      for (size_t i = 0; i < path_.size(); ++i) path_[i].set = roots[2 + held_.size() + i];
      path_.push_back({node.next, roots[1]});
    } else {
      path_.push_back({node.next, next});
    }
    ++at;
  }
}

void MaskMaker::walk(const ByteTrie& trie, StackSet set_of_stacks, int32_t root) {
  walk_each(trie, set_of_stacks, root, [&](int32_t node) {
    for (const int32_t id : trie.ids_at(node)) set(id);
  });
}

void MaskMaker::add_bodies(int64_t characters_most) {
  const StringTokens& in = tokens_.in_string();
  const int64_t most = std::min(characters_most, StringTokens::kStringLengths - 1);
  const int64_t words = static_cast<int64_t>(mask_.size());
  const uint64_t* bits = in.at_most.data() + most * words;
  for (int64_t word = 0; word < words; ++word) mask_[word] |= bits[word];
  for (const StringTokens::LongToken& token : in.longer) {
    if (token.characters > characters_most) break;
    set(token.id);
  }
}

void MaskMaker::add_closing(StackSet after, int64_t least, int64_t most) {
  const StringTokens& in = tokens_.in_string();
  const auto add = [&](const StringTokens::ClosingToken& token) {
    if (token.characters >= least && token.characters <= most) set(token.id);
  };
  for (const StringTokens::ClosingToken& token : in.closing_at_end) add(token);
  walk_each(in.tails, after, 0, [&](int32_t node) {
    for (const int32_t place : in.tails.ids_at(node)) add(in.closing[place]);
  });
}

void MaskMaker::add_string(const StackStore::Entry& entry) {
  const GrammarNode& node = grammar_.nodes[entry.frame.node];
  const int64_t least = node.min - entry.frame.count;
  const int64_t most = node.max == kUnbounded ? kUnbounded : node.max - entry.frame.count;
  add_bodies(most);
  held_ = {one(entry)};
  add_closing(step_.popped(entry.below), least, most);
  walk(tokens_.in_string().odd, held_[0], 0);
}

// Of strings with the same behind them, those that may have lengths that no other may have.
void MaskMaker::add_strings(const GrammarStep::Entries& entries) {
  struct Open {
    StackSet below;
    int64_t least, most;
    size_t entry;
  };
  std::vector<Open> open;
  for (size_t i = 0; i < entries.size(); ++i) {
    const auto [least, most] = length_left(entries[i].frame);
    open.push_back({entries[i].below, least, most, i});
  }
  std::sort(open.begin(), open.end(), [](const Open& a, const Open& b) {
    return std::tuple(a.below, a.least, -a.most) < std::tuple(b.below, b.least, -b.most);
  });
  for (size_t i = 0, widest = 0; i < open.size(); ++i) {
    const bool inside =
        i > 0 && open[i].below == open[widest].below && open[i].most <= open[widest].most;
    if (inside) continue;
    widest = i;
    add_string(entries[open[i].entry]);
  }
}

MaskMaker::Length MaskMaker::length_left(const Frame& frame) const {
  const GrammarNode& node = grammar_.nodes[frame.node];
  const int64_t least = std::clamp<int64_t>(node.min - frame.count, 0, tokens_.longest() + 1);
  const bool far = bound_is_far(node, frame.count, tokens_.longest());
  return {.least = least, .most = far ? kUnbounded : node.max - frame.count};
}

std::shared_ptr<const SharedMask> MaskMaker::walked(const Frame& frame) {
  const GrammarNode& text = grammar_.nodes[frame.node];
  const auto [least, most] = length_left(frame);
  std::string key = "walk";
  for (const int64_t part : {state_.number_, int64_t{frame.node}, int64_t{frame.at}, least, most})
    key.append(reinterpret_cast<const char*>(&part), sizeof part);
  if (std::shared_ptr<const SharedMask> known = state_.masks_->find(key)) return known;
  const Automaton& machine = grammar_.automata[text.automaton];
  const ByteTrie& trie = tokens_.trie();
  auto made = std::make_shared<SharedMask>();
  made->mask.assign(mask_.size(), 0);
  int64_t seen = 0;
  StepTable table(machine);
  struct Part {
    int32_t end;  // of the subtree
    int32_t state;
    int64_t characters;
  };
  std::vector<Part> path = {{trie.end(), frame.at, 0}};
  for (int32_t at = 1; at < trie.end(); ++seen) {
    while (at >= path.back().end) path.pop_back();
    const ByteTrie::Node& node = trie.nodes[at];
    const int32_t next = table.row(path.back().state)[node.byte];
    const int64_t characters = path.back().characters + (is_utf8_trail(node.byte) ? 0 : 1);
    if (next < 0 || (most < kUnbounded && characters + text.characters_left[next] > most)) {
      at = node.next;
      continue;
    }
    for (const int32_t id : trie.ids_at(at)) made->mask[id >> 6] |= uint64_t{1} << (id & 63);
    if (machine.accepting(next) && characters >= least && node.next > at + 1)
      made->ends.push_back(at);
    path.push_back({node.next, next, characters});
    ++at;
  }
  if (seen > kWorthKeeping) state_.masks_->add(key, made);
  return made;
}

void MaskMaker::add_automaton(const StackStore::Entry& entry) {
  const std::shared_ptr<const SharedMask> inside = walked(entry.frame);
  for (size_t word = 0; word < mask_.size(); ++word) mask_[word] |= inside->mask[word];
  held_ = {step_.popped(entry.below)};
  for (const int32_t node : inside->ends) walk(tokens_.trie(), held_[0], node);
}

// A walk of each alone can be shared, and of few it is no slower.
void MaskMaker::add_automata(const GrammarStep::Entries& entries) {
  const bool few = entries.size() <= kWalkedAlone;
  std::vector<JointStart> starts;
  std::vector<StackSet> below;  // of each group
  for (const StackStore::Entry& entry : entries) {
    const auto [least, most] = length_left(entry.frame);
    if (few || least > 0 || most < kUnbounded) {
      add_automaton(entry);
      continue;
    }
    const auto group = std::find(below.begin(), below.end(), entry.below);
    const int32_t automaton = grammar_.nodes[entry.frame.node].automaton;
    starts.push_back({.automaton = &grammar_.automata[automaton],
                      .state = entry.frame.at,
                      .group = static_cast<int32_t>(group - below.begin())});
    if (group == below.end()) below.push_back(entry.below);
  }
  if (starts.empty()) return;
  const JointEnds found = walk_jointly(tokens_.trie(), starts, mask_);
  held_.clear();
  for (const std::vector<int32_t>& groups : found.groups) {
    GrammarStep::Entries after;
    for (const int32_t group : groups) {
      const StackSet one = step_.popped(below[static_cast<size_t>(group)]);
      for (int64_t i = 0; i < stacks_.count(one); ++i) after.push_back(stacks_.entry(one, i));
    }
    held_.push_back(stacks_.make(&after));
  }
  for (const JointEnds::End& end : found.ends)
    walk(tokens_.trie(), held_[static_cast<size_t>(end.groups)], end.node);
}

// Tokens that close a declared name: what the bits of undeclared names say of them is wrong.
void MaskMaker::take_back_names(const ByteTrie& names, int32_t name, int32_t token) {
  if (!names.ids_at(name).empty()) {
    const int32_t closed = tokens_.trie().child(token, '"');
    if (closed >= 0) {
      for (const int32_t id : tokens_.trie().ids_below(closed)) clear(id);
    }
  }
  for (int32_t at = name + 1; at < names.nodes[name].next; at = names.nodes[at].next) {
    const int32_t child = tokens_.trie().child(token, names.nodes[at].byte);
    if (child >= 0) take_back_names(names, at, child);
  }
}

void MaskMaker::add_key(const StackStore::Entry& entry) {
  const GrammarNode& node = grammar_.nodes[entry.frame.node];
  add_bodies(kUnbounded);
  Frame colon = entry.frame;
  colon.phase = kColon;
  colon.sub = 0;
  colon.at = colon.index = static_cast<int32_t>(node.properties.size());
  held_ = {one(entry)};
  add_closing(one({colon, entry.below}), 0, kUnbounded);
  walk(tokens_.in_string().odd, held_[0], 0);
  if (entry.frame.at < 0) return;
  take_back_names(node.keys, entry.frame.at, 0);
  // Those of declared names that may come are put in again.
  struct Both {
    int32_t name, token;
    size_t held;
  };
  std::vector<Both> waiting = {{entry.frame.at, 0, 0}};
  const ByteTrie& trie = tokens_.trie();
  while (!waiting.empty()) {
    const Both both = waiting.back();
    waiting.pop_back();
    const int32_t closed = trie.child(both.token, '"');
    if (closed >= 0 && !node.keys.ids_at(both.name).empty()) {
      const StackSet after = step_.step(held_[both.held], '"');
      if (after != kNoStacks) {
        for (const int32_t id : trie.ids_at(closed)) set(id);
        walk(trie, after, closed);
      }
    }
    for (int32_t at = both.name + 1; at < node.keys.nodes[both.name].next;
         at = node.keys.nodes[at].next) {
      const int32_t child = trie.child(both.token, node.keys.nodes[at].byte);
      if (child < 0) continue;
      const StackSet inside = step_.step(held_[both.held], node.keys.nodes[at].byte);
      if (inside == kNoStacks) continue;
      held_.push_back(inside);
      waiting.push_back({at, child, held_.size() - 1});
    }
  }
}

void MaskMaker::add_free_text(const StackStore::Entry& entry) {
  const std::string_view trigger = grammar_.nodes[entry.frame.node].text;
  const std::vector<int32_t>& borders = grammar_.nodes[entry.frame.node].borders;
  const std::span<const uint64_t> all = tokens_.ordinary();
  std::copy(all.begin(), all.end(), mask_.begin());
  std::vector<int32_t> doubtful = state_.holding_trigger_;
  for (int32_t at = entry.frame.at; at > 0; at = borders[at]) {
    const int32_t node = tokens_.trie().find(trigger.substr(at));
    if (node < 0) continue;
    const std::span<const int32_t> below = tokens_.trie().ids_below(node);
    doubtful.insert(doubtful.end(), below.begin(), below.end());
  }
  const StackSet alone = one(entry);
  for (const int32_t id : doubtful) {
    if (step_.step_all(alone, tokens_.bytes(id)) == kNoStacks) clear(id);
  }
}

void MaskMaker::add_special_tokens() {
  for (const std::span<const int32_t> ids : {tokens_.literal_tokens(), tokens_.free_tokens()}) {
    for (const int32_t id : ids) {
      if (state_.after(id) != kNoStacks) set(id);
    }
  }
}

}  // namespace moraine
