// Agree: a value of one rank, on all of them.
//
// For what depends on a clock, a disk or a measurement: rank 0 decides and tells (CONTRIBUTING.md).
#pragma once

#include <type_traits>

#include "comm/collectives.h"

namespace moraine {

// The first member's value. Collective: all pass the same type.
template <class T>
T value_of_first(Communicator& comm, T mine) {
  static_assert(std::is_trivially_copyable_v<T>);
  broadcast(comm, 0, std::as_writable_bytes(std::span(&mine, 1)));
  return mine;
}

inline std::string text_of_first(Communicator& comm, const std::string& mine) {
  return all_gather_text(comm, comm.rank() == 0 ? mine : "")[0];
}

}  // namespace moraine
