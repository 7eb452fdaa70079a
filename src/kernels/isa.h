// Isa: which instruction set the fast kernels use on this machine.
//
// Chosen once from CPUID, the fastest that both machine and binary have. MORAINE_ISA=NAME in the
// environment (baseline, neon, avx2, avx512, avx512bf16, amx), or set_isa_cap in a test, takes another
// one that the machine has. Results are bitwise repeatable for one Isa, and within tolerance between
// them.
//
// The fastest is the last of supported_isas(), but for one kind of machine: Intel's cores from Sapphire
// Rapids on have vdpbf16ps at a quarter of the rate of their f32 multiply-adds, so half of the
// arithmetic. Without tiles they take kAvx512, which widens bf16 and multiplies in f32.
//
// kAvx512 has vpdpbusd for integers where the machine has it: those products have the same bits anyway.
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
bool machine_has_vnni();            // vpdpbusd in 512 bits
void set_isa_cap(Isa cap);          // tests and benches only; not while a kernel runs

// Whether tiles of few rows best ask for lines from memory into L1 at once. A Zen 5 gets all that memory gives in this
// way, and what comes after it (AMD's family 1Ah and later) is taken to; on a Zen 4 few lines can be on their way into
// L1, so they are asked for into L2 first, as they are elsewhere. No result depends on it.
bool machine_reads_into_l1();
void set_reads_into_l1(bool value);  // as set_isa_cap

// Which of the supported ones is the fastest.
Isa fastest_isa(Isa last, bool slow_bf16_dot);

}  // namespace moraine
