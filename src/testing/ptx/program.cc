// Registers get places as they are met; then each statement becomes an instruction.
#include "testing/ptx/program.h"

#include <fmt/core.h>

#include <algorithm>
#include <map>
#include <utility>

#include "base/error.h"
#include "testing/ptx/accesses.h"
#include "testing/ptx/copies.h"
#include "testing/ptx/meetings.h"
#include "testing/ptx/operations.h"

namespace moraine::testing {
namespace {

constexpr std::string_view kMultiply = "mma.sync.aligned.m16n8k16.row.col.f32.bf16.bf16.f32",
                           kLoadMatrices = "ldmatrix.sync.aligned.m8n8.x4.shared.b16",
                           kLoadTransposed = "ldmatrix.sync.aligned.m8n8.x4.trans.shared.b16";

// Of a lane: 0 for a predicate, -1 for what is not a type.
int32_t type_bytes(std::string_view type) {
  if (type == ".pred") return 0;
  if (type.size() < 3) return -1;
  const std::string_view bits = type.substr(2);
  return bits == "16" ? 2 : bits == "32" ? 4 : bits == "64" ? 8 : -1;
}

struct PtxPlace {
  int32_t slot, bytes;
};

class PtxAssembler {
 public:
  PtxAssembler(const PtxModule& module, const PtxKernel& kernel) : module_(module) {
    p_.kernel = kernel;
  }

  PtxProgram make() {
    place_registers();
    place_parameters();
    place_labels();
    for (const PtxStatement& s : p_.kernel.body) {
      if (s.label.empty()) p_.code.push_back(instruction(s));
    }
    if (p_.code.empty() || p_.code.back().guard >= 0 ||
        (p_.code.back().flow != PtxFlow::kReturn && p_.code.back().flow != PtxFlow::kBranch))
      throw_error(Code::kInvalidArgument, "kernel {}: it does not end with ret or bra", name());
    // Fixed rows stand behind the registers.
    p_.warp_bytes = p_.register_bytes;
    std::vector<int32_t> moved;
    for (PtxFixedRow& f : p_.fixed) {
      f.slot = static_cast<int32_t>(p_.warp_bytes);
      p_.warp_bytes += row_bytes(f.bytes);
      moved.push_back(f.slot);
    }
    for (PtxInstruction& in : p_.code) {
      for (int32_t& slot : in.slots)
        if (slot < 0) slot = moved[static_cast<size_t>(-1 - slot)];
    }
    return std::move(p_);
  }

 private:
  const std::string& name() const { return p_.kernel.name; }
  [[noreturn]] void fail(const PtxStatement& s, const std::string& what) const {
    throw_error(Code::kInvalidArgument, "kernel {}, ptx line {} `{}`: {}", name(), s.line, s.opcode,
                what);
  }
  // Whole cache lines.
  static int64_t row_bytes(int32_t bytes) { return std::max(64, bytes * kPtxLanes); }

  void place_registers() {
    for (const auto& [register_name, type] : p_.kernel.registers) {
      const int32_t bytes = type_bytes(type);
      if (bytes < 0)
        throw_error(Code::kInvalidArgument, "kernel {}: register {} of type {}: not known here",
                    name(), register_name, type);
      places_[register_name] = {static_cast<int32_t>(p_.register_bytes), bytes};
      p_.register_bytes += row_bytes(bytes);
    }
  }

  void place_parameters() {
    for (const PtxVariable& v : p_.kernel.parameters) {
      p_.parameter_bytes = (p_.parameter_bytes + v.alignment - 1) / v.alignment * v.alignment;
      addresses_[v.name] = kParameterBase + static_cast<uint64_t>(p_.parameter_bytes);
      p_.parameter_bytes += v.bytes;
    }
  }

  void place_labels() {
    int32_t index = 0;
    for (const PtxStatement& s : p_.kernel.body) {
      if (s.label.empty()) {
        ++index;
      } else {
        labels_[s.label] = index;
      }
    }
  }

