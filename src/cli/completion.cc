// One function for each shell; a value without choices is completed as a file name.
#include "cli/completion.h"

#include <fmt/format.h>

#include <algorithm>

namespace moraine {
namespace {

bool takes_value(const Argument& a) {
  return a.kind != Argument::Kind::kFlag && a.kind != Argument::Kind::kPositional;
}

// In single quotes, for both shells.
std::string shell_quoted(const std::string& text) {
  std::string out = "'";
  for (const char c : text) out += c == '\'' ? std::string("'\\''") : std::string(1, c);
  return out + "'";
}

std::string joined(const std::vector<std::string>& words) {
  return fmt::format("{}", fmt::join(words, " "));
}

std::vector<std::string> names_of(std::span<const CommandSummary> commands) {
  std::vector<std::string> names;
  for (const CommandSummary& c : commands) names.push_back(c.name);
  return names;
}

// The branches of one command, tried in order: "<command> <word before>".
std::string bash_branches(const Declaration& d) {
  std::string text;
  std::vector<std::string> free_values, flags;
  for (const Argument& a : d.arguments) {
    if (a.kind == Argument::Kind::kPositional) {
      if (!a.choices.empty())
        text += fmt::format("    '{0} {0}') words={1} ;;\n", d.command,
                            shell_quoted(joined(a.choices)));
      continue;
    }
    flags.push_back("--" + a.name);
    if (!a.choices.empty()) {
      text += fmt::format("    '{} --{}') words={} ;;\n", d.command, a.name,
                          shell_quoted(joined(a.choices)));
    } else if (takes_value(a)) {
      free_values.push_back(fmt::format("'{} --{}'", d.command, a.name));
    }
  }
  if (!free_values.empty())
    text += fmt::format("    {}) return ;;\n", fmt::join(free_values, " | "));
  flags.push_back("--help");
  return text + fmt::format("    '{} '*) words={} ;;\n", d.command, shell_quoted(joined(flags)));
}

// Text inside the brackets or between the colons of a specification for _arguments.
std::string zsh_escaped(const std::string& text) {
  std::string out;
  for (const char c : text) {
    if (c == '[' || c == ']' || c == ':' || c == '\\') out += '\\';
    out += c;
  }
  return out;
}

std::string zsh_values(const Argument& a) {
  if (!a.choices.empty()) return "(" + joined(a.choices) + ")";
  return a.kind == Argument::Kind::kInteger || a.kind == Argument::Kind::kNumber ? "" : "_files";
}

std::string zsh_argument(const Argument& a) {
  if (a.kind == Argument::Kind::kPositional)
    return shell_quoted(fmt::format("1:{}:{}", zsh_escaped(a.name), zsh_values(a)));
  std::string text = fmt::format("--{}[{}]", a.name, zsh_escaped(a.help));
  if (a.kind == Argument::Kind::kList) text = "*" + text;
  if (takes_value(a)) text += fmt::format(":{}:{}", zsh_escaped(a.name), zsh_values(a));
  return shell_quoted(text);
}

}  // namespace

std::string bash_completion(std::span<const CommandSummary> commands,
                            std::span<const Declaration> declarations) {
  std::string text =
      "# Completion of moraine in bash, made by `moraine completion bash`: source it, or install "
      "it "
      "as\n# /usr/share/bash-completion/completions/moraine.\n_moraine() {\n"
      "  local word=${COMP_WORDS[COMP_CWORD]} words=''\n"
      "  COMPREPLY=()\n"
      "  case \"${COMP_WORDS[1]} ${COMP_WORDS[COMP_CWORD - 1]}\" in\n";
  std::vector<std::string> first = names_of(commands);
  first.insert(first.end(), {"--help", "--version"});
  // The word before the first one is the program itself.
  std::string branches;
  for (const Declaration& d : declarations) branches += bash_branches(d);
  text += branches;
  return text +
         fmt::format("  esac\n  if [ \"$COMP_CWORD\" -eq 1 ]; then words={}; fi\n",
                     shell_quoted(joined(first))) +
         "  mapfile -t COMPREPLY < <(compgen -W \"$words\" -- \"$word\")\n}\n"
         "complete -o default -F _moraine moraine\n";
}

std::string zsh_completion(std::span<const CommandSummary> commands,
                           std::span<const Declaration> declarations) {
  std::string text =
      "#compdef moraine\n# Completion of moraine in zsh, made by `moraine completion zsh`: install "
      "it as _moraine in a folder of fpath.\n_moraine() {\n  if (( CURRENT == 2 )); then\n"
      "    local -a commands=(\n";
  for (const CommandSummary& c : commands)
    text += "      " + shell_quoted(c.name + ":" + c.summary) + "\n";
  text +=
      "    )\n    _describe -t commands command commands\n    return\n  fi\n"
      "  local command=$words[2]\n  shift words\n  (( CURRENT-- ))\n  case $command in\n";
  for (const Declaration& d : declarations) {
    text += fmt::format("    {})\n      _arguments \\\n", d.command);
    for (const Argument& a : d.arguments) text += "        " + zsh_argument(a) + " \\\n";
    text += "        '--help[Print help and exit.]'\n      ;;\n";
  }
  return text +
         "  esac\n}\n"
         "if [[ $funcstack[1] == _moraine ]]; then _moraine \"$@\"; else compdef _moraine moraine; "
         "fi\n";
}

}  // namespace moraine
