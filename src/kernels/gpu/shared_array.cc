// Which accesses of an element of shared memory are ordered.
#include "kernels/gpu/shared_array.h"

#include <fmt/core.h>

#include <cstring>

namespace moraine::gpu {
namespace {

bool race(const AccessTime& before, const AccessTime& now) {
  if (before.thread < 0 || before.thread == now.thread) return false;
  if (before.block_barriers != now.block_barriers) return false;
  return before.wave != now.wave || before.wave_barriers == now.wave_barriers;
}

struct NamedAccess {
  const AccessTime& time;
  const char* verb;
};

std::string race_text(const SharedArray& array, int64_t index, const NamedAccess& before,
                      const NamedAccess& now) {
  const auto text = [](const NamedAccess& a) {
    return fmt::format("thread {} {} at {}", a.time.thread, a.verb, place_text(a.time.at));
  };
  return fmt::format("race on shared {}[{}]: {}, {}, and no barrier is between", array.name, index,
                     text(before), text(now));
}

std::string outside_text(const SharedArray& array, int64_t index, const AccessTime& now,
                         const char* does) {
  return fmt::format("shared {}[{}] of {}: thread {} {} at {}", array.name, index, array.count,
                     now.thread, does, place_text(now.at));
}

}  // namespace

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
      bytes(static_cast<size_t>(count * element_bytes), 0xff),
      history(static_cast<size_t>(count)) {}

std::string SharedArray::unwritten(int64_t index, const AccessTime& now) const {
  if (index < 0 || index >= count || history[static_cast<size_t>(index)].writer.thread >= 0) {
    return {};
  }
  return fmt::format("shared {}[{}] was never written: thread {} reads at {}", name, index,
                     now.thread, place_text(now.at));
}

std::string SharedArray::read(int64_t index, const AccessTime& now) {
  if (index < 0 || index >= count) return outside_text(*this, index, now, "reads");
  History& h = history[static_cast<size_t>(index)];
  if (race(h.writer, now)) return race_text(*this, index, {h.writer, "wrote"}, {now, "reads"});
  if (h.reader.wave != now.wave) {
    h.reader_elsewhere = h.reader;
    h.reader_beside = AccessTime();
  } else if (h.reader.thread != now.thread) {
    h.reader_beside = h.reader;
  }
  h.reader = now;
  return {};
}

std::string SharedArray::write(int64_t index, const AccessTime& now) {
  if (index < 0 || index >= count) return outside_text(*this, index, now, "writes");
  History& h = history[static_cast<size_t>(index)];
  if (race(h.writer, now)) return race_text(*this, index, {h.writer, "wrote"}, {now, "writes"});
  for (const AccessTime& reader : {h.reader, h.reader_beside, h.reader_elsewhere}) {
    if (race(reader, now)) return race_text(*this, index, {reader, "read"}, {now, "writes"});
  }
  h.writer = now;
  return {};
}

}  // namespace moraine::gpu
