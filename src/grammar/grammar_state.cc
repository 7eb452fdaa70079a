// The state of one answer: the stacks after the tokens so far.
#include <algorithm>
#include <utility>

#include "base/check.h"
#include "grammar/grammar.h"
#include "grammar/mask.h"
#include "grammar/nodes.h"
#include "grammar/step.h"

namespace moraine {
namespace {

using Kind = GrammarNode::Kind;

// Alternatives that are followed from one token to the next; of more, the first ones. Each can be
// completed, so this narrows what may come and ends nothing.
constexpr int64_t kStacksMost = 512;
constexpr int64_t kStoreMost = 1 << 14;  // between tokens
constexpr size_t kRecentMost = 4;        // a string, what is between members, and back
constexpr size_t kPlaceMost = 4096;      // bytes of a place in a grammar that masks are shared by
constexpr int64_t kOwnMaskBytes = 2 << 20;

}  // namespace

GrammarState::GrammarState(std::shared_ptr<const Grammar> grammar, const TokenTrie& trie)
    : GrammarState(SharedGrammar{.grammar = std::move(grammar),
                                 .masks = std::make_shared<MaskCache>(kOwnMaskBytes)},
                   trie) {}

GrammarState::GrammarState(SharedGrammar shared, const TokenTrie& trie)
    : grammar_(std::move(shared.grammar)),
      masks_(std::move(shared.masks)),
      number_(shared.number),
      trie_(&trie) {
  const GrammarNodes& nodes = grammar_->nodes();
  now_ = GrammarStep(nodes, stacks_).start();
  const GrammarNode& root = nodes.nodes[nodes.root];
  if (root.kind == Kind::kFreeText) holding_trigger_ = trie.holding(root.text);
}

// A frame with what no token can make a difference to left out.
Frame GrammarState::shared_frame(Frame frame) const {
  if (frame.node == kBottom) return frame;
  const GrammarNode& node = grammar_->nodes().nodes[frame.node];
  if (node.kind != Kind::kString && node.kind != Kind::kArray && node.kind != Kind::kAutomaton)
    return frame;
  const int64_t least = std::max(node.min, static_cast<int64_t>(node.parts.size()));
  if (bound_is_far(node, frame.count, trie_->longest()) && frame.count >= least) frame.count = -1;
  return frame;
}

std::vector<StackStore::Entry> GrammarState::recent_key() const {
  std::vector<StackStore::Entry> key;
  for (int64_t i = 0; i < stacks_.count(now_); ++i) {
    StackStore::Entry entry = stacks_.entry(now_, i);
    entry.frame = shared_frame(entry.frame);
    key.push_back(entry);
  }
  return key;
}

// Appends the stacks as bytes that are the same in every answer. False if they are more than a key may have.
bool GrammarState::write_place(StackSet set, std::string* place) const {
  const auto add = [&](int64_t value) {
    place->append(reinterpret_cast<const char*>(&value), sizeof value);
  };
  add(stacks_.count(set));
  for (int64_t i = 0; i < stacks_.count(set); ++i) {
    const StackStore::Entry entry = stacks_.entry(set, i);
    const Frame f = shared_frame(entry.frame);
    add(f.node);
    add(int64_t{f.depth} << 16 | int64_t{f.phase} << 8 | f.sub);
    add(int64_t{f.index} << 32 | static_cast<uint32_t>(f.at));
    add(f.count);
    if (place->size() > kPlaceMost || !write_place(entry.below, place)) return false;
  }
  return true;
}

void GrammarState::remember(std::vector<StackStore::Entry> key, std::span<const uint64_t> mask) {
  if (recent_.size() == kRecentMost) recent_.erase(recent_.begin());
  recent_.push_back({std::move(key), std::vector<uint64_t>(mask.begin(), mask.end())});
}

void GrammarState::allowed(std::span<uint64_t> mask) {
  MR_CHECK(static_cast<int64_t>(mask.size()) == trie_->mask_words(), "words=%ld, want %ld",
           long(mask.size()), long(trie_->mask_words()));
  std::vector<StackStore::Entry> key = recent_key();
  for (const RecentMask& recent : recent_) {
    if (recent.stacks != key) continue;
    std::copy(recent.mask.begin(), recent.mask.end(), mask.begin());
    return;
  }
  std::string place = "mask";
  place.append(reinterpret_cast<const char*>(&number_), sizeof number_);
  const bool shared = write_place(now_, &place);
  if (const auto known = shared ? masks_->find(place) : nullptr) {
    std::copy(known->mask.begin(), known->mask.end(), mask.begin());
    return remember(std::move(key), mask);
  }
  const int64_t tidied = stacks_.tidied();
  MaskMaker(this, mask).make();
  if (shared) {
    auto made = std::make_shared<SharedMask>();
    made->mask.assign(mask.begin(), mask.end());
    masks_->add(place, std::move(made));
  }
  if (stacks_.tidied() != tidied) {
    recent_.clear();  // the numbers in `key` are gone as well
  } else {
    remember(std::move(key), mask);
  }
  tidy();
}

void GrammarState::tidy() {
  if (stacks_.size() <= kStoreMost) return;
  std::vector<StackSet> roots = {now_};
  for (const RecentMask& recent : recent_) {
    for (const StackStore::Entry& entry : recent.stacks) roots.push_back(entry.below);
  }
  stacks_.keep_only(roots);
  size_t i = 0;
  now_ = roots[i++];
  for (RecentMask& recent : recent_) {
    for (StackStore::Entry& entry : recent.stacks) entry.below = roots[i++];
  }
}

bool GrammarState::may_end() const {
  return stacks_.count(now_) > 0 && stacks_.entry(now_, 0).frame.node == kBottom;
}

bool GrammarState::must_end() const { return may_end() && stacks_.count(now_) == 1; }

// The stacks behind a special token that is free text; kNoStacks where there is none, and where it goes wrong.
StackSet GrammarState::after_free(int32_t token) {
  GrammarStep::Entries free;
  for (int64_t i = 0; i < stacks_.count(now_); ++i) {
    const StackStore::Entry& entry = stacks_.entry(now_, i);
    if (entry.frame.node == kBottom) continue;
    if (grammar_->nodes().nodes[entry.frame.node].kind == Kind::kFreeText) free.push_back(entry);
  }
  return GrammarStep(grammar_->nodes(), stacks_).step_all(stacks_.make(&free), trie_->bytes(token));
}

// The stacks behind a token; kNoStacks if it is not allowed. A special token that stands for text
// goes only where the grammar has fixed text, or a call begins.
StackSet GrammarState::after(int32_t token) {
  const std::string_view bytes = trie_->bytes(token);
  if (bytes.empty()) return kNoStacks;
  if (trie_->is_free(token)) return after_free(token);
  const GrammarNodes& grammar = grammar_->nodes();
  GrammarStep step(grammar, stacks_);
  if (!trie_->is_literal(token)) return step.step_all(now_, bytes);
  GrammarStep::Entries fixed;
  for (int64_t i = 0; i < stacks_.count(now_); ++i) {
    const StackStore::Entry& entry = stacks_.entry(now_, i);
    if (entry.frame.node == kBottom) continue;
    const GrammarNode& node = grammar.nodes[entry.frame.node];
    const bool value = node.kind == Kind::kString || node.kind == Kind::kObject ||
                       node.kind == Kind::kArray || node.kind == Kind::kSpaced ||
                       (node.kind == Kind::kAutomaton && !node.literal);
    if (!value) fixed.push_back(entry);
  }
  const StackSet next = step.step_all(stacks_.make(&fixed), bytes);
  for (int64_t i = 0; i < stacks_.count(next); ++i) {
    const Frame& frame = stacks_.entry(next, i).frame;
    const bool text = frame.node == kBottom ||
                      (grammar.nodes[frame.node].kind == Kind::kFreeText && frame.at == 0);
    if (!text) return next;
  }
  // Nothing but free text, or the end: allowed where it ended a call.
  for (int64_t i = 0; i < stacks_.count(now_); ++i) {
    const Frame& frame = stacks_.entry(now_, i).frame;
    if (frame.node != kBottom && grammar.nodes[frame.node].kind == Kind::kFreeText)
      return kNoStacks;
  }
  return next;
}

bool GrammarState::accept(int32_t token) {
  const StackSet next = after(token);
  if (next == kNoStacks) return false;
  now_ = next;
  if (stacks_.count(now_) > kStacksMost) {
    GrammarStep::Entries first;
    for (int64_t i = 0; i < kStacksMost; ++i) first.push_back(stacks_.entry(now_, i));
    now_ = stacks_.make(&first);
  }
  tidy();
  return true;
}

bool GrammarState::accept_bytes(std::string_view bytes) {
  const StackSet next = GrammarStep(grammar_->nodes(), stacks_).step_all(now_, bytes);
  if (next == kNoStacks) return false;
  now_ = next;
  return true;
}

}  // namespace moraine
