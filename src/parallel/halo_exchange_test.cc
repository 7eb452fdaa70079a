// HaloExchange: fails if the convolution or the value shift over ranks, forward or backward,
// differs from the same over whole documents; if a halo crosses a document border or stops at a
// chunk border; or if a device, whose copies happen late, does not have the CPU's bits.
#include "parallel/halo_exchange.h"

#include <gtest/gtest.h>

#include <mutex>

#include "comm/thread_ranks.h"
#include "kernels/cca_conv.h"
#include "kernels/check_tensor.h"
#include "kernels/gpu/gpu_arena_memory.h"
#include "kernels/host_copy.h"
#include "kernels/ref/element.h"
#include "kernels/value_shift.h"
#include "parallel/test_late_gpu.h"
#include "parallel/test_packed.h"
#include "testing/rig.h"

namespace moraine {
namespace {

using namespace testing;

constexpr int64_t kHeads = 3, kHeadWidth = 5, kKeyHeads = 2;  // of q and k together; of v
constexpr int64_t kColumns = kHeads * kHeadWidth, kValues = kKeyHeads * kHeadWidth;
constexpr int64_t kHalf = kValues / 2, kAll = kColumns + kValues;

// [G, T, 2d] by row of a head: the conv's pairs as [T, G*2d] rows and back.
Tensor as_rows(Rig& rig, const Tensor& pair) {
  const int64_t G = pair.dims[0], T = pair.dims[1], n = pair.dims[2];
  const Tensor rows = rig.zeros({T, G * n}, pair.dtype);
  for (int64_t i = 0; i < pair.count(); ++i) {
    ref::set(rows, (i / n % T) * G * n + i / n / T * n + i % n, ref::get(pair, i));
  }
  return rows;
}
Tensor as_heads(Rig& rig, const Tensor& rows) {
  const int64_t T = rows.dims[0], G = kHeads, n = 2 * kHeadWidth;
  const Tensor pair = rig.zeros({G, T, n}, rows.dtype);
  for (int64_t i = 0; i < pair.count(); ++i) {
    ref::set(pair, i, ref::get(rows, (i / n % T) * G * n + i / n / T * n + i % n));
  }
  return pair;
}

// In the batch's rows.
struct WholeBatch {
  WholeBatch(Rig& rig, int64_t T, DType dtype) {
    const DType wide = wide_dtype(dtype);
    qkv = rig.normal({T, kAll}, dtype, 1), w = rig.normal({kColumns, 2}, wide, 2);
    b = rig.normal({kColumns}, wide, 3), dpair = rig.normal({T, kHeads * 2 * kHeadWidth}, dtype, 4);
    dv = rig.normal({T, kKeyHeads, kHeadWidth}, dtype, 5);
    pair = rig.zeros({T, kHeads * 2 * kHeadWidth}, dtype);
    v = rig.zeros({T, kKeyHeads, kHeadWidth}, dtype), dqkv = rig.zeros({T, kAll}, dtype);
    dw = rig.zeros({kColumns, 2}, wide), db = rig.zeros({kColumns}, wide);
  }
  Tensor qkv, w, b, dpair, dv;   // in
  Tensor pair, v, dqkv, dw, db;  // out
};

struct Halos {
  HaloTensors halo = {}, dhalo = {};
  std::span<const int64_t> rows = {};
};

// The layer's use of it, on rows whose segments may have halos.
void run_layer(Rig& rig, const WholeBatch& t, Segments segments, const Halos& halos) {
  const auto& [halo, dhalo, halo_row] = halos;
  const int64_t T = t.qkv.dims[0];
  const Tensor pair = rig.zeros({kHeads, T, 2 * kHeadWidth}, t.qkv.dtype);
  cca_conv_forward(rig.ctx, {.pair = pair,
                             .qkv = t.qkv,
                             .halo = halo.conv,
                             .w = t.w,
                             .b = t.b,
                             .segments = segments,
                             .halo_row = halo_row});
  const Tensor rows = as_rows(rig, pair);
  std::memcpy(t.pair.data, rows.data, static_cast<size_t>(rows.bytes()));
  value_shift_forward(rig.ctx, {.v = t.v,
                                .qkv = t.qkv,
                                .halo = halo.value,
                                .segments = segments,
                                .delayed = true,
                                .halo_row = halo_row});
  value_shift_backward(rig.ctx, {.dqkv = t.dqkv,
                                 .dv = t.dv,
                                 .segments = segments,
                                 .delayed = true,
                                 .dhalo = dhalo.value,
                                 .halo_row = halo_row});
  cca_conv_backward(rig.ctx, {.dqkv = t.dqkv,
                              .dw = t.dw,
                              .db = t.db,
                              .dpair = as_heads(rig, t.dpair),
                              .qkv = t.qkv,
                              .w = t.w,
                              .segments = segments,
                              .dhalo = dhalo.conv,
                              .halo = halo.conv,
                              .halo_row = halo_row});
}

void run_ranks(const Packed& p, const WholeBatch& in, const WholeBatch& out, Backend backend) {
  std::mutex mutex;  // of the sums over ranks
  run_thread_ranks(static_cast<int>(p.layout.ranks), [&](Transport& transport) {
    Communicator comm = world_of(transport);
    Rig rig(backend, 1);
    Arena arena(Arena::Mode::kReal);
    const DType dtype = in.qkv.dtype;
    const int64_t B = p.layout.sequences;
    HaloExchange exchange(
        arena, {.sequences = B + 1, .columns = kColumns, .values = kHalf, .dtype = dtype});
    const ContextRows mine = make_context_rows(p.layout, comm.rank(), p.segment_begin);
    WholeBatch t(rig, mine.rows(), dtype);
    t.w = in.w, t.b = in.b;
    take_rows(mine, t.qkv, in.qkv);
    take_rows(mine, t.dpair, in.dpair);
    take_rows(mine, t.dv, in.dv);
    const HaloTensors halo = {rig.normal({2 * B, 2, kColumns}, dtype, 8),
                              rig.normal({2 * B, kHalf}, dtype, 9)};
    const HaloTensors dhalo = {rig.normal({2 * B, 2, kColumns}, wide_dtype(dtype), 10),
                               rig.normal({2 * B, kHalf}, dtype, 11)};
    exchange.forward(rig.ctx, {comm, mine}, halo, t.qkv);
    run_layer(rig, t, mine.segments, {.halo = halo, .dhalo = dhalo, .rows = mine.halo_row});
    exchange.backward(rig.ctx, {comm, mine}, t.dqkv, dhalo);
    put_rows(mine, out.pair, t.pair);
    put_rows(mine, out.v, t.v);
    put_rows(mine, out.dqkv, t.dqkv);
    const std::lock_guard lock(mutex);
    for (const auto& [sum, mine] : {std::pair(out.dw, t.dw), {out.db, t.db}}) {
      for (int64_t i = 0; i < sum.count(); ++i) ref::add(sum, i, ref::get(mine, i));
    }
  });
}

void expect_ranks_are_whole(int64_t ranks, int64_t sequences, int64_t length, uint64_t seed,
                            DType dtype) {
  SCOPED_TRACE("ranks " + std::to_string(ranks) + " length " + std::to_string(length) + " seed " +
               std::to_string(seed) + " " + dtype_name(dtype));
  const Backend backend = dtype == DType::kF64 ? Backend::kRef : Backend::kCpu;
  Rig rig(backend);
  const Packed p = random_packed(ranks, sequences, length, seed);
  const WholeBatch want(rig, p.layout.rows(), dtype), got(rig, p.layout.rows(), dtype);
  run_layer(rig, want, whole_segments(p), {});
  run_ranks(p, want, got, backend);
  EXPECT_SAME_BITS(got.pair, want.pair);
  EXPECT_SAME_BITS(got.v, want.v);
  // Rows before a border are rounded once more.
  EXPECT_CLOSE(got.dqkv, want.dqkv, Tolerance{2 * tolerance(dtype, 8).relative});
  EXPECT_CLOSE(got.dw, want.dw, tolerance(wide_dtype(dtype), p.layout.rows()));
  EXPECT_CLOSE(got.db, want.db, tolerance(wide_dtype(dtype), p.layout.rows()));
}

TEST(HaloExchange, RanksGiveWhatWholeDocumentsGive) {
  for (const DType dtype : {DType::kF64, DType::kF32, DType::kBF16}) {
    for (uint64_t seed = 1; seed < 6; ++seed) {
      expect_ranks_are_whole(1, 2, 9, seed, dtype);
      expect_ranks_are_whole(2, 1, 8, seed, dtype);
      expect_ranks_are_whole(2, 3, 31, seed, dtype);
      expect_ranks_are_whole(4, 1, 16, seed, dtype);
      expect_ranks_are_whole(4, 2, 45, seed, dtype);
    }
  }
}

// Layer after layer, and nobody waits between.
void expect_devices_have_the_bits(int64_t ranks, uint64_t seed, DType dtype) {
  constexpr int kLayers = 3;
  const Packed p = random_packed(ranks, 2, 31, seed);
  run_thread_ranks(static_cast<int>(ranks), [&](Transport& transport) {
    Communicator comm = world_of(transport);
    Rig rig(Backend::kCpu, 1);
    LateGpu gpu;
    gpu::GpuArenaMemory memory(gpu);
    Arena host(Arena::Mode::kReal), device(Arena::Mode::kReal, &memory);
    Pool pool(1);
    Context there = make_context(gpu, pool);
    const DType wide = wide_dtype(dtype);
    const HaloSizes sizes = {.sequences = 3, .columns = kColumns, .values = kHalf, .dtype = dtype};
    HaloExchange on_host(host, sizes), on_device(device, sizes);
    const ContextRows mine = make_context_rows(p.layout, comm.rank(), p.segment_begin);
    struct Layer {  // qkv, dqkv, halos and their gradients
      std::vector<Tensor> here, there;
    };
    std::vector<Layer> layers;
    for (uint64_t l = 0; l < kLayers; ++l) {
      const uint64_t of = 10 * l + 100 * static_cast<uint64_t>(comm.rank());
      Layer layer{.here = {rig.normal({mine.rows(), kAll}, dtype, of + 1),
                           rig.normal({mine.rows(), kAll}, dtype, of + 2),
                           rig.normal({4, 2, kColumns}, dtype, of + 3),
                           rig.normal({4, kHalf}, dtype, of + 4),
                           rig.normal({4, 2, kColumns}, wide, of + 5),
                           rig.normal({4, kHalf}, dtype, of + 6)},
                  .there = {}};
      for (Tensor t : layer.here) {
        t.data = device.take_bytes("twin", "activations", t.bytes());
        copy_in(there, t, layer.here[layer.there.size()]);
        layer.there.push_back(t);
      }
      layers.push_back(layer);
    }
    const auto exchange = [&](Context& ctx, HaloExchange& halos, const std::vector<Tensor>& t) {
      halos.forward(ctx, {comm, mine}, {t[2], t[3]}, t[0]);
      halos.backward(ctx, {comm, mine}, t[1], {t[4], t[5]});
    };
    for (const Layer& l : layers) exchange(rig.ctx, on_host, l.here);
    for (const Layer& l : layers) exchange(there, on_device, l.there);
    for (const Layer& l : layers) {
      for (size_t i = 0; i < l.here.size(); ++i) {
        const Tensor got = rig.copy(l.here[i]);
        copy_out(there, got, l.there[i]);
        EXPECT_SAME_BITS(got, l.here[i]);
      }
    }
  });
}

TEST(HaloExchange, DevicesHaveTheBitsOfTheCpu) {
  for (const DType dtype : {DType::kF32, DType::kBF16})
    for (const int64_t ranks : {2, 4}) expect_devices_have_the_bits(ranks, 3, dtype);
}

}  // namespace
}  // namespace moraine
