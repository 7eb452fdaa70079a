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

}  // namespace

GrammarState::GrammarState(std::shared_ptr<const Grammar> grammar, const TokenTrie& trie)
    : grammar_(std::move(grammar)), trie_(&trie) {
  const GrammarNodes& nodes = grammar_->nodes();
  now_ = GrammarStep(nodes, stacks_).start();
  const GrammarNode& root = nodes.nodes[nodes.root];
  if (root.kind == Kind::kFreeText) holding_trigger_ = trie.holding(root.text);
}

void GrammarState::allowed(std::span<uint64_t> mask) {
  MR_CHECK(static_cast<int64_t>(mask.size()) == trie_->mask_words(), "words=%ld, want %ld",
           long(mask.size()), long(trie_->mask_words()));
  const GrammarNodes& grammar = grammar_->nodes();
  std::vector<StackStore::Entry> key;
  for (int64_t i = 0; i < stacks_.count(now_); ++i) {
    StackStore::Entry entry = stacks_.entry(now_, i);
    Frame& frame = entry.frame;
    if (frame.node != kBottom && grammar.nodes[frame.node].kind == Kind::kString) {
      const GrammarNode& node = grammar.nodes[frame.node];
      const bool far = node.max == kUnbounded || node.max - frame.count > trie_->longest();
      if (far && frame.count >= node.min) frame.count = -1;
    }
    key.push_back(entry);
  }
  for (const RecentMask& recent : recent_) {
    if (recent.stacks != key) continue;
    std::copy(recent.mask.begin(), recent.mask.end(), mask.begin());
    return;
  }
  const int64_t tidied = stacks_.tidied();
  MaskMaker(this, mask).make();
  if (stacks_.tidied() != tidied) {
    recent_.clear();  // the numbers in `key` are gone as well
  } else {
    if (recent_.size() == kRecentMost) recent_.erase(recent_.begin());
    recent_.push_back({std::move(key), std::vector<uint64_t>(mask.begin(), mask.end())});
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

// The stacks behind a token; kNoStacks if it is not allowed. A special token that stands for text
// goes only where the grammar has fixed text, or a call begins.
StackSet GrammarState::after(int32_t token) {
  const std::string_view bytes = trie_->bytes(token);
  if (bytes.empty()) return kNoStacks;
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
