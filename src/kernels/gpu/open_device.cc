// OpenDevice: the names.
#include "kernels/gpu/open_device.h"

#include <algorithm>

#include "base/error.h"

namespace moraine::gpu {

bool is_device(const std::string& name) {
  return name == "cpu" || name == "gpu" ||
         std::any_of(std::begin(kMatrixRules), std::end(kMatrixRules), [&](MatrixRule rule) {
           return name == std::string("emulated:") + matrix_rule_name(rule);
         });
}

bool has_own_memory(const std::string& name) { return name == "gpu"; }

std::unique_ptr<Gpu> open_device(const std::string& name) {
  if (name == "cpu") return nullptr;
  if (name == "gpu") return open_gpu();
  for (const MatrixRule rule : kMatrixRules) {
    if (name != std::string("emulated:") + matrix_rule_name(rule)) continue;
    const bool amd = rule == MatrixRule::kCdna2 || rule == MatrixRule::kCdna3;
    return emulate_gpu({.wave = amd ? 64 : 32, .rule = rule});
  }
  throw_error(Code::kInvalidArgument,
              "device {}: wanted cpu, gpu, or emulated:RULE with plain, cdna2, cdna3, sm_80 or "
              "sm_90",
              name);
}

}  // namespace moraine::gpu
