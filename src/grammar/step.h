// GrammarStep: what one more byte does to a set of stacks.
//
// Where a node ends, what is below it goes on in the same set, so the set that holds the bottom
// (kBottom) is one at which the answer may end.
// Cost:    for each stack of the set a switch, and an edge or a few; a new set is one look-up.
#pragma once

#include <string_view>
#include <vector>

#include "grammar/nodes.h"
#include "grammar/stacks.h"

namespace moraine {

constexpr int32_t kBottom = -1;  // the node of the frame below everything

// Phases of frames: where in its node a frame stands.
enum FramePhase : uint8_t {
  kOpens,   // nothing of it has come
  kFirst,   // behind [ or {
  kNext,    // behind a comma
  kBehind,  // behind an item or a member's value
  kInside,  // kString: between the quotes
  kKey,     // in the name of a member
  kColon,   // behind the name
  kValue,   // behind the colon
};

class GrammarStep {
 public:
  using Entries = std::vector<StackStore::Entry>;

  GrammarStep(const GrammarNodes& grammar, StackStore& stacks)
      : grammar_(grammar), stacks_(stacks) {}

  StackSet start();
  StackSet step(StackSet set, uint8_t byte);
  StackSet step_entry(StackStore::Entry entry, uint8_t byte);
  StackSet step_all(StackSet set, std::string_view bytes);
  bool may_end(StackSet set) const;  // holds the bottom
  // What goes on once the frame above `below` has ended.
  StackSet popped(StackSet below);
  // A frame in kKey: whether the name may be of a member that is not declared.
  bool rest_fits(const GrammarNode& node, const Frame& frame) const;

 private:
  // Appends what follows to `out`.
  void advance(const Frame& frame, StackSet below, uint8_t byte, Entries* out);
  void advance_string(Frame frame, StackSet below, uint8_t byte, Entries* out);
  void advance_automaton(Frame frame, StackSet below, uint8_t byte, Entries* out);
  void advance_array(Frame frame, StackSet below, uint8_t byte, Entries* out);
  void advance_object(Frame frame, StackSet below, uint8_t byte, Entries* out);
  void advance_key(Frame frame, StackSet below, uint8_t byte, Entries* out);
  void advance_free_text(Frame frame, StackSet below, uint8_t byte, Entries* out);
  void advance_sequence(Frame frame, StackSet below, uint8_t byte, Entries* out);
  void advance_repeat(const Frame& frame, StackSet below, uint8_t byte, Entries* out);
  // A node from its start: with its first byte, or before it.
  void advance_into(int32_t node, int32_t depth, StackSet below, uint8_t byte, Entries* out);
  void start_node(int32_t node, int32_t depth, StackSet below, Entries* out);
  void pop(StackSet below, Entries* out);

  StackSet put(const Frame& frame, StackSet below);
  bool nullable(const Frame& frame) const;
  int32_t item_node(const GrammarNode& node, int64_t index) const;
  bool item_fits(const GrammarNode& node, const Frame& frame) const;
  bool property_fits(const GrammarNode& node, const Frame& frame, int32_t index) const;
  bool key_fits(const GrammarNode& node, const Frame& frame) const;
  bool declared_below(const GrammarNode& node, const Frame& frame, int32_t at) const;

  const GrammarNodes& grammar_;
  StackStore& stacks_;
  Entries scratch_;
};

}  // namespace moraine
