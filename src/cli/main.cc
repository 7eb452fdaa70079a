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

namespace moraine {
namespace {

struct Command {
  const char* name;
  const char* summary;
  void (*run)(std::span<char*> args);  // throws Error
};

constexpr Command kCommands[] = {
    {"tokenizer", "train a byte-level BPE tokenizer on text", cmd_tokenizer},
    {"data", "turn text into token shards", cmd_data},
    {"plan", "print what a run needs, without running it", cmd_plan},
    {"train", "pretrain or adapt, from scratch, a model, or the newest checkpoint", cmd_train},
    {"eval", "perplexity of a text, log-probabilities of tokens", cmd_eval},
    {"generate", "continue a prompt", cmd_generate},
    {"import", "turn a public checkpoint into a model directory", cmd_import},
    {"export", "write a model in a public layout", cmd_export},
    {"inspect", "show, verify and hash checkpoints, datasets and weight files", cmd_inspect},
    {"bench", "measure this machine and the share of it that is used", cmd_bench},
};

int usage(std::FILE* out, int code) {
  std::fprintf(out, "usage: moraine <command> [--flag value ...]\n\n");
  for (const Command& c : kCommands) std::fprintf(out, "  %-10s %s\n", c.name, c.summary);
  std::fprintf(out, "\n'moraine <command> --help' lists the flags of a command.\n");
  return code;
}

int run(const Command& command, std::span<char*> args) {
  try {
    command.run(args);
    if (std::fflush(stdout) == 0) return kExitOk;
    throw_error(Code::kIo, "write to standard output: {}", std::strerror(errno));
  } catch (const Error& e) {
    std::fflush(stdout);
    std::fprintf(stderr, "moraine %s: %s\n", command.name, e.what());
    return exit_code(e.code());
  } catch (const std::bad_alloc&) {
    std::fprintf(stderr,
                 "moraine %s: out of memory; `moraine plan memory` prints what a run needs\n",
                 command.name);
    return exit_code(Code::kInvalidArgument);
  }
}

}  // namespace
}  // namespace moraine

int main(int argc, char** argv) {
  using namespace moraine;
  if (argc < 2) return usage(stderr, kExitUsage);
  if (!std::strcmp(argv[1], "--help")) return usage(stdout, kExitOk);
  for (const Command& c : kCommands) {
    if (!std::strcmp(argv[1], c.name)) return run(c, {argv + 2, argv + argc});
  }
  std::vector<std::string> names;
  for (const Command& c : kCommands) names.push_back(c.name);
  std::fprintf(stderr, "moraine: no command '%s'; did you mean %s?\n\n", argv[1],
               nearest_name(argv[1], names).c_str());
  return usage(stderr, kExitUsage);
}
