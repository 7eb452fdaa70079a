// One function for each kind of node, each a small machine.
//
// White space (Frame::sub of the phases that take it): none, one space, or a line end with at most
// kIndentMost spaces and tabs behind it; so a model that writes it must go on.
//
//   kString   kOpens: the opening quote; kInside: sub is a StringState, count the characters begun
//   kArray    kOpens [  kFirst ws (] | item)  kBehind (, | ws ])  kNext ws item; count: items begun
//   kObject   kOpens {  kFirst ws (} | ")  kBehind (, | ws })  kNext ws "  kKey ...  kColon :
//             kValue ws value; index: the first property that may come; at: in kKey the node of
//             `keys` or -1, then the property whose value comes (their count for another member)
//   kAutomaton at: the state; count: the characters begun, where there is a bound
//   others    index: the part that comes; at: the state
#include "grammar/step.h"

#include <algorithm>

#include "base/utf8.h"
#include "grammar/string_state.h"

namespace moraine {
namespace {

constexpr uint8_t kNoSpace = 0, kOneSpace = 1, kLineEnd = 2;
constexpr uint8_t kIndentMost = 20;
// In the name of a member: it has an escape, so it is a declared one or none.
constexpr uint8_t kNameEscaped = 255;

// Moves on over white space; false if there may be none of this byte.
bool take_space(uint8_t byte, bool line_ends, uint8_t* space) {
  if (*space == kNoSpace && byte == ' ') {
    *space = kOneSpace;
  } else if (*space == kNoSpace && byte == '\n' && line_ends) {
    *space = kLineEnd;
  } else if (*space >= kLineEnd && *space < kLineEnd + kIndentMost &&
             (byte == ' ' || byte == '\t')) {
    ++*space;
  } else {
    return false;
  }
  return true;
}

}  // namespace

StackSet GrammarStep::start() {
  Entries out = {{Frame{.node = kBottom}, kNoStacks}};
  const StackSet bottom = stacks_.make(&out);
  out.clear();
  start_node(grammar_.root, 0, bottom, &out);
  return stacks_.make(&out);
}

StackSet GrammarStep::step(StackSet set, uint8_t byte) {
  Entries out = std::move(scratch_);
  out.clear();
  for (int64_t i = 0; i < stacks_.count(set); ++i) {
    const StackStore::Entry entry = stacks_.entry(set, i);
    advance(entry.frame, entry.below, byte, &out);
  }
  const StackSet next = stacks_.make(&out);
  scratch_ = std::move(out);
  return next;
}

StackSet GrammarStep::step_entry(StackStore::Entry entry, uint8_t byte) {
  Entries out;
  advance(entry.frame, entry.below, byte, &out);
  return stacks_.make(&out);
}

StackSet GrammarStep::step_all(StackSet set, std::string_view bytes) {
  for (const char c : bytes) {
    set = step(set, static_cast<uint8_t>(c));
    if (set == kNoStacks) break;
  }
  return set;
}

bool GrammarStep::may_end(StackSet set) const {
  // kBottom is the smallest node.
  return set != kNoStacks && stacks_.entry(set, 0).frame.node == kBottom;
}

StackSet GrammarStep::popped(StackSet below) {
  Entries out;
  pop(below, &out);
  return stacks_.make(&out);
}

StackSet GrammarStep::put(const Frame& frame, StackSet below) {
  Entries one = {{frame, below}};
  return stacks_.make(&one);
}

bool GrammarStep::nullable(const Frame& frame) const {
  if (frame.node == kBottom) return false;
  const GrammarNode& node = grammar_.nodes[frame.node];
  switch (node.kind) {
    case GrammarNode::Kind::kFreeText:
      return true;
    case GrammarNode::Kind::kRepeat:
      return node.parts.empty();
    case GrammarNode::Kind::kSequence:
      return std::all_of(node.parts.begin() + frame.index, node.parts.end(),
                         [&](int32_t part) { return nullable(Frame{.node = part}); });
    default:
      return false;
  }
}

void GrammarStep::pop(StackSet below, Entries* out) {
  for (int64_t i = 0; i < stacks_.count(below); ++i) {
    const StackStore::Entry entry = stacks_.entry(below, i);
    out->push_back(entry);
    if (nullable(entry.frame)) pop(entry.below, out);
  }
}

void GrammarStep::start_node(int32_t index, int32_t depth, StackSet below, Entries* out) {
  if (!grammar_.can_enter(index, depth)) return;
  const GrammarNode& node = grammar_.nodes[index];
  if (node.kind == GrammarNode::Kind::kAny) {
    for (const int32_t part : node.parts) start_node(part, depth, below, out);
    return;
  }
  const Frame frame{.node = index, .depth = static_cast<int16_t>(depth)};
  out->push_back({frame, below});
  if (nullable(frame)) pop(below, out);
}

void GrammarStep::advance_into(int32_t index, int32_t depth, StackSet below, uint8_t byte,
                               Entries* out) {
  if (!grammar_.can_enter(index, depth)) return;
  const GrammarNode& node = grammar_.nodes[index];
  if (node.kind == GrammarNode::Kind::kAny) {
    for (const int32_t part : node.parts) advance_into(part, depth, below, byte, out);
    return;
  }
  advance(Frame{.node = index, .depth = static_cast<int16_t>(depth)}, below, byte, out);
}

void GrammarStep::advance(const Frame& frame, StackSet below, uint8_t byte, Entries* out) {
  if (frame.node == kBottom) return;
  switch (grammar_.nodes[frame.node].kind) {
    case GrammarNode::Kind::kAutomaton:
      return advance_automaton(frame, below, byte, out);
    case GrammarNode::Kind::kString:
      return advance_string(frame, below, byte, out);
    case GrammarNode::Kind::kObject:
      return advance_object(frame, below, byte, out);
    case GrammarNode::Kind::kArray:
      return advance_array(frame, below, byte, out);
    case GrammarNode::Kind::kSequence:
      return advance_sequence(frame, below, byte, out);
    case GrammarNode::Kind::kRepeat:
      return advance_repeat(frame, below, byte, out);
    case GrammarNode::Kind::kFreeText:
      return advance_free_text(frame, below, byte, out);
    case GrammarNode::Kind::kSpaced: {
      Frame spaced = frame;
      if (take_space(byte, true, &spaced.sub)) return out->push_back({spaced, below});
      return advance_into(grammar_.nodes[frame.node].rest, frame.depth, below, byte, out);
    }
    case GrammarNode::Kind::kAny:
      return;  // has no frames
  }
}

void GrammarStep::advance_automaton(Frame frame, StackSet below, uint8_t byte, Entries* out) {
  const Automaton& automaton = grammar_.automata[grammar_.nodes[frame.node].automaton];
  const GrammarNode& node = grammar_.nodes[frame.node];
  frame.at = automaton.next(frame.at, byte);
  if (frame.at < 0) return;
  const bool bounded = node.max < kUnbounded;
  if ((bounded || frame.count < node.min) && !is_utf8_trail(byte)) ++frame.count;
  // What could not be ended within the bound does not begin.
  if (bounded && frame.count + node.characters_left[frame.at] > node.max) return;
  const bool ends = automaton.accepting(frame.at);
  if (ends && frame.count >= node.min) pop(below, out);
  if (automaton.goes_on(frame.at) && !(ends && frame.count == node.max))
    out->push_back({frame, below});
}

void GrammarStep::advance_string(Frame frame, StackSet below, uint8_t byte, Entries* out) {
  const GrammarNode& node = grammar_.nodes[frame.node];
  if (frame.phase == kOpens) {
    if (byte != '"') return;
    frame.phase = kInside;
    return out->push_back({frame, below});
  }
  if (frame.sub == kBorder) {
    if (byte == '"') {
      if (frame.count >= node.min) pop(below, out);
      return;
    }
    if (frame.count >= node.max) return;
    // Without an upper bound the count matters as far as the lower one only.
    if (node.max < kUnbounded || frame.count < node.min) ++frame.count;
  }
  frame.sub = next_string_state(static_cast<StringState>(frame.sub), byte);
  if (frame.sub != kBroken) out->push_back({frame, below});
}

int32_t GrammarStep::item_node(const GrammarNode& node, int64_t index) const {
  const bool given = index < static_cast<int64_t>(node.parts.size());
  return given ? node.parts[index] : node.rest;
}

bool GrammarStep::item_fits(const GrammarNode& node, const Frame& frame) const {
  return frame.count < node.max &&
         grammar_.can_enter(item_node(node, frame.count), frame.depth + 1);
}

void GrammarStep::advance_array(Frame frame, StackSet below, uint8_t byte, Entries* out) {
  const GrammarNode& node = grammar_.nodes[frame.node];
  if (frame.phase == kOpens) {
    if (byte != '[') return;
    frame.phase = kFirst;
    return out->push_back({frame, below});
  }
  const bool may_close = frame.phase != kNext && frame.count >= node.min;
  if (byte == ']') {
    if (may_close) pop(below, out);
    return;
  }
  const bool fits = item_fits(node, frame);
  if (frame.phase == kBehind) {
    if (byte == ',' && frame.sub == kNoSpace && fits) {
      frame.phase = kNext;
      out->push_back({frame, below});
    } else if (may_close && take_space(byte, true, &frame.sub)) {
      out->push_back({frame, below});
    }
    return;
  }
  if (take_space(byte, true, &frame.sub)) return out->push_back({frame, below});
  if (!fits) return;
  const int32_t item = item_node(node, frame.count);
  frame.phase = kBehind;
  frame.sub = kNoSpace;
  const int64_t counted = std::max(node.min, static_cast<int64_t>(node.parts.size()));
  if (node.max < kUnbounded || frame.count < counted) ++frame.count;
  advance_into(item, frame.depth + 1, put(frame, below), byte, out);
}

bool GrammarStep::property_fits(const GrammarNode& node, const Frame& frame, int32_t index) const {
  return index >= frame.index && index <= node.next_required[frame.index] &&
         index < static_cast<int32_t>(node.properties.size()) &&
         grammar_.can_enter(node.properties[index].node, frame.depth + 1);
}

bool GrammarStep::rest_fits(const GrammarNode& node, const Frame& frame) const {
  return node.next_required[frame.index] == static_cast<int32_t>(node.properties.size()) &&
         grammar_.can_enter(node.rest, frame.depth + 1);
}

// Whether there is a member that may come.
bool GrammarStep::key_fits(const GrammarNode& node, const Frame& frame) const {
  if (rest_fits(node, frame)) return true;
  const int32_t last = node.next_required[frame.index];
  for (int32_t i = frame.index; i <= last; ++i) {
    if (property_fits(node, frame, i)) return true;
  }
  return false;
}

bool GrammarStep::declared_below(const GrammarNode& node, const Frame& frame, int32_t at) const {
  if (at < 0) return false;
  const std::span<const int32_t> below = node.keys.ids_below(at);
  return std::any_of(below.begin(), below.end(),
                     [&](int32_t index) { return property_fits(node, frame, index); });
}

void GrammarStep::advance_object(Frame frame, StackSet below, uint8_t byte, Entries* out) {
  const GrammarNode& node = grammar_.nodes[frame.node];
  const int32_t declared = static_cast<int32_t>(node.properties.size());
  switch (frame.phase) {
    case kOpens:
      if (byte != '{') return;
      frame.phase = kFirst;
      break;
    case kKey:
      return advance_key(frame, below, byte, out);
    case kColon:
      if (byte != ':') return;
      frame.phase = kValue;
      break;
    case kValue: {
      if (take_space(byte, false, &frame.sub)) break;
      const int32_t value = frame.at < declared ? node.properties[frame.at].node : node.rest;
      frame.phase = kBehind;
      frame.sub = kNoSpace;
      frame.at = 0;
      return advance_into(value, frame.depth + 1, put(frame, below), byte, out);
    }
    default: {  // kFirst, kBehind, kNext
      const bool may_close = frame.phase != kNext && node.next_required[frame.index] == declared;
      if (byte == '}') {
        if (may_close) pop(below, out);
        return;
      }
      if (frame.phase == kBehind && byte == ',' && frame.sub == kNoSpace) {
        if (!key_fits(node, frame)) return;
        frame.phase = kNext;
      } else if (frame.phase != kBehind && byte == '"') {
        if (!key_fits(node, frame)) return;
        frame.phase = kKey;
        frame.sub = kBorder;
        frame.at = 0;
      } else if ((frame.phase == kBehind && !may_close) || !take_space(byte, true, &frame.sub)) {
        return;
      }
    }
  }
  out->push_back({frame, below});
}

void GrammarStep::advance_key(Frame frame, StackSet below, uint8_t byte, Entries* out) {
  const GrammarNode& node = grammar_.nodes[frame.node];
  const bool rest = frame.sub != kNameEscaped && rest_fits(node, frame);
  const std::span<const int32_t> here =
      frame.at < 0 ? std::span<const int32_t>() : node.keys.ids_at(frame.at);
  if (byte == '"' && (frame.sub == kBorder || frame.sub == kNameEscaped)) {
    const int32_t declared = static_cast<int32_t>(node.properties.size());
    const int32_t name = here.empty() ? declared : here.front();
    if (here.empty() ? rest : property_fits(node, frame, name)) {
      frame.at = name;
      frame.index = std::min(name + 1, declared);
      frame.phase = kColon;
      frame.sub = kNoSpace;
      return out->push_back({frame, below});
    }
  }
  frame.at = frame.at < 0 ? -1 : node.keys.child(frame.at, byte);
  const bool declared = declared_below(node, frame, frame.at);
  if (frame.sub != kNameEscaped) {
    const StringState next = next_string_state(static_cast<StringState>(frame.sub), byte);
    // Names that are not declared have no escapes, so that bytes say whether they are.
    if (next == kBroken || next == kBackslash) {
      frame.sub = kNameEscaped;
    } else {
      frame.sub = next;
      if (rest) return out->push_back({frame, below});
    }
  }
  if (declared) out->push_back({frame, below});
}

void GrammarStep::advance_free_text(Frame frame, StackSet below, uint8_t byte, Entries* out) {
  const GrammarNode& node = grammar_.nodes[frame.node];
  while (frame.at > 0 && static_cast<uint8_t>(node.text[frame.at]) != byte) {
    frame.at = node.borders[frame.at];
  }
  if (static_cast<uint8_t>(node.text[frame.at]) == byte) ++frame.at;
  if (frame.at < static_cast<int32_t>(node.text.size())) {
    out->push_back({frame, below});
    pop(below, out);
    return;
  }
  frame.at = 0;
  start_node(node.rest, frame.depth, node.again ? put(frame, below) : below, out);
}

void GrammarStep::advance_sequence(Frame frame, StackSet below, uint8_t byte, Entries* out) {
  const GrammarNode& node = grammar_.nodes[frame.node];
  const int32_t count = static_cast<int32_t>(node.parts.size());
  for (; frame.index < count; ++frame.index) {
    Frame after = frame;
    ++after.index;
    const int32_t part = node.parts[frame.index];
    advance_into(part, frame.depth, after.index < count ? put(after, below) : below, byte, out);
    if (!nullable(Frame{.node = part})) return;
  }
}

void GrammarStep::advance_repeat(const Frame& frame, StackSet below, uint8_t byte, Entries* out) {
  const GrammarNode& node = grammar_.nodes[frame.node];
  advance_into(node.rest, frame.depth, put(frame, below), byte, out);
  for (const int32_t close : node.parts) advance_into(close, frame.depth, below, byte, out);
}

}  // namespace moraine
