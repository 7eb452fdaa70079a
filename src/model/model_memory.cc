// ModelMemory: f32 as they are read, and the packs made of them, are there at once.
#include "model/model_memory.h"

#include <fmt/format.h>

#include "base/saturate.h"

namespace moraine {

int64_t read_model_bytes(int64_t parameters, DType compute) {
  return multiply_saturated(parameters, 4 + dtype_bytes(compute));
}

std::string model_shortage(int64_t parameters, DType compute, int64_t available) {
  const int64_t wanted = read_model_bytes(parameters, compute);
  if (wanted <= available) return "";
  constexpr double kGib = 1 << 30;
  return fmt::format(
      "{} parameters take {:.1f} GiB, as f32 and packed as {}, and {:.1f} are free; `moraine "
      "quantize` makes a form that is mapped when it is used",
      parameters, static_cast<double>(wanted) / kGib, dtype_name(compute),
      static_cast<double>(available) / kGib);
}

}  // namespace moraine
