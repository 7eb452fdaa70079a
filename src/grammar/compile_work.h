// CompileWork: how much the compiling of one grammar has done, counted and not timed, so that a schema is always taken
// or always refused.
//
// Units: about 10 ns of a slow core, so that GrammarLimits::work is a third of a second. Whatever a schema can have
//        done more than a few times in a row is counted before it is done, at what it takes at worst.
#pragma once

#include <cstdint>
#include <string>

#include "base/json.h"

namespace moraine {

class CompileWork {
 public:
  explicit CompileWork(int64_t most) : most_(most) {}
  // False once it has been too much.
  bool spend(int64_t units) {
    spent_ += units;
    return spent_ <= most_;
  }
  bool exhausted() const { return spent_ > most_; }
  // Errors: kInvalidArgument with `place`, the part of the schema that came too late.
  void spend_at(int64_t units, const std::string& place) {
    if (!spend(units)) refuse(place);
  }
  int64_t spent() const { return spent_; }
  int64_t most() const { return most_; }

 private:
  [[noreturn]] void refuse(const std::string& place) const;

  int64_t most_, spent_ = 0;
};

// What it takes to copy a value, or to compare it with another.
int64_t copy_work(const Json& value);

}  // namespace moraine
