// Isa: which instruction set the fast kernels use on this machine.
//
// Chosen once from CPUID, the best that both machine and binary have. MORAINE_ISA=NAME in the
// environment (baseline, neon, avx2, avx512, avx512bf16, amx), or set_isa_cap in a test, lowers it.
// Results are bitwise repeatable for one Isa, and within tolerance between them.
//
// kAmx adds tiles for products of bf16 to kAvx512Bf16; everything else stays as it is there. It
// needs the kernel's permission, which is asked for once, for all threads of the process. Linux
// refuses it to a process that has an alternate signal stack too small for the tiles' state.
#pragma once

#include <cstdint>
#include <vector>

namespace moraine {

enum class Isa : uint8_t { kBaseline, kNeon, kAvx2, kAvx512, kAvx512Bf16, kAmx };

Isa isa();
const char* isa_name(Isa isa);
std::vector<Isa> supported_isas();  // on this machine, ascending
void set_isa_cap(Isa cap);          // tests and benches only; not while a kernel runs

}  // namespace moraine
