// Declaration: what a command takes, as data: man pages and shell completion are made from it.
//
// A command declares its arguments once, to Flags; --help prints them through CLI11, everything
// else through this.
#pragma once

#include <span>
#include <string>
#include <vector>

namespace moraine {

struct Argument {
  enum class Kind { kFlag, kText, kList, kInteger, kNumber, kPositional };
  Kind kind = Kind::kText;
  std::string name;                       // "max-tokens", without dashes
  std::string help;                       // one sentence or two
  std::vector<std::string> choices = {};  // empty: any value
  std::string standard = {};              // the value if it is not given, as text; empty: none
  std::string range = {};                 // "0 to 1024"; empty: any
  bool required = false;
  std::vector<std::string> heeded_by = {};  // words of the positional that has choices; empty: all
};

struct Declaration {
  std::string command;  // "tokenizer"
  std::string summary;  // what --help begins with
  std::vector<Argument> arguments;
};

struct ExitCode {
  int code;
  const char* meaning;
};
std::span<const ExitCode> exit_codes();

}  // namespace moraine
