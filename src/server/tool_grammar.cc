// Tool grammar: one table of the formats.
#include "server/tool_grammar.h"

#include "server/request_error.h"

namespace moraine {
namespace {

void set_texts(ToolFormat format, ToolGrammar* g) {
  switch (format) {
    case ToolFormat::kZaya:
      g->begin = "<zyphra_tool_call>\n{\"name\": \"";
      g->between = "\", \"arguments\": ";
      g->end = "}\n</zyphra_tool_call>";
      g->separator = "\n";
      g->trigger = "<zyphra_tool_call>";
      return;
    case ToolFormat::kHermes:
    case ToolFormat::kQwenCoder:
      g->begin = "<tool_call>\n{\"name\": \"";
      g->between = "\", \"arguments\": ";
      g->end = "}\n</tool_call>";
      g->separator = "\n";
      g->trigger = "<tool_call>";
      return;
    case ToolFormat::kLlama:
      g->begin = "{\"name\": \"";
      g->between = "\", \"parameters\": ";
      g->end = "}";
      g->separator = "; ";
      return;
    case ToolFormat::kMistral:
      g->open = "[TOOL_CALLS][";
      g->begin = "{\"name\": \"";
      g->between = "\", \"arguments\": ";
      g->end = "}";
      g->separator = ", ";
      g->close = "]";
      g->trigger = "[TOOL_CALLS]";
      return;
    case ToolFormat::kNone:
      throw RequestError("the model's chat template writes no tool calls", "tools",
                         "tools_not_supported");
  }
}

}  // namespace

ToolGrammar tool_grammar(const ToolUse& use, ToolFormat format) {
  ToolGrammar g;
  set_texts(format, &g);
  for (const Json& tool : use.tools) {
    const Json& function = tool["function"];
    g.tools.push_back(
        {.name = function["name"].get<std::string>(),
         .parameters = function.contains("parameters") ? function["parameters"] : Json(nullptr),
         .strict = function.contains("strict") && function["strict"] == Json(true)});
  }
  g.parallel = use.parallel;
  if (use.choice == "required") g.choice = ToolGrammar::Choice::kRequired;
  if (use.choice == "named") {
    g.choice = ToolGrammar::Choice::kNamed;
    g.name = use.name;
  }
  return g;
}

}  // namespace moraine
