// CPUID through Highway's target list, and a cap from the environment.
#include "kernels/isa.h"

#if defined(__x86_64__)
#include <cpuid.h>
#endif

#include <fmt/format.h>
#include <hwy/targets.h>

#include <atomic>
#include <cstdlib>
#include <cstring>
#include <string>

#include "base/error.h"
#include "kernels/cpu/amx_tiles.h"

namespace moraine {
namespace {

#if defined(__x86_64__)
bool machine_has_avx512_bf16() {
  __builtin_cpu_init();
  return __builtin_cpu_supports("avx512bf16") != 0;
}

// Intel's cores of this kind came with AVX512-FP16. Cooper Lake, which has vdpbf16ps at full rate, has none of it.
bool machine_has_slow_bf16_dot() {
  constexpr uint32_t kAvx512Fp16 = 1u << 23;  // CPUID.7.0:EDX
  uint32_t a = 0, b = 0, c = 0, d = 0;
  __builtin_cpu_init();
  return __builtin_cpu_is("intel") != 0 && __get_cpuid_count(7, 0, &a, &b, &c, &d) != 0 &&
         (d & kAvx512Fp16) != 0;
}

bool machine_is_zen5_or_later() {
  constexpr uint32_t kZen5 = 0x1a;
  uint32_t a = 0, b = 0, c = 0, d = 0;
  __builtin_cpu_init();
  if (__builtin_cpu_is("amd") == 0 || __get_cpuid(1, &a, &b, &c, &d) == 0) return false;
  return (a >> 8 & 15) + (a >> 20 & 255) >= kZen5;  // base and extended family
}
#else
bool machine_has_avx512_bf16() { return false; }
bool machine_has_slow_bf16_dot() { return false; }
bool machine_is_zen5_or_later() { return false; }
#endif

Isa detect_once() {
  const int64_t targets = hwy::SupportedTargets() & HWY_TARGETS;  // the machine's that are compiled
  if ((targets & HWY_NEON) != 0) return Isa::kNeon;
  if ((targets & HWY_AVX3) != 0) {
    if (!machine_has_avx512_bf16()) return Isa::kAvx512;
    return cpu::amx_permitted() ? Isa::kAmx : Isa::kAvx512Bf16;
  }
  return (targets & HWY_AVX2) != 0 ? Isa::kAvx2 : Isa::kBaseline;
}

Isa detect() {
  static const Isa best = detect_once();  // before any cap narrows what Highway reports
  return best;
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
  const char* name = std::getenv("MORAINE_ISA");
  if (name == nullptr || *name == '\0') return fastest_isa(detect(), machine_has_slow_bf16_dot());
  const std::vector<Isa> here = supported_isas();
  std::string names;
  for (const Isa candidate : here) {
    if (std::strcmp(name, isa_name(candidate)) == 0) {
      cap_highway(candidate);
      return candidate;
    }
    names += fmt::format("{}{}", names.empty() ? "" : ", ", isa_name(candidate));
  }
  throw_error(Code::kInvalidArgument, "MORAINE_ISA={}: this machine has {}", name, names);
}

std::atomic<bool>& into_l1() {
  static std::atomic<bool> value{machine_is_zen5_or_later()};
  return value;
}

std::atomic<Isa>& current() {
  static std::atomic<Isa> value{from_environment()};
  return value;
}

}  // namespace

bool machine_has_vnni() {
#if defined(__x86_64__)
  static const bool has = (__builtin_cpu_init(), __builtin_cpu_supports("avx512vnni") != 0);
  return has;
#else
  return false;
#endif
}

Isa fastest_isa(Isa last, bool slow_bf16_dot) {
  return last == Isa::kAvx512Bf16 && slow_bf16_dot ? Isa::kAvx512 : last;
}

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
    case Isa::kAmx:
      return "amx";
  }
  return "?";
}

std::vector<Isa> supported_isas() {
  const Isa best = detect();
  std::vector<Isa> isas = {Isa::kBaseline};
  if (best == Isa::kNeon) isas.push_back(Isa::kNeon);
  for (const Isa candidate : {Isa::kAvx2, Isa::kAvx512, Isa::kAvx512Bf16, Isa::kAmx}) {
    if (best != Isa::kNeon && candidate <= best) isas.push_back(candidate);
  }
  return isas;
}

bool machine_reads_into_l1() { return into_l1().load(std::memory_order_relaxed); }
void set_reads_into_l1(bool value) { into_l1().store(value); }

void set_isa_cap(Isa cap) {
  cap_highway(cap);
  current().store(cap);
}

}  // namespace moraine
