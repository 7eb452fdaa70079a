// Commands: the table of all commands, in the order in which --help lists them.
#include "cli/commands.h"

namespace moraine {
namespace {

constexpr Command kCommands[] = {
    {"tokenizer", "train a byte-level BPE tokenizer on text; encode and decode", cmd_tokenizer},
    {"data", "turn text into token shards", cmd_data},
    {"plan", "print what a run needs, without running it", cmd_plan},
    {"train", "pretrain from scratch, adapt a model, or go on from the newest checkpoint",
     cmd_train},
    {"study", "compare variants of a config at equal compute", cmd_study},
    {"supervise", "keep a training run or any program alive: watch, decide, start again",
     cmd_supervise},
    {"chaos", "do real faults to a supervised run, and compare its hash with a quiet one's",
     cmd_chaos},
    {"eval", "perplexity of texts, multiple choice, log-probabilities of tokens", cmd_eval},
    {"generate", "continue a prompt", cmd_generate},
    {"chat", "talk with a model in the terminal", cmd_chat},
    {"serve", "answer requests over HTTP, in the protocols of OpenAI and Anthropic", cmd_serve},
    {"import", "turn a public checkpoint into a model directory", cmd_import},
    {"export", "write a model in a public layout", cmd_export},
    {"quantize", "pack a model for serving: mapped when used, not read", cmd_quantize},
    {"inspect", "show, verify and hash checkpoints, datasets and weight files", cmd_inspect},
    {"bench", "measure this machine and the share of it that is used", cmd_bench},
    {"completion", "print completion of this program for a shell", cmd_completion, true},
    {"man", "print a manual page of this program", cmd_man, true},
};

}  // namespace

std::span<const Command> commands() { return kCommands; }

Declaration declaration_of(const Command& command) {
  Declaration declaration;
  command.run({.words = {}, .declared = &declaration});
  return declaration;
}

}  // namespace moraine
