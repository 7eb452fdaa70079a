// Roff of the man macros: a few requests, and three characters that must be escaped.
#include "cli/man_page.h"

#include <fmt/format.h>

#include <algorithm>
#include <cctype>

#include "cli/build_info.h"

namespace moraine {
namespace {

// Text as roff: a backslash, a minus that is to be copied, a line that begins with a control
// character.
std::string roff(const std::string& text) {
  std::string out;
  for (const char c : text) {
    if (c == '\\') {
      out += "\\e";
    } else if (c == '-') {
      out += "\\-";
    } else if (c == '|') {
      out += "|\\:";  // between choices a line may end
    } else if ((c == '.' || c == '\'') && (out.empty() || out.back() == '\n')) {
      out += std::string("\\&") + c;
    } else {
      out += c;
    }
  }
  return out;
}

std::string bold(const std::string& text) { return "\\fB" + roff(text) + "\\fR"; }
std::string italic(const std::string& text) { return "\\fI" + roff(text) + "\\fR"; }

std::string title(const std::string& page) {
  std::string upper = page;
  std::transform(upper.begin(), upper.end(), upper.begin(),
                 [](unsigned char c) { return static_cast<char>(std::toupper(c)); });
  return fmt::format(".TH {} 1 \"\" \"moraine {}\" \"Moraine\"\n", roff(upper), kBuildInfo.version);
}

std::string exit_status() {
  std::string text = ".SH EXIT STATUS\n";
  for (const ExitCode& e : exit_codes())
    text += fmt::format(".TP\n.B {}\n{}\n", e.code, roff(e.meaning));
  return text;
}

// What stands for the value; empty for a switch.
std::string placeholder(const Argument& a) {
  switch (a.kind) {
    case Argument::Kind::kFlag:
      return "";
    case Argument::Kind::kInteger:
      return "N";
    case Argument::Kind::kNumber:
      return "X";
    case Argument::Kind::kList:
      return "TEXT...";
    case Argument::Kind::kText:
    case Argument::Kind::kPositional:
      break;
  }
  return a.choices.empty() ? "TEXT" : fmt::format("{}", fmt::join(a.choices, "|"));
}

std::string head_of(const Argument& a) {
  if (a.kind == Argument::Kind::kPositional)
    return a.choices.empty() ? italic(a.name) : bold(placeholder(a));
  const std::string value = placeholder(a);
  return bold("--" + a.name) +
         (value.empty() ? "" : " " + (a.choices.empty() ? italic(value) : roff(value)));
}

std::string option(const Argument& a) {
  std::string notes;
  if (a.required) notes += " Required.";
  if (!a.range.empty()) notes += " Allowed: " + a.range + ".";
  if (!a.standard.empty()) notes += " Default: " + a.standard + ".";
  std::string help = a.help;
  if (!help.empty() && help.back() != '.' && help.back() != ')') help += '.';
  constexpr size_t kMostTag = 60;  // characters: roff does not fill the lines of a tag
  const bool is_long = a.kind == Argument::Kind::kPositional && placeholder(a).size() > kMostTag;
  return fmt::format(".TP\n{}\n{}\n", is_long ? italic(a.name) : head_of(a), roff(help + notes));
}

std::string synopsis(const Declaration& d) {
  std::string text = ".SH SYNOPSIS\n" + bold("moraine " + d.command);
  for (const Argument& a : d.arguments) {
    if (a.kind == Argument::Kind::kPositional || a.required) text += " " + head_of(a);
  }
  return text + " [" + italic("options") + "]\n";
}

}  // namespace

std::string program_man_page(std::span<const CommandSummary> commands) {
  std::string text = title("moraine") +
                     ".SH NAME\nmoraine \\- pretrain, adapt, evaluate and run sparse "
                     "mixture\\-of\\-experts language models\n.SH SYNOPSIS\n" +
                     bold("moraine") + " " + italic("command") + " [" + italic("options") +
                     "]\n.br\n" + bold("moraine --version") + "\n.SH COMMANDS\n";
  for (const CommandSummary& c : commands)
    text += fmt::format(".TP\n{}\n{}.\n", bold(c.name), roff(c.summary));
  text +=
      ".PP\nResults go to standard output, everything else to standard error. Each command has a "
      "page,\n" +
      bold("moraine-") + italic("command") + "(1), and " + bold("--help") + ".\n" + exit_status() +
      ".SH ENVIRONMENT\n.TP\n.B MORAINE_ISA\nThe instruction set that kernels use at most: one "
      "of " +
      roff(kBuildInfo.instruction_sets) + ".\n.SH SEE ALSO\n";
  for (size_t i = 0; i < commands.size(); ++i)
    text += fmt::format("{}(1){}\n", bold("moraine-" + commands[i].name),
                        i + 1 < commands.size() ? "," : "");
  return text;
}

std::string command_man_page(const Declaration& d, const std::string& one_line) {
  std::string text =
      title("moraine-" + d.command) +
      fmt::format(".SH NAME\nmoraine\\-{} \\- {}\n", roff(d.command), roff(one_line)) +
      synopsis(d) + ".SH DESCRIPTION\n" + roff(d.summary) + "\n.SH OPTIONS\n";
  for (const Argument& a : d.arguments) text += option(a);
  return text + ".TP\n" + bold("--help") + "\nPrint the same in short and exit.\n" + exit_status() +
         ".SH SEE ALSO\n" + bold("moraine") + "(1)\n";
}

}  // namespace moraine
