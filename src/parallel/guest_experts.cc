// GuestExperts: lists of pieces, in the same order on both sides of each pair: guests by slot, sources, matrices.
#include "parallel/guest_experts.h"

#include <algorithm>
#include <numeric>

#include "kernels/elementwise.h"
#include "kernels/gpu/runtime.h"
#include "parallel/group_bytes.h"
#include "tensor/tensor_bytes.h"

namespace moraine {
namespace {

constexpr size_t kLayersUnderWay = 2;  // whose sums are in a device's pinned memory

}  // namespace

GuestExperts::GuestExperts(Arena& arena, Communicator& comm, const ExpertExchange& exchange,
                           const GuestOptions& options)
    : comm_(&comm), exchange_(&exchange), options_(options) {
  MR_CHECK(exchange.slots() > 0 && comm.size() == exchange.senders());
  for (int64_t l = 0; l < (options.training ? options.layers : 0); ++l) {
    for (const int64_t elements : options.matrices)
      gradients_.push_back(arena.take("gradients.guests", "gradients", DType::kF32,
                                      {exchange.senders(), exchange.slots(), elements}));
  }
  weights_.resize(static_cast<size_t>(options.layers));
  returned_.resize(options.gpu == nullptr ? weights_.size() : kLayersUnderWay);
  const int64_t each =
      exchange.senders() * 4 *
      std::accumulate(options.matrices.begin(), options.matrices.end(), int64_t{0});
  for (size_t i = 0; i < (options.training ? returned_.size() : 0); ++i)
    returned_[i].staged = StagedPieces(arena, options.gpu, "guests.gradients",
                                       exchange.slots() * each, guests_of_home() * each);
  if (!arena.dry()) stream_ = std::make_unique<CommStream>();
}

// Of the experts held here as many can be guests elsewhere.
int64_t GuestExperts::guests_of_home() const {
  return std::min(exchange_->experts(), (exchange_->senders() - 1) * exchange_->slots());
}

Bytes GuestExperts::group(const PackedMatrix& pack, int64_t index) const {
  return options_.gpu != nullptr ? device_group_bytes(pack, index) : group_bytes(pack, index);
}

void GuestExperts::add_layer(Arena& arena, std::vector<PackedMatrix> packs) {
  int64_t each = 0;
  for (const PackedMatrix& p : packs) {
    MR_CHECK(p.groups == exchange_->groups(), "%ld groups", long(p.groups));
    each += static_cast<int64_t>(group(p, 0).size());
  }
  weights_[packs_.size()].staged = StagedPieces(arena, options_.gpu, "guests.weights",
                                                guests_of_home() * each, exchange_->slots() * each);
  packs_.push_back(std::move(packs));
}

bool GuestExperts::serves(int64_t layer, int64_t member, int64_t source, int64_t expert) const {
  const size_t i = static_cast<size_t>(source * exchange_->shape().experts + expert);
  return exchange_->placement(layer).server[i] == member;
}

MemberPieces GuestExperts::weight_pieces(int64_t layer) const {
  const ExpertRoutes& routes = exchange_->routes(layer);
  const size_t members = routes.guests.size(), me = static_cast<size_t>(exchange_->member());
  MemberPieces pieces{.send = std::vector<std::vector<ConstBytes>>(members),
                      .receive = std::vector<std::vector<Bytes>>(members)};
  const int64_t begin = exchange_->expert_begin(), held = exchange_->experts();
  const auto add = [&](size_t member, int64_t slot, int64_t expert) {
    const size_t home = static_cast<size_t>(exchange_->shape().home(expert));
    for (const PackedMatrix& pack : packs_[static_cast<size_t>(layer)]) {
      if (home == me) pieces.send[member].push_back(group(pack, expert - begin));
      if (member == me) pieces.receive[home].push_back(group(pack, held + slot));
    }
  };
  for (size_t m = 0; m < members; ++m) {
    for (size_t c = 0; c < routes.guests[m].size(); ++c)
      add(m, static_cast<int64_t>(c), routes.guests[m][c]);
  }
  return pieces;
}

MemberPieces GuestExperts::gradient_pieces(int64_t layer, const std::vector<Tensor>& home) const {
  const ExpertRoutes& routes = exchange_->routes(layer);
  const size_t members = routes.guests.size(), matrices = options_.matrices.size();
  const size_t me = static_cast<size_t>(exchange_->member());
  MemberPieces pieces{.send = std::vector<std::vector<ConstBytes>>(members),
                      .receive = std::vector<std::vector<Bytes>>(members)};
  // Of one source's rows of a guest: all matrices.
  const auto add_source = [&](size_t member, int64_t slot, int64_t expert, int64_t source) {
    const size_t to = static_cast<size_t>(exchange_->shape().home(expert));
    const int64_t at = expert - exchange_->expert_begin();
    for (size_t i = 0; i < matrices; ++i) {
      const Tensor mine = gradient(layer, source, static_cast<int64_t>(i)),
                   theirs = home[static_cast<size_t>(source) * matrices + i];
      if (to == me) pieces.receive[member].push_back(bytes_of(theirs.rows(at, at + 1)));
      if (member == me) pieces.send[to].push_back(bytes_of(mine.rows(slot, slot + 1)));
    }
  };
  const auto add = [&](size_t member, int64_t slot, int64_t expert) {
    for (int64_t s = 0; s < exchange_->senders(); ++s)
      if (serves(layer, static_cast<int64_t>(member), s, expert))
        add_source(member, slot, expert, s);
  };
  for (size_t m = 0; m < members; ++m) {
    for (size_t c = 0; c < routes.guests[m].size(); ++c)
      add(m, static_cast<int64_t>(c), routes.guests[m][c]);
  }
  return pieces;
}

void GuestExperts::submit(Transit& transit, MemberPieces pieces, FaultPoint point, int64_t* bytes) {
  for (const std::vector<ConstBytes>& list : pieces.send)
    for (const ConstBytes& piece : list) *bytes += static_cast<int64_t>(piece.size());
  fault_point(point);
  const std::function<void()> are_here = transit.staged.begin(pieces);
  transit.handle = stream_->submit([comm = comm_, pieces = std::move(pieces), are_here] {
    are_here();
    all_to_all_pieces(*comm, pieces.send, pieces.receive);
  });
}

void GuestExperts::send_weights() {
  wait();
  for (int64_t l = 0; l < options_.layers; ++l) {
    if (exchange_->routes(l).is_static) continue;  // on all members alike
    submit(weights_[static_cast<size_t>(l)], weight_pieces(l), "guests.weights", &weight_bytes_);
  }
}

void GuestExperts::wait_weights(int64_t layer) {
  Transit& transit = weights_[static_cast<size_t>(layer)];
  transit.handle.wait();
  if (transit.staged.end()) options_.gpu->wait();
}

Tensor GuestExperts::gradient(int64_t layer, int64_t source, int64_t matrix) const {
  const size_t matrices = options_.matrices.size();
  const Tensor& all =
      gradients_[static_cast<size_t>(layer) * matrices + static_cast<size_t>(matrix)];
  return all.rows(source, source + 1).reshaped({all.dims[1], all.dims[2]});
}

void GuestExperts::zero_gradients(Context& ctx) {
  const int64_t groups = exchange_->groups(), held = exchange_->experts();
  for (int64_t l = 0; l < options_.layers; ++l) {
    const std::vector<int32_t>& served = exchange_->routes(l).served;
    for (size_t i = 0; i < served.size(); ++i) {
      const int64_t source = static_cast<int64_t>(i) / groups,
                    slot = static_cast<int64_t>(i) % groups - held;
      if (slot < 0 || served[i] < 0) continue;
      for (size_t m = 0; m < options_.matrices.size(); ++m)
        zero(ctx, gradient(l, source, static_cast<int64_t>(m)).rows(slot, slot + 1));
    }
  }
}

void GuestExperts::return_gradients(int64_t layer, std::vector<Tensor> home) {
  if (exchange_->routes(layer).is_static) return;
  Transit& transit = returned_[returns_++ % returned_.size()];
  transit.handle.wait();
  transit.staged.end();
  submit(transit, gradient_pieces(layer, home), "guests.gradients", &gradient_bytes_);
}

void GuestExperts::wait_gradients() {
  for (Transit& transit : returned_) {
    transit.handle.wait();
    transit.staged.end();
  }
}

// Weights that no layer has waited for are old: where they would go changes.
void GuestExperts::wait() {
  for (Transit& transit : weights_) {
    transit.handle.wait();
    transit.staged.forget();
  }
  wait_gradients();
}

}  // namespace moraine
