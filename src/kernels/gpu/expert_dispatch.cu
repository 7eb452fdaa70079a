// ExpertDispatch, device side.
#include "kernels/gpu/block_sum.h"
#include "kernels/gpu/element.h"
#include "kernels/gpu/expert_dispatch.h"

namespace moraine::gpu {
inline namespace MR_GPU_SPACE {

// A thread's piece of all choices.
struct ChoicePiece {
  int64_t begin, end;
};

MR_DEVICE ChoicePiece choice_piece(const DispatchPlanArgs& a) {
  const int64_t size = (a.choices + kPlanThreads - 1) / kPlanThreads, begin = thread() * size;
  return {begin, begin + size < a.choices ? begin + size : a.choices};
}

MR_DEVICE int64_t count_matches(const DispatchPlanArgs& a, const ChoicePiece& piece) {
  int64_t count = 0;
  for (int64_t i = piece.begin; i < piece.end; ++i)
    count += load(a.expert + i) == block_x() ? 1 : 0;
  return count;
}

MR_KERNEL(dispatch_load, kPlanThreads, DispatchPlanArgs a) {
  MR_SHARED(int64_t, counts, kPlanThreads);
  store(counts + thread(), count_matches(a, choice_piece(a)));
  sync_block();
  if (thread() > 0) return;
  int64_t sum = 0;
  for (int i = 0; i < kPlanThreads; ++i) sum += load(counts + i);
  store(a.load + block_x(), sum);
}

MR_KERNEL(dispatch_place, kPlanThreads, DispatchPlanArgs a) {
  MR_SHARED(int64_t, counts, kPlanThreads);
  const ChoicePiece piece = choice_piece(a);
  store(counts + thread(), count_matches(a, piece));
  sync_block();
  int64_t row = 0;
  for (int64_t c = 0; c < block_x(); ++c) row += load(static_cast<const int64_t*>(a.load) + c);
  if (thread() == 0) store(a.rows + block_x(), row);
  for (int i = 0; i < thread(); ++i) row += load(counts + i);
  const bool skip = block_x() == a.E;
  for (int64_t i = piece.begin; i < piece.end; ++i) {
    if (load(a.expert + i) != block_x()) continue;
    store(a.row_of + i, skip ? -1 : static_cast<int32_t>(row));
    // Behind the rows in use there are as many as were skipped.
    store(a.choice_of + row, skip ? -1 : static_cast<int32_t>(i));
    ++row;
  }
}

template <class E>
MR_DEVICE void dispatch_channel(const DispatchArgs& a) {
  const int64_t i = element();
  if (i >= a.choices * a.D) return;
  const int64_t choice = load(a.choice_of + i / a.D);
  if (choice < 0) return;
  store(static_cast<E*>(a.xe) + i,
        load(static_cast<const E*>(a.x) + (choice / a.n * a.D + i % a.D)));
}

MR_KERNEL(dispatch_f32, kElementThreads, DispatchArgs a) { dispatch_channel<float>(a); }
MR_KERNEL(dispatch_bf16, kElementThreads, DispatchArgs a) { dispatch_channel<BF16>(a); }

template <class E>
MR_DEVICE void combine_channel(const CombineArgs& a) {
  const int64_t i = element();
  if (i >= a.T * a.D) return;
  const int64_t t = i / a.D, d = i % a.D;
  float sum = 0;
  for (int64_t j = 0; j < a.n; ++j) {
    const int64_t row = load(a.row_of + (t * a.n + j));
    const float gate = load(a.gate + (t * a.n + j));
    if (row >= 0) {
      sum = fused(gate, widen(load(static_cast<const E*>(a.ye) + (row * a.D + d))), sum);
    } else if (a.x != nullptr) {
      sum = fused(gate, widen(load(static_cast<const E*>(a.x) + i)), sum);
    }
  }
  store(static_cast<E*>(a.h) + i, narrow_to<E>(sum));
}

MR_KERNEL(combine_f32, kElementThreads, CombineArgs a) { combine_channel<float>(a); }
MR_KERNEL(combine_bf16, kElementThreads, CombineArgs a) { combine_channel<BF16>(a); }

template <class E>
MR_DEVICE void dispatch_gradient(const DispatchBackwardArgs& a) {
  const int64_t i = element();
  if (i >= a.T * a.D) return;
  const int64_t t = i / a.D, d = i % a.D;
  float sum = 0;
  for (int64_t j = 0; j < a.n; ++j) {
    const int64_t row = load(a.row_of + (t * a.n + j));
    if (row >= 0) sum += widen(load(static_cast<const E*>(a.dxe) + (row * a.D + d)));
  }
  store(a.dx + i, load(static_cast<const float*>(a.dx) + i) + sum);
}

MR_KERNEL(dispatch_backward_f32, kElementThreads, DispatchBackwardArgs a) {
  dispatch_gradient<float>(a);
}
MR_KERNEL(dispatch_backward_bf16, kElementThreads, DispatchBackwardArgs a) {
  dispatch_gradient<BF16>(a);
}

// Of one choice of a token: dh . y, and gate dh to where y came from, which is an expert's row or the token's own.
template <class E>
MR_DEVICE float choice_gradient(const CombineBackwardArgs& a, int64_t row, float gate) {
  const int64_t t = block_x() * a.D, at = row >= 0 ? row * a.D : t;
  const E* const y = static_cast<const E*>(row >= 0 ? a.ye : a.x);
  float dot = 0;
  for (int64_t d = thread(); d < a.D; d += kCombineThreads) {
    const float dh = widen(load(static_cast<const E*>(a.dh) + (t + d)));
    dot = fused(dh, widen(load(y + (at + d))), dot);
    if (row >= 0) {
      store(static_cast<E*>(a.dye) + (at + d), narrow_to<E>(gate * dh));
    } else {
      store(a.dx + (t + d), fused(gate, dh, load(static_cast<const float*>(a.dx) + (t + d))));
    }
  }
  return dot;
}

template <class E>
MR_DEVICE void combine_gradient(const CombineBackwardArgs& a) {
  for (int64_t j = 0; j < a.n; ++j) {
    const int64_t choice = block_x() * a.n + j, row = load(a.row_of + choice);
    const bool is_zero = row < 0 && a.x == nullptr;
    const float dot = is_zero ? 0.0f : choice_gradient<E>(a, row, load(a.gate + choice));
    const float sum = block_sum<kCombineThreads>(dot);
    if (thread() == 0) store(a.dgate + choice, sum);
    sync_block();
  }
}

MR_KERNEL(combine_backward_f32, kCombineThreads, CombineBackwardArgs a) {
  combine_gradient<float>(a);
}
MR_KERNEL(combine_backward_bf16, kCombineThreads, CombineBackwardArgs a) {
  combine_gradient<BF16>(a);
}

}  // namespace MR_GPU_SPACE
}  // namespace moraine::gpu
