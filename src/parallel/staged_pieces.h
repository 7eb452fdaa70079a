// StagedPieces: pieces of a device's memory that ranks exchange, in pinned memory of the host on their way.
//
//   begin   what is sent is copied out, in the device's order of work, and pieces become their places here. What it
//           returns is called by who exchanges them, before that: then they are here, and what the exchange before
//           brought was read. A piece that goes to several members is copied once
//   end     what has arrived goes to the device, in its order of work
//
// Without a device pieces are where they are, and nothing is copied.
//
// Errors:  kDevice.
// Threads: one; what begin returns may be called by another, beside any other call.
#pragma once

#include <functional>
#include <string>
#include <vector>

#include "comm/transport.h"
#include "tensor/arena.h"

namespace moraine {

namespace gpu {
class Gpu;
}

// By member; as all_to_all_pieces (comm/collectives.h) takes them.
struct MemberPieces {
  std::vector<std::vector<ConstBytes>> send;
  std::vector<std::vector<Bytes>> receive;
};

class StagedPieces {
 public:
  StagedPieces() = default;
  // For pieces of at most so many bytes together. gpu: null without a device; else the arena's.
  StagedPieces(Arena& arena, gpu::Gpu* gpu, const std::string& name, int64_t send_bytes,
               int64_t receive_bytes);

  std::function<void()> begin(MemberPieces& pieces);
  bool end();     // once for each begin; whether anything was copied
  void forget();  // what has arrived is not wanted

 private:
  struct Arrival {
    Bytes there;
    const void* here;
  };

  gpu::Gpu* gpu_ = nullptr;
  Tensor send_, receive_;  // [bytes] u8
  std::vector<Arrival> arrivals_;
};

}  // namespace moraine
