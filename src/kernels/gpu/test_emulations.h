// What tests of GPU kernels run under: every wave size and order of threads, and who has which compilation of a kernel.
#pragma once

#include <string>
#include <vector>

#include "kernels/gpu/emulate.h"

namespace moraine::gpu {

// Both waves, each in three orders; of one generation's rule of rounding.
inline std::vector<Emulation> all_emulations(MatrixRule rule = MatrixRule::kPlain) {
  std::vector<Emulation> all;
  for (const int wave : {32, 64}) {
    all.push_back({.wave = wave, .order = ThreadOrder::kAscending, .seed = 0, .rule = rule});
    all.push_back({.wave = wave, .order = ThreadOrder::kDescending, .seed = 0, .rule = rule});
    all.push_back({.wave = wave, .order = ThreadOrder::kRandom, .seed = 7, .rule = rule});
  }
  return all;
}

inline std::string emulation_text(const Emulation& e) {
  constexpr const char* kOrders[] = {"ascending", "descending", "random"};
  return "wave " + std::to_string(e.wave) + ", " + kOrders[static_cast<int>(e.order)] + ", " +
         matrix_rule_name(e.rule);
}

// What the kernels of test_faults.h take.
constexpr int kFaultThreads = 128;

struct FaultArgs {
  float* y;  // [kFaultThreads] out
  bool fault;
};

// What the kernels of test_tiles.h take: one block of 64 threads, all of whose waves do the same.
struct TileArgs {
  float* y;           // [16, 16] out
  const BF16 *a, *b;  // [16, 16] in
  const float* c;     // [16, 16] in
  bool fault;
};

// The kernels of test_faults.h and test_tiles.h as the wave has them; stops if there is none of the name.
EmulatedEntry test_kernel(int wave, const std::string& name);
std::vector<EmulatedEntry> test_kernels_wave32();
std::vector<EmulatedEntry> test_kernels_wave64();

}  // namespace moraine::gpu
