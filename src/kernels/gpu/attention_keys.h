// AttentionKeys: which keys a position sees, and in which rows positions and keys lie.
#pragma once

#include "kernels/gpu/attention.h"
#include "kernels/gpu/device.h"
#include "kernels/gpu/exp.h"

namespace moraine::gpu {
inline namespace MR_GPU_SPACE {

// Args: those of any of attention's kernels.
template <class Args>
MR_DEVICE int64_t first_seen(const Args& a, int64_t position) {
  return a.window == 0 || position < a.window ? 0 : position - a.window + 1;
}

template <class Args>
MR_DEVICE bool sees(const Args& a, int64_t position, int64_t key) {
  return key <= position && (a.window == 0 || key > position - a.window);
}

// The same of positions and keys near each other, counted from a position and a key that is `ahead` before it.
struct Sight {
  int ahead, window;
  MR_DEVICE bool sees(int position, int key) const {
    const int last = position + ahead;
    return key <= last && (window == 0 || key > last - window);
  }
};
template <class Args>
MR_DEVICE Sight sight(const Args& a, int64_t position, int64_t key) {
  constexpr int64_t kFar = 1 << 30;
  return {static_cast<int>(position - key), static_cast<int>(a.window < kFar ? a.window : kFar)};
}

MR_DEVICE int64_t key_row(const AttentionArgs& a, const AttentionTile& tile, int64_t position) {
  if (a.pages == nullptr) return tile.key_begin + position;
  return load(a.pages + (tile.key_begin + position / a.page_rows)) * a.page_rows +
         position % a.page_rows;
}

// Where a position's row of q, o begins; -1: it is not in the batch.
MR_DEVICE int64_t query_begin(const AttentionArgs& a, const AttentionTile& tile, int64_t position) {
  if (position < tile.begin || position >= tile.end) return -1;
  return ((tile.row_of_begin + position - tile.begin) * a.H + block_y()) * a.d;
}

// Of a row whose weights come to `total`; of a part it may be none.
template <bool kPart>
MR_DEVICE float attention_lse(float largest, float total) {
  return kPart && !(total > 0) ? from_bits(0xff800000u) : largest + log_positive(total);
}

}  // namespace MR_GPU_SPACE
}  // namespace moraine::gpu
