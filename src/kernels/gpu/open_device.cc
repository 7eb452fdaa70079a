// OpenDevice: the names.
#include "kernels/gpu/open_device.h"

#include <algorithm>
#include <optional>
#include <string_view>

#include "base/error.h"

namespace moraine::gpu {

namespace {

constexpr std::string_view kNumbered = "gpu:";
constexpr size_t kMostDigits = 4;

// N of gpu:N.
std::optional<int> number_of(const std::string& name) {
  if (!name.starts_with(kNumbered)) return std::nullopt;
  const std::string digits = name.substr(kNumbered.size());
  if (digits.empty() || digits.size() > kMostDigits ||
      digits.find_first_not_of("0123456789") != std::string::npos)
    return std::nullopt;
  return std::stoi(digits);
}

}  // namespace

bool is_device(const std::string& name) {
  return name == "cpu" || name == "gpu" || number_of(name) ||
         std::any_of(std::begin(kMatrixRules), std::end(kMatrixRules), [&](MatrixRule rule) {
           return name == std::string("emulated:") + matrix_rule_name(rule);
         });
}

std::string device_kind(const std::string& name) { return number_of(name) ? "gpu" : name; }

bool has_own_memory(const std::string& name) { return device_kind(name) == "gpu"; }

std::unique_ptr<Gpu> open_device(const std::string& name, int rank_of_host) {
  if (name == "cpu") return nullptr;
  if (name == "gpu") return open_gpu_of_rank(rank_of_host);
  if (const std::optional<int> number = number_of(name)) return open_gpu(*number);
  for (const MatrixRule rule : kMatrixRules) {
    if (name != std::string("emulated:") + matrix_rule_name(rule)) continue;
    const bool amd = rule == MatrixRule::kCdna2 || rule == MatrixRule::kCdna3;
    return emulate_gpu({.wave = amd ? 64 : 32, .rule = rule});
  }
  throw_error(Code::kInvalidArgument,
              "device {}: wanted cpu, gpu, gpu:N, or emulated:RULE with plain, cdna2, cdna3, "
              "sm_80 or sm_90",
              name);
}

}  // namespace moraine::gpu