  // Shared arrays that the kernel names, in the order in which it does.
  const uint64_t* address_of_variable(const std::string& variable) {
    const auto known = addresses_.find(variable);
    if (known != addresses_.end()) return &known->second;
    const PtxVariable* v = find_shared(p_.kernel.shared, variable);
    if (v == nullptr) v = find_shared(module_.shared, variable);
    if (v == nullptr) return nullptr;
    uint64_t at = kSharedBase;
    if (!p_.shared.empty())
      at = p_.shared.back().address + static_cast<uint64_t>(p_.shared.back().bytes + kSharedGap);
    const auto alignment = static_cast<uint64_t>(std::max(v->alignment, int64_t{16}));
    at = (at + alignment - 1) / alignment * alignment;
    p_.shared.push_back({v->name, at, v->bytes});
    return &(addresses_[variable] = at);
  }
  static const PtxVariable* find_shared(const std::vector<PtxVariable>& list,
                                        const std::string& variable) {
    for (const PtxVariable& v : list)
      if (v.name == variable) return &v;
    return nullptr;
  }

  // The row of what does not change; -1 - its index until all registers are placed.
  int32_t fixed(PtxFixed what, int32_t bytes, uint64_t value) {
    if (bytes > 0 && bytes < 8) value &= (uint64_t{1} << 8 * bytes) - 1;
    for (size_t i = 0; i < p_.fixed.size(); ++i) {
      const PtxFixedRow& f = p_.fixed[i];
      if (f.what == what && f.bytes == bytes && f.value == value)
        return -1 - static_cast<int32_t>(i);
    }
    p_.fixed.push_back({.what = what, .slot = 0, .bytes = bytes, .value = value});
    return -static_cast<int32_t>(p_.fixed.size());
  }

  PtxPlace register_of(const PtxStatement& s, const std::string& register_name) const {
    const auto it = places_.find(register_name);
    if (it == places_.end()) fail(s, "no register " + register_name);
    return it->second;
  }

  int32_t output(const PtxStatement& s, const PtxOperand& o, int32_t bytes) const {
    if (o.kind != PtxOperandKind::kName) fail(s, "wanted a register to write to");
    const PtxPlace p = register_of(s, o.name);
    if (p.bytes != bytes)
      fail(s, fmt::format("{} has {} bytes, wanted {}", o.name, p.bytes, bytes));
    return p.slot;
  }

  int32_t input(const PtxStatement& s, const PtxOperand& o, int32_t bytes) {
    if (o.kind == PtxOperandKind::kNumber)
      return fixed(PtxFixed::kNumber, bytes, static_cast<uint64_t>(o.bits));
    if (o.kind != PtxOperandKind::kName) fail(s, "wanted a register or a number");
    for (const auto& [special, what] :
         {std::pair{"%tid.x", PtxFixed::kThread}, std::pair{"%ctaid.x", PtxFixed::kBlockX},
          std::pair{"%ctaid.y", PtxFixed::kBlockY}}) {
      if (o.name != special) continue;
      if (bytes != 4) fail(s, o.name + " has 4 bytes");
      return fixed(what, bytes, 0);
    }
    if (o.name[0] != '%' && places_.count(o.name) == 0) {
      const uint64_t* const address = address_of_variable(o.name);
      if (address == nullptr || bytes != 8) fail(s, "no variable " + o.name);
      return fixed(PtxFixed::kNumber, 8, *address);
    }
    const PtxPlace p = register_of(s, o.name);
    if (p.bytes != bytes)
      fail(s, fmt::format("{} has {} bytes, wanted {}", o.name, p.bytes, bytes));
    return p.slot;
  }

  void want_operands(const PtxStatement& s, size_t count) const {
    if (s.operands.size() != count)
      fail(s, fmt::format("{} operands, wanted {}", s.operands.size(), count));
  }

