// CPUID through Highway's target list, and a cap from the environment.
#include "kernels/isa.h"

#include <hwy/targets.h>

#include <atomic>
#include <cstdlib>
#include <cstring>

#include "base/error.h"

namespace moraine {
namespace {

bool machine_has_avx512_bf16() {
#if defined(__x86_64__)
  __builtin_cpu_init();
  return __builtin_cpu_supports("avx512bf16") != 0;
#else
  return false;
#endif
}

Isa detect() {
  const int64_t targets = hwy::SupportedTargets();
  if ((targets & HWY_NEON) != 0) return Isa::kNeon;
  if ((targets & HWY_AVX3) != 0) {
    return machine_has_avx512_bf16() ? Isa::kAvx512Bf16 : Isa::kAvx512;
  }
  return (targets & HWY_AVX2) != 0 ? Isa::kAvx2 : Isa::kBaseline;
}

// Highway's dispatch follows the same cap: everything better is disabled.
void cap_highway(Isa cap) {
  hwy::SetSupportedTargetsForTest(0);
  const int64_t all = hwy::SupportedTargets();
  int64_t allowed = all;
  if (cap == Isa::kBaseline) allowed &= ~(HWY_AVX2 | HWY_AVX3 | HWY_NEON);
  if (cap == Isa::kAvx2) allowed &= ~int64_t{HWY_AVX3};
#ifdef HWY_AVX3_DL
  if (cap < Isa::kAvx512) allowed &= ~int64_t{HWY_AVX3_DL};
#endif
  hwy::SetSupportedTargetsForTest(allowed);
}

Isa from_environment() {
  const Isa best = detect();
  const char* name = std::getenv("MORAINE_ISA");
  if (name == nullptr || *name == '\0') return best;
  for (const Isa candidate :
       {Isa::kBaseline, Isa::kNeon, Isa::kAvx2, Isa::kAvx512, Isa::kAvx512Bf16}) {
    if (std::strcmp(name, isa_name(candidate)) != 0) continue;
    if (candidate > best) {
      throw_error(Code::kInvalidArgument, "MORAINE_ISA={}: this machine has {} at most", name,
                  isa_name(best));
    }
    cap_highway(candidate);
    return candidate;
  }
  throw_error(Code::kInvalidArgument,
              "MORAINE_ISA={}: wanted baseline, neon, avx2, avx512 or avx512bf16", name);
}

std::atomic<Isa>& current() {
  static std::atomic<Isa> value{from_environment()};
  return value;
}

}  // namespace

Isa isa() { return current().load(std::memory_order_relaxed); }

const char* isa_name(Isa isa) {
  switch (isa) {
    case Isa::kBaseline:
      return "baseline";
    case Isa::kNeon:
      return "neon";
    case Isa::kAvx2:
      return "avx2";
    case Isa::kAvx512:
      return "avx512";
    case Isa::kAvx512Bf16:
      return "avx512bf16";
  }
  return "?";
}

std::vector<Isa> supported_isas() {
  const Isa best = detect();
  std::vector<Isa> isas = {Isa::kBaseline};
  if (best == Isa::kNeon) isas.push_back(Isa::kNeon);
  for (const Isa candidate : {Isa::kAvx2, Isa::kAvx512, Isa::kAvx512Bf16}) {
    if (best != Isa::kNeon && candidate <= best) isas.push_back(candidate);
  }
  return isas;
}

void set_isa_cap(Isa cap) {
  cap_highway(cap);
  current().store(cap);
}

}  // namespace moraine
