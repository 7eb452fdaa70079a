// ManPage: the pages moraine(1) and moraine-<command>(1) in roff, made from declarations.
#pragma once

#include <span>
#include <string>

#include "cli/declaration.h"

namespace moraine {

struct CommandSummary {
  std::string name, summary;
};

// moraine(1): what there is.
std::string program_man_page(std::span<const CommandSummary> commands);
// moraine-<command>(1). `one_line` is the command's line in `moraine --help`.
std::string command_man_page(const Declaration& declaration, const std::string& one_line);

}  // namespace moraine
