// DeviceCollectives: reduce_scatter and all_gather (comm/collectives.h) of what lies in the memory of devices.
//
// A vendor's library moves bytes from device to device; what is added is added here, on the owner's device, in the tree
// of collectives.h: the bits are those of the way over the host. Both put their work into the device's order of work
// and return before it is done; wait() has the deadline.
//
//   reduce_scatter   piece after piece of the owners' ranges: an owner receives each other rank's addends into scratch
//   all_gather       round after round of ranges (share_rounds.h), each to its place
//
// Ranks meet on the host before each: one that is lost, or does something else, is named as in any collective. One
// that is lost behind that is noticed at the deadline, or by the library; then the library's work is given up.
//
// Errors:   kPeerLost: the deadline, or what the library says of others while it works. kDevice: what it says of a
//           call. kNotFound: collective_library.h. kInvalidArgument: a rank that cannot, and why.
// Order:    of sums, that of collectives.h. Collective: all ranks call the same in the same order.
// Memory:   the caller's: scratch_bytes() of the device.
// State:    on emulated GPUs and a library that plays NCCL; no vendor's library was ever called with a device there.
#pragma once

#include <memory>
#include <string>

#include "comm/collective_library.h"
#include "comm/collectives.h"
#include "comm/stream.h"
#include "kernels/context.h"

namespace moraine {

// Over the host; by the library; by the library where all ranks have one, and a device of a vendor each.
enum class DeviceLinks : uint8_t { kAuto, kHost, kLibrary };

class DeviceCollectives {
 public:
  // Opens the library for `comm`, which outlives it, as `gpu` does, and tries it. Collective.
  DeviceCollectives(const CollectiveLibrary& library, gpu::Gpu& gpu, Communicator& comm);
  DeviceCollectives(const DeviceCollectives&) = delete;
  DeviceCollectives& operator=(const DeviceCollectives&) = delete;

  static int64_t scratch_bytes(int ranks, int64_t elements);
  // data: [n] f32 of the device, in place. scratch: u8 of the device, scratch_bytes(ranks, n).
  void reduce_scatter(Context& ctx, const Tensor& data, const Shares& shares,
                      const Tensor& scratch);
  void all_gather(const Tensor& data, const Shares& shares);
  // Until all of the device's work is done.
  void wait();

 private:
  void begin_work();
  void abort();
  void check(int error, const char* entry);
  [[noreturn]] void give_up(const std::string& reason);
  void try_links();
  void send(const Tensor& data, Range r, int member);
  void receive(const Tensor& data, Range r, int member);

  const CollectiveLibrary library_;
  gpu::Gpu* const gpu_;
  Communicator* const comm_;
  // The library's communicator. Between work that was begun and a wait that saw its end, who lets go of it aborts: of
  // work that a lost rank has a part in there is no end.
  std::unique_ptr<void, int (*)(void*)> opened_;
  CommStream waiter_;  // waits for the device, so that who calls can look at the time
};

// What a device's ranks exchange by; null: over the host. Collective. reason: why not the library, if it could have
// been. Errors: with kLibrary also that reason.
std::unique_ptr<DeviceCollectives> open_device_links(DeviceLinks links, gpu::Gpu& gpu,
                                                     Communicator& comm, std::string* reason);

}  // namespace moraine
