// Nodes of a schema, or of tool calls around schemas.
#include "grammar/grammar.h"

#include <utility>

#include "base/error.h"
#include "base/json_quote.h"
#include "base/printable.h"
#include "grammar/nodes.h"
#include "grammar/schema.h"
#include "grammar/tagged_parameters.h"

namespace moraine {
namespace {

using Kind = GrammarNode::Kind;

// borders[i]: the longest proper prefix of text that text[0, i) ends with (Knuth, Morris, Pratt).
std::vector<int32_t> borders_of(const std::string& text) {
  std::vector<int32_t> borders(text.size() + 1, 0);
  int32_t longest = 0;
  for (size_t i = 1; i < text.size(); ++i) {
    while (longest > 0 && text[longest] != text[i]) longest = borders[longest];
    if (text[longest] == text[i]) ++longest;
    borders[i + 1] = longest;
  }
  return borders;
}

class ToolCompiler {
 public:
  ToolCompiler(const ToolGrammar& tools, const GrammarLimits& limits, GrammarNodes* out)
      : tools_(tools), limits_(limits), schema_(out, limits) {}

  void compile() {
    check();
    const std::string start = tools_.open + tools_.begin;
    const std::string trigger = tools_.trigger.empty() ? start : tools_.trigger;
    const bool either = tools_.choice == ToolGrammar::Choice::kAuto;
    const bool free = either && tools_.answer.is_null();
    if (free && (trigger.empty() || !start.starts_with(trigger))) {
      throw_error(Code::kInvalidArgument,
                  "tools: the trigger '{}' does not begin the text before a call, '{}'",
                  printable(trigger, 200), printable(start, 200));
    }
    const int32_t calls = compile_calls(free ? start.substr(trigger.size()) : start);
    if (!free) return schema_.finish(either ? calls_or_answer(calls) : calls, "tools");
    GrammarNode text{.kind = Kind::kFreeText, .again = tools_.parallel, .rest = calls};
    text.text = trigger;
    text.borders = borders_of(trigger);
    schema_.finish(schema_.add_node(std::move(text), "tools"), "tools");
  }

 private:
  void check() const {
    const int64_t count = static_cast<int64_t>(tools_.tools.size());
    if (count == 0 || count > limits_.tools) {
      throw_error(Code::kInvalidArgument, "tools: there are {} tools, want 1 to {}", count,
                  limits_.tools);
    }
    for (const std::string* text : {&tools_.open, &tools_.begin, &tools_.between, &tools_.end,
                                    &tools_.separator, &tools_.close}) {
      if (static_cast<int64_t>(text->size()) <= limits_.literal_bytes) continue;
      throw_error(Code::kInvalidArgument,
                  "tools: a text around calls has {} bytes, the limit is {}", text->size(),
                  limits_.literal_bytes);
    }
    if (tools_.between.empty()) {
      throw_error(Code::kInvalidArgument,
                  "tools: there is no text between the name of a tool and its arguments");
    }
  }

  int32_t calls_or_answer(int32_t calls) {
    const int32_t value = schema_.compile_document(tools_.answer, "#", tools_.answer_strict);
    const int32_t answer = schema_.add_node({.kind = Kind::kSpaced, .rest = value}, "#");
    return schema_.add_node({.kind = Kind::kAny, .parts = {calls, answer}}, "#");
  }

  // Appends a part for `text`, if it is not empty.
  void append_literal(const std::string& text, const std::string& path,
                      std::vector<int32_t>* parts) {
    if (!text.empty()) parts->push_back(schema_.literal(text, path));
  }
  int32_t sequence(std::vector<int32_t> parts, const std::string& path) {
    return parts.size() == 1
               ? parts[0]
               : schema_.add_node({.kind = Kind::kSequence, .parts = std::move(parts)}, path);
  }

  int32_t compile_tool(const ToolGrammar::Tool& tool) {
    const std::string name = json_quote(tool.name);
    if (tool.name.empty() || static_cast<int64_t>(tool.name.size()) > limits_.literal_bytes) {
      throw_error(Code::kInvalidArgument, "tools: the name of a tool has {} bytes, want 1 to {}",
                  tool.name.size(), limits_.literal_bytes);
    }
    const std::string path = "tools/" + printable(tool.name, 60) + "/parameters";
    if (tools_.tagged) return compile_tagged_tool(tool, path);
    const bool none = tool.parameters.is_null();
    const int32_t arguments =
        none ? schema_.compile_document({{"type", "object"}, {"additionalProperties", false}}, path)
             : schema_.compile_document(tool.parameters, path, tool.strict);
    std::vector<int32_t> parts;
    append_literal(name.substr(1, name.size() - 2) + tools_.between, path, &parts);
    parts.push_back(arguments);
    append_literal(tools_.end, path, &parts);
    return sequence(std::move(parts), path);
  }