  PtxInstruction instruction(const PtxStatement& s) {
    PtxInstruction in;
    in.from = &s;
    if (!s.guard.empty()) {
      const PtxPlace p = register_of(s, s.guard);
      if (p.bytes != 0) fail(s, "the guard is no predicate");
      in.guard = p.slot;
      in.guard_negated = s.guard_negated;
    }
    if (control(s, in) || meeting(s, in) || vector_move(s, in) || copy(s, in) || access(s, in))
      return in;
    const PtxOperation* const o = find_ptx_operation(s.opcode);
    if (o == nullptr) fail(s, "no such opcode with these modifiers is known here");
    want_operands(s, static_cast<size_t>(o->operands));
    in.run = o->run;
    in.slots[0] = output(s, s.operands[0], o->bytes[0]);
    for (size_t i = 1; i < s.operands.size(); ++i)
      in.slots[i] = input(s, s.operands[i], o->bytes[i]);
    return in;
  }

  bool control(const PtxStatement& s, PtxInstruction& in) {
    if (s.opcode == "ret") {
      in.flow = PtxFlow::kReturn;
      want_operands(s, 0);
      return true;
    }
    if (s.opcode != "bra" && s.opcode != "bra.uni") return false;
    in.flow = PtxFlow::kBranch;
    want_operands(s, 1);
    const auto to = labels_.find(s.operands[0].name);
    if (to == labels_.end()) fail(s, "no label " + s.operands[0].name);
    in.target = to->second;
    return true;
  }

  void want_number(const PtxStatement& s, const PtxOperand& o, int64_t number) const {
    if (o.kind != PtxOperandKind::kNumber || o.bits != number)
      fail(s,
           fmt::format("wanted {:#x} there: other members or barriers are not known here", number));
  }

  bool meeting(const PtxStatement& s, PtxInstruction& in) {
    if (s.opcode == "bar.sync") {
      want_operands(s, 1);
      want_number(s, s.operands[0], 0);
      in.flow = PtxFlow::kMeetBlock;
    } else if (s.opcode == "bar.warp.sync") {
      want_operands(s, 1);
      want_number(s, s.operands[0], kAllLanes);
      in.flow = PtxFlow::kMeetWarp;
      in.run = ptx_meet_warp;
    } else if (s.opcode == "shfl.sync.bfly.b32") {
      want_operands(s, 5);
      want_number(s, s.operands[4], kAllLanes);
      in.flow = PtxFlow::kMeetWarp;
      in.run = ptx_shuffle_bfly;
      in.slots[0] = output(s, s.operands[0], 4);
      for (size_t i = 1; i < 4; ++i) in.slots[i] = input(s, s.operands[i], 4);
    } else if (s.opcode == kMultiply) {
      multiply(s, in);
    } else if (s.opcode == kLoadMatrices || s.opcode == kLoadTransposed) {
      load_matrices(s, in);
    } else {
      return false;
    }
    if (!s.guard.empty()) fail(s, "a guard where all lanes are to come is not known here");
    return true;
  }

  void multiply(const PtxStatement& s, PtxInstruction& in) {
    want_operands(s, 4);
    in.flow = PtxFlow::kMeetWarp;
    in.run = ptx_multiply;
    size_t slot = 0;
    for (size_t i = 0; i < 4; ++i) {
      const std::vector<PtxOperand>& v = s.operands[i].elements;
      if (v.size() != (i == 2 ? 2u : 4u)) fail(s, "wanted vectors of 4, 4, 2 and 4 registers");
      for (const PtxOperand& o : v) in.slots[slot++] = i == 0 ? output(s, o, 4) : input(s, o, 4);
    }
  }

  void load_matrices(const PtxStatement& s, PtxInstruction& in) {
    want_operands(s, 2);
    in.flow = PtxFlow::kMeetWarp;
    in.run = s.opcode == kLoadMatrices ? ptx_load_matrices : ptx_load_transposed;
    const std::vector<PtxOperand>& v = s.operands[0].elements;
    if (v.size() != 4) fail(s, "wanted a vector of 4 registers");
    for (size_t i = 0; i < 4; ++i) in.slots[i] = output(s, v[i], 4);
    in.slots[4] = base_of(s, s.operands[1]);
    in.offset = s.operands[1].bits;
  }

