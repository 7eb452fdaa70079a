// What is under way is a list of the warp, in the order in which it was asked for.
#include "testing/ptx/copies.h"

#include <fmt/core.h>

#include <algorithm>
#include <cstring>
#include <string>

#include "testing/ptx/warp.h"

namespace moraine::testing {
namespace {

uint64_t chunk_address(PtxWarp& w, const PtxInstruction& in, int lane, size_t operand) {
  const uint64_t at = w.row<uint64_t>(in.slots[operand])[lane];
  if (at % kPtxChunk != 0)
    fail_ptx(w, in, lane, fmt::format("{:#x} is not a multiple of {}", at, kPtxChunk));
  return at;
}

uint8_t* written(PtxWarp& w, const PtxInstruction& in, int lane, uint64_t to) {
  std::string wrong;
  const PtxAccess who = {
      .thread = w.thread(lane), .warp = w.index, .warp_epoch = w.epoch, .line = in.from->line};
  uint8_t* const bytes = w.block->shared.write(to, kPtxChunk, who, wrong);
  if (bytes == nullptr) fail_ptx(w, in, lane, wrong);
  return bytes;
}

void arrive(PtxWarp& w, const PtxLateCopy& c) {
  uint8_t* const to = written(w, *c.in, c.lane, c.to);
  std::memset(to, 0, kPtxChunk);
  if (c.bytes == 0) return;
  const uint8_t* const from = w.block->memory->find(c.from, c.bytes);
  if (from == nullptr)
    fail_ptx(w, *c.in, c.lane,
             fmt::format("{} bytes of global memory at {:#x}: {}", c.bytes, c.from,
                         w.block->memory->nearest_text(c.from)));
  std::memcpy(to, from, c.bytes);
}

}  // namespace

void ptx_copy_async(PtxWarp& w, const PtxInstruction& in, uint32_t lanes) {
  for (int lane = 0; lane < kPtxLanes; ++lane) {
    if (!(lanes >> lane & 1u)) continue;
    const PtxLateCopy c = {.in = &in,
                           .lane = lane,
                           .to = chunk_address(w, in, lane, 0),
                           .from = chunk_address(w, in, lane, 1),
                           .bytes = w.row<uint32_t>(in.slots[2])[lane],
                           .group = w.copy_groups[static_cast<size_t>(lane)]};
    if (c.bytes > kPtxChunk)
      fail_ptx(w, in, lane, fmt::format("{} bytes of a chunk of {}", c.bytes, kPtxChunk));
    std::memset(written(w, in, lane, c.to), 0xff, kPtxChunk);
    w.copies.push_back(c);
  }
}

void ptx_commit_group(PtxWarp& w, const PtxInstruction&, uint32_t lanes) {
  for (size_t lane = 0; lane < kPtxLanes; ++lane) w.copy_groups[lane] += lanes >> lane & 1u;
}

void ptx_wait_group(PtxWarp& w, const PtxInstruction& in, uint32_t lanes) {
  const auto is_due = [&](const PtxLateCopy& c) {
    const uint32_t later = w.row<uint32_t>(in.slots[0])[c.lane],
                   committed = w.copy_groups[static_cast<size_t>(c.lane)];
    return (lanes >> c.lane & 1u) != 0 && c.group + later < committed;
  };
  for (const PtxLateCopy& c : w.copies)
    if (is_due(c)) arrive(w, c);
  w.copies.erase(std::remove_if(w.copies.begin(), w.copies.end(), is_due), w.copies.end());
}

}  // namespace moraine::testing
