// Isa: which instruction set the fast kernels use on this machine.
//
// Chosen once from CPUID, the best that both machine and binary have. MORAINE_ISA=baseline|avx2|avx512|
// avx512bf16|neon in the environment, or set_isa_cap in a test, lowers it. Results are bitwise
// repeatable for one Isa, and within tolerance between them.
#pragma once

#include <cstdint>
#include <vector>

namespace moraine {

enum class Isa : uint8_t { kBaseline, kNeon, kAvx2, kAvx512, kAvx512Bf16 };

Isa isa();
const char* isa_name(Isa isa);
std::vector<Isa> supported_isas();  // on this machine, ascending
void set_isa_cap(Isa cap);          // tests and benches only; not while a kernel runs

}  // namespace moraine
