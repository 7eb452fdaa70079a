// Options through CLI11; the only file that includes it.
#include "cli/flags.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <CLI/CLI.hpp>
#include <algorithm>
#include <cerrno>
#include <cstdlib>

#include "base/check.h"
#include "base/error.h"
#include "base/nearest.h"
#include "cli/commands.h"
#include "cli/declaration.h"

namespace moraine {

struct Flags::State {
  CLI::App app;
  Declaration declaration;
  State(const std::string& summary, const std::string& command) : app(summary, command) {}
};

namespace {

constexpr ExitCode kExitCodes[] = {
    {0, "done"},
    {2, "usage"},
    {10, "invalid argument"},
    {11, "not found"},
    {12, "corrupt"},
    {13, "disk"},
    {14, "diverged"},
    {15, "peer lost"},
    {16, "timeout"},
    {17, "device"},
    {18, "interrupted: run again to go on"},
    {20, "rank diverged"},
};

std::string footer() {
  std::string text = "Exit codes: ";
  for (const ExitCode& e : kExitCodes)
    text += fmt::format("{}{} {}",
                        e.code == 0    ? ""
                        : e.code == 16 ? ";\n"
                                       : "; ",
                        e.code, e.meaning);
  return text + ". stdout: results; stderr: the rest.";
}

std::string flag_name(const std::string& name) { return "--" + name; }

// An empty choice is the default; nobody types it.
std::vector<std::string> words_of(std::vector<std::string> choices) {
  std::erase(choices, "");
  return choices;
}

// Of "train, step".
std::vector<std::string> divide(const std::string& words) {
  std::vector<std::string> all;
  for (size_t at = 0; at < words.size();) {
    const size_t end = std::min(words.find(", ", at), words.size());
    all.push_back(words.substr(at, end - at));
    at = end + 2;
  }
  return all;
}

bool has(const std::vector<std::string>& words, const std::string& word) {
  return std::find(words.begin(), words.end(), word) != words.end();
}

using Kind = Argument::Kind;

// A help text that says what the default is, as the config's, knows better than the variable.
bool says_standard(const std::string& help) { return help.find("default") != std::string::npos; }

template <class T>
std::string standard(const T& value, const std::string& help) {
  return says_standard(help) ? "" : fmt::format("{}", value);
}

void show_standard(CLI::Option* option, const std::string& help) {
  if (!says_standard(help)) option->capture_default_str();
}

// The positional whose words heed flags, or not.
const Argument& chosen(const Declaration& declaration) {
  const auto found = std::find_if(
      declaration.arguments.begin(), declaration.arguments.end(),
      [](const Argument& a) { return a.kind == Kind::kPositional && !a.choices.empty(); });
  MR_CHECK(found != declaration.arguments.end(), "%s", declaration.command.c_str());
  return *found;
}

// CLI11 takes the brackets off a value of a list that stands in them, and divides it at commas: "[PAD]" would be "PAD".
// Behind a word that ends in one stands this, until it is parsed: then it is taken off, before a value is looked at.
constexpr char kNoBracket = '\x1f';

std::string without_mark(std::string word) {
  if (word.ends_with(std::string{']', kNoBracket})) word.pop_back();
  return word;
}

std::string without_marks(std::string text) {
  std::erase(text, kNoBracket);
  return text;
}

}  // namespace

std::span<const ExitCode> exit_codes() { return kExitCodes; }

Flags::Flags(const std::string& command, const std::string& summary)
    : state_(std::make_unique<State>(summary, "moraine " + command)) {
  state_->declaration = {.command = command, .summary = summary, .arguments = {}};
  state_->app.footer(footer());
  state_->app.set_help_flag("--help", "Print this and exit.");
}

Flags::~Flags() = default;

Flags& Flags::text(const std::string& name, std::string* variable, const std::string& help) {
  state_->declaration.arguments.push_back(
      {.kind = Kind::kText, .name = name, .help = help, .standard = standard(*variable, help)});
  show_standard(state_->app.add_option(flag_name(name), *variable, help), help);
  return *this;
}

Flags& Flags::required(const std::string& name, std::string* variable, const std::string& help) {
  state_->declaration.arguments.push_back(
      {.kind = Kind::kText, .name = name, .help = help, .required = true});
  state_->app.add_option(flag_name(name), *variable, help)->required();
  return *this;
}

Flags& Flags::choice(const std::string& name, std::string* variable,
                     std::vector<std::string> choices, const std::string& help) {
  state_->declaration.arguments.push_back({.kind = Kind::kText,
                                           .name = name,
                                           .help = help,
                                           .choices = words_of(choices),
                                           .standard = *variable});
  state_->app.add_option(flag_name(name), *variable, help)
      ->check(CLI::IsMember(std::move(choices)))
      ->capture_default_str();
  return *this;
}

Flags& Flags::integer(const std::string& name, int64_t* variable, const std::string& help,
                      int64_t min, int64_t max) {
  state_->declaration.arguments.push_back({.kind = Kind::kInteger,
                                           .name = name,
                                           .help = help,
                                           .standard = standard(*variable, help),
                                           .range = fmt::format("{} to {}", min, max)});
  // CLI11 takes the largest integer for those that have more digits.
  const auto fits = [min, max](const std::string& word) {
    errno = 0;
    char* end = nullptr;
    (void)std::strtoll(word.c_str(), &end, 0);
    if (*end != 0) return fmt::format("{} is no integer; wanted one from {} to {}", word, min, max);
    return errno == ERANGE ? fmt::format("Value {} not in range {} to {}", word, min, max) : "";
  };
  CLI::Option* option = state_->app.add_option(flag_name(name), *variable, help);
  show_standard(option->check(fits)->check(CLI::Range(min, max)), help);
  return *this;
}

Flags& Flags::number(const std::string& name, double* variable, const std::string& help) {
  state_->declaration.arguments.push_back(
      {.kind = Kind::kNumber, .name = name, .help = help, .standard = standard(*variable, help)});
  show_standard(state_->app.add_option(flag_name(name), *variable, help), help);
  return *this;
}

Flags& Flags::flag(const std::string& name, bool* variable, const std::string& help) {
  state_->declaration.arguments.push_back({.kind = Kind::kFlag, .name = name, .help = help});
  state_->app.add_flag(flag_name(name), *variable, help);
  return *this;
}

Flags& Flags::list(const std::string& name, std::vector<std::string>* variable,
                   const std::string& help) {
  state_->declaration.arguments.push_back({.kind = Kind::kList, .name = name, .help = help});
  state_->app.add_option(flag_name(name), *variable, help);
  return *this;
}

Flags& Flags::positional(const std::string& name, std::string* variable, const std::string& help) {
  state_->declaration.arguments.push_back(
      {.kind = Kind::kPositional, .name = name, .help = help, .required = true});
  state_->app.add_option(name, *variable, help)->required();
  return *this;
}

Flags& Flags::optional_positional(const std::string& name, std::string* variable,
                                  const std::string& help) {
  state_->declaration.arguments.push_back({.kind = Kind::kPositional, .name = name, .help = help});
  state_->app.add_option(name, *variable, help);
  return *this;
}

Flags& Flags::choice_positional(const std::string& name, std::string* variable,
                                std::vector<std::string> choices, const std::string& help) {
  state_->declaration.arguments.push_back({.kind = Kind::kPositional,
                                           .name = name,
                                           .help = help,
                                           .choices = choices,
                                           .required = true});
  state_->app.add_option(name, *variable, help)
      ->required()
      ->check(CLI::IsMember(std::move(choices)));
  return *this;
}

Flags& Flags::heeded_by(const std::string& words) {
  Declaration& declaration = state_->declaration;
  const std::vector<std::string> all = divide(words);
  for (const std::string& word : all)
    MR_CHECK(has(chosen(declaration).choices, word), "%s", word.c_str());
  declaration.arguments.back().heeded_by = all;
  return *this;
}

// Whoever gives a flag believes that something depends on it.
void Flags::check_is_heeded() const {
  const Declaration& declaration = state_->declaration;
  for (const Argument& a : declaration.arguments) {
    if (a.heeded_by.empty() || !given(a.name)) continue;
    const std::string word = state_->app.get_option(chosen(declaration).name)->as<std::string>();
    if (has(a.heeded_by, word)) continue;
    throw_error(Code::kInvalidArgument,
                "--{0}: {1} {2} does not heed it; it is of {1} {3}; leave it out", a.name,
                declaration.command, word, fmt::join(a.heeded_by, ", "));
  }
}

bool Flags::parse(const CommandLine& line) {
  if (line.declared != nullptr) {
    *line.declared = state_->declaration;
    return false;
  }
  // CLI11 takes them from the back.
  std::vector<std::string> reversed(line.words.rbegin(), line.words.rend());
  if (!reversed.empty() && reversed.back() == "-h") reversed.back() = "--help";
  for (std::string& word : reversed) {
    if (word.ends_with(']')) word += kNoBracket;
  }
  for (CLI::Option* option : state_->app.get_options()) option->transform(without_mark);
  try {
    state_->app.parse(reversed);
  } catch (const CLI::CallForHelp&) {
    fmt::print("{}", state_->app.help());
    return false;
  } catch (const CLI::ParseError& e) {
    refuse_unknown();  // one that is missing may be one that was mistyped
    throw_error(Code::kInvalidArgument, "{}; `--help` lists the flags", without_marks(e.what()));
  }
  check_is_heeded();
  return true;
}

void Flags::refuse_unknown() const {
  std::vector<std::string> names = {"--help"};
  for (const Argument& a : state_->declaration.arguments) {
    if (a.kind != Kind::kPositional) names.push_back(flag_name(a.name));
  }
  for (const std::string& each : state_->app.remaining()) {
    const std::string extra = without_marks(each);
    if (!extra.starts_with('-'))
      throw_error(Code::kInvalidArgument,
                  "unknown argument {}; a value stands behind its flag, and `--help` lists them",
                  extra);
    const std::string name = extra.substr(0, extra.find('='));
    throw_error(Code::kInvalidArgument, "unknown argument {}{}", extra,
                did_you_mean(name, names, {.then = "`--help` lists them"}));
  }
}

bool Flags::given(const std::string& name) const { return state_->app.count(flag_name(name)) > 0; }

}  // namespace moraine
