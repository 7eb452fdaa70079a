// Version: what `moraine --version` says: version, commit, compiler, instruction sets.
#pragma once

#include <string>

#include "cli/commands.h"

namespace moraine {

// Errors: kInvalidArgument if MORAINE_ISA names an instruction set that is not there.
void print_version(const CommandLine& line);

// The same in one line, for the log of a run: "moraine 0.3.0, commit cb60ebd2a6f1, GNU 12.2.0".
std::string version_line();

}  // namespace moraine
