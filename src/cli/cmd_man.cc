// `moraine man`: the manual pages, in roff. The target man_pages writes all of them.
#include <cstdio>

#include "base/error.h"
#include "base/file_system.h"
#include "base/nearest.h"
#include "cli/commands.h"
#include "cli/flags.h"
#include "cli/man_page.h"

namespace moraine {
namespace {

std::string page(const std::string& name) {
  std::vector<CommandSummary> shown;
  std::vector<std::string> names;
  for (const Command& c : commands()) {
    if (name == c.name) return command_man_page(declaration_of(c), c.summary);
    names.push_back(c.name);
    if (!c.hidden) shown.push_back({c.name, c.summary});
  }
  if (name.empty()) return program_man_page(shown);
  throw_error(Code::kInvalidArgument, "no command '{}'{}", name,
              did_you_mean(name, names, {.then = "'moraine --help' lists the commands"}));
}

}  // namespace

void cmd_man(const CommandLine& line) {
  std::string name, out;
  Flags flags("man", "Print the manual page of the program or of a command, for `man -l -`.");
  flags.optional_positional("command", &name, "A command; not given: the program.")
      .text("out", &out, "Write all pages to this folder instead, as moraine-<command>.1.");
  if (!flags.parse(line)) return;
  if (out.empty()) {
    fmt::print("{}", page(name));
    return;
  }
  FileSystem& fs = posix_file_system();
  fs.make_directories(out);
  fs.write_atomic(join_path(out, "moraine.1"), page(""));
  for (const Command& c : commands()) {
    if (!c.hidden)
      fs.write_atomic(join_path(out, fmt::format("moraine-{}.1", c.name)), page(c.name));
  }
}

}  // namespace moraine
