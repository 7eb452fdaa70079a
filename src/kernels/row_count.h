// RowCount: how many rows an operation takes: a number, or the last of row bounds, read where the operation runs.
//
// The bounds of experts' rows are counted by the operation before (dispatch_plan). On a GPU they are in its memory, and
// the host does not wait to learn them.
#pragma once

#include <cstdint>
#include <span>

namespace moraine {

class RowCount {
 public:
  RowCount(int64_t rows) : rows_(rows) {}
  static RowCount last_of(std::span<const int64_t> bounds) {
    RowCount count(-1);
    count.there_ = bounds.data() + (bounds.size() - 1);
    return count;
  }

  // Null: it is a number.
  const int64_t* there() const { return there_; }
  // REQUIRES: a number, or bounds in the host's memory.
  operator int64_t() const { return there_ == nullptr ? rows_ : *there_; }

 private:
  int64_t rows_;
  const int64_t* there_ = nullptr;
};

}  // namespace moraine
