// DeadExperts: a count of steps in a row.
#include "train/dead_experts.h"

namespace moraine {
namespace {

constexpr int64_t kSteps = 100, kTokensForEach = 16, kPart = 4;

}  // namespace

bool DeadExperts::add(int64_t dead, int64_t tokens) {
  const bool many = kPart * dead >= layers_ * experts_;
  const bool collapsed = experts_ > 1 && many && tokens >= kTokensForEach * experts_;
  steps_ = collapsed ? steps_ + 1 : 0;
  return steps_ == kSteps;
}

}  // namespace moraine
