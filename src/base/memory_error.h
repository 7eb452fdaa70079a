// MemoryError: memory that runs out while something is read is an error that names it.
#pragma once

#include <new>
#include <string>

#include "base/error.h"

namespace moraine {

// Returns what `action` returns. `what`: the file.
// Errors: kInvalidArgument if memory runs out; those of `action`.
template <class Action>
auto with_memory_for(const std::string& what, const Action& action) {
  try {
    return action();
  } catch (const std::bad_alloc&) {
    throw_error(Code::kInvalidArgument,
                "read {}: out of memory; it is larger than what this machine, or the limit of this "
                "process, has left",
                what);
  }
}

}  // namespace moraine
