// Commands: the entry of each `moraine <command>`. Each parses, builds, calls; throws Error.
#pragma once

#include <span>

namespace moraine {

void cmd_tokenizer(std::span<char*> args);
void cmd_data(std::span<char*> args);
void cmd_train(std::span<char*> args);
void cmd_eval(std::span<char*> args);
void cmd_generate(std::span<char*> args);
void cmd_import(std::span<char*> args);
void cmd_export(std::span<char*> args);
void cmd_inspect(std::span<char*> args);
void cmd_plan(std::span<char*> args);
void cmd_bench(std::span<char*> args);

}  // namespace moraine
