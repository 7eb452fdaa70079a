// The one program. Each command lives in cli/cmd_<name>.cc; this file only chooses.
#include <cerrno>
#include <cstdio>
#include <cstring>
#include <new>
#include <span>
#include <string>
#include <system_error>
#include <vector>

#include "base/error.h"
#include "base/heartbeat.h"
#include "base/log.h"
#include "base/nearest.h"
#include "base/printable.h"
#include "base/process.h"
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

void flush_results() {
  if (std::fflush(stdout) == 0) return;
  throw_error(Code::kIo,
              "write to standard output: {}; wanted a file or pipe that takes the results",
              std::strerror(errno));
}

int failed(const char* name, Code code, const std::string& message) {
  say("moraine {}: {}\n", name, printable(message));
  return exit_code(code);
}

// What was being worked on is in the command line.
std::string out_of_memory(std::span<char*> words) {
  std::string all;
  for (const char* word : words) all += std::string(" ") + word;
  return fmt::format(
      "out of memory at:{}. `moraine plan memory` prints what a run needs; other commands need "
      "memory for the files that they read whole",
      all);
}

int try_to_run(const char* name, void (*command)(const CommandLine&), std::span<char*> words) {
  try {
    command({.words = words});
    flush_results();
    return kExitOk;
  } catch (const Error& e) {
    std::fflush(stdout);
    return failed(name, e.code(), e.what());
  } catch (const std::bad_alloc&) {
    return failed(name, Code::kInvalidArgument, out_of_memory(words));
  } catch (const std::system_error& e) {  // fmt could not print
    return failed(name, Code::kIo,
                  "write to standard output: " + e.code().message() +
                      "; wanted a file or pipe that takes the results");
  }
}

int run(const char* name, void (*command)(const CommandLine&), std::span<char*> words) {
  const int code = try_to_run(name, command, words);
  say_ended(code);
  return code;
}

int unknown(const std::string& name) {
  std::vector<std::string> names;
  for (const Command& c : commands()) names.push_back(c.name);
  const std::string seen = printable(name, 64);
  std::fprintf(stderr, "moraine: no command '%s'%s\n", seen.c_str(),
               did_you_mean(seen, names, {.then = "'moraine --help' lists the commands"}).c_str());
  return kExitUsage;
}

}  // namespace
}  // namespace moraine

int main(int argc, char** argv) {
  using namespace moraine;
  prepare_process();
  if (argc < 2) return usage(stderr, kExitUsage);
  const auto said = [&](const char* word) { return !std::strcmp(argv[1], word); };
  static char help[] = "--help";
  char* words[] = {argv[0], argv[1], help};
  if (said("help") && argc > 2) {  // as `COMMAND --help`
    words[1] = argv[2];
    argv = words, argc = 3;
  }
  if (said("--help") || said("-h") || said("help")) {
    usage(stdout, kExitOk);
    return std::fflush(stdout) == 0 ? kExitOk : exit_code(Code::kIo);
  }
  if (said("--version")) return run("--version", print_version, {});
  for (const Command& c : commands()) {
    if (said(c.name)) return run(c.name, c.run, {argv + 2, argv + argc});
  }
  return unknown(argv[1]);
}
