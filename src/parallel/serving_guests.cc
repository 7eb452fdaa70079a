// ServingGuests: for each slot that changes its two packs, in the same order on both sides of each pair.
#include "parallel/serving_guests.h"

#include <algorithm>

#include "base/check.h"
#include "base/fault_point.h"
#include "parallel/group_bytes.h"

namespace moraine {
namespace {

PackedMatrix take_slots(Arena& arena, PackedMatrix pack, int64_t slots) {
  pack.groups = slots;
  pack.data = arena.take_bytes("weights.guests", "weights", packed_bytes(pack));
  return pack;
}

}  // namespace

void ServingGuests::add_layer(Arena& arena, const ExpertPacks& held) {
  MR_CHECK(held.gate_up.groups == shape_.held(comm_->rank()), "%ld experts",
           long(held.gate_up.groups));
  held_.push_back(held);
  guests_.push_back({.gate_up = take_slots(arena, held.gate_up, shape_.slots),
                     .down = take_slots(arena, held.down, shape_.slots)});
  tables_.push_back(no_guests(shape_));
  const int64_t each = bytes_of_guest(static_cast<int64_t>(held_.size()) - 1);
  staged_.emplace_back(arena, gpu_, "guests.weights",
                       std::min(held.down.groups, (shape_.members - 1) * shape_.slots) * each,
                       shape_.slots * each);
  if (!arena.dry() && stream_ == nullptr) stream_ = std::make_unique<CommStream>();
}

Bytes ServingGuests::group(const PackedMatrix& pack, int64_t index) const {
  return gpu_ != nullptr ? device_group_bytes(pack, index) : group_bytes(pack, index);
}

int64_t ServingGuests::bytes_of_guest(int64_t layer) const {
  const ExpertPacks& held = held_[static_cast<size_t>(layer)];
  return static_cast<int64_t>(group(held.gate_up, 0).size()) +
         static_cast<int64_t>(group(held.down, 0).size());
}

void ServingGuests::send(int64_t layer, const GuestTable& next) {
  MR_CHECK(is_valid(shape_, next));
  GuestTable& now = tables_[static_cast<size_t>(layer)];
  const auto members = static_cast<size_t>(shape_.members), me = static_cast<size_t>(comm_->rank());
  MemberPieces pieces{.send = std::vector<std::vector<ConstBytes>>(members),
                      .receive = std::vector<std::vector<Bytes>>(members)};
  const ExpertPacks &held = held_[static_cast<size_t>(layer)],
                    &guests = guests_[static_cast<size_t>(layer)];
  for (size_t i = 0; i < next.expert.size(); ++i) {
    const int64_t e = next.expert[i];
    if (e < 0 || e == now.expert[i]) continue;
    const auto to = i / static_cast<size_t>(shape_.slots),
               home = static_cast<size_t>(shape_.home(e));
    const int64_t slot = static_cast<int64_t>(i) % shape_.slots,
                  at = e - shape_.begin(static_cast<int64_t>(home));
    for (const auto matrix : {&ExpertPacks::gate_up, &ExpertPacks::down}) {
      if (home == me) pieces.send[to].push_back(group(held.*matrix, at));
      if (to == me) pieces.receive[home].push_back(group(guests.*matrix, slot));
    }
    if (home == me) bytes_sent_ += bytes_of_guest(layer);
  }
  const bool nothing = count_new_guests(now, next) == 0;  // on all members alike
  now = next;
  if (nothing) return;
  fault_point("guests.weights");
  const std::function<void()> are_here = staged_[static_cast<size_t>(layer)].begin(pieces);
  const CommHandle handle = stream_->submit([comm = comm_, pieces = std::move(pieces), are_here] {
    are_here();
    all_to_all_pieces(*comm, pieces.send, pieces.receive);
  });
  under_way_.push_back({handle, layer});
}

bool ServingGuests::arrived() const {
  return std::all_of(under_way_.begin(), under_way_.end(),
                     [](const UnderWay& u) { return u.handle.done(); });
}

void ServingGuests::wait() {
  for (UnderWay& u : under_way_) {
    u.handle.wait();
    staged_[static_cast<size_t>(u.layer)].end();
  }
  under_way_.clear();
}

}  // namespace moraine
