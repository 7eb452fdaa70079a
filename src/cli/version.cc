// What the build knows, and what this machine has.
#include "cli/version.h"

#include <fmt/format.h>

#include "cli/build_info.h"
#include "kernels/isa.h"

namespace moraine {

void print_version(const CommandLine&) {
  const BuildInfo& b = kBuildInfo;
  fmt::print("moraine {}\ncommit: {}\ncompiler: {}, {}\ninstruction sets: compiled {}; used {}\n",
             b.version, b.commit, b.compiler, b.build_type, b.instruction_sets, isa_name(isa()));
}

std::string version_line() {
  const BuildInfo& b = kBuildInfo;
  return fmt::format("moraine {}, commit {}, {}", b.version, b.commit, b.compiler);
}

}  // namespace moraine
