// CPUID, what the system saves on a context switch, and Linux's permission for tile data.
#include "kernels/cpu/amx_tiles.h"

#if defined(__x86_64__) && defined(__linux__)

#include <cpuid.h>
#include <sys/syscall.h>
#include <unistd.h>

namespace moraine::cpu {
namespace {

constexpr uint32_t kOsXsave = 1u << 27;                       // CPUID.1:ECX
constexpr uint32_t kAmxBf16 = 1u << 22, kAmxTile = 1u << 24;  // CPUID.7.0:EDX
constexpr uint32_t kAmxInt8 = 1u << 25;
constexpr uint64_t kTileState = 3u << 17;    // XCR0: tile configuration and tile data
constexpr long kRequestPermission = 0x1023;  // ARCH_REQ_XCOMP_PERM
constexpr long kTileData = 18;               // the state component

uint32_t features() {
  uint32_t a = 0, b = 0, c = 0, d = 0;
  if (__get_cpuid(1, &a, &b, &c, &d) == 0 || (c & kOsXsave) == 0) return 0;
  return __get_cpuid_count(7, 0, &a, &b, &c, &d) == 0 ? 0 : d;
}

bool system_saves_tiles() {
  uint32_t low = 0, high = 0;
  asm volatile("xgetbv" : "=a"(low), "=d"(high) : "c"(0));
  return (low & kTileState) == kTileState;
}

bool ask() {
  if ((features() & kAmxBf16) == 0 || (features() & kAmxTile) == 0) return false;
  return system_saves_tiles() && syscall(SYS_arch_prctl, kRequestPermission, kTileData) == 0;
}

}  // namespace

bool amx_permitted() {
  static const bool permitted = ask();
  return permitted;
}

bool amx_has_int8() { return amx_permitted() && (features() & kAmxInt8) != 0; }

}  // namespace moraine::cpu

#else

namespace moraine::cpu {
bool amx_permitted() { return false; }
bool amx_has_int8() { return false; }
}  // namespace moraine::cpu

#endif
