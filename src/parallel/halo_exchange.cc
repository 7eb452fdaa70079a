// HaloExchange: packs border rows, exchanges two messages each way, unpacks.
#include "parallel/halo_exchange.h"

#include <algorithm>
#include <cstring>

#include "comm/exchange.h"
#include "kernels/check_tensor.h"
#include "tensor/tensor_bytes.h"

namespace moraine {
namespace {

void copy_elements(const Tensor& to, int64_t to_at, const Tensor& from, int64_t from_at,
                   int64_t count) {
  const int64_t size = dtype_bytes(to.dtype);
  std::memcpy(static_cast<char*>(to.data) + to_at * size,
              static_cast<const char*>(from.data) + from_at * size,
              static_cast<size_t>(count * size));
}

void zero_elements(const Tensor& to, int64_t at, int64_t count) {
  const int64_t size = dtype_bytes(to.dtype);
  std::memset(static_cast<char*>(to.data) + at * size, 0, static_cast<size_t>(count * size));
}

// to[i] = from[i], from qkv's type to wide.
void widen(const Tensor& to, int64_t to_at, const Tensor& from, int64_t from_at, int64_t count) {
  if (from.dtype == to.dtype) return copy_elements(to, to_at, from, from_at, count);
  const BF16* in = from.as<BF16>() + from_at;
  float* out = to.as<float>() + to_at;
  for (int64_t i = 0; i < count; ++i) out[i] = to_float(in[i]);
}

// to[i] += from[i], from wide.
void add_elements(const Tensor& to, int64_t to_at, const Tensor& from, int64_t from_at,
                  int64_t count) {
  for (int64_t i = 0; i < count; ++i) {
    if (to.dtype == DType::kBF16) {
      BF16& y = to.as<BF16>()[to_at + i];
      y = to_bf16(to_float(y) + from.as<float>()[from_at + i]);
    } else if (to.dtype == DType::kF32) {
      to.as<float>()[to_at + i] += from.as<float>()[from_at + i];
    } else {
      to.as<double>()[to_at + i] += from.as<double>()[from_at + i];
    }
  }
}

}  // namespace

HaloExchange::HaloExchange(Arena& arena, const HaloSizes& sizes) : sizes_(sizes) {
  const int64_t bytes =
      sizes.sequences * (2 * sizes.columns + sizes.values) * dtype_bytes(wide_dtype(sizes.dtype));
  out_ = arena.take_host("context.halo_out", "comm", DType::kU8, {2, bytes});
  in_ = arena.take_host("context.halo_in", "comm", DType::kU8, {2, bytes});
  const int64_t C = sizes.columns, M = sizes.values, halos = 2 * sizes.sequences;
  if (!arena.on_device() || bytes == 0) return;
  rows_ = StagedRows(arena, "context.halo_rows_host", sizes.dtype, 2 * halos, C + 2 * M);
  conv_ = StagedRows(arena, "context.halo_conv_host", sizes.dtype, halos, 2 * C);
  value_ = StagedRows(arena, "context.halo_value_host", sizes.dtype, halos, M);
  conv_gradient_ =
      StagedRows(arena, "context.halo_conv_gradient_host", wide_dtype(sizes.dtype), halos, 2 * C);
}

// [B, 2C+M]: two columns, older first, and a value.
Tensor HaloExchange::message(const Tensor& buffer, int slot, int64_t sequences, DType dtype) const {
  return make_tensor(buffer.rows(slot, slot + 1).data, dtype,
                     {sequences, 2 * sizes_.columns + sizes_.values});
}

// out_ by slot: what the chunk here says to the chunk after it (to_next) or before it. in_ by slot:
// what its other neighbour says to the chunk here.
void HaloExchange::swap(Communicator& comm, int64_t rank, int64_t sequences, DType dtype,
                        bool to_next) {
  const int64_t ranks = comm.size();
  // The lower chunks' order is that of the ranks; the upper chunks' is the reverse.
  const int64_t peer_of[2] = {to_next ? rank + 1 : rank - 1, to_next ? rank - 1 : rank + 1};
  Exchange exchange(comm, Operation::kMessage);
  for (const int slot : {0, 1}) {
    const Tensor m = message(out_, slot, sequences, dtype);
    const int64_t to = peer_of[slot];
    if (to >= 0 && to < ranks) {
      exchange.send(static_cast<int>(to), bytes_of(m));
    } else if (to == ranks) {  // the middle: chunks C-1 and C are both here
      copy_elements(message(in_, 1 - slot, sequences, dtype), 0, m, 0, m.count());
    }
  }
  for (const int slot : {0, 1}) {
    const int64_t from = peer_of[1 - slot];
    if (from < 0 || from >= ranks) continue;
    exchange.receive(static_cast<int>(from), bytes_of(message(in_, slot, sequences, dtype)));
  }
  exchange.wait_sent();
}

// The last two rows of a chunk, [2, N], of what copy_out has returned.
Tensor HaloExchange::border(const Tensor& rows, int64_t halo) const {
  const StagedMove& at = borders_[static_cast<size_t>(halo)];
  const int64_t begin = rows_.on_device() ? at.here : at.there;
  return rows.rows(begin, begin + at.count);
}

void HaloExchange::find_borders(const ContextRows& mine) {
  borders_.clear();
  for (int64_t halo = 0; halo < 2 * mine.layout.sequences; ++halo) {
    const int64_t b = halo / 2;
    const int slot = static_cast<int>(halo % 2);
    const int64_t rows = mine.layout.chunk(0, mine.layout.chunk_of(mine.rank, slot)).count();
    borders_.push_back({.there = mine.layout.local_begin(mine.rank, b, slot) + rows - 2,
                        .here = 2 * halo,
                        .count = 2});
  }
}

void HaloExchange::forward(Context& ctx, const HaloPlace& at, const HaloTensors& out,
                           const Tensor& qkv) {
  const ContextRows& mine = at.mine;
  const int64_t B = mine.layout.sequences, C = sizes_.columns, M = sizes_.values, N = C + 2 * M,
                each = 2 * C + M;
  MR_CHECK(B <= sizes_.sequences, "%ld sequences of %ld", long(B), long(sizes_.sequences));
  check_tensor(qkv, "qkv", sizes_.dtype, {mine.rows(), N});
  check_tensor(out.conv, "conv", sizes_.dtype, {2 * B, 2, C});
  check_tensor(out.value, "value", sizes_.dtype, {2 * B, M});
  find_borders(mine);
  const Tensor rows = rows_.copy_out(ctx, qkv, borders_);
  for (const int slot : {0, 1}) {
    const Tensor m = message(out_, slot, B, sizes_.dtype);
    for (int64_t b = 0; b < B; ++b) {
      const Tensor last = border(rows, 2 * b + slot);
      copy_elements(m, b * each, last, 0, C);
      copy_elements(m, b * each + C, last, N, C);
      copy_elements(m, b * each + 2 * C, last, N + C + M, M);
    }
  }
  swap(at.comm, mine.rank, B, sizes_.dtype, true);
  const Tensor conv = conv_.place(out.conv), value = value_.place(out.value);
  for (const int slot : {0, 1}) {
    const Tensor m = message(in_, slot, B, sizes_.dtype);
    for (int64_t b = 0; b < B; ++b) {
      const int64_t halo = 2 * b + slot, before = mine.before[static_cast<size_t>(halo)];
      for (int64_t column = 0; column < 2; ++column) {  // older first
        const int64_t to = (halo * 2 + column) * C;
        before + column < 2 ? zero_elements(conv, to, C)
                            : copy_elements(conv, to, m, b * each + column * C, C);
      }
      before == 0 ? zero_elements(value, halo * M, M)
                  : copy_elements(value, halo * M, m, b * each + 2 * C, M);
    }
  }
  conv_.copy_in(ctx, out.conv, 0, 2 * B);
  value_.copy_in(ctx, out.value, 0, 2 * B);
}

void HaloExchange::backward(Context& ctx, const HaloPlace& at, const Tensor& dqkv,
                            const HaloTensors& d) {
  const ContextRows& mine = at.mine;
  const DType wide = wide_dtype(sizes_.dtype);
  const int64_t B = mine.layout.sequences, C = sizes_.columns, M = sizes_.values, N = C + 2 * M,
                each = 2 * C + M;
  MR_CHECK(B <= sizes_.sequences, "%ld sequences of %ld", long(B), long(sizes_.sequences));
  check_tensor(dqkv, "dqkv", sizes_.dtype, {mine.rows(), N});
  check_tensor(d.conv, "dconv", wide, {2 * B, 2, C});
  check_tensor(d.value, "dvalue", sizes_.dtype, {2 * B, M});
  find_borders(mine);
  const StagedMove halos = {0, 0, 2 * B};
  const Tensor conv = conv_gradient_.start_out(ctx, d.conv, {&halos, 1}),
               value = value_.start_out(ctx, d.value, {&halos, 1}),
               rows = rows_.copy_out(ctx, dqkv, borders_);
  for (const int slot : {0, 1}) {
    const Tensor m = message(out_, slot, B, wide);
    for (int64_t b = 0; b < B; ++b) {
      copy_elements(m, b * each, conv, (2 * b + slot) * 2 * C, 2 * C);
      widen(m, b * each + 2 * C, value, (2 * b + slot) * M, M);
    }
  }
  swap(at.comm, mine.rank, B, wide, false);
  for (const int slot : {0, 1}) {
    const Tensor m = message(in_, slot, B, wide);
    for (int64_t b = 0; b < B; ++b) {
      const Tensor last = border(rows, 2 * b + slot);
      const int64_t after = mine.after[static_cast<size_t>(2 * b + slot)];
      if (after >= 2) add_elements(last, 0, m, b * each, C);
      if (after < 1) continue;
      add_elements(last, N, m, b * each + C, C);
      add_elements(last, N + C + M, m, b * each + 2 * C, M);
    }
  }
  rows_.copy_in(ctx, dqkv, borders_);
}

}  // namespace moraine
