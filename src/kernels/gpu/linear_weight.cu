// LinearWeight, device side: walk the rows of a group, columns of dy against columns of x, and add.
#include "kernels/gpu/linear_weight.h"
#include "kernels/gpu/product_block.h"

namespace moraine::gpu {
inline namespace MR_GPU_SPACE {

// Of a row in shared memory: the next one begins in other banks.
constexpr int kColumnStride = kLinearOutputs + 8, kColumnShared = kLinearDepth * kColumnStride;

// Outputs from `output` by inputs from `input` of a group.
struct WeightBlock {
  int64_t group, row_begin, row_end, output, input;
};

MR_DEVICE WeightBlock weight_block(const LinearWeightArgs& a, int outputs, int inputs) {
  const int64_t tiles = (a.n + outputs - 1) / outputs, group = block_y() / tiles;
  return {group, load(a.rows + group), load(a.rows + (group + 1)), block_y() % tiles * outputs,
          block_x() * inputs};
}

// Columns [begin, begin + 64) of a matrix [.., width], rows [row, row + 32) of those before row_end; zeros elsewhere.
struct MatrixColumns {
  const float* data;
  int64_t row_end, width, begin;
};
MR_DEVICE void load_columns(Shared<float> to, const MatrixColumns& from, int64_t row) {
  for (int i = thread(); i < kLinearDepth * kLinearOutputs; i += kLinearThreadsF32) {
    const int64_t t = row + i / kLinearOutputs, column = from.begin + i % kLinearOutputs;
    const bool inside = t < from.row_end && column < from.width;
    store(to + (i / kLinearOutputs * kColumnStride + i % kLinearOutputs),
          inside ? load(from.data + (t * from.width + column)) : 0.0f);
  }
}

// The gradient of the bias, of the first block of inputs: a thread takes an output.
MR_DEVICE bool has_bias(const LinearWeightArgs& a, const WeightBlock& b, int outputs) {
  return a.dbias != nullptr && b.input == 0 && thread() < outputs;
}
MR_DEVICE void store_bias(const LinearWeightArgs& a, const WeightBlock& b, int outputs, float sum) {
  const int64_t output = b.output + thread(), at = b.group * a.n + output;
  if (has_bias(a, b, outputs) && output < a.n) store(a.dbias + at, load(a.dbias + at) + sum);
}

MR_DEVICE void add_weight(const LinearWeightArgs& a, const WeightBlock& b, int row, int column,
                          float v) {
  const int64_t output = b.output + row, input = b.input + column;
  if (output >= a.n || input >= a.k) return;
  float* const at = a.dw + ((b.group * a.n + output) * a.k + input);
  store(at, load(at) + v);
}

// The sums of a block that is whole: what was there is on its way for a row of tiles before the first of it is stored.
template <ProductShape S>
MR_DEVICE void add_whole(const LinearWeightArgs& a, const WeightBlock& b, WaveSums<S>& sums) {
  const TileCell first = sums.first_cell();
  float* const dw = a.dw + ((b.group * a.n + b.output + first.row) * a.k + b.input + first.column);
  MR_UNROLL for (int i = 0; i < sums.kDown; ++i) {
    sums.each_run_of(i, [&](float* v, int down, int across) {
      const SumRun<float> before = load_run(dw + (down * a.k + across));
      MR_UNROLL for (int e = 0; e < kSumRun; ++e) v[e] = before.v[e] + v[e];
    });
    sums.each_run_of(
        i, [&](const float* v, int down, int across) { store_run(dw + (down * a.k + across), v); });
  }
}

template <ProductShape S>
MR_DEVICE void weight_tiles(const LinearWeightArgs& a) {
  using Outputs = ColumnsOperand<S.rows, S.depth, product_threads<S>()>;
  using Inputs = ColumnsOperand<S.columns, S.depth, product_threads<S>()>;
  static_assert(S.rows <= product_threads<S>(), "a thread takes an output of the bias");
  const WeightBlock b = weight_block(a, S.rows, S.columns);
  if (b.row_begin == b.row_end) return;
  const Outputs dy({static_cast<const BF16*>(a.dy), b.row_begin, b.row_end, a.n}, b.output);
  const Inputs x({static_cast<const BF16*>(a.x), b.row_begin, b.row_end, a.k}, b.input);
  WaveSums<S> sums = {};
  const bool any = b.output + sums.row() < a.n && b.input + sums.column() < a.k;
  float bias = 0;
  add_product<S>(sums, dy, x, {b.row_end - b.row_begin, any}, [&](Shared<Chunk> stage) {
    if (!has_bias(a, b, S.rows)) return;
    MR_ROLLED for (int t = 0; t < S.depth; ++t) {
      const int place = chunk_place<Outputs::kChunks>(t, thread() / kChunk);
      bias += widen(load_cell(stage + place, thread() % kChunk));
    }
  });
  if (b.output + S.rows <= a.n && b.input + S.columns <= a.k &&
      lines_are_aligned<SumRun<float>>(a.dw, a.k)) {
    add_whole<S>(a, b, sums);
  } else if (any) {
    sums.each([&](int row, int column, float v) { add_weight(a, b, row, column, v); });
  }
  store_bias(a, b, S.rows, bias);
}

// 4 x 4 elements for each thread.
MR_DEVICE void weight_fused(const LinearWeightArgs& a) {
  MR_SHARED(float, dy, kColumnShared);
  MR_SHARED(float, x, kColumnShared);
  const WeightBlock b = weight_block(a, kLinearOutputs, kLinearOutputs);
  if (b.row_begin == b.row_end) return;
  const MatrixColumns outputs = {static_cast<const float*>(a.dy), b.row_end, a.n, b.output};
  const MatrixColumns inputs = {static_cast<const float*>(a.x), b.row_end, a.k, b.input};
  const int row = thread() / 16 * 4, column = thread() % 16 * 4;
  float sum[4][4] = {};
  float bias = 0;
  for (int64_t begin = b.row_begin; begin < b.row_end; begin += kLinearDepth) {
    load_columns(dy, outputs, begin);
    load_columns(x, inputs, begin);
    sync_block();
    for (int t = 0; t < kLinearDepth; ++t) {
      float left[4], right[4];
      MR_UNROLL for (int i = 0; i < 4; ++i) {
        left[i] = load(dy + (t * kColumnStride + row + i));
        right[i] = load(x + (t * kColumnStride + column + i));
      }
      MR_UNROLL for (int i = 0; i < 16; ++i) {
        sum[i / 4][i % 4] = fused(left[i / 4], right[i % 4], sum[i / 4][i % 4]);
      }
    }
    if (has_bias(a, b, kLinearOutputs)) {
      for (int t = 0; t < kLinearDepth; ++t) bias += load(dy + (t * kColumnStride + thread()));
    }
    sync_block();
  }
  MR_UNROLL for (int i = 0; i < 16; ++i) {
    add_weight(a, b, row + i / 4, column + i % 4, sum[i / 4][i % 4]);
  }
  store_bias(a, b, kLinearOutputs, bias);
}

MR_KERNEL(linear_weight_bf16, kProduct.waves() * kWave, LinearWeightArgs a) {
  weight_tiles<kProduct>(a);
}
MR_KERNEL(linear_weight_bf16_large, kLargeProduct.waves() * kWave, LinearWeightArgs a) {
  weight_tiles<kLargeProduct>(a);
}
MR_KERNEL(linear_weight_f32, kLinearThreadsF32, LinearWeightArgs a) { weight_fused(a); }

}  // namespace MR_GPU_SPACE
}  // namespace moraine::gpu