  int32_t base_of(const PtxStatement& s, const PtxOperand& address) {
    if (address.kind != PtxOperandKind::kAddress) fail(s, "wanted an address");
    PtxOperand base = address;
    base.kind = PtxOperandKind::kName;
    return input(s, base, 8);
  }

  bool copy(const PtxStatement& s, PtxInstruction& in) {
    if (s.opcode == "cp.async.commit_group") {
      want_operands(s, 0);
      in.run = ptx_commit_group;
    } else if (s.opcode == "cp.async.wait_group") {
      want_operands(s, 1);
      in.run = ptx_wait_group;
      in.slots[0] = input(s, s.operands[0], 4);
    } else if (s.opcode == "cp.async.cg.shared.global") {
      want_operands(s, 4);
      want_number(s, s.operands[2], kPtxChunk);
      in.run = ptx_copy_async;
      for (size_t i = 0; i < 2; ++i) {
        if (s.operands[i].bits != 0) fail(s, "an offset is not known here");
        in.slots[i] = base_of(s, s.operands[i]);
      }
      in.slots[2] = input(s, s.operands[3], 4);
    } else {
      return false;
    }
    return true;
  }

  // mov.b32 {low, high}, r; and mov.b32 r, {low, high}
  bool vector_move(const PtxStatement& s, PtxInstruction& in) {
    if (s.opcode != "mov.b32" || s.operands.size() != 2) return false;
    const bool splits = s.operands[0].kind == PtxOperandKind::kVector;
    if (!splits && s.operands[1].kind != PtxOperandKind::kVector) return false;
    const std::vector<PtxOperand>& halves = s.operands[splits ? 0 : 1].elements;
    if (halves.size() != 2) fail(s, "wanted two halves");
    in.run = splits ? ptx_split_b32 : ptx_join_b32;
    if (splits) {
      in.slots = {output(s, halves[0], 2), output(s, halves[1], 2), input(s, s.operands[1], 4)};
    } else {
      in.slots = {output(s, s.operands[0], 4), input(s, halves[0], 2), input(s, halves[1], 2)};
    }
    return true;
  }

  bool access(const PtxStatement& s, PtxInstruction& in) {
    PtxAccessKind kind;
    if (!read_ptx_access(s.opcode, kind)) return false;
    want_operands(s, 2);
    const PtxOperand& address = s.operands[kind.is_load ? 1 : 0];
    const PtxOperand& value = s.operands[kind.is_load ? 0 : 1];
    std::vector<PtxOperand> elements = value.elements;
    if (value.kind != PtxOperandKind::kVector) elements = {value};
    if (static_cast<int32_t>(elements.size()) != kind.count)
      fail(s, fmt::format("{} elements, wanted {}", elements.size(), kind.count));
    int32_t bytes = kind.bytes;
    if (elements[0].kind == PtxOperandKind::kName) bytes = register_of(s, elements[0].name).bytes;
    in.run = ptx_access(kind, bytes);
    if (in.run == nullptr) fail(s, fmt::format("not known here with registers of {} bytes", bytes));
    in.count = kind.count;
    in.offset = address.bits;
    const int32_t base = base_of(s, address);
    size_t slot = 0;
    if (!kind.is_load) in.slots[slot++] = base;
    for (const PtxOperand& o : elements)
      in.slots[slot++] = kind.is_load ? output(s, o, bytes) : input(s, o, bytes);
    if (kind.is_load) in.slots[slot] = base;
    return true;
  }

  const PtxModule& module_;
  PtxProgram p_;
  std::map<std::string, PtxPlace> places_;
  std::map<std::string, uint64_t> addresses_;  // of variables
  std::map<std::string, int32_t> labels_;
};

}  // namespace

PtxProgram make_ptx_program(const PtxModule& module, const std::string& kernel) {
  for (const PtxKernel& k : module.kernels) {
    if (k.name == kernel) return PtxAssembler(module, k).make();
  }
  throw_error(Code::kInvalidArgument, "ptx for {}: no kernel {}", module.target, kernel);
}

}  // namespace moraine::testing
