// Tool grammar: one table of the formats.
#include "server/tool_grammar.h"

#include <algorithm>
#include <initializer_list>
#include <string_view>
#include <vector>

#include "grammar/tagged_parameters.h"
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

// The form in which the templates of these models teach calls.
void set_tags(ToolFormat format, ToolGrammar* g) {
  const std::string tag = format == ToolFormat::kZaya ? "zyphra_tool_call>" : "tool_call>";
  g->tagged = true;
  g->begin = "<" + tag + "\n<function=";
  g->between = ">\n";
  g->end = "</function>\n</" + tag;
}

std::vector<int32_t> ids_of(const Tokenizer& tokenizer,
                            std::initializer_list<std::string_view> texts) {
  std::vector<int32_t> ids;
  for (const std::string_view text : texts) ids.push_back(tokenizer.id_of(text));
  return ids;
}

}  // namespace

bool writes_tags(const ToolUse& use, ToolFormat format) {
  if (use.choice != "auto") return false;
  if (format != ToolFormat::kZaya && format != ToolFormat::kQwenCoder) return false;
  return std::all_of(use.tools.begin(), use.tools.end(), [](const Json& tool) {
    const Json& function = tool["function"];
    return !function.contains("parameters") || has_tagged_form(function["parameters"]);
  });
}

ToolGrammar tool_grammar(const ToolUse& use, ToolFormat format) {
  ToolGrammar g;
  set_texts(format, &g);
  if (writes_tags(use, format)) set_tags(format, &g);
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

std::shared_ptr<const TokenTrie> tool_token_trie(const Tokenizer& tokenizer, int64_t vocab_size,
                                                 ToolFormat format) {
  const std::vector<int32_t> literal = ids_of(
      tokenizer,
      {"<tool_call>", "</tool_call>", "<zyphra_tool_call>", "</zyphra_tool_call>", "[TOOL_CALLS]"});
  std::vector<int32_t> free = ids_of(tokenizer, {"<think>", "</think>"});
  if (format == ToolFormat::kLlama) free.push_back(tokenizer.id_of("<|python_tag|>"));
  return std::make_shared<TokenTrie>(tokenizer, vocab_size, literal, free);
}

}  // namespace moraine
