// Interrupts: a command that makes a directory is told to end, and removes what it has written.
//
// While one of these lives, the first SIGINT, SIGTERM or SIGHUP (a closed terminal; not under nohup) is taken note of,
// and thrown at the next look, which every ProgressLine::update is. A second one ends the process at once.
#pragma once

#include <string>

namespace moraine {

class Interrupts {
 public:
  // `doing`: for the message: "import --out m". One at a time.
  explicit Interrupts(std::string doing);
  ~Interrupts();
  Interrupts(const Interrupts&) = delete;
  Interrupts& operator=(const Interrupts&) = delete;
};

// Errors: kInterrupted, if one lives and has taken note.
void throw_if_interrupted();

}  // namespace moraine
