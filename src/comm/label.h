// Label: what a message is for, in 64 bits: step, number of the operation in its group, kind.
//
//   bits 63..32 step (low 32 bits), bits 31..8 operation number (low 24 bits), bits 7..0 kind
#pragma once

#include <cstdint>
#include <string>

namespace moraine {

enum class Operation : uint8_t {
  kMessage = 0,  // a plain send
  kBarrier,
  kBroadcast,
  kGather,
  kAllGatherText,
  kAllGather,
  kAllGatherEqual,
  kReduceScatter,
  kAllToAll,
  kAllReduce,
  kWindow,
  kFrame,  // of a window, between hosts (comm/far_messages.h)
};

uint64_t make_label(int64_t step, uint32_t number, Operation operation);

std::string label_text(uint64_t label);  // "all_gather (step 3, operation 17)"

struct LabelledMessage {
  int rank;  // that wants or sends it
  uint64_t label;
  int64_t bytes;
};
// Two ranks do different things: one wants a message, the other sends another.
std::string mismatch_text(const LabelledMessage& wanted, const LabelledMessage& sent);

}  // namespace moraine