  int32_t compile_tagged_tool(const ToolGrammar::Tool& tool, const std::string& path) {
    const int32_t name = schema_.literal(tool.name + tools_.between, path);
    return sequence({name, compile_tagged(schema_, tool.parameters, tools_.end, path, tool.strict)},
                    path);
  }

  // `start`: what is left of open + begin.
  int32_t compile_calls(const std::string& start) {
    std::vector<int32_t> named;
    for (const ToolGrammar::Tool& tool : tools_.tools) {
      const bool wanted = tools_.choice != ToolGrammar::Choice::kNamed || tool.name == tools_.name;
      if (wanted) named.push_back(compile_tool(tool));
    }
    if (named.empty()) {
      throw_error(Code::kInvalidArgument, "tools: there is no tool named '{}'",
                  printable(tools_.name, 200));
    }
    const int32_t tool = schema_.add_node({.kind = Kind::kAny, .parts = std::move(named)}, "tools");
    std::vector<int32_t> parts;
    append_literal(start, "tools", &parts);
    parts.push_back(tool);
    if (!tools_.parallel) {
      append_literal(tools_.close, "tools", &parts);
      return sequence(std::move(parts), "tools");
    }
    std::vector<int32_t> further;
    append_literal(tools_.separator + tools_.begin, "tools", &further);
    further.push_back(tool);
    GrammarNode more{.kind = Kind::kRepeat, .rest = sequence(std::move(further), "tools")};
    append_literal(tools_.close, "tools", &more.parts);
    parts.push_back(schema_.add_node(std::move(more), "tools"));
    return sequence(std::move(parts), "tools");
  }

  const ToolGrammar& tools_;
  const GrammarLimits& limits_;
  SchemaCompiler schema_;
};

}  // namespace

Grammar::Grammar(std::unique_ptr<const GrammarNodes> nodes) : nodes_(std::move(nodes)) {}
Grammar::~Grammar() = default;

int64_t Grammar::bytes() const {
  int64_t bytes = 0;
  for (const Automaton& automaton : nodes_->automata) bytes += automaton.bytes();
  for (const GrammarNode& node : nodes_->nodes) {
    bytes +=
        static_cast<int64_t>(sizeof node + node.text.size() +
                             (node.parts.size() + node.next_required.size() + node.borders.size() +
                              node.characters_left.size() + node.keys.ids.size()) *
                                 sizeof(int32_t) +
                             node.properties.size() * sizeof(GrammarNode::Property) +
                             node.keys.nodes.size() * sizeof(ByteTrie::Node));
  }
  return bytes;
}

std::shared_ptr<const Grammar> Grammar::any_json() {
  auto nodes = std::make_unique<GrammarNodes>();
  SchemaCompiler compiler(nodes.get(), GrammarLimits());
  const int32_t object = compiler.any_object("#");
  compiler.finish(compiler.add_node({.kind = Kind::kSpaced, .rest = object}, "#"), "#");
  return std::shared_ptr<const Grammar>(new Grammar(std::move(nodes)));
}

std::shared_ptr<const Grammar> Grammar::of_schema(const Json& schema, bool strict,
                                                  const GrammarLimits& limits) {
  auto nodes = std::make_unique<GrammarNodes>();
  SchemaCompiler compiler(nodes.get(), limits);
  const int32_t value = compiler.compile_document(schema, "#", strict);
  compiler.finish(compiler.add_node({.kind = Kind::kSpaced, .rest = value}, "#"), "#");
  return std::shared_ptr<const Grammar>(new Grammar(std::move(nodes)));
}

std::shared_ptr<const Grammar> Grammar::of_tool_calls(const ToolGrammar& tools,
                                                      const GrammarLimits& limits) {
  auto nodes = std::make_unique<GrammarNodes>();
  ToolCompiler(tools, limits, nodes.get()).compile();
  return std::shared_ptr<const Grammar>(new Grammar(std::move(nodes)));
}

}  // namespace moraine
