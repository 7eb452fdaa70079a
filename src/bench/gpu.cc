// Asks the drivers, and says what is known.
#include "bench/gpu.h"

#include "base/error.h"
#include "base/json.h"
#include "kernels/gpu/runtime.h"

namespace moraine {

void bench_gpu(bool json) {
  std::string device, why;
  try {
    device = gpu::open_gpu()->name();
  } catch (const Error& error) {
    why = error.what();
  }
  if (json) {
    const auto text = [](const std::string& t) { return t.empty() ? Json() : Json(t); };
    fmt::print("{}\n", json_text({{"bench", "gpu"},
                                  {"device", text(device)},
                                  {"why", text(why)},
                                  {"kernels", gpu::kKernelsState}}));
    return;
  }
  fmt::print("device   {}\nkernels  {}\n", device.empty() ? "none: " + why : device,
             gpu::kKernelsState);
}

}  // namespace moraine
