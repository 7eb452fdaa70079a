// PtxSyntax: the text of a PTX module as kernels of statements, nothing of it understood yet.
//
// Read is what clang writes for our kernels and what inline assembly of ours has: directives .version, .target,
// .address_size, .entry with .param, .maxntid, .reg, .shared, .pragma; labels; instructions with a guard, in braces
// with registers of their own or not. Anything else is an error.
//
// Errors:   kInvalidArgument, with the line and what stands there.
// Source:   PTX ISA, chapters 4 (syntax) and 5 (state spaces, types, variables).
#pragma once

#include <cstdint>
#include <map>
#include <string>
#include <string_view>
#include <vector>

namespace moraine::testing {

enum class PtxOperandKind : uint8_t {
  kName,     // register, special register, label or variable: `name`
  kNumber,   // `bits`, of an integer or of a float
  kAddress,  // [name + bits]
  kVector,   // {a, b, ...}
};

struct PtxOperand {
  PtxOperandKind kind = PtxOperandKind::kName;
  std::string name;
  int64_t bits = 0;  // an integer, or a float's pattern, or the offset of an address
  std::vector<PtxOperand> elements;
};

struct PtxStatement {
  int line = 0;       // of the module, from 1
  std::string label;  // one stands alone: then it is all there is
  std::string guard;  // "" or a predicate's register
  bool guard_negated = false;
  std::string opcode;  // "add.rn.f32"
  std::vector<PtxOperand> operands;
};

struct PtxVariable {
  std::string name;
  int64_t bytes = 0, alignment = 1;
};

struct PtxKernel {
  std::string name;
  int64_t threads = 0;  // .maxntid, or 0
  std::vector<PtxVariable> parameters, shared;
  std::map<std::string, std::string> registers;  // name to type: "%r12" to ".b32"
  std::vector<PtxStatement> body;
};

struct PtxModule {
  std::string target;  // "sm_80"
  std::vector<PtxVariable> shared;
  std::vector<PtxKernel> kernels;
};

PtxModule parse_ptx(std::string_view text);

}  // namespace moraine::testing
