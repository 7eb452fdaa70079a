// ServingGuests: the weights of experts whose homes are elsewhere, while rows are served.
//
//   send     slots get other experts: each home sends its packs to who has them as guests from now on; in the
//            background, layer after layer, while steps go on with what is there already
//   arrived  here; when it is true on all members, what was sent may be used
//
// Packs go as they are, of any format: mapped from a file or not, f32, bf16, or in few bits. Weights do not change
// while they are served, so a guest costs its bytes once.
//
// Of a device, they go over the host's pinned memory (parallel/staged_pieces.h): out when they are sent, in when who
// waited uses them.
//
// Shapes:  C slots a layer.
// Memory:  packs of C experts a layer, `weights.guests`; of a device pinned memory for those, and for as many of the
//          experts held here as can be guests elsewhere.
// Errors:  kPeerLost, from wait. Collective: all members send the same, in the same order.
// Threads: one; the stream's own reads packs at home, and writes slots until they have arrived.
#pragma once

#include <memory>
#include <vector>

#include "comm/collectives.h"
#include "comm/stream.h"
#include "kernels/linear.h"
#include "parallel/row_split.h"
#include "parallel/staged_pieces.h"

namespace moraine {

// Of the experts of one layer, or of its guests.
struct ExpertPacks {
  PackedMatrix gate_up, down;
};

class ServingGuests {
 public:
  // comm: all members, on a channel of its own. gpu: whose memory has the packs; null: the host's. Both outlive it.
  ServingGuests(Communicator& comm, const SplitShape& shape, gpu::Gpu* gpu = nullptr)
      : comm_(&comm), shape_(shape), gpu_(gpu) {}

  // The next layer's packs of the experts held here; takes slots like them. Before anything is sent.
  void add_layer(Arena& arena, const ExpertPacks& held);
  const ExpertPacks& packs(int64_t layer) const { return guests_[static_cast<size_t>(layer)]; }

  // What slots have, or will have.
  const GuestTable& table(int64_t layer) const { return tables_[static_cast<size_t>(layer)]; }
  // From here on `next`. Until it has arrived only slots that do not change may be used.
  void send(int64_t layer, const GuestTable& next);
  bool arrived() const;
  void wait();

  int64_t bytes_of_guest(int64_t layer) const;
  int64_t bytes_sent() const { return bytes_sent_; }  // by this member

 private:
  struct UnderWay {
    CommHandle handle;
    int64_t layer;
  };
  Bytes group(const PackedMatrix& pack, int64_t index) const;

  Communicator* comm_;
  SplitShape shape_;
  gpu::Gpu* gpu_;
  std::vector<ExpertPacks> held_, guests_;  // by layer
  std::vector<GuestTable> tables_;          // by layer
  std::vector<StagedPieces> staged_;        // by layer
  std::vector<UnderWay> under_way_;
  int64_t bytes_sent_ = 0;
  std::unique_ptr<CommStream> stream_;  // null: planned only
};

}  // namespace moraine
