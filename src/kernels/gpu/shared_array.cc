// What is wrong with an access of shared memory, in words.
#include "kernels/gpu/shared_array.h"

#include <fmt/core.h>

#include <utility>

namespace moraine::gpu {

std::string place_text(const SourceLine& at) {
  const char* slash = std::strrchr(at.file, '/');
  return fmt::format("{}:{}", slash == nullptr ? at.file : slash + 1, at.line);
}

SharedArray::SharedArray(std::string name, int64_t count, int64_t element_bytes,
                         const SourceLine& at)
    : name(std::move(name)),
      count(count),
      element_bytes(element_bytes),
      declared(at),
      bytes_(static_cast<size_t>(count * element_bytes), 0xff),
      history_(static_cast<size_t>(count)) {}

std::string SharedArray::unwritten_text(int64_t index, const AccessTime& now) const {
  return fmt::format("shared {}[{}] was never written: thread {} reads at {}", name, index,
                     now.thread, place_text(now.at));
}

std::string SharedArray::fault_text(int64_t index, const AccessTime& now, bool writes) const {
  const char* does = writes ? "writes" : "reads";
  if (!inside(index)) {
    return fmt::format("shared {}[{}] of {}: thread {} {} at {}", name, index, count, now.thread,
                       does, place_text(now.at));
  }
  const History& h = history_[static_cast<size_t>(index)];
  const AccessTime* before = &h.writer;
  const char* did = "wrote";
  if (!unordered(h.writer, now)) {
    did = "read";
    for (const AccessTime* reader : {&h.reader_elsewhere, &h.reader_beside, &h.reader}) {
      if (unordered(*reader, now)) before = reader;
    }
  }
  return fmt::format(
      "race on shared {}[{}]: thread {} {} at {}, thread {} {} at {}, and no barrier is between",
      name, index, before->thread, did, place_text(before->at), now.thread, does,
      place_text(now.at));
}

}  // namespace moraine::gpu
