// GuestExperts: the weights of experts whose homes are elsewhere, and the way of their gradients home.
//
//   send_weights      after the homes' weights changed, or the placement: each home sends its packed
//                     weights to who has them as guests; in the background, layer after layer
//   wait_weights      before a layer's experts compute
//   zero_gradients    at the start of a slot
//   return_gradients  when a layer has all that a slot adds: the sum of each (guest, source) goes to its
//                     home, in the place where the home would have summed it; in the background
//   wait_gradients    before the home reads them
//
// Of a device, all of it goes over the host's pinned memory (parallel/staged_pieces.h): weights are copied out when
// they are sent, and in when a layer waits for them, which then waits for the device as well, so that the time of its
// rows is their own; sums of two layers at most are on their way.
//
// Optimizer state stays at home: a guest costs its weights once a step, changed or not, and its gradients
// once a slot, whether it was a guest before or not. So another placement costs nothing more.
//
// Shapes:  El experts here, C guest slots, S senders.
// Memory:  packs of C more experts a layer (the model's, model/weights.h); for training C*S more sums
//          of an expert's gradients a layer: f32, of which slots that nobody uses stay untouched. Of a device,
//          pinned: packs of min(El, (S-1)*C) + C experts a layer; of two layers, S times as many sums.
// Cost:    bytes of a packed expert, forward and backward; bytes of an expert in f32 for each source served.
// Errors:  kPeerLost, from the waits. Collective: all members of the group call in the same order.
// Threads: one; the stream's own reads packs until wait_weights, and gradients until wait_gradients, if there is no
//          device.
#pragma once

#include <memory>
#include <vector>

#include "base/fault_point.h"
#include "comm/stream.h"
#include "kernels/linear.h"
#include "parallel/expert_exchange.h"
#include "parallel/staged_pieces.h"

namespace moraine {

struct GuestOptions {
  int64_t layers = 0;
  std::vector<int64_t> matrices = {};  // elements of each matrix of an expert
  bool training = false;
  gpu::Gpu* gpu = nullptr;  // whose memory has packs and gradients; null: the host's
};

class GuestExperts {
 public:
  // comm: the members of `exchange`, on a channel of its own. Both outlive it.
  GuestExperts(Arena& arena, Communicator& comm, const ExpertExchange& exchange,
               const GuestOptions& options);

  // Of the next layer: packs of El + C groups, the experts held here first.
  void add_layer(Arena& arena, std::vector<PackedMatrix> packs);

  void send_weights();
  void wait_weights(int64_t layer);

  // [C, elements] f32: what source s adds to matrix i of the guests.
  Tensor gradient(int64_t layer, int64_t source, int64_t matrix) const;
  void zero_gradients(Context& ctx);
  // home[s * matrices + i]: [El, ...] f32, the sums of source s at home: those that a guest served are written.
  void return_gradients(int64_t layer, std::vector<Tensor> home);
  void wait_gradients();

  // Nothing is under way. Before packs or the placement change.
  void wait();

  // Sent by this rank since it was made.
  int64_t weight_bytes() const { return weight_bytes_; }
  int64_t gradient_bytes() const { return gradient_bytes_; }

 private:
  // What is under way, and its places in the host's memory.
  struct Transit {
    CommHandle handle;
    StagedPieces staged;
  };
  int64_t guests_of_home() const;
  Bytes group(const PackedMatrix& pack, int64_t index) const;
  MemberPieces weight_pieces(int64_t layer) const;
  MemberPieces gradient_pieces(int64_t layer, const std::vector<Tensor>& home) const;
  void submit(Transit& transit, MemberPieces pieces, FaultPoint point, int64_t* bytes);
  bool serves(int64_t layer, int64_t member, int64_t source, int64_t expert) const;

  Communicator* comm_;
  const ExpertExchange* exchange_;
  GuestOptions options_;
  std::vector<std::vector<PackedMatrix>> packs_;  // by layer
  std::vector<Tensor> gradients_;                 // [layers * matrices] of [S, C, elements]
  std::vector<Transit> weights_;                  // by layer
  std::vector<Transit> returned_;                 // in turn
  size_t returns_ = 0;                            // begun
  int64_t weight_bytes_ = 0, gradient_bytes_ = 0;
  std::unique_ptr<CommStream> stream_;  // null: planned only
};

}  // namespace moraine
