// ModelMemory: weights as f32, as they are read, and the packs made of them are there at once.
#include "model/model_memory.h"

#include <fmt/format.h>

#include "base/saturate.h"

namespace moraine {

int64_t read_model_bytes(int64_t parameters, DType compute) {
  return multiply_saturated(parameters, 4 + dtype_bytes(compute));
}

std::string model_shortage(const ModelMemory& m, int64_t available) {
  constexpr double kGib = 1 << 30;
  const auto gib = [](int64_t bytes) { return static_cast<double>(bytes) / kGib; };
  const int64_t weights = read_model_bytes(m.parameters, m.compute);
  const std::string ranks = m.ranks > 1 ? fmt::format(" on {} ranks of this host", m.ranks) : "";
  if (weights > available)
    return fmt::format(
        "{} parameters{} take {:.1f} GiB, as f32 and packed as {}, and {:.1f} are free; `moraine "
        "quantize` makes a form that is mapped when it is used",
        m.parameters, ranks, gib(weights), dtype_name(m.compute), gib(available));
  if (add_saturated(weights, add_saturated(m.cache_bytes, m.table_bytes)) <= available) return "";
  const bool tables = m.table_bytes > m.cache_bytes;
  return fmt::format(
      "{} of {} positions{} take {:.1f} GiB{}, and {:.1f} are free; {}",
      tables ? "rotary tables" : "keys and values", tables ? m.positions : m.cached_positions,
      ranks, gib(tables ? m.table_bytes : m.cache_bytes),
      weights == 0 ? "" : fmt::format(" beside {:.1f} of weights", gib(weights)), gib(available),
      tables ? "a shorter context, or a smaller max_positions of the model, takes less"
             : "a shorter context, fewer sequences or a smaller cache take less");
}

}  // namespace moraine
