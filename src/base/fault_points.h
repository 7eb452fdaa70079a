// FaultPoints: the states of the protocols that ranks go through together, by name.
//
// A name is "<operation>.<what comes next>". At each a process may die or stop, and the run must end as if it had not:
// tests/ranks/fault_matrix_test.cc goes through this list. Where the same happens several times (each micro-batch, each
// bucket) the point is passed as often.
#pragma once

#include <string_view>

namespace moraine {

enum class FaultWho : unsigned char {
  kEveryRank,
  kRankZero,  // it does this for all
  kSurvivor,  // who was in a group that is lost
  kStopping,  // a run that is asked to stop
  kServing,   // not in training
};

struct FaultPlace {
  std::string_view name;
  FaultWho who = FaultWho::kEveryRank;
};

inline constexpr FaultPlace kFaultPlaces[] = {
    // One optimizer step.
    {"step.votes"},           // whether to stop, or to meet others
    {"verify.other_slot"},    // in a step in which ranks check each other: the slot of another rank
    {"step.micro_batch"},     // read a part of the batch, forward, backward
    {"exchange.counts"},      // of rows for the experts of each rank
    {"exchange.to_experts"},  // the rows
    {"exchange.to_tokens"},   // the answers
    {"guests.weights"},       // of experts that other ranks serve
    {"guests.gradients"},     // theirs, on their way home
    {"step.bucket_leaves"},   // gradients of some layers are handed to the stream
    {"step.bucket_moves"},    // the stream's thread adds them up
    {"step.backward_done"},   // wait for all buckets
    {"step.gradients_reduced"},  // sum losses and counts
    {"step.counts_summed"},      // the norm of all gradients
    {"verify.judge"},            // say hashes, hear those of the others
    {"step.optimizer"},          // the own part of the weights moves
    {"step.weights_gather"},     // everybody's parts come
    {"step.updated"},            // all have the new weights; nobody has counted the step
    {"step.counted"},            // it is counted; nothing of it is written
    {"validate.batch"},
    // A checkpoint on disk, in the background; save.copy also before a copy in memory.
    {"save.copy"},
    {"save.started"},  // the run goes on
    {"save.plan"},     // who writes what
    {"save.write"},    // the own files
    {"save.written"},  // they are there, synced
    {"save.hash"},     // of all, by all
    {"save.commit"},   // rename
    {"save.committed"},
    {"save.retention", FaultWho::kRankZero},  // drop the oldest
    {"save.mark", FaultWho::kRankZero},       // as the last good one
    // A copy in the hosts' memory, likewise.
    {"memory.started"},
    {"memory.plan"},
    {"memory.write"},
    {"memory.written"},
    {"memory.pass_on"},  // to the next host
    {"memory.commit"},
    {"memory.committed"},  // the copy before is still there
    // Meeting, at the start as well as after a loss.
    {"group.left", FaultWho::kSurvivor},  // the group is lost, with all its connections
    {"group.meet"},                       // to the rendezvous
    {"group.met"},                        // who is in the group is known
    {"group.planned"},                    // addresses of all are known
    {"group.near"},                       // memory is shared within hosts
    {"group.joined"},                     // connections between hosts are there
    {"group.formed"},                     // by all: the rendezvous is left
    {"group.same"},                       // config, program and data of all are compared
    // Taking up a stored state.
    {"resume.search"},
    {"resume.begun"},    // one is chosen
    {"resume.weights"},  // weights are read, optimizer state is not
    {"resume.loaded"},   // by this rank
    {"resume.opened"},   // by all; the first step comes
    // The run moves to another mesh, or meets others who have come.
    {"move.begun"},
    {"move.stored"},
    // Back to the last good checkpoint after bad steps.
    {"rollback.begun"},
    {"rollback.restored"},
    {"rollback.removed"},  // what is newer is gone; that data was skipped is not written yet
    {"rollback.written"},
    // A rank has diverged.
    {"diverged.judged"},
    {"diverged.removed"},  // what is not trusted is gone
    // The end of the run.
    {"end.begun"},
    {"end.saved"},
    {"end.removed"},  // copies in memory are gone
    {"end.done"},     // nobody has been told
    // Asked to stop, by a signal: what is between these is a save.
    {"stop.voted", FaultWho::kStopping},  // all know
    {"stop.saved", FaultWho::kStopping},
    {"stop.agreed", FaultWho::kStopping},  // by all: each may go
    // Slots of experts, while generating.
    {"slots.dispatch", FaultWho::kServing},
    {"slots.receive", FaultWho::kServing},
    {"slots.combine", FaultWho::kServing},
    {"slots.answers", FaultWho::kServing},
};

constexpr bool is_fault_point(std::string_view name) {
  for (const FaultPlace& place : kFaultPlaces) {
    if (place.name == name) return true;
  }
  return false;
}

}  // namespace moraine
