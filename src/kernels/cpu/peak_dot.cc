// Register-only dot products of bf16 pairs and int8 quadruples on x86.
#include "kernels/cpu/peak_loops.h"

#if defined(__x86_64__)

namespace moraine::cpu {
namespace {

constexpr int kDotChains = 12;

// As instructions, so that no compiler flag is needed; the caller has asked CPUID.
#define MR_DOT_LOOP(instruction)                                                                 \
  asm volatile(                                                                                  \
      "vpxorq %%zmm0, %%zmm0, %%zmm0\n\t"                                                        \
      "vpxorq %%zmm1, %%zmm1, %%zmm1\n\t"                                                        \
      "vpxorq %%zmm2, %%zmm2, %%zmm2\n\t"                                                        \
      "vpxorq %%zmm3, %%zmm3, %%zmm3\n\t"                                                        \
      "vpxorq %%zmm4, %%zmm4, %%zmm4\n\t"                                                        \
      "vpxorq %%zmm5, %%zmm5, %%zmm5\n\t"                                                        \
      "vpxorq %%zmm6, %%zmm6, %%zmm6\n\t"                                                        \
      "vpxorq %%zmm7, %%zmm7, %%zmm7\n\t"                                                        \
      "vpxorq %%zmm8, %%zmm8, %%zmm8\n\t"                                                        \
      "vpxorq %%zmm9, %%zmm9, %%zmm9\n\t"                                                        \
      "vpxorq %%zmm10, %%zmm10, %%zmm10\n\t"                                                     \
      "vpxorq %%zmm11, %%zmm11, %%zmm11\n\t"                                                     \
      "vpxorq %%zmm12, %%zmm12, %%zmm12\n\t"                                                     \
      ".p2align 5\n"                                                                             \
      "1:\n\t" instruction " %%zmm12, %%zmm12, %%zmm0\n\t" instruction                           \
      " %%zmm12, %%zmm12, %%zmm1\n\t" instruction " %%zmm12, %%zmm12, %%zmm2\n\t" instruction    \
      " %%zmm12, %%zmm12, %%zmm3\n\t" instruction " %%zmm12, %%zmm12, %%zmm4\n\t" instruction    \
      " %%zmm12, %%zmm12, %%zmm5\n\t" instruction " %%zmm12, %%zmm12, %%zmm6\n\t" instruction    \
      " %%zmm12, %%zmm12, %%zmm7\n\t" instruction " %%zmm12, %%zmm12, %%zmm8\n\t" instruction    \
      " %%zmm12, %%zmm12, %%zmm9\n\t" instruction " %%zmm12, %%zmm12, %%zmm10\n\t" instruction   \
      " %%zmm12, %%zmm12, %%zmm11\n\t"                                                           \
      "sub $1, %[n]\n\t"                                                                         \
      "jnz 1b\n\t"                                                                               \
      "vzeroupper"                                                                               \
      : [n] "+r"(iterations)                                                                     \
      :                                                                                          \
      : "xmm0", "xmm1", "xmm2", "xmm3", "xmm4", "xmm5", "xmm6", "xmm7", "xmm8", "xmm9", "xmm10", \
        "xmm11", "xmm12", "cc")

void run_bf16_dots(int64_t iterations) { MR_DOT_LOOP("vdpbf16ps"); }
void run_int8_dots(int64_t iterations) { MR_DOT_LOOP("vpdpbusd"); }

}  // namespace

PeakLoop bf16_peak_loop() { return {run_bf16_dots, 2.0 * kDotChains * 32}; }

PeakLoop int8_peak_loop() {
  __builtin_cpu_init();
  if (!__builtin_cpu_supports("avx512vnni")) return {};
  return {run_int8_dots, 2.0 * kDotChains * 64};
}

}  // namespace moraine::cpu

#else

namespace moraine::cpu {
PeakLoop bf16_peak_loop() { return {}; }
PeakLoop int8_peak_loop() { return {}; }
}  // namespace moraine::cpu

#endif
