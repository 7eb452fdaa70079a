// ModelMemory: weights as f32, as they are read, and the packs made of them are there at once.
#include "model/model_memory.h"

#include <fmt/format.h>

#include <algorithm>
#include <vector>

#include "base/saturate.h"

namespace moraine {
namespace {

double gib(int64_t bytes) { return static_cast<double>(bytes) / (1 << 30); }

// Beside weights.
struct MemoryPart {
  const char* name;
  int64_t bytes;
  std::string takers;  // of the message, in the plural
  const char* remedy;
};

std::vector<MemoryPart> parts_of(const ModelMemory& m, const std::string& ranks) {
  return {{.name = "keys and values",
           .bytes = m.cache_bytes,
           .takers = fmt::format("keys and values of {} positions{}", m.cached_positions, ranks),
           .remedy = "a shorter context, fewer sequences or a smaller cache take less"},
          {.name = "rotary tables",
           .bytes = m.table_bytes,
           .takers = fmt::format("rotary tables of {} positions{}", m.positions, ranks),
           .remedy = "a shorter context, or a smaller max_positions of the model, takes less"},
          {.name = "activations",
           .bytes = m.row_bytes,
           .takers = fmt::format("activations of {} rows{}", m.rows, ranks),
           .remedy = "fewer rows at a time take less"},
          {.name = "other ranks' experts",
           .bytes = m.guest_bytes,
           .takers = fmt::format("copies of other ranks' experts{}", ranks),
           .remedy = "fewer --expert-slots take less"},
          {.name = "the head in 8 bits",
           .bytes = m.head_bytes,
           .takers = "weights of the head in 8 bits",
           .remedy = "--head full does without"}};
}

// What is there beside parts[named], as far as one can see it.
std::string beside(const ModelMemory& m, const std::vector<MemoryPart>& parts, size_t named) {
  constexpr int64_t kSeen = (int64_t{1} << 30) / 20;  // is printed as 0.1 GiB
  std::string text;
  const auto add = [&](const char* name, int64_t bytes) {
    if (bytes >= kSeen)
      text += fmt::format("{}{:.1f} of {}", text.empty() ? " beside " : ", ", gib(bytes), name);
  };
  add("weights", m.weight_bytes);
  for (size_t i = 0; i < parts.size(); ++i)
    if (i != named) add(parts[i].name, parts[i].bytes);
  return text;
}

}  // namespace

ModelMemory planned_memory(const Arena& plan) {
  ModelMemory m;
  for (const Arena::Entry& e : plan.entries()) {
    if (e.category == "mapped") continue;
    int64_t& bytes = e.name == "weights.guests"          ? m.guest_bytes
                     : e.name.starts_with("weights.")    ? m.weight_bytes
                     : e.name.starts_with("head.coarse") ? m.head_bytes
                     : e.name.starts_with("rope.")       ? m.table_bytes
                     : e.category == "cache"             ? m.cache_bytes
                                                         : m.row_bytes;
    bytes = add_saturated(bytes, e.bytes);
  }
  return m;
}

int64_t read_model_bytes(int64_t parameters, DType compute) {
  return multiply_saturated(parameters, 4 + dtype_bytes(compute));
}

std::string model_shortage(const ModelMemory& m, int64_t available, const std::string& unread) {
  const std::string ranks = m.ranks > 1 ? fmt::format(" on {} ranks of this host", m.ranks) : "";
  if (m.parameters > 0 && m.weight_bytes > available)
    return fmt::format(
        "{} parameters{} take {:.1f} GiB, as f32 and packed as {}, and {:.1f} are free; {}",
        m.parameters, ranks, gib(m.weight_bytes), dtype_name(m.compute), gib(available), unread);
  const std::vector<MemoryPart> parts = parts_of(m, ranks);
  int64_t all = m.weight_bytes;
  for (const MemoryPart& part : parts) all = add_saturated(all, part.bytes);
  if (all <= available) return "";
  const auto named = static_cast<size_t>(
      std::max_element(parts.begin(), parts.end(),
                       [](const MemoryPart& a, const MemoryPart& b) { return a.bytes < b.bytes; }) -
      parts.begin());
  return fmt::format("{} take {:.1f} GiB{}, and {:.1f} are free; {}", parts[named].takers,
                     gib(parts[named].bytes), beside(m, parts, named), gib(available),
                     parts[named].remedy);
}

}  // namespace moraine
