// Ranks: makes a communicator, with a channel of its own, for each purpose.
#include "parallel/ranks.h"

#include <algorithm>
#include <bit>

#include "comm/absent_transport.h"

namespace moraine {
namespace {

// kContext + k: ranks that share a sequence, 2^k of them.
enum Channel { kWorld, kShared, kReplicas, kExperts, kGuests, kSaver, kMemory, kDisk, kContext };

// A death is found out at once; this is for a rank that is stopped.
constexpr double kDiskSeconds = 3600;

}  // namespace

Ranks::Ranks(Transport& t, const Mesh& m, double deadline)
    : mesh(m),
      world(t, m.all(), kWorld, "world", deadline),
      shared(t, m.all(), kShared, "shared", deadline),
      replicas(t, m.replica_group(), kReplicas, "replicas", deadline),
      experts(t, m.expert_group(), kExperts, "experts", deadline),
      guests(t, m.expert_group(), kGuests, "guests", deadline),
      saver(t, m.all(), kSaver, "saver", deadline),
      memory(t, m.all(), kMemory, "memory", deadline),
      disk(t, m.all(), kDisk, "disk", std::max(deadline, kDiskSeconds)) {
  share_sequences(m.context);
}

void Ranks::share_sequences(int64_t degree) {
  mesh = with_context(mesh, degree);
  if (contexts_.contains(mesh.context)) return;
  const int power = std::countr_zero(static_cast<unsigned>(mesh.context));
  contexts_.emplace(mesh.context, Communicator(world.transport(), mesh.context_group(),
                                               std::min<int>(kContext + power, kMaxChannels - 1),
                                               "context", world.deadline()));
}

void Ranks::set_step(int64_t step) {
  for (auto& [degree, context] : contexts_) context.set_step(step);
  // guests: its stream may be at work while a step begins, so its labels count operations alone.
  for (Communicator* c : {&world, &shared, &replicas, &experts}) c->set_step(step);
}

PlannedRanks::PlannedRanks(const Mesh& mesh)
    : transport_(make_absent_transport(mesh.ranks, mesh.rank)), ranks_(*transport_, mesh, 1) {}

}  // namespace moraine
