// Version: what `moraine --version` says: version, commit, compiler, instruction sets.
#pragma once

#include "cli/commands.h"

namespace moraine {

// Errors: kInvalidArgument if MORAINE_ISA names an instruction set that is not there.
void print_version(const CommandLine& line);

}  // namespace moraine
