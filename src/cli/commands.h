// Commands: the table of `moraine <command>`, and the entry of each, which parses, builds and
// calls.
#pragma once

#include <span>
#include <string>

#include "cli/declaration.h"

namespace moraine {

// The words after the command, or a question about it.
struct CommandLine {
  std::span<char*> words;
  Declaration* declared = nullptr;  // not null: Flags::parse fills it in, and nothing is done
};

void cmd_tokenizer(const CommandLine& line);
void cmd_data(const CommandLine& line);
void cmd_train(const CommandLine& line);
void cmd_eval(const CommandLine& line);
void cmd_generate(const CommandLine& line);
void cmd_chat(const CommandLine& line);
void cmd_serve(const CommandLine& line);
void cmd_import(const CommandLine& line);
void cmd_export(const CommandLine& line);
void cmd_quantize(const CommandLine& line);
void cmd_inspect(const CommandLine& line);
void cmd_plan(const CommandLine& line);
void cmd_study(const CommandLine& line);
void cmd_supervise(const CommandLine& line);
void cmd_chaos(const CommandLine& line);
void cmd_bench(const CommandLine& line);
void cmd_completion(const CommandLine& line);
void cmd_man(const CommandLine& line);

struct Command {
  const char* name;
  const char* summary;
  void (*run)(const CommandLine& line);  // throws Error
  bool hidden = false;                   // for packagers: not in the list of `moraine --help`
};

std::span<const Command> commands();
Declaration declaration_of(const Command& command);

}  // namespace moraine
