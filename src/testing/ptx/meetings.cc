// Fragments become matrices, which are multiplied cell by cell.
#include "testing/ptx/meetings.h"

#include <algorithm>
#include <array>
#include <cstring>
#include <iterator>

#include "testing/ptx/accesses.h"
#include "testing/ptx/warp.h"

namespace moraine::testing {

void ptx_shuffle_bfly(PtxWarp& w, const PtxInstruction& in, uint32_t) {
  std::array<uint32_t, kPtxLanes> got;
  for (uint32_t lane = 0; lane < kPtxLanes; ++lane) {
    const uint32_t mask = w.row<uint32_t>(in.slots[2])[lane] & 31;
    const uint32_t c = w.row<uint32_t>(in.slots[3])[lane], segment = c >> 8 & 31;
    const uint32_t last = (lane & segment) | (c & 31 & ~segment), from = lane ^ mask;
    got[lane] = w.row<uint32_t>(in.slots[1])[from <= last ? from : lane];
  }
  std::copy(got.begin(), got.end(), w.row<uint32_t>(in.slots[0]));
}

void ptx_meet_warp(PtxWarp& w, const PtxInstruction&, uint32_t) { ++w.epoch; }

void ptx_multiply(PtxWarp& w, const PtxInstruction& in, uint32_t) {
  const auto pair = [&](int slot, int lane, int i) {
    const uint32_t both = w.row<uint32_t>(in.slots[static_cast<size_t>(slot + i / 2)])[lane];
    return BF16{static_cast<uint16_t>(i % 2 == 0 ? both : both >> 16)};
  };
  BF16 a[16][16], b[8][16];  // b by columns
  for (int lane = 0; lane < kPtxLanes; ++lane) {
    const int group = lane >> 2, place = lane & 3;
    for (int i = 0; i < 8; ++i) {
      const int row = i < 2 || (i >= 4 && i < 6) ? group : group + 8;
      a[row][place * 2 + (i & 1) + (i < 4 ? 0 : 8)] = pair(4, lane, i);
    }
    for (int i = 0; i < 4; ++i) b[group][place * 2 + (i & 1) + (i < 2 ? 0 : 8)] = pair(8, lane, i);
  }
  float d[4][kPtxLanes];
  for (int lane = 0; lane < kPtxLanes; ++lane) {
    const int group = lane >> 2, place = lane & 3;
    for (int i = 0; i < 4; ++i) {
      const int row = i < 2 ? group : group + 8, column = place * 2 + (i & 1);
      const float c = w.row<float>(in.slots[static_cast<size_t>(10 + i)])[lane];
      d[i][lane] = gpu::matrix_dot(w.block->rule, a[row], b[column], c);
    }
  }
  for (size_t i = 0; i < 4; ++i)
    std::copy(std::begin(d[i]), std::end(d[i]), w.row<float>(in.slots[i]));
}

namespace {

void load_matrices(PtxWarp& w, const PtxInstruction& in, bool transposed) {
  uint16_t rows[kPtxLanes][8];
  for (int lane = 0; lane < kPtxLanes; ++lane) {
    const uint64_t at = ptx_address(w, in, lane, in.slots[4], 16);
    std::memcpy(rows[lane], read_shared(w, in, lane, at, 16), 16);
  }
  for (int matrix = 0; matrix < 4; ++matrix) {
    const auto element = [&](int row, int column) {
      return static_cast<uint32_t>(rows[8 * matrix + row][column]);
    };
    uint32_t* const to = w.row<uint32_t>(in.slots[static_cast<size_t>(matrix)]);
    for (int lane = 0; lane < kPtxLanes; ++lane) {
      const int major = lane >> 2, minor = 2 * (lane & 3);
      const uint32_t low = transposed ? element(minor, major) : element(major, minor),
                     high = transposed ? element(minor + 1, major) : element(major, minor + 1);
      to[lane] = low | high << 16;
    }
  }
}

}  // namespace

void ptx_load_matrices(PtxWarp& w, const PtxInstruction& in, uint32_t) {
  load_matrices(w, in, false);
}
void ptx_load_transposed(PtxWarp& w, const PtxInstruction& in, uint32_t) {
  load_matrices(w, in, true);
}

}  // namespace moraine::testing
