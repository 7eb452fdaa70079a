// Ranks: this rank's place in the mesh, with a communicator for each purpose.
//
// Communicators on different channels may be in use at once: the step's own, the gradients' (on the
// stream's thread), the experts', the context's, those of savers in the background.
#pragma once

#include <map>
#include <memory>

#include "comm/communicator.h"
#include "parallel/mesh.h"

namespace moraine {

struct Ranks {
  Ranks(Transport& transport, const Mesh& mesh, double deadline_seconds);

  bool first() const { return mesh.rank == 0; }
  void set_step(int64_t step);
  // From here on `degree` ranks share a sequence: `mesh` and context() are of it. A phase of a run
  // may have its own degree. Its communicator is made on first use, by all ranks at the same place.
  void share_sequences(int64_t degree);
  // Ranks with the rest of the sequence: keys, values, halos.
  Communicator& context() { return contexts_.at(mesh.context); }

  Mesh mesh;              // as it is now
  Communicator world;     // all ranks: counts, losses, decisions
  Communicator shared;    // all ranks: gradients and weights that every rank has
  Communicator replicas;  // ranks with the same experts: gradients and weights of these
  Communicator experts;   // ranks with the other experts: token rows
  Communicator guests;    // the same ranks: weights and gradients of guests, in the background
  Communicator saver;     // all ranks: background checkpoints
  Communicator memory;    // all ranks: copies in a peer's memory
  Communicator disk;      // all ranks: waits for what one of them reads, of any size: an hour

 private:
  std::map<int, Communicator> contexts_;  // by degree
};

// A rank among others that are not there, to plan its memory; or one alone. With more than one,
// moving anything is a bug.
class PlannedRanks {
 public:
  explicit PlannedRanks(const Mesh& mesh = {});
  Ranks& ranks() { return ranks_; }

 private:
  std::unique_ptr<Transport> transport_;
  Ranks ranks_;
};

}  // namespace moraine
