// What can be said of nodes once all are there: flat alternatives, depth of the smallest answers.
#include <algorithm>

#include "base/error.h"
#include "grammar/schema.h"

namespace moraine {
namespace {

using Kind = GrammarNode::Kind;

int32_t least_of_parts(const GrammarNodes& all, const std::vector<int32_t>& parts) {
  int32_t least = kNever;
  for (const int32_t part : parts) least = std::min(least, all.nodes[part].least_nesting);
  return least;
}

int32_t most_of_parts(const GrammarNodes& all, const GrammarNode& node) {
  int32_t most = 0;
  for (const int32_t part : node.parts) most = std::max(most, all.nodes[part].least_nesting);
  return most;
}

int32_t least_of_array(const GrammarNodes& all, const GrammarNode& node) {
  const int64_t given = static_cast<int64_t>(node.parts.size());
  int32_t most = 0;
  for (int64_t i = 0; i < std::min(node.min, given); ++i) {
    most = std::max(most, all.nodes[node.parts[i]].least_nesting);
  }
  if (node.min > given) {
    most = std::max(most, node.rest < 0 ? kNever : all.nodes[node.rest].least_nesting);
  }
  return std::min(kNever, most + 1);
}

int32_t least_of_object(const GrammarNodes& all, const GrammarNode& node) {
  int32_t most = 0;
  for (const GrammarNode::Property& property : node.properties) {
    if (!property.required) continue;
    most = std::max(most, property.node < 0 ? kNever : all.nodes[property.node].least_nesting);
  }
  return std::min(kNever, most + 1);
}

int32_t least_nesting_of(const GrammarNodes& all, const GrammarNode& node) {
  switch (node.kind) {
    case Kind::kAutomaton:
    case Kind::kString:
      return 0;
    case Kind::kObject:
      return least_of_object(all, node);
    case Kind::kArray:
      return least_of_array(all, node);
    case Kind::kSequence:
      return most_of_parts(all, node);
    case Kind::kRepeat:  // its item is as the one before it
    case Kind::kFreeText:
    case Kind::kSpaced:
      return std::max(most_of_parts(all, node), all.nodes[node.rest].least_nesting);
    case Kind::kAny:
      return least_of_parts(all, node.parts);
  }
  return kNever;
}

}  // namespace

// Every round settles at least one more nesting, or nothing changes.
void SchemaCompiler::find_least_nesting(const std::string& name) {
  int64_t parts = 0;
  for (const GrammarNode& node : out_->nodes)
    parts += 4 + static_cast<int64_t>(node.parts.size() + node.properties.size());
  for (bool changed = true; changed;) {
    changed = false;
    work_.spend_at(parts, name);
    for (size_t i = 0; i < out_->nodes.size(); ++i) {
      int32_t least = least_nesting_of(*out_, out_->nodes[i]);
      if (least > limits_.nesting) least = kNever;
      if (least >= out_->nodes[i].least_nesting) continue;
      out_->nodes[i].least_nesting = least;
      changed = true;
    }
  }
}

void SchemaCompiler::flatten(const std::string& name) {
  std::vector<std::vector<int32_t>> leaves(out_->nodes.size());
  std::vector<int32_t> seen(out_->nodes.size(), -1);
  int64_t alternatives = 0;
  for (size_t i = 0; i < out_->nodes.size(); ++i) {
    if (out_->nodes[i].kind != Kind::kAny) continue;
    std::vector<int32_t> waiting = {static_cast<int32_t>(i)};
    while (!waiting.empty()) {
      const int32_t at = waiting.back();
      waiting.pop_back();
      if (seen[at] == static_cast<int32_t>(i)) continue;
      seen[at] = static_cast<int32_t>(i);
      const GrammarNode& node = out_->nodes[at];
      if (node.kind != Kind::kAny) {
        leaves[i].push_back(at);
      } else {
        work_.spend_at(static_cast<int64_t>(node.parts.size()), name);
        waiting.insert(waiting.end(), node.parts.rbegin(), node.parts.rend());
      }
      if (++alternatives > limits_.alternatives) {
        throw_error(Code::kInvalidArgument,
                    "schema {}: anyOf, oneOf and $ref within each other give more than {} "
                    "alternatives, which is the limit; leave out some of them",
                    name, limits_.alternatives);
      }
    }
  }
  for (size_t i = 0; i < out_->nodes.size(); ++i) {
    if (out_->nodes[i].kind == Kind::kAny) out_->nodes[i].parts = std::move(leaves[i]);
  }
}

void SchemaCompiler::finish(int32_t root, const std::string& name) {
  out_->nesting = static_cast<int32_t>(limits_.nesting);
  out_->root = root;
  flatten(name);
  find_least_nesting(name);
  out_->work = work_.spent();
  if (out_->nodes[root].least_nesting == kNever) {
    throw_error(Code::kInvalidArgument,
                "schema {}: no JSON value of at most {} arrays and objects within each other "
                "satisfies it",
                name, limits_.nesting);
  }
}

}  // namespace moraine
