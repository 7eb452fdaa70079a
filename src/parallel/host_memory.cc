// HostMemory: everybody looks before anybody takes.
#include "parallel/host_memory.h"

#include "base/resident.h"
#include "comm/collectives.h"

namespace moraine {

int64_t free_before_taking(Communicator& world) {
  const int64_t free = available_memory_bytes();
  barrier(world);
  return free;
}

}  // namespace moraine
