// TreeAttention: local attention, then one maximum and one sum over the tree of ranks.
#include "parallel/tree_attention.h"

#include <algorithm>
#include <cmath>

#include "comm/collectives.h"
#include "kernels/attention_part.h"
#include "kernels/check_tensor.h"
#include "kernels/elementwise.h"

namespace moraine {
namespace {

// Equal slices of a flat buffer, whole numbers per member.
Shares even_shares(int64_t count, int members) {
  Shares shares(static_cast<size_t>(members));
  for (int64_t m = 0; m < members; ++m) {
    shares[static_cast<size_t>(m)] = {{m * count / members, (m + 1) * count / members}};
  }
  return shares;
}

}  // namespace

TreeAttention::TreeAttention(Arena& arena, int members, int64_t tokens, int64_t heads,
                             int64_t head_dim) {
  const int64_t rows = tokens * heads;
  o_part_ = arena.take("tree.o_part", "scratch", DType::kF32, {tokens, heads, head_dim});
  lse_part_ = arena.take("tree.lse_part", "scratch", DType::kF32, {tokens, heads});
  all_lse_ = arena.take("tree.all_lse", "comm", DType::kF32, {members, rows});
  sums_ = arena.take("tree.sums", "comm", DType::kF32, {rows * (head_dim + 1)});
}

void TreeAttention::forward(Context& ctx, Communicator& comm, const TreeAttentionForward& a) {
  const int64_t T = a.q.dims[0], H = a.q.dims[1], d = a.q.dims[2], rows = T * H;
  MR_CHECK(T <= o_part_.dims[0] && comm.size() == all_lse_.dims[0], "T=%ld on %d ranks", long(T),
           comm.size());
  check_tensor(a.o, "o", a.q.dtype, {T, H, d});
  check_tensor(a.lse, "lse", DType::kF32, {T, H});
  const Tensor o = o_part_.rows(0, T), lse = lse_part_.rows(0, T);
  zero(ctx, o);
  std::fill_n(lse.as<float>(), rows, -HUGE_VALF);
  attention_part_forward(ctx, {.o = o,
                               .lse = lse,
                               .q = a.q,
                               .k = a.k,
                               .v = a.v,
                               .segments = a.segments,
                               .keys = a.keys,
                               .window = 0,
                               .scale = a.scale,
                               .pages = a.pages});

  const std::span<const float> mine(lse.as<float>(), static_cast<size_t>(rows));
  const std::span<float> all(all_lse_.as<float>(), static_cast<size_t>(rows * comm.size()));
  all_gather_equal(comm, std::as_bytes(mine), std::as_writable_bytes(all));
  const Tensor sums = make_tensor(sums_.data, DType::kF32, {rows * (d + 1)});
  float *weighted = sums.as<float>(), *weight = weighted + rows * d, *most = a.lse.as<float>();
  for (int64_t i = 0; i < rows; ++i) {
    most[i] = -HUGE_VALF;
    for (int64_t m = 0; m < comm.size(); ++m) {
      most[i] = std::max(most[i], all[static_cast<size_t>(m * rows + i)]);
    }
    // A row without any key would have -inf everywhere; inf - inf is NaN.
    weight[i] = std::isinf(mine[static_cast<size_t>(i)])
                    ? 0.0f
                    : std::exp(mine[static_cast<size_t>(i)] - most[i]);
    const float* from = o.as<float>() + i * d;
    for (int64_t c = 0; c < d; ++c) weighted[i * d + c] = weight[i] * from[c];
  }

  const Shares shares = even_shares(sums.count(), comm.size());
  reduce_scatter(comm, sums, shares);
  all_gather(comm, sums, shares);
  for (int64_t i = 0; i < rows; ++i) {
    const float total = weight[i], norm = total > 0 ? 1 / total : 0;
    for (int64_t c = 0; c < d; ++c) o.as<float>()[i * d + c] = weighted[i * d + c] * norm;
    most[i] += std::log(total);
  }
  round_copy(ctx, a.o, o, a.o.dtype);
}

}  // namespace moraine
