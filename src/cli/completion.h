// Completion: scripts that complete commands, flags and their choices in bash and zsh, made from
// declarations.
#pragma once

#include <span>
#include <string>

#include "cli/declaration.h"
#include "cli/man_page.h"

namespace moraine {

// `commands` in the order of `declarations`.
std::string bash_completion(std::span<const CommandSummary> commands,
                            std::span<const Declaration> declarations);
std::string zsh_completion(std::span<const CommandSummary> commands,
                           std::span<const Declaration> declarations);

}  // namespace moraine
