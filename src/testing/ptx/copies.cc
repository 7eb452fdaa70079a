// What is under way is a list of the warp, in the order in which it was asked for.
#include "testing/ptx/copies.h"

#include <fmt/core.h>

#include <algorithm>
#include <cstring>

#include "testing/ptx/accesses.h"
#include "testing/ptx/warp.h"

namespace moraine::testing {
namespace {

void arrive(PtxWarp& w, const PtxLateCopy& c) {
  uint8_t* const to = write_shared(w, *c.in, c.lane, c.to, kPtxChunk);
  std::memset(to, 0, kPtxChunk);
  if (c.bytes == 0) return;
  std::memcpy(to, read_global(w, *c.in, c.lane, c.from, static_cast<int>(c.bytes)), c.bytes);
}

}  // namespace

void ptx_copy_async(PtxWarp& w, const PtxInstruction& in, uint32_t lanes) {
  for (int lane = 0; lane < kPtxLanes; ++lane) {
    if (!(lanes >> lane & 1u)) continue;
    const PtxLateCopy c = {.in = &in,
                           .lane = lane,
                           .to = ptx_address(w, in, lane, in.slots[0], kPtxChunk),
                           .from = ptx_address(w, in, lane, in.slots[1], kPtxChunk),
                           .bytes = w.row<uint32_t>(in.slots[2])[lane],
                           .group = w.copy_groups[static_cast<size_t>(lane)]};
    if (c.bytes > kPtxChunk)
      fail_ptx(w, in, lane, fmt::format("{} bytes of a chunk of {}", c.bytes, kPtxChunk));
    std::memset(write_shared(w, in, lane, c.to, kPtxChunk), 0xff, kPtxChunk);
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
