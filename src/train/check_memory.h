// CheckMemory: whether the memory that ranks plan is there, on their host and on their devices, before it is taken.
//
//   what              is held against
//   a host's part     what its kernel has available, for all ranks of the host together
//   a device's part   what the driver has free, for all ranks that share the device; an emulated one's is the host's
//
// Errors: kInvalidArgument: what is planned, what is there, and what needs less.
#pragma once

#include <cstdint>
#include <span>
#include <string>

namespace moraine {

struct Run;
class Communicator;
class Transport;

struct RankMemory {
  int64_t host = 0, device = -1;  // where it is; -1: no device with memory of its own
  int64_t host_bytes = 0;         // that it will take
  int64_t host_free = 0;
  int64_t device_bytes = 0, device_free = 0;
};

// What is missing for rank `mine` of `all`; empty: nothing.
std::string memory_shortage(std::span<const RankMemory> all, int mine);

// Collective, both: of a run, and of what each rank says that it will take.
void check_memory(Run& run, const Transport& transport);
void check_memory(const RankMemory& mine, Communicator& world);

}  // namespace moraine
