// Flags: one command's options, declared once: parsing, messages, --help, man pages and completion
// come from the declaration.
//
// Errors: kInvalidArgument; an unknown flag names a known one that is near.
#pragma once

#include <cstdint>
#include <memory>
#include <string>
#include <vector>

namespace moraine {

struct CommandLine;  // cli/commands.h

class Flags {
 public:
  Flags(const std::string& command, const std::string& summary);
  ~Flags();

  Flags& text(const std::string& name, std::string* variable, const std::string& help);
  Flags& required(const std::string& name, std::string* variable, const std::string& help);
  Flags& choice(const std::string& name, std::string* variable, std::vector<std::string> choices,
                const std::string& help);
  Flags& integer(const std::string& name, int64_t* variable, const std::string& help, int64_t min,
                 int64_t max);
  Flags& number(const std::string& name, double* variable, const std::string& help);
  Flags& flag(const std::string& name, bool* variable, const std::string& help);
  Flags& list(const std::string& name, std::vector<std::string>* variable, const std::string& help);
  Flags& positional(const std::string& name, std::string* variable, const std::string& help);
  Flags& optional_positional(const std::string& name, std::string* variable,
                             const std::string& help);
  Flags& choice_positional(const std::string& name, std::string* variable,
                           std::vector<std::string> choices, const std::string& help);

  // Of the flag declared last: which words of the choice_positional before it heed it, as "prefill, decode". With
  // another it is refused. Not called: all heed it.
  Flags& heeded_by(const std::string& words);

  // False if --help was printed, or the declaration was asked for: nothing more is to do.
  bool parse(const CommandLine& line);
  bool given(const std::string& name) const;

 private:
  void refuse_unknown() const;
  void check_is_heeded() const;

  struct State;
  std::unique_ptr<State> state_;
};

}  // namespace moraine
