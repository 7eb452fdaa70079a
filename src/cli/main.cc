// The one program. Each command lives in cli/cmd_<name>.cc; this file only chooses.
#include <cerrno>
#include <cstdio>
#include <cstring>
#include <new>
#include <span>
#include <string>
#include <vector>

#include "base/error.h"
#include "base/nearest.h"
#include "cli/commands.h"
#include "cli/version.h"

namespace moraine {
namespace {

int usage(std::FILE* out, int code) {
  std::fprintf(out, "usage: moraine <command> [--flag value ...]\n\n");
  for (const Command& c : commands()) {
    if (!c.hidden) std::fprintf(out, "  %-10s %s\n", c.name, c.summary);
  }
  std::fprintf(
      out,
      "\n'moraine <command> --help' lists the flags of a command; 'moraine --version' says "
      "what was built.\n");
  return code;
}

int run(const char* name, void (*command)(const CommandLine&), std::span<char*> words) {
  try {
    command({.words = words});
    if (std::fflush(stdout) == 0) return kExitOk;
    throw_error(Code::kIo, "write to standard output: {}", std::strerror(errno));
  } catch (const Error& e) {
    std::fflush(stdout);
    std::fprintf(stderr, "moraine %s: %s\n", name, e.what());
    return exit_code(e.code());
  } catch (const std::bad_alloc&) {
    std::fprintf(
        stderr, "moraine %s: out of memory; `moraine plan memory` prints what a run needs\n", name);
    return exit_code(Code::kInvalidArgument);
  }
}

int unknown(const std::string& name) {
  std::vector<std::string> names;
  for (const Command& c : commands()) names.push_back(c.name);
  std::fprintf(stderr,
               "moraine: no command '%s'; did you mean %s? 'moraine --help' lists the commands\n",
               name.c_str(), nearest_name(name, names).c_str());
  return kExitUsage;
}

}  // namespace
}  // namespace moraine

int main(int argc, char** argv) {
  using namespace moraine;
  if (argc < 2) return usage(stderr, kExitUsage);
  if (!std::strcmp(argv[1], "--help")) return usage(stdout, kExitOk);
  if (!std::strcmp(argv[1], "--version")) return run("--version", print_version, {});
  for (const Command& c : commands()) {
    if (!std::strcmp(argv[1], c.name)) return run(c.name, c.run, {argv + 2, argv + argc});
  }
  return unknown(argv[1]);
}
