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
// Optimizer state stays at home: a guest costs its weights once a step, changed or not, and its gradients
// once a slot, whether it was a guest before or not. So another placement costs nothing more.
//
// Shapes:  El experts here, C guest slots, S senders.
// Memory:  packs of C more experts a layer (the model's, model/weights.h); for training C*S more sums
//          of an expert's gradients a layer: f32, of which slots that nobody uses stay untouched.
// Cost:    bytes of a packed expert, forward and backward; bytes of an expert in f32 for each source served.
// Errors:  kPeerLost, from the waits. Collective: all members of the group call in the same order.
// Threads: one; the stream's own reads packs until wait_weights, and gradients until wait_gradients.
#pragma once

#include <memory>
#include <vector>

#include "base/fault_point.h"
#include "comm/stream.h"
#include "kernels/linear.h"
#include "parallel/expert_exchange.h"

namespace moraine {

struct GuestOptions {
  int64_t layers = 0;
  std::vector<int64_t> matrices = {};  // elements of each matrix of an expert
  bool training = false;
};

class GuestExperts {
 public:
  // comm: the members of `exchange`, on a channel of its own. Both outlive it.
  GuestExperts(Arena& arena, Communicator& comm, const ExpertExchange& exchange,
               const GuestOptions& options);

  // Of the next layer: packs of El + C groups, the experts held here first.
  void add_layer(std::vector<PackedMatrix> packs);

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
  struct Pieces {  // by member
    std::vector<std::vector<ConstBytes>> send;
    std::vector<std::vector<Bytes>> receive;
  };
  Pieces weight_pieces(int64_t layer) const;
  Pieces gradient_pieces(int64_t layer, const std::vector<Tensor>& home) const;
  CommHandle submit(Pieces pieces, FaultPoint point, int64_t* bytes);
  bool serves(int64_t layer, int64_t member, int64_t source, int64_t expert) const;

  Communicator* comm_;
  const ExpertExchange* exchange_;
  GuestOptions options_;
  std::vector<std::vector<PackedMatrix>> packs_;  // by layer
  std::vector<Tensor> gradients_;                 // [layers * matrices] of [S, C, elements]
  std::vector<CommHandle> weights_;               // by layer
  std::vector<CommHandle> returned_;
  int64_t weight_bytes_ = 0, gradient_bytes_ = 0;
  std::unique_ptr<CommStream> stream_;  // null: planned only
};

}  // namespace moraine
