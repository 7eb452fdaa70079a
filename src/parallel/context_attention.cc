// ContextAttention: the ring and the gathering of all keys, with the buffers of both.
#include "parallel/context_attention.h"

#include <cmath>
#include <cstring>
#include <utility>

#include "comm/exchange.h"
#include "kernels/attention.h"
#include "kernels/attention_part.h"
#include "kernels/check_tensor.h"
#include "kernels/elementwise.h"
#include "kernels/gpu/runtime.h"
#include "tensor/tensor_bytes.h"

namespace moraine {
namespace {

// The first elements of a flat buffer, in another shape.
Tensor front(const Tensor& buffer, std::initializer_list<int64_t> dims) {
  const Tensor t = make_tensor(buffer.data, buffer.dtype, dims);
  MR_CHECK(t.count() <= buffer.count(), "%s in a buffer of %ld", shape_text(t).c_str(),
           long(buffer.count()));
  return t;
}

void copy_rows(Context& ctx, const Tensor& to, const Tensor& from) {
  if (ctx.backend == Backend::kGpu) return round_copy(ctx, to, from, DType::kF32);
  std::memcpy(to.data, from.data, static_cast<size_t>(from.bytes()));
}

// from, rounded to to's type.
void round_to(Context& ctx, const Tensor& to, const Tensor& from) {
  if (to.dtype == from.dtype) return copy_rows(ctx, to, from);
  round_copy(ctx, to, from, to.dtype);
}

void fill_with_unseen(const Tensor& lse) {
  for (int64_t i = 0; i < lse.count(); ++i) {
    lse.dtype == DType::kF64 ? void(lse.as<double>()[i] = -HUGE_VAL)
                             : void(lse.as<float>()[i] = -HUGE_VALF);
  }
}

// Calls f(first row of the batch, first local row, rows) for the rank's chunks.
template <class F>
void for_chunks(const ContextLayout& layout, int64_t rank, const F& f) {
  for (int64_t b = 0; b < layout.sequences; ++b) {
    for (const int slot : {0, 1}) {
      const RowRange rows = layout.chunk(b, layout.chunk_of(rank, slot));
      f(rows.begin, layout.local_begin(rank, b, slot), rows.count());
    }
  }
}

// By rank: the elements of its keys, then of its values.
Shares key_shares(const ContextLayout& layout, int64_t width) {
  Shares shares(static_cast<size_t>(layout.ranks));
  for (int64_t r = 0; r < layout.ranks; ++r) {
    for (const int64_t half : {int64_t{0}, layout.rows()}) {
      for_chunks(layout, r, [&](int64_t row, int64_t, int64_t count) {
        shares[static_cast<size_t>(r)].push_back(
            {(half + row) * width, (half + row + count) * width});
      });
    }
  }
  return shares;
}

std::vector<StagedMove> in_place(std::span<const Range> ranges) {
  std::vector<StagedMove> moves;
  for (const Range& r : ranges) moves.push_back({r.begin, r.begin, r.end - r.begin});
  return moves;
}

}  // namespace

Tensor ContextAttention::Block::both() const {
  return make_tensor(k.data, k.dtype, {2 * k.count()});
}

ContextAttention::ContextAttention(Arena& arena, const ContextAttentionSizes& sizes)
    : sizes_(sizes) {
  const int64_t T = sizes.tokens, H = sizes.heads, d = sizes.head_dim;
  const DType X = sizes.dtype, W = wide_dtype(X);
  const bool ring = sizes.variant == ContextVariant::kRing;
  const int64_t keys = 2 * (ring ? T : sizes.rows) * sizes.kv_heads * d;
  for (int i = 0; i < (ring ? 2 : 1); ++i) {
    const std::string number = std::to_string(i);
    keys_[i] = arena.take("context.keys" + number, "comm", X, {keys});
    staged_keys_[i] = StagedRows(arena, "context.keys_host" + number, X, keys, 1);
    if (sizes.training) {
      gradients_[i] = arena.take("context.key_gradients" + number, "comm", W, {keys});
      staged_gradients_[i] = StagedRows(arena, "context.key_gradients_host" + number, W, keys, 1);
    }
  }
  if (X != W) sum_ = arena.take("context.sum", "scratch", W, {T, H, d});
  if (!ring && sizes.training) {
    const int64_t bytes =
        reduce_scatter_scratch(static_cast<int>(sizes.ranks), keys, ReduceDType::kF32);
    reduce_ = arena.take_host("context.reduce", "comm", DType::kU8, {bytes});
  }
  if (!ring) return;
  o_part_ = arena.take("context.o_part", "scratch", W, {T, H, d});
  lse_part_ = arena.take("context.lse_part", "scratch", W, {T, H});
  if (!arena.on_device()) return;
  unseen_ = arena.take_pinned("context.unseen", "comm", W, {T * H});
  if (!arena.dry()) fill_with_unseen(unseen_);
}

void ContextAttention::begin(Communicator& comm, const ContextRows& mine) {
  const ContextLayout& layout = mine.layout;
  MR_CHECK(comm.size() == layout.ranks && comm.rank() == mine.rank, "rank %d of %d, rows of %ld",
           comm.rank(), comm.size(), long(mine.rank));
  MR_CHECK(layout.most_rows() <= sizes_.tokens, "%ld rows of %ld", long(layout.most_rows()),
           long(sizes_.tokens));
  comm_ = &comm;
  mine_ = &mine;
  windows_.clear();
  if (sizes_.variant == ContextVariant::kRing) return;
  MR_CHECK(layout.rows() <= sizes_.rows, "%ld rows of %ld", long(layout.rows()), long(sizes_.rows));
  MR_CHECK(layout.ranks <= sizes_.ranks, "%ld ranks of %ld", long(layout.ranks),
           long(sizes_.ranks));
  gathered_ = gathered_parts(mine);
  shares_ = key_shares(layout, sizes_.kv_heads * sizes_.head_dim);
}

void ContextAttention::forward(Context& ctx, const ContextAttentionForward& a) {
  check_tensor(a.k, "k", sizes_.dtype, {mine_->rows(), sizes_.kv_heads, sizes_.head_dim});
  check_tensor(a.q, "q", sizes_.dtype, {mine_->rows(), sizes_.heads, sizes_.head_dim});
  sizes_.variant == ContextVariant::kRing ? ring_forward(ctx, a) : gathered_forward(ctx, a);
}

void ContextAttention::backward(Context& ctx, const ContextAttentionBackward& a) {
  MR_CHECK(sizes_.training);
  check_tensor(a.k, "k", sizes_.dtype, {mine_->rows(), sizes_.kv_heads, sizes_.head_dim});
  check_tensor(a.q, "q", sizes_.dtype, {mine_->rows(), sizes_.heads, sizes_.head_dim});
  const Tensor dq = sum_.empty() ? a.dq : sum_.rows(0, mine_->rows());
  zero(ctx, dq);
  attention_delta(ctx, {.delta = a.delta, .do_ = a.do_, .o = a.o});
  sizes_.variant == ContextVariant::kRing ? ring_backward(ctx, a, dq)
                                          : gathered_backward(ctx, a, dq);
  if (!sum_.empty()) round_to(ctx, a.dq, dq);
}

// ------------------------------------------------------------------------------------------- ring

const std::vector<RingHop>& ContextAttention::hops(int64_t window) {
  for (const Windowed& w : windows_) {
    if (w.window == window) return w.hops;
  }
  windows_.push_back({window, ring_hops(*mine_, window)});
  return windows_.back().hops;
}

ContextAttention::Block ContextAttention::block(const Tensor& buffer, int64_t rows) const {
  const Tensor both = front(buffer, {2 * rows, sizes_.kv_heads, sizes_.head_dim});
  return {both.rows(0, rows), both.rows(rows, 2 * rows)};
}

void ContextAttention::fill_unseen(Context& ctx, const Tensor& lse) {
  if (ctx.backend != Backend::kGpu) return fill_with_unseen(lse);
  ctx.gpu->copy_in_pinned(lse.data, unseen_.data, lse.bytes());
}

void ContextAttention::ring_forward(Context& ctx, const ContextAttentionForward& a) {
  const int64_t T = mine_->rows(), C = comm_->size();
  const Tensor o = sum_.empty() ? a.o : sum_.rows(0, T);
  zero(ctx, o);
  fill_unseen(ctx, a.lse);
  const Tensor o_part = o_part_.rows(0, T), lse_part = lse_part_.rows(0, T);
  const std::vector<RingHop>& ring = hops(a.window);
  Block here = block(keys_[0], T);
  copy_rows(ctx, here.k, a.k), copy_rows(ctx, here.v, a.v);
  if (C > 1) staged_keys_[0].copy_out(ctx, here.both(), 0, here.both().count());
  int64_t read[2] = {0, 0};  // marks: what has arrived is on the device
  Exchange exchange(*comm_, Operation::kMessage);
  for (int64_t h = 0; h < C; ++h) {
    const bool more = h + 1 < C;
    if (more)
      exchange.send(member_after(*comm_, 1), bytes_of(staged_keys_[h % 2].place(here.both())));
    for (const KeyParts& parts : ring[static_cast<size_t>(h)].slot) {
      attention_part_forward(ctx, {.o = o_part,
                                   .lse = lse_part,
                                   .q = a.q,
                                   .k = here.k,
                                   .v = here.v,
                                   .segments = parts.segments,
                                   .keys = parts.keys,
                                   .window = a.window,
                                   .scale = a.scale});
      attention_merge(ctx, {.o = o,
                            .lse = a.lse,
                            .o_part = o_part,
                            .lse_part = lse_part,
                            .segments = parts.segments});
    }
    if (h + 1 == C) break;
    const Block next =
        block(keys_[(h + 1) % 2], mine_->layout.rows_of(ring[static_cast<size_t>(h + 1)].owner));
    if (more) {
      const size_t to = static_cast<size_t>((h + 1) % 2);
      const OpTimer timer(ctx.profile, Span::kRanks, "ranks: keys (ring)",
                          static_cast<double>(next.both().bytes()));
      if (ctx.gpu != nullptr && h > 1) ctx.gpu->wait_for(read[to]);
      exchange.receive(member_before(*comm_, 1), bytes_of(staged_keys_[to].place(next.both())));
      exchange.wait_sent();
      staged_keys_[to].copy_in(ctx, next.both(), 0, next.both().count());
      if (ctx.gpu != nullptr) read[to] = ctx.gpu->mark();
    }
    here = next;
  }
  if (!sum_.empty()) round_to(ctx, a.o, o);
}

void ContextAttention::ring_backward(Context& ctx, const ContextAttentionBackward& a,
                                     const Tensor& dq) {
  const int64_t T = mine_->rows(), C = comm_->size();
  const std::vector<RingHop>& ring = hops(a.window);
  Block here = block(keys_[0], T), gradient = block(gradients_[0], T);
  copy_rows(ctx, here.k, a.k), copy_rows(ctx, here.v, a.v);
  zero(ctx, gradient.both());
  if (C > 1) staged_keys_[0].copy_out(ctx, here.both(), 0, here.both().count());
  Exchange exchange(*comm_, Operation::kMessage);
  const int next = member_after(*comm_, 1), previous = member_before(*comm_, 1);
  for (int64_t h = 0; h < C; ++h) {
    if (h + 1 < C) exchange.send(next, bytes_of(staged_keys_[h % 2].place(here.both())));
    for (const KeyParts& parts : ring[static_cast<size_t>(h)].slot) {
      attention_part_backward(ctx, {.dq = dq,
                                    .dk = gradient.k,
                                    .dv = gradient.v,
                                    .do_ = a.do_,
                                    .q = a.q,
                                    .k = here.k,
                                    .v = here.v,
                                    .lse = a.lse,
                                    .delta = a.delta,
                                    .segments = parts.segments,
                                    .keys = parts.keys,
                                    .window = a.window,
                                    .scale = a.scale});
    }
    if (C == 1) break;
    // After the last hop the gradients of this rank's own keys come home.
    const int64_t owner = ring[static_cast<size_t>((h + 1) % C)].owner,
                  rows = mine_->layout.rows_of(owner);
    const Block keys = block(keys_[(h + 1) % 2], rows),
                arriving = block(gradients_[(h + 1) % 2], rows);
    const OpTimer timer(ctx.profile, Span::kRanks, "ranks: keys (ring)",
                        static_cast<double>(keys.both().bytes() + arriving.both().bytes()));
    const size_t from = static_cast<size_t>(h % 2), to = 1 - from;
    // What arrived before was read when this returns.
    staged_gradients_[from].copy_out(ctx, gradient.both(), 0, gradient.both().count());
    exchange.send(next, bytes_of(staged_gradients_[from].place(gradient.both())));
    if (h + 1 < C) exchange.receive(previous, bytes_of(staged_keys_[to].place(keys.both())));
    exchange.receive(previous, bytes_of(staged_gradients_[to].place(arriving.both())));
    exchange.wait_sent();
    if (h + 1 < C) staged_keys_[to].copy_in(ctx, keys.both(), 0, keys.both().count());
    staged_gradients_[to].copy_in(ctx, arriving.both(), 0, arriving.both().count());
    here = keys;
    gradient = arriving;
  }
  round_to(ctx, a.dk, gradient.k);
  round_to(ctx, a.dv, gradient.v);
}

// ------------------------------------------------------------------------------------- all-gather

void ContextAttention::gather_keys(Context& ctx, const Tensor& k, const Tensor& v) {
  const ContextLayout& layout = mine_->layout;
  const Block all = block(keys_[0], layout.rows());
  for_chunks(layout, mine_->rank, [&](int64_t row, int64_t local, int64_t count) {
    copy_rows(ctx, all.k.rows(row, row + count), k.rows(local, local + count));
    copy_rows(ctx, all.v.rows(row, row + count), v.rows(local, local + count));
  });
  const OpTimer timer(ctx.profile, Span::kRanks, "ranks: keys (gather)",
                      static_cast<double>(all.both().bytes()));
  const size_t me = static_cast<size_t>(comm_->rank());
  StagedRows& staged = staged_keys_[0];
  staged.copy_out(ctx, all.both(), in_place(shares_[me]));
  all_gather(*comm_, staged.place(all.both()), shares_);
  for (size_t m = 0; m < shares_.size(); ++m)
    if (m != me) staged.copy_in(ctx, all.both(), in_place(shares_[m]));
}

void ContextAttention::gathered_forward(Context& ctx, const ContextAttentionForward& a) {
  gather_keys(ctx, a.k, a.v);
  const Block all = block(keys_[0], mine_->layout.rows());
  attention_forward(ctx, {.o = a.o,
                          .lse = a.lse,
                          .q = a.q,
                          .k = all.k,
                          .v = all.v,
                          .segments = mine_->segments,
                          .window = a.window,
                          .scale = a.scale});
}

void ContextAttention::gathered_backward(Context& ctx, const ContextAttentionBackward& a,
                                         const Tensor& dq) {
  const ContextLayout& layout = mine_->layout;
  gather_keys(ctx, a.k, a.v);
  const Block all = block(keys_[0], layout.rows()), gradient = block(gradients_[0], layout.rows());
  zero(ctx, gradient.both());
  attention_part_backward(ctx, {.dq = dq,
                                .dk = gradient.k,
                                .dv = gradient.v,
                                .do_ = a.do_,
                                .q = a.q,
                                .k = all.k,
                                .v = all.v,
                                .lse = a.lse,
                                .delta = a.delta,
                                .segments = gathered_.segments,
                                .keys = gathered_.keys,
                                .window = a.window,
                                .scale = a.scale});
  {
    const OpTimer timer(ctx.profile, Span::kRanks, "ranks: keys (reduce-scatter)",
                        static_cast<double>(gradient.both().bytes()));
    StagedRows& staged = staged_gradients_[0];
    staged.copy_out(ctx, gradient.both(), 0, gradient.both().count());
    reduce_scatter(*comm_, staged.place(gradient.both()), shares_, {.scratch = bytes_of(reduce_)});
    staged.copy_in(ctx, gradient.both(), in_place(shares_[static_cast<size_t>(comm_->rank())]));
  }
  for_chunks(layout, mine_->rank, [&](int64_t row, int64_t local, int64_t count) {
    const int64_t end = local + count;
    round_to(ctx, a.dk.rows(local, end), gradient.k.rows(row, row + count));
    round_to(ctx, a.dv.rows(local, end), gradient.v.rows(row, row + count));
  });
}

}  // namespace moraine
