// ContextParallel: takes the buffers by name; halo_exchange and context_attention do the work.
#include "parallel/context_parallel.h"

#include "base/check.h"
#include "kernels/check_tensor.h"

namespace moraine {
namespace {

int64_t columns(const ContextSizes& s) { return s.cca ? (s.heads + s.kv_heads) * s.head_dim : 0; }
int64_t values(const ContextSizes& s) { return s.cca ? s.kv_heads * s.head_dim / 2 : 0; }

}  // namespace

ContextParallel::ContextParallel(Arena& arena, const ContextSizes& sizes)
    : sizes_(sizes),
      attention_(arena, {.variant = sizes.variant,
                         .tokens = sizes.tokens,
                         .rows = sizes.rows,
                         .ranks = sizes.ranks,
                         .heads = sizes.heads,
                         .kv_heads = sizes.kv_heads,
                         .head_dim = sizes.head_dim,
                         .dtype = sizes.dtype,
                         .training = sizes.training}),
      exchange_(arena, {.sequences = sizes.sequences,
                        .columns = columns(sizes),
                        .values = values(sizes),
                        .dtype = sizes.dtype}) {
  if (!sizes.cca) return;
  const int64_t rows = 2 * sizes.sequences, C = columns(sizes), M = values(sizes);
  for (int64_t i = 0; i < sizes.layers; ++i) {
    halos_.push_back({arena.take("context.halo_conv", "comm", sizes.dtype, {rows, 2, C}),
                      arena.take("context.halo_value", "comm", sizes.dtype, {rows, M})});
  }
  if (!sizes.training) return;
  const DType wide = wide_dtype(sizes.dtype);
  gradient_ = {arena.take("context.halo_conv_gradient", "comm", wide, {rows, 2, C}),
               arena.take("context.halo_value_gradient", "comm", sizes.dtype, {rows, M})};
}

void ContextParallel::begin(Context& ctx, Communicator& comm, ContextRows mine) {
  MR_CHECK(mine.layout.sequences <= sizes_.sequences, "%ld sequences of %ld",
           long(mine.layout.sequences), long(sizes_.sequences));
  ctx_ = &ctx;
  comm_ = &comm;
  mine_ = std::move(mine);
  attention_.begin(comm, mine_);
}

LayerHalo ContextParallel::rows_of(const HaloTensors& halo) const {
  const int64_t rows = 2 * mine_.layout.sequences;
  return {halo.conv.rows(0, rows), halo.value.rows(0, rows), mine_.halo_row};
}

LayerHalo ContextParallel::fetch_halo(int64_t layer, const Tensor& qkv) {
  const LayerHalo halo = kept_halo(layer);
  exchange_.forward(*ctx_, {*comm_, mine_}, {halo.conv, halo.value}, qkv);
  return halo;
}

LayerHalo ContextParallel::kept_halo(int64_t layer) const {
  return rows_of(halos_[static_cast<size_t>(layer)]);
}

LayerHalo ContextParallel::halo_gradient() const { return rows_of(gradient_); }

void ContextParallel::return_halo_gradient(const Tensor& dqkv) {
  const LayerHalo d = halo_gradient();
  exchange_.backward(*ctx_, {*comm_, mine_}, dqkv, {d.conv, d.value});
}

}  // namespace moraine
