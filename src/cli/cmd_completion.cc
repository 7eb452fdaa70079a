// `moraine completion`: a script that completes commands and flags. The target completions writes
// both.
#include "base/error.h"
#include "base/file_system.h"
#include "cli/commands.h"
#include "cli/completion.h"
#include "cli/flags.h"

namespace moraine {

void cmd_completion(const CommandLine& line) {
  std::string shell, out;
  Flags flags("completion", "Print a script that completes commands, flags and their choices.");
  flags.choice_positional("shell", &shell, {"bash", "zsh"}, "Whose completion.")
      .text("out", &out, "Write to this file instead.");
  if (!flags.parse(line)) return;
  std::vector<CommandSummary> summaries;
  std::vector<Declaration> declarations;
  for (const Command& c : commands()) {
    if (c.hidden) continue;
    summaries.push_back({c.name, c.summary});
    declarations.push_back(declaration_of(c));
  }
  const std::string script = shell == "bash" ? bash_completion(summaries, declarations)
                                             : zsh_completion(summaries, declarations);
  if (out.empty()) {
    fmt::print("{}", script);
    return;
  }
  FileSystem& fs = posix_file_system();
  fs.make_directories(parent_path(out));
  fs.write_atomic(out, script);
}

}  // namespace moraine
