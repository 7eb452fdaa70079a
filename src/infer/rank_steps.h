// RankSteps: the steps of an engine on several ranks. One leads: it has the requests, and says each step to the
// others, which compute it with it.
//
//   StepLeader leader(&ranks);                       // in the engine
//   leader.tell(step); compute_step(ctx, model, cache, step);
//   follow_steps(ranks, ctx, model, cache);          // on the others, until the leader ends
//
// Every rank computes all rows of a step; what is divided are experts and the cache (ModelRanks). A leader
// without work says so every second, so that the deadline of the group is that of a lost rank only.
//
// Cost:    two broadcasts for each step: 48 bytes, then 8 bytes for each row and page, 32 for each segment.
// Errors:  kPeerLost (comm/transport.h).
#pragma once

#include <cstdint>
#include <vector>

#include "comm/communicator.h"
#include "model/loaded_model.h"

namespace moraine {

struct PageCopy {
  int32_t from, to;
};

struct Step {
  std::vector<PageCopy> copies;  // before the rows are computed, in order
  std::vector<int32_t> token, position;
  std::vector<Segment> segments;
  std::vector<int32_t> pages;

  int64_t rows() const { return static_cast<int64_t>(token.size()); }
  void clear();
};

// Final hidden rows, as Model::forward; nothing for a step without rows.
Tensor compute_step(Context& ctx, Model& model, Cache& cache, Step& step);

// The groups of ranks that compute a model's steps together, on kChannels from `channel` on: steps and cache share
// one, since one thread uses them in turn. deadline: of every wait, in seconds.
struct StepRanks {
  StepRanks(Transport& transport, int channel, double deadline);

  // How a model is divided among them. Errors: kInvalidArgument if nothing would be.
  ModelRanks of_model(const ModelConfig& config, bool share_cache);

  static constexpr int kChannels = 3;
  Communicator steps, experts, cache, guests;
};

class StepLeader {
 public:
  explicit StepLeader(Communicator* ranks) : ranks_(ranks) {}  // null: nobody follows
  ~StepLeader();                                               // the others are done
  StepLeader(const StepLeader&) = delete;
  StepLeader& operator=(const StepLeader&) = delete;

  bool alone() const { return ranks_ == nullptr; }
  void tell(const Step& step);
  void tell_idle();

 private:
  Communicator* ranks_;
};

void follow_steps(Communicator& ranks, Context& ctx, Model& model, Cache& cache);

}  // namespace moraine
