// A warp runs until all its lanes wait for the block or have ended; then the next.
#include "testing/ptx/run.h"

#include <algorithm>
#include <bit>
#include <cstring>
#include <vector>

#include "base/error.h"
#include "testing/ptx/warp.h"

namespace moraine::testing {
namespace {

int32_t line_at(const PtxWarp& w, int lane) {
  const auto& code = w.block->program->code;
  return code[static_cast<size_t>(w.pc[static_cast<size_t>(lane)])].from->line;
}

void set_pc(PtxWarp& w, uint32_t lanes, int32_t pc) {
  for (size_t lane = 0; lane < kPtxLanes; ++lane)
    if (lanes >> lane & 1u) w.pc[lane] = pc;
}

// Lanes that stand at one instruction, and where others stand before which they must stop.
struct PtxGroup {
  uint32_t lanes = 0;
  int32_t pc = 0, stop = INT32_MAX;
};

PtxGroup hindmost(const PtxWarp& w) {
  PtxGroup g;
  g.pc = INT32_MAX;
  for (size_t lane = 0; lane < kPtxLanes; ++lane) {
    if (!(w.running >> lane & 1u)) continue;
    const int32_t pc = w.pc[lane];
    if (pc < g.pc) {
      g.stop = std::min(g.stop, g.pc);
      g.pc = pc;
      g.lanes = 0;
    } else if (pc > g.pc) {
      g.stop = std::min(g.stop, pc);
    }
    if (pc == g.pc) g.lanes |= 1u << lane;
  }
  return g;
}

[[noreturn]] void fail_meeting(const PtxWarp& w, const std::string& text) {
  throw_error(Code::kDevice, "kernel {}, block ({}, {}): threads do not meet: {}",
              w.block->program->kernel.name, w.block->x, w.block->y, text);
}

[[noreturn]] void fail_lanes(const PtxWarp& w) {
  const int first = std::countr_zero(w.waiting);
  const uint32_t ended = ~(w.waiting | w.running | w.at_barrier);
  for (int lane = 0; lane < kPtxLanes; ++lane) {
    const bool elsewhere = w.pc[static_cast<size_t>(lane)] != w.pc[static_cast<size_t>(first)];
    if ((w.waiting >> lane & 1u) && elsewhere)
      fail_meeting(w,
                   fmt::format("{} waits for its warp at line {}, {} at line {}", w.thread(first),
                               line_at(w, first), w.thread(lane), line_at(w, lane)));
  }
  fail_meeting(w, fmt::format("{} waits for its warp at line {}, {} has ended", w.thread(first),
                              line_at(w, first), w.thread(std::countr_zero(ended))));
}

// All lanes, or those of `lanes` wait and this is false.
bool met(PtxWarp& w, uint32_t lanes, int32_t pc) {
  if (lanes != kAllLanes) {
    w.running &= ~lanes;
    w.waiting |= lanes;
    set_pc(w, lanes, pc);
    const bool here = std::all_of(w.pc.begin(), w.pc.end(), [&](int32_t p) { return p == pc; });
    if (w.waiting != kAllLanes || !here) return false;
    w.waiting = 0;
    w.running = kAllLanes;
  }
  return true;
}

// Where the group goes on, or -1 if others are to be looked at again.
int32_t branch(PtxWarp& w, const PtxGroup& g, const PtxInstruction& in, uint32_t taken,
               int32_t pc) {
  if (taken == 0) return pc + 1;
  if (taken == g.lanes && g.lanes == w.running) return in.target;
  set_pc(w, taken, in.target);
  set_pc(w, g.lanes & ~taken, pc + 1);
  return -1;
}

void run_group(PtxWarp& w, const PtxGroup& g) {
  const std::vector<PtxInstruction>& code = w.block->program->code;
  for (int32_t pc = g.pc; pc >= 0;) {
    if (pc == g.stop) return set_pc(w, g.lanes, pc);
    const PtxInstruction& in = code[static_cast<size_t>(pc)];
    uint32_t lanes = g.lanes;
    if (in.guard >= 0) lanes &= in.guard_negated ? ~w.predicate(in.guard) : w.predicate(in.guard);
    switch (in.flow) {
      case PtxFlow::kNext:
        if (lanes != 0) in.run(w, in, lanes);
        ++pc;
        break;
      case PtxFlow::kBranch:
        pc = branch(w, g, in, lanes, pc);
        break;
      case PtxFlow::kReturn:
        w.running &= ~lanes;
        set_pc(w, g.lanes & ~lanes, pc + 1);
        return;
      case PtxFlow::kMeetWarp:
        if (!met(w, lanes, pc)) return;
        in.run(w, in, kAllLanes);
        set_pc(w, kAllLanes, pc + 1);
        return;
      case PtxFlow::kMeetBlock:
        if (!met(w, lanes, pc)) return;
        w.running = 0;
        w.at_barrier = kAllLanes;
        w.barrier_line = in.from->line;
        set_pc(w, kAllLanes, pc + 1);
        return;
    }
  }
}

void fill_row(PtxWarp& w, const PtxFixedRow& f) {
  const PtxBlock& b = *w.block;
  if (f.bytes == 0) {
    w.predicate(f.slot) = f.value == 0 ? 0 : kAllLanes;
    return;
  }
  auto* const row = w.row<uint8_t>(f.slot);
  for (int lane = 0; lane < kPtxLanes; ++lane) {
    uint64_t v = f.value;
    if (f.what == PtxFixed::kThread) v = static_cast<uint64_t>(w.thread(lane));
    if (f.what == PtxFixed::kBlockX) v = static_cast<uint64_t>(b.x);
    if (f.what == PtxFixed::kBlockY) v = static_cast<uint64_t>(b.y);
    std::memcpy(row + lane * f.bytes, &v, static_cast<size_t>(f.bytes));  // little end first
  }
}

void begin_warp(PtxWarp& w) {
  const PtxProgram& p = *w.block->program;
  w.registers.assign(static_cast<size_t>(p.warp_bytes + 7) / 8, ~uint64_t{0});
  for (const PtxFixedRow& f : p.fixed) fill_row(w, f);
  w.running = kAllLanes;
  w.waiting = w.at_barrier = 0;
  w.epoch = 0;
  w.copies.clear();
  w.copy_groups = {};
  w.pc = {};
}

void run_warp(PtxWarp& w) {
  while (w.running != 0) run_group(w, hindmost(w));
  if (w.waiting != 0) fail_lanes(w);
}

void run_block(PtxBlock& b, std::vector<PtxWarp>& warps, bool descending) {
  b.shared.begin(b.program->shared);
  for (PtxWarp& w : warps) begin_warp(w);
  for (;;) {
    for (size_t i = 0; i < warps.size(); ++i)
      run_warp(warps[descending ? warps.size() - 1 - i : i]);
    const PtxWarp* waits = nullptr;
    const PtxWarp* ended = nullptr;
    for (const PtxWarp& w : warps) (w.at_barrier != 0 ? waits : ended) = &w;
    if (waits == nullptr) return;
    if (ended != nullptr)
      fail_meeting(*waits, fmt::format("{} waits for the block at line {}, {} has ended",
                                       waits->thread(0), waits->barrier_line, ended->thread(0)));
    b.shared.barrier();
    for (PtxWarp& w : warps) {
      w.at_barrier = 0;
      w.running = kAllLanes;
    }
  }
}

}  // namespace

void fail_ptx(const PtxWarp& w, const PtxInstruction& in, int lane, const std::string& text) {
  throw_error(Code::kDevice, "kernel {}, ptx line {} `{}`: thread {} of block ({}, {}): {}",
              w.block->program->kernel.name, in.from->line, in.from->opcode, w.thread(lane),
              w.block->x, w.block->y, text);
}

void run_ptx(const PtxProgram& program, const PtxLaunch& launch, PtxMemory& memory) {
  const gpu::Grid& grid = launch.grid;
  if (grid.threads % kPtxLanes != 0 || grid.threads <= 0 ||
      (program.kernel.threads != 0 && grid.threads > program.kernel.threads))
    throw_error(Code::kInvalidArgument, "kernel {}: {} threads, at most {}", program.kernel.name,
                grid.threads, program.kernel.threads);
  int64_t shared_bytes = 0;
  for (const PtxSharedVariable& v : program.shared) shared_bytes += v.bytes;
  if (shared_bytes > gpu::kSharedBytes)
    throw_error(Code::kDevice, "kernel {}: {} bytes of shared memory, at most {}",
                program.kernel.name, shared_bytes, gpu::kSharedBytes);
  PtxBlock block;
  block.program = &program;
  block.memory = &memory;
  block.rule = launch.rule;
  const auto* const arguments = static_cast<const uint8_t*>(launch.arguments);
  block.parameters.assign(arguments, arguments + program.parameter_bytes);
  std::vector<PtxWarp> warps(static_cast<size_t>(grid.threads / kPtxLanes));
  for (size_t i = 0; i < warps.size(); ++i) {
    warps[i].block = &block;
    warps[i].index = static_cast<int>(i);
  }
  for (block.y = 0; block.y < grid.blocks_y; ++block.y) {
    for (block.x = 0; block.x < grid.blocks_x; ++block.x)
      run_block(block, warps, launch.descending);
  }
}

}  // namespace moraine::testing
