// Label: packs the fields of a label into 64 bits, and spells them for messages.
#include "comm/label.h"

#include <fmt/format.h>

namespace moraine {
namespace {

const char* operation_name(uint8_t kind) {
  switch (static_cast<Operation>(kind)) {
    case Operation::kMessage:
      return "message";
    case Operation::kBarrier:
      return "barrier";
    case Operation::kBroadcast:
      return "broadcast";
    case Operation::kGather:
      return "gather";
    case Operation::kAllGatherText:
      return "all_gather_text";
    case Operation::kAllGather:
      return "all_gather";
    case Operation::kAllGatherEqual:
      return "all_gather_equal";
    case Operation::kReduceScatter:
      return "reduce_scatter";
    case Operation::kAllToAll:
      return "all_to_all";
    case Operation::kAllReduce:
      return "all_reduce";
    case Operation::kWindow:
      return "window";
    case Operation::kFrame:
      return "frame";
  }
  return "unknown operation";
}

}  // namespace

// 16 bits of operation number would wrap in a step of a big model: 24, with 32 of the step.
uint64_t make_label(int64_t step, uint32_t number, Operation operation) {
  return static_cast<uint64_t>(step & 0xffffffff) << 32 |
         static_cast<uint64_t>(number & 0xffffff) << 8 | static_cast<uint64_t>(operation);
}

std::string label_text(uint64_t label) {
  return fmt::format("{} (step {}, operation {})", operation_name(static_cast<uint8_t>(label)),
                     label >> 32, label >> 8 & 0xffffff);
}

std::string mismatch_text(const LabelledMessage& wanted, const LabelledMessage& sent) {
  return fmt::format(
      "rank {} and rank {} do different things: rank {} wants {} bytes of {}, rank {} sends {} "
      "bytes of {}",
      wanted.rank, sent.rank, wanted.rank, wanted.bytes, label_text(wanted.label), sent.rank,
      sent.bytes, label_text(sent.label));
}

}  // namespace moraine
